"""Answers page by page, from either side."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.mapping.model.table import TOMBSTONE
from migrator.mapping.patterns.answers import Designs
from migrator.mapping.patterns.params import read_params
from migrator.mapping.patterns.requests import Cursor, digest_of, opened, signed
from migrator.runtime.errors import SettingsError
from migrator.stages.patterns.question import Question
from migrator.stages.reads.reads import SLACK, PagePosition, PageRows, refuse_unpaged, sql_page, table_page
from tests import pins
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.golden.patterns import SCHEMA, checked, items, row
from tests.support_fence import no_fence
from tests.support_items import put_items

ONE = 'params: {tenant: text}\nquery: {key: ["EVENT#{tenant}"]}\n'
TURNED = 'params: {tenant: text}\nquery: {key: ["EVENT#{tenant}"], descending: true}\n'
LIMITED = 'params: {tenant: text}\nquery: {key: ["EVENT#{tenant}"], limit: 25}\n'
FILTERED = 'params: {tenant: text}\nquery: {key: ["EVENT#{tenant}"], filter: {n: {ge: {const: 50}}}}\n'
SHARDS = 'params: {kind: text}\nquery: {index: ByShard, key: ["S#{kind}#{*|shard:4}"]}\n'
NUMBERS = 'params: {tenant: text}\nquery: {index: ByNumber, key: ["EVENT#{tenant}"]}\n'
EXPECTED = {
    ONE: list(range(100)),
    TURNED: list(range(99, -1, -1)),
    LIMITED: list(range(25)),
    SHARDS: list(range(100)),
    NUMBERS: list(range(100)),
}
KEY = "0123456789abcdef"


def question_of(pattern: str) -> Question:
    made = checked(pattern)
    return Question(made.mapping, made.mapping.patterns["p"], Designs())


def filled(pattern: str) -> FakeStore:
    made = checked(pattern)
    store = FakeStore(made.mapping.table, no_fence)
    put_items(store, items(made, *(row(number) for number in range(100))))
    return store


def through(cursor: PagePosition) -> PagePosition:
    """The place as it comes back from a caller."""
    sent = Cursor("p", "", "", "table", 0.0, cursor.given, cursor.starts, cursor.row)
    back = opened(signed(sent, KEY), KEY)
    return PagePosition(back.given, back.starts, back.row)


def ids(page: PageRows) -> list[Any]:
    return [one[0] for one in page.rows]


def all_pages(pattern: str, store: FakeStore, size: int) -> list[list[Any]]:
    question, place, found = question_of(pattern), PagePosition(), []
    while True:
        page = table_page(question, {"tenant": "acme", "kind": "k"}, store, place, size)
        found.append(ids(page))
        if page.next is None:
            return found
        place = through(page.next)


@pytest.mark.parametrize("size", [1, 7, 30, 100, 300])
@pytest.mark.parametrize("pattern", EXPECTED)
def test_all_pages_together_are_the_answer(pattern: str, size: int) -> None:
    found = all_pages(pattern, filled(pattern), size)
    expected = EXPECTED[pattern]
    assert [one for page in found for one in page] == expected
    assert [len(page) for page in found[:-1]] == [size] * (len(found) - 1)
    # No page at the end that is empty.
    assert found[-1]


def test_tombstones_are_on_no_page() -> None:
    store = filled(SHARDS)
    for item in list(store.items.values()):
        if item["n"] % 3:  # type: ignore[operator]
            item["type"] = TOMBSTONE
    for pattern in (ONE, SHARDS):
        found = all_pages(pattern, store, 5)
        assert [one for page in found for one in page] == list(range(0, 100, 3))
        assert {len(page) for page in found[:-1]} == {5}


def test_page_continues_after_a_deleted_last_item() -> None:
    store, question = filled(TURNED), question_of(TURNED)
    first = table_page(question, {"tenant": "acme"}, store, PagePosition(), 10)
    for number in range(85, 95):
        store.delete([("EVENT#acme", f"E#{number:04}")])
    assert first.next is not None
    second = table_page(question, {"tenant": "acme"}, store, through(first.next), 10)
    assert ids(second) == list(range(84, 74, -1))


# ── SQL ──


def sql_pages(rows: list[tuple[Any, ...]], place: PagePosition, size: int = 3) -> PageRows:
    source = MemorySource(SCHEMA, {}, {"SELECT 1": lambda params: rows})
    return sql_page(question_of(ONE), {"tenant": "acme"}, source, place, size)


def numbered(*numbers: int) -> list[tuple[Any, ...]]:
    return [(number,) for number in numbers]


def test_sql_gives_the_same_pages() -> None:
    place: PagePosition | None = PagePosition()
    found = []
    while place is not None:
        page = sql_pages(numbered(*range(7)), place)
        found.append(ids(page))
        place = page.next and through(page.next)
    assert found == [[0, 1, 2], [3, 4, 5], [6]]
    assert sql_pages([], PagePosition()).next is None
    assert sql_pages(numbered(1, 2, 3), PagePosition()).next is None


def test_rows_that_come_in_before_a_page_are_not_given_twice() -> None:
    first = sql_pages(numbered(9, 8, 7, 6, 5), PagePosition())
    assert first.next is not None
    assert ids(sql_pages(numbered(12, 11, 10, 9, 8, 7, 6, 5), first.next)) == [6, 5]
    # The last one is gone: as many on as were given.
    assert ids(sql_pages(numbered(9, 8, 6, 5, 4, 3), first.next)) == [5, 4, 3]
    assert ids(sql_pages(numbered(*range(5 * SLACK, 0, -1)), first.next)) == [
        5 * SLACK - 3 - n for n in range(3)
    ]
    assert ids(sql_pages([], first.next)) == []


def test_sql_gives_no_pages_without_end() -> None:
    with pins.refused(SettingsError):
        sql_pages(numbered(1), PagePosition(given=100_000))


# ── what has no pages ──


@pytest.mark.parametrize(
    "pattern",
    [
        'params: {tenant: text, id: integer}\nget: {key: ["EVENT#{tenant}", "E#{id:04}"]}',
        'params: {size: text}\nquery: {key: ["EVENT#{size}"]}',
        ONE + "returns: {first: {type: Event, attributes: [id]}}\nsql: {first: SELECT 1}",
    ],
    ids=["query", "parameter", "answer-parts"],
)
def test_what_has_no_pages_is_refused(pattern: str) -> None:
    with pins.refused(SettingsError):
        refuse_unpaged(checked(pattern).mapping.patterns["p"])


def test_the_digest_of_parameters_knows_no_order() -> None:
    assert digest_of({"a": "1", "b": "2"}) == digest_of({"b": "2", "a": "1"}) != digest_of({"a": "12"})
    assert read_params(checked(ONE).mapping.patterns["p"], {"tenant": "x"}) == {"tenant": "x"}
