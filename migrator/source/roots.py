"""The SELECTs that find which root rows a changed row touches, from a plan and a lookup alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause
from sqlalchemy.types import NullType

from migrator.facts import CollectionPlan, EntityPlan, JoinPlan
from migrator.limits import CLIMB_LEVELS
from migrator.mapping.changes import Lookup
from migrator.source import selects
from migrator.source.held import exact
from migrator.source.selects import Key, KeyRange


def roots_select(
    plan: EntityPlan, lookup: Lookup, values: Sequence[Any], after: Key | None, limit: int
) -> selects.Statement:
    """Keys of the root rows that the lookup reaches from the values, distinct, in key order, past `after`.

    Rows that the entity's `where` leaves out are among them. No value is NULL.
    """
    rows = KeyRange(after)
    if lookup.climb is not None:
        return _below(plan, lookup.climb, _held(lookup, values), rows).limit(limit)
    root = selects.named(plan.table, "root")
    key = selects.key_of(plan, root)
    wanted = [*selects.with_key(plan, root), *selects.within(key, rows)]
    source, joins, aliases = root, plan.joins, {"": root}
    if lookup.collection is not None:
        source, joins, aliases, more = _with_children(plan, lookup.collection, root, rows)
        wanted += more
    aliases, source = selects.joined(aliases, source, _up_to(joins, lookup.parent), outer=False)
    wanted += _equal(aliases[lookup.parent], _held(lookup, values) or _key_held(plan, values))
    found = sa.select(*key).select_from(source).where(*wanted).order_by(*key).limit(limit)
    return found if source is root else found.distinct()


Held = Sequence[tuple[str, Any]]
"""(real column, the value that it holds)."""


def _held(lookup: Lookup, values: Sequence[Any]) -> Held:
    return [] if lookup.is_root else list(zip(lookup.columns, values, strict=True))


def _key_held(plan: EntityPlan, values: Sequence[Any]) -> Held:
    return [(column.real, value) for column, value in zip(plan.key, values, strict=True)]


def _equal(table: FromClause, held: Held) -> list[ColumnElement[bool]]:
    columns = [exact(table.c[real]) for real, _ in held]
    bound = selects.bound_values(columns, tuple(value for _, value in held))
    return [column == value for column, value in zip(columns, bound, strict=True)]


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


def _below(plan: EntityPlan, climb: CollectionPlan, held: Held, rows: KeyRange) -> selects.Statement:
    """The rows that hold the values, and all that have one of them among their ancestors.

    As deep as a line of ancestors may be: of a row that is further down, every line is refused as too long.
    """
    down = _levels(plan, climb, held)
    key = list(down.c)[: len(plan.key)]
    return sa.select(*key).distinct().where(*selects.within(key, rows)).order_by(*key)


def _levels(plan: EntityPlan, climb: CollectionPlan, held: Held) -> sa.CTE:
    """(key, columns that children link to, level) as a recursive table; a row that holds the values is level 0."""
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
        .where(*selects.with_key(plan, start), *_equal(start, held))
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
