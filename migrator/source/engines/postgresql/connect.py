"""psycopg connections: read-only snapshots (or plain writes), exact values, one text for one key."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg._queries import PostgresQuery
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.json import set_json_loads
from psycopg.types.string import TextLoader
from sqlalchemy.engine import Connection as SqlConnection

from migrator.source.engines.base import ConnectionOptions

_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    # So that a text of a mapping ends where the gate saw its end.
    "standard_conforming_strings": "on",
    # An error where a policy would leave rows out, as pg_dump has it: an item whose row is hidden would be buried.
    "row_security": "off",
    # A page and a look at the catalog take milliseconds; compiling their plans would take a third of a second each.
    "jit": "off",
}
"""One text for a key whatever a role's defaults are, exact floats, and every row or none."""
_WRITES = {"synchronous_commit": "on"}
"""A ticket that a crash of the server gave back would be drawn twice."""
_LEVELS = {True: "READ COMMITTED READ WRITE", False: "REPEATABLE READ READ ONLY"}
"""By whether the transaction writes."""

_TIMES = ("date", "time", "timetz", "timestamp", "timestamptz")
_RANGES = ("int4", "int8", "num", "date", "ts", "tstz")
_TEXTS = (
    "interval",
    "inet",
    "cidr",
    *(f"{name}range" for name in _RANGES),
    *(f"{name}multirange" for name in _RANGES),
)
"""Types of which Python's own value would lose something (an interval its months), or has no text of its own."""


ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A connection that a firewall forgot is found broken within a minute; the system's own default is two hours."""


def prepare(connection: psycopg.Connection[Any], record: Any) -> None:
    """Settles what stays with us of a new connection. Nothing is set for its session on the server.

    Behind a pooler in transaction mode that session is a service's in the next moment, and what was set stays with it.
    """
    prepare_values(connection)
    # Transactions are opened by `begin` alone, with all that they need in one message.
    connection.autocommit = True
    # A statement that was prepared in one session of the server is unknown in the next one.
    connection.prepare_threshold = None
    connection.cursor_factory = OneStatement
    own = connection.execute("SELECT pg_catalog.current_setting('statement_timeout')").fetchone()
    record.info[_HAS_OWN_LIMIT] = own != ("0",)


def begin(connection: SqlConnection, *, connection_options: ConnectionOptions) -> None:
    """Opens a transaction that reads one snapshot, or writes, and says in the same message what holds until its end."""
    connection.exec_driver_sql(_opening(connection_options, has_own=connection.info[_HAS_OWN_LIMIT]))


class OneStatement(psycopg.Cursor[Any]):
    """A cursor that sends one statement at a time: of two in one text, the first might end the transaction."""

    def _execute_send(
        self, query: PostgresQuery, *, force_extended: bool = False, binary: bool | None = None
    ) -> None:
        # Only `begin` makes a text that begins so, and the gate lets none pass. Source: PostgreSQL's documentation,
        # "Extended Query": its query string may hold one statement alone.
        one = force_extended or not query.query.startswith(_OPENS)
        super()._execute_send(query, force_extended=one, binary=binary)


_OPENS = b"BEGIN ISOLATION LEVEL "
_HAS_OWN_LIMIT = "migrator_has_own_limit"


def _opening(connection_options: ConnectionOptions, *, has_own: bool) -> str:
    settings = {
        **_SETTINGS,
        **(_WRITES if connection_options.writes else {}),
        **_limits(connection_options, has_own=has_own),
    }
    local = (f"SET LOCAL {name} = '{value}'" for name, value in settings.items())
    return "; ".join([f"{_OPENS.decode()}{_LEVELS[connection_options.writes]}", *local])


def prepare_values(context: psycopg.Connection[Any] | psycopg.Cursor[Any]) -> None:
    """The connection (or one cursor of somebody else's) gives values as all of ours do."""
    # JSON stays text: what psycopg made of a JSON string could not be told from the text of a document.
    set_json_loads(_text, context)
    for name in _TIMES:
        context.adapters.register_loader(name, _tolerant_loader(name))
    for name in _TEXTS:
        context.adapters.register_loader(name, TextLoader)


def _limits(connection_options: ConnectionOptions, *, has_own: bool) -> dict[str, str]:
    """Time limits as settings, in milliseconds; 0 would be no limit, so they are 1 at least. `has_own`: whether the server
    ends long statements of this role by itself."""
    limits_s = {
        "statement_timeout": connection_options.limit_s(1 if has_own else 0),
        "lock_timeout": connection_options.lock_wait_s,
        "idle_in_transaction_session_timeout": connection_options.idle_s,
    }
    return {name: str(max(1, round(s * 1000))) for name, s in limits_s.items() if s is not None}


def _text(document: str | bytes) -> str:
    return document if isinstance(document, str) else document.decode()


def _tolerant_loader(type_name: str) -> type[Loader]:
    """psycopg's loader of a type, giving text for what Python has no value for (infinity, years before 1).

    So such a value refuses its row; psycopg's own loader would end the whole page.
    """
    strict: Any = psycopg.adapters.get_loader(psycopg.adapters.types[type_name].oid, Format.TEXT)

    class TolerantLoader(Loader):
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._strict = strict(oid, context)

        def load(self, data: Buffer) -> Any:
            try:
                return self._strict.load(data)
            except psycopg.DataError:
                return bytes(data).decode()

    return TolerantLoader
