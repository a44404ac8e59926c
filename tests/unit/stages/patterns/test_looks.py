"""What lasts from look to look while rows change meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from migrator.model.evidence import DiffKey
from tests.unit.stages.patterns.test_replay import LIST, Replayed, rows_of

UNNAMED = """
params: {tenant: text}
query: {key: ["EVENT#{tenant}"]}
returns: [n, kind]
"""


def changing(replayed: Replayed, kind: str) -> None:
    """Row 3 changes at every look, and its item with it, where there is one; SQL says `kind`."""
    numbers, width = count(100), len(replayed.made.mapping.patterns["p"].parts[0].attributes)

    def answer(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows = rows_of(params)
        if rows:
            rows[3] = (3, next(numbers), kind)
        return [row[-width:] for row in rows]

    replayed.source.answers["SELECT 1"] = answer


def following(replayed: Replayed) -> None:
    """The item of row 3 says at every look what SQL will say."""
    query, numbers = replayed.store.query, count(100)

    def asked(*given: Any, **named: Any) -> Any:
        replayed.spoil(3, n=next(numbers))
        return query(*given, **named)

    replayed.store.query = asked  # type: ignore[method-assign]


def test_a_value_that_is_wrong_in_a_row_that_changes_lasts() -> None:
    replayed = Replayed(LIST, samples=1, workers=1)
    changing(replayed, "wrong")
    following(replayed)
    assert set(replayed.pattern().found) == {DiffKey("value", attribute="kind")}


def test_an_attribute_that_is_missing_in_a_row_that_changes_lasts() -> None:
    replayed = Replayed(LIST, samples=1, workers=1)
    changing(replayed, "k")
    replayed.spoil(3, n=None)
    assert set(replayed.pattern().found) == {DiffKey("missing", attribute="n")}


def test_a_row_that_changes_and_has_no_item_is_missing() -> None:
    replayed = Replayed(LIST, samples=1, workers=1)
    changing(replayed, "k")
    del replayed.store.items["EVENT#acme", "E#0003"]
    assert set(replayed.pattern().found) == {DiffKey("missing")}


def test_a_value_that_a_relay_is_behind_with_does_not_last() -> None:
    replayed = Replayed(LIST, samples=1, workers=1)
    changing(replayed, "k")
    numbers, query = count(), replayed.store.query

    def behind(*given: Any, **named: Any) -> Any:
        replayed.spoil(3, n=next(numbers))
        return query(*given, **named)

    replayed.store.query = behind  # type: ignore[method-assign]
    found = replayed.pattern()
    assert (found.transient, found.different) == (1, 0)


def test_without_its_key_a_row_that_changes_cannot_be_found_again() -> None:
    replayed = Replayed(UNNAMED, samples=1, workers=1)
    changing(replayed, "wrong")
    following(replayed)
    found = replayed.pattern()
    assert (found.transient, found.different) == (1, 0)
