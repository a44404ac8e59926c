"""A psycopg connection made ready: read-only snapshots (or plain writes), exact values, one text for one key."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.json import set_json_loads
from psycopg.types.string import TextLoader

from migrator.source.manners import Manners

_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    # A page and a look at the catalog take milliseconds; compiling their plans would take a third of a second each.
    "jit": "off",
}
"""One text for a key whatever a role's defaults are, and exact floats."""
_READS = {"default_transaction_read_only": "on"}
"""No door for a COMMIT in a query."""
_WRITES = {"default_transaction_read_only": "off", "synchronous_commit": "on"}
"""A ticket that a crash of the server gave back would be drawn twice."""

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


def prepare(connection: psycopg.Connection[Any], _: object, *, manners: Manners) -> None:
    """Settles everything that a new connection needs before its first transaction."""
    prepare_values(connection)
    more = _WRITES if manners.writes else _READS
    for name, value in {**_SETTINGS, **more, **_limits(manners)}.items():
        connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))
    connection.commit()
    levels = psycopg.IsolationLevel
    connection.isolation_level = levels.READ_COMMITTED if manners.writes else levels.REPEATABLE_READ
    connection.read_only = not manners.writes


def prepare_values(context: psycopg.Connection[Any] | psycopg.Cursor[Any]) -> None:
    """The connection (or one cursor of somebody else's) gives values as all of ours do."""
    # JSON stays text: what psycopg made of a JSON string could not be told from the text of a document.
    set_json_loads(_text, context)
    for name in _TIMES:
        context.adapters.register_loader(name, _tolerant_loader(name))
    for name in _TEXTS:
        context.adapters.register_loader(name, TextLoader)


def _limits(manners: Manners) -> dict[str, str]:
    """Time limits as settings of the session, in milliseconds; 0 would be no limit, so they are 1 at least."""
    limits_s = {
        "statement_timeout": manners.statement_timeout_s,
        "lock_timeout": manners.lock_wait_s,
        "idle_in_transaction_session_timeout": manners.idle_s,
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
