"""Undo by the installed command: what the job wrote goes, everybody else's items stay, backfill writes again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.journey.command import Project
from tests.journey.small import small_shop

FOREIGN = [
    {"PK": "C#1", "SK": "NOTE", "type": "Note"},
    {"PK": "X#1", "SK": "META", "type": "Other", "_src": "shipment:[1]"},
    {"PK": "X#2", "SK": "META", "type": "Other", "_src": "customer"},
]


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = small_shop(tmp_path, dynamodb_url)
    made.done("backfill", str(made.job), "--max-write-units", "300")
    made.store().put(FOREIGN)  # type: ignore[arg-type]
    return made


def types(shop: Project) -> Counter[str]:
    return Counter(str(item["type"]) for item in shop.items())


EVERYTHING = Counter({"Customer": 30, "Invoice": 60, "InvoiceById": 60, "Note": 1, "Other": 2})


def test_the_items_of_another_writer_survive(shop: Project) -> None:
    counted = shop.done("undo", str(shop.job), "--dry-run", "--json").data
    assert (counted["items"], counted["deleted"], counted["left_alone"]) == (150, 0, 3)
    assert types(shop) == EVERYTHING

    shop.done("undo", str(shop.job), "--yes")
    assert sorted(shop.items(), key=lambda one: str(one["PK"])) == FOREIGN
    assert shop.done("undo", str(shop.job), "--yes", "--json").data["deleted"] == 0

    shop.done("backfill", str(shop.job))
    assert types(shop) == EVERYTHING


def test_one_entity_goes_and_comes_back(shop: Project) -> None:
    ended = shop.done("undo", str(shop.job), "--entity", "invoice", "--yes")
    assert "120 item(s) deleted; 33 item(s) of others are left alone" in ended.out
    assert types(shop) == EVERYTHING - Counter({"Invoice": 60, "InvoiceById": 60})
    again = shop.done("backfill", str(shop.job), "--json").data
    assert again["entities"]["invoice"]["items"] == 120
    assert types(shop) == EVERYTHING


def test_nobody_to_ask_is_wrong_use(shop: Project) -> None:
    refused = shop.run("undo", str(shop.job))
    assert (refused.code, "say --yes, or --dry-run to count" in refused.err) == (2, True)
    unknown = shop.run("undo", str(shop.job), "--entity", "invoices", "--yes")
    assert (unknown.code, "did you mean 'invoice'?" in unknown.err) == (2, True)
    assert types(shop) == EVERYTHING
