"""Rows restored from their items, by the inverse of the mapping; and the columns that items lose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

from msgspec import Struct

from migrator.mapping.check.values import is_closed, meeting_items
from migrator.mapping.inverse.values import (
    Cause,
    Loss,
    Reading,
    UnfitError,
    after,
    attribute_reader,
    read_epoch,
    undone,
    width_of,
)
from migrator.mapping.items.filters import PLAIN, FilterContext, specs_of, takes_null
from migrator.mapping.items.program import base_key, entries_of
from migrator.mapping.items.templates import name_in_template
from migrator.mapping.language.document import text_of
from migrator.mapping.model.facts import (
    NO_TABLE,
    CollectionPlan,
    Column,
    EntityPlan,
    ForeignKey,
    JoinPlan,
    TableFacts,
    attributes_of,
    column_of,
)
from migrator.mapping.model.mapping import (
    Condition,
    Each,
    Expression,
    ItemDesign,
    MapOf,
    Mapping,
    Ref,
    Stored,
    Template,
    uses_in,
)
from migrator.mapping.model.table import Item, TableDesign, Value
from migrator.runtime.errors import RowError
from migrator.runtime.values import replace

# ── The columns that one item gives back: of its attributes, and of keys with texts that can be divided in
# one way only ──


class RowScope(Struct, frozen=True, dict=True):
    """Rows that expressions are about: the entity's or, with a `collection`, this list's.

    `filled`: paths with a value in every row that has an item.
    """

    plan: EntityPlan
    around: FilterContext
    collection: CollectionPlan | None = None
    filled: frozenset[str] = frozenset()

    @property
    def table(self) -> TableFacts:
        return self.plan.table if self.collection is None else self.collection.table

    @property
    def _joins(self) -> tuple[JoinPlan, ...]:
        return self.plan.joins if self.collection is None else self.collection.joins

    def whole(self, ref: Ref) -> Ref:
        if self.collection is None:
            return ref
        return replace(ref, paths=tuple(f"{self.collection.collection.alias}.{path}" for path in ref.paths))

    def column(self, ref: Ref) -> Column | None:
        return column_of(self.whole(ref).paths[0], self.plan)

    def own(self, ref: Ref) -> str | None:
        if len(ref.paths) != 1:
            return None
        path = ref.paths[0]
        if (climbed := self._climbed(path)) is not None:
            return climbed if any(spec.holds_list for spec in specs_of(ref)) else None
        if (column := self.table.column(path)) is not None:
            return None if column.sql else path
        return self._referring.get(path)

    def _climbed(self, path: str) -> str | None:
        alias, _, name = path.partition(".")
        collected = self.plan.collected(alias) if self.collection is None else None
        return name if collected is not None and collected.collection.kind == "climb" else None

    @cached_property
    def _referring(self) -> dict[str, str]:
        paths: dict[str, str] = {}
        for join in self._joins:
            key = None if join.parent else _declared(self.table, join.table, join.on)
            if key is None or (len(key.columns) > 1 and self._may_be_null(key)):
                continue
            for ours, theirs in zip(key.columns, key.referred, strict=True):
                pair = self.table.column(ours), join.table.column(theirs)
                if (
                    all(one is not None and not one.alike for one in pair)
                    and len({one.kind for one in pair if one}) == 1
                ):
                    paths[f"{join.alias}.{theirs}"] = ours
        return paths

    def _may_be_null(self, key: ForeignKey) -> bool:
        return any(column.nullable for column in self.table.columns if column.name in key.columns)

    def may_be_null(self, ref: Ref) -> bool:
        if takes_null(ref):
            return False
        return any(self._path_may_be_null(path, ref) for path in ref.paths)

    def _path_may_be_null(self, path: str, ref: Ref) -> bool:
        alias = path.partition(".")[0]
        if path in self.filled:
            return False
        if self._climbed(path) is not None:
            column = column_of(path, self.plan)
            return any(used.name == "at" for used in ref.filters) or column is None or column.nullable
        if (own := self.table.column(path)) is not None:
            return own.nullable
        if self.collection is None and (collected := self.plan.collected(alias)) is not None:
            return collected.collection.kind != "count"
        join = next((join for join in self._joins if join.alias == alias), None)
        joined = join.table.column(path.partition(".")[2]) if join else None
        key = None if join is None or join.parent else _declared(self.table, join.table, join.on)
        return joined is None or joined.nullable or key is None or self._may_be_null(key)


def filled_by(plan: EntityPlan, design: ItemDesign) -> frozenset[str]:
    """Paths that are never NULL if the item exists: a NULL in a base key refuses the row, and conditions leave
    it out.
    """
    slots = {slot.path for slot in plan.slots}
    refs = [ref for template in design.key for ref in template.refs if not takes_null(ref)]
    named = {path for ref in refs for path in ref.paths}
    named |= {one.path for one in design.when if one.allowed is None or None not in one.allowed}
    named |= {column.name for column, allowed in plan.where if allowed is None or None not in allowed}
    return frozenset(named & slots)


def _declared(table: TableFacts, parent: TableFacts, on: Sequence[tuple[str, str]]) -> ForeignKey | None:
    for key in (one for one in table.foreign_keys if one.proved):
        ours = [column.real for name in key.columns if (column := table.column(name))]
        theirs = [column.real for name in key.referred if (column := parent.column(name))]
        if key.table == parent.name and set(zip(ours, theirs, strict=False)) == set(on):
            return key
    return None


def linked(table: TableFacts, list_plan: CollectionPlan) -> dict[str, str] | None:
    """Root columns by equal written column of the child; None if a child may exist without such a root."""
    key = _declared(list_plan.table, table, list_plan.link)
    columns = [] if key is None else [list_plan.table.column(name) for name in key.columns]
    if key is None or any(column is None or column.nullable or column.alike for column in columns):
        return None
    return dict(zip(key.columns, key.referred, strict=True))


def always(conditions: Sequence[Condition], plan: EntityPlan, but: str = "") -> bool:
    return all(_implied(condition, plan, but) for condition in conditions)


def _implied(condition: Condition, plan: EntityPlan, but: str) -> bool:
    column = plan.table.column(condition.path)
    if column is None:
        return False
    if condition.allowed is None:
        return not column.nullable or condition.path == but
    wheres = [allowed for one, allowed in plan.where if one.name == condition.path]
    return any(allowed is not None and set(allowed) <= set(condition.allowed) for allowed in wheres)


def decided_by(conditions: Sequence[Condition], scope: RowScope) -> tuple[str, bool | None] | None:
    """The one column that decides the conditions, and its value then; None: any value, NULL otherwise."""
    if len(conditions) != 1:
        return None
    column, allowed = scope.table.column(conditions[0].path), conditions[0].allowed
    if column is None or column.sql:
        return None
    if allowed is None:
        return column.name, None
    is_either = column.kind.name == "boolean" and not column.nullable
    value = allowed[0] if len(allowed) == 1 else None
    return (column.name, value) if is_either and isinstance(value, bool) else None


Contents = Callable[[str], bytes]
"""The bytes of an object in S3 by its name. Raises: KeyError."""
Where = tuple[str | int, ...]
"""The place of a value in an item: an attribute's name, then names within maps, or places in lists."""


class GivenColumn(Struct, frozen=True):
    """A column that can be read from an item, or from a map in its list.

    `read(item, contents)` raises ValueError for a value that no row makes.
    """

    column: str
    read: Callable[[Any, Contents], Any]


class Lack(Struct, frozen=True):
    """A column in a value that cannot be read from it."""

    column: str
    loss: Loss


# ── Places of values in the items of a design ──


class _Place(Struct, frozen=True):
    """A value of an item.

    `beside`: references whose NULL also leaves it out.
    `when`: other conditions.
    `typed`: a key of DynamoDB's type, not a text.
    `must`: a NULL in it refuses the row.
    `stored`: it may be in S3.
    """

    where: Where
    value: Expression
    beside: tuple[Ref, ...] = ()
    when: tuple[Condition, ...] = ()
    typed: bool = False
    must: bool = False
    stored: bool = False


def given_by(mapping: Mapping, scope: RowScope, design: ItemDesign) -> Iterator[GivenColumn | Lack]:
    for place in _places(mapping.table, scope.plan, design):
        yield from _gives(place, scope)
    yield from _expiry(mapping, scope, design)
    yield from _flags(mapping.table, scope, design)


def _flags(table: TableDesign, scope: RowScope, design: ItemDesign) -> Iterator[GivenColumn]:
    for entry in entries_of(table, design):
        of = decided_by(entry.when, scope)
        if of is not None and of[1] is not None and not any(map(scope.may_be_null, entry.refs)):
            yield GivenColumn(of[0], partial(_flag, entry.keys[0].name, of[1]))


def _flag(attribute: str, value: bool, item: Any, _: Contents) -> bool:
    return value if attribute in item else not value


def given_by_each(scope: RowScope, each: Each) -> Iterator[GivenColumn | Lack]:
    for name, value in each.attributes.items():
        yield from _gives(_Place((name,), value), scope)
    if each.key is not None:
        yield from _gives(_Place(("",), each.key, must=True), scope)


def lists_of(plan: EntityPlan, design: ItemDesign) -> Iterator[tuple[Where, Each]]:
    for name, value in {**plan.entity.attributes, **design.attributes}.items():
        yield from _lists_in((name,), value, plan.entity.lists)


def _lists_in(where: Where, value: Expression, lists: Collection[str]) -> Iterator[tuple[Where, Each]]:
    if isinstance(value, Each):
        yield where, value
    elif isinstance(value, Ref) and specs_of(value)[-1:] and specs_of(value)[-1].of_array:
        alias, _, name = value.paths[0].partition(".")
        if alias in lists:
            yield where, Each(alias, {"": Ref((name,), filters=value.filters[:-1])})
    elif isinstance(value, MapOf):
        for name, entry in value.entries.items():
            yield from _lists_in((*where, name), entry, lists)


def _places(table: TableDesign, plan: EntityPlan, design: ItemDesign) -> Iterator[_Place]:
    for name, value in attributes_of(plan, design).items():
        yield _Place((name,), value)
    for key in base_key(table, design):
        yield _Place((key.name,), key.template, typed=key.attribute.type != "text", must=True)
    for entry in entries_of(table, design):
        for key in entry.keys:
            typed = key.attribute.type != "text"
            yield _Place((key.name,), key.template, entry.refs, entry.when, typed=typed)


def _expiry(mapping: Mapping, scope: RowScope, design: ItemDesign) -> Iterator[GivenColumn | Lack]:
    expiry, name = design.expiry, mapping.table.ttl
    column = None if expiry is None else scope.table.column(expiry.path)
    if expiry is None or name is None or column is None or column.sql:
        return
    seconds = expiry.days * 86_400
    if column.kind.name == "integer" and (expiry.per_s > 1 or expiry.zero == "never"):
        yield Lack(
            column.name, Loss("cut", "a ttl is in whole seconds, and a row that never expires has none")
        )
    elif column.kind.name == "integer":
        yield _given(_Place((name,), Ref((column.name,))), scope, column, lambda value: int(value) - seconds)
    elif column.kind.name == "date" and mapping.timezone in (None, "UTC"):
        yield _given(
            _Place((name,), Ref((column.name,))),
            scope,
            column,
            lambda value: read_epoch(column.kind, value - seconds),
        )
    else:
        yield Lack(column.name, Loss("cut", "a ttl is in whole seconds"))


def _gives(place: _Place, scope: RowScope) -> Iterator[GivenColumn | Lack]:
    value = place.value
    if isinstance(value, MapOf):
        for name, entry in value.entries.items():
            yield from _gives(replace(place, where=(*place.where, name), value=entry), scope)
    elif isinstance(value, Stored):
        yield from _gives(replace(place, value=value.value, stored=True), scope)
    elif isinstance(value, Each):
        yield from _of_climb(place, value, scope)
    elif isinstance(value, Template) and place.typed:
        yield from _gives(replace(place, value=value.refs[0]), scope)
    elif isinstance(value, Template):
        yield from _of_template(place, value, scope)
    elif isinstance(value, Ref) and (own := _own_column(value, scope)) is not None:
        yield _read_as(place, scope, value, own, text=False)
    else:
        yield from (
            Lack(name, Loss("many", f"{'.'.join(map(str, place.where))} is made of several values"))
            for name in _columns_in(value, scope)
        )


def _columns_in(value: Expression, scope: RowScope) -> Iterator[str]:
    for use in uses_in(value):
        for path in use.ref.paths:
            if len(use.ref.paths) > 1 and (column := scope.table.column(path)) is not None and not column.sql:
                yield path


def _own_column(ref: Ref, scope: RowScope) -> Column | None:
    own = scope.own(ref)
    return None if own is None else scope.table.column(own)


def _of_climb(place: _Place, each: Each, scope: RowScope) -> Iterator[GivenColumn | Lack]:
    collected = scope.plan.collected(each.collection) if scope.collection is None else None
    if collected is not None and collected.collection.kind == "climb" and each.key is None:
        own = RowScope(scope.plan, scope.around, collected)
        for name, value in each.attributes.items():
            yield from _gives(replace(place, where=(*place.where, -1, name), value=value), own)


def _of_template(place: _Place, template: Template, scope: RowScope) -> Iterator[GivenColumn | Lack]:
    pattern = _pattern(template, scope)
    place = replace(place, beside=(*place.beside, *template.refs))
    for number, ref in enumerate(template.refs):
        column = _own_column(ref, scope)
        if column is None:
            yield from (
                Lack(name, Loss("many", f"a key is made of several values at once: {','.join(ref.paths)}"))
                for name in _columns_in(ref, scope)
            )
        elif pattern is None:
            what = f'its end cannot be found in "{template.source}"'
            yield Lack(column.name, Loss("mixed", what))
        else:
            yield _read_as(place, scope, ref, column, text=True, pick=_picker(pattern, number))


def _picker(pattern: re.Pattern[str], number: int) -> Reading:
    def pick(text: Any) -> str:
        match = pattern.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UnfitError("it does not have the form of its template")
        return match[number + 1]

    return pick


def _read_as(
    place: _Place, scope: RowScope, ref: Ref, column: Column, *, text: bool, pick: Reading | None = None
) -> GivenColumn | Lack:
    read = undone(
        ref, column.kind, scope.around, nullable=column.nullable, loosely_typed=scope.plan.loosely_typed
    )
    reading = read.of_text if text else read.of_attribute
    specs = specs_of(ref)
    if any(spec.holds_list for spec in specs):
        lost = Loss("many", "path does not mark which part is the row's own")
        last = partial(_last_of_path, scope.around.separator)
        reading = after(reading, last) if specs[-1].holds_list else lost
    if isinstance(reading, Loss):
        return Lack(column.name, reading)
    beside = [one for one in place.beside if one is not ref and scope.own(one) != column.name]
    left_out = not place.must and any(scope.may_be_null(one) for one in beside)
    if left_out or not always(place.when, scope.plan, column.name):
        return Lack(column.name, Loss("sparse", f"{'.'.join(map(str, place.where))} is not in every item"))
    inner = reading
    return _given(place, scope, column, (lambda value: inner(pick(value))) if pick else inner, ref=ref)


def _last_of_path(separator: str, text: Any) -> Any:
    return text.rpartition(separator)[2] if isinstance(text, str) else text


def _given(
    place: _Place, scope: RowScope, column: Column, reading: Reading, ref: Ref | None = None
) -> GivenColumn:
    of_json = column.kind.name == "json"
    absent = column.nullable and (ref is None or scope.may_be_null(ref))

    def read(item: Any, contents: Contents) -> Any:
        value = _found(item, place.where)
        if value is _ABSENT or (value is None and not of_json):
            if absent:
                return None
            raise ValueError(f"{_shown(place.where)}: it is missing, and column {column.name} needs it")
        try:
            is_pointer = place.stored and isinstance(value, dict) and value.keys() == _POINTER
            return reading(_content(value, contents) if is_pointer else value)
        except (ValueError, ArithmeticError, TypeError) as error:
            # Python's own messages contain the value.
            why = error if isinstance(error, UnfitError) else f"it is not a valid {column.kind.name}"
            raise ValueError(f"{_shown(place.where)}, for column {column.name}: {why}") from None

    return GivenColumn(column.name, read)


def _shown(where: Where) -> str:
    return ".".join(map(str, where)) or "a member of the set, or a key of the map"


_ABSENT = object()


def _found(item: Any, where: Where) -> Any:
    value = item
    for step in where:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return value


# ── Values kept in S3 ──

_POINTER = {"s3", "bytes", "form"}
_FORMS: dict[str, Callable[[bytes], Value]] = {
    "text": bytes.decode,
    "binary": bytes,
    "json": lambda data: json.loads(data, parse_float=Decimal),
}


def _content(pointer: dict[str, Any], contents: Contents) -> Value:
    try:
        return _FORMS[pointer["form"]](contents(pointer["s3"]))
    except KeyError:
        raise UnfitError("the object in S3 that it points to is not available") from None


# ── Texts of templates divided again ──


def _width(ref: Ref, scope: RowScope) -> int | None:
    column = scope.column(ref)
    kind = None if column is None else column.kind
    return width_of(ref, kind, loosely_typed=scope.plan.loosely_typed)


def _pattern(template: Template, scope: RowScope) -> re.Pattern[str] | None:
    separator = scope.around.separator
    texts, open_refs, varying, in_all = [], 0, 0, 0
    for part in template.parts:
        if isinstance(part, str):
            varying = 0 if separator in part else varying
            texts.append(re.escape(part))
            continue
        width, closed = _width(part, scope), is_closed(scope.whole(part), scope.plan, separator)
        open_refs += not closed
        varying += width is None
        in_all += width is None
        if open_refs > 1 or varying > 1 or (in_all > 1 and len(separator) > 1):
            return None
        some = f"(?:(?!{re.escape(separator)}).)*" if closed else ".*"
        texts.append(f"({some if width is None else f'.{{{width}}}'})")
    return re.compile("".join(texts), re.DOTALL)


# ── The rows of all items of a mapping ──


Row = dict[str, Any]
"""A row by written column names, each value in the decoded form of the core."""


class ChildList(Struct, frozen=True):
    """Children in a list or (`keyed`) a map of an item: the child table, each map's columns, and the root's
    linked columns.
    """

    where: Where
    table: TableFacts
    given: tuple[GivenColumn, ...]
    lacks: tuple[Lack, ...]
    link: dict[str, str]
    keyed: bool = False


class DesignInverse(Struct, frozen=True, dict=True):
    """The inverse of an item design.

    `present`: every row has such an item.
    `of`: the column that alone decides it.
    `otherwise`: its value without the item.
    """

    plan: EntityPlan
    design: ItemDesign
    keys: tuple[tuple[str, re.Pattern[str]], ...]
    given: tuple[GivenColumn, ...]
    lacks: tuple[Lack, ...]
    lists: tuple[ChildList, ...]
    present: bool
    of: str
    otherwise: bool | None
    constants: Row

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(one.column for one in self.given) | self.constants.keys()

    @property
    def is_keyed(self) -> bool:
        return {column.name for column in self.plan.key} <= self.columns

    def takes(self, item: Item, table: TableDesign) -> bool:
        return item.get(table.type_attribute) == self.design.type and all(
            not isinstance(item.get(name), str) or pattern.fullmatch(str(item[name]))
            for name, pattern in self.keys
        )

    def told(self, whose: frozenset[str]) -> frozenset[str]:
        if self.present:
            return whose & self.columns
        return whose & {self.of} if self.of in self.columns else frozenset()


def read_backwards(mapping: Mapping, scope: RowScope, design: ItemDesign) -> DesignInverse:
    plan = scope.plan
    found = list(given_by(mapping, scope, design))
    of, value = decided_by(design.when, scope) or ("", None)
    return DesignInverse(
        plan,
        design,
        tuple((key.name, _literals(key.template.parts)) for key in base_key(mapping.table, design)),
        tuple(one for one in found if isinstance(one, GivenColumn)),
        tuple(one for one in found if isinstance(one, Lack)),
        tuple(_lists(scope, design)),
        design.expiry is None and always(design.when, plan),
        of if design.expiry is None else "",
        None if value is None else not value,
        _constants(plan) | ({of: value} if value is not None else {}),
    )


def _literals(parts: Sequence[str | Ref]) -> re.Pattern[str]:
    texts = (re.escape(part) if isinstance(part, str) else ".*" for part in parts)
    return re.compile("".join(texts), re.DOTALL)


def _lists(scope: RowScope, design: ItemDesign) -> Iterator[ChildList]:
    plans = {one.collection.alias: one for one in scope.plan.collections}
    for where, each in lists_of(scope.plan, design):
        plan = plans[each.collection]
        link = {} if scope.plan.is_single else linked(scope.plan.table, plan)
        if link is not None and plan.collection.kind == "list" and plan.collection.first is None:
            found = list(given_by_each(RowScope(scope.plan, scope.around, plan), each))
            given = tuple(one for one in found if isinstance(one, GivenColumn))
            lacks = tuple(one for one in found if isinstance(one, Lack))
            yield ChildList(where, plan.table, given, lacks, link, each.key is not None)


def _constants(plan: EntityPlan) -> Row:
    row: Row = {}
    for column, allowed in plan.where:
        if allowed is None or len(allowed) != 1 or column.alike or column.sql:
            continue
        if allowed[0] is None:
            row[column.name] = None
            continue
        of_text = undone(
            Ref((column.name,)), column.kind, PLAIN, nullable=False, loosely_typed=plan.loosely_typed
        ).of_text
        readings = [attribute_reader(column.kind), *([] if isinstance(of_text, Loss) else [of_text])]
        for read in readings:
            try:
                row[column.name] = read(allowed[0])
                break
            except (ValueError, TypeError):
                continue
    return row


class LostColumn(Struct, frozen=True):
    """A column whose values items lack. `needed`: NOT NULL without a default."""

    column: str
    cause: Cause
    why: str
    needed: bool


class TableInverse(Struct, frozen=True):
    """The part of one table's rows in the items.

    `entities`: with its rows, or the list of them.
    `rows_lost`: why some rows have none ('' if each has).
    `mend`: the mapping's line that would keep the lost columns, and `at` its place.
    `left_out`: `where` leaves out rows, which no item shows.
    """

    table: str
    entities: tuple[str, ...]
    lost: tuple[LostColumn, ...]
    rows_lost: str = ""
    mend: str = ""
    at: tuple[str | int, ...] = ()
    left_out: bool = False

    @property
    def invertible(self) -> bool:
        return not self.lost and not self.rows_lost


# ── The losses of a table ──


def stored_columns(table: TableFacts) -> list[Column]:
    return [
        column
        for column in table.columns
        if not column.sql and (not column.generated or column.name in table.primary_key)
    ]


class _Carrier(Struct, frozen=True):
    """The place of a table's rows: items of an entity, or a list in one (`child`)."""

    entity: str
    told: frozenset[str]
    lacks: tuple[Lack, ...]
    kept_elsewhere: frozenset[str]
    whole: bool
    rows_lost: str
    at: tuple[str | int, ...]
    mend_of: Any


def table_inverse(
    name: str, designs: Sequence[DesignInverse], mixed: Collection[str], views: Collection[str]
) -> TableInverse:
    facts = next(
        table
        for one in designs
        for table in (one.plan.table, *(child.table for child in one.lists))
        if table.name == name
    )
    carriers = [*_root_carriers(facts, designs), *_list_carriers(facts, designs)]
    entities = tuple(dict.fromkeys(one.entity for one in carriers))
    if facts.real in views:
        return TableInverse(name, entities, (), "it is a view, which cannot be written to", "")
    whole = [one for one in carriers if one.whole and not one.rows_lost]
    key = facts.primary_key
    counted = whole or [one for one in carriers if not one.rows_lost] or carriers
    # Carriers that name their row; all, if none does.
    counted = [one for one in counted if key and one.told.issuperset(key)] or counted
    # Columns in all of them come together by the row's key; without a key, and if not each row is in each,
    # none do.
    together = whole and key and counted[0].told.issuperset(key)
    joined = frozenset.union if together else frozenset.intersection
    told = joined(*(one.told for one in counted))
    lost = tuple(_lost(column, carriers) for column in stored_columns(facts) if column.name not in told)
    types = sorted({one.design.type for one in designs if one.plan.table.name == name} & set(mixed))
    rows_lost = counted[0].rows_lost
    if types:
        rows_lost = f"items of type {types[0]} may belong to another table: their keys are the same"
    # A value without a form in items cannot be kept by any mapping.
    kept = [
        one.column for one in lost if (column := facts.column(one.column)) and column.kind.name != "unknown"
    ]
    mend = _mend(counted[0], kept) if kept and not rows_lost else ""
    if rows_lost and not types:
        mend = "an item without when: and ttl:, so that every row has one"
    return TableInverse(
        name, entities, lost, rows_lost, mend, counted[0].at, left_out=not whole and not rows_lost
    )


def _root_carriers(table: TableFacts, designs: Sequence[DesignInverse]) -> Iterator[_Carrier]:
    for entity in dict.fromkeys(one.plan.entity.name for one in designs if one.plan.table.name == table.name):
        yield _root_carrier([one for one in designs if one.plan.entity.name == entity])


def _root_carrier(designs: Sequence[DesignInverse]) -> _Carrier:
    plan = designs[0].plan
    present = sorted((one for one in designs if one.present), key=lambda one: not one.is_keyed)
    keyed = [one for one in designs if one.is_keyed]
    told = frozenset(designs[0].constants)
    for one in [*present[:1], *keyed] if present else keyed or designs[:1]:
        told |= one.told(one.columns) if present else one.columns
    at = present[0] if present else designs[0]
    return _Carrier(
        plan.entity.name,
        told,
        tuple(lack for one in designs for lack in one.lacks),
        frozenset(column for one in designs for column in one.columns),
        not plan.where,
        "" if present else _why_no_item(designs),
        ("entities", plan.entity.written, "items", at.design.type),
        at.design,
    )


def _why_no_item(designs: Sequence[DesignInverse]) -> str:
    if any(one.design.expiry is not None for one in designs):
        return "a row whose ttl has passed has no item"
    return "a row for which no when: holds has no item"


def _list_carriers(table: TableFacts, designs: Sequence[DesignInverse]) -> Iterator[_Carrier]:
    for one in designs:
        for child in one.lists:
            if child.table.name == table.name:
                links = {ours for ours, theirs in child.link.items() if theirs in one.columns}
                told = frozenset(given.column for given in child.given) | links
                whole = one.present and not one.plan.where
                at = (
                    "entities",
                    one.plan.entity.written,
                    "items",
                    one.design.type,
                    "attributes",
                    *child.where,
                )
                why = "" if one.present else _why_no_item([one])
                yield _Carrier(one.plan.entity.name, told, child.lacks, told, whole, why, at, child)


def _lost(column: Column, carriers: Sequence[_Carrier]) -> LostColumn:
    losses = [lack.loss for one in carriers for lack in one.lacks if lack.column == column.name]
    elsewhere = any(column.name in one.kept_elsewhere for one in carriers)
    # An item that has the whole value next to another one is the reason; losses in other items are not.
    absent = Loss("absent", "no item has it")
    loss = min(losses, key=lambda one: one.cause != "mixed", default=absent)
    if elsewhere and (not losses or loss.cause == "sparse"):
        loss = Loss("keyless", "it is in items that not every row has, or that do not identify their row")
    return LostColumn(column.name, loss.cause, loss.why, not column.nullable and not column.default)


def _mend(carrier: _Carrier, columns: Sequence[str]) -> str:
    design = carrier.mend_of
    # A value with braces is a template, so only keep: takes a column with braces in its name.
    taken_by_keep = (
        () if isinstance(design, ChildList) else [n for n in columns if n not in design.attributes]
    )
    lost = [name for name in columns if not {"{", "}"} & {*name} or name in taken_by_keep]
    if isinstance(design, ChildList):
        return ", ".join(f"{text_of(name)}: {text_of(name_in_template(name))}" for name in lost)
    taken = [name for name in lost if name in design.attributes]
    kept = [name for name in lost if name not in taken]
    pairs = ", ".join(f"{text_of(f'{name}_of_row')}: {text_of(name_in_template(name))}" for name in taken)
    words = [f"attributes: {{{pairs}}}"] if taken else []
    if kept and design.keep == "all":
        left = [name for name in design.keep_except if name not in kept]
        words.insert(0, f"keep: {{except: {text_of(left)}}}" if left else "keep: all")
    elif kept:
        before = design.keep if isinstance(design.keep, tuple) else ()
        words.insert(0, f"keep: {text_of([*before, *kept])}")
    return " and ".join(words)


@dataclass(frozen=True)
class Inverse:
    """A mapping read backwards over its plans."""

    table: TableDesign
    tables: tuple[TableInverse, ...]
    designs: tuple[DesignInverse, ...] = field(repr=False)

    @cached_property
    def recovered(self) -> dict[str, frozenset[str]]:
        """Columns by table that can be restored, if items identify its rows."""
        facts = {plan.table.name: plan.table for plan in (one.plan for one in self.designs)}
        facts |= {one.table.name: one.table for design in self.designs for one in design.lists}
        lost = {one.table: {column.column for column in one.lost} for one in self.tables}
        return {
            name: frozenset(
                column.name for column in stored_columns(facts[name]) if column.name not in lost[name]
            )
            for name in lost
        }

    @cached_property
    def sparse(self) -> dict[str, Row]:
        return {
            name: {
                one.of: one.otherwise
                for one in self.designs
                if one.plan.table.name == name and one.of and not one.present
            }
            for name in self.recovered
        }

    @cached_property
    def with_lost_rows(self) -> frozenset[str]:
        return frozenset(one.table for one in self.tables if one.rows_lost)


def compile_inverse(mapping: Mapping, plans: Sequence[EntityPlan], views: Collection[str] = ()) -> Inverse:
    around = FilterContext.of(mapping)
    designs = tuple(
        read_backwards(mapping, RowScope(plan, around, filled=filled_by(plan, item)), item)
        for plan in plans
        for item in plan.entity.items
    )
    mixed = {
        one.type
        for (plan, one), (other_plan, other) in meeting_items(plans, mapping.table)
        if one.type == other.type and plan.table != other_plan.table
    }
    names = dict.fromkeys(
        name for one in designs for name in (one.plan.table.name, *(child.table.name for child in one.lists))
    )
    names.pop(NO_TABLE.name, None)
    tables = tuple(table_inverse(name, designs, mixed, views) for name in names)
    return Inverse(mapping.table, tables, designs)


# ── Items → rows ──


def _no_contents(_: str) -> bytes:
    raise KeyError


@dataclass
class RowPart:
    """A row's part in one item.

    `types`: of the items read.
    `is_whole`: every row has such an item.
    """

    row: Row = field(default_factory=dict)
    types: tuple[str, ...] = ()
    is_whole: bool = False


RowKey = tuple[str, tuple[Any, ...]]
"""A row: its table by written name, and the values of its key."""


def row_of(inverse: Inverse, table: str, told: Iterable[RowPart]) -> Row:
    """Raises: RowError if items contradict each other, or one that every row has is missing."""
    row: Row = {}
    types: list[str] = []
    is_whole = table in inverse.with_lost_rows
    for one in told:
        try:
            _merge(row, one.row)
        except ValueError as error:
            raise RowError(f"an item of type {', '.join(one.types)}: {error}") from None
        types += one.types
        is_whole |= one.is_whole
    sparse = inverse.sparse[table]
    if not is_whole or not inverse.recovered[table] <= row.keys() | sparse.keys():
        what = f"a row of {table} has only items of type {', '.join(sorted(set(types)))}"
        raise RowError(f"{what}; an item that every row has is missing")
    return {column: row.get(column, sparse.get(column)) for column in inverse.recovered[table]}


def row_parts_of(inverse: Inverse, item: Item, contents: Contents = _no_contents) -> dict[RowKey, RowPart]:
    """The item's part of each row. Raises: RowError for an item that no row makes."""
    told: dict[RowKey, RowPart] = {}
    if inverse.table.is_hidden(item):
        return told
    type_ = inverse.table.type_of(item)
    taking = [one for one in inverse.designs if one.takes(item, inverse.table)]
    if not taking:
        raise RowError(f"an item of type {type_} that no entity makes, or with a key of another form")
    for design in taking:
        try:
            row = {one.column: one.read(item, contents) for one in design.given} | design.constants
            if design.is_keyed:
                key = [column.name for column in design.plan.key]
                _tell(inverse, told, design.plan.table, key, row, type_, whole=design.present)
            for child in design.lists:
                for fields in _children(child, item, row, contents):
                    _tell(inverse, told, child.table, child.table.primary_key, fields, type_, whole=True)
        except ValueError as error:
            raise RowError(f"an item of type {type_}: {error}") from None
    return told


def _children(child: ChildList, item: Item, root: Row, contents: Contents) -> Iterator[Row]:
    value: Any = item
    for step in child.where:
        value = value.get(step) if isinstance(value, dict) else None
    if child.keyed and isinstance(value, dict):
        value = [{**fields, "": name} for name, fields in value.items() if isinstance(fields, dict)]
    if not isinstance(value, list) or not set(child.link.values()) <= root.keys():
        return
    for fields in value:
        of_child = fields if isinstance(fields, dict) else {"": fields}
        row: Row = {}
        for one in child.given:
            _merge(row, {one.column: one.read(of_child, contents)})
        row |= {ours: root[theirs] for ours, theirs in child.link.items()}
        if child.table.primary_key and set(child.table.primary_key) <= row.keys():
            yield row


def _tell(
    inverse: Inverse,
    told: dict[RowKey, RowPart],
    table: TableFacts,
    key: Sequence[str],
    row: Row,
    type_: str,
    *,
    whole: bool,
) -> None:
    try:
        one = told.setdefault((table.name, tuple(row[name] for name in key)), RowPart(types=(type_,)))
    except TypeError:
        raise ValueError("its row's key is not a single value") from None
    recovered = inverse.recovered[table.name]
    _merge(one.row, row, recovered)
    one.is_whole |= whole


def _merge(row: Row, more: Row, recovered: Collection[str] | None = None) -> None:
    for column, value in more.items():
        if column in row and not is_same(row[column], value):
            raise ValueError(f"column {column} has a value that differs from another item of its row")
        if recovered is None or column in recovered:
            row[column] = value


def is_same(one: Any, other: Any) -> bool:
    """Equality of decoded values: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
