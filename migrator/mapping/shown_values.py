"""Values of rows and items as text that may be shown: what a pattern redacts gives way to a short mask. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal
from typing import Any

from migrator.mapping.shown_keys import mask


def json_ready(value: Any) -> Any:
    """`value` with what JSON does not know made plain, for `json_text`: a Decimal that is no integer stays one."""
    if isinstance(value, Mapping):
        return {name: json_ready(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(one) for one in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode("ascii")}
    return value


def value_mask(value: Any) -> str:
    """What stands in place of a redacted value: the same for the same value."""
    return mask(json.dumps(json_ready(value), sort_keys=True, default=str))


def json_text(value: Any, *, indent: int = 0) -> str:
    """`value` as JSON, numbers as numbers with every digit; `indent`: spaces a level, each entry on a line of its own."""
    return _text(json_ready(value), indent)


def value_text(value: Any, *, redacted: bool = False) -> str:
    """A value as JSON text with every digit of a number, so that 9.90 and "9.90" stay two; a mask where it is redacted.

    NULL is nobody's secret.
    """
    return value_mask(value) if redacted and value is not None else _text(value)


def value_texts(names: Sequence[str], values: Sequence[Any], hidden: Set[str]) -> tuple[str, ...]:
    """The values of the attributes `names` as texts; masks of those that are `hidden`."""
    pairs = zip(names, values, strict=True)
    return tuple(value_text(value, redacted=name in hidden) for name, value in pairs)


def _text(value: Any, indent: int = 0, level: int = 1) -> str:
    if isinstance(value, Mapping):
        named = ((json.dumps(str(name), ensure_ascii=False), one) for name, one in value.items())
        return _joined(
            "{}", [f"{name}: {_text(one, indent, level + 1)}" for name, one in named], indent, level
        )
    if isinstance(value, (list, tuple)):
        return _joined("[]", [_text(one, indent, level + 1) for one in value], indent, level)
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(json_ready(value), ensure_ascii=False, default=str)


def _joined(brackets: str, pieces: Sequence[str], indent: int, level: int) -> str:
    if not indent or not pieces:
        return f"{brackets[0]}{', '.join(pieces)}{brackets[1]}"
    line, last = ("\n" + " " * indent * deep for deep in (level, level - 1))
    return f"{brackets[0]}{line}{f',{line}'.join(pieces)}{last}{brackets[1]}"
