"""Undo by the installed command: what the job wrote goes, all other items stay, backfill writes again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from migrator.runtime.values import replace
from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import small_shop
from tests.support_items import put_items

FOREIGN = [
    {"PK": "C#1", "SK": "NOTE", "type": "Note"},
    {"PK": "X#1", "SK": "META", "type": "Other", "_src": "shipment:[1]"},
    {"PK": "X#2", "SK": "META", "type": "Other", "_src": "customer"},
]


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = small_shop(tmp_path, dynamodb_url)
    made.done("backfill", str(made.job), "--max-write-units", "300")
    put_items(made.store(), FOREIGN)
    return made


def types(shop: Project) -> Counter[str]:
    return Counter(str(item["type"]) for item in shop.items())


EVERYTHING = Counter({"Customer": 30, "Invoice": 60, "InvoiceById": 60, "Note": 1, "Other": 2})


def test_the_items_of_another_writer_survive(shop: Project) -> None:
    counted = shop.done("clean", "--all-items", str(shop.job), "--dry-run", "--json").data
    assert (counted["items"], counted["deleted"], counted["left_alone"]) == (150, 0, 3)
    assert types(shop) == EVERYTHING

    shop.done("clean", "--all-items", str(shop.job), "--yes")
    assert sorted(shop.items(), key=lambda one: str(one["PK"])) == FOREIGN
    assert shop.done("clean", "--all-items", str(shop.job), "--yes", "--json").data["deleted"] == 0

    shop.done("backfill", str(shop.job))
    assert types(shop) == EVERYTHING


def test_one_entity_goes_and_comes_back(shop: Project) -> None:
    ended = shop.done("clean", "--all-items", str(shop.job), "--entity", "invoice", "--yes")
    assert pins.said(ended.out)
    assert types(shop) == EVERYTHING - Counter({"Invoice": 60, "InvoiceById": 60})
    again = shop.done("backfill", str(shop.job), "--json").data
    assert again["entities"]["invoice"]["items"] == 120
    assert types(shop) == EVERYTHING


def test_no_terminal_to_ask_is_wrong_use(shop: Project) -> None:
    refused = shop.run("clean", "--all-items", str(shop.job))
    assert (refused.code, pins.said(refused.err, "count")) == (2, True)
    unknown = shop.run("clean", "--all-items", str(shop.job), "--entity", "invoices", "--yes")
    assert (unknown.code, pins.said(unknown.err, "mean")) == (2, True)
    assert types(shop) == EVERYTHING


def test_what_the_journal_does_not_know_stays(shop: Project, tmp_path: Path) -> None:
    """Another journal stands for another job of the same entity names."""
    own = {"MIGRATOR_HOME": str(tmp_path / "elsewhere")}
    stranger = replace(shop, environment={**shop.environment, **own})
    for words in (["--yes"], ["--dry-run"], ["--yes", "--entity", "customer"]):
        refused = stranger.run("clean", "--all-items", str(shop.job), *words)
        assert (refused.code, pins.said(refused.err)) == (2, True)
    assert types(shop) == EVERYTHING
    assert (
        stranger.done("clean", "--all-items", str(shop.job), "--force", "--yes", "--json").data["deleted"]
        == 150
    )


def test_only_entities_that_the_job_wrote_are_deleted(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url)
    shop.done("backfill", str(shop.job), "--entity", "invoice")
    put_items(shop.store(), [{"PK": "C#1", "SK": "META", "type": "Customer", "_src": "customer:[1]"}])
    refused = shop.run("clean", "--all-items", str(shop.job), "--yes", "--entity", "customer")
    assert (refused.code, pins.said(refused.err)) == (2, True)
    assert shop.done("clean", "--all-items", str(shop.job), "--yes", "--json").data["deleted"] == 120
    assert types(shop) == Counter({"Customer": 1})
    shop.done("backfill", str(shop.job), "--entity", "invoice", "--restart", "--into-existing")
    assert (
        shop.done("clean", "--all-items", str(shop.job), "--force", "--yes", "--json").data["deleted"] == 120
    )
    named = ("clean", "--all-items", str(shop.job), "--force", "--yes", "--json", "--entity", "customer")
    assert shop.done(*named).data["deleted"] == 1


def test_an_entity_of_two_jobs_stays(shop: Project) -> None:
    journal = f"\njournal: 'sqlite:///{shop.folder}/both.db'\n"
    shop.job.write_text(shop.job.read_text() + journal)
    other = shop.folder / "crm.yaml"
    other.write_text(shop.job.read_text())
    shop.done("backfill", str(shop.job), "--into-existing")
    shop.done("backfill", str(other), "--into-existing", "--entity", "customer")
    refused = shop.run("clean", "--all-items", str(shop.job), "--yes")
    assert (refused.code, "job crm wrote customer into this table also" in refused.err) == (2, True)
    assert (
        shop.done("clean", "--all-items", str(shop.job), "--yes", "--entity", "invoice", "--json").data[
            "deleted"
        ]
        == 120
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one of --all-items"),
        (("--all-items", "--tombstones"), "give one of --all-items"),
        (("--tombstones", "--key", "1"), "--key does not go with --tombstones"),
        (("--attributes", "--force"), "--force does not go with --attributes"),
        (("--row", "--key", "1"), "--row goes with one --entity"),
    ],
)
def test_a_kind_is_named_and_takes_its_own_options(shop: Project, words: tuple[str, ...], said: str) -> None:
    refused = shop.run("clean", str(shop.job), *words, "--yes")
    assert (refused.code, said in refused.err) == (2, True), refused.err
