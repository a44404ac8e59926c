"""`migrator forget` in wrong use, and keys in every way in which they may be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.command import Project
from tests.journeys.people import BOB, change, deleted, forget, people


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return people(tmp_path, dynamodb_url)


def test_a_composite_key_is_written_in_either_way(shop: Project) -> None:
    change(shop, "DELETE FROM seat")
    shop.done("relay", str(shop.job), "--once")
    for keys in (["--key", "hall=1", "--key", "number=2"], ["--key", "[1,2]"], ["--key", "[1, 2]"]):
        counted = shop.done("forget", str(shop.job), "--entity", "seat", *keys, "--dry-run", "--json").data
        assert counted["found"]["tombstones"] == 1


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--entity", "membr", "--key", "x"], "did you mean 'member'?"),
        (["--entity", "seat", "--key", "1"], "a composite key is written --key name=value"),
        (["--entity", "seat", "--key", "hall=1"], "write --key hall=… --key number=…"),
        (
            ["--entity", "seat", "--key", "hall=1", "--key", "hall=2", "--key", "number=3"],
            "write --key hall=…",
        ),
        (["--entity", "seat", "--key", "hall=a", "--key", "number=2"], "the key column hall is an integer"),
        (["--entity", "seat", "--key", "[1]"], "--key […] is no key of seat"),
        (["--entity", "seat", "--key", '["1", 2]'], "the key column hall is an integer"),
        (["--entity", "seat", "--key", '[{"b": 1}, 2]'], "--key […] is no key of seat"),
        (["--entity", "seat", "--key", "[1, 2"], "--key […] is no key of seat"),
        (["--entity", "seat", "--key", "[[1], [2]]"], "--key […] is no key of seat"),
        (["--entity", "seat", "--key", "[null, 2]"], "the key column hall is an integer"),
        (["--entity", "seat", "--key", f"[{10**30}, 2]"], "the key column hall is an integer of 64 bits"),
        (["--entity", "seat", "--key", f"hall={10**30}", "--key", "number=2"], "is an integer of 64 bits"),
        (["--entity", "member", "--key", "a\udcff"], "--key is no UTF-8 text"),
        (["--entity", "member", "--key", "[true]"], "the key column mail is text"),
        (["--entity", "member", "--key", "[" * 3000], "--key […] is no key of member"),
        (["--entity", "member"], "Missing option '--key'"),
        (["--key", "x"], "Missing option '--entity'"),
    ],
)
def test_wrong_use_is_told(shop: Project, words: list[str], what: str) -> None:
    ended = shop.run("forget", str(shop.job), *words, "--yes")
    assert (ended.code, what in ended.err) == (2, True), ended.err


def test_no_terminal_to_ask_is_wrong_use(shop: Project) -> None:
    deleted(shop, BOB)
    refused = forget(shop, BOB)
    assert (refused.code, "say --yes, or --dry-run to count" in refused.err) == (2, True)


def test_a_key_that_no_row_ever_had_is_nothing_and_says_so(shop: Project) -> None:
    ended = forget(shop, "nobody@example.com", "--dry-run")
    assert "kept of the row: nothing" in ended.out
    assert f"is the key written as `migrator findings {shop.job} --show-keys` shows it?" in ended.out
    done = forget(shop, "nobody@example.com", "--yes")
    assert (done.code, "is the key written as" in done.out) == (0, True)
