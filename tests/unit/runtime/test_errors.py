"""Counts in sentences."""

from __future__ import annotations

import pytest

from migrator.runtime.errors import amount, did_you_mean, verb


@pytest.mark.parametrize(
    ("count", "what", "shown"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (1_234, "open shard", "1,234 open shards"),
        (2, "index", "2 indexes"),
        (2, "process", "2 processes"),
        (2, "key", "2 keys"),
        (2, "entity", "2 entities"),
    ],
)
def test_a_count_has_its_noun_as_many_take_it(count: int, what: str, shown: str) -> None:
    assert amount(count, what) == shown


@pytest.mark.parametrize(
    ("many", "one"), [("wait", "waits"), ("are", "is"), ("have", "has"), ("were", "was"), ("do", "does")]
)
def test_a_verb_follows_its_count(many: str, one: str) -> None:
    assert [verb(count, many) for count in (0, 1, 2)] == [many, one, many]
    assert amount(1, "row", many) == f"1 row {one}"


def test_known_names_are_listed_up_to_twelve() -> None:
    names = [f"n{number:02}" for number in range(13)]
    assert did_you_mean("strange", names[:12]) == f"; known: {', '.join(names[:12])}"
    assert did_you_mean("strange", names) == did_you_mean("strange", []) == ""
