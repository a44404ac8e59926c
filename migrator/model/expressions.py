"""Expressions of a mapping: references, templates, constants, maps, lists, conditions, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import dataclass
from typing import TypeAlias

from migrator.model.table import Value


@dataclass(frozen=True, slots=True)
class Filter:
    name: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ref:
    """A column (or, for filters of several values, columns) by path, with its format and filters.

    `every`: written with a `*`, it stands for many texts, each of them asked (access patterns only).
    """

    paths: tuple[str, ...]
    format: str | None = None
    filters: tuple[Filter, ...] = ()
    every: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """Text with references in it; always gives text. `source` is the text as it was written."""

    parts: tuple[str | Ref, ...]
    source: str = ""

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(part for part in self.parts if isinstance(part, Ref))


@dataclass(frozen=True, slots=True)
class Const:
    value: Value


@dataclass(frozen=True, slots=True)
class MapOf:
    entries: Dict[str, Expression]


@dataclass(frozen=True, slots=True)
class Each:
    """One map for every child of a collection."""

    collection: str
    attributes: Dict[str, Expression]


@dataclass(frozen=True, slots=True)
class Stored:
    """A value kept in S3, with a pointer in the item, when it takes more than `over` bytes."""

    value: Expression
    over: int = 0


Expression: TypeAlias = Ref | Template | Const | MapOf | Each | Stored

SCHEMA_PATH = "@schema"
"""The path that means the schema a row was read from; it stands for a constant in each schema's entity."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A path that must have a value, or one out of `allowed`; several of them must hold together."""

    path: str
    allowed: tuple[Value, ...] | None = None
