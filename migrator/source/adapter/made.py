"""The keys of rows that an INSERT made."""

from __future__ import annotations

from typing import Any

from migrator.errors import UnmarkedError
from migrator.source.adapter.driver import Driver, returned_rows
from migrator.source.adapter.keys import Key
from migrator.source.adapter.pending import Pending


def made_keys(driver: Driver, pending: Pending, cursor: Any) -> list[Key]:
    """The keys of rows that an INSERT made: said by it, given back, or the last one that the database made."""
    table, rules = pending.said.table, driver.engine.outcomes
    if pending.made:
        return pending.made
    known = pending.said.inserted
    if rules.zero_makes_key and known == [(0,)] and (last := driver.last_key(cursor)):
        return [(last,)]
    if all(None not in key for key in known):
        return known
    if pending.returning and rules.returns_keys:
        return returned_rows(cursor)
    places = pending.said.returned
    if places and rules.rereads_returned:
        return [tuple(row[at] for at in places) for row in returned_rows(cursor)]
    last = driver.last_key(cursor) if len(table.key) == 1 and rules.last_key is not None else None
    if last and (len(known) == 1 or (rules.counts_keys_on and set(known) == {(None,)})):
        return [(last - number,) for number in range(len(known))]
    what = f"dual write: this INSERT into {table.name} does not say the keys that the database makes"
    raise UnmarkedError(f"{what}; give them with the rows, or let it give them back (RETURNING, or the ORM)")


def made_alone(driver: Driver, cursor: Any) -> list[Key]:
    """The keys that one of many executions of an INSERT made, to which `returning` was added."""
    if driver.has_returning:
        return [tuple(row) for row in cursor.fetchall()]
    return [(cursor.lastrowid,)]
