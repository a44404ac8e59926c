"""The source's schema as a mapping sees it: tables and views, columns with kinds, keys, in written names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect, Inspector
from sqlalchemy.engine.interfaces import ReflectedColumn, ReflectedForeignKeyConstraint
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.exc import SAWarning

from migrator.errors import SettingsError
from migrator.facts import Column, ForeignKey, SchemaFacts, TableFacts
from migrator.source import mysql_facts, postgresql_facts, sqlite_facts
from migrator.source.kinds import kind_of
from migrator.source.names import NameRule, clashes, written_names

_NOT_THE_USERS = ("sqlite_", "migrator_")


def reflect(connection: Connection, rule: NameRule) -> SchemaFacts:
    """All tables and views of the default schema; without ours, the system's and partitions.

    Raises: SettingsError naming every two names that `rule` writes alike.
    """
    with warnings.catch_warnings():
        # Types and indexes that SQLAlchemy has no word for are `unknown` or left out; no need to warn.
        warnings.simplefilter("ignore", SAWarning)
        reflected = _reflected(connection)
    names = _Names.of(reflected, rule)
    tables = (_table_facts(reflected, name, names) for name in reflected.columns)
    return SchemaFacts(connection.dialect.name, {table.name: table for table in tables})


@dataclass(frozen=True)
class _Reflected:
    """What the database says, by real table name."""

    schema: str | None
    columns: dict[str, list[Column]]
    primary_keys: dict[str, list[str]]
    unique: dict[str, list[tuple[str, ...]]]
    foreign_keys: dict[str, list[ReflectedForeignKeyConstraint]]


def _reflected(connection: Connection) -> _Reflected:
    readers = {"sqlite": _of_sqlite, "postgresql": _of_postgresql, "mysql": _of_mysql}
    return readers[connection.dialect.name](connection)


def _of_postgresql(connection: Connection) -> _Reflected:
    inspector, dialect = sa.inspect(connection), connection.dialect
    schema = inspector.default_schema_name
    reflected = inspector.get_multi_columns(schema=schema, kind=ObjectKind.ANY)
    left_out = postgresql_facts.partitions(connection, schema)
    domains = postgresql_facts.domain_bases(connection, schema)
    columns = {
        name: [
            _postgresql_column(one, dialect, domains.get((name, one["name"])))
            for one in reflected[(schema, name)]
        ]
        for name in _the_users(name for _, name in reflected)
        if name not in left_out
    }
    keys = _primary_keys(inspector, schema)
    unique = postgresql_facts.unique_columns(inspector, schema)
    return _Reflected(schema, columns, keys, unique, _foreign_keys_of(inspector, schema))


def _postgresql_column(reflected: ReflectedColumn, dialect: Dialect, base: str | None) -> Column:
    """The column; `base` is the type that its domain, if it has one, is made of."""
    name, type_ = reflected["name"], reflected["type"]
    kind = kind_of(base, "postgresql") if base else postgresql_facts.kind_of_type(type_, dialect)
    return Column(name, name, kind, reflected["nullable"], postgresql_facts.declared_type(type_, dialect))


def _of_sqlite(connection: Connection) -> _Reflected:
    inspector = sa.inspect(connection)
    views = set(inspector.get_view_names()) - sqlite_facts.broken_views(connection)
    names = list(_the_users([*inspector.get_table_names(), *views]))
    keys = _primary_keys(inspector, None)
    columns = {name: list(_sqlite_columns(connection, inspector, name, keys.get(name, []))) for name in names}
    unique = {name: sqlite_facts.unique_columns(connection, name) for name in names}
    return _Reflected(None, columns, keys, unique, _foreign_keys_of(inspector, None))


def _sqlite_columns(
    connection: Connection, inspector: Inspector, table: str, key: Sequence[str]
) -> Iterator[Column]:
    """The columns with the types that the table's author wrote; SQLAlchemy knows fewer names of them."""
    declared = sqlite_facts.declared_types(connection, table)
    for reflected in inspector.get_columns(table):
        name = reflected["name"]
        # INTEGER PRIMARY KEY is the rowid, which is never NULL whatever the declaration says.
        rowid = [name] == list(key) and declared[name].upper() == "INTEGER"
        nullable = reflected["nullable"] and not rowid
        yield Column(name, name, kind_of(declared[name], "sqlite"), nullable, declared[name])


def _of_mysql(connection: Connection) -> _Reflected:
    found = mysql_facts.columns(connection)
    columns = {name: found[name] for name in _the_users(found)}
    unique = mysql_facts.unique_columns(connection)
    return _Reflected(
        None, columns, mysql_facts.primary_keys(connection), unique, mysql_facts.foreign_keys(connection)
    )


def _the_users(names: Iterable[str]) -> Iterator[str]:
    """The names in order, without the system's and ours."""
    return (name for name in sorted(names) if not name.lower().startswith(_NOT_THE_USERS))


def _primary_keys(inspector: Inspector, schema: str | None) -> dict[str, list[str]]:
    found = inspector.get_multi_pk_constraint(schema=schema)
    return {name: list(key["constrained_columns"]) for (_, name), key in found.items() if key}


def _foreign_keys_of(
    inspector: Inspector, schema: str | None
) -> dict[str, list[ReflectedForeignKeyConstraint]]:
    return {name: list(keys) for (_, name), keys in inspector.get_multi_foreign_keys(schema=schema).items()}


# ── written names ──


@dataclass(frozen=True)
class _Names:
    """Written names of tables, and of columns by real table name."""

    tables: dict[str, str]
    columns: dict[str, dict[str, str]]

    @classmethod
    def of(cls, reflected: _Reflected, rule: NameRule) -> _Names:
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


def _table_facts(reflected: _Reflected, real: str, names: _Names) -> TableFacts:
    written = names.columns[real]
    columns = reflected.columns[real]
    return TableFacts(
        name=names.tables[real],
        real=real,
        columns=tuple(
            Column(written[one.real], one.real, one.kind, one.nullable, one.declared) for one in columns
        ),
        primary_key=tuple(written[name] for name in reflected.primary_keys.get(real, ())),
        unique=tuple(tuple(written[name] for name in key) for key in reflected.unique.get(real, ())),
        foreign_keys=tuple(_foreign_keys(reflected, real, names)),
        schema=reflected.schema,
    )


def _foreign_keys(reflected: _Reflected, real: str, names: _Names) -> Iterator[ForeignKey]:
    """Foreign keys to tables among the facts. SQLite lets one write the other table's names in any case."""
    for key in reflected.foreign_keys.get(real, ()):
        table = _any_case(names.tables, key["referred_table"])
        if table is None or key["referred_schema"] not in (None, reflected.schema):
            continue
        ours = [_any_case(names.columns[real], name) for name in key["constrained_columns"]]
        theirs = [
            _any_case(names.columns[table], name)
            for name in key["referred_columns"] or reflected.primary_keys.get(table, [])
        ]
        if ours and len(ours) == len(theirs) and None not in ours + theirs:
            columns = tuple(names.columns[real][name] for name in ours if name)
            referred = tuple(names.columns[table][name] for name in theirs if name)
            yield ForeignKey(columns, names.tables[table], referred)


def _any_case(names: Mapping[str, str], wanted: str) -> str | None:
    """The real name that `wanted` means: exactly, else in any case."""
    if wanted in names:
        return wanted
    return next((name for name in names if name.lower() == wanted.lower()), None)
