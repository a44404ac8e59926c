"""The source's schema as a mapping sees it: tables and views, columns with kinds, keys."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SAWarning

from migrator.mapping.model.facts import ForeignKey, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Mapping as DesignMapping
from migrator.runtime.errors import SettingsError
from migrator.source.engines.catalogue import Reflected
from migrator.source.engines.connect import engine_at


def view_names(connection: Connection) -> set[str]:
    """The views of the default schema, by their real names."""
    inspector = sa.inspect(connection)
    has_both = engine_at(connection).schema.has_materialized_views
    materialized = inspector.get_materialized_view_names() if has_both else ()
    return {*inspector.get_view_names(), *materialized}


def reflect(connection: Connection, schemas: Sequence[str] = ()) -> SchemaFacts:
    """Tables and views of the default schema, and, as schema.table, those of `schemas` that exist."""
    schema = engine_at(connection).schema
    existing = tuple(sa.inspect(connection).get_schema_names()) if schema.has_schemas else ()
    with warnings.catch_warnings():
        # Types and indexes that SQLAlchemy does not know are `unknown` or left out; no warning is needed.
        warnings.simplefilter("ignore", SAWarning)
        read = [_Schema(schema.reflected(connection, None), "")]
        read += [
            _Schema(schema.reflected(connection, name), f"{name}.") for name in schemas if name in existing
        ]
    tables = (table for schema in read for table in schema.tables(read))
    by_name = {table.name: table for table in tables}
    left_out = {f"{one.prefix}{name}": why for one in read for name, why in one.reflected.left_out.items()}
    unread = tuple(table for one in read for table in one.unread(read))
    return SchemaFacts(
        *(connection.dialect.name, by_name, existing),
        left_out=left_out,
        unread=unread,
        loosely_typed=schema.loosely_typed,
    )


class _Schema(Struct, frozen=True):
    """One schema's tables, and the prefix of their names."""

    reflected: Reflected
    prefix: str

    def tables(self, schemas: Sequence[_Schema]) -> Iterator[TableFacts]:
        for name, columns in self.reflected.columns.items():
            yield TableFacts(
                name=f"{self.prefix}{name}",
                real=name,
                columns=tuple(columns),
                primary_key=tuple(self.reflected.primary_keys.get(name, ())),
                unique=tuple(map(tuple, self.reflected.unique.get(name, ()))),
                foreign_keys=tuple(self._foreign_keys(name, schemas)),
                schema=self.reflected.schema,
                unique_conflicts=self.reflected.unique_conflicts.get(name, ()),
                doubts=tuple((tuple(key), why) for key, why in self.reflected.doubts.get(name, ())),
            )

    def unread(self, schemas: Sequence[_Schema]) -> Iterator[TableFacts]:
        """Tables that are left out and refer to others: a row that they refer to must not go."""
        for name in self.reflected.left_out:
            if keys := tuple(self._foreign_keys(name, schemas)):
                schema = self.reflected.schema
                yield TableFacts(f"{self.prefix}{name}", name, (), (), foreign_keys=keys, schema=schema)

    def _foreign_keys(self, name: str, schemas: Sequence[_Schema]) -> Iterator[ForeignKey]:
        """Foreign keys to tables among the facts. On SQLite they may write the other table's names in any case."""
        for key in self.reflected.foreign_keys.get(name, ()):
            # PostgreSQL leaves out a schema on its search path; MySQL, whose default has no name here, its own.
            referred_schema = key["referred_schema"] or schemas[0].reflected.schema or self.reflected.schema
            other = (
                self
                if referred_schema == self.reflected.schema
                else next((s for s in schemas if s.reflected.schema == referred_schema), None)
            )
            table = _any_case(other.reflected.columns, key["referred_table"]) if other else None
            if other is None or table is None:
                continue
            written = key["constrained_columns"]
            ours = [_any_case(self._columns(name) or written, column) for column in written]
            theirs = [
                _any_case(other._columns(table), column)
                for column in key["referred_columns"] or other.reflected.primary_keys.get(table, [])
            ]
            if ours and len(ours) == len(theirs) and None not in ours + theirs:
                columns, referred = (tuple(filter(None, names)) for names in (ours, theirs))
                options = key.get("options", {})
                deferrable, proved = bool(options.get("deferrable")), options.get("proved", True)
                yield ForeignKey(columns, f"{other.prefix}{table}", referred, deferrable, proved)

    def _columns(self, table: str) -> list[str]:
        return [column.real for column in self.reflected.columns.get(table, ())]


def _any_case(names: Collection[str], written: str) -> str | None:
    """The real name that `wanted` means: exactly, else in any case."""
    if written in names:
        return written
    return next((name for name in names if name.lower() == written.lower()), None)


# ── A database, or tables of DynamoDB's ──


def refuse_documents(mapping: DesignMapping) -> None:
    """Raises: SettingsError where the mapping declares tables of DynamoDB's, and the source is a database."""
    if mapping.documents:
        what = f"{mapping.name} declares old tables of DynamoDB's, and the source is a database"
        raise SettingsError(
            f"{what}; write source: {{dynamodb: {{tables: […]}}}} in the job, or take tables: out"
        )


Needed = TypeVar("Needed")


def of_kind(edge: object, kind: type[Needed]) -> Needed:
    """The edge of a source, as one that speaks SQL. Raises: SettingsError where it is another one."""
    if not isinstance(edge, kind):
        what = "this asks the source by SQL, and the old side of this job is tables of DynamoDB's"
        raise SettingsError(f"{what}; docs/documents.md says what runs on them")
    return edge
