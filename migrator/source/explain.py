"""How the database means to answer a page's SELECTs, and which tables it would read as a whole for them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.facts import JoinPlan, TableFacts
from migrator.results import Explained
from migrator.source.selects import first_select

Row = tuple[Any, ...]


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


_WORDS = {"postgresql": "EXPLAIN", "mysql": "EXPLAIN", "sqlite": "EXPLAIN QUERY PLAN"}


def explained(connection: Connection, statement: PageSelect, page_rows: int) -> Explained:
    """The database's plan of a statement, which is not run. A table of no more rows than a page may be read as a whole."""
    dialect = connection.dialect.name
    # MySQL says by itself from which partitions it reads.
    more = " PARTITIONS" if getattr(connection.dialect, "is_mariadb", False) else ""
    names, rows = _asked(connection, statement.select, _WORDS[dialect] + more)
    lines, whole = _READERS[dialect](names, rows, page_rows)
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
    _asked(connection, statement, _WORDS[connection.dialect.name], params)


def rows_expected(connection: Connection, statement: sa.Executable) -> int | None:
    """How many rows the database expects of a statement, which is not run; None of SQLite, which does not say."""
    dialect = connection.dialect.name
    if dialect == "sqlite":
        return None
    names, rows = _asked(connection, statement, _WORDS[dialect])
    if dialect == "mysql":
        return max(int(dict(zip(names, row, strict=True))["rows"] or 0) for row in rows)
    found = re.search(r" rows=(\d+)", str(rows[0][0]))
    return None if found is None else int(found[1])


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


# ── what each database answers: its lines, and the tables read as a whole ──

Read = tuple[list[str], list[str]]


def _postgresql(names: Sequence[str], rows: Sequence[Row], page_rows: int) -> Read:
    """A scan without a filter is of as many rows as the estimate says; with one, of more than it says."""
    lines = [str(row[0]) for row in rows]
    return lines, list(_sequential(lines, page_rows))


_SEQ_SCAN = re.compile(r'Seq Scan on (?P<table>"(?:[^"]|"")+"|\S+).*? rows=(?P<rows>\d+)')


def _sequential(lines: Sequence[str], page_rows: int) -> Iterator[str]:
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        found = _SEQ_SCAN.search(line)
        filtered = "Filter:" in following and page_rows < sys.maxsize
        if found and (filtered or int(found["rows"]) > page_rows):
            yield found["table"].strip('"')


def _mysql(names: Sequence[str], rows: Sequence[Row], page_rows: int) -> Read:
    lines, whole = [], []
    for row in rows:
        named = dict(zip(names, row, strict=True))
        lines.append(", ".join(f"{name}={value}" for name, value in named.items() if value is not None))
        derived = str(named["table"]).startswith("<")
        if named["type"] == "ALL" and not derived and int(named["rows"] or 0) > page_rows:
            whole.append(str(named["table"]))
    return lines, whole


_SCAN = re.compile(r"^(?:SCAN (?:TABLE )?(?P<table>[^\s(]+)|SEARCH (?P<indexed>\S+) USING AUTOMATIC)")
"""An automatic index is made for one statement, out of the whole table."""


def _sqlite(names: Sequence[str], rows: Sequence[Row], page_rows: int) -> Read:
    lines = [str(row[3]) for row in rows]
    found = [match["table"] or match["indexed"] for line in lines if (match := _SCAN.match(line))]
    known = [table for table in found if table not in ("CONSTANT", "SUBQUERY")]
    return lines, known if page_rows < sys.maxsize else []


_READERS: dict[str, Callable[[Sequence[str], Sequence[Row], int], Read]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "sqlite": _sqlite,
}
