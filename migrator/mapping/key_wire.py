"""An item's key as JSON, each value under its DynamoDB type: in checkpoints, marks and the journal's memory."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

from migrator.model import ItemKey


def write_key(key: ItemKey | None) -> list[dict[str, str]] | None:
    """The key's values, each under its DynamoDB type."""
    return None if key is None else [_write(value) for value in key]


def read_key(values: list[dict[str, str]] | None) -> ItemKey | None:
    """The key that `write_key` wrote."""
    return None if values is None else tuple(_read(value) for value in values)


def _write(value: Any) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"B": base64.b64encode(value).decode("ascii")}
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


def _read(value: dict[str, str]) -> Any:
    ((type_, text),) = value.items()
    if type_ == "B":
        return base64.b64decode(text)
    return text if type_ == "S" else Decimal(text)
