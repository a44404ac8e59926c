"""What MariaDB, MySQL and PyMySQL raise, in our own words."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.server_failures import mysql_number
from migrator.source.engines import reasons
from migrator.source.engines.base import Errors

_BY_MYSQL_NUMBER = {
    **dict.fromkeys((1045, 1698), reasons.WRONG_LOGIN),
    1044: "the user may not use this database; GRANT SELECT on it, or correct the source's URL",
    **dict.fromkeys((1130, 1129), "the server does not let this machine in; see the hosts of its users"),
    1049: reasons.NO_DATABASE,
    **dict.fromkeys(
        (1142, 1143, 1227, 1370), "no permission; GRANT SELECT on the table or view to this user"
    ),
    1356: "a view cannot be read; what it reads, or its definer's permission, is gone",
    **dict.fromkeys((1051, 1109, 1146), reasons.NO_TABLE),
    1054: reasons.NO_COLUMN,
    **dict.fromkeys((1064, 1065), reasons.BAD_SYNTAX),
    **dict.fromkeys((1305, 1630), "no such function; correct the statement"),
    **dict.fromkeys((1040, 1203, 1226), reasons.NO_CONNECTION_LEFT),
    **dict.fromkeys((2006, 2013, 2055), reasons.BROKEN),
    **dict.fromkeys((1053, 1077, 1079, 1152, 1927), reasons.STOPPED),
    **dict.fromkeys((1205, 1213), reasons.LOCKED),
    1412: f"the table was altered while it was read; {reasons.RESUME}",
    1317: f"the statement was interrupted; {reasons.RESUME}",
    **dict.fromkeys(
        (1969, 3024),
        reasons.CANCELLED_BY_TIME,
    ),
    **dict.fromkeys((1290, 1792, 1836), reasons.WOULD_WRITE),
    **dict.fromkeys((1021, 1037, 1038, 1041, 1114), reasons.FULL),
    **dict.fromkeys((1153, 1301), "a row is larger than max_allowed_packet; raise it on the server"),
    **dict.fromkeys((1194, 1195, 1030, 1034), reasons.SERVER_FAILURE),
    **dict.fromkeys((1292, 1366, 1411, 1525, 3854), reasons.BAD_VALUE),
    1193: "the server does not know a setting that this needs; MariaDB 10.11 or MySQL 8 is the oldest that works",
}
"""PyMySQL's first argument. Source: MariaDB Knowledge Base, "MariaDB Error Codes"; MySQL's, "Server Error Messages"."""
_CANNOT_CONNECT = frozenset({2002, 2003, 2005, 2012, 2026})


def _reasons(cause: BaseException) -> Iterator[str]:
    number = mysql_number(cause)
    if number in _BY_MYSQL_NUMBER:
        yield _BY_MYSQL_NUMBER[number]
    if number:
        yield from reasons.by_sqlstate(cause)


def _is_connecting(cause: BaseException) -> bool:
    return mysql_number(cause) in _CANNOT_CONNECT


ERRORS = Errors(_reasons, _is_connecting, lambda _: None)
