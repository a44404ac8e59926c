"""Two rows that make one key, found before one overwrites the other."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.items.encoder import compile_encoder, encode_page
from migrator.mapping.model.table import EncodedItem
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.write import Claims
from tests import pins
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  users:
    items:
      User: {key: ["USER#{id}", META]}
      Email: {key: ["EMAIL#{email|lower}", EMAIL], when: email}
"""


class Shop:
    """Users in SQLite and the claims of their items."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sql("CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT)")
        self.source = SqlSource(source_url(f"sqlite:///{path}"))
        parsed = parse_mapping(MAPPING, "m.yaml")
        self.checked: Checked = check_mapping(parsed, self.source.facts())
        (self.users,) = self.checked.entities
        self.claims = Claims(
            SqlJournal.in_memory(),
            self.source,
            {"users": self.users},
            self.checked.unproved,
            "table",
            memory=None,
        )

    def sql(self, statement: str) -> None:
        with sqlite3.connect(self.path) as database:
            database.execute(statement)

    def items(self) -> Sequence[EncodedItem]:
        encoder = compile_encoder(self.users)
        return encode_page(
            encoder, self.source.read_raw(self.users.plan, encoder.raw, None, None), 0, 0.0
        ).items


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


def test_only_doubtful_types_are_claimed(shop: Shop) -> None:
    assert shop.checked.unproved == {"users": frozenset({"Email"})}


def test_the_first_row_keeps_the_key_in_one_page(shop: Shop) -> None:
    shop.sql("INSERT INTO users VALUES (1, 'a@x'), (60, 'A@X'), (61, NULL)")
    kept, (finding,) = shop.claims.sift(shop.users, shop.items())
    assert [item.key[0] for item in kept] == ["USER#1", "EMAIL#a@x", "USER#60", "USER#61"]
    assert (finding.kind, finding.source_key, finding.item_key) == (
        "collision",
        "[60]",
        '["EMAIL#a@x","EMAIL"]',
    )
    assert (finding.item_type, finding.owner) == ("Email", "users:[1]")
    assert finding.reason == pins.text()


def test_the_first_row_keeps_the_key_over_pages_and_repeats(shop: Shop) -> None:
    shop.sql("INSERT INTO users VALUES (60, 'A@X')")
    later = shop.items()
    shop.sql("INSERT INTO users VALUES (1, 'a@x')")
    first = [item for item in shop.items() if item.source == "users:[1]"]
    assert shop.claims.sift(shop.users, first) == (first, [])
    assert shop.claims.sift(shop.users, first) == (first, [])
    kept, findings = shop.claims.sift(shop.users, later)
    assert ([item.key[0] for item in kept], len(findings)) == (["USER#60"], 1)


def test_a_row_that_moved_on_gives_its_key_up(shop: Shop) -> None:
    shop.sql("INSERT INTO users VALUES (1, 'a@x')")
    shop.claims.sift(shop.users, shop.items())
    shop.sql("UPDATE users SET email = 'b@x' WHERE id = 1")
    shop.sql("INSERT INTO users VALUES (60, 'A@X')")
    mine = [item for item in shop.items() if item.source == "users:[60]"]
    assert shop.claims.sift(shop.users, mine) == (mine, [])
