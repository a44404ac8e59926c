"""Item programs: the items of an entity's rows, as lists of operations that are data.

`parts_of` lists the parts of each item; items_for() makes functions of them (items.py), and `compile_program`
the operations for the native executor (_native.pyx). Neither knows more of a mapping.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson
from msgspec import Struct

from migrator.mapping.items.filters import FilterContext
from migrator.mapping.items.rows import (
    RowPlaces,
    compile_conditions,
    compile_expiry,
    compile_key,
    compile_value,
    decoding_steps,
    places_of,
)
from migrator.mapping.items.templates import format_width
from migrator.mapping.items.values import attribute, decoder, stored, text
from migrator.mapping.items.wire import base64_text, encode_value, text_bytes
from migrator.mapping.model.facts import EntityPlan, Kind, KindName, attributes_of
from migrator.mapping.model.mapping import (
    Condition,
    Const,
    Each,
    Expiry,
    Expression,
    ItemDesign,
    Ref,
    Stored,
    Template,
    paths_in,
)
from migrator.mapping.model.mapping import Mapping as Mapped
from migrator.mapping.model.table import (
    CLIMB_LEVELS,
    PARTITION_KEY_BYTES,
    SORT_KEY_BYTES,
    KeyAttribute,
    TableDesign,
    Value,
)

# ── The parts of an item, in the order in which it has them ──


class Key(Struct, frozen=True):
    """`limit`: DynamoDB's maximum bytes."""

    attribute: KeyAttribute
    template: Template
    limit: int

    @property
    def name(self) -> str:
        return self.attribute.name


class Entry(Struct, frozen=True):
    """The key attributes of an index: all, or none if one is NULL or a condition does not hold."""

    index: str
    keys: tuple[Key, ...]
    when: tuple[Condition, ...]

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(ref for key in self.keys for ref in key.template.refs)


class Attribute(Struct, frozen=True):
    """Any other attribute, left out if NULL.

    `kept`: a column under its own name.
    `key`: of an index with this name, with its limit; then it is not empty and has a type.
    """

    name: str
    value: Expression
    kept: bool = False
    key: tuple[KeyAttribute, int] | None = None


class ItemParts(Struct, frozen=True):
    """The base key and other parts of an item type. The item exists if all conditions hold.

    `fixed`: constant attributes.
    `source`: the attribute with the row's name.
    `expires`: the attribute with the TTL in epoch seconds.
    """

    type: str
    when: tuple[Condition, ...]
    base: tuple[Key, ...]
    fixed: tuple[tuple[str, Value], ...]
    source: str
    entries: tuple[Entry, ...]
    attributes: tuple[Attribute, ...]
    expires: tuple[str, Expiry] | None

    @property
    def names(self) -> tuple[str, ...]:
        of_entries = [key.name for entry in self.entries for key in entry.keys]
        first = [*(key.name for key in self.base), *(name for name, _ in self.fixed), self.source]
        last = [part.name for part in self.attributes] + ([self.expires[0]] if self.expires else [])
        return (*first, *of_entries, *last)

    @property
    def index_keys(self) -> frozenset[str]:
        return frozenset(part.name for part in self.attributes if part.key)


def base_key(table: TableDesign, design: ItemDesign) -> tuple[Key, ...]:
    limits = (PARTITION_KEY_BYTES, SORT_KEY_BYTES)
    return tuple(Key(*one) for one in zip(table.key, design.key, limits, strict=False))


def parts_of(mapping: Mapped, plan: EntityPlan, design: ItemDesign) -> ItemParts:
    table = mapping.table
    return ItemParts(
        design.type,
        design.when,
        base_key(table, design),
        ((table.type_attribute, design.type), (table.revision_attribute, mapping.revision)),
        table.source_attribute,
        tuple(entries_of(table, design)),
        tuple(_attributes(table, plan, design)),
        (table.ttl, design.expiry) if design.expiry and table.ttl else None,
    )


def entries_of(table: TableDesign, design: ItemDesign) -> Iterator[Entry]:
    """Index entries without the attributes of the table's own key."""
    indexes = {index.name: index for index in table.indexes}
    for entry in design.entries:
        own = indexes[entry.index].own_attributes(table)
        keys = zip(own, entry.values, map(indexes[entry.index].limit, own), strict=True)
        yield Entry(entry.index, tuple(Key(*one) for one in keys), entry.when)


def keys_of(table: TableDesign, design: ItemDesign) -> tuple[Key, ...]:
    return (*base_key(table, design), *(key for entry in entries_of(table, design) for key in entry.keys))


def _attributes(table: TableDesign, plan: EntityPlan, design: ItemDesign) -> Iterator[Attribute]:
    keys = {
        one.name: (one, index.limit(one))
        # Of a name that is both, the sort key's limit, which is the smaller one, comes last.
        for index in sorted(table.indexes, key=lambda index: bool(index.sort))
        for one in index.own_attributes(table)
    }
    written = plan.entity.attributes.keys() | design.attributes.keys()
    for name, expression in attributes_of(plan, design).items():
        yield Attribute(name, expression, kept=name not in written, key=keys.get(name))


# ── The flat operations of an entity: what _native.pyx runs ──

RAW_KINDS: frozenset[KindName] = frozenset({"integer", "number", "date", "time", "timestamp", "uuid"})
"""Kinds that a raw text may be given of: numbers as digits, moments in ISO form (with a zone: in UTC, with +00 or
nothing behind them), UUIDs as items have them; or any other text, which leaves its row to items_for()."""
_KEY_TEXTS: frozenset[KindName] = frozenset({"integer", "text", "uuid", "date", "time", "timestamp"})
"""Kinds with a text that an operation puts into a key."""

Operation: TypeAlias = tuple[str, bytes, int, tuple[Any, ...]]
"""Its action, the name as JSON with a comma before it and a colon behind it (of a literal: all of it), the bytes that
DynamoDB counts for that, and its other operands:

- `literal`, `source`: nothing.
- `column`: the place of a column.
- `template`: the parts of a text: UTF-8, or (a place, the width to which its digits are padded or 0).
- `key`: such parts, the most bytes that the key takes, whether it is of the base key.
- `call`: a function of the decoded row that gives (value, JSON, bytes) or None; `expiry`: the same of the TTL.
- `key_call`: such a function, the most bytes, whether it is of the base key.
- `entry`: a condition or None, and of how many operations that follow all or none are done.
- `each`: the place of a list, a child's Program, at most how many children (-1: any), how many of them are taken (-1:
  all).
"""

ColumnOperation: TypeAlias = tuple[str, int, Callable[[Any], Any] | None, Callable[[Any], Any] | None]
"""How a place of a row is read: the form, a number's decimals (-1: any), a function that gives (JSON, bytes, text) of a
value in another form (None: its row is left), and one that decodes it for functions of the row (None: none reads it)."""


class ItemProgram(Struct, frozen=True):
    """`when`: of the decoded row; None: always."""

    type: str
    when: Callable[[Any], bool] | None
    operations: tuple[Operation, ...]


class Program(Struct, frozen=True):
    """A program of an entity's items.

    `raw`: places of a row that are read as the server's own text.
    `key_places`: of the row's key.
    """

    entity: str
    paths: tuple[str, ...]
    columns: tuple[ColumnOperation, ...]
    items: tuple[ItemProgram, ...]
    key_places: tuple[int, ...]
    raw: frozenset[int] = frozenset()

    @property
    def key_place(self) -> int:
        (place, *others) = self.key_places or (-1,)
        return place if place >= 0 and not others and self.columns[place][0] == "integer" else -1


def compile_program(
    mapping: Mapped, plan: EntityPlan, offered: AbstractSet[int] = frozenset()
) -> Program | str:
    """The program, or why operations cannot make the items. `offered`: places that can be read raw."""
    designs = [parts_of(mapping, plan, design) for design in plan.entity.items]
    return _beyond(plan, designs) or _Compiler(mapping, plan, offered).program(designs)


def python_alone(mapping: Mapped, plan: EntityPlan) -> str:
    """Why items_for() makes all items; '' if a program does."""
    return _beyond(plan, [parts_of(mapping, plan, design) for design in plan.entity.items])


def _beyond(plan: EntityPlan, designs: Sequence[ItemParts]) -> str:
    parts = [part for design in designs for part in design.attributes]
    if plan.transformed or plan.entity.transform:
        return "it has a transform"
    if any(isinstance(part.value, Stored) for part in parts):
        return "it keeps values in S3"
    if indexed := [part.name for part in parts if part.key]:
        return f"its attribute {indexed[0]} is a key of an index"
    if any(len(set(design.names)) < len(design.names) for design in designs):
        return "two of its attributes have one name"
    return ""


class _Compiler:
    def __init__(self, mapping: Mapped, plan: EntityPlan, offered: AbstractSet[int]) -> None:
        self.plan = plan
        self.offered = offered
        self.row = _Tuple(places_of(plan, FilterContext.of(mapping)), _kinds_of_row(plan))
        self.in_lists: set[int] = set()

    def program(self, designs: Sequence[ItemParts]) -> Program:
        places = self.row.places
        key_places = tuple(places.columns[column.name] for column in self.plan.key)
        is_integer = len(key_places) == 1 and self.row.kinds[key_places[0]].name == "integer"
        if not is_integer:
            self.row.decoded.update(key_places)
        items = tuple(map(self._item, designs))
        steps = [decode for _, decode in decoding_steps(self.plan)]
        raw = frozenset(self.offered) & frozenset(self.row.kinds) - self.row.decoded
        columns = tuple(self._place(place, decode, raw) for place, decode in enumerate(steps))
        return Program(
            self.plan.entity.name,
            tuple(path for path, _ in decoding_steps(self.plan)),
            columns,
            items,
            key_places,
            raw,
        )

    def _place(self, place: int, decode: Callable[[Any], Any], raw: AbstractSet[int]) -> ColumnOperation:
        kind, is_decoded = self.row.kinds.get(place), place in self.row.decoded
        if kind is not None:
            return _column(kind, place in raw, decode if is_decoded else None)
        # A list that operations read is read child by child; of another one it is only seen whether it can be decoded.
        return "list", -1, None, decode if is_decoded or place not in self.in_lists else None

    def _item(self, design: ItemParts) -> ItemProgram:
        when = self.row.condition(design.when)
        operations: list[Operation] = [self._key(key, is_base=True) for key in design.base]
        operations += [_literal(name, value) for name, value in design.fixed]
        operations.append(("source", *_name(design.source), ()))
        for entry in design.entries:
            operations.append(("entry", b"", 0, (self.row.condition(entry.when), len(entry.keys))))
            operations += [self._key(key, is_base=False) for key in entry.keys]
        for part in design.attributes:
            if isinstance(part.value, Each) and part.value.key is None:
                operations.append(self._each(part.name, part.value))
            else:
                operations += self._attribute(self.row, part.name, part.value)
        if design.expires is not None:
            name, expiry = design.expires
            call = self.row.called(compile_expiry(expiry, self.row.places), [expiry.path])
            operations.append(("expiry", *_name(name), (call,)))
        return ItemProgram(design.type, when, tuple(_joined(operations)))

    def _attribute(self, row: _Tuple, name: str, expression: Expression) -> Iterator[Operation]:
        if isinstance(expression, Const):
            if expression.value is not None:
                yield _literal(name, expression.value)
            return
        place = row.plain_column(expression)
        if place is not None:
            yield ("column", *_name(name), (place,))
            return
        parts = row.text(expression) if isinstance(expression, Template) else None
        if parts is not None:
            yield ("template", *_name(name), (parts,))
            return
        value = compile_value(expression, row.places)
        yield ("call", *_name(name), (row.called(value, paths_in([expression])),))

    def _key(self, key: Key, *, is_base: bool) -> Operation:
        row = self.row
        parts = row.text(key.template) if key.attribute.type == "text" else None
        if parts is not None:
            return ("key", *_name(key.name), (parts, key.limit, is_base))
        value = compile_key(key.template, key.attribute, row.places)
        call = row.called(value, paths_in([key.template]))
        return ("key_call", *_name(key.name), (call, key.limit, is_base))

    def _each(self, name: str, each: Each) -> Operation:
        place, places = self.row.places.lists[each.collection]
        self.in_lists.add(place)
        plan = self.plan.collections[place - len(self.plan.slots)]
        child = _Tuple(places, dict(enumerate(slot.column.kind for slot in plan.slots)))
        operations = [
            operation
            for field_name, expression in each.attributes.items()
            for operation in self._attribute(child, field_name, expression)
        ]
        made = Program(
            name,
            tuple(slot.path for slot in plan.slots),
            tuple(
                _column(kind, False, decoder(kind) if number in child.decoded else None)
                for number, kind in child.kinds.items()
            ),
            (ItemProgram("", None, tuple(operations)),),
            (),
        )
        climb = plan.collection.kind == "climb"
        most = CLIMB_LEVELS if climb else plan.collection.at_most
        first = None if climb else plan.collection.first
        return ("each", *_name(name), (place, made, *(-1 if n is None else n for n in (most, first))))


@dataclass
class _Tuple:
    """Places that operations read of a row or a list's child. `decoded`: places that functions read."""

    places: RowPlaces
    kinds: dict[int, Kind]
    decoded: set[int] = field(default_factory=set)

    def condition(self, conditions: tuple[Condition, ...]) -> Callable[[Any], bool] | None:
        self.read(condition.path for condition in conditions)
        return compile_conditions(conditions, self.places)

    def read(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path in self.places.columns:
                self.decoded.add(self.places.columns[path])
            else:
                self.decoded.add(self.places.lists[path.partition(".")[0]][0])

    def called(self, function: Callable[[Any], Any], paths: Iterable[str]) -> Callable[[Any], Any]:
        self.read(paths)

        def call(row: Any) -> tuple[Any, bytes, int] | None:
            value = function(row)
            return None if value is None else (value, *_json(stored(value)))

        return call

    def plain_column(self, expression: Expression) -> int | None:
        place = self.places.columns.get(expression.column) if isinstance(expression, Ref) else None
        return place if place in self.kinds else None

    def text(self, template: Template) -> tuple[bytes | tuple[int, int], ...] | None:
        parts: list[bytes | tuple[int, int]] = []
        for part in template.parts:
            if isinstance(part, str):
                parts.append(part.encode())
                continue
            place = self.places.columns.get(part.paths[0])
            kind = self.kinds.get(-1 if place is None else place)
            if len(part.paths) != 1 or part.filters or place is None or kind is None:
                return None
            width, decimals = format_width(part.format) if part.format else (0, 0)
            if kind.name not in _KEY_TEXTS or decimals or (part.format and kind.name != "integer"):
                return None
            parts.append((place, width))
        return tuple(parts)


def _kinds_of_row(plan: EntityPlan) -> dict[int, Kind]:
    kinds = dict(enumerate(slot.column.kind for slot in plan.slots))
    for place, one in enumerate(plan.collections, start=len(plan.slots)):
        if not one.collection.is_list:
            declared = one.column.kind if one.column else Kind("unknown")
            kinds[place] = Kind("integer") if one.collection.kind == "count" else declared
    return kinds


_FORMS: dict[KindName, str] = {
    "integer": "integer",
    "number": "number",
    "float": "number",
    "text": "text",
    "uuid": "uuid",
    "boolean": "boolean",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "binary": "binary",
}


def _column(kind: Kind, is_raw: bool, decode: Callable[[Any], Any] | None) -> ColumnOperation:
    form = "other" if kind.single else _FORMS.get(kind.name, "other")
    if is_raw and form == "timestamp" and kind.zone:
        form = "zoned"
    scale = kind.scale if kind.name == "number" and kind.scale is not None else -1
    return form, scale, None if is_raw else _by_decoder(kind), decode


def _by_decoder(kind: Kind) -> Callable[[Any], tuple[bytes, int, str | None]]:
    decode, has_text = decoder(kind), kind.name in _KEY_TEXTS

    def value(raw: Any) -> tuple[bytes, int, str | None]:
        decoded = decode(raw)
        return (*_json(stored(attribute(decoded))), text(decoded) if has_text else None)

    return value


def _json(value: Value) -> tuple[bytes, int]:
    wired, size = encode_value(value)
    return orjson.dumps(wired, default=base64_text), size


def _name(name: str) -> tuple[bytes, int]:
    return f",{json.dumps(name, ensure_ascii=False)}:".encode(), text_bytes(name)


def _literal(name: str, value: Value) -> Operation:
    made, size = _name(name)
    text_, value_size = _json(value)
    return "literal", made + text_, size + value_size, ()


def _joined(operations: Iterable[Operation]) -> Iterator[Operation]:
    held: Operation | None = None
    for operation in operations:
        if held and operation[0] == held[0] == "literal":
            held = ("literal", held[1] + operation[1], held[2] + operation[2], ())
            continue
        if held:
            yield held
        held = operation
    if held:
        yield held


def program_lines(program: Program, before: str = "") -> Iterator[str]:
    for path, (form, scale, _, decode) in zip(program.paths, program.columns, strict=True):
        decimals = f", {scale} decimals" if scale >= 0 else ""
        yield f"{before}{path}: {form}{decimals}{', decoded' if decode else ''}"
    for item in program.items:
        if item.type:
            yield f"{before}{item.type}{', if a condition holds' if item.when else ''}"
        for code, name, size, more in item.operations:
            shown = [_operand(one, program.paths, code) for one in more if not isinstance(one, Program)]
            yield "  ".join([f"{before}  {code:<8}", name.decode(), *shown, f"{size} bytes"]).replace(
                "    ", "  "
            )
            for child in more:
                if isinstance(child, Program):
                    yield from program_lines(child, before + "    ")


def _operand(given: Any, paths: Sequence[str], code: str) -> str:
    if isinstance(given, tuple):
        return " ".join(
            json.dumps(part.decode(), ensure_ascii=False)
            if isinstance(part, bytes)
            else f"{{{paths[part[0]]}{f':0{part[1]}' if part[1] else ''}}}"
            for part in given
        )
    if code == "column":
        return f"{{{paths[given]}}}"
    return "function" if callable(given) else str(given)
