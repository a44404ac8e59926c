"""Capture on MariaDB and MySQL: two tables with the prefix `migrator_`, three triggers a table."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.mapping.model.facts import Captured, Column, columns_of, digest_of
from migrator.source.engines.ddl import REFUSES, VERSION, Side, Trigger, columns_note, refusal
from migrator.source.engines.mysql.facts import UCS2

MARK_COLUMNS = f"""\
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    table_name VARCHAR(255) NOT NULL DEFAULT '' COMMENT 'schema.table; empty where a root is named',
    image_before LONGTEXT COMMENT 'JSON: column -> type:text, of UPDATE and DELETE',
    image_after LONGTEXT COMMENT 'the same, of INSERT and UPDATE',
    root_entity VARCHAR(255),
    root_key LONGTEXT,
    item_keys LONGTEXT COMMENT 'JSON: item keys that the root had',
    work_cursor LONGTEXT COMMENT 'where the work on a mark of many roots goes on',
    tries INT NOT NULL DEFAULT 0 COMMENT 'how often it failed',
    ready_at DOUBLE NOT NULL DEFAULT 0 COMMENT 'times are seconds since 1970 by the clock of this server',
    leased_until DOUBLE NOT NULL DEFAULT 0,
    lease_owner VARCHAR(255),
    changed_at DOUBLE NOT NULL,
    version SMALLINT NOT NULL DEFAULT {VERSION}"""
_FORM = "ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_EVENTS: dict[str, tuple[Side, ...]] = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}
_IMAGES = {"OLD": "image_before", "NEW": "image_after"}

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXT = ("TEXT", "CONVERT({} USING utf8mb4)")
# MySQL converts a text with half a surrogate pair to NULL; of its character sets, this one may hold it.
_UCS2 = ("UCS2", "HEX({})")
_FORMS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(_INTEGERS, ("LONGLONG", "{}")),
    "bit": ("LONGLONG", "{} + 0"),
    "decimal": ("NEWDECIMAL", "{}"),
    # FLOAT shows only six digits of its value.
    "float": ("DOUBLE", "{} + 0e0"),
    "double": ("DOUBLE", "{}"),
    "date": ("DATE", "{}"),
    "time": ("TIME", "{}"),
    "datetime": ("DATETIME", "{}"),
    # Its text would be in the session's zone, in which an hour occurs twice when the clock is set back.
    "timestamp": ("EPOCH", "UNIX_TIMESTAMP({})"),
    **dict.fromkeys(_BYTES, ("HEX", "HEX({})")),
}
"""By declared type: the word before the colon, which says how the text is decoded, and the SQL for the text."""


class MysqlDdl:
    """`home`: the database that our tables are in."""

    # Exact whatever zone the session has, unlike UNIX_TIMESTAMP(NOW(6)).
    now = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6)"

    def __init__(self, home: str) -> None:
        self.home = home
        self.mark = f"{quoted(home)}.migrator_mark"
        self.ticket = f"{quoted(home)}.migrator_ticket"

    def tables(self) -> list[str]:
        ticket = (
            "id INT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL, number BIGINT NOT NULL,"
            " installation VARCHAR(64) NOT NULL, version INT NOT NULL, job VARCHAR(255) NOT NULL,"
            " marked_by VARCHAR(16) NOT NULL, words MEDIUMTEXT NOT NULL"
        )
        return [
            f"CREATE TABLE IF NOT EXISTS {self.mark} (\n{MARK_COLUMNS}\n) {_FORM}",
            f"CREATE TABLE IF NOT EXISTS {self.ticket} ({ticket}) {_FORM}",
        ]

    def no_tables(self) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.mark}", f"DROP TABLE IF EXISTS {self.ticket}"]

    def triggers(self, captured: Captured) -> list[Trigger]:
        bodies = [self._body(captured, event) for event in _EVENTS]
        # An ALTER renames members of ENUM and SET, changes expressions and swaps names, and fires no trigger.
        words = [
            word for column in captured.table.columns if _is_read(captured, column) for word in column.words
        ]
        note = columns_note(captured, digest_of(*bodies, *words, *captured.made_by))
        digest = digest_of(note)
        return [
            self._trigger(
                captured,
                trigger_name(captured.name, event, digest),
                f"AFTER {event}",
                self._body(captured, event, f"{note}\n"),
            )
            for event in _EVENTS
        ]

    @property
    def allowed(self) -> str:
        """Whether the session is the way back's own; by database, for each may have a job of its own."""
        return f"@migrator_reverse = {literal(self.home)}"

    def refusing(self, captured: Captured) -> list[Trigger]:
        raised = f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {literal(refusal(captured.name))}"
        body = f"IF NOT COALESCE({self.allowed}, FALSE)\nTHEN {raised}; END IF"
        digest = digest_of(body)
        names = {
            event: trigger_name(captured.name, f"{REFUSES}{event.lower()}", digest, whole=True)
            for event in _EVENTS
        }
        return [self._trigger(captured, name, f"BEFORE {event}", body) for event, name in names.items()]

    def _trigger(self, captured: Captured, name: str, event: str, body: str) -> Trigger:
        home = quoted(captured.table.schema or self.home)
        table = f"{home}.{quoted(captured.table.real)}"
        create = f"CREATE TRIGGER {home}.{quoted(name)} {event} ON {table} FOR EACH ROW\n{body}"
        undo = f"DROP TRIGGER {home}.{quoted(name)}"
        return Trigger(captured.name, name, name.rpartition("_")[2], (create,), (undo,))

    def quoted(self, name: str) -> str:
        return quoted(name)

    def image(self, columns: Sequence[Column], row: str) -> str:
        return image(columns, row)

    def _body(self, captured: Captured, event: str, note: str = "") -> str:
        """One INSERT … VALUES: with SELECT it would hold the lock of the marks' ids until the service's statement ends, and
        block all other writers (innodb_autoinc_lock_mode 1, MariaDB's default)."""
        columns, sides = columns_of(captured, captured.columns), _EVENTS[event]
        targets = ", ".join(["table_name", *(_IMAGES[side] for side in sides), "changed_at"])
        values = ",\n    ".join([literal(captured.name), *(image(columns, side) for side in sides), self.now])
        insert = f"INSERT INTO {self.mark} ({targets})\n{note}VALUES ({values})"
        condition = _condition(captured) if event == "UPDATE" else ""
        return f"IF {condition}\nTHEN {insert}; END IF" if condition else insert


def _is_read(captured: Captured, column: Column) -> bool:
    """Whether it is an ENUM, a SET or generated, and items are made of it."""
    read = captured.watched is None or column.name in (*captured.columns, *captured.watched)
    return read and column.sql is None and bool(column.words)


def trigger_name(table: str, event: str, digest: str, *, whole: bool = False) -> str:
    """At most 64 letters, as the server allows. `whole`: with all of the event's name, not its first letter."""
    return f"migrator_{digest_of(table)}_{event if whole else event[0].lower()}_{digest}"


def quoted(name: str) -> str:
    # Backticks, which mean a name in every sql_mode.
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def image(columns: Sequence[Column], side: str) -> str:
    """JSON of written name -> type, a colon and the value's text; CONCAT of a NULL is NULL."""
    pairs = [f"{literal(column.name)}, {_value(column, side)}" for column in columns]
    return "JSON_OBJECT(" + ",\n        ".join(pairs) + ")"


def _value(column: Column, side: str) -> str:
    others = _UCS2 if column.declared.endswith(UCS2) else _TEXT
    word, text = _FORMS.get(declared_word(column), others)
    column_sql = f"{side}.{quoted(column.real)}"
    value = f"CONCAT('{word}:', {text.format(column_sql)})"
    # A zero date has no moment: MariaDB gives NULL, MySQL 0.
    return f"COALESCE({value}, CONCAT('TIMESTAMP:', {column_sql}))" if word == "EPOCH" else value


def _condition(captured: Captured) -> str:
    if captured.watched is None:
        return ""
    changed = (_changed(column) for column in columns_of(captured, captured.watched))
    return "\n    OR ".join(changed)


def _changed(column: Column) -> str:
    """Compares texts by their bytes, as a collation takes some as equal, and moments by their time, not by local hours."""
    word = declared_word(column)
    old, new = (f"{side}.{quoted(column.real)}" for side in ("OLD", "NEW"))
    if word == "timestamp":
        nulls = f"({old} IS NULL) <> ({new} IS NULL)"
        return f"NOT (UNIX_TIMESTAMP({old}) <=> UNIX_TIMESTAMP({new})) OR {nulls}"
    if word in _FORMS:
        return f"NOT ({old} <=> {new})"
    return f"NOT (CAST({old} AS BINARY) <=> CAST({new} AS BINARY))"


def declared_word(column: Column) -> str:
    """int of `int(10) unsigned`."""
    return column.declared.lower().partition("(")[0].partition(" ")[0]
