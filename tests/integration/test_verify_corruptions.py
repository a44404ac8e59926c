"""Verify finds every kind of corruption, each as what it is, and finds nothing on a clean table."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.control import ControlItem
from migrator.dynamodb.exchange import BOTOCORE
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.model.journal import Finding, RunIdentity
from migrator.mapping.model.table import TOMBSTONE, Item, ItemKey
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import Backfill
from migrator.stages.backfill.write import Claims
from migrator.stages.verify import stage
from migrator.stages.verify.stage import Verify
from tests.fakes.progress import Silent
from tests.support_fence import OF_A_STILL_SOURCE, no_fence, written_alone
from tests.support_items import put_items
from tests.support_mapping import parse_mapping

TEXT = """
mapping: 1
table: {name: %s, key: [PK, SK], type: type, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  book:
    collect: {tags: {of: tag, by: book_id}}
    items:
      Book:
        key: ["BOOK#{id}", META]
        GSI1: ["YEAR#{year}", "{title}#{id:04}"]
        keep: [title, price, active]
        attributes: {tags: {each: tags, attributes: {name: name}}, year: year}
"""
SCRIPT = """
CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, year INTEGER, price NUMERIC(8, 2), active BOOLEAN);
CREATE TABLE tag (book_id INTEGER REFERENCES book (id), name TEXT, PRIMARY KEY (book_id, name));
"""


class Library:
    """Ten books in SQL and in a table."""

    def __init__(self, url: str, endpoint: str, mapping: str = TEXT) -> None:
        text = mapping % f"T{secrets.token_hex(6)}"
        self.source = SqlSource(source_url(url))
        self.checked: Checked = check_mapping(parse_mapping(text, "m.yaml"), self.source.facts())
        self.client = dynamodb_client(region=None, profile=None, endpoint=endpoint)
        self.design = self.checked.mapping.table
        DynamoTableAdmin(self.client).create(self.design)
        self.store = DynamoStore(self.client, self.design, no_fence)
        self.journal = SqlJournal.in_memory()
        entities = {entity.name: entity for entity in self.checked.entities}
        claims = Claims(self.journal, self.source, entities, self.checked.unproved, "table", memory=None)
        run = self.journal.start_run(RunIdentity("backfill", "job", "table", "r", ""))
        path = written_alone(self.store, claims)
        Backfill(self.source, self.journal, path, Silent()).run(run, self.checked.entities)

    def book(self, number: int) -> Item:
        (item,) = self.store.get([(f"BOOK#{number}", "META")]).values()
        return item

    def findings(self, *, totals: bool = False) -> list[Finding]:
        run = self.journal.start_run(RunIdentity("verify", "job", "table", "r", secrets.token_hex(4)))
        stage = Verify(self.source, self.store, self.journal, Silent(), **OF_A_STILL_SOURCE)
        stage.run(run, self.checked.entities)
        return [one for one in self.journal.findings(run) if totals or one.kind not in ("count", "sum")]

    def close(self) -> None:
        self.client.delete_table(TableName=self.design.name)
        self.source.close()
        self.journal.close()


KEYS = "keys"


@pytest.fixture(params=["exchange", BOTOCORE, KEYS], autouse=True)
def lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By digests, whoever sends the requests; by keys, attribute by attribute, where there would be too many digests."""
    if request.param == KEYS:
        monkeypatch.setattr(stage, "DIGESTS_AT_MOST", -1)
    else:
        monkeypatch.setenv("MIGRATOR_LANE", request.param)
    return str(request.param)


@pytest.fixture
def library(tmp_path: Path, dynamodb_url: str) -> Iterator[Library]:
    connection = sqlite3.connect(tmp_path / "books.db")
    connection.executescript(SCRIPT)
    books = [(n, f"Title {n}", 1990 + n, n + 0.5, True) for n in range(1, 11)]
    connection.executemany("INSERT INTO book VALUES (?, ?, ?, ?, ?)", books)
    connection.executemany(
        "INSERT INTO tag VALUES (?, ?)", [(n, name) for n in range(1, 11) for name in "ab"]
    )
    connection.commit()
    connection.close()
    made = Library(f"sqlite:///{tmp_path}/books.db", dynamodb_url)
    yield made
    made.close()


Corrupt = Callable[[Library, Item], list[Item]]
CORRUPTIONS: dict[str, tuple[Corrupt, set[tuple[str, str]]]] = {
    "a changed value": (lambda _, book: [{**book, "title": "Other"}], {("different", "title")}),
    "one hundredth": (lambda _, book: [{**book, "price": 3}], {("different", "price")}),
    "a changed type": (lambda _, book: [{**book, "price": "3.50"}], {("different", "price")}),
    "a boolean as a number": (lambda _, book: [{**book, "active": 1}], {("different", "active")}),
    "a missing attribute": (lambda _, book: [{k: v for k, v in book.items() if k != "year"}], {("different", "year")}),
    "an attribute too many": (lambda _, book: [{**book, "extra": 1}], {("different", "extra")}),
    "a list in another order": (lambda _, book: [{**book, "tags": book["tags"][::-1]}], {("different", "tags")}),  # type: ignore[index]
    "a child too few": (lambda _, book: [{**book, "tags": book["tags"][:1]}], {("different", "tags")}),  # type: ignore[index]
    "a wrong index key": (lambda _, book: [{**book, "GSI1PK": "YEAR#1"}], {("different", "GSI1PK")}),
    "out of an index": (
        lambda _, book: [{k: v for k, v in book.items() if not k.startswith("GSI1")}],
        {("different", "GSI1PK"), ("different", "GSI1SK")},
    ),
    "another discriminator": (lambda _, book: [{**book, "type": "Boook"}], {("different", "type")}),
    "a stale key": (lambda _, book: [{**book, "SK": "OLD"}], {("unexpected", "")}),
    "an item of no row": (lambda _, book: [{**book, "PK": "BOOK#99", "_src": "book:[99]"}], {("unexpected", "")}),
    "a foreign item": (lambda _, book: [{"PK": "X", "SK": "Y", "type": "Book"}], {("foreign", "")}),
    "another row's item": (lambda _, book: [{**book, "_src": "book:[4]"}], {("collision", ""), ("unexpected", "")}),
}  # fmt: skip


def test_a_clean_table_has_no_findings(library: Library) -> None:
    assert library.findings() == []


def test_a_clean_table_is_read_by_one_scan_or_by_keys(
    library: Library, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ItemKey] = []
    get = library.store.get

    def watched(keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        asked.extend(keys)
        return get(keys)

    monkeypatch.setattr(library.store, "get", watched)
    assert library.findings() == []
    assert len(asked) == (10 if lane == KEYS else 0)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_is_found_as_what_it_is(library: Library, name: str) -> None:
    corrupt, expected = CORRUPTIONS[name]
    put_items(library.store, corrupt(library, library.book(3)))
    assert {(one.kind, one.attribute) for one in library.findings()} == expected


def test_a_missing_item_is_found(library: Library) -> None:
    library.store.delete([("BOOK#3", "META")])
    (found,) = library.findings()
    assert (found.kind, found.source_key) == ("missing", "[3]")


def test_tombstones_and_the_control_item_are_none_of_verifys(library: Library) -> None:
    dead: Item = {"type": TOMBSTONE, "_src": "book:[3]", "_tk": 9}
    put_items(
        library.store,
        [{**dead, "PK": "BOOK#99", "SK": "META"}, {**dead, "PK": "BOOK#3", "SK": "OLD", "price": 7}],
    )
    ControlItem(library.store, lambda state: None).raise_control(9)
    assert library.findings() == []
    run = library.journal.runs("job")[-1]
    assert library.journal.finding_counts(run) == {}


def test_a_tombstone_in_an_items_place_is_a_missing_item(library: Library) -> None:
    put_items(
        library.store, [{"PK": "BOOK#3", "SK": "META", "type": TOMBSTONE, "_src": "book:[3]", "_tk": 9}]
    )
    assert [(one.kind, one.source_key) for one in library.findings()] == [("missing", "[3]")]


COLON = """
mapping: 1
table: {name: %s, key: [PK, SK], type: type}
entities:
  user:
    items:
      "User:v2":
        key: ["NAME#{name}", USER]
        keep: [age]
"""


def test_totals_leave_out_a_collision_of_a_type_with_a_colon(tmp_path: Path, dynamodb_url: str) -> None:
    with sqlite3.connect(tmp_path / "users.db") as connection:
        connection.execute("CREATE TABLE user (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
        connection.executemany(
            "INSERT INTO user VALUES (?, ?, ?)", [(1, "a", 30), (2, "a", 40), (3, "b", 50)]
        )
    connection.close()
    users = Library(f"sqlite:///{tmp_path}/users.db", dynamodb_url, COLON)
    try:
        (found,) = users.findings(totals=True)
    finally:
        users.close()
    assert (found.kind, found.entity, found.item_type, found.source_key) == (
        "collision",
        "user",
        "User:v2",
        "[2]",
    )
    assert found.owner == "user:[1]"
