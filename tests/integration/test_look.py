"""Look says of each planted corruption what verify says of it, and of a clean collection that it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from migrator.dynamodb.control import ControlItem
from migrator.features.look.work import Look, Looked, shown
from migrator.mapping.model.report import FINE, LookReport
from migrator.mapping.model.table import TOMBSTONE, Item
from migrator.mapping.patterns.param_sources import AskedKey
from migrator.runtime.errors import SettingsError
from migrator.stages.design.shown import Showing
from migrator.stages.design.views import asked_key
from migrator.stages.verify.scan import DirectItems
from tests import pins
from tests.integration.test_verify_corruptions import CORRUPTIONS, SCRIPT, Library
from tests.support_items import put_items

pytestmark = pytest.mark.slow

NOW_S = 1_700_000_000.0


@pytest.fixture
def library(tmp_path: Path, dynamodb_url: str) -> Iterator[Library]:
    """Ten books, two of each year but the first."""
    with sqlite3.connect(tmp_path / "books.db") as connection:
        connection.executescript(SCRIPT)
        books = [(n, f"Title {n}", 1990 + n // 2, n + 0.5, True) for n in range(1, 11)]
        connection.executemany("INSERT INTO book VALUES (?, ?, ?, ?, ?)", books)
        tags = [(n, name) for n in range(1, 11) for name in "ab"]
        connection.executemany("INSERT INTO tag VALUES (?, ?)", tags)
    connection.close()
    made = Library(f"sqlite:///{tmp_path}/books.db", dynamodb_url)
    yield made
    made.close()


def look(library: Library, key: str, index: str | None = None, sort: str = "", limit: int = 100) -> Looked:
    asked: AskedKey = asked_key(library.design, index, (key,), sort)
    checked = library.checked
    stage = Look(
        library.source, library.store, checked.mapping, library.design, checked.entities, DirectItems(), limit
    )
    return stage.look(asked, NOW_S)


def states(looked: Looked) -> dict[str, str]:
    return {f"{item.key[0]!s} {item.key[1]!s}": item.state for item in looked.items}


def test_clean_collection_equals_the_items_of_its_rows(library: Library) -> None:
    assert states(look(library, "BOOK#3")) == {"BOOK#3 META": "same"}
    assert states(look(library, "YEAR#1991", "GSI1")) == {"BOOK#2 META": "same", "BOOK#3 META": "same"}
    assert states(look(library, "YEAR#1991", "GSI1", "Title 3")) == {"BOOK#3 META": "same"}


@pytest.mark.parametrize(
    "key", ["BOOK#99", "BOOK#", "BOOK", "BOOK#3x", "BOOK#3#4", "BOOK#9999999999999999999999"]
)
def test_a_key_of_nothing_shows_nothing(library: Library, key: str) -> None:
    assert look(library, key).items == []


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_has_the_name_that_verify_uses(library: Library, name: str) -> None:
    corrupt, expected = CORRUPTIONS[name]
    planted = corrupt(library, library.book(3))
    put_items(library.store, planted)
    keys = {"BOOK#3", *(str(item["PK"]) for item in planted)}
    bad = [item for key in keys for item in look(library, key).items if item.state not in FINE]
    found = {(item.state, name) for item in bad for name in item.differing or {""}}
    # That the item names row 4, which makes none there, is a part of the collision.
    assert found == expected - ({("unexpected", "")} if ("collision", "") in expected else set())


def test_item_moved_in_its_index_is_missing_from_its_collection(library: Library) -> None:
    put_items(library.store, [{**library.book(3), "GSI1PK": "YEAR#1"}])
    (left,) = [item for item in look(library, "YEAR#1991", "GSI1").items if item.state != "same"]
    assert (left.key, left.state, set(left.differing)) == (("BOOK#3", "META"), "different", {"GSI1PK"})
    (came,) = look(library, "YEAR#1", "GSI1").items
    assert (came.key, came.state, set(came.differing)) == (("BOOK#3", "META"), "different", {"GSI1PK"})


def test_a_missing_item_is_shown_in_the_table_and_in_its_index(library: Library) -> None:
    library.store.delete([("BOOK#3", "META")])
    assert states(look(library, "BOOK#3")) == {"BOOK#3 META": "missing"}
    assert states(look(library, "YEAR#1991", "GSI1")) == {"BOOK#2 META": "same", "BOOK#3 META": "missing"}


def test_tombstones_and_control_item_are_shown_as_such(library: Library) -> None:
    dead: Item = {"PK": "BOOK#3", "type": TOMBSTONE, "_src": "book:[3]", "_tk": 9}
    put_items(library.store, [{**dead, "SK": "OLD"}])
    assert states(look(library, "BOOK#3")) == {"BOOK#3 META": "same", "BOOK#3 OLD": "tombstone"}
    put_items(library.store, [{**dead, "SK": "META"}])
    assert states(look(library, "BOOK#3"))["BOOK#3 META"] == "missing"
    ControlItem(library.store, lambda state: None).raise_control(9)
    (control,) = [
        item for page in library.store.scan(0, 1) for item in page.items if item["type"] == "_control"
    ]
    (item,) = look(library, str(control["PK"])).items
    assert item.state == "control"


def test_a_refused_row_is_named(library: Library, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "books.db") as connection:
        connection.execute("UPDATE book SET price = 'dear' WHERE id = 3")
    connection.close()
    looked = look(library, "BOOK#3")
    assert [finding.source_key for finding in looked.refused] == ["[3]"]
    assert states(looked) == {"BOOK#3 META": "unexpected"}
    assert not report(library, looked).is_clean


def test_items_beyond_the_limit_are_not_called_missing(library: Library) -> None:
    looked = look(library, "YEAR#1991", "GSI1", limit=1)
    assert looked.is_cut
    assert states(looked) == {"BOOK#2 META": "same"}


@pytest.mark.parametrize(
    "hostile", ["<script>alert(1)</script>", "\u202eevil\u2066", "x" * 300_000, "\x1b[31m"]
)
def test_hostile_values_are_shown_masked_or_cut(library: Library, hostile: str) -> None:
    put_items(library.store, [{**library.book(3), "title": hostile, hostile[:60]: 1}])
    looked = look(library, "BOOK#3")
    masked, whole = report(library, looked), report(library, looked, whole=True)
    cells = {cell.attribute: cell for cell in masked.items[0].cells}
    assert cells["title"].differs
    assert hostile not in str(masked.items[0].cells).replace(hostile[:60], "")
    assert len(str(whole.items[0].cells)) < 10_000


def test_masks_hide_values_and_show_that_they_differ(library: Library) -> None:
    put_items(library.store, [{**library.book(3), "title": "Other"}])
    masked = report(library, look(library, "BOOK#3"))
    (cell,) = [cell for cell in masked.items[0].cells if cell.differs]
    assert cell.attribute == "title"
    assert cell.sql != cell.item
    assert all(text is not None and text.startswith("…") for text in (cell.sql, cell.item))
    (cell,) = [
        cell for cell in report(library, look(library, "BOOK#3"), whole=True).items[0].cells if cell.differs
    ]
    assert (cell.sql, cell.item) == ('"Title 3"', '"Other"')


def report(library: Library, looked: Looked, *, whole: bool = False) -> LookReport:
    checked = library.checked
    plans = [entity.plan for entity in checked.entities]
    showing = Showing(checked.mapping, plans, whole_keys=whole, whole_values=whole)
    return shown(looked, "job", library.design, showing)


@pytest.mark.parametrize(
    ("index", "partition", "sort"),
    [("GSI2", ("a",), ""), (None, ("a", "b"), ""), (None, ("",), ""), (None, ("\udcff",), "")],
    ids=["you-mean", "value-partition", "empty-item", "given"],
)
def test_wrong_use_names_what_to_write(
    library: Library, index: str | None, partition: tuple[str, ...], sort: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        asked_key(library.design, index, partition, sort)
    assert pins.said(str(raised.value))


def test_collision_marks_only_differences_and_masks_its_row_key(library: Library) -> None:
    put_items(library.store, [{**library.book(3), "_src": 'book:["ann@example.org"]', "title": "Other"}])
    looked = look(library, "BOOK#3")
    (item,) = report(library, looked).items
    assert item.state == "collision"
    assert [cell.attribute for cell in item.cells if cell.differs] == ["title"]
    assert "ann@" not in str(item)
    assert "ann@example.org" in report(library, looked, whole=True).items[0].reason


TYPED = """
mapping: 1
table: {name: %s, key: [PK, SK], type: type}
entities:
  thing:
    items:
      Thing: {key: ["U#{uid}", "N#{id}"], keep: [amount]}
      Amount: {key: ["A#{amount}", "N#{id}"]}
"""


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("U#6f9619ff-8b86-d011-b42d-00c04fc964ff", ["Thing"]),
        ("U#abc", []),
        ("U#", []),
        ("A#1.50", ["Amount"]),
        ("A#dear", []),
        ("A#NaN", []),
        ("A#1e400", []),
        ("U#a\0b", []),
    ],
)
def test_text_that_is_not_a_value_of_a_column_finds_nothing(
    postgres_database: str, dynamodb_url: str, key: str, found: list[str]
) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute(
            "CREATE TABLE thing (id bigint PRIMARY KEY, uid uuid NOT NULL, amount numeric NOT NULL)"
        )
        connection.execute("INSERT INTO thing VALUES (1, '6f9619ff-8b86-d011-b42d-00c04fc964ff', 1.50)")
    things = Library(postgres_database, dynamodb_url, TYPED)
    try:
        things.store.delete([(key, "N#1")])
        looked = look(things, key)
    finally:
        things.close()
    assert [(item.state, item.made["type"]) for item in looked.items if item.made] == [
        ("missing", t) for t in found
    ]
