"""Rows as the driver gives them, and row trees built from the rows of a page's SELECTs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.model.facts import CollectionPlan, EntityPlan
from migrator.model.table import RowTree
from migrator.source.engines.table import engine_at
from migrator.source.selects import Key

# ── Rows of a statement as the driver gives them: all, or only the first ones ──

_STREAMED = {"stream_results": True, "max_row_buffer": 100}


def first_rows(
    connection: Connection,
    statement: sa.Executable,
    params: Mapping[str, Any] | None = None,
    at_most: int | None = None,
) -> list[tuple[Any, ...]]:
    """The driver's own tuples: SQLAlchemy's Row around each of them would cost more than reading it.

    `at_most`: so many rows, and one more where there are more; the others are left where they are.
    """
    with connection.execute(
        statement, params, execution_options={} if at_most is None else _STREAMED
    ) as result:
        if not isinstance(result, sa.CursorResult) or result.cursor is None:
            raise sa.exc.ResourceClosedError("the statement does not return rows")
        if at_most is None:
            return list(result.cursor.fetchall())
        # Not the driver's cursor: a streamed result has taken the first rows out of it already.
        found = [tuple(row) for row in result.fetchmany(at_most + 1)]
        if len(found) > at_most and engine_at(connection).server.sends_to_the_end:
            _leave(connection)
        return found


def _leave(connection: Connection) -> None:
    """Ends the connection, and with it what the server still sends: nothing but reading on would give it back else."""
    unread = getattr(connection.connection.driver_connection, "_result", None)
    connection.invalidate()
    if unread is not None:
        # Or the cursor would wait for the end of it on a connection that is closed.
        unread.unbuffered_active = False


# ── Row trees out of the rows that a page's SELECTs gave ──

Rows = Sequence[tuple[Any, ...]]


def key_reader(plan: EntityPlan) -> Callable[[Sequence[Any]], Key]:
    """A function from a root row (or its tree) to the values of its key."""
    places = {slot.column.real: place for place, slot in enumerate(plan.slots) if slot.alias == ""}
    wanted = tuple(places[column.real] for column in plan.key)
    return lambda row: tuple(row[place] for place in wanted)


def _same(key: Key) -> Key:
    """The key with each NaN as one value: to Python no NaN is another's equal, to PostgreSQL all are."""
    return tuple("NaN" if value != value else value for value in key)


def row_trees(plan: EntityPlan, roots: Rows, collected: Sequence[Rows]) -> list[RowTree]:
    """Each root row with its part of every collection; `collected`: the rows of each collection's SELECT.

    A root without children has () for a list, 0 for a count and NULL for a sum, a minimum or a maximum.
    """
    key = key_reader(plan)
    parts = [
        (_by_root(plan, one, rows), _of_none(one))
        for one, rows in zip(plan.collections, collected, strict=True)
    ]
    trees = []
    for row in roots:
        own = _same(key(row))
        trees.append((*row, *[children.get(own, none) for children, none in parts]))
    return trees


def twins_of(plan: EntityPlan, roots: Rows) -> dict[Key, int]:
    """Keys that several of the rows have, and how many; rows that a join made two of are among them."""
    key = key_reader(plan)
    keys = [key(row) for row in roots]
    if len(set(keys)) == len(keys):
        return {}
    return {one: count for one, count in Counter(keys).items() if count > 1}


def rows_read(plan: EntityPlan, trees: Sequence[RowTree]) -> int:
    """Rows that the trees were made of: the roots, and the children of their lists."""
    lists = [place for place, one in enumerate(plan.collections, len(plan.slots)) if one.collection.is_list]
    return len(trees) + sum(len(tree[place]) for tree in trees for place in lists)


def _by_root(plan: EntityPlan, one: CollectionPlan, rows: Rows) -> dict[Key, Any]:
    width = len(plan.key)
    if not one.collection.is_list:
        return {_same(row[:width]): row[width] for row in rows}
    children: dict[Key, list[tuple[Any, ...]]] = {}
    for row in rows:
        children.setdefault(_same(row[:width]), []).append(row[width:])
    return {key: tuple(found) for key, found in children.items()}


def _of_none(one: CollectionPlan) -> Any:
    return {"list": (), "climb": (), "count": 0}.get(one.collection.kind)
