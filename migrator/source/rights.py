"""Rights in the source, as GRANTs have them, and how one kind of database tells and gives them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from migrator.settings.roles import SqlRole

if TYPE_CHECKING:  # the command line lists the roles, and waits for no driver
    from sqlalchemy.engine import Connection

Kind = Literal["table", "sequence", "schema", "database", "owner", "attribute"]


class Grant(Struct, frozen=True, order=True):
    """One right on one thing. `schema`: of a table; `name`: of what `kind` says. Of an `owner`, whom the tables belong to,
    the right is to be a member of it; an `attribute` is one of the role itself."""

    kind: Kind
    schema: str
    name: str
    right: str


Place = tuple[str, str]
"""Schema and name of a table."""


class Granting(Struct, frozen=True):
    """Rights on one kind of database. `needed`: what a role needs to read the first tables, to capture the second ones and
    to write rows of the third ones; `missing`: those that the connection's user lacks; `statement`: one GRANT of rights on
    one thing to a user.
    """

    needed: Callable[
        [Connection, SqlRole, Collection[Place], Collection[Place], Collection[Place]], Iterator[Grant]
    ]
    missing: Callable[[Connection, Sequence[Grant]], list[Grant]]
    statement: Callable[[Sequence[Grant], str], str]
