"""Transactions that write to our own tables in the source; each may be tried again as a whole."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlalchemy.engine import Connection, Engine

from migrator.model.errors import MissingNameError, SourceError
from migrator.runtime.retry import Backoff, Retry
from migrator.runtime.server_errors import is_contended, takes_no_writes
from migrator.source.connect import Address, place_of, read_engine, write_engine
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.table import engine_at
from migrator.source.reading import Reading, of_the_source

Result = TypeVar("Result")


class Writing(Reading):
    """Every method of Marks and Tickets does no harm when it is done twice, so what broke is tried again.

    `looks`: the engine to read by, read-only, where there is one already; so that a source that takes no writes can be
    looked at, and nothing connects to write before something is written.
    """

    def __init__(
        self,
        address: Address,
        connection_options: ConnectionOptions,
        retry: Retry,
        looks: Engine | None = None,
    ) -> None:
        super().__init__(
            write_engine(address, connection_options), place_of(address.url()), retry, of_the_source
        )
        self._own_looks = looks is None
        engine = read_engine(address, replace(connection_options, pool_size=1)) if looks is None else looks
        self._looks = _Looks(engine, self.place, retry, of_the_source)
        self._ddl: Ddl | None = None

    def read(self, doing: str, work: Callable[[Connection], Result]) -> Result:
        """What `work` gives in a read-only transaction; of a file in one beside which nobody has written and not ended.

        Raises: as `write` does.
        """
        alone = engine_at(self.engine).is_file
        return super().read(doing, work) if alone else self._looks.read(doing, work)

    def look(self, doing: str, work: Callable[[Connection, Ddl], Result]) -> Result:
        """What `work` gives in a read-only transaction. Raises: as `write` does."""
        try:
            return self._looks.read(doing, partial(self._with_ddl, work))
        except MissingNameError:
            raise self._not_installed(doing) from None

    def write(self, doing: str, work: Callable[[Connection, Ddl], Result]) -> Result:
        """What `work` gives, committed. Raises: SourceError, in our own words; Interrupted."""
        try:
            return super().read(doing, partial(self._with_ddl, work))
        except MissingNameError:
            raise self._not_installed(doing) from None

    def at_once(self) -> Writing:
        """The same, on the same connections, that tries nothing twice."""
        other = copy(self)
        other._retry = Retry(Backoff(attempts=1), self._retry.stop)
        other._looks = _Looks(self._looks.engine, self.place, other._retry, of_the_source)
        return other

    def close(self) -> None:
        super().close()
        if self._own_looks:
            self._looks.close()

    def ddl(self, connection: Connection) -> Ddl:
        """The dialect's statements. On MySQL our tables are in the database that the URL names."""
        if self._ddl is None:
            self._ddl = engine_at(connection).capturing.ddl(connection)
        return self._ddl

    def _with_ddl(self, work: Callable[[Connection, Ddl], Result], connection: Connection) -> Result:
        return work(connection, self.ddl(connection))

    def _not_installed(self, doing: str) -> SourceError:
        what = f"{self.place}: {doing}: capture is not installed here, or by another version of migrator"
        return SourceError(f"{what}; run `migrator capture install` with this job")

    def _once(self, work: Callable[[Connection], Result]) -> Result:
        with self.engine.begin() as connection:
            self._reached = True
            return work(connection)

    def _told(self, error: BaseException, doing: str, tried: str = "") -> SourceError:
        if not takes_no_writes(error):
            return super()._told(error, doing, tried)
        what = "this database takes no writes (a standby, or read-only), and capture needs them"
        return SourceError(f"{self.place}: {doing}: {what}; name its primary in the source's URL")

    def _can_pass(self, error: BaseException) -> bool:
        return is_contended(error) or super()._can_pass(error)


class _Looks(Reading):
    """They wait for locks as patiently as what writes."""

    def _can_pass(self, error: BaseException) -> bool:
        return is_contended(error) or super()._can_pass(error)
