"""MariaDB and MySQL as sources, by PyMySQL: one engine, since SQLAlchemy speaks one dialect to both."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL

from migrator.errors import SettingsError, how_to_install
from migrator.source import mysql_facts, types_mysql
from migrator.source.engines.base import Connecting, Engine, Schema, UrlKeeper
from migrator.source.engines.mysql.adapter import OUTCOMES, SESSIONS, STATEMENTS
from migrator.source.engines.mysql.capture import CAPTURING
from migrator.source.engines.mysql.errors import ERRORS
from migrator.source.engines.mysql.server import SERVER
from migrator.source.engines.mysql.sql import SQL
from migrator.source.engines.mysql.writers import WRITERS
from migrator.source.engines.servers import CONNECT_TIMEOUT_S, refuse_stray_at, server_engine, unless_in
from migrator.source.manners import Manners

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


def _opened(address: UrlKeeper, manners: Manners) -> sa.Engine:
    from migrator.source import mysql  # needs PyMySQL, an extra that SQLite does without

    wanted: dict[str, Any] = {"program_name": manners.name, "connect_timeout": CONNECT_TIMEOUT_S}
    if manners.statement_timeout_s:
        wanted["read_timeout"] = math.ceil(manners.statement_timeout_s + manners.silence_s)
    engine = server_engine(
        address, manners, lambda url: unless_in(url, wanted) | mysql.arguments(url.password)
    )
    sa.event.listen(engine, "connect", partial(mysql.prepare, manners=manners))
    if not manners.writes:
        sa.event.listen(engine, "begin", mysql.begin)
    return engine


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
    ),
    sql=SQL,
    schema=Schema(
        reflected=mysql_facts.reflected,
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
    statements=STATEMENTS,
    sessions=SESSIONS,
    outcomes=OUTCOMES,
)
