"""What the database itself says about the tables of one schema, by their real names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sqlalchemy.engine import Inspector
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

from migrator.facts import Column, Meeting

_NOT_THE_USERS = ("sqlite_", "migrator_")


@dataclass(frozen=True)
class Reflected:
    """What the database says, by real table name."""

    schema: str | None
    columns: dict[str, list[Column]]
    primary_keys: dict[str, list[str]]
    unique: dict[str, list[tuple[str, ...]]]
    foreign_keys: dict[str, list[ReflectedForeignKeyConstraint]]
    meetings: dict[str, tuple[Meeting, ...]] = field(default_factory=dict)
    doubts: dict[str, list[tuple[tuple[str, ...], str]]] = field(default_factory=dict)
    """Per table, keys among those above that do not hold for all of its rows, and why."""


def the_users(names: Iterable[str]) -> Iterator[str]:
    """The names in order, without the system's and ours."""
    return (name for name in sorted(names) if not name.lower().startswith(_NOT_THE_USERS))


def primary_keys_of(inspector: Inspector, schema: str | None) -> dict[str, list[str]]:
    """By real table name, the columns of each primary key."""
    found = inspector.get_multi_pk_constraint(schema=schema)
    return {name: list(key["constrained_columns"]) for (_, name), key in found.items() if key}


def foreign_keys_of(
    inspector: Inspector, schema: str | None
) -> dict[str, list[ReflectedForeignKeyConstraint]]:
    """By real table name, its foreign keys."""
    return {name: list(keys) for (_, name), keys in inspector.get_multi_foreign_keys(schema=schema).items()}
