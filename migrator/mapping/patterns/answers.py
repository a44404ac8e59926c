"""Answers of access patterns: from items and SQL rows, and as a service's callers get them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Any, TypeAlias, TypeGuard
from uuid import UUID

from migrator.mapping.items import values
from migrator.mapping.items.filters import FilterContext, distance_m, kind_after, specs_of
from migrator.mapping.items.rows import RowPlaces, compile_ref
from migrator.mapping.items.values import attribute, checked_number, decoder, stored
from migrator.mapping.model.evidence import Side
from migrator.mapping.model.facts import EntityPlan, Kind, KindName, attributes_of, kind_of
from migrator.mapping.model.mapping import Expression, Filter, Part, Pattern, Ref
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.results import Nearby
from migrator.mapping.model.table import Item, Value
from migrator.runtime.errors import RowError, SettingsError, did_you_mean
from migrator.runtime.values import replace

Behind = tuple[Kind, Ref] | None
"""The column behind an attribute, with its filters; None for an attribute of several columns."""

Written = Mapping[str, Expression]
"""Expressions of an item's attributes, with those that keep their column's name."""

_TIMES = frozenset({"timestamp", "date"})


class Designs:
    def __init__(self, plans: Sequence[EntityPlan] = ()) -> None:
        self._of_type: dict[str, list[tuple[EntityPlan, Written]]] = defaultdict(list)
        self._having: dict[str, list[tuple[EntityPlan, Written]]] = defaultdict(list)
        self._columns: dict[tuple[str, str], set[Behind]] = defaultdict(set)
        for plan in plans:
            for item in plan.entity.items:
                written = attributes_of(plan, item)
                for name in written:
                    self._having[name].append((plan, written))
                for type_ in ("", item.type):
                    self._of_type[type_].append((plan, written))
                    for name, expression in written.items():
                        self._columns[type_, name].add(_column(plan, expression))

    def columns(self, type_: str, name: str) -> set[Behind]:
        return set(self._columns.get((type_, name), ()))

    def of_part(self, part: Part) -> Iterator[tuple[EntityPlan, Written]]:
        if part.type:
            yield from self._of_type.get(part.type, ())
            return
        wanted = set(part.attributes)
        # Of many tables few have the rarest of the attributes.
        candidates = (self._having.get(name, []) for name in wanted)
        for plan, written in min(candidates, key=len, default=self._of_type[""]):
            if written.keys() >= wanted:
                yield plan, written


def _column(plan: EntityPlan, expression: Expression) -> Behind:
    if not isinstance(expression, Ref) or len(expression.paths) != 1:
        return None
    kind = kind_of(expression.paths[0], plan)
    # A statement may already return the text that a filter makes; only for times and sets can the two be
    # distinguished.
    if kind is None or not (
        expression.column or kind.name in _TIMES or kind_after(kind, expression).distinct
    ):
        return None
    return kind, replace(expression, paths=("",))


# ── Values of SQL answers, converted to the form that they have in an item, attribute by attribute ──

Reader = Callable[[Any], Any]
_FINAL = frozenset({str, int, bool, bytes, type(None)})
"""Types of an item's values that an answer gives unchanged."""


def readers_for(mapping: MappingModel, designs: Designs, part: Part) -> tuple[Reader, ...]:
    """Functions from the driver's value to the item's, per attribute.

    By the declared type of the attribute's column: SQLite gives floats for exact numbers and text for times.
    A value of another type, or of an attribute with several columns, does not change.
    """
    return tuple(_reader(mapping, designs.columns(part.type, name)) for name in part.attributes)


def _reader(mapping: MappingModel, columns: set[Behind]) -> Reader:
    only = columns.pop() if len(columns) == 1 else None
    if only is None:
        return _plain
    kind, ref = only
    if kind_after(kind, ref).distinct and kind.name != "set":
        # An array, or the JSON text of one, with values that went through the filters.
        kind, ref = Kind("list"), Ref(("",), filters=(Filter("set"),))
    decode = decoder(kind)
    if ref == Ref(("",)):
        whole: Reader = partial(_read, decode)
        return _SHORTCUTS[kind.name](kind, whole) if kind.name in _SHORTCUTS else whole
    filtered = compile_ref(ref, RowPlaces({"": 0}, around=FilterContext.of(mapping)))
    return partial(_read, lambda raw: filtered((decode(raw),)))


def _read(decode: Reader, raw: Any) -> Any:
    try:
        value = stored(attribute(decode(raw)))
    except (RowError, ValueError):
        value = raw
    return value if type(value) in _FINAL else _plain(value)


# ── The same in one function for the values that drivers usually return; `whole` reads all others ──


def _integer(_: Kind, whole: Reader) -> Reader:
    return lambda raw: raw if type(raw) is int or raw is None else whole(raw)


def _text(_: Kind, whole: Reader) -> Reader:
    return lambda raw: raw if raw is None or (type(raw) is str and raw.isascii()) else whole(raw)


def _boolean(_: Kind, whole: Reader) -> Reader:
    return lambda raw: (
        raw if raw is None else raw == 1 if type(raw) in _WHOLE and 0 <= raw <= 1 else whole(raw)
    )


def _number(kind: Kind, whole: Reader) -> Reader:
    scale = kind.scale
    quantum = None if scale is None else Decimal(1).scaleb(-scale)
    # Below it no two numbers of these decimals are the same float.
    below = 0 if scale is None or scale < 0 else 10 ** (_DIGITS_OF_FLOAT - scale)
    form = f"%.{scale}f"

    def read(raw: Any) -> Any:
        if type(raw) is Decimal and raw and (quantum is None or raw.same_quantum(quantum)):
            return checked_number(raw)
        if type(raw) is float and 0 < abs(raw) < below and float(text := form % raw) == raw:
            return Decimal(text)
        return whole(raw)

    return read


def _timestamp(_: Kind, whole: Reader) -> Reader:
    def read(raw: Any) -> Any:
        if type(raw) is datetime:
            text = raw.isoformat("T", "microseconds")
            if raw.tzinfo is None:
                return text
            return f"{text[:-6]}Z" if raw.tzinfo is UTC else whole(raw)
        if type(raw) is str and _SECONDS.fullmatch(raw):
            try:
                datetime.fromisoformat(raw)
            except ValueError:
                return whole(raw)
            return f"{raw[:10]}T{raw[11:]}.000000"
        return whole(raw)

    return read


_SHORTCUTS: Mapping[str, Callable[[Kind, Reader], Reader]] = {
    "integer": _integer,
    "text": _text,
    "boolean": _boolean,
    "number": _number,
    "timestamp": _timestamp,
}
_WHOLE = frozenset({bool, int})
# Hour 24 is the next midnight to newer versions of Python alone.
_SECONDS = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T](?!24)[0-9]{2}:[0-9]{2}:[0-9]{2}")
_DIGITS_OF_FLOAT = 15
"""Source: IEEE 754, decimal digits that every 64-bit float keeps."""


# ── Answers from items and rows ──


def answer_of(mapping: MappingModel, pattern: Pattern, items: list[Item]) -> dict[str, list[tuple[Any, ...]]]:
    type_attribute = mapping.table.type_attribute
    return {
        part.name: [
            tuple(item.get(name) for name in part.attributes)
            for item in items
            if not part.type or item.get(type_attribute) == part.type
        ]
        for part in pattern.parts
    }


def nearest(items: list[Item], near: Nearby, key: tuple[str, ...]) -> list[Item]:
    """Items within the circle by distance, then by `key`; items without a place are left out."""
    placed = [(place, item) for item in items if (place := _place(item, near)) is not None]
    measured = [(distance_m(near.origin, place), item) for place, item in placed]
    within = [(metres, item) for metres, item in measured if metres <= near.within_m]
    within.sort(key=lambda pair: (pair[0], [pair[1][name] for name in key]))
    return [item for _, item in within]


def _place(item: Item, near: Nearby) -> tuple[int | Decimal, int | Decimal] | None:
    latitude, longitude = (item.get(name) for name in near.at)
    return (latitude, longitude) if _is_number(latitude) and _is_number(longitude) else None


def _is_number(value: Value) -> TypeGuard[int | Decimal]:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def plain_rows(
    part: Part, rows: list[tuple[Any, ...]], readers: Sequence[Reader] = ()
) -> list[tuple[Any, ...]]:
    reading = readers or [_plain] * len(part.attributes)
    # By columns, and so without a loop of Python's over the values.
    return list(zip(*map(map, reading, zip(*rows, strict=True)), strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return values.decoder(Kind("float"))(value)
    if isinstance(value, Decimal):
        return checked_number(value)
    return values.attribute(str(value) if type(value).__name__ == "UUID" else value)


Kinds: TypeAlias = "Mapping[str, Kind]"
"""By attribute the type of its column; without attributes that are not a single column."""


class Records(list[dict[str, Value]]):
    """Dicts by attribute. `origin`: the side that returned them, 'sql' or 'table' (DynamoDB)."""

    def __init__(self, rows: Iterable[dict[str, Value]], origin: Side, kinds: Kinds | None = None) -> None:
        super().__init__(rows)
        self.origin: Side = origin
        self._kinds = kinds or {}

    def typed(self) -> list[dict[str, Any]]:
        """Rows with values of Python's own types, equal from both sides.

        For an attribute that is a plain column: datetime (aware if the column's type has a zone), date, time,
        UUID, Decimal, float. All other values, and those without a form in their type, do not change.
        """
        return [_typed_record(record, self._kinds) for record in self]


class Parts(dict[str, "Records | dict[str, Value] | None"]):
    """The answer of a pattern with parts: records, or one dict or None with `one: true`. `origin`: 'sql' or
    'table' (DynamoDB).
    """

    def __init__(
        self,
        parts: Mapping[str, Records | dict[str, Value] | None],
        origin: Side,
        kinds: Mapping[str, Kinds] | None = None,
    ) -> None:
        super().__init__(parts)
        self.origin: Side = origin
        self._kinds = kinds or {}

    def typed(self) -> dict[str, Any]:
        return {name: self._typed_part(name, part) for name, part in self.items()}

    def _typed_part(self, name: str, part: Records | dict[str, Value] | None) -> Any:
        if isinstance(part, dict):
            return _typed_record(part, self._kinds.get(name, {}))
        return part if part is None else part.typed()


Answer: TypeAlias = "Records | Parts"
"""The answer for a caller."""


def kinds_for(designs: Designs, part: Part) -> dict[str, Kind]:
    found = {name: _kind(designs, part, name) for name in part.attributes}
    return {name: kind for name, kind in found.items() if kind is not None}


def _kind(designs: Designs, part: Part, name: str) -> Kind | None:
    kinds = {_own_kind(column) for column in designs.columns(part.type, name)}
    return kinds.pop() if len(kinds) == 1 else None


def _own_kind(column: Behind) -> Kind | None:
    if column is None or not all(spec.moment for spec in specs_of(column[1])):
        return None
    return Kind(column[0].name, element=column[0].element, fields=column[0].fields)


def _typed_record(record: Mapping[str, Value], kinds: Kinds) -> dict[str, Any]:
    return {name: _typed(value, kinds.get(name)) for name, value in record.items()}


def _typed(value: Any, kind: Kind | None) -> Any:
    if kind is None or value is None:
        return value
    if kind.element is not None and isinstance(value, list):
        # Of arrays in arrays the kind is that of the innermost values.
        return [_typed(inner, kind if isinstance(inner, list) else kind.element) for inner in value]
    if isinstance(value, dict):
        fields = dict(kind.fields)
        return {name: _typed(inner, fields.get(name, kind.element)) for name, inner in value.items()}
    return _converted(value, kind.name)


def _converted(value: Any, name: KindName) -> Any:
    types, convert = values.PYTHON_FORMS.get(name, ((), str))
    try:
        # `|text` keeps, as a text, a number that has no form; infinity and zero dates are texts, but not
        # times.
        return convert(value) if isinstance(value, types) else value
    except ValueError:
        return value


# ── values that a test gives a fake, in its preferred types ──

_KIND_OF: tuple[tuple[type, KindName], ...] = (
    (datetime, "timestamp"),
    (date, "date"),
    (time, "time"),
    (UUID, "uuid"),
    (Decimal, "number"),
    (float, "float"),
)


def kinds_of(records: Iterable[Mapping[str, Any]]) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for record in records:
        for name, value in record.items():
            kind = next((Kind(kind) for type_, kind in _KIND_OF if isinstance(value, type_)), None)
            if kind is not None:
                found[name] = kind
    return found


Rows = list[tuple[Any, ...]]
Record = Mapping[str, Any]
_EXACT = Context(prec=400)
_LONGEST_INTEGER = Decimal(10) ** 40
_FORMS = (bool, float, Decimal, bytes, datetime, date, time, timedelta, UUID)


def handed(pattern: Pattern, parts: Mapping[str, Rows], origin: Side, kinds: Mapping[str, Kinds]) -> Answer:
    """The answer for a caller: dicts by attribute; of a pattern with parts such by part.

    A part of `one: true` is one dict, or None. All lists and dicts belong to the caller. Equal numbers have
    one form: an int if whole, else a Decimal without trailing zeros.
    """
    by_part = {
        part.name: records(part, parts[part.name], origin, kinds.get(part.name, {})) for part in pattern.parts
    }
    if not pattern.parts[0].name:
        return by_part[""]
    one = {part.name for part in pattern.parts if part.one}
    return Parts(
        {name: next(iter(found), None) if name in one else found for name, found in by_part.items()},
        origin,
        kinds,
    )


def records(part: Part, rows: Rows, origin: Side, kinds: Kinds) -> Records:
    # By columns: most have no value that is changed.
    columns = (
        column if _FINAL.issuperset(map(type, column)) else map(own_value, column)
        for column in zip(*rows, strict=True)
    )
    dicts = [dict(zip(part.attributes, row, strict=True)) for row in zip(*columns, strict=True)]
    return Records(dicts, origin, kinds)


def own_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < _LONGEST_INTEGER:
            return int(value)
        return value.normalize(_EXACT)
    if isinstance(value, dict):
        return {name: own_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [own_value(inner) for inner in value]
    return value


# ── answers of a service's own functions ──


def records_of(pattern: Pattern, answer: Any, at_most: int) -> dict[str, list[Record]]:
    """Copies of the answer's records by part: the caller may change its own.

    `answer`: a list of records, one record or None; of a pattern with parts a dict of such by part.
    Raises: SettingsError for any other form, or another name of a part; TooManyError beyond `at_most`
    records.
    """
    if not pattern.parts[0].name:
        return {"": _records_of(pattern.parts[0], answer, at_most)}
    names = [part.name for part in pattern.parts]
    if not isinstance(answer, Mapping):
        raise SettingsError(
            f"it returned {_called(answer)}, but {pattern.name} has parts: {', '.join(names)}"
        )
    unknown = [str(name) for name in answer if name not in names]
    missing = [name for name in names if name not in answer]
    if unknown or missing:
        lacking = f"it did not return part '{missing[0]}'" if missing else ""
        raise SettingsError("; ".join(word for word in (_other_part(unknown, names), lacking) if word))
    return {part.name: _records_of(part, answer[part.name], at_most) for part in pattern.parts}


def _other_part(unknown: Sequence[str], names: Sequence[str]) -> str:
    """The message for unknown parts. A key may be a value of a row, so it is quoted only if it is similar to a
    part's name.
    """
    for name in unknown:
        if guess := _likely(name, names):
            return f"it returned the part '{name}'{guess}"
    return f"it returned a part of an unknown name; known: {', '.join(names)}" if unknown else ""


def _likely(name: str, names: Iterable[str]) -> str:
    guess = did_you_mean(name, names)
    return guess if guess.startswith("; did") else ""


def rows_of(part: Part, records: Sequence[Record], readers: Sequence[Any] = ()) -> Rows:
    rows = [tuple(record.get(name) for name in part.attributes) for record in records]
    return plain_rows(part, rows, readers)


def names_fault(part: Part, ours: Sequence[Record], others: Sequence[Record]) -> str:
    """The fault of an attribute that only the other side has, or that has a similar name; or ''. An item may
    lack an attribute without a value.
    """
    if not ours:
        return ""
    given = {str(name) for record in ours for name in record}
    unknown = given - set(part.attributes)
    there = {name for record in others for name, value in record.items() if value is not None}
    for name in part.attributes:
        if name in given or (others and name not in there):
            continue
        if guess := _likely(name, unknown):
            return f"it does not return '{name}'{guess}"
        if not given & set(part.attributes):
            return f"it does not return '{name}' or any other attribute of the pattern"
    return ""


class TooManyError(SettingsError):
    """An answer of more rows than are compared."""


def _records_of(part: Part, answer: Any, at_most: int) -> list[Record]:
    if answer is None:
        return []
    records_given = [answer] if _is_record(answer) else answer
    if not isinstance(records_given, Sequence) or isinstance(records_given, (str, bytes)):
        raise SettingsError(
            f"it returned {_called(answer)}; return a list of dicts, dataclasses, named tuples or rows"
        )
    if len(records_given) > at_most:
        raise TooManyError(f"more than {at_most:,} rows; not compared")
    return [_record(part, record) for record in records_given]


def _is_record(value: Any) -> bool:
    named = isinstance(value, Mapping) or hasattr(value, "_asdict") or hasattr(value, "_mapping")
    return named or (is_dataclass(value) and not isinstance(value, type))


def _record(part: Part, value: Any) -> Record:
    return {name: _settled(get()) if name in part.attributes else None for name, get in _fields(value)}


def _fields(value: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    if hasattr(value, "_sa_instance_state"):
        # Objects of an ORM, dataclasses among them: reading a field may query the database while a caller waits.
        raise _no_record(value)
    if isinstance(value, Mapping):
        named = value
    elif hasattr(value, "_mapping"):  # a row of SQLAlchemy's
        named = value._mapping
    elif hasattr(value, "_asdict"):
        named = value._asdict()
    elif is_dataclass(value) and not isinstance(value, type):
        return ((field.name, partial(getattr, value, field.name)) for field in fields(value))
    else:
        raise _no_record(value)
    return ((str(name), partial(named.__getitem__, name)) for name in named)


def _no_record(value: Any) -> SettingsError:
    return SettingsError(f"its rows are {_called(value)}; return dicts, dataclasses, named tuples or rows")


def _called(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def _settled(value: Any) -> Any:
    """A copy of the value in a form that items have, or a driver returns.

    Raises: SettingsError for any other value: it could change between two comparisons.
    """
    if isinstance(value, Mapping):
        return {str(name): _settled(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_settled(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return _sorted([_settled(inner) for inner in value])
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if type(value).__name__ == "Binary":  # boto3's own class for binary values
        return bytes(value.value)
    # Members of enumerations may be texts or numbers, and are shown otherwise.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, _FORMS):
        return value
    raise SettingsError(
        f"it returns {_called(value)} in a row, which items cannot have; return a plain value"
    )


def _sorted(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)
