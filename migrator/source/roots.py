"""Which root rows a changed row belongs to: the statements that find them, recursive ancestors included."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause
from sqlalchemy.types import NullType

from migrator.model.capture import Lookup
from migrator.model.facts import CollectionPlan, EntityPlan, JoinPlan
from migrator.model.table import CLIMB_LEVELS
from migrator.source import selects
from migrator.source.column_sql import exact
from migrator.source.selects import Key, KeyRange

# ── The SELECTs that find which root rows a changed row touches, from a plan and a lookup alone ──


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
    wanted = [*selects.with_key(plan, root), *selects.within(key, rows)]
    source, joins, aliases = root, plan.joins, {"": root}
    if lookup.collection is not None:
        source, joins, aliases, more = _with_children(plan, lookup.collection, root, rows)
        wanted += more
    aliases, source = selects.joined(aliases, source, _up_to(joins, lookup.parent), outer=False)
    wanted.append(_any_equal(aliases[lookup.parent], _held(plan, lookup), values))
    found = sa.select(*key).select_from(source).where(*wanted).order_by(*key).limit(limit)
    return found if source is root else found.distinct()


def _held(plan: EntityPlan, lookup: Lookup) -> tuple[str, ...]:
    """Real names of the columns that hold the values."""
    return tuple(column.real for column in plan.key) if lookup.is_root else lookup.columns


def _any_equal(table: FromClause, reals: Sequence[str], many: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
    """Whether the columns hold one of the many values."""
    columns = [exact(table.c[real]) for real in reals]
    many = [*many, *_widened(many)]
    bound = [selects.bound_values(columns, tuple(values)) for values in many]
    if len(columns) == 1 and len(many) > 1:
        return columns[0].in_([value for (value,) in bound])
    return sa.or_(*(sa.and_(*(c == v for c, v in zip(columns, one, strict=True))) for one in bound))


def _widened(many: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """Values with floats once more, as what a 32-bit one of that text is among those of 64 bits.

    An image shows a real as 0.1, and a double that is linked to it holds 0.10000000149011612. A row too many that is
    found by the other of the two is read again and written as it was.
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
    wanted = set()
    while alias:
        wanted.add(alias)
        alias = parents[alias]
    return [join for join in joins if join.alias in wanted]


def _with_children(
    plan: EntityPlan, collection: CollectionPlan, root: FromClause, rows: KeyRange
) -> tuple[FromClause, tuple[JoinPlan, ...], dict[str, FromClause], list[ColumnElement[bool]]]:
    child = selects.named(collection.table, "child")
    link = sa.and_(*(child.c[own] == root.c[theirs] for own, theirs in collection.link))
    more = selects.children_within(plan, collection, child, rows)
    return root.join(child, link), collection.joins, {"": child}, more


# ── trees ──


def _below(
    plan: EntityPlan, lookup: Lookup, values: Sequence[Sequence[Any]], rows: KeyRange
) -> selects.Statement:
    """The rows that hold the values, and all that have one of them among their ancestors.

    As deep as a line of ancestors may be: of a row that is further down, every line is refused as too long.
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
        .where(*selects.with_key(plan, start), _any_equal(start, _held(plan, lookup), values))
        .cte("down", recursive=True)
    )
    child = selects.named(climb.table, "child")
    above = list(down.c)[len(plan.key) : -1]
    link = sa.and_(*(child.c[own] == one for (own, _), one in zip(climb.link, above, strict=True)))
    below: Any = (
        sa.select(*selects.key_of(plan, child), *(child.c[real] for real in linked), down.c.level + 1)
        .select_from(down.join(child, link))
        .where(*selects.with_key(plan, child), down.c.level < CLIMB_LEVELS)
    )
    return down.union_all(below)


# ── The SELECT that reads rows with all their ancestors, from a plan alone ──


def climb_select(plan: EntityPlan, climb: CollectionPlan, rows: selects.Rows) -> selects.Statement:
    """The root key, then the slots of the given root rows and of their ancestors, the highest ancestor first.

    It climbs one level more than a row may have, so that a cycle and too long a line are seen by their length.
    """
    up = _ancestor_levels(plan, climb, rows)
    own = selects.named(climb.table, "own")
    count = len(plan.key)
    root_key, own_key = list(up.c)[:count], list(up.c)[count : 2 * count]
    found = sa.and_(*(a == b for a, b in zip(selects.key_of(plan, own), own_key, strict=True)))
    slots = (selects.slot_of(slot, {"": own}) for slot in climb.slots)
    return (
        sa.select(*root_key, *slots).select_from(up.join(own, found)).order_by(*root_key, up.c.level.desc())
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
