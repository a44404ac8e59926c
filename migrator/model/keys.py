"""A root row's primary key as text, and the `_src` text that an item carries."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from migrator.model.table import ItemKey, SourceKey, TableDesign

_EXACT = Context(prec=400)
_AS_TEXT = (Decimal, UUID)
_AS_ISO = (datetime, date, time)


def encode_key(values: Sequence[Any]) -> SourceKey:
    """The key values (as the driver gave them) as a JSON array without spaces.

    Equal keys have equal text. Bytes become {"b64": …}; numbers other than int, UUIDs and times become text,
    which the source reads back as the column's own type.
    Raises: TypeError for a value that no primary key should hold.
    """
    if len(values) == 1 and type(values[0]) is int:
        return f"[{values[0]}]"  # most keys are one, and JSON's machinery takes ten times as long
    return json.dumps([_plain(value) for value in values], ensure_ascii=False, separators=(",", ":"))


def item_key_text(values: Sequence[Any]) -> str:
    """The values of an item's key as encode_key's text; numbers that DynamoDB holds equal have one text."""
    return encode_key([_canonical(value) if isinstance(value, Decimal) else value for value in values])


def item_key_of(text: str, table: TableDesign) -> ItemKey:
    """The item's key that `item_key_text` wrote. Raises: ValueError for text that is none."""
    made = {"text": str, "number": Decimal, "binary": bytes}
    values = zip(table.key, decode_key(text), strict=True)
    return tuple(made[attribute.type](str(v) if attribute.type == "number" else v) for attribute, v in values)


def _canonical(number: Decimal) -> int | Decimal:
    whole = number == number.to_integral_value(context=_EXACT)
    return int(number) if whole else number.normalize(_EXACT)


@functools.lru_cache(maxsize=4096)
def decode_key(text: SourceKey) -> tuple[Any, ...]:
    """The values of `encode_key`'s text, ready to be bound.

    Raises: ValueError for text that is no key.
    """
    values = json.loads(text)
    if not isinstance(values, list) or not values:
        raise ValueError("a key is a JSON array with at least one value")
    return tuple(base64.b64decode(value["b64"]) if isinstance(value, dict) else value for value in values)


def source_text(entity: str, key: SourceKey) -> str:
    """What `_src` holds: the entity's name, a colon, the root row's key."""
    return f"{entity}:{key}"


@functools.lru_cache(maxsize=4096)
def split_source(text: str) -> tuple[str, SourceKey]:
    """Entity and key of a `_src` text.

    Raises: ValueError where the text is not one of ours.
    """
    entity, colon, key = text.partition(":")
    if not colon or not entity:
        raise ValueError("not the text of a source row")
    decode_key(key)
    return entity, key


def source_named(text: str) -> str:
    """The text of a source row, or '': what is none of ours must not be quoted, since nobody knows what stands in it."""
    try:
        split_source(text)
    except ValueError:
        return ""
    return text


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value + 0.0  # -0.0 equals 0.0 in every source, and so must its text
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, _AS_ISO):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"b64": base64.b64encode(bytes(value)).decode("ascii")}
    raise TypeError(f"a key of type {type(value).__name__} cannot be written down")
