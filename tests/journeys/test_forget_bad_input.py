"""`migrator clean --row` in wrong use, and keys in every way in which they may be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.people import BOB, change, deleted, forget, people


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return people(tmp_path, dynamodb_url)


def test_a_composite_key_is_written_in_either_way(shop: Project) -> None:
    change(shop, "DELETE FROM seat")
    shop.done("relay", str(shop.job), "--once")
    for keys in (["--key", "hall=1", "--key", "number=2"], ["--key", "[1,2]"], ["--key", "[1, 2]"]):
        counted = shop.done(
            "clean", "--row", str(shop.job), "--entity", "seat", *keys, "--dry-run", "--json"
        ).data
        assert counted["found"]["tombstones"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--entity", "membr", "--key", "x"],
        ["--entity", "seat", "--key", "1"],
        ["--entity", "seat", "--key", "hall=1"],
        ["--entity", "seat", "--key", "hall=1", "--key", "hall=2", "--key", "number=3"],
        ["--entity", "seat", "--key", "hall=a", "--key", "number=2"],
        ["--entity", "seat", "--key", "[1]"],
        ["--entity", "seat", "--key", '["1", 2]'],
        ["--entity", "seat", "--key", '[{"b": 1}, 2]'],
        ["--entity", "seat", "--key", "[1, 2"],
        ["--entity", "seat", "--key", "[[1], [2]]"],
        ["--entity", "seat", "--key", "[null, 2]"],
        ["--entity", "seat", "--key", f"[{10**30}, 2]"],
        ["--entity", "seat", "--key", f"hall={10**30}", "--key", "number=2"],
        ["--entity", "member", "--key", "a\udcff"],
        ["--entity", "member", "--key", "[true]"],
        ["--entity", "member", "--key", "[" * 3000],
        ["--entity", "member"],
        ["--key", "x"],
    ],
    ids=[
        "you-mean",
        "composite-written",
        "write-number",
        "write-hall",
        "column-integer",
        "key-seat",
        "key-column-integer",
        "key-seat-2",
        "key-seat-3",
        "key-seat-4",
        "key-column-hall-integer",
        "integer-bits",
        "integer-bits-entity",
        "case",
        "key-column",
        "key-member",
        "missing-option",
        "missing-option-key",
    ],
)
def test_wrong_use_is_reported(shop: Project, words: list[str]) -> None:
    ended = shop.run("clean", "--row", str(shop.job), *words, "--yes")
    assert (ended.code, pins.said(ended.err)) == (2, True), ended.err


def test_no_terminal_to_ask_is_wrong_use(shop: Project) -> None:
    deleted(shop, BOB)
    refused = forget(shop, BOB)
    assert (refused.code, pins.said(refused.err)) == (2, True)


def test_key_that_no_row_ever_had_is_reported_as_unknown(shop: Project) -> None:
    ended = forget(shop, "nobody@example.com", "--dry-run")
    assert pins.said(ended.out, "kept")
    assert pins.said(ended.out, "shows", job=shop.job)
    done = forget(shop, "nobody@example.com", "--yes")
    assert (done.code, pins.said(done.out, "written")) == (0, True)
