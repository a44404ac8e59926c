"""Rows decoded, a mapping's expressions compiled into functions of one, and pointers to values kept in S3."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from migrator.mapping.items import values
from migrator.mapping.items.filters import FILTERS, PLAIN, FilterContext, epoch_of, specs_of
from migrator.mapping.items.templates import format_width
from migrator.mapping.items.values import (
    Decoder,
    NoFormError,
    Undecodable,
    decoder,
    fitting,
    json_text,
    of_column,
)
from migrator.mapping.model.facts import CollectionPlan, EntityPlan, Kind
from migrator.mapping.model.mapping import (
    Condition,
    Const,
    Each,
    Expiry,
    Expression,
    Filter,
    MapOf,
    Ref,
    Stored,
    Template,
)
from migrator.mapping.model.table import CLIMB_LEVELS, KeyAttribute, RowTree, Value
from migrator.runtime.errors import RowError

# ── Values kept in S3: the pointer that an item holds, and the bytes that it points to ──


class Content(Struct, frozen=True):
    """An object in S3: its name (64 hex digits of SHA-256 over `data`), its bytes, and their content type."""

    name: str
    data: bytes
    form: str

    @property
    def pointer(self) -> dict[str, Value]:
        return {"s3": self.name, "bytes": len(self.data), "form": self.form}


def content_of(value: Any, over: int) -> Content | None:
    """Return None if the value is NULL or takes `over` bytes at most."""
    if value is None or value is values.JSON_NULL:
        return None
    data, form = _bytes(value)
    if len(data) <= over:
        return None
    return Content(hashlib.sha256(data).hexdigest(), data, form)


def _bytes(value: Any) -> tuple[bytes, str]:
    if isinstance(value, str):
        return value.encode(), "text"
    if isinstance(value, bytes):
        return value, "binary"
    if isinstance(value, (dict, list)):
        return json_text(value).encode(), "json"
    raise RowError("only text, binary and JSON can be kept in S3")


# ── Row trees decoded: from the drivers' values, in SQL's order, to one Python value per place ──

Row = Sequence[Any]
"""A decoded row: one Python value per place, children as a list of decoded rows."""

Compiled = Callable[[Row], Any]

_EXACT = Context(prec=400)


class RowPlaces(Struct, frozen=True):
    """Places of paths in a decoded row, and of each list's children."""

    columns: Dict[str, int]
    lists: Dict[str, tuple[int, RowPlaces]] = {}
    around: FilterContext = PLAIN


def places_of(plan: EntityPlan, around: FilterContext = PLAIN) -> RowPlaces:
    columns = {slot.path: number for number, slot in enumerate(plan.slots)}
    lists = {}
    for number, collection in enumerate(plan.collections, start=len(plan.slots)):
        if collection.collection.is_list:
            inner = {slot.path: index for index, slot in enumerate(collection.slots)}
            lists[collection.collection.alias] = (number, RowPlaces(inner, around=around))
        else:
            columns[collection.collection.alias] = number
    first = len(plan.slots) + len(plan.collections)
    columns |= {path: number for number, path in enumerate(plan.transformed, start=first)}
    return RowPlaces(columns, lists, around)


def decoding_steps(plan: EntityPlan) -> list[tuple[str, Decoder]]:
    steps = [(slot.path, decoder(slot.column.kind)) for slot in plan.slots]
    return steps + [
        (collection.collection.alias, _collection_decoder(collection)) for collection in plan.collections
    ]


def decoder_of(steps: Sequence[tuple[str, Decoder]]) -> Callable[[Sequence[Any]], list[Any]]:
    def decode(row: Sequence[Any]) -> list[Any]:
        decoded: list[Any] = []
        try:
            for (path, step), raw in zip(steps, row, strict=True):
                try:
                    decoded.append(step(raw))
                except NoFormError as error:
                    decoded.append(Undecodable(error.text, of_column(path, error)))
        except RowError as error:
            raw = row[len(decoded)]
            why = RowError(raw.reason) if type(raw) is Undecodable else error
            raise RowError(of_column(steps[len(decoded)][0], why)) from None
        return decoded

    return decode


# ── Collections decoded ──


def _collection_decoder(plan: CollectionPlan) -> Decoder:
    collection = plan.collection
    if collection.kind == "count":
        return decoder(Kind("integer"))
    if not collection.is_list:
        return decoder(plan.column.kind if plan.column else Kind("unknown"))
    decode = decoder_of([(slot.path, decoder(slot.column.kind)) for slot in plan.slots])
    if collection.kind == "climb":
        return _climb_decoder(decode)

    def children(raw: Sequence[RowTree]) -> list[Row]:
        if collection.at_most is not None and len(raw) > collection.at_most:
            raise RowError(f"more than {collection.at_most} children (at_most)")
        return [decode(child) for child in raw[: collection.first]]

    return children


def _climb_decoder(decode: Callable[[Sequence[Any]], Row]) -> Decoder:
    def line(raw: Sequence[RowTree]) -> list[Row]:
        if len(raw) > CLIMB_LEVELS:
            cycle = len({repr(row) for row in raw}) < len(raw)
            what = "its ancestors form a cycle" if cycle else f"more than {CLIMB_LEVELS} levels"
            raise RowError(f"{what}; fix the rows, or leave them out with where:")
        return [decode(row) for row in raw]

    return line


# ── Expressions of a mapping compiled into functions of one decoded row ──


def compile_value(expression: Expression, places: RowPlaces) -> Compiled:
    if isinstance(expression, Ref):
        decoded = compile_ref(expression, places)
        return lambda row: values.attribute(decoded(row))
    if isinstance(expression, Template):
        return compile_text(expression, places)
    if isinstance(expression, Const):
        return lambda row: expression.value
    if isinstance(expression, MapOf):
        return _map(compile_values(expression.entries, places))
    if isinstance(expression, Stored):
        return _pointer(expression, places)
    return _each(expression, places)


def _pointer(stored: Stored, places: RowPlaces) -> Compiled:
    """The pointer to the value, or the value itself if it is small enough to stay."""
    value = compile_value(stored.value, places)

    def pointer(row: Row) -> Any:
        computed = value(row)
        content = content_of(computed, stored.over)
        return computed if content is None else content.pointer

    return pointer


def compile_values(expressions: Dict[str, Expression], places: RowPlaces) -> tuple[tuple[str, Compiled], ...]:
    return tuple((name, compile_value(expression, places)) for name, expression in expressions.items())


def compile_text(template: Template, places: RowPlaces) -> Compiled:
    parts = [part if isinstance(part, str) else _ref_text(part, places) for part in template.parts]
    if all(isinstance(part, str) for part in parts):
        constant = "".join(part for part in parts if isinstance(part, str))
        return lambda row: constant

    def render(row: Row) -> str | None:
        pieces = []
        for part in parts:
            piece = part if isinstance(part, str) else part(row)
            if piece is None:
                return None
            pieces.append(piece)
        return "".join(pieces)

    return render


def compile_key(template: Template, attribute: KeyAttribute, places: RowPlaces) -> Compiled:
    if attribute.type == "text":
        return compile_text(template, places)
    if template.sole is None:
        raise ValueError(f"{attribute.name} is a {attribute.type} key: it takes one value in braces")
    value = compile_ref(template.sole, places)
    accepted: tuple[type, ...] = (int, Decimal) if attribute.type == "number" else (bytes,)

    def typed(row: Row) -> Any:
        key_value = value(row)
        if key_value is not None and (not isinstance(key_value, accepted) or isinstance(key_value, bool)):
            raise RowError(f"the key attribute {attribute.name} takes a {attribute.type}")
        return key_value

    return typed


def compile_ref(ref: Ref, places: RowPlaces) -> Compiled:
    alias, _, name = ref.paths[0].partition(".")
    if ref.paths[0] not in places.columns and alias in places.lists:
        return _list_ref(ref, places.lists[alias], name)
    indexes = [places.columns[path] for path in ref.paths]
    whole = len(indexes) == 1 and ref.format is None and keeps_every_value(ref.filters)
    get: Compiled = _getter(indexes) if len(indexes) > 1 else _single_getter(indexes[0], whole=whole)
    if ref.format is not None:
        get = _formatted(get, ref.format)
    return _with_filters(get, ref.filters, places.around)


def _list_ref(ref: Ref, rows: tuple[int, RowPlaces], name: str) -> Compiled:
    index, inner = rows
    cut = next(place for place, spec in enumerate(specs_of(ref)) if spec.of_list)
    element = compile_ref(Ref((name,), ref.format, ref.filters[:cut]), inner)
    combine = FILTERS[ref.filters[cut].name].make(ref.filters[cut].args, inner.around)
    return _with_filters(
        lambda row: combine([element(child) for child in row[index]]), ref.filters[cut + 1 :], inner.around
    )


def _with_filters(get: Compiled, filters: tuple[Filter, ...], around: FilterContext) -> Compiled:
    for used in filters:
        spec = FILTERS[used.name]
        get = _filtered(get, spec.make(used.args, around), with_null=spec.null)
    return get


def compile_conditions(conditions: tuple[Condition, ...], places: RowPlaces) -> Callable[[Row], bool] | None:
    if not conditions:
        return None
    tests = [(places.columns[condition.path], condition.allowed) for condition in conditions]
    return lambda row: all(_holds(row[index], allowed) for index, allowed in tests)


def _holds(value: Any, allowed: tuple[Value, ...] | None) -> bool:
    if allowed is None or value is None:
        return value is not None if allowed is None else None in allowed
    return any(_same(value, permitted) for permitted in allowed)


def _same(value: Any, allowed: Value) -> bool:
    if isinstance(value, bool) or isinstance(allowed, bool):
        return value is allowed
    if isinstance(value, (int, Decimal)) and isinstance(allowed, (int, Decimal)):
        return value == allowed
    return allowed is not None and values.text(value) == str(allowed)


_YEAR_2200 = 7_258_118_400
"""Seconds since 1970. A larger number has another unit, and its item would never expire."""


def compile_expiry(expiry: Expiry, places: RowPlaces) -> Callable[[Row], int | None]:
    index = places.columns[expiry.path]
    zone = ZoneInfo(places.around.timezone or "UTC")

    def seconds(row: Row) -> int | None:
        value = fitting(row[index])
        if value is None:
            return None
        if not isinstance(value, int):
            return epoch_of(value, zone) + expiry.days * 86_400
        if value == 0 and expiry.zero == "never":
            return None
        if value // expiry.per_s >= _YEAR_2200:
            what = "its TTL is after the year 2200"
            advice = (
                "write unit: milliseconds if it counts those"
                if expiry.per_s == 1
                else "is it in milliseconds?"
            )
            raise RowError(f"{expiry.path}: {what}; {advice}")
        return value // expiry.per_s + expiry.days * 86_400

    return seconds


def keeps_every_value(filters: tuple[Filter, ...]) -> bool:
    """Whether the first filter (except for NULL) takes the text, which every value has."""
    specs = (FILTERS[used.name] for used in filters)
    return next((spec.undecodable for spec in specs if not spec.null), False)


def _single_getter(index: int, *, whole: bool) -> Compiled:
    return (lambda row: row[index]) if whole else (lambda row: fitting(row[index]))


def _getter(indexes: list[int]) -> Compiled:
    def several(row: Row) -> tuple[Any, ...] | None:
        gathered = tuple(fitting(row[index]) for index in indexes)
        return None if None in gathered else gathered

    return several


def _ref_text(ref: Ref, places: RowPlaces) -> Compiled:
    get = compile_ref(ref, places)

    def text(row: Row) -> str | None:
        value = get(row)
        return None if value is None else values.text(value)

    return text


def _filtered(get: Compiled, apply: Callable[..., Any], *, with_null: bool) -> Compiled:
    def filtered(row: Row) -> Any:
        value = get(row)
        return None if value is None and not with_null else apply(value)

    return filtered


def _formatted(get: Compiled, format_spec: str) -> Compiled:
    width, decimals = format_width(format_spec)
    quantum = Decimal(1).scaleb(-decimals, _EXACT)

    def formatted(row: Row) -> str | None:
        value = get(row)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise RowError(f"the format {format_spec} is for numbers")
        if value < 0:
            raise RowError(f"a negative number cannot be padded to sort ({format_spec})")
        number = Decimal(value)
        rounded = number.quantize(quantum, context=_EXACT)
        if number != rounded:
            raise RowError(f"the number has more decimals than its format {format_spec}")
        text = format(rounded, f"0{width}.{decimals}f")
        if len(text) > width:
            raise RowError(f"the number is wider than its format {format_spec}")
        return text

    return formatted


def bound_text(value: Any, format_spec: str, *, up: bool) -> str:
    """The next text `up`, or down, for a number that the format cannot hold.

    Beyond the last one: a character that sorts before all digits, or after them.
    """
    width, decimals = format_width(format_spec)
    quantum = Decimal(1).scaleb(-decimals)
    most = Decimal(10) ** (width - decimals - 1 if decimals else width) - quantum
    if value < 0 and not up:
        return "-"
    if value > most and up:
        return ":"
    held = Decimal(min(max(value, 0), most))
    rounded = held.quantize(quantum, ROUND_CEILING if up else ROUND_FLOOR, _EXACT)
    return format(rounded, f"0{width}.{decimals}f")


def _map(entries: tuple[tuple[str, Compiled], ...]) -> Compiled:
    def build(row: Row) -> dict[str, Value]:
        fields = ((name, get(row)) for name, get in entries)
        return {name: values.stored(value) for name, value in fields if value is not None}

    return build


def _each(each: Each, places: RowPlaces) -> Compiled:
    index, inner = places.lists[each.collection]
    build = _map(compile_values(each.attributes, inner))
    if each.key is None:
        return lambda row: [build(child) for child in row[index]]
    key = compile_text(each.key, inner)

    def by_key(row: Row) -> dict[str, Value]:
        made: dict[str, Value] = {}
        for child in row[index]:
            name = key(child)
            if not name:
                raise RowError(f"a row of {each.collection} has no key of the map: it is NULL or empty")
            if name in made:
                raise RowError(f"two rows of {each.collection} have one key of the map; add a column to key:")
            made[name] = build(child)
        return made

    return by_key
