"""What DynamoDB costs in a region, by the dated file beside this module."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from ruamel.yaml import YAML

from migrator.mapping.costs import Price

FILE = "prices.yaml"


def price_of(region: str | None) -> Price | None:
    """The on-demand prices of a region; None where the file has none."""
    found = _read()
    prices = found["regions"].get(region)
    if region is None or prices is None:
        return None
    write, read, storage = (Decimal(str(prices[name])) for name in ("write", "read", "storage"))
    return Price(region, write, read, storage, f"{found['as_of']}, {found['source']}")


def known_regions() -> list[str]:
    return sorted(_read()["regions"])


@cache
def _read() -> Any:
    text = (files("migrator") / FILE).read_text(encoding="utf-8")
    return YAML(typ="safe", pure=True).load(text)
