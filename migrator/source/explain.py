"""Query plans of a page's SELECTs, and what a server says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.model.facts import JoinPlan, TableFacts
from migrator.model.results import Explained
from migrator.source.engines.base import Row
from migrator.source.engines.table import engine_at, engine_of
from migrator.source.selects import first_select
from migrator.source.server_facts import Pooling

# ──
# How the database means to answer a page's SELECTs, and which tables it would read as a whole for them.


@dataclass(frozen=True)
class PageSelect:
    """One SELECT of a page. `tables`: by the aliases that it uses."""

    what: str
    select: sa.Executable
    tables: Mapping[str, TableFacts]

    @classmethod
    def of(
        cls, what: str, select: sa.Executable, tables: Mapping[str, TableFacts], joins: Sequence[JoinPlan]
    ) -> PageSelect:
        """`tables`: by alias, without those of the joins, which selects.py calls j1, j2, …"""
        joined = {f"j{number}": join.table for number, join in enumerate(joins, 1)}
        return cls(what, select, {**tables, **joined})


def explained(connection: Connection, statement: PageSelect, page_rows: int) -> Explained:
    """The database's plan of a statement, which is not run. A table of no more rows than a page may be read as a whole."""
    explaining = engine_at(connection).server.explaining
    word = explaining.word + explaining.partitions(connection.dialect)
    names, rows = _asked(connection, statement.select, word)
    lines, whole = explaining.plan(names, rows, page_rows)
    # PostgreSQL says names of tables, the others aliases.
    known = {table.real: table for table in statement.tables.values()} | dict(statement.tables)
    tables = {name: known.get(name) for name in whole}
    large = (
        name if table is None else table.real
        for name, table in tables.items()
        if table is None or _has_more_than(connection, table, page_rows)
    )
    return Explained(statement.what, tuple(lines), tuple(dict.fromkeys(large)))


def _has_more_than(connection: Connection, table: TableFacts, rows: int) -> bool:
    """Looked at, not taken from the plan: it says how many rows are left, and SQLite's says nothing."""
    return bool(connection.execute(first_select(table, rows + 1)).scalar_one() > rows)


def examine(connection: Connection, statement: sa.Executable, params: Mapping[str, Any]) -> None:
    """Nothing, where the database knows how to answer the statement, which is not run; raises what the driver raises."""
    _asked(connection, statement, engine_at(connection).server.explaining.word, params)


def rows_expected(connection: Connection, statement: sa.Executable) -> int | None:
    """How many rows the database expects of a statement, which is not run; None of SQLite, which does not say."""
    explaining = engine_at(connection).server.explaining
    if explaining.expected is None:
        return None
    return explaining.expected(*_asked(connection, statement, explaining.word))


def _asked(
    connection: Connection, select: sa.Executable, word: str, params: Mapping[str, Any] | None = None
) -> tuple[list[str], list[Row]]:
    """Names of columns and rows of the answer to the select with `word` in front of it."""

    def put_in_front(*given: Any) -> tuple[str, Any]:
        text, parameters, context = given[2:5]
        # The transaction's own BEGIN passes here too; it is no compiled statement.
        return (f"{word} {text}" if context.compiled is not None else text), parameters

    # Only here are statement and parameters what the driver will be given.
    sa.event.listen(connection, "before_cursor_execute", put_in_front, retval=True)
    try:
        with connection.execute(select, params) as result:
            assert isinstance(result, sa.CursorResult)
            assert result.cursor is not None
            return [column[0] for column in result.cursor.description], list(result.cursor.fetchall())
    finally:
        sa.event.remove(connection, "before_cursor_execute", put_in_front)


# ──
# What a server says of itself: its version and clock, whether it is a replica, how long it lets a
# statement run.

Ask = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """`version`: with the product's name. `clock_s`: seconds since 1970; None for an engine without a server.

    `timeout`: as the server writes it; '0' for none, '' where it does not say. `pooling`: how a pooler that stands
    between shares the server's sessions; '' for none.
    """

    version: str
    clock_s: float | None = None
    replica: bool = False
    timeout: str = ""
    pooling: Pooling = ""


def source_health(engine: str, ask: Ask, pooling: Pooling) -> SourceHealth:
    """`engine`: by the name of its dialect; `ask`: runs one SELECT.

    Raises: SourceError when the server does not answer.
    """
    server = engine_of(engine).server
    ((version, clock_s, replica, timeout),) = ask(server.health, {})
    seconds = None if clock_s is None else float(clock_s)
    is_replica = str(replica).lower() in ("true", "t", "1", "on")
    return SourceHealth(server.product(str(version)), seconds, is_replica, str(timeout), pooling)
