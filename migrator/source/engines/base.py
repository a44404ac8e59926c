"""What an engine is: all that one relational database says or does otherwise than the next, by capability.

Every field is required: a new engine that leaves one out does not type-check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from migrator.facts import TableFacts
from migrator.source.engines.replication import Replication
from migrator.source.manners import Manners

Row: TypeAlias = tuple[Any, ...]
Plan: TypeAlias = tuple[list[str], list[str]]
"""Lines of a statement's plan, and the tables that it reads as a whole, by the names that the plan has."""


class UrlKeeper(Protocol):
    """Where the URL of a database is asked for whenever a connection is made (source/address.py)."""

    def url(self) -> URL:
        """Raises: SettingsError, without anything of the answer."""

    def forget(self) -> None:
        """The next look asks anew."""


@dataclass(frozen=True)
class Connecting:
    """How a URL of it looks, and how connections are made.

    `form`: of its URL, as a message says it. `schemes`: how a URL may begin. `driver`: a message that names the only driver,
    '' where there is no other.
    `port`: where its server listens by default, 0 for a file. `rds`: names that a secret of AWS RDS has for it.
    `checked_url`: the URL with our driver's name, given what a message says a URL may be; raises SettingsError where it
    cannot be one of this engine. `open`: what makes connections with these manners; nothing is connected yet.
    """

    form: str
    schemes: tuple[str, ...]
    driver: str
    port: int
    rds: tuple[str, ...]
    checked_url: Callable[[URL, str], URL]
    open: Callable[[UrlKeeper, Manners], sa.Engine]


@dataclass(frozen=True)
class Explaining:
    """How its plans are asked for and read. `word`: in front of a statement; `partitions`: what else there, to have those
    named. `plan`: of names of columns, rows and the rows of a page, of which a table may be read as a whole.
    `expected`: rows that it expects of a statement; None where it does not say.
    """

    word: str
    partitions: Callable[[sa.Dialect], str]
    plan: Callable[[Sequence[str], Sequence[Row], int], Plan]
    expected: Callable[[Sequence[str], Sequence[Row]], int | None] | None


@dataclass(frozen=True)
class Server:
    """What it says of itself. `health`: SQL of version, clock (seconds since 1970, or NULL), read-only or not, time-out;
    `product`: the version with the product's name. `session`: SQL of its number of our session, None where there are none.
    `sends_to_the_end`: a result that was begun comes to its end, so that a connection must be given up for the first rows.
    `rows_at_least`: a number of rows that a table has in all likelihood; None where nothing says so. `replication`: by the
    product that answered, None where there are no replicas. `hides_rows`: policies may hide rows from a user.
    """

    health: str
    product: Callable[[str], str]
    session: sa.TextClause | None
    sends_to_the_end: bool
    rows_at_least: Callable[[Connection, TableFacts], int | None]
    explaining: Explaining
    replication: Callable[[sa.Dialect], Replication | None]
    hides_rows: bool


@dataclass(frozen=True)
class Engine:
    """One kind of database. `name`: SQLAlchemy's for its dialect, `also`: others that mean it; `title`: as people write it.

    `is_file`: it is one file and no server: it has one writer at a time, no schemas, no replica and no log-in.
    """

    name: str
    also: tuple[str, ...]
    title: str
    is_file: bool
    connecting: Connecting
    server: Server


FEW = 100
"""Statistics of fewer rows say nothing: what they count is late by as many."""


def part_of(
    connection: Connection, statement: sa.TextClause, table: TableFacts, *, of: int, by: int
) -> int | None:
    rows = connection.execute(statement, {"schema": table.schema, "name": table.real}).scalar()
    return None if rows is None or int(rows) < FEW else int(rows) * of // by
