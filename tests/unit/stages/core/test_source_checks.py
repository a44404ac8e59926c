"""What a run does when a table is altered while it goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.journal import Finding, Run, RunIdentity
from migrator.runtime.errors import SourceError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.core.ownership import pinned_columns
from tests import pins
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  orders:
    join: {user: user_id}
    collect: {spent: {sum: amount, of: payments, by: order_id}}
    items: {Order: {key: ["ORDER#{id}", ORDER], attributes: {total: total, name: user.name, spent: spent}}}
"""
TABLES = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, born DATE);
CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER REFERENCES users, total NUMERIC(10, 2), note TEXT);
CREATE TABLE payments (id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES orders, amount NUMERIC(10, 2));
INSERT INTO users VALUES (1, 'Ada', NULL);
INSERT INTO orders VALUES (1, 1, 2, NULL);
"""
AGAIN = (
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER REFERENCES users, total TEXT, note TEXT)"
)


class Running:
    """A run over orders, and the file whose table is altered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.alter(TABLES)
        self.journal = SqlJournal.in_memory()
        self.run: Run = self.journal.start_run(RunIdentity("backfill", "shop", "t", "r"))
        with self.open() as source:
            self.entities: tuple[CompiledEntity, ...] = check_mapping(
                parse_mapping(MAPPING, "m.yaml"), source.facts()
            ).entities

    def open(self) -> closing[SqlSource]:
        return closing(SqlSource(source_url(f"sqlite:///{self.path}")))

    def alter(self, script: str) -> None:
        with closing(sqlite3.connect(self.path)) as database:
            database.executescript(script)

    def read(self, between: Callable[[], None]) -> list[Finding]:
        """The findings of a run that reads a page, and one more after `between`."""
        with self.open() as source, pinned_columns(source, self.journal, self.run, self.entities):
            source.read_page(self.entities[0].plan, None, None)
            between()
            source.read_page(self.entities[0].plan, None, None)
        return self.journal.findings(self.run)

    def digest(self) -> str:
        with self.open() as source:
            found = check_mapping(parse_mapping(MAPPING, "m.yaml"), source.facts())
        return columns_digest("r", [entity.plan for entity in found.entities])


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path / "shop.db")


def test_no_change_prints_nothing(running: Running) -> None:
    assert running.read(lambda: None) == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "ALTER TABLE orders RENAME total TO amount",
            "table orders: column 'total' is gone; table orders: column 'amount' is new",
        ),
        ("ALTER TABLE users DROP name", "table users: column 'name' is gone"),
        ("ALTER TABLE payments RENAME amount TO paid", "table payments: column 'amount' is gone"),
        (f"DROP TABLE orders; {AGAIN}", "table orders: column 'total' has another type"),
        ("DROP TABLE payments", "table payments: column 'id' is gone"),
    ],
)
def test_a_column_that_is_read_and_changes_stops_the_run(running: Running, script: str, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        running.read(lambda: running.alter(script))
    assert pins.said(str(caught.value), "orders", words=words)
    assert pins.said(str(caught.value), "then")
    assert caught.value.exit_code == 3
    assert running.journal.findings(running.run) == []


def test_a_column_that_comes_is_a_finding_once(running: Running) -> None:
    found = running.read(lambda: running.alter("ALTER TABLE orders ADD channel TEXT"))
    assert [(one.kind, one.entity, one.attribute) for one in found] == [("schema", "orders", "channel")]
    assert pins.said(found[0].reason)
    assert running.read(lambda: None) == found


def test_a_column_that_no_entity_reads_may_go(running: Running) -> None:
    found = running.read(lambda: running.alter("ALTER TABLE users DROP born"))
    assert [one.attribute for one in found] == ["born"]


def test_a_run_is_the_same_as_long_as_it_reads_the_same(running: Running) -> None:
    before = running.digest()
    running.alter("ALTER TABLE orders ADD channel TEXT; ALTER TABLE users DROP born")
    assert running.digest() == before
    running.alter(f"DROP TABLE orders; {AGAIN}")
    assert running.digest() != before


def test_statement_missing_an_unrelated_name_keeps_its_message(running: Running) -> None:
    with (
        pins.refused(SourceError),
        running.open() as source,
        pinned_columns(source, running.journal, running.run, running.entities),
    ):
        source.query("SELECT 1 FROM nowhere", {})
