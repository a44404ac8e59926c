"""The grants of each role in a job's source: those that its tables need, and those that its user lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlglot import exp
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from migrator.mapping.model.facts import Captured, EntityPlan, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Mapping
from migrator.runtime.errors import SettingsError
from migrator.settings.roles import SQL_ROLES
from migrator.source.engines.base import Grant, Granting
from migrator.source.engines.connect import engine_at
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.shared import default_schema, split
from migrator.source.sql.spelling import sqlglot_dialect
from migrator.source.sql.statements import is_cte, parsed, select_tokens
from migrator.source.sql.transactions import Writing

_WHERE_ALL_LOOK = ("information_schema", "pg_catalog")


class SqlGrants:
    """Grants that roles need.

    `captured`: tables with captured changes, of the whole mapping.
    `written`: tables that get rows from items.
    `facts`: of all tables, for those that refer to a deleted row.
    """

    def __init__(
        self,
        writing: Writing,
        mapping: Mapping,
        plans: Sequence[EntityPlan],
        captured: Sequence[Captured],
        written: Sequence[TableFacts],
        facts: SchemaFacts,
    ) -> None:
        self._writing = writing
        self._mapping = mapping
        self._plans = plans
        self._captured = captured
        self._written = written
        self._facts = facts

    def needed(self, role: str) -> list[Grant]:
        """Sorted. Raises: SettingsError if the source has no users."""

        def work(connection: Connection, ddl: Ddl) -> list[Grant]:
            own = SQL_ROLES[role]
            read = [table for plan in self._plans for table in plan.tables] if own.rows else []
            places = [_place(connection, table) for table in read]
            places += self._asked(connection) if own.asks else []
            captured = []
            if own.installs or own.looks:
                captured = [_place(connection, table.table) for table in self._captured]
                triggers = engine_at(connection).capturing.more_triggers(connection, self._captured, ddl)
                inspector = sa.inspect(connection)
                captured += [split(inspector, trigger.table) for trigger in triggers]
            written = []
            if own.writes:
                referring = self._facts.referring({table.name for table in self._written})
                places += [_place(connection, table) for table, _ in referring]
                written = [_place(connection, table) for table in self._written]
            return sorted({*_of(connection).needed(connection, own, {*places}, {*captured}, {*written})})

        return self._writing.look("looking for what a role needs", work)

    def missing(self, grants: Sequence[Grant]) -> list[Grant]:
        return self._writing.look(
            "looking for rights", lambda connection, _: _of(connection).missing(connection, grants)
        )

    def statements(self, grants: Sequence[Grant], user: str) -> list[str]:
        def work(connection: Connection, _: Ddl) -> list[str]:
            grouped = groupby(grants, lambda grant: (grant.kind, grant.schema, grant.name))
            return [_of(connection).statement(list(group), user) for _, group in grouped]

        return self._writing.look("looking for what a role needs", work)

    def lacking(self, role: str) -> dict[str, str]:
        needed = self.needed(role)
        missing = self.missing(needed)
        return {
            _readable(grant): self.statements([grant], "USER")[0] if grant in missing else ""
            for grant in needed
        }

    def _asked(self, connection: Connection) -> list[tuple[str, str]]:
        dialect = connection.dialect.name
        found = []
        for pattern in self._mapping.patterns.values():
            for sql in map(str, pattern.statements.values()):
                for schema, name in _named(sql, dialect):
                    schemas = self._mapping.schemas if pattern.schema and not schema else [schema]
                    found += [(schema or default_schema(connection), name) for schema in schemas]
        return found


def _named(sql: str, dialect: str) -> Iterator[tuple[str, str]]:
    tree = normalize_identifiers(parsed(sql, select_tokens(sql, dialect), dialect), sqlglot_dialect(dialect))
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and not is_cte(table, dialect):
            schema = table.args.get("db")
            names = ["" if part is None else part.name for part in (schema, table.this)]
            if names[0] not in _WHERE_ALL_LOOK and not names[1].startswith("pg_"):
                yield names[0], names[1]


def _place(connection: Connection, table: TableFacts) -> tuple[str, str]:
    return table.schema or default_schema(connection), table.real


def _of(connection: Connection) -> Granting:
    kind = engine_at(connection)
    if kind.granting is None:
        what = f"{kind.title} has no users: the file's own permissions are its rights"
        raise SettingsError(f"{what}; see docs/trust.md")
    return kind.granting


def _readable(grant: Grant) -> str:
    if grant.kind == "attribute":
        return f"attribute {grant.right} of the user"
    if grant.kind == "owner":
        return f"grant of the tables' owner {grant.name}"
    place = f"{grant.schema}.{grant.name}" if grant.schema else grant.name
    return f"grant {grant.right} on {place if grant.kind == 'table' else f'{grant.kind} {place}'}"
