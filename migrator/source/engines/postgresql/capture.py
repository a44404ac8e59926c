"""Capture on PostgreSQL: triggers that leave marks, and their state in the catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured, Column, columns_of, digest_of
from migrator.runtime.values import replace
from migrator.source.engines.base import VIEW_ADVICE, Capturing, Decode, Refusal
from migrator.source.engines.catalogue import Queries, qualified, quoted
from migrator.source.engines.ddl import (
    DELETES_LISTED,
    REFUSES,
    UPDATES_LISTED,
    VERSION,
    ExistingTrigger,
    Trigger,
    refusal,
    trigger_name,
    words_note,
)
from migrator.source.engines.postgresql.facts import QUERIES, TEXTS
from migrator.source.engines.postgresql.server import named

# ── Statements: the schema `migrator`, one trigger function a table, three triggers that call it ──

SCHEMA = "migrator"
_SQL = Queries("migrator.source.engines.postgresql", "capture.sql")

# Images are written with our own connections' settings, not those of the service's session.
_SETTINGS = {
    "search_path": "pg_catalog, pg_temp",
    **{name: value if value.isdecimal() else f"'{value}'" for name, value in TEXTS.items()},
    "row_security": "off",
}
_NEEDED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric", "boolean", "uuid"), ()),
    **dict.fromkeys(("text", "character varying", "character"), ()),
    **dict.fromkeys(("date", "timestamp without time zone"), ("DateStyle",)),
    "timestamp with time zone": ("DateStyle", "TimeZone"),
    **dict.fromkeys(("real", "double precision"), ("extra_float_digits",)),
    "bytea": ("bytea_output",),
}
"""Settings by which the text of a type differs; of all others it may differ by any. Each costs every call some µs."""
PARTS = {"row": "migrator_row", "update": "migrator_update", "truncate": "migrator_truncate"}

_REFUSED = {
    REFUSES: "INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW",
    f"{REFUSES}truncate": "TRUNCATE ON {} FOR EACH STATEMENT",
}


def literal(text: str) -> str:
    # The form with E keeps a backslash with any standard_conforming_strings.
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def image(columns: Sequence[Column], row: str) -> str:
    """JSON of written name -> the type's oid, a colon and the value's text; NULL is null."""
    names = ", ".join(literal(column.name) for column in columns)
    values = ",\n            ".join(_value(column, row) for column in columns)
    text = "pg_catalog.text"
    return (
        f"pg_catalog.json_object(ARRAY[{names}]::{text}[], ARRAY[\n            {values}]::{text}[])::{text}"
    )


def _value(column: Column, row: str) -> str:
    # concat() takes the type's output, as a SELECT does; a cast to text would trim char(n) and widen an inet.
    column_sql = f"{row}.{quoted(column.real)}"
    if column.virtual and row in ("OLD", "NEW"):
        # In a trigger's rows such a column is NULL.
        column_sql = f"(SELECT {column.virtual} FROM (SELECT {row}.*) AS made)"
    if column.kind.read_as:
        column_sql = f"CAST({column_sql} AS {column.kind.read_as})"
    if column.kind.name in ("list", "map"):
        column_sql = f"pg_catalog.to_json({column_sql})"
    type_ = f"pg_catalog.pg_typeof({column_sql})::pg_catalog.oid"
    return (
        f"CASE WHEN {column_sql} IS DISTINCT FROM NULL THEN pg_catalog.concat({type_}, ':', {column_sql}) END"
    )


def _settings(captured: Captured) -> dict[str, str]:
    needed: set[str] = set()
    for column in columns_of(captured, captured.columns):
        declared = re.sub(r"\(.*?\)", "", column.declared)
        made = column.virtual or column.kind.read_as
        needed.update(_SETTINGS if made else _NEEDED.get(declared, _SETTINGS))
    return {name: value for name, value in _SETTINGS.items() if name in needed}


class PostgresqlDdl:
    mark = f"{SCHEMA}.mark"
    ticket = f"{SCHEMA}.ticket"
    now = "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
    quoted = staticmethod(quoted)
    image = staticmethod(image)

    def tables(self) -> list[str]:
        ticket = (
            "id integer PRIMARY KEY CHECK (id = 1), epoch bigint NOT NULL, number bigint NOT NULL,"
            " installation text NOT NULL, version integer NOT NULL, job text NOT NULL, marked_by text NOT NULL,"
            " words text NOT NULL"
        )
        return [
            f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
            _SQL.text("mark_table", mark=self.mark, version=VERSION),
            f"CREATE TABLE IF NOT EXISTS {self.ticket} ({ticket})",
        ]

    def no_tables(self) -> list[str]:
        return [
            f"DROP TABLE IF EXISTS {self.mark}",
            f"DROP TABLE IF EXISTS {self.ticket}",
            f"DROP SCHEMA IF EXISTS {SCHEMA}",
        ]

    def triggers(self, captured: Captured) -> list[Trigger]:
        table = qualified(captured.table.schema, captured.table.real)
        body, when = self._body(captured), _when(captured)
        settings = "".join(f"    SET {name} = {value}\n" for name, value in _settings(captured).items())
        digest = digest_of(body, when, settings)
        function = f"{SCHEMA}.{function_name(captured.name, digest)}"
        create_function = (
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
            f"{settings}AS $migrator${words_note(captured)}{body}$migrator$"
        )
        timing = {
            "row": f"AFTER INSERT OR DELETE ON {table} FOR EACH ROW",
            "update": f"AFTER UPDATE ON {table} FOR EACH ROW{when}",
            "truncate": f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT",
        }
        triggers = [
            _trigger(captured.name, PARTS[part], digest, table, event, function)
            for part, event in timing.items()
        ]
        first, last = triggers[0], triggers[-1]
        triggers[0] = replace(first, create=(create_function, *first.create))
        triggers[-1] = replace(last, undo=(*last.undo, f"DROP FUNCTION {function}()"))
        return triggers

    def refusing(self, captured: Captured) -> list[Trigger]:
        """Refuse each row, for partitions and deletes by cascade."""
        body = _body("refusing", refusal=refusal("%"))
        digest, table = digest_of(body), qualified(captured.table.schema, captured.table.real)
        function = f"{SCHEMA}.{REFUSES}_{digest}"
        returns = "RETURNS trigger LANGUAGE plpgsql"
        create_function = f"CREATE OR REPLACE FUNCTION {function}() {returns} AS $migrator${body}$migrator$"
        triggers = []
        for part, words in _REFUSED.items():
            name, event = trigger_name(captured.name, part, digest), f"BEFORE {words.format(table)}"
            trigger = _trigger(captured.name, name, digest, table, event, function)
            triggers.append(replace(trigger, create=(create_function, *trigger.create)))
        return triggers

    def of_partition(self, captured: Captured, schema: str, partition: str) -> Trigger:
        """A trigger for TRUNCATE of a partition alone, which does not fire the parent's trigger."""
        digest = self.triggers(captured)[0].digest
        table, function = qualified(schema, partition), f"{SCHEMA}.{function_name(captured.name, digest)}"
        event = f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT"
        return _trigger(f"{schema}.{partition}", PARTS["truncate"], digest, table, event, function)

    def _body(self, captured: Captured) -> str:
        columns = columns_of(captured, captured.columns)
        name = literal(captured.name)
        # For the truncated table or partition, whose name is known only at run time.
        rows_select = f"SELECT {name}, {image(columns, 'gone')}"
        truncated = (
            f"INSERT INTO {self.mark} (table_name, image_before) {rows_select}".replace("%", "%%")
            + " FROM %s AS gone"
        )
        old, new = (image(columns, side) for side in ("OLD", "NEW"))
        return _body("capturing", mark=self.mark, name=name, truncated=literal(truncated), old=old, new=new)


def _body(query: str, **values: str) -> str:
    return f"\n{_SQL.text(query, **values)}\n"


def _trigger(of: str, name: str, digest: str, table: str, event: str, function: str) -> Trigger:
    create = (
        f"CREATE OR REPLACE TRIGGER {name} {event} EXECUTE FUNCTION {function}()",
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
    )
    return Trigger(of, name, digest, create, (f"DROP TRIGGER {name} ON {table}",))


def function_name(table: str, digest: str) -> str:
    return f"capture_{digest_of(table)}_{digest}"


def _when(captured: Captured) -> str:
    """Compares bytes, which every type has, and in which no collation takes two texts as equal."""
    if captured.watched is None:
        return ""
    columns = columns_of(captured, captured.watched)
    old, new = (", ".join(f"{side}.{quoted(column.real)}" for column in columns) for side in ("OLD", "NEW"))
    return f"\n    WHEN (pg_catalog.record_image_ne(ROW({old}), ROW({new})))"


# ── The catalogue: our triggers, tables that cannot be captured, decoding of images ──

_WHERE_AND_WHO = "SELECT quote_ident(current_database()), quote_ident(current_user)"
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_ALWAYS = "A"

# ── triggers of ours ──


def _our_triggers(connection: Connection, _: PostgresqlDdl) -> Iterator[ExistingTrigger]:
    for row in connection.execute(QUERIES["triggers"]):
        drop = f"DROP TRIGGER {quoted(row.trigger)} ON {qualified(row.schema, row.name)}"
        digest = row.function.rpartition("_")[2]
        yield ExistingTrigger(
            *(f"{row.schema}.{row.name}", row.trigger, digest, row.enabled == _ALWAYS, (drop,), row.text),
            calls=_function_drop(row.function),
        )


def _of_partitions(
    connection: Connection, tables: Sequence[Captured], ddl: PostgresqlDdl
) -> Iterator[Trigger]:
    for table in tables:
        names = {"schema": table.table.schema or "", "table": table.table.real}
        for row in connection.execute(QUERIES["partitions"], names):
            yield ddl.of_partition(table, row.schema, row.name)


def _function_drop(name: str) -> str:
    return f"DROP FUNCTION {SCHEMA}.{name}()"


# ── refusals ──


def _refusals(connection: Connection, _: PostgresqlDdl, tables: Sequence[Captured]) -> Iterator[Refusal]:
    names = named(connection, [table.name for table in tables])
    by_name = {row.name: row for row in connection.execute(QUERIES["table_kinds"], names)}
    if not connection.execute(QUERIES["may_create"], {"schema": SCHEMA}).scalar_one():
        what = f"this user may not make tables in a schema {SCHEMA}"
        database, user = connection.exec_driver_sql(_WHERE_AND_WHO).one()
        yield Refusal(
            f"{what}; GRANT CREATE ON DATABASE {database} TO {user},"
            f" or CREATE SCHEMA {SCHEMA} AUTHORIZATION {user}"
        )
    for table in tables:
        row = by_name.get(table.name)
        if row is None:
            yield Refusal(f"table {table.name} is gone; pull the schema again")
        elif row.kind in _KINDS:
            yield Refusal(f"{table.name} is {_KINDS[row.kind]}, which has no triggers; {VIEW_ADVICE}")
        elif row.kind == "r" and row.has_heirs:
            what = "has tables that inherit from it, whose changes are not captured"
            yield Refusal(
                f"table {table.name} {what}; partition it, or migrate the heirs as tables of their own"
            )
        elif not row.owned:
            yield Refusal(
                f"table {table.name}: only its owner may make its triggers fire always; connect as the owner",
                triggers_only=True,
            )


# ── images: the type's oid, then its output; read by the connection's own loaders ──


def _decode(connection: Connection, domains: dict[int, int]) -> Decode:
    import psycopg
    from psycopg.adapt import Transformer
    from psycopg.pq import Format

    driver: Any = connection.connection.driver_connection

    @cache
    def loader(word: str) -> Callable[[bytes], Any]:
        loads, type_ = Transformer(driver), _base_type(connection, int(word), domains)
        if type_ == _MONEY:
            scale = 2 - _decimals(connection, domains)
            return lambda data: Decimal(re.sub(b"[$,]", b"", data).decode(errors="replace")).scaleb(scale)
        return loads.get_loader(type_, Format.TEXT).load

    def decode(word: str, text: str) -> Any:
        load = loader(word)
        try:
            return load(text.encode(errors="surrogateescape"))
        except (psycopg.DataError, ArithmeticError):
            return text

    return decode


_MONEY = 790
"""Only a log has its text, as the locale C writes it: a trigger casts money to a number.

Source: PostgreSQL, src/include/catalog/pg_type.dat.
"""
_LAST = 2**32 - 1
_FIRST_OF_USERS = 16_384
"""Below are PostgreSQL's own types. Source: PostgreSQL, src/include/access/transam.h, FirstNormalObjectId."""


def _decimals(connection: Connection, known: dict[int, int]) -> int:
    """Decimals of money in rows: those of the database's locale, where C has two."""
    if _MONEY not in known:
        query = "SELECT pg_catalog.scale(CAST(CAST(0 AS money) AS numeric))"
        known[_MONEY] = int(connection.exec_driver_sql(query).scalar_one())
    return known[_MONEY]


def _base_type(connection: Connection, oid: int, base_types: dict[int, int]) -> int:
    """A domain's base type, which the server names with the value. An unknown type is text."""
    if oid < _FIRST_OF_USERS:
        return oid
    if oid > _LAST:
        raise ValueError("no oid is as large as that")
    if oid not in base_types:
        query = "SELECT typbasetype FROM pg_catalog.pg_type WHERE oid = %s AND typtype = 'd'"
        base = connection.exec_driver_sql(query, (oid,)).scalar()
        base_types[oid] = oid if base is None else _base_type(connection, int(base), base_types)
    return base_types[oid]


CAPTURING = Capturing(
    ddl=lambda _: PostgresqlDdl(),
    schema=SCHEMA,
    prefix="",
    triggers=_our_triggers,
    more_triggers=_of_partitions,
    hidden=lambda *_: False,
    leftovers=lambda connection: list(map(_function_drop, connection.scalars(QUERIES["functions"]))),
    refusals=_refusals,
    views=lambda connection, _: set(connection.scalars(QUERIES["views"])),
    limits=(),
    decode=_decode,
    locks_rows=" FOR UPDATE SKIP LOCKED",
    updates_listed=UPDATES_LISTED,
    deletes_listed=DELETES_LISTED,
    log="slot",
)
