"""What each role may do in the source: rights on tables that it reads, and on our tables of marks and tickets.

A table by hand, as that of rights in AWS is (dynamodb/admin/permissions.py): tests run each role's commands with exactly
these rights, and with each of them taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the command line lists the roles, and waits for no driver
    from sqlalchemy.engine import Connection

Kind = Literal["table", "sequence", "schema", "database", "owner", "attribute"]


@dataclass(frozen=True, order=True)
class Grant:
    """One right on one thing. `schema`: of a table; `name`: of what `kind` says. Of an `owner`, whom the tables belong to,
    the right is to be a member of it; an `attribute` is one of the role itself."""

    kind: Kind
    schema: str
    name: str
    right: str


@dataclass(frozen=True)
class SqlRole:
    """`does`: what acts in it. `rows`: whether it reads the tables that items are made of; `asks`: those that the SQL of
    access patterns names; `ticket`, `mark`: rights on our tables; `installs`: whether it makes them, and triggers; `looks`:
    whether it makes sure that triggers are there; `counts`: whether it asks how many marks there ever were; `writes`:
    whether it makes rows of items."""

    does: str
    rows: bool = False
    asks: bool = False
    ticket: tuple[str, ...] = ()
    mark: tuple[str, ...] = ()
    installs: bool = False
    looks: bool = False
    counts: bool = False
    writes: bool = False


Place = tuple[str, str]
"""Schema and name of a table."""


@dataclass(frozen=True)
class Granting:
    """Rights on one kind of database. `needed`: what a role needs to read the first tables, to capture the second ones and
    to write rows of the third ones; `missing`: those that the connection's user lacks; `statement`: one GRANT of rights on
    one thing to a user.
    """

    needed: Callable[
        [Connection, SqlRole, Collection[Place], Collection[Place], Collection[Place]], Iterator[Grant]
    ]
    missing: Callable[[Connection, Sequence[Grant]], list[Grant]]
    statement: Callable[[Sequence[Grant], str], str]


_DRAWS = ("SELECT", "UPDATE")
WRITES = ("SELECT", "INSERT", "UPDATE", "DELETE")

SQL_ROLES = {
    "capture": SqlRole("capture install, capture uninstall", installs=True),
    "backfill": SqlRole("backfill", rows=True, ticket=_DRAWS, looks=True),
    "relay": SqlRole("relay", rows=True, ticket=_DRAWS, mark=WRITES, looks=True),
    "verify": SqlRole("verify, with --repair too", rows=True, ticket=("SELECT",), mark=("SELECT", "INSERT"), looks=True),
    "service-reading": SqlRole(
        "a service: Migration.read, dual_write in outbox mode", asks=True, ticket=("SELECT",), mark=("INSERT",)
    ),
    "service-strict": SqlRole(
        "a service: dual_write in strict mode, Migration.read", rows=True, asks=True, ticket=_DRAWS, mark=("INSERT",)
    ),
    "operator": SqlRole(
        "shadow, cutover, query, look, clean, recover, decommission", rows=True, asks=True,
        ticket=_DRAWS, mark=("SELECT",), looks=True, counts=True,
    ),
    "reverse": SqlRole("reverse check, start, status, stop and verify, with --repair too", rows=True, writes=True),
    "report": SqlRole("status, report, findings, cutover status", rows=True, ticket=("SELECT",), mark=("SELECT",)),
}  # fmt: skip
