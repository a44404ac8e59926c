"""Which texts the source takes for one (case, trailing spaces), asked of the source, and how wide its characters are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.facts import Alike

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
