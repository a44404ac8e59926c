"""The SELECT that reads rows with all their ancestors, from a plan alone."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import NullType

from migrator.facts import CollectionPlan, EntityPlan
from migrator.limits import CLIMB_LEVELS
from migrator.source import selects


def climb_select(plan: EntityPlan, climb: CollectionPlan, rows: selects.Rows) -> selects.Statement:
    """The root key, then the slots of the given root rows and of their ancestors, the highest ancestor first.

    It climbs one level more than a row may have, so that a cycle and too long a line are seen by their length.
    """
    up = _levels(plan, climb, rows)
    own = selects.named(climb.table, "own")
    count = len(plan.key)
    root_key, own_key = list(up.c)[:count], list(up.c)[count : 2 * count]
    found = sa.and_(*(a == b for a, b in zip(selects.key_of(plan, own), own_key, strict=True)))
    slots = (selects.slot_of(slot, {"": own}) for slot in climb.slots)
    return (
        sa.select(*root_key, *slots).select_from(up.join(own, found)).order_by(*root_key, up.c.level.desc())
    )


def _levels(plan: EntityPlan, climb: CollectionPlan, rows: selects.Rows) -> sa.CTE:
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
