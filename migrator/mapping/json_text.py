"""Values as JSON text, one text for one value on every source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from migrator.errors import RowError
from migrator.mapping import values


def json_text(value: Any) -> str:
    """`value` (decoded) as JSON without spaces, names in order; numbers keep every digit, times are texts.

    Raises: RowError for bytes, which JSON does not know.
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_quoted(name)}:{json_text(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(json_text(one) for one in value) + "]"
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value()
        return format(value.to_integral_value() if whole else value.normalize(), "f")
    if isinstance(value, bytes):
        raise RowError("bytes have no JSON; keep the column as binary")
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    return _quoted(values.text(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
