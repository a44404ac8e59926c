"""The source's schema as a mapping sees it: tables and views, columns with kinds, keys, in written names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.exc import SAWarning
from sqlalchemy.types import TypeEngine

from migrator.errors import SettingsError
from migrator.model import Column, ForeignKey, Kind, SchemaFacts, TableFacts
from migrator.source.kinds import kind_of
from migrator.source.names import NameRule, clashes, written_names
from migrator.source.sqlite_facts import declared_types, unique_columns

_NOT_THE_USERS = ("sqlite_", "migrator_")

_PARTITIONS = sa.text(
    "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relispartition AND n.nspname = :schema"
)


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
    foreign_keys: dict[str, list[Mapping[str, Any]]]


def _reflected(connection: Connection) -> _Reflected:
    inspector = sa.inspect(connection)
    sqlite = connection.dialect.name == "sqlite"
    schema = None if sqlite else inspector.default_schema_name
    found = inspector.get_multi_columns(schema=schema, kind=ObjectKind.ANY)
    left_out = set() if sqlite else set(connection.scalars(_PARTITIONS, {"schema": schema}))
    names = [name for _, name in sorted(found, key=lambda key: key[1]) if _is_the_users(name, left_out)]
    keys = {name: key for (_, name), key in inspector.get_multi_pk_constraint(schema=schema).items()}
    references = {name: ref for (_, name), ref in inspector.get_multi_foreign_keys(schema=schema).items()}
    primary_keys = {name: list(keys[name]["constrained_columns"] if name in keys else ()) for name in names}
    columns = {name: [_column(one, connection) for one in found[(schema, name)]] for name in names}
    if sqlite:
        columns = {
            name: _sqlite_columns(connection, name, columns[name], primary_keys[name]) for name in names
        }
        unique = {name: unique_columns(connection, name) for name in names}
    else:
        unique = _unique(inspector, schema)
    return _Reflected(
        schema, columns, primary_keys, unique, {name: list(references.get(name, ())) for name in names}
    )


def _is_the_users(name: str, left_out: set[str]) -> bool:
    return name not in left_out and not name.lower().startswith(_NOT_THE_USERS)


def _column(reflected: Mapping[str, Any], connection: Connection) -> Column:
    declared = _declared(reflected["type"], connection)
    kind = _postgresql_kind(reflected["type"], declared, connection)
    return Column(reflected["name"], reflected["name"], kind, bool(reflected["nullable"]), declared)


def _declared(type_: TypeEngine[Any], connection: Connection) -> str:
    return "" if isinstance(type_, sa.types.NullType) else str(type_.compile(connection.dialect))


def _postgresql_kind(type_: TypeEngine[Any], declared: str, connection: Connection) -> Kind:
    """An enum is text, a domain what it is made of, everything else what its name says."""
    if isinstance(type_, sa.Enum):
        return Kind("text")
    inner = getattr(type_, "data_type", None)
    if isinstance(inner, TypeEngine):
        return _postgresql_kind(inner, _declared(inner, connection), connection)
    return kind_of(declared, connection.dialect.name)


def _sqlite_columns(
    connection: Connection, table: str, columns: Iterable[Column], key: Sequence[str]
) -> list[Column]:
    """The columns with the types that the table's author wrote; SQLAlchemy knows fewer names of them."""
    declared = declared_types(connection, table)
    found = []
    for column in columns:
        written = declared.get(column.real, "")
        # INTEGER PRIMARY KEY is the rowid, which is never NULL whatever the declaration says.
        rowid = [column.real] == list(key) and written.upper() == "INTEGER"
        nullable = column.nullable and not rowid
        found.append(Column(column.name, column.real, kind_of(written, "sqlite"), nullable, written))
    return found


def _unique(inspector: Inspector, schema: str | None) -> dict[str, list[tuple[str, ...]]]:
    """Columns of unique constraints and of unique indexes that hold for every row and name columns only."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for (_, table), constraints in inspector.get_multi_unique_constraints(schema=schema).items():
        for constraint in constraints:
            found.setdefault(table, {})[tuple(constraint["column_names"])] = None
    for (_, table), indexes in inspector.get_multi_indexes(schema=schema, kind=ObjectKind.ANY).items():
        for index in indexes:
            names = index["column_names"]
            partial = "postgresql_where" in index.get("dialect_options", {})
            if index["unique"] and not partial and not index.get("expressions"):
                found.setdefault(table, {})[tuple(name for name in names if name)] = None
    return {table: list(columns) for table, columns in found.items()}


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
        primary_key=tuple(written[name] for name in reflected.primary_keys[real]),
        unique=tuple(tuple(written[name] for name in key) for key in reflected.unique.get(real, ())),
        foreign_keys=tuple(_foreign_keys(reflected, real, names)),
        schema=reflected.schema,
    )


def _foreign_keys(reflected: _Reflected, real: str, names: _Names) -> Iterator[ForeignKey]:
    """Foreign keys to tables among the facts. SQLite lets one write the other table's names in any case."""
    for key in reflected.foreign_keys[real]:
        table = _any_case(names.tables, key["referred_table"])
        if table is None or key["referred_schema"] not in (None, reflected.schema):
            continue
        ours = [_any_case(names.columns[real], name) for name in key["constrained_columns"]]
        theirs = [_any_case(names.columns[table], name) for name in key["referred_columns"]]
        if ours and len(ours) == len(theirs) and None not in ours + theirs:
            columns = tuple(names.columns[real][name] for name in ours if name)
            referred = tuple(names.columns[table][name] for name in theirs if name)
            yield ForeignKey(columns, names.tables[table], referred)


def _any_case(names: Mapping[str, str], wanted: str) -> str | None:
    """The real name that `wanted` means: exactly, else in any case."""
    if wanted in names:
        return wanted
    return next((name for name in names if name.lower() == wanted.lower()), None)
