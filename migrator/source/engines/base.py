"""What an engine is: all that one relational database says or does otherwise than the next, by capability.

Every field is required: a new engine that leaves one out does not type-check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.engine import URL

from migrator.source.manners import Manners


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
class Engine:
    """One kind of database. `name`: SQLAlchemy's for its dialect, `also`: others that mean it; `title`: as people write it.

    `is_file`: it is one file and no server: it has one writer at a time, no schemas, no replica and no log-in.
    """

    name: str
    also: tuple[str, ...]
    title: str
    is_file: bool
    connecting: Connecting
