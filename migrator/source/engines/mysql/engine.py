"""MariaDB and MySQL as sources, by PyMySQL: the engine object, and how its SQL is read and written."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection
from sqlglot.dialects.mysql import MySQL

from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.facts import Kind
from migrator.runtime.errors import SettingsError
from migrator.runtime.system import how_to_install
from migrator.source.engines.base import Connecting, ConnectionOptions, Engine, Schema, Sql, UrlKeeper
from migrator.source.engines.mysql import facts
from migrator.source.engines.mysql import facts as types_mysql
from migrator.source.engines.mysql.adapter import OUTCOMES, SESSIONS, STATEMENTS
from migrator.source.engines.mysql.capture import CAPTURING
from migrator.source.engines.mysql.grants import GRANTING
from migrator.source.engines.mysql.row_writing import ROWS
from migrator.source.engines.mysql.server import ERRORS, SERVER, WRITERS
from migrator.source.engines.row_writing import single
from migrator.source.engines.shared import (
    AS_TEXT,
    BACKSLASHED,
    BLANK,
    BLOCK,
    CLOCKS,
    CONNECT_TIMEOUT_S,
    OF_SEQUENCES,
    PARAMETER,
    SIZED,
    lexer,
    refuse_stray_at,
    server_engine,
    unless_in,
)

# ── SQL of MariaDB and MySQL: parsing, refused functions, and the forms of values and columns in our statements ──


class AnsiMySQL(MySQL):
    """MySQL with the settings of our connections (ANSI_QUOTES): "name" is a name, as on the other engines."""

    class Tokenizer(MySQL.Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`", '"']


_PARAMETERS = lexer(
    rf'{BACKSLASHED}|"(?:[^"]|"")*"|`[^`]*`'
    rf"|(?P<comment>/\*.*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*)|{PARAMETER}"
)
_BETWEEN = re.compile(rf"(?:{BLANK}|{BLOCK}|--(?=[ \t\r\n]|\Z)[^\r\n]*|#[^\r\n]*)*", re.DOTALL)
_UTC = "+00:00"
_REFUSED = (
    *("load_file", "sleep", "benchmark", "get_lock", "release_lock", "release_all_locks", *OF_SEQUENCES),
    *(
        "sys_*",
        "*_wait",
        "wait_*",
        "spider_*",
        "keyring_*",
        "audit_*",
        "group_replication_*",
        "asynchronous_*",
        # Aurora's calls of Lambda functions.
        "lambda_*",
    ),
)
_VOLATILE = (
    CLOCKS
    | {"now", "sysdate", "curdate", "curtime", "rand", "uuid", "uuid_short", "sys_guid", "random_bytes"}
    | {"connection_id", "user", "system_user", "last_insert_id", "found_rows", "row_count", "nextval"}
    | {"lastval", "setval", "sleep", "get_lock"}
)
_ROUTINES = sa.text("""
        SELECT CASE WHEN SQL_DATA_ACCESS IN ('READS SQL DATA', 'MODIFIES SQL DATA')
            THEN concat('is declared ', SQL_DATA_ACCESS) ELSE 'is declared NOT DETERMINISTIC' END
        FROM information_schema.ROUTINES
        WHERE ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_NAME = :name
            AND ROUTINE_SCHEMA = CASE WHEN :schema = '' THEN DATABASE() ELSE :schema END
            AND (IS_DETERMINISTIC = 'NO' OR SQL_DATA_ACCESS IN ('READS SQL DATA', 'MODIFIES SQL DATA'))
    """)


def _without_zone(moment: datetime) -> str:
    return (moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment).isoformat(" ")


_FIRST_OF_HALF = "\udced"
"""The first byte of half a surrogate pair, as our connections return it."""


def _comparable(value: Any, kind: Kind) -> Any:
    """Converts a text that stands for a number, bits or a moment, and the short form of a FLOAT to all that it holds."""
    if kind.name == "float" and kind.single:
        return single(Decimal(value))
    if not isinstance(value, str):
        return value
    if _FIRST_OF_HALF in value:
        return facts.HalfPairs.of(value) or value
    if kind.name == "bits":
        return int(value, 2)
    if kind.name == "number":
        # MySQL compares a DECIMAL with text as binary floats: neighbours of 16 digits would be equal.
        try:
            return Decimal(value)
        except InvalidOperation:
            return value
    # MariaDB accepts no offset in a moment; the session's zone is UTC.
    return value.removesuffix(_UTC) if kind.name == "timestamp" and kind.zone else value


SQL = Sql(
    reader=AnsiMySQL,
    quote="`",
    parameters=_PARAMETERS,
    # Its columns hold no zone; the session's is UTC.
    forms={**AS_TEXT, datetime: _without_zone},
    comparable=_comparable,
    integer_bits=None,
    between=_BETWEEN,
    sets_variables=True,
    escapes_names=False,
    refused=_REFUSED,
    refused_columns=(),
    sized=SIZED | {"space": 0},
    volatile=_VOLATILE,
    routines=_ROUTINES,
    folds_names=False,
    recurses_unasked=False,
    traits=frozenset(
        {
            "rounds floats",
            "compares in hex",
            "zero date is NULL",
            "enums by place",
            "rows compared as a whole",
        }
    ),
)


# ── MariaDB and MySQL as sources, by PyMySQL: one engine, since SQLAlchemy has one dialect for both ──

_NAME = "mysql"
_MARIADB = "mariadb"
_SCHEME = "mysql+pymysql"

# ── connections ──


def _checked_url(url: URL, _: str) -> URL:
    refuse_stray_at(url)
    if not url.database:
        raise SettingsError("source: the URL names no database; write mysql://user@host:3306/database")
    try:
        import pymysql  # noqa: F401  (an extra: SQLite alone needs no driver)
    except ImportError:
        what = "source: MySQL and MariaDB need their driver, PyMySQL"
        raise SettingsError(f"{what}; {how_to_install('mysql')}") from None
    return url.set(drivername=_SCHEME)


def _opened(address: UrlKeeper, connection_options: ConnectionOptions) -> sa.Engine:
    from migrator.source.engines.mysql import connect  # needs PyMySQL, an extra that SQLite does without

    defaults: dict[str, Any] = {"program_name": connection_options.name, "connect_timeout": CONNECT_TIMEOUT_S}
    if connection_options.statement_timeout_s:
        defaults["read_timeout"] = math.ceil(
            connection_options.statement_timeout_s + connection_options.silence_s
        )
    engine = server_engine(
        address, connection_options, lambda url: unless_in(url, defaults) | connect.arguments(url.password)
    )
    sa.event.listen(engine, "connect", partial(connect.prepare, connection_options=connection_options))
    if not connection_options.writes:
        sa.event.listen(engine, "begin", connect.begin)
    return engine


def _fetched(connection: Connection, statement: sa.Executable, raw: frozenset[int]) -> RawPage:
    from migrator.source.engines.mysql import rows

    return rows.fetched(connection, statement, raw)


MYSQL = Engine(
    name=_NAME,
    also=(_MARIADB,),
    title="MySQL or MariaDB",
    is_file=False,
    connecting=Connecting(
        form="mysql://user@host:3306/database (MariaDB too)",
        schemes=(_NAME, _MARIADB, _SCHEME, "mariadb+pymysql"),
        driver="MySQL and MariaDB are read with PyMySQL; write mysql:// without another driver's name",
        port=3306,
        rds=("mysql", "mariadb", "aurora", "aurora-mysql"),
        extra=("mysql", "pymysql"),
        checked_url=_checked_url,
        open=_opened,
        raw=frozenset({"integer", "number", "date", "time", "timestamp"}),
        fetched=_fetched,
    ),
    sql=SQL,
    schema=Schema(
        reflected=facts.reflected,
        kinds=types_mysql.KINDS,
        has_schemas=True,
        has_materialized_views=False,
        loosely_typed=False,
        has_blocks=lambda *_: False,
    ),
    server=SERVER,
    errors=ERRORS,
    writers=WRITERS,
    capturing=CAPTURING,
    granting=GRANTING,
    statements=STATEMENTS,
    sessions=SESSIONS,
    outcomes=OUTCOMES,
    rows=ROWS,
)
