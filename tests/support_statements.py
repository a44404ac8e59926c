"""Statements as ORMs and public applications send them (integration/statements.yaml), and rows for their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from msgspec import Struct

from migrator.mapping.model.facts import Column, TableFacts

_PARENTS, _CHILDREN = 40, 120
"""Rows of a table without a foreign key, and of one with: three children of each parent."""


class Sent(Struct, frozen=True):
    """A statement: where it is `from`, and the reason why it is `refused`, '' if it is served."""

    source: str
    sql: str
    refused: str


class Application(Struct, frozen=True):
    """A schema with the statements that it is sent."""

    name: str
    engine: str
    schema: str
    statements: tuple[Sent, ...]

    @property
    def file(self) -> str:
        """A file of the statements, each with its number as its name."""
        return "\n".join(
            f"-- s{number}\n{sent.sql.rstrip(';')};" for number, sent in enumerate(self.statements)
        )


def applications() -> Iterator[Application]:
    path = Path(__file__).parent / "integration" / "statements.yaml"
    for form in yaml.safe_load(path.read_text(encoding="utf-8")):
        sent = (Sent(one["from"], one["sql"], one.get("refused", "")) for one in form["statements"])
        yield Application(form["name"], form["engine"], form["schema"], tuple(sent))


def rows_of(table: TableFacts) -> Iterator[dict[str, Any]]:
    """Rows that fit the constraints: parents have several children, and every third value that may be NULL is."""
    foreign = [key.columns[0] for key in table.foreign_keys]
    for number in range(_CHILDREN if foreign else _PARENTS):
        row: dict[str, Any] = {}
        for column in table.columns:
            if column.name in foreign:
                turn = foreign.index(column.name)
                parent = (number % _PARENTS + turn * (number // _PARENTS * 7 + 1)) % _PARENTS
                row[column.real] = _key(column, parent)
            elif column.name in table.primary_key:
                is_alone = len(table.primary_key) == 1
                row[column.real] = _key(column, number if is_alone else number // _PARENTS)
            else:
                is_unique = any(key == (column.name,) for key in table.proved)
                row[column.real] = _value(column, number, is_unique=is_unique)
            if column.nullable and number % 3 == 0:
                row[column.real] = None
        yield row


def _key(column: Column, number: int) -> Any:
    keys = {"text": f"k{number + 1}", "uuid": _uuid(number)}
    return keys.get(column.kind.name, number + 1)


def _uuid(number: int) -> str:
    """Another one for each number, in no order."""
    return str(UUID(int=(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128, version=4))


def _value(column: Column, number: int, *, is_unique: bool) -> Any:
    day = f"2026-{number % 12 + 1:02}-{number * 7 % 28 + 1:02}"
    texts = f"{column.name[:5]}{number}" if is_unique else f"{column.name[:5]}{number % 4}"
    values = {
        "text": texts,
        "boolean": number % 2 == 0,
        "timestamp": f"{day} {number * 5 % 24:02}:30:00",
        "date": day,
        "uuid": _uuid(number),
    }
    return values.get(column.kind.name, number % 7 + 1)
