"""Snapshot reads on a connection; when the connection breaks, the whole read is tried again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import Pool

from migrator.model.errors import SourceError
from migrator.runtime.processes import tell_of_forks
from migrator.runtime.retry import Retry
from migrator.runtime.server_errors import is_broken, is_busy
from migrator.source.engines.table import engine_at
from migrator.source.failures import source_error

Result = TypeVar("Result")


def of_the_source(connection: Connection) -> None:
    """The `admit` of the source itself, of which each connection will do: only a replica may be behind."""


class Reading:
    """`place`: what messages call the database. `retry`: how long a server that was there is waited for.

    `admit`: looks at each connection before it is read from, and raises where it must not be.
    """

    def __init__(
        self,
        engine: Engine,
        place: str,
        retry: Retry,
        admit: Callable[[Connection], None],
    ) -> None:
        self.engine = engine
        self.place = place
        self._retry = retry
        self._admit = admit
        self._reached = False
        self._inherited: list[Pool] = []
        tell_of_forks(self)
        driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        # UnicodeError and OverflowError: sqlite3 cannot bind half a surrogate pair, or more than 64 bits.
        self._failures = (SQLAlchemyError, driver_error, UnicodeError, OverflowError)

    def read(self, doing: str, work: Callable[[Connection], Result]) -> Result:
        """What `work` gives on a connection in a snapshot of its own; it may be called again on another one.

        Raises: SourceError, in our own words and without anything of the driver's; Interrupted.
        """
        try:
            return self._retry.call(
                doing, partial(self._once, work), self._can_pass, partial(self._gave_up, doing)
            )
        except self._failures as error:
            raise self._told(error, doing) from None

    def close(self) -> None:
        self.engine.dispose()

    def before_fork(self) -> None:
        """No connection to a file may be open in two processes."""
        if engine_at(self.engine).is_file:
            self.engine.dispose()

    def after_fork(self, *, in_child: bool) -> None:
        """A child leaves connections to its parent; kept, because closing them would say goodbye to the server."""
        if in_child:
            self._inherited.append(self.engine.pool)
            self.engine.dispose(close=False)

    def _once(self, work: Callable[[Connection], Result]) -> Result:
        with self.engine.connect() as connection:
            self._reached = True
            self._admit(connection)
            return work(connection)

    def _can_pass(self, error: BaseException) -> bool:
        """Only of a server that was reached, or that answered itself: a wrong URL shall be told at once."""
        return is_busy(error) or (self._reached and is_broken(error))

    def _gave_up(self, doing: str, error: BaseException, tried: str) -> SourceError:
        return self._told(error, doing, f" (gave up after {tried})")

    def _told(self, error: BaseException, doing: str, tried: str = "") -> SourceError:
        return source_error(error, self.place, doing, tried)
