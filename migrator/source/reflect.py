"""The source's schema as a mapping sees it: tables and views, columns with kinds, keys, in written names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SAWarning

from migrator.model.errors import SettingsError
from migrator.model.facts import ForeignKey, SchemaFacts, TableFacts
from migrator.source.engines.catalogue import Reflected
from migrator.source.engines.table import engine_at
from migrator.source.names import NameRule, clashes, written_names


def reflect(connection: Connection, rule: NameRule, schemas: Sequence[str] = ()) -> SchemaFacts:
    """Tables and views of the default schema, and, as schema.table, those of `schemas` that there are.

    Raises: SettingsError naming every two names that `rule` writes alike.
    """
    schema = engine_at(connection).schema
    known = tuple(sa.inspect(connection).get_schema_names()) if schema.has_schemas else ()
    with warnings.catch_warnings():
        # Types and indexes that SQLAlchemy has no word for are `unknown` or left out; no need to warn.
        warnings.simplefilter("ignore", SAWarning)
        read = [_Schema.of(schema.reflected(connection, None), rule, "")]
        read += [
            _Schema.of(schema.reflected(connection, name), rule, f"{name}.")
            for name in schemas
            if name in known
        ]
    tables = (table for schema in read for table in schema.tables(read))
    found = {table.name: table for table in tables}
    return SchemaFacts(connection.dialect.name, found, known, loosely_typed=schema.loosely_typed)


# ── written names ──


@dataclass(frozen=True)
class _Names:
    """Written names of tables, and of columns by real table name."""

    tables: dict[str, str]
    columns: dict[str, dict[str, str]]

    @classmethod
    def of(cls, found: Reflected, rule: NameRule) -> _Names:
        tables = written_names(found.columns, rule)
        columns = {
            table: written_names((column.real for column in columns), rule)
            for table, columns in found.columns.items()
        }
        wrong = [f"tables {what}" for what in clashes(tables)]
        wrong += [
            f"table {table}: columns {what}" for table, names in columns.items() for what in clashes(names)
        ]
        if wrong:
            advice = "write source: {names: exact} in the mapping"
            raise SettingsError("\n".join(f"source: {what} by names: snake_case; {advice}" for what in wrong))
        return cls(tables, columns)


@dataclass(frozen=True)
class _Schema:
    """One schema's tables, and what stands before their written names."""

    found: Reflected
    names: _Names
    prefix: str

    @classmethod
    def of(cls, found: Reflected, rule: NameRule, prefix: str) -> _Schema:
        return cls(found, _Names.of(found, rule), prefix)

    def tables(self, schemas: Sequence[_Schema]) -> Iterator[TableFacts]:
        for real, columns in self.found.columns.items():
            written = self.names.columns[real]
            yield TableFacts(
                name=f"{self.prefix}{self.names.tables[real]}",
                real=real,
                columns=tuple(replace(one, name=written[one.real]) for one in columns),
                primary_key=tuple(written[name] for name in self.found.primary_keys.get(real, ())),
                unique=tuple(tuple(written[name] for name in key) for key in self.found.unique.get(real, ())),
                foreign_keys=tuple(self._foreign_keys(real, schemas)),
                schema=self.found.schema,
                meetings=self.found.meetings.get(real, ()),
                doubts=tuple(
                    (tuple(written[name] for name in key), why)
                    for key, why in self.found.doubts.get(real, ())
                ),
            )

    def _foreign_keys(self, real: str, schemas: Sequence[_Schema]) -> Iterator[ForeignKey]:
        """Foreign keys to tables among the facts. SQLite lets one write the other table's names in any case."""
        for key in self.found.foreign_keys.get(real, ()):
            # PostgreSQL leaves out a schema on its search path; MySQL, whose default has no name here, its own.
            meant = key["referred_schema"] or schemas[0].found.schema or self.found.schema
            other = (
                self
                if meant == self.found.schema
                else next((s for s in schemas if s.found.schema == meant), None)
            )
            table = _any_case(other.names.tables, key["referred_table"]) if other else None
            if other is None or table is None:
                continue
            ours = [_any_case(self.names.columns[real], name) for name in key["constrained_columns"]]
            theirs = [
                _any_case(other.names.columns[table], name)
                for name in key["referred_columns"] or other.found.primary_keys.get(table, [])
            ]
            if ours and len(ours) == len(theirs) and None not in ours + theirs:
                columns = tuple(self.names.columns[real][name] for name in ours if name)
                referred = tuple(other.names.columns[table][name] for name in theirs if name)
                yield ForeignKey(columns, f"{other.prefix}{other.names.tables[table]}", referred)


def _any_case(names: Mapping[str, str], wanted: str) -> str | None:
    """The real name that `wanted` means: exactly, else in any case."""
    if wanted in names:
        return wanted
    return next((name for name in names if name.lower() == wanted.lower()), None)
