"""Transactions that write to our own tables in the source; each may be tried again as a whole."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TypeVar

from sqlalchemy.engine import Connection

from migrator.errors import MissingNameError, SourceError
from migrator.retry import Backoff, Retry
from migrator.source.address import Address
from migrator.source.capture.design import Ddl
from migrator.source.capture.mysql import MysqlDdl
from migrator.source.capture.postgresql import PostgresqlDdl
from migrator.source.capture.sqlite import SqliteDdl
from migrator.source.engine import write_engine
from migrator.source.failures import is_contended
from migrator.source.manners import Manners
from migrator.source.reading import Reading
from migrator.source.url import place_of

Result = TypeVar("Result")


class Writing(Reading):
    """Every method of Marks and Tickets does no harm when it is done twice, so what broke is tried again."""

    def __init__(self, address: Address, manners: Manners, retry: Retry) -> None:
        super().__init__(write_engine(address, manners), place_of(address.url()), retry)
        self._ddl: Ddl | None = None

    def write(self, doing: str, work: Callable[[Connection, Ddl], Result]) -> Result:
        """What `work` gives, committed. Raises: SourceError, in our own words; Interrupted."""
        try:
            return self.read(doing, lambda connection: work(connection, self.ddl(connection)))
        except MissingNameError:
            what = f"{self.place}: {doing}: capture is not installed here, or by another version of migrator"
            raise SourceError(f"{what}; run `migrator capture install` with this job") from None

    def at_once(self) -> Writing:
        """The same, on the same connections, that tries nothing twice."""
        other = copy(self)
        other._retry = Retry(Backoff(attempts=1), self._retry.stop)
        return other

    def ddl(self, connection: Connection) -> Ddl:
        """The dialect's statements. On MySQL our tables are in the database that the URL names."""
        if self._ddl is None:
            self._ddl = ddl_of(connection)
        return self._ddl

    def _once(self, work: Callable[[Connection], Result]) -> Result:
        with self.engine.begin() as connection:
            self._reached = True
            return work(connection)

    def _can_pass(self, error: BaseException) -> bool:
        return is_contended(error) or super()._can_pass(error)


def ddl_of(connection: Connection) -> Ddl:
    if connection.dialect.name in ("mysql", "mariadb"):
        return MysqlDdl(str(connection.exec_driver_sql("SELECT DATABASE()").scalar_one()))
    return PostgresqlDdl() if connection.dialect.name == "postgresql" else SqliteDdl()
