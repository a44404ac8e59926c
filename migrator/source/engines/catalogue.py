"""Catalogue of a schema: tables and columns by real names, collations, foreign keys, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint
from sqlalchemy.exc import DBAPIError

from migrator.model.facts import Alike, Column, UniqueConflict

# ── What the database itself says about the tables of one schema, by their real names ──

_NOT_THE_USERS = ("sqlite_", "migrator_")


@dataclass(frozen=True)
class Reflected:
    """What the database says, by real table name."""

    schema: str | None
    columns: dict[str, list[Column]]
    primary_keys: dict[str, list[str]]
    unique: dict[str, list[tuple[str, ...]]]
    foreign_keys: dict[str, list[ReflectedForeignKeyConstraint]]
    meetings: dict[str, tuple[UniqueConflict, ...]] = field(default_factory=dict)
    doubts: dict[str, list[tuple[tuple[str, ...], str]]] = field(default_factory=dict)
    """Per table, keys among those above that do not hold for all of its rows, and why."""


def the_users(names: Iterable[str]) -> Iterator[str]:
    """The names in order, without the system's and ours."""
    return (name for name in sorted(names) if not name.lower().startswith(_NOT_THE_USERS))


def primary_keys_of(inspector: Inspector, schema: str | None) -> dict[str, list[str]]:
    """By real table name, the columns of each primary key."""
    found = inspector.get_multi_pk_constraint(schema=schema)
    return {name: list(key["constrained_columns"]) for (_, name), key in found.items() if key}


def foreign_keys_of(
    inspector: Inspector, schema: str | None
) -> dict[str, list[ReflectedForeignKeyConstraint]]:
    """By real table name, its foreign keys."""
    return {name: list(keys) for (_, name), keys in inspector.get_multi_foreign_keys(schema=schema).items()}


# ──
# Which texts the source takes for one (case, trailing spaces), asked of the source, and how wide its
# characters are.

_ALIKE: tuple[Alike, ...] = ("case", "trailing spaces")
_OF_FOUR_BYTES = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_CHARACTER_SETS = sa.text("SELECT COLLATION_NAME, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
_NONDETERMINISTIC = sa.text("""
    SELECT c.oid, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname) AS name
    FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
    WHERE NOT c.collisdeterministic AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
""")


def on_mysql(connection: Connection, names: Iterable[str]) -> Mapping[str, tuple[Alike, ...]]:
    """By collation, in what two texts may differ that are one by it."""
    sets = {row[0]: row[1] for row in connection.execute(_CHARACTER_SETS)}
    found = {}
    for name in sorted(set(names)):
        # MariaDB lists its newer collations without the character set that their names begin with.
        characters = sets.get(name) or name.partition("_")[0]
        a, large, spaced = (
            f"CONVERT('{text}' USING {characters}) COLLATE {name}" for text in ("a", "A", "a ")
        )
        found[name] = _alike(connection.exec_driver_sql(f"SELECT {a} = {large}, {a} = {spaced}").one())
    return found


def on_postgresql(connection: Connection) -> Mapping[int, tuple[Alike, ...]]:
    """By oid, the same of each collation that is not deterministic; by all others each text is one for itself."""
    found = {}
    for row in connection.execute(_NONDETERMINISTIC).all():
        asked = f"SELECT 'a' = 'A' COLLATE {row.name}, 'a' = 'a ' COLLATE {row.name}".replace("%", "%%")
        found[row.oid] = _alike(connection.exec_driver_sql(asked).one())
    return found


def on_sqlite(connection: Connection, table: str, columns: Sequence[str]) -> Mapping[str, tuple[Alike, ...]]:
    """By column, the same; none where the table uses a collation that only the service's program knows."""
    if not columns:
        return {}
    # A column passes its collation on to the rows that stand below it in a UNION ALL.
    quoted = [f'"{name.replace(chr(34), 2 * chr(34))}"' for name in columns]
    named = ", ".join(f"{name} AS c{n}" for n, name in enumerate(quoted))
    asked = ", ".join(f"c{n} = 'A', c{n} = 'a '" for n in range(len(quoted)))
    letters = ", ".join("'a'" for _ in quoted)
    home = f'"{table.replace(chr(34), 2 * chr(34))}"'
    statement = f"SELECT {asked} FROM (SELECT {named} FROM {home} WHERE 0 UNION ALL SELECT {letters})"
    try:
        answers = connection.exec_driver_sql(statement).one()
    except DBAPIError:
        return {}
    return {name: _alike(answers[2 * n : 2 * n + 2]) for n, name in enumerate(columns)}


def _alike(answers: Iterable[object]) -> tuple[Alike, ...]:
    return tuple(name for name, is_one in zip(_ALIKE, answers, strict=True) if is_one)


def widest_on_mysql(collation: str | None) -> int:
    """The bytes in UTF-8 that a character of a column takes at most: all but a few sets hold nothing past U+FFFF."""
    characters = (collation or "").partition("_")[0]
    return {"ascii": 1}.get(characters, 4 if characters in _OF_FOUR_BYTES else 3)


# ──
# How the tables of a database are linked: foreign keys that act by themselves, partitions, tables that
# inherit.

ACTS = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
"""Actions of foreign keys that change rows."""


@dataclass(frozen=True, slots=True)
class Place:
    """A table by its schema and name; `schema` None where the source has no schemas."""

    schema: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Below:
    """A foreign key by which the database itself changes rows of `child`. `columns`: (child's, own) real names."""

    child: Place
    columns: tuple[tuple[str, str], ...]
    on_delete: bool
    on_update: bool


Pairs = Sequence[tuple[Place, Place]]
"""(parent, child)."""


@dataclass(frozen=True, slots=True)
class Links:
    """`acting`: (parent, foreign key) of every one that changes rows by itself. `heirs`: partitions and tables that
    inherit. `views`: with what they read. `emptied`: what TRUNCATE … CASCADE of the first takes along."""

    acting: Sequence[tuple[Place, Below]]
    heirs: Pairs = ()
    views: Pairs = ()
    emptied: Pairs = ()
