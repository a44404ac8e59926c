"""What the database itself says about the tables of one schema, by their real names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint
from sqlalchemy.exc import SAWarning

from migrator.facts import Column, Meeting
from migrator.source import collations, mysql_facts, postgresql_facts, sqlite_facts
from migrator.source.kinds import kind_of
from migrator.source.sqlite_meetings import meetings

_NOT_THE_USERS = ("sqlite_", "migrator_")


@dataclass(frozen=True)
class Reflected:
    """What the database says, by real table name."""

    schema: str | None
    columns: dict[str, list[Column]]
    primary_keys: dict[str, list[str]]
    unique: dict[str, list[tuple[str, ...]]]
    foreign_keys: dict[str, list[ReflectedForeignKeyConstraint]]
    meetings: dict[str, tuple[Meeting, ...]] = field(default_factory=dict)
    doubts: dict[str, list[tuple[tuple[str, ...], str]]] = field(default_factory=dict)
    """Per table, keys among those above that do not hold for all of its rows, and why."""


def reflected(connection: Connection, schema: str | None = None) -> Reflected:
    """Tables and views of a schema (None: the default one), by real names; without ours, the system's and partitions."""
    readers = {"sqlite": _of_sqlite, "postgresql": _of_postgresql, "mysql": _of_mysql}
    with warnings.catch_warnings():
        # Types and indexes that SQLAlchemy has no word for are `unknown` or left out; no need to warn.
        warnings.simplefilter("ignore", SAWarning)
        return readers[connection.dialect.name](connection, schema)


def schema_names(connection: Connection) -> tuple[str, ...]:
    """The schemas that the source has beside each other; SQLite has one, without a name."""
    if connection.dialect.name == "sqlite":
        return ()
    return tuple(sa.inspect(connection).get_schema_names())


def _of_postgresql(connection: Connection, schema: str | None) -> Reflected:
    inspector = sa.inspect(connection)
    schema = schema or inspector.default_schema_name
    found = postgresql_facts.columns(connection, schema)
    keys = _primary_keys(inspector, schema)
    unique = postgresql_facts.unique_columns(inspector, schema)
    columns = {name: found[name] for name in _the_users(found)}
    doubts = postgresql_facts.doubts(connection, schema)
    return Reflected(schema, columns, keys, unique, _foreign_keys_of(inspector, schema), doubts=doubts)


def _of_sqlite(connection: Connection, _: str | None) -> Reflected:
    inspector = sa.inspect(connection)
    views = set(inspector.get_view_names()) - sqlite_facts.broken_views(connection)
    names = list(_the_users([*inspector.get_table_names(), *views]))
    keys = _primary_keys(inspector, None)
    columns = {name: list(_sqlite_columns(connection, inspector, name, keys.get(name, []))) for name in names}
    unique = {name: sqlite_facts.unique_columns(connection, name) for name in names}
    met = {name: meetings(connection, name) for name in names}
    return Reflected(None, columns, keys, unique, _foreign_keys_of(inspector, None), met)


def _sqlite_columns(
    connection: Connection, inspector: Inspector, table: str, key: Sequence[str]
) -> Iterator[Column]:
    """The columns with the types that the table's author wrote; SQLAlchemy knows fewer names of them."""
    declared = sqlite_facts.declared_types(connection, table)
    columns = inspector.get_columns(table)
    alike = collations.on_sqlite(connection, table, [reflected["name"] for reflected in columns])
    for reflected in columns:
        name = reflected["name"]
        # INTEGER PRIMARY KEY is the rowid, which is never NULL whatever the declaration says.
        rowid = [name] == list(key) and declared[name].upper() == "INTEGER"
        nullable = reflected["nullable"] and not rowid
        kind = kind_of(declared[name], "sqlite")
        yield Column(name, name, kind, nullable, declared[name], alike=alike.get(name, ()))


def _of_mysql(connection: Connection, schema: str | None) -> Reflected:
    found = mysql_facts.columns(connection, schema)
    keys = mysql_facts.primary_keys(connection, schema)
    unique = mysql_facts.unique_columns(connection, schema)
    return Reflected(
        schema,
        {name: found[name] for name in _the_users(found)},
        keys,
        unique,
        mysql_facts.foreign_keys(connection, schema),
        doubts={
            table: [(tuple(key), why) for key in [keys.get(table, []), *unique.get(table, [])] if key]
            for table, why in mysql_facts.unkept(connection, schema).items()
        },
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
