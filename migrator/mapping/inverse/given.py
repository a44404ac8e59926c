"""The columns that one item gives back: of its attributes, and of keys whose texts can be divided in one way only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

from msgspec import Struct

from migrator.mapping.check.values import is_closed
from migrator.mapping.inverse.values import (
    Loss,
    Reading,
    after,
    day_of,
    ends_in_path,
    may_be_missing,
    undone,
    width_of,
)
from migrator.mapping.items.filters import FilterContext, specs_of, takes_null
from migrator.mapping.items.program import base_key, entries_of
from migrator.mapping.model.facts import (
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
from migrator.mapping.model.table import TableDesign, Value
from migrator.runtime.values import replace


class Scope(Struct, frozen=True, dict=True):
    """The rows that expressions are about: those of the entity's table or, with a `collection`, of this list's.

    `filled`: paths that have a value in every row of which there is an item.
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
        """The reference with the list's name before its paths, as the whole row tree has them."""
        if self.collection is None:
            return ref
        return replace(ref, paths=tuple(f"{self.collection.collection.alias}.{path}" for path in ref.paths))

    def column(self, ref: Ref) -> Column | None:
        return column_of(self.whole(ref).paths[0], self.plan)

    def own(self, ref: Ref) -> str | None:
        """The column of the row itself that the reference is made of; None where it is of another row."""
        if len(ref.paths) != 1:
            return None
        path = ref.paths[0]
        if (climbed := self._climbed(path)) is not None:
            return climbed if any(spec.holds_list for spec in specs_of(ref)) else None
        if (column := self.table.column(path)) is not None:
            return None if column.sql else path
        return self._referring.get(path)

    def _climbed(self, path: str) -> str | None:
        """The column of a climb's rows, the last of which is the row itself."""
        alias, _, name = path.partition(".")
        collected = self.plan.collected(alias) if self.collection is None else None
        return name if collected is not None and collected.collection.kind == "climb" else None

    @cached_property
    def _referring(self) -> dict[str, str]:
        """By the path of a parent's column that a foreign key refers to, the row's own column, which is equal to it."""
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
        """Whether the reference's value can be a NULL."""
        if takes_null(ref):
            return False
        return any(self._path_may_be_null(path, ref) for path in ref.paths)

    def _path_may_be_null(self, path: str, ref: Ref) -> bool:
        alias = path.partition(".")[0]
        if path in self.filled:
            return False
        if self._climbed(path) is not None:
            column = column_of(path, self.plan)
            return may_be_missing(ref) or column is None or column.nullable
        if (own := self.table.column(path)) is not None:
            return own.nullable
        if self.collection is None and (collected := self.plan.collected(alias)) is not None:
            return collected.collection.kind != "count"
        join = next((join for join in self._joins if join.alias == alias), None)
        joined = join.table.column(path.partition(".")[2]) if join else None
        key = None if join is None or join.parent else _declared(self.table, join.table, join.on)
        return joined is None or joined.nullable or key is None or self._may_be_null(key)


def filled_by(plan: EntityPlan, design: ItemDesign) -> frozenset[str]:
    """Paths that are no NULL where there is an item: a NULL in a base key refuses the row, and conditions leave it out."""
    slots = {slot.path for slot in plan.slots}
    refs = [ref for template in design.key for ref in template.refs if not takes_null(ref)]
    named = {path for ref in refs for path in ref.paths}
    named |= {one.path for one in design.when if one.allowed is None or None not in one.allowed}
    named |= {column.name for column, allowed in plan.where if allowed is None or None not in allowed}
    return frozenset(named & slots)


def _declared(table: TableFacts, parent: TableFacts, on: Sequence[tuple[str, str]]) -> ForeignKey | None:
    """The foreign key of the table that pairs these real columns: the source sees to it that there is such a parent."""
    for key in (one for one in table.foreign_keys if one.proved):
        ours = [column.real for name in key.columns if (column := table.column(name))]
        theirs = [column.real for name in key.referred if (column := parent.column(name))]
        if key.table == parent.name and set(zip(ours, theirs, strict=False)) == set(on):
            return key
    return None


def linked(table: TableFacts, list_plan: CollectionPlan) -> dict[str, str] | None:
    """By the child's written column the root's that it equals; None where a child may be without such a root."""
    key = _declared(list_plan.table, table, list_plan.link)
    columns = [] if key is None else [list_plan.table.column(name) for name in key.columns]
    if key is None or any(column is None or column.nullable or column.alike for column in columns):
        return None
    return dict(zip(key.columns, key.referred, strict=True))


def always(conditions: Sequence[Condition], plan: EntityPlan, but: str = "") -> bool:
    """Whether the conditions hold for every row of the entity; of rows in which the column `but` has a value."""
    return all(_implied(condition, plan, but) for condition in conditions)


def _implied(condition: Condition, plan: EntityPlan, but: str) -> bool:
    column = plan.table.column(condition.path)
    if column is None:
        return False
    if condition.allowed is None:
        return not column.nullable or condition.path == but
    wheres = [allowed for one, allowed in plan.where if one.name == condition.path]
    return any(allowed is not None and set(allowed) <= set(condition.allowed) for allowed in wheres)


def decided_by(conditions: Sequence[Condition], scope: Scope) -> tuple[str, bool | None] | None:
    """The one column that decides whether the conditions hold, and its value then; None: any value, NULL otherwise."""
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
"""Where a value stands in an item: an attribute's name, then names within maps, or places in lists."""


class Given(Struct, frozen=True):
    """A column that an item, or a map in a list of it, gives back.

    `read(item, contents)` gives the decoded value. Raises: ValueError for what no row makes.
    """

    column: str
    read: Callable[[Any, Contents], Any]


class Lack(Struct, frozen=True):
    """A column that a value is made of and does not give back."""

    column: str
    loss: Loss


# ── What stands where in the items of a design ──


class _Place(Struct, frozen=True):
    """A value of an item. `beside`: references whose NULL leaves it out, too; `when`: what else decides whether it is there;
    `typed`: a key of DynamoDB's type, and not a text; `must`: a NULL in it refuses the row; `stored`: it may be in S3."""

    where: Where
    value: Expression
    beside: tuple[Ref, ...] = ()
    when: tuple[Condition, ...] = ()
    typed: bool = False
    must: bool = False
    stored: bool = False


def given_by(mapping: Mapping, scope: Scope, design: ItemDesign) -> Iterator[Given | Lack]:
    """What an item of the design gives back of its row, and what it is made of but does not give back."""
    for place in _places(mapping.table, scope.plan, design):
        yield from _gives(place, scope)
    yield from _expiry(mapping, scope, design)
    yield from _flags(mapping.table, scope, design)


def _flags(table: TableDesign, scope: Scope, design: ItemDesign) -> Iterator[Given]:
    """Booleans that decide whether the item is in an index."""
    for entry in entries_of(table, design):
        of = decided_by(entry.when, scope)
        if of is not None and of[1] is not None and not any(map(scope.may_be_null, entry.refs)):
            yield Given(of[0], _flag(entry.keys[0].name, of[1]))


def _flag(attribute: str, value: bool) -> Callable[[Any, Contents], bool]:
    return lambda item, _: value if attribute in item else not value


def given_by_each(scope: Scope, each: Each) -> Iterator[Given | Lack]:
    """The same of one map of an {each}."""
    for name, value in each.attributes.items():
        yield from _gives(_Place((name,), value), scope)


def lists_of(plan: EntityPlan, design: ItemDesign) -> Iterator[tuple[Where, Each]]:
    """The lists of maps that stand in an item's attributes."""
    for name, value in {**plan.entity.attributes, **design.attributes}.items():
        yield from _lists_in((name,), value)


def _lists_in(where: Where, value: Expression) -> Iterator[tuple[Where, Each]]:
    if isinstance(value, Each):
        yield where, value
    elif isinstance(value, MapOf):
        for name, entry in value.entries.items():
            yield from _lists_in((*where, name), entry)


def _places(table: TableDesign, plan: EntityPlan, design: ItemDesign) -> Iterator[_Place]:
    for name, value in attributes_of(plan, design).items():
        yield _Place((name,), value)
    for key in base_key(table, design):
        yield _Place((key.name,), key.template, typed=key.attribute.type != "text", must=True)
    for entry in entries_of(table, design):
        for key in entry.keys:
            typed = key.attribute.type != "text"
            yield _Place((key.name,), key.template, entry.refs, entry.when, typed=typed)


def _expiry(mapping: Mapping, scope: Scope, design: ItemDesign) -> Iterator[Given | Lack]:
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
            _Place((name,), Ref((column.name,))), scope, column, lambda value: day_of(value - seconds)
        )
    else:
        yield Lack(column.name, Loss("cut", "a ttl is in whole seconds"))


def _gives(place: _Place, scope: Scope) -> Iterator[Given | Lack]:
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


def _columns_in(value: Expression, scope: Scope) -> Iterator[str]:
    """Columns of the row itself within values of several."""
    for use in uses_in(value):
        for path in use.ref.paths:
            if len(use.ref.paths) > 1 and (column := scope.table.column(path)) is not None and not column.sql:
                yield path


def _own_column(ref: Ref, scope: Scope) -> Column | None:
    own = scope.own(ref)
    return None if own is None else scope.table.column(own)


def _of_climb(place: _Place, each: Each, scope: Scope) -> Iterator[Given | Lack]:
    """Of a climb's maps the last one is the row's own."""
    collected = scope.plan.collected(each.collection) if scope.collection is None else None
    if collected is not None and collected.collection.kind == "climb":
        own = Scope(scope.plan, scope.around, collected)
        for name, value in each.attributes.items():
            yield from _gives(replace(place, where=(*place.where, -1, name), value=value), own)


def _of_template(place: _Place, template: Template, scope: Scope) -> Iterator[Given | Lack]:
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
            raise ValueError("it does not have the form of its template")
        return match[number + 1]

    return pick


def _read_as(
    place: _Place, scope: Scope, ref: Ref, column: Column, *, text: bool, pick: Reading | None = None
) -> Given | Lack:
    read = undone(
        ref, column.kind, scope.around, nullable=column.nullable, loosely_typed=scope.plan.loosely_typed
    )
    reading = read.of_text if text else read.of_attribute
    if any(spec.holds_list for spec in specs_of(ref)):
        lost = Loss("many", "path does not mark which part is the row's own")
        reading = _last_of_path(reading, scope.around.separator) if ends_in_path(ref) else lost
    if isinstance(reading, Loss):
        return Lack(column.name, reading)
    beside = [one for one in place.beside if one is not ref and scope.own(one) != column.name]
    left_out = not place.must and any(scope.may_be_null(one) for one in beside)
    if left_out or not always(place.when, scope.plan, column.name):
        return Lack(column.name, Loss("sparse", f"{'.'.join(map(str, place.where))} is not in every item"))
    inner = reading
    return _given(place, scope, column, (lambda value: inner(pick(value))) if pick else inner, ref=ref)


def _last_of_path(reading: Reading | Loss, separator: str) -> Reading | Loss:
    return after(reading, lambda text: text.rpartition(separator)[2] if isinstance(text, str) else text)


def _given(place: _Place, scope: Scope, column: Column, reading: Reading, ref: Ref | None = None) -> Given:
    """The column as it is read at the place; where nothing stands there, it is NULL, if it can be."""
    of_json = column.kind.name == "json"
    absent = column.nullable and (ref is None or scope.may_be_null(ref))

    def read(item: Any, contents: Contents) -> Any:
        value = _found(item, place.where)
        if value is _ABSENT or (value is None and not of_json):
            if absent:
                return None
            raise ValueError(f"{_shown(place.where)}: it is missing, and column {column.name} needs it")
        try:
            return reading(_content(value, contents) if _is_pointer(place, value) else value)
        except (ValueError, ArithmeticError, TypeError) as error:
            raise ValueError(f"{_shown(place.where)}, for column {column.name}: {error}") from None

    return Given(column.name, read)


def _shown(where: Where) -> str:
    return ".".join(map(str, where))


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


def _is_pointer(place: _Place, value: Any) -> bool:
    return place.stored and isinstance(value, dict) and value.keys() == _POINTER


def _content(pointer: dict[str, Any], contents: Contents) -> Value:
    try:
        return _FORMS[pointer["form"]](contents(pointer["s3"]))
    except KeyError:
        raise ValueError("the object in S3 that it points to is not available") from None


# ── Texts of templates divided again ──


def _width(ref: Ref, scope: Scope) -> int | None:
    column = scope.column(ref)
    kind = None if column is None else column.kind
    return width_of(ref, kind, loosely_typed=scope.plan.loosely_typed)


def _pattern(template: Template, scope: Scope) -> re.Pattern[str] | None:
    """Divides a text of the template in the one way that there is; None where there may be two."""
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
