"""How the tables of a database hang together: foreign keys that act by themselves, partitions, tables that inherit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ACTS = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
"""Actions of foreign keys that change rows."""


@dataclass(frozen=True, slots=True)
class Place:
    """A table by its schema and name; `schema` None where the source has no schemas."""

    schema: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Below:
    """A foreign key by which the database itself changes rows of `child`. `columns`: (child's, own) real names."""

    child: Place
    columns: tuple[tuple[str, str], ...]
    on_delete: bool
    on_update: bool


Pairs = Sequence[tuple[Place, Place]]
"""(parent, child)."""


@dataclass(frozen=True, slots=True)
class Links:
    """`acting`: (parent, foreign key) of every one that changes rows by itself. `heirs`: partitions and tables that
    inherit. `views`: with what they read. `emptied`: what TRUNCATE … CASCADE of the first takes along."""

    acting: Sequence[tuple[Place, Below]]
    heirs: Pairs = ()
    views: Pairs = ()
    emptied: Pairs = ()
