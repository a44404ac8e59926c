"""`migrator recover`: what it asks, prints and does, and that a step that fails ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import change, cutover_shop, filled
from tests.journeys.test_journal_place import elsewhere


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    (tmp_path / "jobs").mkdir()
    made = cutover_shop(tmp_path / "jobs", dynamodb_url)
    filled(made)
    return made


def test_recover_without_a_terminal_needs_the_event(shop: Project) -> None:
    refused = shop.run("recover", str(shop.job))
    assert (refused.code, pins.said(refused.err)) == (2, True)


def test_a_lost_journal_is_recognised(shop: Project) -> None:
    del shop.environment["MIGRATOR_HOME"]
    refused = elsewhere(shop, "recover", str(shop.job), home="fresh")
    assert (refused.code, pins.said(refused.err)) == (2, True)


def test_steps_are_printed_and_nothing_is_changed(shop: Project) -> None:
    before = shop.items()
    printed = shop.done("recover", str(shop.job), "source-restored", "--dry-run").out
    assert [line[:2] for line in printed.splitlines()] == ["1.", "2.", "3."]
    assert f"migrator verify {shop.job} --repair" in printed
    assert shop.items() == before


def test_one_document_contains_every_step_with_its_result(shop: Project) -> None:
    ended = shop.done("recover", str(shop.job), "source-restored", "--settle", "0s", "--json")
    data = json.loads(ended.out)
    assert data["happened"] == "source-restored"
    assert [one["exit_code"] for one in data["results"]] == [0, 0, 0]
    assert data["results"][1]["result"]["clean"] is True
    shop.done("recover", str(shop.job), "source-restored", "--settle", "0s")


def test_a_step_that_fails_ends_it_with_its_exit_code(shop: Project) -> None:
    mapping = shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("customer", "client", 1))
    assert shop.run("recover", str(shop.job), "source-restored", "--settle", "0s").code == 2


def test_changes_that_the_relay_cannot_process_are_not_a_success(shop: Project) -> None:
    change(shop, "UPDATE customer SET name = 'x' WHERE id = 1")
    change(shop, "UPDATE migrator_mark SET table_name = 'nowhere'")
    ended = shop.run("recover", str(shop.job), "source-restored", "--settle", "0s", "--json")
    assert (ended.code, json.loads(ended.out)["results"][-1]["exit_code"]) == (1, 1)


def test_unreachable_source_is_not_taken_for_a_restored_one(shop: Project) -> None:
    (shop.folder / "shop.db").rename(shop.folder / "away.db")
    refused = shop.run("recover", str(shop.job))
    assert (refused.code, "(nothing that went back was found)" in refused.err) == (2, True)


def test_a_restored_source_is_recognised(shop: Project) -> None:
    change(shop, "UPDATE migrator_ticket SET number = number + 5")
    change(shop, "UPDATE customer SET name = 'x' WHERE id = 1")
    shop.done("relay", str(shop.job), "--once")
    change(shop, "UPDATE migrator_ticket SET number = 1")
    assert "(it looks like source-restored)" in shop.run("recover", str(shop.job)).err


def test_nothing_is_done_for_a_service_that_ended_without_a_word(shop: Project) -> None:
    assert pins.said(shop.done("recover", str(shop.job), "service-dead").out)


@pytest.mark.parametrize("words", [["journal-lost", "--from", "7"], ["no-such-thing"]])
def test_wrong_use(shop: Project, words: list[str]) -> None:
    assert shop.run("recover", str(shop.job), *words).code == 2
