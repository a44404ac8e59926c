"""A row that cannot become items has none: whatever refuses it, its old items are buried, and a finding names it."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from migrator.mapping.model.instances import Lifetimes
from migrator.mapping.model.live import Change
from migrator.stages.live.service import Strict
from tests.journeys.command import Project, project
from tests.support_worlds import prepared
from tests.unit.stages.core.live_world import Shop

pytestmark = pytest.mark.slow

MAPPING = """\
mapping: 1
table: {name: Refused, key: [PK, SK], type: type, ttl: expiresAt}
maps:
  grades: {a: first, b: second}
entities:
  thing:
    table: thing
    collect: {parts: {of: part, by: thing_id, at_most: 2}}
    climb: {line: parent_id}
    items:
      Thing: {key: ["T#{id}", META], attributes: {grade: "{grade|map:grades}", count: count}}
      Seen: {key: ["T#{id}", SEEN], when: seen}
  beside:
    table: beside
    join: {thing: thing_id}
    items: {Beside: {key: ["B#{id}", META], attributes: {count: thing.count}}}
  made:
    table: made
    transform: own:twice
    items: {Made: {key: ["M#{id}", META], attributes: {double: transform.double}}}
"""
OWN = """\
def twice(row):
    return {"double": 2 * int(row["number"])}
"""
TABLES = (
    "CREATE TABLE thing (id INTEGER PRIMARY KEY, parent_id INTEGER, grade TEXT, count INTEGER, seen INTEGER)",
    "CREATE TABLE part (id INTEGER PRIMARY KEY, thing_id INTEGER)",
    "CREATE TABLE beside (id INTEGER PRIMARY KEY, thing_id INTEGER REFERENCES thing (id))",
    "INSERT INTO beside VALUES (1, 1), (2, 2)",
    "CREATE TABLE made (id INTEGER PRIMARY KEY, number TEXT)",
    "INSERT INTO thing VALUES (1, 2, 'a', 1, 1), (2, NULL, 'b', 2, 1)",
    "INSERT INTO part VALUES (1, 1), (2, 1)",
    "INSERT INTO made VALUES (1, '1'), (2, '2')",
)
REFUSALS = {
    "a map without the value": ("UPDATE thing SET grade = 'z' WHERE id = 1", "UPDATE thing SET grade = 'a'"),
    "more children than at_most": ("INSERT INTO part VALUES (3, 1)", "DELETE FROM part WHERE id = 3"),
    "ancestors in a cycle by another row": (
        "UPDATE thing SET parent_id = 2 WHERE id = 2",
        "UPDATE thing SET parent_id = NULL WHERE id = 2",
    ),
    "a value of no such type": (
        "UPDATE thing SET count = 'many' WHERE id = 1",
        "UPDATE thing SET count = 1 WHERE id = 1",
    ),
    "a transform that raises": (
        "UPDATE made SET number = 'none' WHERE id = 1",
        "UPDATE made SET number = '1' WHERE id = 1",
    ),
}


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Captured, filled, and a relay has been there, so that backfills write beside others."""
    change(tmp_path, *TABLES)
    (tmp_path / "own.py").write_text(OWN)
    url = f"sqlite:///{tmp_path}/shop.db"
    made = project(tmp_path, url, dynamodb_url, f"R{secrets.token_hex(4)}", text=MAPPING)
    prepared(made, "table create", "capture install", "backfill", "relay --once")
    assert keys(made) == ALL
    return made


ALL = {"T#1 META", "T#1 SEEN", "T#2 META", "T#2 SEEN", "M#1 META", "M#2 META", "B#1 META", "B#2 META"}


def change(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db", timeout=120)) as service:
        for statement in statements:
            service.execute(statement)
        service.commit()


def keys(shop: Project) -> set[str]:
    """Those of the items that readers see."""
    found = shop.items()
    return {f"{one['PK']!s} {one['SK']!s}" for one in found if not str(one["type"]).startswith("_")}


def left(refusing: str) -> set[str]:
    """What is left of them when the change has refused its rows."""
    if "made" in refusing:
        return ALL - {"M#1 META"}
    if "parent_id" in refusing:
        return {one for one in ALL if not one.startswith("T#")}
    return ALL - {"T#1 META", "T#1 SEEN"} - ({"B#1 META"} if "count" in refusing else set())


def verified(shop: Project) -> Sequence[str]:
    """The kinds of what verify finds."""
    return sorted(shop.run("verify", str(shop.job), "--settle", "0", "--json").data["findings"])


def test_a_relay_buries_the_items_of_a_row_that_is_refused(shop: Project) -> None:
    job = str(shop.job)
    for name, (refusing, mending) in REFUSALS.items():
        change(shop.folder, refusing)
        assert shop.run("relay", job, "--once").code == 1, name
        assert keys(shop) == left(refusing), name
        assert "refused" in shop.done("status", "--findings", job).out
        change(shop.folder, mending)
        shop.done("relay", job, "--once")
        assert keys(shop) == ALL, name
    assert verified(shop) == []


def test_concurrent_backfill_deletes_refused_and_verify_agrees(shop: Project) -> None:
    job = str(shop.job)
    for name, (refusing, mending) in REFUSALS.items():
        change(shop.folder, refusing, "DELETE FROM migrator_mark")
        assert shop.run("backfill", job, "--restart").code == 1, name
        assert keys(shop) == left(refusing), name
        assert verified(shop) == ["refused"], name
        change(shop.folder, mending)
    shop.done("relay", job, "--once")
    assert (keys(shop), verified(shop)) == (ALL, [])


def test_a_strict_service_buries_them_before_it_commits() -> None:
    shop = Shop()
    shop.change("users", 1, name="Ann")
    shop.change("orders", 2, user_id=1)
    shop.relay.once()
    assert set(shop.live()) == {("USER#1", "META"), ("USER#1", "ORDER#000002")}
    captured = shop.captured["users"]
    image = {**dict.fromkeys(captured.columns), "id": 1}
    shop.rows["users"][0]["name"] = 7
    strict = Strict(
        shop.marks.pre_mark,
        lambda rows, check: shop.relay,
        Lifetimes(),
        lambda: 0.0,
        lambda: None,
        longest_s=30.0,
    )
    strict.write_first([Change("users", image, image)], shop.source, 0.0)
    assert shop.live() == {}
