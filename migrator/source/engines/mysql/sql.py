"""SQL of MariaDB and MySQL: how it is read, what is refused in it, how values and columns stand in ours."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlglot.dialects.mysql import MySQL

from migrator.facts import Kind
from migrator.source.engines.base import Sql
from migrator.source.engines.words import (
    AS_TEXT,
    BACKSLASHED,
    BLANK,
    BLOCK,
    CLOCKS,
    OF_SEQUENCES,
    PARAMETER,
    lexer,
)


class AnsiMySQL(MySQL):
    """MySQL as our connections speak it (ANSI_QUOTES): "name" is a name, as on the other engines."""

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


def _comparable(value: Any, kind: Kind) -> Any:
    """Text that stands for a number or a moment becomes one."""
    if not isinstance(value, str):
        return value
    if kind.name == "number":
        # MySQL compares a DECIMAL with text as binary floats: neighbours of 16 digits would be equal.
        try:
            return Decimal(value)
        except InvalidOperation:
            return value
    # MariaDB knows no offset in a moment; the session's zone is UTC.
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
    volatile=_VOLATILE,
    routines=_ROUTINES,
    folds_names=False,
    recurses_unasked=False,
    having_sees_aliases=True,
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
