"""docs/designs: `init` draws the keys that each page says, and every answer is SQL's."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migrator.mapping.language.parse import examine_mapping
from tests.journeys.command import ROOT, Project
from tests.journeys.proposals import here, proposed

__all__ = ["here"]

PAGES = sorted(page for page in (ROOT / "docs" / "designs").glob("*.md") if page.name != "README.md")
ROWS = 60


def filled(file: Path, schema: str) -> None:
    """The schema's tables, parents first, each with rows whose values repeat so that answers have several."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(schema)
        keys: dict[str, list[Any]] = {}
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            parents = {row[3]: row[2] for row in connection.execute(f"PRAGMA foreign_key_list({table})")}
            made = {
                name: [
                    value(number, name, type_, keys.get(parents.get(name, "")), own, is_key)
                    for number in range(ROWS)
                ]
                for _, name, type_, own, _, is_key in columns
            }
            connection.executemany(
                f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(columns))})",
                list(zip(*made.values(), strict=True)),
            )
            keys[table] = [key for (key,) in connection.execute(f"SELECT {columns[0][1]} FROM {table}")]
        connection.commit()


def value(number: int, name: str, type_: str, parents: list[Any] | None, needed: int, place: int) -> Any:
    if parents:
        # Of two parents the second one moves on more slowly, so that pairs of them differ.
        return parents[number % 12 if place < 2 else number // 12 % len(parents)]
    if not needed and number % 3:
        return None
    if type_.startswith("TIMESTAMP"):
        return f"2026-{1 + number % 8:02}-{1 + number % 19:02} 10:00:{number % 60:02}"
    if type_ == "BOOLEAN":
        return number % 2
    if type_.startswith(("INTEGER", "NUMERIC")):
        return number if place else number % 7
    return f"{name}{number if place or name == 'email' else number % 4}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_published_design_is_drawn_as_on_its_page(
    page: Path, here: Callable[[str], Project], tmp_path: Path
) -> None:
    text = page.read_text(encoding="utf-8")
    schema, statements = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    filled(tmp_path / "source.db", schema)
    (tmp_path / "asked.sql").write_text(statements, encoding="utf-8")
    project = here(f"sqlite:///{tmp_path / 'source.db'}")
    ended = proposed(project, "--statements", "asked.sql", "--json", prove=True)
    assert ended.code == 0, ended.out
    proof = ended.data["proof"]["patterns"]
    assert {name: one["different"] for name, one in proof.items()} == dict.fromkeys(proof, 0)
    assert all(one["questions"] for one in proof.values())
    mapping = examine_mapping((tmp_path / "shop.yaml").read_text(encoding="utf-8"), "shop.yaml").mapping
    drawn = {
        item.type: [
            [template.source for template in item.key],
            *([template.source for template in entry.values] for entry in item.entries),
        ]
        for entity in mapping.entities.values()
        for item in entity.items
    }
    assert told(text) == drawn


def told(text: str) -> dict[str, list[list[str]]]:
    """By item type the keys of the page's second column: the table's, then each index's."""
    rows = re.findall(r"^\| (\w+) \| (.*?) \| .* \|$", text.replace("\\|", "¦"), re.MULTILINE)
    return {
        type_: [re.findall(r"`([^`]+)`", part) for part in cell.replace("¦", "|").split("; ")]
        for type_, cell in rows
        if type_ != "item"
    }
