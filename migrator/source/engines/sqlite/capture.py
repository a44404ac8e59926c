"""Capture on SQLite: triggers that leave marks, and their state in the catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured, Column, columns_of, digest_of
from migrator.source.engines.base import VIEW_ADVICE, Capturing, Decode, Refusal
from migrator.source.engines.catalogue import Queries
from migrator.source.engines.ddl import (
    DELETES_LISTED,
    EVENTS,
    IMAGES,
    REFUSES,
    UPDATES_LISTED,
    VERSION,
    ExistingTrigger,
    Trigger,
    columns_note,
    refusal,
)
from migrator.source.engines.shared import OUR_TRIGGER
from migrator.source.engines.sqlite.facts import QUERIES

# ── Statements: two tables with the prefix `migrator_`, and triggers for each table ──

_NOW = "(julianday('now') - 2440587.5) * 86400.0"
_SQL = Queries("migrator.source.engines.sqlite", "capture.sql")


class SqliteDdl:
    mark = "migrator_mark"
    ticket = "migrator_ticket"
    now = f"({_NOW})"

    def tables(self) -> list[str]:
        ticket = (
            "id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, number INTEGER NOT NULL,"
            " installation TEXT NOT NULL, version INTEGER NOT NULL, job TEXT NOT NULL, marked_by TEXT NOT NULL,"
            " words TEXT NOT NULL"
        )
        return [
            _SQL.text("mark_table", mark=self.mark, now=_NOW, version=VERSION),
            f"CREATE TABLE IF NOT EXISTS {self.ticket} ({ticket})",
        ]

    def no_tables(self) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.mark}", f"DROP TABLE IF EXISTS {self.ticket}"]

    def triggers(self, captured: Captured) -> list[Trigger]:
        note = columns_note(captured, digest_of(*self._bodies(captured).values(), *captured.made_by))
        digest = digest_of(note)
        bodies = self._bodies(captured, f"    {note}\n")
        return [_trigger(captured, event, body, digest) for event, body in bodies.items()]

    def _bodies(self, captured: Captured, note: str = "") -> dict[str, str]:
        bodies = {f"AFTER {event}": self._body(captured, event) for event in EVENTS}
        bodies |= self._replaced(captured)
        return {event: body.replace("\nBEGIN\n", f"\nBEGIN\n{note}", 1) for event, body in bodies.items()}

    def refusing(self, captured: Captured) -> list[Trigger]:
        """A mark with the id 0 lets pass, which no other session sees: it comes and goes in one transaction."""
        allowed = f"EXISTS (SELECT 1 FROM {self.mark} WHERE id = 0)"
        raised = f"SELECT RAISE(ABORT, {literal(refusal(captured.name))})"
        body = f" FOR EACH ROW WHEN NOT {allowed}\nBEGIN\n    {raised};\nEND"
        digest, on = digest_of(body), quoted(captured.table.real)
        names = {event: trigger_name(captured.name, f"{REFUSES}{event.lower()}", digest) for event in EVENTS}
        return [
            Trigger(
                *(captured.name, name, digest, (f"CREATE TRIGGER {name} BEFORE {event} ON {on}{body}",)),
                (f"DROP TRIGGER {name}",),
            )
            for event, name in names.items()
        ]

    def _replaced(self, captured: Captured) -> dict[str, str]:
        """Triggers that mark rows which REPLACE is about to delete, for which SQLite fires no trigger.

        An upsert that meets another row's key leaves such a mark too, which is harmless.
        """
        table = captured.table
        wider = [conflict.columns for conflict in table.unique_conflicts if conflict.whole]
        keys = [_real(captured, key) for key in dict.fromkeys([table.primary_key, *table.unique]) if key]
        # A key that a unique conflict covers, too, would not be looked up by an index.
        columns = [[quoted(name) for name in key] for key in keys if key not in wider]
        conditions = [
            " AND ".join(f"gone.{column_name} = NEW.{column_name}" for column_name in names)
            for names in columns
        ]
        conditions += [conflict.sql for conflict in table.unique_conflicts]
        if not conditions:
            return {}
        met = " OR ".join(f"({condition})" for condition in conditions)
        own = [quoted(name) for name in _real(captured, table.primary_key)] or ["rowid"]
        itself = " AND ".join(f"gone.{column_name} IS OLD.{column_name}" for column_name in own)
        columns += [[quoted(name) for name in conflict.columns] for conflict in table.unique_conflicts]
        changed = ", ".join(dict.fromkeys(name for names in columns for name in names))
        row_image = image(columns_of(captured, captured.columns), "gone")
        begin = f"INSERT INTO {self.mark} (table_name, image_before)\n    SELECT {literal(captured.name)}, {row_image}"
        insert = f"{begin}\n    FROM {quoted(table.real)} AS gone WHERE ({met})"
        return {
            "BEFORE INSERT": f" FOR EACH ROW\nBEGIN\n    {insert};\nEND",
            f"BEFORE UPDATE OF {changed}": f" FOR EACH ROW\nBEGIN\n    {insert} AND NOT ({itself});\nEND",
        }

    def quoted(self, name: str) -> str:
        return quoted(name)

    def image(self, columns: Sequence[Column], row: str) -> str:
        return image(columns, row)

    def _body(self, captured: Captured, event: str) -> str:
        columns, sides = columns_of(captured, captured.columns), EVENTS[event]
        targets = ", ".join(["table_name", *(IMAGES[side] for side in sides)])
        values = ",\n        ".join([literal(captured.name), *(image(columns, side) for side in sides)])
        when = _when(captured) if event == "UPDATE" else ""
        return (
            f" FOR EACH ROW{when}\nBEGIN\n"
            f"    INSERT INTO {self.mark} ({targets}) VALUES (\n        {values});\nEND"
        )


def _real(captured: Captured, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(column.real for column in columns_of(captured, names))


def _trigger(captured: Captured, event: str, body: str, digest: str) -> Trigger:
    timing, what = event.split(" ")[:2]
    name = trigger_name(captured.name, (timing[:1] + what[:1]).lower(), digest)
    create = f"CREATE TRIGGER {name} {event} ON {quoted(captured.table.real)}{body}"
    return Trigger(captured.name, name, digest, (create,), (f"DROP TRIGGER {name}",))


def trigger_name(table: str, event: str, digest: str) -> str:
    return f"migrator_{digest_of(table)}_{event}_{digest}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def image(columns: Sequence[Column], row: str) -> str:
    """JSON of written name -> the value's own type, a colon and its text; NULL is null."""
    pairs = [f"{literal(column.name)}, {_value(f'{row}.{quoted(column.real)}')}" for column in columns]
    return "json_object(" + ",\n            ".join(pairs) + ")"


def _value(column_sql: str) -> str:
    # Of 200,000 random floats, 594 were wrong with 17 digits of SQLite's printf, none with 20.
    return (
        f"CASE typeof({column_sql}) WHEN 'blob' THEN 'blob:' || hex({column_sql})"
        f" WHEN 'real' THEN 'real:' || printf('%!.20g', {column_sql}) ELSE typeof({column_sql}) || ':' || {column_sql} END"
    )


def _when(captured: Captured) -> str:
    """Compares bytes and types: a collation takes some texts as equal, and 1 equals 1.0."""
    if captured.watched is None:
        return ""
    changed = []
    for column in columns_of(captured, captured.watched):
        old, new = f"OLD.{quoted(column.real)}", f"NEW.{quoted(column.real)}"
        changed.append(f"{old} IS NOT {new} COLLATE BINARY OR typeof({old}) <> typeof({new})")
    return "\nWHEN " + "\n    OR ".join(changed)


# ── The catalogue: our triggers, tables that cannot be captured, decoding of images ──

_STRANGE = re.compile(r"^\s*CREATE\s+VIRTUAL", re.IGNORECASE)


def _our_triggers(connection: Connection, _: SqliteDdl) -> Iterator[ExistingTrigger]:
    for row in connection.execute(QUERIES["triggers"]):
        if ours := OUR_TRIGGER.fullmatch(row.trigger_name):
            drop = f"DROP TRIGGER {quoted(row.trigger_name)}"
            yield ExistingTrigger(row.name, row.trigger_name, ours[1], drop=(drop,), text=row.text)


def _refusals(connection: Connection, _: SqliteDdl, tables: Sequence[Captured]) -> Iterator[Refusal]:
    by_name = {row[0]: row for row in connection.execute(QUERIES["master"])}
    for table in tables:
        row = by_name.get(table.table.real)
        if row is None:
            yield Refusal(f"table {table.name} is gone; pull the schema again")
        elif row[1] == "view":
            yield Refusal(f"{table.name} is a view, which has no triggers for what it reads; {VIEW_ADVICE}")
        elif _STRANGE.match(row[2] or ""):
            yield Refusal(
                f"{table.name} is a virtual table, which has no triggers; migrate the table that it shows",
                triggers_only=True,
            )


def _decode(_: Connection, __: dict[int, int]) -> Decode:
    """By the value's own type."""
    readers: dict[str, Callable[[str], Any]] = {
        "integer": int,
        "real": float,
        "text": str,
        "blob": bytes.fromhex,
    }
    return lambda word, text: readers[word](text)


CAPTURING = Capturing(
    ddl=lambda _: SqliteDdl(),
    schema=None,
    prefix="migrator_",
    triggers=_our_triggers,
    more_triggers=lambda *_: iter(()),
    leftovers=lambda _: [],
    refusals=_refusals,
    views=lambda connection, _: set(connection.scalars(QUERIES["views"])),
    limits=(),
    decode=_decode,
    # A writing transaction of SQLite locks the whole file.
    locks_rows="",
    updates_listed=UPDATES_LISTED,
    deletes_listed=DELETES_LISTED,
    log="",
)
