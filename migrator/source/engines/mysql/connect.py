"""PyMySQL connections: read-only snapshots (or plain writes), exact values, one text per key."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pymysql import converters
from pymysql.connections import Connection as Session
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.cursors import Cursor
from sqlalchemy.engine import Connection as SqlConnection

from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.mysql.facts import HalfPairs
from migrator.source.engines.mysql.rows import BoundedSession
from migrator.source.engines.mysql.server import is_mariadb

_MODES = "ANSI_QUOTES,PIPES_AS_CONCAT"
"""With these modes a mapping's SQL means the same as on other engines: "Name" is a name, || joins texts. The list
replaces the server's own, in which NO_ZERO_DATE would refuse to compare with a zero date in a key, and
PAD_CHAR_TO_FULL_LENGTH would change texts."""

_LONGEST_TEXT_BYTES = 2**30
SESSION: Mapping[str, Any] = {
    "time_zone": "+00:00",
    "sql_mode": _MODES,
    # Both would cut an answer without an error.
    "group_concat_max_len": _LONGEST_TEXT_BYTES,
    "sql_select_limit": 2**64 - 1,
}
"""Settings of a session that values depend on."""
PlainCursor = Cursor
_TOLERANT_UTF8 = "migrator_tolerant_utf8"


def from_text(type_code: int, text: str) -> Any:
    """The value that our connections return for a column of this type (a FIELD_TYPE) sent as this text."""
    return arguments(None)["conv"][type_code](text)


def arguments(password: str | None) -> dict[str, Any]:
    """Arguments of every connection, whatever the URL says."""
    options = {
        "charset": "utf8mb4",
        "use_unicode": True,
        "sql_mode": _MODES,
        # Not MULTI_STATEMENTS. An UPDATE counts the rows that it finds, as on other servers; the journal relies on it.
        "client_flag": CLIENT.FOUND_ROWS,
        "conv": {
            **converters.conversions,
            FIELD_TYPE.TIMESTAMP: _zoned,
            FIELD_TYPE.TIME: converters.convert_time,  # a time of day, not a span; text where it is none
            FIELD_TYPE.BIT: _bits,
            datetime: _literal,
            HalfPairs: lambda text, _: f"_ucs2 X'{text.digits}'",
        },
    }
    # PyMySQL would encode text as Latin-1; servers keep what their own client sends, which is UTF-8.
    return options | ({"password": password.encode()} if password else {})


def prepare(connection: Session[Any], _: object, *, connection_options: ConnectionOptions) -> None:
    """Sets everything that a new connection needs before its first transaction."""
    prepare_values(connection)
    if not connection_options.writes:
        connection.__class__ = BoundedSession
        connection.answer_bytes = connection_options.answer_bytes
    # For an ALTER TABLE; the server's own limit is a day or a year.
    wait_s = max(1, round(connection_options.lock_wait_s))
    settings = {
        **_limits(connection, connection_options),
        "lock_wait_timeout": wait_s,
        "innodb_lock_wait_timeout": wait_s,
        **SESSION,
    }
    with connection.cursor() as cursor:
        words = ", ".join(f"SESSION {name} = %s" for name in settings)
        cursor.execute(f"SET {words}", tuple(settings.values()))
        if connection_options.writes:
            cursor.execute(f"SET SESSION sql_mode = '{_MODES},STRICT_ALL_TABLES'")
            # REPEATABLE READ would lock the gap into which a service's next mark is inserted.
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        else:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def prepare_values(connection: Any, *, is_async: bool = False) -> None:
    """Makes a connection (PyMySQL's or aiomysql's) return values as ours do; the attributes it sets are in values_of."""
    conversions = arguments(None)["conv"]
    connection.use_unicode = True
    setattr(connection, _encoding(is_async=is_async), _TOLERANT_UTF8)
    connection.encoders = {kind: encode for kind, encode in conversions.items() if type(kind) is not int}
    connection.decoders = {kind: decode for kind, decode in conversions.items() if type(kind) is int}


def values_of(connection: Any, *, is_async: bool = False) -> dict[str, Any]:
    """The present attributes of a connection that values depend on."""
    names = ("use_unicode", _encoding(is_async=is_async), "encoders", "decoders")
    return {name: getattr(connection, name) for name in names}


def _encoding(*, is_async: bool) -> str:
    return "_encoding" if is_async else "encoding"


def _limits(connection: Session[Any], connection_options: ConnectionOptions) -> Mapping[str, float]:
    """Time limits as settings of the session, with the names of MariaDB or MySQL.

    Source: MariaDB Knowledge Base, "max_statement_time" (s), "idle_transaction_timeout" (s); MySQL Reference Manual,
    "max_execution_time" (ms). MySQL has no limit for idle transactions alone: wait_timeout ends idle connections.
    """
    of_mariadb = is_mariadb(str(connection.get_server_info()))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT @@{'max_statement_time' if of_mariadb else 'max_execution_time'}")
        (own,) = cursor.fetchone() or (0,)
    idle_s, limit_s = max(1, round(connection_options.idle_s)), connection_options.limit_s(float(own))
    if of_mariadb:
        return {"idle_transaction_timeout": idle_s} | ({"max_statement_time": limit_s} if limit_s else {})
    return {"wait_timeout": idle_s} | (
        {"max_execution_time": max(1, round(limit_s * 1000))} if limit_s else {}
    )


def begin(connection: SqlConnection) -> None:
    # A snapshot at the first SELECT would do; READ ONLY is repeated here, since a query may change the default.
    connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


def _zoned(text: str) -> Any:
    """A TIMESTAMP, in UTC as the session is; text where Python has no value for it, as from PyMySQL."""
    moment = converters.convert_datetime(text)
    return moment.replace(tzinfo=UTC) if isinstance(moment, datetime) else moment


def _bits(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _literal(moment: datetime, mapping: Any = None) -> str:
    """The SQL literal in UTC; PyMySQL's own function would drop the zone."""
    return str(converters.escape_datetime(moment.astimezone(UTC) if moment.tzinfo else moment, mapping))


def _tolerant_utf8(name: str) -> codecs.CodecInfo | None:
    """UTF-8 that decodes every byte, and encodes it again: utf8mb3 columns may hold half a surrogate pair.

    So one such text refuses its row, and a key with it finds its row; PyMySQL's strict codec would end the whole page.
    """
    if name != _TOLERANT_UTF8:
        return None
    return codecs.CodecInfo(
        name=_TOLERANT_UTF8,
        encode=lambda text, errors="strict": codecs.utf_8_encode(text, "surrogateescape"),
        decode=lambda data, errors="strict": codecs.utf_8_decode(data, "surrogateescape", True),
    )


codecs.register(_tolerant_utf8)
