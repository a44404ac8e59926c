"""The adapter's rules for SQLite: a service's statements, connections and tables."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Column
from migrator.source.engines.base import Outcomes, Sessions, Statements, Typed
from migrator.source.engines.catalogue import ACTS, Below, Links, Place
from migrator.source.engines.shared import COMMON_QUOTES


def _autocommits(_: Any, driver: Any) -> bool:
    # Since Python 3.12 a connection has a second attribute for it, which then is the one that counts.
    by_itself = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
    return by_itself and not driver.in_transaction


# ── values ──


def _typed(column: Column, value: Any) -> Typed:
    return "", _by_affinity(column, value), ""


def _by_affinity(column: Column, value: Any) -> Any:
    """The value as the column's affinity stores it. Source: SQLite, "Datatypes In SQLite", 3.1 and 3."""
    declared = column.declared.upper()
    if isinstance(value, bool):
        value = int(value)
    if "INT" in declared:
        return _integer(value)
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT")):
        return value if isinstance(value, (str, bytes)) or value is None else str(value)
    if "BLOB" in declared or not declared:
        return value
    if any(word in declared for word in ("REAL", "FLOA", "DOUB")):
        return float(value) if isinstance(value, (int, Decimal)) else value
    return _integer(float(value) if isinstance(value, Decimal) else value)


def _integer(value: Any) -> Any:
    """A number without decimals, or a text of one, as an integer."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value):
        return int(value)
    if isinstance(value, Decimal):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


# ── tables ──

# SQLAlchemy does not read the actions of a foreign key that is declared with its column.
_KEYS = sa.text("""
    SELECT m.name AS child, f.id AS id, f."table" AS parent, f."from" AS own, f."to" AS theirs,
        f.on_delete AS on_delete, f.on_update AS on_update
    FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq
""")


def _acting(connection: Connection) -> list[tuple[Place, Below]]:
    inspector = sa.inspect(connection)
    # A key may spell its table in another case.
    spelled = {name.lower(): name for name in inspector.get_table_names()}
    keys: dict[tuple[str, int], list[sa.Row[Any]]] = {}
    for row in connection.execute(_KEYS):
        if row.parent.lower() in spelled and not ACTS.isdisjoint((row.on_delete, row.on_update)):
            keys.setdefault((row.child, row.id), []).append(row)
    links = []
    for (child, _), rows in keys.items():
        parent, first = spelled[rows[0].parent.lower()], rows[0]
        theirs = [row.theirs for row in rows if row.theirs is not None]
        referred = theirs or inspector.get_pk_constraint(parent)["constrained_columns"]
        pairs = tuple(zip((row.own for row in rows), referred, strict=True))
        acts = (first.on_delete in ACTS, first.on_update in ACTS)
        links.append((Place(None, parent), Below(Place(None, child), pairs, *acts)))
    return links


STATEMENTS = Statements(
    reader="sqlite",
    bound=re.compile(r"\?(?P<place>\d*)|[:@$](?P<name>\w+)"),
    quotes=re.compile(r"(?s)`(?:[^`]|``)*`|\[[^\]]*\]|" + COMMON_QUOTES),
    nests_comments=False,
    runs_comments=False,
    modifiers=None,
    overriding=None,
    deletes_by_using=False,
    tables_keep_case=False,
    # SQLite stores all decimals as floats, and its driver takes no Decimal.
    decimals_are_floats=True,
    quotes_by_session=False,
    key_names=("rowid", "_rowid_", "oid"),
    skips_generated=True,
)
SESSIONS = Sessions(
    drivers=("pysqlite", "aiosqlite"),
    modules={"sqlite3": "qmark"},
    reads_through=("sqlite3", "aiosqlite"),
    settings="session",
    autocommits=_autocommits,
    counts_found=lambda _: True,
    # Of undone changes it counts only those of triggers.
    changes_so_far=lambda driver: int(driver.total_changes),
    cursor=lambda connection, _: connection.cursor(),
    # sqlite3 begins no transaction before a SELECT, so what it reads might change.
    begins="BEGIN IMMEDIATE",
    charset="",
    home="",
    has_search_path=False,
    keeps_last_id=False,
)
OUTCOMES = Outcomes(
    locks=dict.fromkeys(("key", "row", "own", "met", "upserted", "none"), ""),
    locks_gaps=False,
    met=lambda *_: [],
    compares_types=False,
    typed=_typed,
    marks_at_once=False,
    returns_keys=False,
    rereads_returned=False,
    last_key="SELECT last_insert_rowid()",
    # Generated keys follow the highest existing key, and nothing comes between the rows of one statement.
    counts_keys_on=True,
    zero_makes_key=False,
    keeps_refused="counted",
    counts_twice=False,
    counts_late=True,
    locks_all=True,
    folds_tables=lambda _: True,
    links=lambda connection, _: Links(_acting(connection)),
    hidden=lambda *_: (),
    knows_heirs=False,
    has_conflict_rules=True,
)
