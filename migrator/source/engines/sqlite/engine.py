"""SQLite as a source: its schema, its triggers, how its SQL is read and written, its errors, and the engine object."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from sys import getsizeof
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Inspector
from sqlalchemy.exc import DBAPIError, DisconnectionError

from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.facts import Alike, Captured, Column, Kind, UniqueConflict, columns_of, digest_of
from migrator.mapping.model.live import RefusalKind
from migrator.runtime.errors import LongAnswerError, SettingsError
from migrator.source.engines import base, catalogue, ddl, shared

# ── Unique conflicts of a new row: unique indexes with a collation, an expression or a condition ──

_WORD = r"[^\W\d][\w$]*"
_TOKEN = re.compile(
    rf"""[xX]?'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|{_WORD}|\d[\w.]*|--[^\n]*|/\*.*?\*/|\s+|.""",
    re.DOTALL,
)
_ORDER = re.compile(r"(?i)\s+(?:ASC|DESC)\s*$")
_COLLATED = re.compile(r"(?i)\b(?:UNIQUE|KEY)\s*\([^()]*\bCOLLATE\b")
_NO_COLUMN_AFTER = frozenset({".", "AS", "COLLATE"})

_Parts: TypeAlias = Sequence[sa.Row[tuple[str, int, str, str, str, str]]]


def unique_conflicts(connection: Connection, table: str) -> tuple[UniqueConflict, ...]:
    """Conflicts of unique indexes with an expression, a condition or a different collation."""
    rows = connection.execute(QUERIES["unique_indexes"], {"table": table}).all()
    names = {name.lower(): name for name in connection.scalars(QUERIES["columns"], {"table": table})}
    conflicts = []
    for _, group in groupby(rows, lambda row: row.name):
        parts = list(group)
        is_whole = not parts[0].partial and all(part.column_name for part in parts)
        if not is_whole or _is_collated(parts):
            conflicts.append(_unique_conflict(parts, names, is_whole=is_whole))
    return tuple(conflicts)


def _is_collated(parts: _Parts) -> bool:
    own, made_by = parts[0].sql, parts[0].table_sql
    is_declared = bool(re.search(r"(?i)\bCOLLATE\b", own) if own else _COLLATED.search(made_by))
    return is_declared and any(part.coll.upper() != "BINARY" for part in parts)


def _unique_conflict(parts: _Parts, names: Mapping[str, str], *, is_whole: bool) -> UniqueConflict:
    """`names`: real names of columns by lower case."""
    part_texts, condition = _split(parts[0].sql) if parts[0].sql else ([], "")
    sides, seen = [], dict[str, None]()

    def of_row(text: str, row: str) -> str:
        tokens = _tokens(text)
        words = ["", *(token for token in tokens if not token.isspace()), ""]
        place = 0
        for at, token in enumerate(tokens):
            place += not token.isspace()
            name = names.get(_plain(token).lower())
            if (
                name is not None
                and words[place - 1].upper() not in _NO_COLUMN_AFTER
                and words[place + 1] != "("
            ):
                seen[name] = None
                tokens[at] = f"{row}.{catalogue.quoted(name)}"
        return "".join(tokens).strip()

    for number, part in enumerate(parts):
        text = catalogue.quoted(part.column_name) if part.column_name else _ORDER.sub("", part_texts[number])
        existing, new = (of_row(text, side) for side in ("gone", "NEW"))
        sides.append(f"({existing}) = ({new}) COLLATE {catalogue.quoted(part.coll)}")
    if condition:
        sides += [f"({of_row(condition, side)})" for side in ("gone", "NEW")]
    return UniqueConflict(" AND ".join(sides), tuple(seen), is_whole)


def _split(sql: str) -> tuple[list[str], str]:
    tokens = iter(_tokens(sql))
    for token in tokens:
        if token == "(":
            break
    parts, depth = [""], 1
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if not depth:
            break
        if token == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += token
    return parts, "".join(tokens).strip()[len("WHERE") :]


def _tokens(text: str) -> list[str]:
    return [" " if token.startswith(("--", "/*")) else token for token in _TOKEN.findall(text)]


def _plain(token: str) -> str:
    if token[0] == "[":
        return token[1:-1]
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote) if quote in '"`' else token


# ── SQLite's types: those of types.toml by name, any other by its affinity ──

AFFINITIES = (
    (("INT",), Kind("plain")),
    (("CHAR", "CLOB", "TEXT"), Kind("text")),
    (("BLOB",), Kind("binary")),
    (("REAL", "FLOA", "DOUB"), Kind("float")),
    (("",), Kind("plain")),
)
"""Words in a name that is not listed above, in SQLite's order. Source: sqlite.org/datatype3.html, "Determination Of Column
Affinity". A column that SQLite converts to numbers where possible (INT in the name, or an unknown name) may still contain
text.
"""


def _by_affinity(type_name: str) -> Kind:
    return next(kind for words, kind in AFFINITIES if any(word in type_name for word in words))


KINDS = catalogue.Kinds("migrator.source.engines.sqlite", _by_affinity)
"""What each declared type holds."""
QUERIES = catalogue.Queries("migrator.source.engines.sqlite")


# ── Facts about a table that SQLAlchemy's inspector does not pass on ──

_GENERATED = (2, 3)
"""Of `hidden`. Source: sqlite.org/pragma.html#pragma_table_xinfo"""
_LISTS_TABLES = (3, 37, 0)
"""Source: sqlite.org/pragma.html#pragma_table_list"""
_WHY_NOT = {
    "shadow": "a shadow table, in which SQLite keeps a virtual table such as a full-text index",
    "virtual": "a virtual table, such as a full-text index, which cannot have triggers",
}


def reflected(connection: Connection, _: str | None) -> catalogue.Reflected:
    inspector = sa.inspect(connection)
    left_out = _left_out(connection)
    names = [
        name
        for name in catalogue.the_users([*inspector.get_table_names(), *inspector.get_view_names()])
        if name not in left_out
    ]
    keys = catalogue.primary_keys_of(inspector, None)
    columns = {name: list(_sqlite_columns(connection, inspector, name, keys.get(name, []))) for name in names}
    unique = {name: unique_columns(connection, name) for name in names}
    met = {name: unique_conflicts(connection, name) for name in names}
    foreign_keys = catalogue.foreign_keys_of(inspector, None)
    for key in (key for keys in foreign_keys.values() for key in keys):
        # PRAGMA defer_foreign_keys defers each of them.
        key["options"] = {**key.get("options", {}), "deferrable": True}
    return catalogue.Reflected(None, columns, keys, unique, foreign_keys, met, left_out=left_out)


def _left_out(connection: Connection) -> dict[str, str]:
    """A trigger on a shadow table runs inside the virtual table's own writes, which may crash the service."""
    found = dict.fromkeys(broken_views(connection), "a view of tables that no longer exist")
    if sqlite3.sqlite_version_info >= _LISTS_TABLES:
        for name, kind in connection.execute(QUERIES["not_of_rows"]):
            found[name] = _WHY_NOT[kind]
    return found


def _sqlite_columns(
    connection: Connection, inspector: Inspector, table: str, key: Sequence[str]
) -> Iterator[Column]:
    rows = {row.name: row for row in connection.execute(QUERIES["columns"], {"table": table})}
    columns = inspector.get_columns(table)
    alike = _alike(connection, table, [column["name"] for column in columns])
    for column in columns:
        name = column["name"]
        # INTEGER PRIMARY KEY is the rowid, which is never NULL, regardless of the declaration.
        declared = rows[name].type
        rowid = [name] == list(key) and declared.upper() == "INTEGER"
        yield Column(
            name,
            name,
            KINDS.kind_of(declared),
            column["nullable"] and not rowid,
            declared,
            alike=alike.get(name, ()),
            default=rowid or rows[name].dflt_value not in (None, "NULL"),
            generated=rows[name].hidden in _GENERATED,
        )


def _alike(connection: Connection, table: str, columns: Sequence[str]) -> Mapping[str, tuple[Alike, ...]]:
    """Empty if the table uses a collation that only the service defines."""
    if not columns:
        return {}
    # In a UNION ALL a column's collation also applies to the rows below it.
    named = ", ".join(f"{catalogue.quoted(name)} AS c{n}" for n, name in enumerate(columns))
    comparisons = ", ".join(f"c{n} = 'A', c{n} = 'a '" for n in range(len(columns)))
    letters = ", ".join("'a'" for _ in columns)
    rows = f"SELECT {named} FROM {catalogue.quoted(table)} WHERE 0 UNION ALL SELECT {letters}"
    try:
        answers = connection.exec_driver_sql(f"SELECT {comparisons} FROM ({rows})").one()
    except DBAPIError:
        return {}
    return {name: catalogue.alike(answers[2 * n : 2 * n + 2]) for n, name in enumerate(columns)}


def unique_columns(connection: Connection, table: str) -> list[tuple[str, ...]]:
    by_index: dict[str, list[str | None]] = {}
    for index, column in connection.execute(QUERIES["unique_columns"], {"table": table}):
        by_index.setdefault(index, []).append(column)
    names = (tuple(name for name in columns if name) for columns in by_index.values() if None not in columns)
    return list(dict.fromkeys(names))


def broken_views(connection: Connection) -> set[str]:
    """Views on missing tables, which SQLite keeps."""
    return {view for view in connection.scalars(QUERIES["views"]) if not _can_be_read(connection, view)}


def _can_be_read(connection: Connection, view: str) -> bool:
    try:
        connection.execute(QUERIES["columns"], {"table": view}).all()
    except DBAPIError:
        return False
    return True


# ── Statements: two tables with the prefix `migrator_`, and triggers for each table ──

_NOW = "(julianday('now') - 2440587.5) * 86400.0"
_SQL = catalogue.Queries("migrator.source.engines.sqlite", "capture.sql")


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def image(columns: Sequence[Column], row: str) -> str:
    """JSON of written name -> the value's own type, a colon and its text; NULL is null."""
    pairs = [
        f"{literal(column.name)}, {_value(f'{row}.{catalogue.quoted(column.real)}')}" for column in columns
    ]
    return "json_object(" + ",\n            ".join(pairs) + ")"


def _value(column_sql: str) -> str:
    # Of 200,000 random floats, 594 were wrong with 17 digits of SQLite's printf, none with 20.
    return (
        f"CASE typeof({column_sql}) WHEN 'blob' THEN 'blob:' || hex({column_sql})"
        f" WHEN 'real' THEN 'real:' || printf('%!.20g', {column_sql}) ELSE typeof({column_sql}) || ':' || {column_sql} END"
    )


class SqliteDdl:
    mark = "migrator_mark"
    ticket = "migrator_ticket"
    now = f"({_NOW})"
    quoted = staticmethod(catalogue.quoted)
    image = staticmethod(image)

    def tables(self) -> list[str]:
        ticket = (
            "id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, number INTEGER NOT NULL,"
            " installation TEXT NOT NULL, version INTEGER NOT NULL, job TEXT NOT NULL, marked_by TEXT NOT NULL,"
            " words TEXT NOT NULL"
        )
        return [
            _SQL.text("mark_table", mark=self.mark, now=_NOW, version=ddl.VERSION),
            f"CREATE TABLE IF NOT EXISTS {self.ticket} ({ticket})",
        ]

    def no_tables(self) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.mark}", f"DROP TABLE IF EXISTS {self.ticket}"]

    def triggers(self, captured: Captured) -> list[ddl.Trigger]:
        note = ddl.columns_note(captured, digest_of(*self._bodies(captured).values(), *captured.made_by))
        digest = digest_of(note)
        bodies = self._bodies(captured, f"    {note}\n")
        return [
            # AI, AU, AD; BI and BU for rows that REPLACE deletes.
            _trigger(captured, "".join(word[0] for word in event.lower().split()[:2]), event, body, digest)
            for event, body in bodies.items()
        ]

    def _bodies(self, captured: Captured, note: str = "") -> dict[str, str]:
        bodies = {f"AFTER {event}": self._body(captured, event) for event in ddl.EVENTS}
        bodies |= self._replaced(captured)
        return {event: body.replace("\nBEGIN\n", f"\nBEGIN\n{note}", 1) for event, body in bodies.items()}

    def refusing(self, captured: Captured) -> list[ddl.Trigger]:
        """Triggers that a mark with the id 0 passes; it is inserted and deleted in one transaction, so no other
        session sees it.
        """
        allowed = f"EXISTS (SELECT 1 FROM {self.mark} WHERE id = 0)"
        raised = f"SELECT RAISE(ABORT, {literal(ddl.refusal(captured.name))})"
        body = f" FOR EACH ROW WHEN NOT {allowed}\nBEGIN\n    {raised};\nEND"
        digest = digest_of(body)
        return [
            _trigger(captured, f"{ddl.REFUSES}{event.lower()}", f"BEFORE {event}", body, digest)
            for event in ddl.EVENTS
        ]

    def _replaced(self, captured: Captured) -> dict[str, str]:
        """Mark rows that REPLACE is about to delete, for which SQLite fires no trigger.

        An upsert that meets another row's key also leaves such a mark, which is harmless.
        """
        table = captured.table
        wider = [conflict.columns for conflict in table.unique_conflicts if conflict.whole]
        keys = [_real(captured, key) for key in dict.fromkeys([table.primary_key, *table.unique]) if key]
        # A key that a unique conflict also covers would not be looked up by an index.
        columns = [[catalogue.quoted(name) for name in key] for key in keys if key not in wider]
        conditions = [
            " AND ".join(f"gone.{column_name} = NEW.{column_name}" for column_name in names)
            for names in columns
        ]
        conditions += [conflict.sql for conflict in table.unique_conflicts]
        if not conditions:
            return {}
        met = " OR ".join(f"({condition})" for condition in conditions)
        own = [catalogue.quoted(name) for name in _real(captured, table.primary_key)] or ["rowid"]
        itself = " AND ".join(f"gone.{column_name} IS OLD.{column_name}" for column_name in own)
        columns += [
            [catalogue.quoted(name) for name in conflict.columns] for conflict in table.unique_conflicts
        ]
        changed = ", ".join(dict.fromkeys(name for names in columns for name in names))
        row_image = image(columns_of(captured, captured.columns), "gone")
        begin = f"INSERT INTO {self.mark} (table_name, image_before)\n    SELECT {literal(captured.name)}, {row_image}"
        insert = f"{begin}\n    FROM {catalogue.quoted(table.real)} AS gone WHERE ({met})"
        return {
            "BEFORE INSERT": f" FOR EACH ROW\nBEGIN\n    {insert};\nEND",
            f"BEFORE UPDATE OF {changed}": f" FOR EACH ROW\nBEGIN\n    {insert} AND NOT ({itself});\nEND",
        }

    def _body(self, captured: Captured, event: str) -> str:
        columns, sides = columns_of(captured, captured.columns), ddl.EVENTS[event]
        targets = ", ".join(["table_name", *(ddl.IMAGES[side] for side in sides)])
        values = ",\n        ".join([literal(captured.name), *(image(columns, side) for side in sides)])
        when = _when(captured) if event == "UPDATE" else ""
        return (
            f" FOR EACH ROW{when}\nBEGIN\n"
            f"    INSERT INTO {self.mark} ({targets}) VALUES (\n        {values});\nEND"
        )


def _real(captured: Captured, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(column.real for column in columns_of(captured, names))


def _trigger(captured: Captured, part: str, event: str, body: str, digest: str) -> ddl.Trigger:
    name = ddl.trigger_name(captured.name, part, digest)
    create = f"CREATE TRIGGER {name} {event} ON {catalogue.quoted(captured.table.real)}{body}"
    return ddl.Trigger(captured.name, name, digest, (create,), (f"DROP TRIGGER {name}",))


def _when(captured: Captured) -> str:
    """Compares bytes and types: a collation takes some texts as equal, and 1 equals 1.0."""
    if captured.watched is None:
        return ""
    changed = []
    for column in columns_of(captured, captured.watched):
        old, new = f"OLD.{catalogue.quoted(column.real)}", f"NEW.{catalogue.quoted(column.real)}"
        changed.append(f"{old} IS NOT {new} COLLATE BINARY OR typeof({old}) <> typeof({new})")
    return "\nWHEN " + "\n    OR ".join(changed)


# ── The catalogue: our triggers, tables that cannot be captured, decoding of images ──

_STRANGE = re.compile(r"^\s*CREATE\s+VIRTUAL", re.IGNORECASE)


def _our_triggers(connection: Connection, _: SqliteDdl) -> Iterator[ddl.ExistingTrigger]:
    for row in connection.execute(QUERIES["triggers"]):
        if ours := shared.OUR_TRIGGER.fullmatch(row.trigger_name):
            drop = f"DROP TRIGGER {catalogue.quoted(row.trigger_name)}"
            yield ddl.ExistingTrigger(row.name, row.trigger_name, ours[1], drop=(drop,), text=row.text)


def _refusals(connection: Connection, _: SqliteDdl, tables: Sequence[Captured]) -> Iterator[base.Refusal]:
    by_name = {row[0]: row for row in connection.execute(QUERIES["master"])}
    for table in tables:
        row = by_name.get(table.table.real)
        if row is None:
            yield base.Refusal(f"table {table.name} is gone; pull the schema again")
        elif row[1] == "view":
            yield base.Refusal(
                f"{table.name} is a view, which has no triggers for what it reads; {base.VIEW_ADVICE}"
            )
        elif _STRANGE.match(row[2] or ""):
            yield base.Refusal(
                f"{table.name} is a virtual table, which has no triggers; migrate the table that it shows",
                triggers_only=True,
            )


def _decode(_: Connection, __: dict[int, int]) -> base.Decode:
    readers: dict[str, Callable[[str], Any]] = {
        "integer": int,
        "real": float,
        "text": str,
        "blob": bytes.fromhex,
    }
    return lambda word, text: readers[word](text)


CAPTURING = base.Capturing(
    ddl=lambda _: SqliteDdl(),
    schema=None,
    prefix="migrator_",
    triggers=_our_triggers,
    more_triggers=lambda *_: iter(()),
    hidden=lambda *_: False,
    leftovers=lambda _: [],
    refusals=_refusals,
    views=lambda connection, _: set(connection.scalars(QUERIES["views"])),
    limits=(),
    decode=_decode,
    # A writing transaction of SQLite locks the whole file.
    locks_rows="",
    updates_listed=ddl.UPDATES_LISTED,
    deletes_listed=ddl.DELETES_LISTED,
    log="",
)


def _autocommits(_: Any, driver: Any) -> bool:
    # Since Python 3.12 a connection has a second attribute for it, which then is the one that counts.
    by_itself = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
    return by_itself and not driver.in_transaction


# ── values ──


def _stored(column: Column, value: Any) -> Any:
    """The value by the column's affinity. Source: SQLite, "Datatypes In SQLite", 3.1 and 3."""
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
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value):
        return int(value)
    if isinstance(value, Decimal):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


# ── tables ──


def _acting(connection: Connection) -> list[tuple[catalogue.Place, catalogue.Below]]:
    inspector = sa.inspect(connection)
    # A key may spell its table in another case.
    spelled = {name.lower(): name for name in inspector.get_table_names()}
    keys: dict[tuple[str, int], list[sa.Row[Any]]] = {}
    for row in connection.execute(QUERIES["foreign_keys"]):
        if row.parent.lower() in spelled and not catalogue.ACTS.isdisjoint((row.on_delete, row.on_update)):
            keys.setdefault((row.child, row.id), []).append(row)
    links = []
    for (child, _), rows in keys.items():
        parent, first = spelled[rows[0].parent.lower()], rows[0]
        theirs = [row.theirs for row in rows if row.theirs is not None]
        referred = theirs or inspector.get_pk_constraint(parent)["constrained_columns"]
        pairs = tuple(zip((row.own for row in rows), referred, strict=True))
        acts = (first.on_delete in catalogue.ACTS, first.on_update in catalogue.ACTS)
        links.append(
            (catalogue.Place(None, parent), catalogue.Below(catalogue.Place(None, child), pairs, *acts))
        )
    return links


STATEMENTS = base.Statements(
    reader="sqlite",
    bound=re.compile(r"\?(?P<place>\d*)|[:@$](?P<name>\w+)"),
    quotes=re.compile(r"(?s)`(?:[^`]|``)*`|\[[^\]]*\]|" + shared.COMMON_QUOTES),
    nests_comments=False,
    runs_comments=False,
    modifiers=None,
    reworded=None,
    deletes_by_using=False,
    tables_keep_case=False,
    # SQLite stores all decimals as floats, and its driver takes no Decimal.
    decimals_are_floats=True,
    quotes_by_session=False,
    key_names=("rowid", "_rowid_", "oid"),
    skips_generated=True,
)
SESSIONS = base.Sessions(
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
    home="SELECT 'temp' FROM temp.sqlite_master WHERE type IN ('table', 'view')"
    " AND '\"' || replace(name, '\"', '\"\"') || '\"' = {name} COLLATE NOCASE",
    has_search_path=False,
    keeps_last_id=False,
    own_schema="main",
)
OUTCOMES = base.Outcomes(
    locks=dict.fromkeys(("key", "row", "own", "met", "upserted", "none"), ""),
    locks_gaps=False,
    met=lambda *_: [],
    compares_types=False,
    typed=lambda column, value: ("", _stored(column, value), ""),
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
    links=lambda connection, _: catalogue.Links(_acting(connection)),
    hidden=lambda *_: (),
    knows_heirs=False,
    has_conflict_rules=True,
)


# ── Rows written into SQLite: values as the column's affinity stores them ──


def _bound(column: Column, value: Any) -> Any:
    if value is None or isinstance(value, (bytes, int)):
        return int(value) if isinstance(value, bool) else value
    base.refuse_inexact(column, value)
    if isinstance(value, Decimal):
        return _sqlite_number(value)
    return base.as_text(column.kind, value)


def _sqlite_number(value: Decimal) -> int | float:
    """The number as stored. Raises: ValueError if SQLite's 64 bits store another number."""
    whole = value == value.to_integral_value()
    number = int(value) if whole and abs(value) < 2**63 else float(value)
    if Decimal(repr(number)) != value:
        raise ValueError("the number has more digits than SQLite keeps")
    return number


_BY_NAME: dict[str, RefusalKind] = {
    "SQLITE_CONSTRAINT_FOREIGNKEY": "foreign key",
    "SQLITE_CONSTRAINT_UNIQUE": "unique",
    "SQLITE_CONSTRAINT_PRIMARYKEY": "unique",
    "SQLITE_CONSTRAINT_ROWID": "unique",
    "SQLITE_CONSTRAINT_NOTNULL": "not null",
    "SQLITE_CONSTRAINT_CHECK": "value",
    "SQLITE_CONSTRAINT_DATATYPE": "value",
    "SQLITE_MISMATCH": "value",
    "SQLITE_TOOBIG": "value",
    "SQLITE_CONSTRAINT_TRIGGER": "trigger",
}
"""Source: SQLite, "Result and Error Codes"."""


_HAS_MARKS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrator_mark'"


def _begin_row(connection: Connection) -> None:
    """A trigger cannot read settings of a session; others never see a row that is deleted before the commit."""
    if connection.exec_driver_sql(_HAS_MARKS).first():
        connection.exec_driver_sql("INSERT INTO migrator_mark (id) VALUES (0)")


def _end(connection: Connection) -> None:
    if connection.exec_driver_sql(_HAS_MARKS).first():
        connection.exec_driver_sql("DELETE FROM migrator_mark WHERE id = 0")


ROWS = base.RowWriting(
    # SQLite otherwise ignores them.
    prepare=lambda connection: connection.execute("PRAGMA foreign_keys = ON"),
    begin=_begin_row,
    end=_end,
    bound=_bound,
    upserts=True,
    overriding="",
    # A transaction that writes is alone.
    locks="",
    refusal=lambda error: _BY_NAME.get(str(getattr(error, "sqlite_errorname", ""))),
    # A number that is inserted moves the rowid, and AUTOINCREMENT's own counter.
    move_counters=lambda *_: None,
    unchanging=lambda *_: frozenset(),
    defer="PRAGMA defer_foreign_keys = ON",
)


# ── Explanations of SQLite's errors ──


def _reasons(cause: BaseException) -> Iterator[str]:
    name = getattr(cause, "sqlite_errorname", None) or ""
    for known in (name, "_".join(name.split("_")[:2])):
        if reason := shared.explanations("sqlite").get(known):
            yield reason


ERRORS = base.Errors(_reasons, lambda _: False, lambda _: None)


# ── SQLite's SQL: parsing, refused functions, and the forms of values in our statements ──

_PARAMETERS = re.compile(
    rf'{shared.ANSI_STRING}|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|(?P<comment>{shared.COMMENTS})|{shared.PARAMETER}',
    re.DOTALL,
)


def _number(value: Decimal) -> int | float:
    """The number as in a statement: a whole number beyond 64 bits is a float."""
    is_whole = value == value.to_integral_value() and -(2**63) <= value < 2**63
    return int(value) if is_whole else float(value)


def _comparable(value: Any, kind: Kind) -> Any:
    """A text as bytes: the driver binds none that is not UTF-8."""
    if kind.name != "text" or not isinstance(value, str) or value.isascii():
        return value
    return value.encode(errors="surrogateescape")


SQL = base.Sql(
    reader="sqlite",
    quote='"',
    parameters=_PARAMETERS,
    forms={**shared.AS_TEXT, Decimal: _number},
    comparable=_comparable,
    integer_bits=64,
    between=shared.BETWEEN,
    sets_variables=False,
    escapes_names=False,
    folds_names=False,
    recurses_unasked=True,
    traits=frozenset({"binds bytes as text"}),
)


# ── SQLite as a source: one file, read through the standard library's driver ──

_NAME = "sqlite"

# ── connections ──


class _TimedConnection(sqlite3.Connection):
    ends_at: float = math.inf
    limit_s: float = math.inf
    answer_bytes: int = sys.maxsize
    file: tuple[int, int] | None = None

    def cursor(self, *_: Any) -> Any:
        # One a statement.
        self.ends_at = time.monotonic() + self.limit_s
        return super().cursor(_BoundedCursor)


class _BoundedCursor(sqlite3.Cursor):
    """Raises LongAnswerError if an answer exceeds `answer_bytes`."""

    connection: _TimedConnection

    def execute(self, *words: Any) -> _BoundedCursor:
        self._left = self.connection.answer_bytes
        return super().execute(*words)

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        return self._counted(islice(self, size))

    def fetchall(self) -> list[Any]:
        return self._counted(self)

    def _counted(self, found: Iterable[Any]) -> list[Any]:
        rows, left = [], self._left
        for row in found:
            left -= sum(map(getsizeof, row))
            if left < 0:
                self.close()
                raise LongAnswerError
            rows.append(row)
        self._left = left
        return rows


def _opened(address: base.Address, connection_options: base.ConnectionOptions) -> sa.Engine:
    # as_uri() escapes special characters of the file name; mode=rw never creates a file. Reads use it also: with mode=ro
    # SQLite refuses to roll back what a killed process left unfinished. A protected file is opened for reading only.
    file = Path(address.url().database or "").resolve()
    uri = f"{file.as_uri()}?mode=rw"

    def identity() -> tuple[int, int] | None:
        try:
            found = file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def connect() -> sqlite3.Connection:
        its_file = identity()
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=connection_options.lock_wait_s,
            isolation_level=None,
            check_same_thread=False,
            factory=_TimedConnection,
        )
        connection.file = its_file
        connection.text_factory = _TOLERANT
        # An ATTACH in a query could create a file.
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        if not connection_options.writes:
            connection.answer_bytes = connection_options.answer_bytes
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, base.LONGEST_ANSWER_BYTES)
        connection.execute(
            "PRAGMA synchronous = FULL" if connection_options.writes else "PRAGMA query_only = ON"
        )
        if limit_s := connection_options.limit_s(0):
            # SQLite has no statement timeout, but calls its progress handler regularly.
            connection.limit_s = limit_s
            connection.set_progress_handler(lambda: time.monotonic() > connection.ends_at, _STEPS_A_LOOK)
        return connection

    def checkout(connection: _TimedConnection, *_: object) -> None:
        if connection.file != identity():
            raise DisconnectionError  # a backup was put in its place: the pool connects to that

    engine = sa.create_engine(f"{_NAME}://", creator=connect, **connection_options.pool())
    sa.event.listen(engine, "checkout", checkout)
    return engine


# One text that is not UTF-8 then refuses its row; sqlite3's own way, which is sooner, would end the whole page.
_TOLERANT = partial(str, encoding="utf-8", errors="surrogateescape")


def _fetched(connection: Connection, statement: sa.Executable, _: frozenset[int]) -> RawPage:
    """Rows with texts as sqlite3 decodes them, repeated with our decoder if one is not UTF-8."""
    driver: Any = connection.connection.driver_connection
    driver.text_factory = str
    try:
        rows = _all(connection, statement)
    except sqlite3.OperationalError as error:
        if not str(error).startswith("Could not decode to UTF-8"):
            raise
        driver.text_factory = _TOLERANT
        rows = _all(connection, statement)
    finally:
        driver.text_factory = _TOLERANT
    return RawPage(rows)


def _all(connection: Connection, statement: sa.Executable) -> list[tuple[Any, ...]]:
    with connection.execute(statement) as result:
        return list(result.cursor.fetchall())


def _begins(connection_options: base.ConnectionOptions, _: object) -> str:
    # sqlite3 begins no transaction before a SELECT, so each SELECT of a page would see another snapshot. And a transaction
    # that reads first and then writes is refused if another one wrote in between.
    return "BEGIN IMMEDIATE" if connection_options.writes else "BEGIN"


_STEPS_A_LOOK = 10_000
"""Instructions of SQLite's virtual machine between two checks of the clock: well below a millisecond."""


def _checked_url(url: URL, supported: str) -> URL:
    if url.host or url.username or url.password or url.query:
        raise SettingsError(
            "source: an SQLite URL is sqlite:///path (three slashes, four before an absolute path)"
        )
    if not url.database or url.database == ":memory:":
        raise SettingsError(
            "source: an SQLite database in memory holds nothing to migrate; write sqlite:///path"
        )
    return sqlite_file(url.database, supported)


def sqlite_file(text: str, supported: str) -> URL:
    """The URL of a file that must exist: SQLite itself would create it."""
    named = f"'{text}'" if text and not set("@:") & set(text) else "the path"
    path = Path(text)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise SettingsError(f"source: {named} is not a regular file; name a file that SQLite can open")
        if path.is_dir():
            raise IsADirectoryError
        what = "is empty" if not path.stat().st_size else _not_of_sqlite(path)
    except FileNotFoundError:
        raise SettingsError(f"source: {named} does not exist; write {supported}") from None
    except (OSError, ValueError) as error:
        what = f"source: {named} cannot be read ({type(error).__name__}); write {supported}"
        raise SettingsError(what) from None
    if what:
        raise SettingsError(f"source: {named} {what}; name a file that SQLite can open")
    return URL.create(_NAME, database=text)


def _not_of_sqlite(path: Path) -> str:
    """The message for a file that is not a database. SQLite reads it: closing the file directly would release
    all locks of this process on it, including a service's.

    Source: sqlite.org/howtocorrupt.html, "POSIX advisory locks canceled by a separate thread doing close()".
    """
    if not os.access(path, os.R_OK):
        raise PermissionError
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as file:
            file.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as error:
        # Any other fault (locked, or a log that cannot be created) shows when it is opened for work.
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            return "is not a SQLite database, or an encrypted one"
    return ""


# ── plans ──

_SCAN = re.compile(r"^(?:SCAN (?:TABLE )?(?P<table>[^\s(]+)|SEARCH (?P<indexed>\S+) USING AUTOMATIC)")
"""An automatic index is built for one statement from the whole table."""


def _plan(names: Sequence[str], rows: Sequence[base.Row], page_rows: int) -> base.Plan:
    lines = [str(row[3]) for row in rows]
    scanned = [match["table"] or match["indexed"] for line in lines if (match := _SCAN.match(line))]
    tables = [table for table in scanned if table not in ("CONSTANT", "SUBQUERY")]
    return lines, tables if page_rows < sys.maxsize else []


_SERVER = base.Server(
    health="SELECT 'SQLite ' || sqlite_version(), NULL, 0, ''",
    product=str,
    session=None,
    sends_to_the_end=False,
    rows_at_least=lambda *_: None,
    explain=lambda _: "EXPLAIN QUERY PLAN",
    plan=_plan,
    expected=None,
    replication=lambda _: None,
    hides_rows=False,
    recorded=None,
    strains={},
    strains_need="",
)

# ── writers ──


def _read_only(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    yield "-- SQLite has no users: take the right to write from the file (chmod a-w), once nothing of ours writes"


_WRITERS = base.Writers(
    changes=lambda *_: ({}, "changes", "SQLite counts no changes by table"),
    # This check runs in a writing transaction, and SQLite allows no other one meanwhile.
    open=lambda _: ({}, ""),
    marks_ever="SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = '{mark}'), 0)",
    may_write=lambda *_: {},
    read_only=_read_only,
    drops=shared.drops_unchecked("PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys = ON"),
)


SQLITE = base.Engine(
    name=_NAME,
    also=(),
    title="SQLite",
    is_file=True,
    queries=QUERIES,
    functions=catalogue.Functions(QUERIES.engine),
    connecting=base.Connecting(
        form="sqlite:///path, the path of an SQLite file",
        schemes=(_NAME,),
        driver="",
        port=0,
        rds=(),
        extra=None,
        checked_url=_checked_url,
        open=_opened,
        begins=_begins,
        raw=frozenset(),
        fetched=_fetched,
    ),
    sql=SQL,
    schema=base.Schema(
        reflected=reflected,
        kinds=KINDS,
        has_schemas=False,
        has_materialized_views=False,
        loosely_typed=True,
        has_blocks=lambda *_: False,
    ),
    server=_SERVER,
    errors=ERRORS,
    writers=_WRITERS,
    capturing=CAPTURING,
    granting=None,
    statements=STATEMENTS,
    sessions=SESSIONS,
    outcomes=OUTCOMES,
    rows=ROWS,
)
