"""The adapter's rules for MariaDB and MySQL: a service's statements, connections and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Column
from migrator.source.engines.base import Outcomes, Sessions, Statements, Typed
from migrator.source.engines.catalogue import ACTS, Below, Links, Place
from migrator.source.engines.mysql.triggers import declared_word
from migrator.source.engines.shared import COMMON_QUOTES

_FOUND_ROWS = 2
"""CLIENT_FOUND_ROWS of the protocol. Source: MySQL Internals, "Capabilities Flags"."""
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def _counts_found(driver: Any) -> bool:
    """Whether CLIENT_FOUND_ROWS is set: SQLAlchemy sets it on every driver; PyMySQL and similar ones show their flags."""
    flags = getattr(driver, "client_flag", getattr(driver, "_client_flag", _FOUND_ROWS))
    return not isinstance(flags, int) or bool(flags & _FOUND_ROWS)


# ── values ──


def _typed(column: Column, value: Any) -> Typed:
    word, declared = declared_word(column), column.declared.lower()
    sized = "".join(re.findall(r"\([\d, ]+\)", declared)[:1])
    casts = {
        **dict.fromkeys(_INTEGERS, "UNSIGNED" if "unsigned" in declared else "SIGNED"),
        **dict.fromkeys(_BYTES, "BINARY"),
        "decimal": f"DECIMAL{sized}",
        "date": "DATE",
        "time": f"TIME{sized}",
        "datetime": f"DATETIME{sized}",
        "timestamp": f"DATETIME{sized}",
    }
    if word == "float":
        return "(CAST(", value, " AS FLOAT) + 0e0)"
    if word == "double":
        return "(", value, " + 0e0)"
    if word == "bit":
        return "(", value, " + 0)"
    return "CAST(", value, f" AS {casts.get(word, 'CHAR CHARACTER SET utf8mb4')})"


def _met(alias: str, columns: Sequence[str]) -> list[str]:
    texts = ", ".join(f"QUOTE(CAST({alias}.{name} AS BINARY))" for name in columns)
    return ["0", f"SHA2(CONCAT_WS(',', {texts}), 256)"]


# ── tables ──


def _links(connection: Connection, schemas: Iterable[str | None]) -> Links:
    """Links of these databases, and of others whose tables are parents of theirs."""
    return Links(_acting(sa.inspect(connection), schemas))


_HIDDEN = sa.text("""
    SELECT COLUMN_NAME FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name AND EXTRA LIKE '%INVISIBLE%'
""")


def _hidden(connection: Connection, schema: str | None, name: str) -> Sequence[str]:
    return connection.execute(_HIDDEN, {"schema": schema, "name": name}).scalars().all()


def _folds_tables(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar_one())


def _acting(inspector: sa.Inspector, schemas: Iterable[str | None]) -> list[tuple[Place, Below]]:
    """Foreign keys with actions, read database by database: a parent may be in another one, and have parents there."""
    schemas_left, seen = list(schemas), set[str | None]()
    links: list[tuple[Place, Below]] = []
    while schemas_left:
        if (schema := schemas_left.pop()) not in seen:
            seen.add(schema)
            new = _acting_in(inspector, schema)
            schemas_left += [parent.schema for parent, _ in new]
            links += new
    return links


def _acting_in(inspector: sa.Inspector, schema: str | None) -> list[tuple[Place, Below]]:
    links = []
    for (_, child), keys in inspector.get_multi_foreign_keys(schema=schema).items():
        for key in keys:
            options = key.get("options", {})
            acts = [str(options.get(name, "")).upper() in ACTS for name in ("ondelete", "onupdate")]
            if any(acts):
                parent = Place(key["referred_schema"] or schema, key["referred_table"])
                pairs = tuple(zip(key["constrained_columns"], key["referred_columns"], strict=True))
                links.append((parent, Below(Place(schema, child), pairs, *acts)))
    return links


STATEMENTS = Statements(
    reader="mysql",
    bound=re.compile(r"\?"),
    quotes=re.compile(
        r"(?s)'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`|#[^\n]*|" + COMMON_QUOTES
    ),
    nests_comments=False,
    runs_comments=True,
    modifiers=re.compile(
        r"(?i)(INSERT|REPLACE|UPDATE|DELETE)"
        r"((?:\s+(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|QUICK|IGNORE))+)(?=\s)"
    ),
    overriding=None,
    deletes_by_using=True,
    # Whether the case of table names matters depends on the server.
    tables_keep_case=True,
    decimals_are_floats=False,
    quotes_by_session=True,
)
SESSIONS = Sessions(
    drivers=("pymysql", "mysqldb", "aiomysql", "asyncmy"),
    modules={"pymysql": "format", "MySQLdb": "format"},
    reads_through=("pymysql", "aiomysql"),
    settings="session",
    autocommits=lambda _, driver: bool(driver.get_autocommit()),
    counts_found=_counts_found,
    changes_so_far=lambda _: 0,
    cursor=lambda connection, _: connection.cursor(),
    begins="",
    charset="SELECT @@character_set_connection, @@character_set_results",
    home="SELECT DATABASE()",
    has_search_path=False,
    keeps_last_id=True,
)
OUTCOMES = Outcomes(
    # A SELECT without a lock would read the snapshot, not what the statement worked on.
    locks={
        "key": " FOR UPDATE",
        "row": " FOR UPDATE",
        "own": " FOR UPDATE",
        "met": " FOR UPDATE",
        "upserted": " FOR UPDATE",
        "none": "",
    },
    # Two services would each lock the gap that the other one inserts into.
    locks_gaps=True,
    met=_met,
    compares_types=False,
    typed=_typed,
    marks_at_once=False,
    returns_keys=False,
    rereads_returned=True,
    last_key="",
    counts_keys_on=False,
    zero_makes_key=True,
    keeps_refused="earlier",
    counts_twice=True,
    counts_late=False,
    locks_all=False,
    folds_tables=_folds_tables,
    links=_links,
    hidden=_hidden,
    knows_heirs=False,
    has_conflict_rules=False,
)
