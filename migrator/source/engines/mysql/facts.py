"""Schema facts of MariaDB and MySQL from their catalogue, and the kinds of their types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

from migrator.mapping.model.facts import Alike, Column, Kind
from migrator.runtime.values import replace
from migrator.source.engines import catalogue

KINDS = catalogue.Kinds(
    "migrator.source.engines.mysql", lambda _: Kind("unknown", instead="CAST({column} AS char)")
)
"""What each declared type holds."""
QUERIES = catalogue.Queries("migrator.source.engines.mysql")
_OF_MYSQL = {"VEC_ToText({column})": "VECTOR_TO_STRING({column})"}
"""MySQL's words for what MariaDB has under another name."""


def quoted(name: str) -> str:
    # Backticks, which mean a name in every sql_mode.
    return catalogue.quoted(name, "`")


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


# ── Texts with half a surrogate pair: utf8mb3, ucs2 and utf32 on MariaDB, ucs2 on MySQL ──

UCS2 = " character set ucs2"
"""The end of the declared type of a column in it."""


class HalfPairs(Struct, frozen=True):
    """A text with half surrogate pairs as a literal: MySQL accepts it in ucs2 alone. `digits`: of UTF-16, four a
    unit.
    """

    digits: str

    @classmethod
    def of(cls, text: str) -> HalfPairs | None:
        try:
            units = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogatepass")
        except UnicodeError:
            return None
        return cls(units.encode("utf-16-be", "surrogatepass").hex())


def of_ucs2(digits: str) -> str:
    """The text with surrogate pairs as two halves, as from our connections."""
    units = "".join(chr(int(digits[at : at + 4], 16)) for at in range(0, len(digits), 4))
    return units.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


# ── Tables of MySQL and MariaDB as schema facts ──
#
# Read from information_schema: SQLAlchemy's inspector omits the prefix of an index and MariaDB's JSON.

_PRIMARY = "PRIMARY"


# A name is in double quotes if the session's sql_mode has ANSI_QUOTES, as ours has.
_JSON_CHECK = re.compile(r"""json_valid\((?P<quote>[`"])(?P<name>.+)(?P=quote)\)""")


def reflected(connection: Connection, schema: str | None) -> catalogue.Reflected:
    unreadable = list(catalogue.the_users(connection.scalars(QUERIES["unreadable"], {"schema": schema})))
    columns_by_table = {
        name: found for name, found in columns(connection, schema).items() if name not in unreadable
    }
    indexes = _grouped(connection, QUERIES["unique_indexes"], schema)
    # A unique prefix makes the whole column unique.
    keys = {
        table: [part.column_name for part in by_name[_PRIMARY]]
        for table, by_name in indexes.items()
        if _PRIMARY in by_name
    }
    unique = {table: _unique_columns(by_name) for table, by_name in indexes.items()}
    return catalogue.Reflected(
        schema,
        {name: columns_by_table[name] for name in catalogue.the_users(columns_by_table)},
        keys,
        unique,
        {
            table: [_foreign_key(name, parts) for name, parts in by_name.items()]
            for table, by_name in _grouped(connection, QUERIES["foreign_keys"], schema).items()
        },
        doubts={
            row.table_name: [
                (tuple(key), f"an engine {row.engine} does not keep its keys unique")
                for key in [keys.get(row.table_name, []), *unique.get(row.table_name, [])]
                if key
            ]
            for row in connection.execute(QUERIES["unkept"], {"schema": schema})
        },
        left_out=dict.fromkeys(unreadable, catalogue.UNREADABLE)
        | dict.fromkeys(
            connection.scalars(QUERIES["broken_views"], {"schema": schema}),
            "a view that cannot be read: its tables, columns or definer no longer exist",
        ),
    )


def columns(connection: Connection, schema: str | None) -> dict[str, list[Column]]:
    json = _json_columns(connection, schema)
    others = {} if getattr(connection.dialect, "is_mariadb", False) else _OF_MYSQL
    by_table: dict[str, list[Column]] = {}
    rows = connection.execute(QUERIES["columns"], {"schema": schema}).all()
    alike = _alike(connection, {row.collation for row in rows if row.collation is not None})
    for row in rows:
        is_json = (row.table_name, row.name) in json
        kind = KINDS.kind_of("json" if is_json else row.declared)
        kind = replace(kind, instead=others.get(kind.instead, kind.instead))
        # Values of an ENUM or a SET are spelled as they are declared.
        listed = row.declared.startswith(("enum(", "set("))
        column = Column(
            row.name,
            row.name,
            kind,
            bool(row.nullable),
            row.declared + (UCS2 if (row.collation or "").startswith("ucs2_") else ""),
            alike=() if listed else alike.get(row.collation, ()),
            widest=_widest(row.collation),
            default=bool(row.has_default),
            generated=bool(row.computed),
            hidden=bool(row.hidden),
            words=(
                *([row.declared] if listed else []),
                *([f"= {row.expression}"] if row.computed and row.expression else []),
            ),
        )
        by_table.setdefault(row.table_name, []).append(column)
    return by_table


def _alike(connection: Connection, collations: Iterable[str]) -> Mapping[str, tuple[Alike, ...]]:
    sets = {row[0]: row[1] for row in connection.execute(QUERIES["character_sets"])}
    queries = {}
    for name in sorted(collations):
        # MariaDB lists its newer collations without the character set that their names begin with.
        characters = sets.get(name) or name.partition("_")[0]
        a, large, spaced = (
            f"CONVERT('{text}' USING {characters}) COLLATE {name}" for text in ("a", "A", "a ")
        )
        queries[name] = f"SELECT {a} = {large}, {a} = {spaced}"
    return catalogue.alike_by(connection, queries)


_OF_FOUR_BYTES = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})


def _widest(collation: str | None) -> int:
    """Maximum UTF-8 bytes of a character: most character sets end at U+FFFF."""
    characters = (collation or "").partition("_")[0]
    return {"ascii": 1}.get(characters, 4 if characters in _OF_FOUR_BYTES else 3)


def _json_columns(connection: Connection, schema: str | None) -> set[tuple[str, str]]:
    """MariaDB's JSON is LONGTEXT with a check; MySQL has a type for it."""
    if not getattr(connection.dialect, "is_mariadb", False):
        return set()
    pairs = set()
    for row in connection.execute(QUERIES["checks"], {"schema": schema}):
        if check := _JSON_CHECK.fullmatch(row.clause):
            quote = check["quote"]
            pairs.add((row.table_name, check["name"].replace(2 * quote, quote)))
    return pairs


def _unique_columns(indexes: Mapping[str, list[sa.Row[Any]]]) -> list[tuple[str, ...]]:
    """Unique indexes of whole columns only; an expression has no column."""
    whole = (
        tuple(part.column_name for part in parts)
        for name, parts in indexes.items()
        if name != _PRIMARY and all(part.column_name is not None and part.prefix is None for part in parts)
    )
    return list(dict.fromkeys(whole))


def _foreign_key(name: str, parts: list[sa.Row[Any]]) -> ReflectedForeignKeyConstraint:
    return {
        "name": name,
        "constrained_columns": [part.column_name for part in parts],
        "referred_schema": parts[0].referred_schema,
        "referred_table": parts[0].referred,
        "referred_columns": [part.referred_column for part in parts],
        "options": {},
        "comment": None,
    }


def _grouped(
    connection: Connection, statement: sa.TextClause, schema: str | None
) -> dict[str, dict[str, list[sa.Row[Any]]]]:
    by_table: dict[str, dict[str, list[sa.Row[Any]]]] = {}
    for row in connection.execute(statement, {"schema": schema}):
        by_table.setdefault(row.table_name, {}).setdefault(row.name, []).append(row)
    return by_table


# ── Statements recorded by the server ──

# A digest ends before the first token that does not fit, and MariaDB does not report it: two bytes a token, four and its
# letters a name of at most 64. A digest closer to the limit than that may be truncated.
_DIGEST = (
    "CONCAT(DIGEST_TEXT, CASE WHEN LENGTH(DIGEST_TEXT) + (LENGTH(DIGEST_TEXT) - LENGTH(REPLACE(DIGEST_TEXT, '`', ''))) / 2"
    " > LEAST(@@max_digest_length, @@performance_schema_max_digest_length) - 68 THEN '...' ELSE '' END)"
)
RECORDED = catalogue.Recorded(
    select=f"SELECT {_DIGEST}, COUNT_STAR FROM performance_schema.events_statements_summary_by_digest"
    " WHERE SCHEMA_NAME = DATABASE() AND DIGEST_TEXT IS NOT NULL",
    hidden="",
    advice="set performance_schema=ON in the server's configuration and restart it; statements since then are recorded",
    grant="GRANT SELECT ON performance_schema.* TO the user of the source",
)
