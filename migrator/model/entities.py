"""Entities of a mapping: their tables, joins, lists, item designs and index entries."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from typing import Literal

from migrator.model.expressions import Condition, Expression, Template
from migrator.model.patterns import Pattern
from migrator.model.table import TableDesign

# ── Entities, access patterns and the whole mapping, as plain frozen values ──

# ── entities ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Join:
    """One parent row: by the foreign key on `columns` of `parent` ('' is the root), or by `table` and `on`.

    `on` maps columns of the parent alias to columns of `table`.
    """

    alias: str
    parent: str
    columns: tuple[str, ...] = ()
    table: str | None = None
    on: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Collection:
    """Rows beside the root: children as a list, one number made of them, or (climb) the root and its ancestors.

    `by`: the child's columns that point to the root; of a climb, the row's columns that point to its parent, in
    the same table, whose columns `of` (its primary key, where there are none) they name.
    """

    alias: str
    kind: Literal["list", "climb", "count", "sum", "min", "max"]
    table: str
    by: tuple[str, ...]
    column: str | None = None
    joins: tuple[Join, ...] = ()
    order_by: tuple[str, ...] = ()
    at_most: int | None = None
    first: int | None = None
    of: tuple[str, ...] = ()

    @property
    def is_list(self) -> bool:
        return self.kind in ("list", "climb")


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Templates of those key attributes of an index that are no key attributes of the table, in order."""

    index: str
    values: tuple[Template, ...]
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Expiry:
    """When an item expires: a path to a timestamp, plus days."""

    path: str
    days: int = 0


@dataclass(frozen=True, slots=True)
class ItemDesign:
    type: str
    key: tuple[Template, ...]
    entries: tuple[IndexEntry, ...] = ()
    when: tuple[Condition, ...] = ()
    keep: Literal["all", "none"] | tuple[str, ...] = "none"
    keep_except: tuple[str, ...] = ()
    attributes: Dict[str, Expression] = field(default_factory=dict)
    expiry: Expiry | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """A column of the root row that counts its changes for the application, and the attribute that items keep it under."""

    attribute: str
    column: str


@dataclass(frozen=True, slots=True)
class Computed:
    """A column made by SQL of the source. `type`: as a mapping writes it, such as number(2); None: as it comes."""

    sql: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """`name` is the mapping's, with @schema behind it where the mapping reads several; `transform`: module:function.

    `changes`: (table, its columns that name the root row) of tables whose changes change the entity, though it reads
    them through a view. `version` stands among `attributes`, too.
    """

    name: str
    table: str
    items: tuple[ItemDesign, ...]
    key: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    joins: tuple[Join, ...] = ()
    collections: tuple[Collection, ...] = ()
    attributes: Dict[str, Expression] = field(default_factory=dict)
    computed: Dict[str, Computed] = field(default_factory=dict)
    transform: str | None = None
    schema: str | None = None
    changes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    version: Version | None = None

    @property
    def written(self) -> str:
        """The name that stands in the mapping file."""
        return self.name.partition("@")[0]

    @property
    def lists(self) -> frozenset[str]:
        return frozenset(one.alias for one in self.collections if one.is_list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A whole mapping file. `revision` is a digest of what it says: two equal revisions make equal items."""

    name: str
    revision: str
    table: TableDesign
    entities: Dict[str, Entity]
    names: Literal["exact", "snake_case"] = "exact"
    timezone: str | None = None
    schemas: tuple[str, ...] = ()
    maps: Dict[str, Dict[str, str]] = field(default_factory=dict)
    patterns: Dict[str, Pattern] = field(default_factory=dict)

    @property
    def schemas_read(self) -> tuple[str, ...]:
        """Schemas that the mapping may mean: those that it lists, and what stands before the dot of a table."""
        tables = [
            name
            for entity in self.entities.values()
            for name in (
                entity.table,
                *(one.table for one in entity.collections),
                *(join.table or "" for join in entity.joins),
                *(join.table or "" for one in entity.collections for join in one.joins),
            )
        ]
        named = [name.partition(".")[0] for name in tables if "." in name]
        return tuple(dict.fromkeys([*self.schemas, *named]))


TRANSFORM = "transform"
"""The alias under which items name what a transform gave."""
