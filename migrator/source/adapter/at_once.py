"""Marks that the database makes itself of rows as they are now: one statement instead of a reading and a writing."""

from __future__ import annotations

from typing import Any

from migrator.source.adapter import session
from migrator.source.adapter.driver import Driver, Sql
from migrator.source.adapter.images import KEYS_A_SELECT, Images, equal
from migrator.source.adapter.leaving import explained
from migrator.source.adapter.made import made_keys
from migrator.source.adapter.pending import Pending


def left_at_once(images: Images, driver: Driver, pending: Pending, cursor: Any) -> bool:
    """Whether every mark of the statement was left; else it is to be looked at in full, and a mark more does no harm.

    Of a new row whose key is known, and of one row of which an update changes anything but its key.
    """
    write, table = pending.said.write, pending.said.table
    if not driver.engine.outcomes.marks_at_once or table.captured is None or write.is_upsert:
        return False
    if write.action == "insert":
        return _inserted(images, driver, pending, cursor)
    is_one = len(pending.states) == 1 and len(pending.meant) == 1 and cursor.rowcount == 1
    if write.action == "update" and is_one and not pending.said.moves:
        return _updated(images, driver, pending)
    return False


def _inserted(images: Images, driver: Driver, pending: Pending, cursor: Any) -> bool:
    table, keys = pending.said.table, made_keys(driver, pending, cursor)
    if not 0 < len(keys) <= KEYS_A_SELECT:
        return False
    sql = _begun(images, driver, pending, "image_after")
    sql.text(f"{images.shown(table, 'r')[0]}, {images.ddl.now} FROM {images.place(table.place)} AS r WHERE ")
    equal(sql, images.typed(table, table.key, "r"), keys)
    with explained():
        return driver.run(_if_it_fits(images, pending, sql)) == len(keys)


def _updated(images: Images, driver: Driver, pending: Pending) -> bool:
    table, key = pending.said.table, pending.meant[0]
    (known,) = pending.states[table.place].values()
    image, rest = images.shown(table, "r")
    there = f"r.{images.ddl.quoted(table.key[0])} IS NOT NULL"
    sql = _begun(images, driver, pending, "image_before, image_after").value(known.image)
    sql.text(f", CASE WHEN {there} THEN {image} END, {images.ddl.now} FROM (SELECT 1) AS one")
    sql.text(f" LEFT JOIN {images.place(table.place)} AS r ON ")
    equal(sql, images.typed(table, table.key, "r"), [key])
    sql.text(f" WHERE (NOT {there} OR {image} IS DISTINCT FROM CAST(").value(known.image)
    sql.text(f" AS text) OR {rest} IS DISTINCT FROM CAST(").value(known.rest).text(" AS text))")
    with explained():
        return driver.run(_if_it_fits(images, pending, sql)) == 1


def _begun(images: Images, driver: Driver, pending: Pending, sides: str) -> Sql:
    sql = driver.sql(f"INSERT INTO {images.ddl.mark} (table_name, {sides}, changed_at) SELECT ")
    return sql.value(pending.said.table.name).text(", ")


def _if_it_fits(images: Images, pending: Pending, sql: Sql) -> Sql:
    names = images.settings(pending.said.table)
    return sql.text(f" AND {session.fits(names)}") if names else sql
