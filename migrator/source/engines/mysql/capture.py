"""Capture on MariaDB and MySQL: our triggers in the catalogue, tables that cannot be captured, decoding of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured
from migrator.source.engines.base import VIEW_ADVICE, Capturing, Decode, Refusal
from migrator.source.engines.ddl import ExistingTrigger, Trigger
from migrator.source.engines.mysql.cascades import cascades, circles, covers
from migrator.source.engines.mysql.grants import rights_of_user
from migrator.source.engines.mysql.triggers import MysqlDdl, quoted
from migrator.source.engines.shared import OUR_TRIGGER

_TRIGGERS = sa.text("""
    SELECT TRIGGER_SCHEMA AS `schema`, EVENT_OBJECT_TABLE AS name, TRIGGER_NAME AS `trigger`, ACTION_STATEMENT AS body
    FROM information_schema.TRIGGERS ORDER BY 1, 2, 3
""")
# One query per table: without a table's name the server would open all tables.
_TABLE = sa.text("""
    SELECT TABLE_TYPE AS kind, ENGINE AS engine
    FROM information_schema.TABLES WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name
""")
_VIEWS = sa.text("""
    SELECT TABLE_SCHEMA AS `schema`, TABLE_NAME AS name FROM information_schema.TABLES WHERE TABLE_TYPE = 'VIEW'
""")
_OWN = ("migrator_mark", "migrator_ticket")
_OWN_RIGHTS = ("INSERT", "UPDATE", "DELETE", "SELECT")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _ddl(connection: Connection) -> MysqlDdl:
    """Our tables are in the database that the URL names."""
    return MysqlDdl(str(connection.exec_driver_sql("SELECT DATABASE()").scalar_one()))


# ── triggers of ours ──


def _our_triggers(connection: Connection, ddl: MysqlDdl) -> Iterator[ExistingTrigger]:
    for row in connection.execute(_TRIGGERS):
        ours = OUR_TRIGGER.fullmatch(row.trigger)
        # Another database of the server may have a capture of its own.
        if ours is None or not (f"INSERT INTO {ddl.mark} " in row.body or ddl.allowed in row.body):
            continue
        table = row.name if row.schema == ddl.home else f"{row.schema}.{row.name}"
        drop = f"DROP TRIGGER {quoted(row.schema)}.{quoted(row.trigger)}"
        yield ExistingTrigger(table, row.trigger, ours[1], drop=(drop,), text=row.body)


def _of_parents(connection: Connection, tables: Sequence[Captured], ddl: MysqlDdl) -> Iterator[Trigger]:
    """Triggers on parents whose foreign keys change captured tables."""
    yield from covers(cascades(connection), tables, ddl)


# ── what cannot be captured ──


def _views(connection: Connection, ddl: MysqlDdl) -> set[str]:
    rows = connection.execute(_VIEWS)
    return {row.name if row.schema == ddl.home else f"{row.schema}.{row.name}" for row in rows}


def _refusals(connection: Connection, ddl: MysqlDdl, tables: Sequence[Captured]) -> Iterator[Refusal]:
    may, user = rights_of_user(connection), connection.exec_driver_sql("SELECT CURRENT_USER()").scalar_one()
    user = "@".join(f"'{part}'" for part in str(user).rsplit("@", 1))
    for own in _OWN:
        rights = _OWN_RIGHTS if sa.inspect(connection).has_table(_OWN[1]) else ("CREATE", *_OWN_RIGHTS)
        if missing := ", ".join(right for right in rights if not may(right, ddl.home, own)):
            # CREATE may be granted on a table that does not exist yet.
            grant = f"GRANT {missing} ON {quoted(ddl.home)}.{own} TO {user}"
            yield Refusal(f"this user lacks {missing} on our table {own} in database {ddl.home}; {grant}")
    log, trusted = connection.exec_driver_sql("SELECT @@log_bin, @@log_bin_trust_function_creators").one()
    if log and not trusted and not may("SUPER", ""):
        what = "the server keeps a binary log and takes triggers from users with SUPER only"
        yield Refusal(
            f"{what}; SET GLOBAL log_bin_trust_function_creators = 1 (on RDS in the parameter group)",
            triggers_only=True,
        )
    for table in tables:
        schema = table.table.schema or ddl.home
        row = connection.execute(_TABLE, {"schema": schema, "name": table.table.real}).first()
        if row is None:
            yield Refusal(f"table {table.name} is gone; pull the schema again")
        elif row.kind == "VIEW":
            yield Refusal(f"{table.name} is a view, which has no triggers; {VIEW_ADVICE}")
        elif row.engine != "InnoDB":
            what = f"is kept by {row.engine}, which knows no transactions: a change could be there without its mark"
            yield Refusal(f"table {table.name} {what}; ALTER TABLE … ENGINE = InnoDB")
        elif not may("TRIGGER", schema, table.table.real):
            grant = f"GRANT TRIGGER ON {quoted(schema)}.{quoted(table.table.real)} TO {user}"
            yield Refusal(f"table {table.name}: this user lacks TRIGGER; {grant}", triggers_only=True)
    for name, circle in circles(cascades(connection), tables, ddl.home):
        keys = ", ".join(f"{key.name} of {key.child[1]}" for key in reversed(circle))
        what = f"foreign keys reach it in a circle of ON DELETE CASCADE ({keys}), and fire no trigger here"
        yield Refusal(
            f"table {name}: {what}; let one of them RESTRICT and the service delete the rows itself",
            triggers_only=True,
        )


# ── images ──


def _decode(_: Connection, __: dict[int, int]) -> Decode:
    from pymysql.constants import FIELD_TYPE

    from migrator.source.engines.mysql.connect import from_text

    own: dict[str, Callable[[str], Any]] = {"TEXT": str, "HEX": bytes.fromhex, "EPOCH": _moment}

    def decode(word: str, text: str) -> Any:
        return own[word](text) if word in own else from_text(getattr(FIELD_TYPE, word), text)

    return decode


def _moment(seconds: str) -> datetime | str:
    """The value of a TIMESTAMP; 0 seconds is the server's zero date, which the driver leaves as text."""
    number = Decimal(seconds)
    if not number:
        return "0000-00-00 00:00:00" + seconds[1:]
    whole = int(number)
    return _EPOCH + timedelta(seconds=whole, microseconds=int((number - whole) * 1_000_000))


CAPTURING = Capturing(
    ddl=_ddl,
    schema=None,
    prefix="migrator_",
    triggers=_our_triggers,
    more_triggers=_of_parents,
    leftovers=lambda _: [],
    refusals=_refusals,
    views=_views,
    limits=("TRUNCATE and ALTER TABLE … DROP PARTITION fire no trigger here: use DELETE on captured tables",),
    decode=_decode,
    locks_rows=" FOR UPDATE SKIP LOCKED",
    # With FORCE INDEX (PRIMARY), too, it waits for marks of transactions that are still open.
    locks_by_list=False,
    reads_log=False,
)
