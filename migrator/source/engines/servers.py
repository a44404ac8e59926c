"""What engines with a server share: connections whose address is asked anew, and checks of URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Dialect
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import QueuePool

from migrator.model.errors import SettingsError, SourceError
from migrator.runtime.server_errors import refuses_login
from migrator.source.engines.base import ConnectionOptions, UrlKeeper

CONNECT_TIMEOUT_S = 10
OUR_TRIGGER = re.compile(r"migrator_[0-9a-f]{8}_[a-z]+_([0-9a-f]{8})")
"""Names of triggers of ours where no schema of our own tells them; the digest is in them."""


def pool_of(connection_options: ConnectionOptions) -> dict[str, Any]:
    """How SQLAlchemy is to keep connections."""
    return {
        "poolclass": QueuePool,
        "pool_size": connection_options.pool_size,
        "max_overflow": 0,
        "pool_timeout": connection_options.pool_wait_s,
        "hide_parameters": True,
    }


def server_engine(
    address: UrlKeeper, connection_options: ConnectionOptions, arguments: Callable[[URL], dict[str, Any]]
) -> sa.Engine:
    """`arguments`: what a connection is made with beside what its URL says."""
    first = address.url()

    def asked() -> URL:
        try:
            url = address.url()
        except SettingsError as error:
            # It was right when the run began, so the run can go on when it is right again.
            raise SourceError(f"{error}; then run the same command again") from None
        if url.drivername != first.drivername:
            raise SourceError("source: the URL is now one of another kind of database; correct it")
        return url

    def make(dialect: Dialect, url: URL) -> DBAPIConnection:
        words, named = dialect.create_connect_args(url)
        return dialect.connect(*words, **{**named, **arguments(url)})

    def connect(dialect: Dialect, *_: object) -> DBAPIConnection:
        url = asked()
        try:
            return make(dialect, url)
        except dialect.loaded_dbapi.Error as error:
            if not refuses_login(error):
                raise
            # The password may have been changed within the time that an answer is believed.
            address.forget()
            if (now := asked()) == url:
                raise
        return make(dialect, now)

    # The engine itself never holds the password.
    engine = sa.create_engine(first.set(password=None), pool_pre_ping=True, **pool_of(connection_options))
    sa.event.listen(engine, "do_connect", connect)
    return engine


def unless_in(url: URL, wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if name not in url.query}


def refuse_stray_at(url: URL) -> None:
    """Raises: SettingsError where an '@' ended the password too early."""
    if any("@" in part for part in (url.host or "", url.database or "")):
        what = "source: the URL holds an '@' too many; write @ : / in a user name or password as %40 %3A %2F"
        raise SettingsError(what)


def split(connection: Connection, name: str) -> tuple[str, str]:
    """Schema and table; the default schema where the name has none."""
    schema, _, table = name.rpartition(".")
    return schema or str(sa.inspect(connection).default_schema_name), table


def drops_unchecked(off: str, on: str) -> Callable[[Sequence[str]], list[str]]:
    """Statements that drop tables one by one, while foreign keys are not looked at."""
    return lambda names: [off, *(f"DROP TABLE {name}" for name in names), on]


def says_autocommit(driver: Any) -> bool:
    """Whether every statement of a driver's connection is a transaction of its own."""
    return bool(driver.get_autocommit() if hasattr(driver, "get_autocommit") else driver.autocommit)
