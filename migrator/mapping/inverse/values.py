"""Values read back from attributes and texts: filters undone, by the widths of texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from migrator.mapping.items import values
from migrator.mapping.items.filters import FILTERS, PLAIN, FilterContext, epoch_of, sample_of, specs_of
from migrator.mapping.items.rows import keeps_every_value
from migrator.mapping.items.templates import format_width
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Filter, Ref
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
"""Why a column is lost. `absent`: no item has it; `cut`: a part of a time; `case`, `spaces`: of a text; `null`: a NULL
has the form of a value; `map`: two values have one; `many`: of many values one is made; `type`: the form does not show
its type; `digest`: a hash, which cannot be inverted; `sparse`: in items or entries that may not be there; `mixed`: next
to another value without a boundary; `keyless`: in items without the row's key."""


class Loss(Struct, frozen=True):
    """Why a value is lost, in words that follow 'lost: '."""

    cause: Cause
    why: str


Reading = Callable[[Any], Any]
"""From an item's value to the column's decoded value. Raises: ValueError for a value that no row makes."""


class UnfitError(ValueError):
    """A value that no row makes; the message does not contain it, as Python's own may."""


class Undone(Struct, frozen=True):
    """A reference read back, from an attribute and from a template's text. `raw`: without a filter."""

    of_attribute: Reading | Loss
    of_text: Reading | Loss
    raw: bool = False


def both(reading: Reading | Loss) -> Undone:
    return Undone(reading, reading)


def after(then: Reading | Loss, before: Reading) -> Reading | Loss:
    return then if isinstance(then, Loss) else lambda value: then(before(value))


# ── Values of a kind, in attributes and in texts ──


def attribute_reader(kind: Kind) -> Reading:
    types, reader = _IN_ATTRIBUTES[kind.name]
    read = reader(kind)

    def reading(value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise UnfitError(f"it is of another type than the column ({kind.name})")
        return read(value)

    return reading


def _decoded(kind: Kind) -> Reading:
    decode = values.decoder(kind)

    def read(value: Any) -> Any:
        try:
            return decode(value)
        except RowError as error:
            raise UnfitError(str(error)) from None

    return read


def _spelled(kind: Kind) -> Reading:
    """Accepts only the text that the core writes: no row makes another one."""
    form = values.PYTHON_FORMS[kind.name][1]

    def read(text: str) -> Any:
        value = str(form(text)) if kind.name == "uuid" else form(text)
        if values.text(value) != text:
            raise UnfitError(f"{_OTHER_FORM}, {_DIGIT.sub('0', values.text(value))}")
        return value

    return read


_OTHER_FORM = "it is not in the form that migrator writes"
_DIGIT = re.compile("[0-9a-f]")
"""Replaced in the message."""


def spelled(value: Any, text: str, form: Callable[[Any], str] = values.text) -> Any:
    """The value, if this is the text that migrator writes. Raises: ValueError."""
    if form(value) != text:
        raise UnfitError(_OTHER_FORM)
    return value


def _as_it_is(_: Kind) -> Reading:
    return lambda value: value


_NUMBERS = (int, Decimal)
_IN_ATTRIBUTES: dict[str, tuple[tuple[type, ...], Callable[[Kind], Reading]]] = {
    **dict.fromkeys(("integer", "number", "float"), (_NUMBERS, _decoded)),
    **dict.fromkeys(("date", "time", "timestamp", "uuid"), ((str,), _spelled)),
    **dict.fromkeys(("text", "bits"), ((str,), _as_it_is)),
    **dict.fromkeys(("list", "set"), ((list,), _as_it_is)),
    "boolean": ((bool,), _as_it_is),
    "binary": ((bytes,), _as_it_is),
    "json": (
        (str, bool, int, Decimal, list, dict, type(None)),
        lambda _: lambda value: values.JSON_NULL if value is None else value,
    ),
    "map": ((dict,), _as_it_is),
    "plain": ((str, int, Decimal, bytes), _as_it_is),
}
"""By kind, the types of attributes, and the function that restores the column's value."""


def text_reader(kind: Kind) -> Reading | Loss:
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
            raise UnfitError(f"the text is not a valid {kind.name}") from None
        return spelled(value, text)

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
    raise UnfitError("it is not a text")


def text_kept(value: Undone, kind: Kind, *, loosely_typed: bool) -> Undone:
    """`|text` also keeps the text of values without a form in the kind, such as NaN."""
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
        raise UnfitError(f"it is not as wide as its format {format_spec}")
    whole, _, fraction = text.partition(".")
    if len(fraction) != decimals:
        raise UnfitError(f"it does not have the decimals of its format {format_spec}")
    number = Decimal(text)
    if kind.name == "integer":
        return str(int(number))
    return values.text(_decoded(kind)(number)) if kind.name == "number" else _plain_number(whole, fraction)


def _plain_number(whole: str, fraction: str) -> str:
    return (whole.lstrip("0") or "0") + (f".{fraction.rstrip('0')}".rstrip("."))


def undone(ref: Ref, kind: Kind, around: FilterContext, *, nullable: bool, loosely_typed: bool) -> Undone:
    """The column's value from the reference's result.

    In the decoded form of the core (mapping/items/values.py): values equal there come back as one.
    """
    if kind.name == "plain" and not loosely_typed:
        lost = Loss("type", "its type is not declared: a text may have been a time")
        return Undone(lost, lost)
    if kind.name == "plain" and ref.format is not None:
        kind = Kind("float")
    value = Undone(attribute_reader(kind), text_reader(kind), raw=True)
    if ref.format is not None:
        value = both(after(value.of_text, partial(padded_text, ref.format, kind)))
    for place, used in enumerate(ref.filters):
        spec = FILTERS[used.name]
        if spec.undecodable and ref.format is None and keeps_every_value(ref.filters[: place + 1]):
            value = text_kept(value, kind, loosely_typed=loosely_typed)
        else:
            value = STEPS[used.name](used, value, kind, around, nullable)
    return value


# ── Filters, each undone ──

Step = Callable[[Filter, Undone, Kind, FilterContext, bool], Undone]


def _lost(cause: Cause, why: str) -> Step:
    return lambda used, *_: both(Loss(cause, why.format(*used.args)))


_CASED: dict[str, Reading] = {
    "uuid": str.lower,
    "boolean": str.lower,
    "date": str,
    "integer": str,
    "number": str,
    "bits": str,
}
"""Kinds with texts of one case, and the function that restores it."""


def _case(used: Filter, value: Undone, kind: Kind, *_: object) -> Undone:
    if kind.name not in _CASED or not value.raw:
        return both(Loss("case", f"{used.name} maps 'a' and 'A' to one text"))
    return both(after(value.of_text, _CASED[kind.name]))


def _trim(used: Filter, value: Undone, kind: Kind, *_: object) -> Undone:
    if kind.name == "text" or not value.raw:
        where = "both ends" if used.name == "trim" else "the end"
        return both(Loss("spaces", f"{used.name} removes spaces at {where}"))
    return both(value.of_text)


def _or(used: Filter, value: Undone, _: Kind, __: FilterContext, nullable: bool) -> Undone:
    """NULL for the argument's value, if no value of the column has its form."""
    if not nullable:
        return value
    return Undone(_null_as(used.args[0], value.of_attribute), _null_as(used.args[0], value.of_text))


def _null_as(text: str, read: Reading | Loss) -> Reading | Loss:
    if isinstance(read, Loss):
        return read
    if _fits(read, text):
        return Loss("null", f"NULL and '{text}' become the same")
    return lambda value: None if value == text else read(value)


def _map(used: Filter, value: Undone, _: Kind, around: FilterContext, __: bool) -> Undone:
    read = value.of_text
    if isinstance(read, Loss):
        return both(read)
    names: dict[str, str] = {}
    for text, name in around.maps[used.args[0]].items():
        if not _fits(read, text):
            continue
        if name in names:
            return both(
                Loss("map", f"the map '{used.args[0]}' maps both '{names[name]}' and '{text}' to '{name}'")
            )
        names[name] = text

    def unmapped(name: Any) -> Any:
        if not isinstance(name, str) or name not in names:
            raise UnfitError(f"the map '{used.args[0]}' does not make this value")
        return read(names[name])

    return both(unmapped)


def _fits(read: Reading, text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


_ESCAPED = re.compile(r"(?:%[0-9A-F]{2})+")


def _escape(used: Filter, value: Undone, _: Kind, around: FilterContext, __: bool) -> Undone:
    def unescaped(text: Any) -> str:
        text = text_itself(text)
        with suppress(UnicodeDecodeError):
            plain = _ESCAPED.sub(lambda match: bytes.fromhex(match[0].replace("%", "")).decode(), text)
            if FILTERS[used.name].make((), around)(plain) == text:
                return plain
        raise UnfitError("it is not escaped as migrator escapes")

    return both(after(value.of_text, unescaped))


_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def _reversed_digits(text: Any) -> Any:
    return text.translate(_COMPLEMENT) if isinstance(text, str) else text


def _json(_: Filter, value: Undone, *__: object) -> Undone:
    def parsed(text: Any) -> Any:
        try:
            return json.loads(text, parse_float=Decimal)
        except (TypeError, ValueError, InvalidOperation, RecursionError):
            raise UnfitError("it is not JSON") from None

    return both(after(value.of_attribute, parsed))


_DIGITS = {"s": 0, "basic": 0, "ms": 3, "ms,basic": 3, "": 6}
_BASIC = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)")


def _iso(used: Filter, _: Undone, kind: Kind, __: FilterContext, ___: bool) -> Undone:
    form = ",".join(used.args)
    if kind.name == "plain":
        return both(Loss("type", "the time may have been a date"))
    if kind.name == "timestamp" and (6 if kind.precision is None else kind.precision) > _DIGITS[form]:
        return both(
            Loss("cut", f"iso:{form} cuts the time to {'seconds' if not _DIGITS[form] else 'milliseconds'}")
        )
    forward = FILTERS[used.name].make(used.args, PLAIN)
    return both(_moment_reader(kind, forward))


def _moment_reader(kind: Kind, forward: Callable[[Any], str]) -> Reading:
    def read(text: Any) -> Any:
        text = text_itself(text)
        moment = datetime.fromisoformat(_BASIC.sub(r"\1-\2-\3T\4:\5:\6", text))
        return spelled(moment.date() if kind.name == "date" else moment, text, forward)

    return read


def _day(used: Filter, _: Undone, kind: Kind, *__: object) -> Undone:
    if kind.name != "date" or (used.name == "bucket" and used.args[0] != "day"):
        return both(Loss("cut", f"{used.name} keeps a part of the time"))
    return both(text_reader(kind))


def _epoch(used: Filter, _: Undone, kind: Kind, around: FilterContext, __: bool) -> Undone:
    digits, unit = (3, "milliseconds") if used.args else (0, "seconds")
    is_cut = kind.name == "timestamp" and (6 if kind.precision is None else kind.precision) > digits
    if kind.name == "plain" or is_cut:
        return both(Loss("cut", f"epoch cuts the time to {unit}"))
    if not kind.zone and around.timezone not in (None, "UTC"):
        return both(Loss("cut", f"in the zone {around.timezone} two times may be one moment"))
    return both(partial(read_epoch, kind, per_s=10**digits))


def read_epoch(kind: Kind, number: Any, per_s: int = 1) -> date:
    try:
        moment = datetime(1970, 1, 1) + timedelta(seconds=1) / per_s * int(number)
    except (OverflowError, TypeError, ArithmeticError):
        raise UnfitError(f"this number is not a {kind.name}") from None
    value = moment.date() if kind.name == "date" else moment.replace(tzinfo=UTC if kind.zone else None)
    if epoch_of(value, per_s=per_s) != number:
        raise UnfitError("it is not midnight" if kind.name == "date" else "it is not a whole number")
    return value


STEPS: dict[str, Step] = {
    "iso": _iso,
    "epoch": _epoch,
    "lower": _case,
    "upper": _case,
    "trim": _trim,
    "rtrim": _trim,
    "or": _or,
    "map": _map,
    "text": lambda used, value, *_: both(value.of_text),
    "escape": _escape,
    "hash": _lost("digest", "a hash cannot be reversed"),
    "shard": _lost("many", "shard:{0} has {0} values"),
    "desc": lambda used, value, *_: both(after(value.of_text, _reversed_digits)),
    "json": _json,
    "path": lambda used, value, *_: value,
    "first": _lost("many", "first is another row's value"),
    "at": _lost("many", "at:{0} is another row's value"),
    "depth": _lost("many", "depth counts rows"),
    "set": _lost("many", "a set keeps neither the order of a list nor a value twice"),
    "bucket": _day,
    "date": _day,
    "week": _lost("cut", "week keeps a part of the time"),
    "month": _lost("cut", "month keeps a part of the time"),
    "quarter": _lost("cut", "quarter keeps a part of the time"),
    "year": _lost("cut", "year keeps a part of the time"),
    "geohash": _lost("many", "geohash:{0} is a cell, not a place"),
}


# ── Texts that are always as long ──


def width_of(ref: Ref, kind: Kind | None, *, loosely_typed: bool) -> int | None:
    filters = [used for used in ref.filters if not FILTERS[used.name].keeps_width]
    if ref.format is not None:
        return None if filters else format_width(ref.format)[0]
    odd_texts = any(spec.undecodable for spec in specs_of(ref))
    if kind is None or len(filters) > 1 or odd_texts:
        return None
    if not filters:
        return {"uuid": 36, "date": 10}.get(kind.name)
    spec = FILTERS[filters[0].name]
    if (
        spec.width != "fixed"
        or spec.values > 1
        or (spec.moment and loosely_typed and kind.name == "timestamp")
    ):
        return None
    return len(sample_of(filters[0], zone=kind.zone))
