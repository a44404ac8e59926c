"""The SELECTs of children, of ancestors, and of root rows of a changed row."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause
from sqlalchemy.types import NullType

from migrator.mapping.model.facts import CollectionPlan, EntityPlan, JoinPlan, Lookup, Slot
from migrator.mapping.model.table import CLIMB_LEVELS
from migrator.source.sql import selects
from migrator.source.sql.selects import Key, KeyRange, KeySet, exact

# ── The SELECTs that read the children of root rows ──

_NO_COLLATION = frozenset({"integer", "number", "uuid", "date", "timestamp"})


def collection_select(plan: EntityPlan, collection: CollectionPlan, rows: selects.Rows) -> selects.Statement:
    """The root key, then the child's slots or the aggregate, of the given root rows with children."""
    root = selects.named(plan.table, "root")
    child = selects.named(collection.table, "child")
    link = sa.and_(
        *(selects.column_of(child, own) == selects.column_of(root, roots) for own, roots in collection.link)
    )
    aliases, source = selects.joined({"": child}, root.join(child, link), collection.joins)
    key = selects.key_of(plan, root)
    conditions = selects.chosen(plan, root, rows) + children_within(plan, collection, child, rows)
    if collection.collection.kind != "list":
        value = _aggregate(collection, child)
        return sa.select(*key, value).select_from(source).where(*conditions).group_by(*key)
    children = (selects.slot_of(slot, aliases) for slot in collection.slots)
    order = _child_order(collection, aliases)
    return sa.select(*key, *children).select_from(source).where(*conditions).order_by(*key, *order)


def _aggregate(collection: CollectionPlan, child: FromClause) -> ColumnElement[Any]:
    column = collection.column
    if column is None:
        return sa.func.count()
    function: dict[str, Callable[[ColumnElement[Any]], ColumnElement[Any]]] = {
        "count": sa.func.count,
        "sum": sa.func.sum,
        "min": sa.func.min,
        "max": sa.func.max,
    }
    return function[collection.collection.kind](exact(selects.column_of(child, column.real)))


def _child_order(collection: CollectionPlan, aliases: dict[str, FromClause]) -> list[ColumnElement[Any]]:
    """The order that the mapping asks for, then the child's key, so that equal ones have one order too."""
    slots = {slot.path: slot for slot in collection.slots}
    key = [path for path in collection.table.primary_key if path not in collection.order_by]
    order = []
    for path in (*collection.order_by, *key):
        column = collection.table.column(path)
        slot = slots.get(path) or (Slot(path, "", column) if column else None)
        if slot is not None:
            order.append(exact(selects.column_of(aliases[slot.alias], slot.column.real)))
    return order


def children_within(
    plan: EntityPlan, collection: CollectionPlan, child: FromClause, rows: selects.Rows
) -> list[ColumnElement[bool]]:
    """The range of keys once more, on the child's side; nothing where that could mean other rows.

    Databases carry an equality from one side of a join to the other, but no range: without this PostgreSQL
    reads all of a child table of middling size for every page. Text is left out: the two sides may differ in
    their collation, and so in what lies between two bounds.
    """
    kinds = {column.real: column.kind for column in collection.table.columns}
    own = {theirs: ours for ours, theirs in collection.link}
    linked = all(
        column.real in own and column.kind.name in _NO_COLLATION and kinds[own[column.real]] == column.kind
        for column in plan.key
    )
    if not linked or isinstance(rows, KeySet):
        return []
    return selects.within([selects.column_of(child, own[column.real]) for column in plan.key], rows)


# ── SELECTs for the root rows that a changed row affects, from a plan and a lookup ──


def roots_select(
    plan: EntityPlan, lookup: Lookup, values: Sequence[Sequence[Any]], after: Key | None, limit: int
) -> selects.Statement:
    """Keys of the root rows that the lookup reaches from any of the values, distinct, in key order, past `after`.

    Rows that the entity's `where` leaves out are among them. No value is NULL.
    """
    rows = KeyRange(after)
    if lookup.climb is not None:
        return _below(plan, lookup, values, rows).limit(limit)
    root = selects.named(plan.table, "root")
    key = selects.key_of(plan, root)
    conditions = [*selects.with_key(plan, root), *selects.within(key, rows)]
    source, joins, aliases = root, plan.joins, {"": root}
    if lookup.collection is not None:
        source, joins, aliases, of_children = _with_children(plan, lookup.collection, root, rows)
        conditions += of_children
    aliases, source = selects.joined(aliases, source, _up_to(joins, lookup.parent), outer=False)
    conditions.append(_any_equal(aliases[lookup.parent], _value_columns(plan, lookup), values))
    query = sa.select(*key).select_from(source).where(*conditions).order_by(*key).limit(limit)
    return query if source is root else query.distinct()


def _value_columns(plan: EntityPlan, lookup: Lookup) -> tuple[str, ...]:
    """Real names of the columns that hold the values."""
    return tuple(column.real for column in plan.key) if lookup.is_root else lookup.columns


def _any_equal(table: FromClause, reals: Sequence[str], many: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
    """A condition: the columns hold one of the values."""
    columns = [exact(table.c[real]) for real in reals]
    many = [*many, *_widened(many)]
    if len(columns) == 1 and len(many) > 1:
        return selects.one_of(columns, [tuple(values) for values in many])
    bound = [selects.bound_values(columns, tuple(values)) for values in many]
    return sa.or_(
        *(sa.and_(*(c == v for c, v in zip(columns, values_bound, strict=True))) for values_bound in bound)
    )


def _widened(many: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """Values with floats again, converted as a 32-bit float of that text appears among 64-bit ones.

    An image shows a real as 0.1, and a double that is linked to it holds 0.10000000149011612. An extra row found
    by the other value is read again and written unchanged.
    """
    for values in many:
        if any(isinstance(value, float) for value in values):
            yield [_as_double(value) if isinstance(value, float) else value for value in values]


def _as_double(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return value


def _up_to(joins: Sequence[JoinPlan], alias: str) -> list[JoinPlan]:
    """The joins that lead to the alias, in their order."""
    parents = {join.alias: join.parent for join in joins}
    aliases = set()
    while alias:
        aliases.add(alias)
        alias = parents[alias]
    return [join for join in joins if join.alias in aliases]


def _with_children(
    plan: EntityPlan, collection: CollectionPlan, root: FromClause, rows: KeyRange
) -> tuple[FromClause, tuple[JoinPlan, ...], dict[str, FromClause], list[ColumnElement[bool]]]:
    child = selects.named(collection.table, "child")
    link = sa.and_(*(child.c[own] == root.c[theirs] for own, theirs in collection.link))
    conditions = children_within(plan, collection, child, rows)
    return root.join(child, link), collection.joins, {"": child}, conditions


# ── trees ──


def _below(
    plan: EntityPlan, lookup: Lookup, values: Sequence[Sequence[Any]], rows: KeyRange
) -> selects.Statement:
    """The rows that hold the values, and all rows that have one of them among their ancestors.

    As deep as a line of ancestors may be: rows further down are refused, as their line is too long.
    """
    down = _levels(plan, lookup, values)
    key = list(down.c)[: len(plan.key)]
    return sa.select(*key).distinct().where(*selects.within(key, rows)).order_by(*key)


def _levels(plan: EntityPlan, lookup: Lookup, values: Sequence[Sequence[Any]]) -> sa.CTE:
    """(key, columns that children link to, level) as a recursive table; a row that holds the values is level 0."""
    climb = lookup.climb
    assert climb is not None
    start = selects.named(climb.table, "start")
    linked = [theirs for _, theirs in climb.link]
    names = [f"r{number}" for number in range(len(plan.key))] + [
        f"l{number}" for number in range(len(linked))
    ]
    columns = [*selects.key_of(plan, start), *(start.c[real] for real in linked)]
    down = (
        sa.select(
            *(column.label(name) for column, name in zip(columns, names, strict=True)),
            sa.literal_column("0", NullType()).label("level"),
        )
        .where(*selects.with_key(plan, start), _any_equal(start, _value_columns(plan, lookup), values))
        .cte("down", recursive=True)
    )
    child = selects.named(climb.table, "child")
    above = list(down.c)[len(plan.key) : -1]
    link = sa.and_(
        *(child.c[own] == parent_column for (own, _), parent_column in zip(climb.link, above, strict=True))
    )
    below: Any = (
        sa.select(*selects.key_of(plan, child), *(child.c[real] for real in linked), down.c.level + 1)
        .select_from(down.join(child, link))
        .where(*selects.with_key(plan, child), down.c.level < CLIMB_LEVELS)
    )
    return down.union_all(below)


# ── The SELECT that reads rows with all their ancestors ──


def climb_select(plan: EntityPlan, climb: CollectionPlan, rows: selects.Rows) -> selects.Statement:
    """The root key, then the slots of the given root rows and of their ancestors, the highest ancestor first.

    It climbs one level more than a row may have, so that a cycle or too long a line is noticed by its length.
    """
    up = _ancestor_levels(plan, climb, rows)
    own = selects.named(climb.table, "own")
    count = len(plan.key)
    root_key, own_key = list(up.c)[:count], list(up.c)[count : 2 * count]
    is_own = sa.and_(*(a == b for a, b in zip(selects.key_of(plan, own), own_key, strict=True)))
    slots = (selects.slot_of(slot, {"": own}) for slot in climb.slots)
    return (
        sa.select(*root_key, *slots).select_from(up.join(own, is_own)).order_by(*root_key, up.c.level.desc())
    )


def _ancestor_levels(plan: EntityPlan, climb: CollectionPlan, rows: selects.Rows) -> sa.CTE:
    """(root key, key of the row itself or of an ancestor, level) as a recursive table; the row is level 0."""
    root = selects.named(plan.table, "root")
    key = selects.key_of(plan, root)
    names = [f"r{number}" for number in range(len(key))] + [f"o{number}" for number in range(len(key))]
    columns = [column.label(name) for column, name in zip([*key, *key], names, strict=True)]
    up = (
        sa.select(*columns, sa.literal_column("0", NullType()).label("level"))
        .where(*selects.chosen(plan, root, rows))
        .cte("up", recursive=True)
    )
    child, parent = selects.named(climb.table, "child"), selects.named(climb.table, "parent")
    own_key = list(up.c)[len(key) : 2 * len(key)]
    itself = sa.and_(*(a == b for a, b in zip(selects.key_of(plan, child), own_key, strict=True)))
    link = sa.and_(*(child.c[ours] == parent.c[theirs] for ours, theirs in climb.link))
    above: Any = (
        sa.select(*list(up.c)[: len(key)], *selects.key_of(plan, parent), (up.c.level + 1).label("level"))
        .select_from(up.join(child, itself).join(parent, link))
        .where(up.c.level < CLIMB_LEVELS)
    )
    return up.union_all(above)
