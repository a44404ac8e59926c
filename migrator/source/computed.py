"""Columns that a mapping makes with SQL of the source, as elements of a SELECT."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement

from migrator.facts import Column, TableFacts
from migrator.source.held import Held
from migrator.source.statements import row_expression


class ComputedColumn(ColumnElement[Any]):
    """The SQL of a computed column over `table`, which is called `alias` where it stands."""

    inherit_cache = False

    def __init__(self, column: Column, table: TableFacts, alias: str) -> None:
        self.sql = column.sql or ""
        self.table_facts = table
        self.alias = alias
        self.type = Held.of(column)


@compiles(ComputedColumn)
def _compiled(element: ComputedColumn, compiler: SQLCompiler, **words: Any) -> str:
    checked = _checked(element.sql, element.table_facts, compiler.dialect.name, element.alias)
    return f"({compiler.escape_literal_column(checked.sql)})"  # type: ignore[no-untyped-call]


_checked = lru_cache(maxsize=1_000)(row_expression)
