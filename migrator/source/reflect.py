"""The source's schema as a mapping sees it: tables and views, columns with kinds, keys, in written names."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SAWarning
from sqlglot import exp

from migrator.model.errors import SettingsError
from migrator.model.facts import ForeignKey, SchemaFacts, TableFacts
from migrator.model.mapping import Mapping as DesignMapping
from migrator.model.mapping import NameRule
from migrator.source.connect import engine_at, engine_of
from migrator.source.engines.catalogue import Reflected
from migrator.source.sql.gate import SELECT, parsed, tokens_of
from migrator.source.sql.spelling import Speller, folded
from migrator.source.sql.statements import is_cte

# ── Names of tables and columns as a mapping writes them ──

_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_LETTERS = re.compile(r"\W+")


def snake_case(name: str) -> str:
    """`name` in lower case, words joined by '_': TrackId is track_id, HTTPServer http_server."""
    words = _NO_LETTERS.sub(" ", name).strip().replace(" ", "_")
    return _WORD_END.sub("_", words).lower() or name


def written_names(real: Iterable[str], rule: NameRule) -> dict[str, str]:
    """The written name of each real name, in the order given."""
    return {name: snake_case(name) if rule == "snake_case" else name for name in real}


def view_names(connection: Connection) -> set[str]:
    """The views of the default schema, by their real names."""
    inspector = sa.inspect(connection)
    has_both = engine_at(connection).schema.has_materialized_views
    materialized = inspector.get_materialized_view_names() if has_both else ()
    return {*inspector.get_view_names(), *materialized}


def clashes(written: dict[str, str]) -> list[str]:
    """One sentence for every written name that more than one real name has."""
    owners: dict[str, list[str]] = {}
    for real, name in written.items():
        owners.setdefault(name, []).append(real)
    return [
        f"{' and '.join(repr(real) for real in reals)} are all written {name}"
        for name, reals in owners.items()
        if len(reals) > 1
    ]


# ──
# Names of a mapping in its SQL, where only the source's own names are known: what to write instead of
# each.

Names = Mapping[str, str]
"""By the mapping's name the source's own."""


def statement_advice(sql: str, facts: SchemaFacts, *, refused: bool) -> str:
    """What to write instead of the mapping's names in a SELECT; '' where there are none.

    `refused`: whether the database refuses the statement. Where the source takes an unknown name in double quotes
    for a text (SQLite), these are looked for in any statement.
    """
    return _advice(sql, sql, facts, None, refused=refused)


def expression_advice(sql: str, table: TableFacts, facts: SchemaFacts, *, refused: bool) -> str:
    """As `statement_advice`, of an expression over a row of the table."""
    return _advice(sql, SELECT + sql, facts, table, refused=refused)


def _advice(sql: str, select: str, facts: SchemaFacts, table: TableFacts | None, *, refused: bool) -> str:
    dialect = facts.dialect
    if not refused and not engine_of(dialect).sql.takes_unknown_for_text:
        return ""
    try:
        parsed_select = parsed(select, tokens_of(select, dialect), dialect)
    except SettingsError:
        return ""
    named = _identifiers(parsed_select, facts, table)
    speller = Speller(sql, dialect)
    wrong = [(identifier.name, own) for identifier, own in named if refused or identifier.quoted]
    instead = {name: speller.name(own) for name, own in wrong}
    if not instead:
        return ""
    words = ", ".join(f"{own} for {name}" for name, own in instead.items())
    return f"SQL is in the source's own names (names: snake_case is for the mapping's alone); write {words}"


def _identifiers(
    select: exp.Expr, facts: SchemaFacts, table: TableFacts | None
) -> Iterable[tuple[exp.Identifier, str]]:
    """The identifiers that are names of the mapping and none of the source's, each with the source's own."""
    dialect, words = facts.dialect, engine_of(facts.dialect).sql
    by_name = {name.rpartition(".")[2]: facts.tables[name] for name in facts.tables}
    tables = {name: table_facts.real for name, table_facts in by_name.items()}
    nodes = [node for node in select.find_all(exp.Table) if isinstance(node.this, exp.Identifier)]
    nodes = [node for node in nodes if not is_cte(node, dialect)]
    read = [table] if table is not None else [_table_of(by_name, node.this) for node in nodes]
    columns = {
        column.name: column.real
        for table_read in read
        if table_read is not None
        for column in table_read.columns
    }
    own_names = _names_given(select)
    for node in nodes:
        if own := _own_name(node.this, tables, dialect, fold=words.tables_in_any_case):
            yield node.this, own
    for column in select.find_all(exp.Column):
        identifier = column.this
        if not isinstance(identifier, exp.Identifier) or identifier.name in own_names:
            continue
        if own := _own_name(identifier, columns, dialect, fold=words.columns_in_any_case):
            yield identifier, own


def _table_of(tables: Mapping[str, TableFacts], identifier: exp.Identifier) -> TableFacts | None:
    """The table by the mapping's name, else by the source's."""
    written = folded(tables, identifier)
    if written is not None:
        return tables[written]
    return next((table for table in tables.values() if folded([table.real], identifier)), None)


def _names_given(select: exp.Expr) -> set[str]:
    """Names that the statement itself gives to columns."""
    aliases = {alias.alias for alias in select.find_all(exp.Alias)}
    return aliases | {
        column.name for table_alias in select.find_all(exp.TableAlias) for column in table_alias.columns
    }


def _own_name(identifier: exp.Identifier, names: Names, dialect: str, *, fold: bool) -> str | None:
    """The source's name that is meant; None where the source itself knows it by what is written.

    `fold`: whether the source takes any case of a name for the same.
    """
    if any(_says(identifier, real, dialect, fold=fold) for real in names.values()):
        return None
    real_names = {**{real: real for real in names.values()}, **names}
    written = folded(real_names, identifier)
    return None if written is None else real_names[written]


def _says(identifier: exp.Identifier, real: str, dialect: str, *, fold: bool) -> bool:
    if fold:
        return identifier.name.lower() == real.lower()
    lower = engine_of(dialect).sql.folds_names and not identifier.quoted
    return (identifier.name.lower() if lower else identifier.name) == real


def reflect(connection: Connection, rule: NameRule, schemas: Sequence[str] = ()) -> SchemaFacts:
    """Tables and views of the default schema, and, as schema.table, those of `schemas` that exist.

    Raises: SettingsError with all names that `rule` writes alike.
    """
    schema = engine_at(connection).schema
    existing = tuple(sa.inspect(connection).get_schema_names()) if schema.has_schemas else ()
    with warnings.catch_warnings():
        # Types and indexes that SQLAlchemy does not know are `unknown` or left out; no warning is needed.
        warnings.simplefilter("ignore", SAWarning)
        read = [_Schema.of(schema.reflected(connection, None), rule, "")]
        read += [
            _Schema.of(schema.reflected(connection, name), rule, f"{name}.")
            for name in schemas
            if name in existing
        ]
    tables = (table for schema in read for table in schema.tables(read))
    by_name = {table.name: table for table in tables}
    left_out = {f"{one.prefix}{name}": why for one in read for name, why in one.reflected.left_out.items()}
    return SchemaFacts(
        connection.dialect.name, by_name, existing, left_out=left_out, loosely_typed=schema.loosely_typed
    )


# ── written names ──


@dataclass(frozen=True)
class _Names:
    """Written names of tables, and of columns by real table name."""

    tables: dict[str, str]
    columns: dict[str, dict[str, str]]

    @classmethod
    def of(cls, reflected: Reflected, rule: NameRule) -> _Names:
        tables = written_names(reflected.columns, rule)
        columns = {
            table: written_names((column.real for column in columns), rule)
            for table, columns in reflected.columns.items()
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
    """One schema's tables, and the prefix of their written names."""

    reflected: Reflected
    names: _Names
    prefix: str

    @classmethod
    def of(cls, reflected: Reflected, rule: NameRule, prefix: str) -> _Schema:
        return cls(reflected, _Names.of(reflected, rule), prefix)

    def tables(self, schemas: Sequence[_Schema]) -> Iterator[TableFacts]:
        for real, columns in self.reflected.columns.items():
            written = self.names.columns[real]
            yield TableFacts(
                name=f"{self.prefix}{self.names.tables[real]}",
                real=real,
                columns=tuple(replace(column, name=written[column.real]) for column in columns),
                primary_key=tuple(written[name] for name in self.reflected.primary_keys.get(real, ())),
                unique=tuple(
                    tuple(written[name] for name in key) for key in self.reflected.unique.get(real, ())
                ),
                foreign_keys=tuple(self._foreign_keys(real, schemas)),
                schema=self.reflected.schema,
                unique_conflicts=self.reflected.unique_conflicts.get(real, ()),
                doubts=tuple(
                    (tuple(written[name] for name in key), why)
                    for key, why in self.reflected.doubts.get(real, ())
                ),
            )

    def _foreign_keys(self, real: str, schemas: Sequence[_Schema]) -> Iterator[ForeignKey]:
        """Foreign keys to tables among the facts. On SQLite they may write the other table's names in any case."""
        for key in self.reflected.foreign_keys.get(real, ()):
            # PostgreSQL leaves out a schema on its search path; MySQL, whose default has no name here, its own.
            referred_schema = key["referred_schema"] or schemas[0].reflected.schema or self.reflected.schema
            other = (
                self
                if referred_schema == self.reflected.schema
                else next((s for s in schemas if s.reflected.schema == referred_schema), None)
            )
            table = _any_case(other.names.tables, key["referred_table"]) if other else None
            if other is None or table is None:
                continue
            ours = [_any_case(self.names.columns[real], name) for name in key["constrained_columns"]]
            theirs = [
                _any_case(other.names.columns[table], name)
                for name in key["referred_columns"] or other.reflected.primary_keys.get(table, [])
            ]
            if ours and len(ours) == len(theirs) and None not in ours + theirs:
                columns = tuple(self.names.columns[real][name] for name in ours if name)
                referred = tuple(other.names.columns[table][name] for name in theirs if name)
                yield ForeignKey(columns, f"{other.prefix}{other.names.tables[table]}", referred)


def _any_case(names: Mapping[str, str], written: str) -> str | None:
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
