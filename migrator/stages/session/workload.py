"""`Workload`: statements sent to a database, from files or its server's record, and figures of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from migrator.mapping.model.capacity import FanOut, WriteRates
from migrator.mapping.model.edges import Database, QueryCall
from migrator.mapping.model.facts import Column, EntityPlan, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.questions import Clauses, Figures, Statement, StatementQuestion, Unserved, Wanted
from migrator.runtime.errors import MigratorError, SettingsError, SourceError
from migrator.runtime.values import replace
from migrator.source.sql.spelling import Speller
from migrator.source.workload.clauses import clauses_of, unknown_name
from migrator.source.workload.reading import question_of
from migrator.source.workload.statements import (
    STATEMENTS_TAKE,
    file_text,
    listed_questions,
    merged,
    recorded_statements,
    statements_of,
    told_writes,
)
from migrator.source.workload.statistics import fan_outs, figures_of


class Workload(Struct, frozen=True):
    source: Database
    facts: SchemaFacts

    # ── statements ──

    def of_file(self, path: Path) -> list[Statement]:
        statements = self._written(path)
        if not statements:
            raise SettingsError(f"{path}: the file has no statement; {STATEMENTS_TAKE}")
        return statements

    def _written(self, path: Path) -> list[Statement]:
        text = file_text(path)
        try:
            return statements_of(text, self.facts.dialect)
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from None

    def recorded(self) -> list[Statement]:
        """Statements recorded by the server. Raises: SettingsError if it does not record, or not for this user."""
        ask = partial(self.source.query, what="the statements that it recorded")
        return recorded_statements(ask, self.facts.dialect)

    def listed(self, path: Path) -> tuple[list[Statement], list[Unserved]]:
        text = file_text(path, "--statements takes CSV or Markdown")
        return listed_questions(text, path, self.facts.dialect)

    def merged(self, statements: Sequence[Statement]) -> list[Statement]:
        return merged(statements, self.facts.dialect)

    def question(self, statement: Statement) -> StatementQuestion | Unserved:
        return question_of(statement, self.facts)

    def writes(self, path: Path) -> WriteRates:
        return told_writes(self._written(path), self.facts)

    def clauses(self, mapping: MappingModel) -> dict[tuple[str, str], Clauses]:
        """By pattern and part, tables and columns of its statement's clauses, if the SQL is readable."""
        read = {
            (name, part): clauses_of(statement, self.facts)
            for name, pattern in mapping.patterns.items()
            for part, statement in pattern.statements.items()
            if isinstance(statement, str)
        }
        return {of: clauses for of, clauses in read.items() if clauses is not None}

    def unknown_name(self, mapping: MappingModel, pattern: str, part: str) -> str:
        """The statement's table or column that the source lacks; '' for any other fault."""
        statement = mapping.patterns[pattern].statements[part]
        return unknown_name(statement, self.facts) if isinstance(statement, str) else ""

    # ── rows ──

    def figures(self, wanted: Wanted, rows_exact: int, statements: Sequence[Statement] = ()) -> Figures:
        """`statements`: their rates of changes are included.

        Raises: SettingsError with the required right if this user may not read some tables.
        """
        try:
            ask = partial(self.source.first_row_of_each, what="the figures of its tables")
            rated = [replace(one, calls=one.per_s) for one in statements if one.per_s is not None]
            figures = figures_of(ask, self.facts, wanted, rows_exact)
            told = told_writes(statements, self.facts)
            updated = {
                name: frozenset(column for table, column in told.updates_per_s if table == name)
                for name in told.per_s
            }
            return replace(figures, writes=told_writes(rated, self.facts).per_s, updated=updated)
        except SourceError:
            tables = [table for table in self.facts.tables.values() if table.primary_key]
            selects = [QueryCall(f"SELECT * FROM {self.spelled(table.real)}") for table in tables]
            if faults := list(filter(None, self.source.query_faults(selects))):
                raise SettingsError("\n".join(faults)) from None
            raise

    def fan_outs(
        self, plans: Sequence[EntityPlan], rows: Mapping[str, int], rows_exact: int
    ) -> Sequence[FanOut]:
        ask = partial(self.source.query, what="how many rows a change concerns")
        return fan_outs(ask, self.facts.dialect, plans, rows, rows_exact)

    def have_rows(self, conditions: Sequence[tuple[TableFacts, Column, str]]) -> list[bool]:
        """For each condition, whether a row of its table fulfils it; False if unknown."""
        selects, what = [self._first_row(*condition) for condition in conditions], "whether a row is there"
        try:
            return [bool(row) for row in self.source.first_row_of_each(selects, what)]
        except MigratorError:
            return [self._has_row(select, what) for select in selects]

    def _has_row(self, select: str, what: str) -> bool:
        try:
            return bool(self.source.first_row_of_each([select], what)[0])
        except MigratorError:
            return False  # such as a table that takes too long to scan

    def _first_row(self, table: TableFacts, column: Column, condition: str) -> str:
        spell = self.spelled
        place = ".".join(map(spell, filter(None, (table.schema, table.real))))
        name = spell(column.real)
        value = f"CAST({name} AS {column.kind.read_as})" if column.kind.read_as else name
        return f"SELECT 1 FROM {place} WHERE {value} {condition} LIMIT 1"

    def broken(self) -> list[str]:
        return [
            table.real
            for table in self.facts.tables.values()
            if not table.primary_key and not self._is_readable(table.real)
        ]

    def _is_readable(self, name: str) -> bool:
        try:
            self.source.query(f"SELECT * FROM {self.spelled(name)} LIMIT 1", {}, what=name)
        except SourceError:
            return False
        return True

    def spelled(self, name: str) -> str:
        return Speller("", self.facts.dialect).name(name)
