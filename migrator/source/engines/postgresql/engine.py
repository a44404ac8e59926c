"""PostgreSQL as a source, by psycopg 3."""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import URL

from migrator.errors import SettingsError, how_to_install
from migrator.source import postgresql_facts, types_postgresql
from migrator.source.engines.base import Connecting, Engine, Schema, UrlKeeper
from migrator.source.engines.postgresql.adapter import OUTCOMES, SESSIONS, STATEMENTS
from migrator.source.engines.postgresql.capture import CAPTURING
from migrator.source.engines.postgresql.errors import ERRORS
from migrator.source.engines.postgresql.server import SERVER, has_blocks
from migrator.source.engines.postgresql.sql import SQL
from migrator.source.engines.postgresql.writers import WRITERS
from migrator.source.engines.servers import CONNECT_TIMEOUT_S, refuse_stray_at, server_engine, unless_in
from migrator.source.manners import Manners

_NAME = "postgresql"
_SCHEME = "postgresql+psycopg"

# ── connections ──


def _checked_url(url: URL, _: str) -> URL:
    refuse_stray_at(url)
    try:
        import psycopg  # noqa: F401  (an extra: SQLite alone needs no driver)
    except ImportError:
        what = "source: PostgreSQL needs its driver, psycopg"
        raise SettingsError(f"{what}; {how_to_install('postgres')}") from None
    return url.set(drivername=_SCHEME)


def _opened(address: UrlKeeper, manners: Manners) -> sa.Engine:
    from migrator.source import postgresql  # needs psycopg, an extra that SQLite does without

    wanted = {"application_name": manners.name, "connect_timeout": CONNECT_TIMEOUT_S, **postgresql.ALIVE}
    # Whatever the database keeps: of one that keeps any bytes (SQL_ASCII), the driver would give bytes for texts.
    engine = server_engine(address, manners, lambda url: unless_in(url, wanted) | {"client_encoding": "utf8"})
    sa.event.listen(engine, "connect", postgresql.prepare)
    sa.event.listen(engine, "begin", partial(postgresql.begin, manners=manners))
    return engine


POSTGRESQL = Engine(
    name=_NAME,
    also=(),
    title="PostgreSQL",
    is_file=False,
    connecting=Connecting(
        form="postgresql://user@host:5432/database",
        schemes=(_NAME, "postgres", _SCHEME),
        driver="PostgreSQL is read with psycopg 3; write postgresql:// without another driver's name",
        port=5432,
        rds=("postgres", "postgresql", "aurora-postgresql"),
        extra=("postgres", "psycopg"),
        checked_url=_checked_url,
        open=_opened,
    ),
    sql=SQL,
    schema=Schema(
        reflected=postgresql_facts.reflected,
        kinds=types_postgresql.KINDS,
        has_schemas=True,
        has_materialized_views=True,
        loosely_typed=False,
        has_blocks=has_blocks,
    ),
    server=SERVER,
    errors=ERRORS,
    writers=WRITERS,
    capturing=CAPTURING,
    statements=STATEMENTS,
    sessions=SESSIONS,
    outcomes=OUTCOMES,
)
