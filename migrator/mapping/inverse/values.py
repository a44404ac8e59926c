"""Values of a column as they stand in attributes and in texts, read back into the heart's decoded form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from migrator.mapping.items import values
from migrator.mapping.items.templates import format_width
from migrator.mapping.model.facts import Kind
from migrator.runtime.errors import RowError

Cause = Literal[
    "absent",
    "cut",
    "case",
    "spaces",
    "null",
    "map",
    "many",
    "type",
    "digest",
    "python",
    "sparse",
    "mixed",
    "keyless",
]
"""Why a column is lost. `absent`: no item has it; `cut`: a part of a time; `case`, `spaces`: of a text; `null`: a NULL has
the form of a value; `map`: two values have one; `many`: of many values one is made; `type`: the form tells not of which
type it was; `digest`: a hash, which nothing reads back; `sparse`: in items or entries that may not be there; `mixed`: beside
another value, so that nothing says where one ends; `keyless`: in items that do not say of which row they are."""


class Loss(Struct, frozen=True):
    """Why a value does not come back, in words that follow 'lost: '."""

    cause: Cause
    why: str


Reading = Callable[[Any], Any]
"""From what stands in an item to the column's decoded value. Raises: ValueError for what no row makes."""


class Undone(Struct, frozen=True):
    """A reference read back: as an attribute with its own type, and as text within a template. `raw`: no filter made it."""

    of_attribute: Reading | Loss
    of_text: Reading | Loss
    raw: bool = False


def both(reading: Reading | Loss) -> Undone:
    return Undone(reading, reading)


def after(then: Reading | Loss, before: Reading) -> Reading | Loss:
    """`before` on what stands in the item, and `then` on what that gives."""
    return then if isinstance(then, Loss) else lambda value: then(before(value))


# ── Values of a kind, as they stand in attributes and in texts ──


def attribute_reader(kind: Kind) -> Reading:
    """Reads a value of the kind that stands in an attribute as it is."""
    types, read = _IN_ATTRIBUTES[kind.name](kind)

    def reading(value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError(f"it is of another type than the column ({kind.name})")
        return read(value)

    return reading


def _decoded(kind: Kind) -> Reading:
    decode = values.decoder(kind)

    def read(value: Any) -> Any:
        try:
            return decode(value)
        except RowError as error:
            raise ValueError(str(error)) from None

    return read


_NUMBERS = (int, Decimal)
STORED: Mapping[str, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    "date": ((str,), date.fromisoformat),
    "time": ((str,), time.fromisoformat),
    "timestamp": ((str,), datetime.fromisoformat),
    "uuid": ((str,), UUID),
    "number": (_NUMBERS, Decimal),
    "float": (_NUMBERS, float),
}
"""By kind, the types that stand in an attribute, and what makes Python's own value of one.

`reverse` refuses what no row makes; a module of `export --as python` leaves such a value as it is."""


def _spelled(
    name: str, then: Reading = lambda value: value
) -> Callable[[Kind], tuple[tuple[type, ...], Reading]]:
    """Of texts that the heart writes in one way: any other way was made by no row."""
    types, form = STORED[name]

    def read(text: str) -> Any:
        value = then(form(text))
        if values.text(value) != text:
            raise ValueError("it is not in the form that migrator writes")
        return value

    return lambda _: (types, read)


def _as_it_is(*types: type) -> Callable[[Kind], tuple[tuple[type, ...], Reading]]:
    return lambda _: (types, lambda value: value)


_IN_ATTRIBUTES: dict[str, Callable[[Kind], tuple[tuple[type, ...], Reading]]] = {
    "integer": lambda kind: (_NUMBERS, _decoded(kind)),
    "number": lambda kind: (STORED["number"][0], _decoded(kind)),
    "float": lambda kind: (STORED["float"][0], _decoded(kind)),
    "text": _as_it_is(str),
    "boolean": _as_it_is(bool),
    "date": _spelled("date"),
    "time": _spelled("time"),
    "timestamp": _spelled("timestamp"),
    "uuid": _spelled("uuid", str),
    "binary": _as_it_is(bytes),
    "bits": _as_it_is(str),
    "json": lambda _: (
        (str, bool, int, Decimal, list, dict, type(None)),
        lambda value: values.JSON_NULL if value is None else value,
    ),
    "list": _as_it_is(list),
    "map": _as_it_is(dict),
    "set": _as_it_is(list),
    "plain": _as_it_is(str, int, Decimal, bytes),
}


def text_reader(kind: Kind) -> Reading | Loss:
    """Reads a value of the kind out of the text that the heart makes of it."""
    if kind.name == "plain":
        return Loss("type", "a text may have been a number")
    if kind.name not in _OF_TEXTS:
        return Loss("type", f"a {kind.name} cannot be written as text")
    of_text, in_attribute = _OF_TEXTS[kind.name], attribute_reader(kind)

    def read(text: Any) -> Any:
        text = text_itself(text)
        try:
            value = in_attribute(of_text(text))
        except (InvalidOperation, KeyError):
            raise ValueError(f"the text is not a valid {kind.name}") from None
        if values.text(value) != text:
            raise ValueError("it is not in the form that migrator writes")
        return value

    return read


_OF_TEXTS: dict[str, Reading] = {
    "integer": int,
    "number": Decimal,
    "float": Decimal,
    "boolean": {"true": True, "false": False}.__getitem__,
    **dict.fromkeys(("text", "date", "time", "timestamp", "uuid", "bits"), lambda text: text),
}


def text_itself(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("it is not a text")


def text_kept(value: Undone, kind: Kind, *, loosely_typed: bool) -> Undone:
    """`|text` also keeps the text of what the kind has no form for, such as a NaN."""
    read = value.of_text
    if isinstance(read, Loss):
        return both(read)
    if kind.name == "boolean" and loosely_typed:
        return both(Loss("type", "it may have been a text in the source"))

    def kept(text: Any) -> Any:
        try:
            return read(text)
        except ValueError:
            if not isinstance(text, str):
                raise
            return text

    return both(kept)


def padded_text(format_spec: str, kind: Kind, text: Any) -> str:
    width, decimals = format_width(format_spec)
    if not isinstance(text, str) or len(text) != width or not set(text) <= set("0123456789."):
        raise ValueError(f"it is not as wide as its format {format_spec}")
    whole, _, fraction = text.partition(".")
    if len(fraction) != decimals:
        raise ValueError(f"it does not have the decimals of its format {format_spec}")
    number = Decimal(text)
    if kind.name == "integer":
        return str(int(number))
    return values.text(_decoded(kind)(number)) if kind.name == "number" else _plain_number(whole, fraction)


def _plain_number(whole: str, fraction: str) -> str:
    return (whole.lstrip("0") or "0") + (f".{fraction.rstrip('0')}".rstrip("."))
