"""What DynamoDB costs in a region, by the dated file beside this module."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from ruamel.yaml import YAML

from migrator.mapping.costs import Price

FILE = "prices.yaml"
_NAMES = ("write", "read", "storage")


def price_of(region: str | None, table_class: str | None = None) -> Price | None:
    """The on-demand prices of a region for tables of a class (None: standard); None where the file has none."""
    found = _read()
    prices = found["regions"].get(region)
    if region is None or prices is None:
        return None
    rare = table_class == "standard_infrequent_access"
    times = found["infrequent_access"] if rare else dict.fromkeys(_NAMES, 1)
    write, read, storage = (Decimal(str(prices[name])) * Decimal(str(times[name])) for name in _NAMES)
    return Price(region, write, read, storage, f"{found['as_of']}, {found['source']}", infrequent=rare)


def known_regions() -> list[str]:
    return sorted(_read()["regions"])


@cache
def _read() -> Any:
    text = (files("migrator") / FILE).read_text(encoding="utf-8")
    return YAML(typ="safe", pure=True).load(text)
