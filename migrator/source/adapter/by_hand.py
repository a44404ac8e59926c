"""Marks left by explicit calls of a service, for code without the ORM and on any DB-API connection."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from migrator.mapping.model.facts import Captured, columns_of
from migrator.runtime.errors import SettingsError, UnmarkedError, amount
from migrator.source.adapter import driver as adapter_driver
from migrator.source.adapter.driver import Driver, key_of
from migrator.source.adapter.events import Adapter, driver_of
from migrator.source.adapter.images import Key, RowImages, State
from migrator.source.adapter.marks import Changed, compared, reached
from migrator.source.adapter.tables import CapturedTable
from migrator.source.engines.catalogue import Place
from migrator.source.engines.connect import ENGINES

Values = Mapping[str, Any]


def driver_for(connection: Any) -> Driver:
    """Raises: UnmarkedError for an async connection, and for anything that is not a connection."""
    if (own := _sqlalchemys(connection)) is not None:
        return driver_of(own)
    modules = {
        name: (engine.name, style) for engine in ENGINES for name, style in engine.sessions.modules.items()
    }
    # A service may have its own connection class, derived from a driver's.
    for base in type(connection).__mro__:
        module = base.__module__.partition(".")[0]
        if module in modules and not iscoroutinefunction(connection.commit):
            return Driver(connection, *modules[module])
    what = f"dual write: a {type(connection).__name__} is not a connection on which changes can be captured"
    raise UnmarkedError(
        f"{what}; give SQLAlchemy's, or psycopg's, PyMySQL's or sqlite3's (async: inside of run_sync)"
    )


def mark_changed(
    adapter: Adapter, connection: Any, table: str, before: Values | None, after: Values | None
) -> None:
    """Leave the mark of one change; no values mean no row.

    Raises: UnmarkedError with every fault of the values.
    """
    if before is None and after is None:
        raise UnmarkedError("dual write: mark_changed needs the row before the change, after it, or both")
    watched, captured = _captured(adapter, table)
    driver, seen = driver_for(connection), _seen(adapter, connection)
    adapter.begins(driver)
    images = [None if row is None else _image(adapter, driver, captured, row) for row in (before, after)]
    _leave(adapter, seen, driver, [Changed(watched, *images)])


@contextmanager
def changing(adapter: Adapter, connection: Any, table: str, keys: Sequence[Any]) -> Iterator[None]:
    """Mark the block's changes to the rows with these primary keys (tuples if there are several columns), and to
    rows that foreign keys change with them.
    """
    watched, _ = _captured(adapter, table)
    driver, seen = driver_for(connection), _seen(adapter, connection)
    wanted = [_key(watched, key) for key in keys]
    adapter.begins(driver)
    driver.hold()
    images = adapter.listening.marking.images
    states = _states(images, driver, watched, wanted)

    def mark() -> None:
        before = states[watched.place]
        after: State = images.by_keys(driver, watched, [*wanted, *before], lock="own")
        others = reached(images, driver, watched, states, list(after))
        _leave(adapter, seen, driver, [*compared(watched, before, after, {}), *others])

    try:
        with adapter_driver.by_hand(driver.raw):
            yield
    except BaseException:
        # The service may still commit the block's changes.
        try:
            mark()
        except Exception:
            if seen is not None:
                adapter.listening.works.fail(seen)
        raise
    mark()


def _states(
    images: RowImages, driver: Driver, watched: CapturedTable, keys: Sequence[Key]
) -> dict[Place, State]:
    """The rows, and those that a change of their keys or their end changes by foreign keys."""
    states: dict[Place, State] = {watched.place: images.by_keys(driver, watched, keys, lock="key")}
    for is_delete in (True, False):
        others: dict[Place, State] = {}
        images.reach(driver, others, watched, list(states[watched.place]), is_delete=is_delete)
        for place, rows in others.items():
            states[place] = states.get(place, {}) | rows
    return states


def _leave(
    adapter: Adapter, connection: Connection | None, driver: Driver, changed: Sequence[Changed]
) -> None:
    adapter.listening.left(driver, changed)
    if connection is not None and adapter.rules.writes:
        adapter.listening.works.add(connection, changed)


def _seen(adapter: Adapter, connection: Any) -> Connection | None:
    """Raises: UnmarkedError if items are written at commits, but this connection's commits cannot be observed."""
    seen = _sqlalchemys(connection)
    if adapter.rules.writes and (seen is None or not adapter.listening.knows(seen.engine)):
        what = "dual write: strict mode and flush see the commits of engines that they were given"
        advice = "give its engine to dual_write, or use outbox mode"
        raise UnmarkedError(f"{what}, and this connection is of none; {advice}")
    return seen


def _sqlalchemys(connection: Any) -> Connection | None:
    if isinstance(connection, Session):
        return connection.connection()
    return connection if isinstance(connection, Connection) else None


def _key(watched: CapturedTable, key: Any) -> Key:
    values = key_of(key if isinstance(key, (tuple, list)) else (key,))
    if len(values) != len(watched.key):
        what = f"dual write: the key of {watched.name} is ({', '.join(watched.key)})"
        raise UnmarkedError(
            f"{what}, and {amount(len(values), 'value', 'were')} given; give one for each, as a tuple"
        )
    if unfit := [type(value).__name__ for value in values if not isinstance(value, Hashable)]:
        what = f"dual write: a {unfit[0]} is not a value of the key of {watched.name}"
        raise UnmarkedError(f"{what} ({', '.join(watched.key)}); give the values of its columns")
    return values


def _captured(adapter: Adapter, table: str) -> tuple[CapturedTable, Captured]:
    by_name = {
        name: (watched, watched.captured)
        for watched in adapter.listening.marking.tables.tables.values()
        if watched.captured is not None
        for name in (watched.name, watched.captured.table.real, watched.captured.table.name)
    }
    if table not in by_name:
        near = difflib.get_close_matches(str(table), by_name, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise SettingsError(f"dual write: no entity of the mapping reads a table {table}{hint}")
    return by_name[table]


def _image(adapter: Adapter, driver: Driver, captured: Captured, row: Values) -> str:
    columns = columns_of(captured, captured.columns)
    values = {name: row[name] for column in columns for name in (column.real, column.name) if name in row}
    missing = [column.name for column in columns if column.name not in values and column.real not in values]
    if missing:
        what = f"dual write: the row of {captured.name} lacks {', '.join(missing)}"
        raise UnmarkedError(f"{what}, by which its items are found; give them, as they are in the row")
    sql = driver.sql(f"SELECT {adapter.ddl.image(columns, 'v')} FROM (SELECT ")
    for number, column in enumerate(columns):
        given = values[column.real if column.real in values else column.name]
        before, bound, after = driver.engine.outcomes.typed(column, given)
        sql.text(f"{', ' if number else ''}{before}").value(bound)
        sql.text(f"{after} AS {adapter.ddl.quoted(column.real)}")
    return str(driver.rows(sql.text(") AS v"))[0][0])
