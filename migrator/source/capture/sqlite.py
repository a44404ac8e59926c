"""Capture on SQLite: two tables with the prefix `migrator_`, triggers for each table."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.facts import Column
from migrator.mapping.changes import Captured
from migrator.source.capture.design import VERSION, Side, Trigger, columns_of, digest_of

_NOW = "(julianday('now') - 2440587.5) * 86400.0"
MARK_COLUMNS = f"""\
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    table_name TEXT NOT NULL DEFAULT '',      -- '' where a root is named
    image_before TEXT,                        -- JSON: column -> type:text, of UPDATE and DELETE
    image_after TEXT,                         -- the same, of INSERT and UPDATE
    root_entity TEXT,
    root_key TEXT,
    item_keys TEXT NOT NULL DEFAULT '[]',     -- JSON: item keys that the root had
    work_cursor TEXT NOT NULL DEFAULT '',     -- where the work on a mark of many roots goes on
    tries INTEGER NOT NULL DEFAULT 0,         -- how often it failed
    ready_at REAL NOT NULL DEFAULT 0,         -- times are seconds since 1970, by this machine's clock
    leased_until REAL NOT NULL DEFAULT 0,
    lease_owner TEXT,
    changed_at REAL NOT NULL DEFAULT ({_NOW}),
    version INTEGER NOT NULL DEFAULT {VERSION}"""
_EVENTS: dict[str, tuple[Side, ...]] = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}
_IMAGES = {"OLD": "image_before", "NEW": "image_after"}


class SqliteDdl:
    mark = "migrator_mark"
    ticket = "migrator_ticket"
    now = f"({_NOW})"

    def tables(self) -> list[str]:
        ticket = (
            "id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, number INTEGER NOT NULL,"
            " installation TEXT NOT NULL, version INTEGER NOT NULL, job TEXT NOT NULL"
        )
        return [
            f"CREATE TABLE IF NOT EXISTS {self.mark} (\n{MARK_COLUMNS}\n)",
            f"CREATE TABLE IF NOT EXISTS {self.ticket} ({ticket})",
        ]

    def no_tables(self) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.mark}", f"DROP TABLE IF EXISTS {self.ticket}"]

    def triggers(self, captured: Captured) -> list[Trigger]:
        bodies = {event: self._body(captured, event) for event in _EVENTS}
        digest = digest_of(*bodies.values())
        table = quoted(captured.table.real)
        return [
            Trigger(
                captured.name,
                name,
                digest,
                (f"CREATE TRIGGER {name} AFTER {event} ON {table}{body}",),
                (f"DROP TRIGGER {name}",),
            )
            for event, body in bodies.items()
            for name in [trigger_name(captured.name, event, digest)]
        ]

    def _body(self, captured: Captured, event: str) -> str:
        columns, sides = columns_of(captured, captured.columns), _EVENTS[event]
        targets = ", ".join(["table_name", *(_IMAGES[side] for side in sides)])
        values = ",\n        ".join([literal(captured.name), *(image(columns, side) for side in sides)])
        when = _when(captured) if event == "UPDATE" else ""
        return (
            f" FOR EACH ROW{when}\nBEGIN\n"
            f"    INSERT INTO {self.mark} ({targets}) VALUES (\n        {values});\nEND"
        )


def trigger_name(table: str, event: str, digest: str) -> str:
    return f"migrator_{digest_of(table)}_{event[0].lower()}_{digest}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def image(columns: Sequence[Column], row: str) -> str:
    """JSON of written name -> the value's own type, a colon and its text; NULL is null."""
    pairs = [f"{literal(column.name)}, {_value(f'{row}.{quoted(column.real)}')}" for column in columns]
    return "json_object(" + ",\n            ".join(pairs) + ")"


def _value(held: str) -> str:
    # Of 200,000 random floats 17 digits of SQLite's printf gave 594 wrong, 20 none.
    return (
        f"CASE typeof({held}) WHEN 'blob' THEN 'blob:' || hex({held})"
        f" WHEN 'real' THEN 'real:' || printf('%!.20g', {held}) ELSE typeof({held}) || ':' || {held} END"
    )


def _when(captured: Captured) -> str:
    """Compares bytes and types: a collation takes two texts for one, and 1 is 1.0."""
    if captured.watched is None:
        return ""
    changed = []
    for column in columns_of(captured, captured.watched):
        old, new = f"OLD.{quoted(column.real)}", f"NEW.{quoted(column.real)}"
        changed.append(f"{old} IS NOT {new} COLLATE BINARY OR typeof({old}) <> typeof({new})")
    return "\nWHEN " + "\n    OR ".join(changed)
