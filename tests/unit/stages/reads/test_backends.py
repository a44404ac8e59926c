"""The edges as a shadow sees them: no more rows than are compared, and nothing past its time."""

from __future__ import annotations

from typing import Any, cast

import pytest

from migrator.mapping.model.edges import ItemStore
from migrator.mapping.patterns.answers import TooManyError
from migrator.runtime.errors import StoppedError
from migrator.stages.patterns.question import fetch
from migrator.stages.reads.backends import BoundedSource, BoundedStore, Bounds
from tests import pins
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.golden.patterns import SCHEMA, checked, items, request, row
from tests.support_fence import no_fence
from tests.support_items import put_items

ONE = 'params: {tenant: text, limit: optional integer}\nquery: {key: ["EVENT#{tenant}"], limit: limit}\n'
BATCH = 'params: {tenant: text, ids: list of integer}\nbatch_get: {key: ["EVENT#{tenant}", "E#{ids:04}"]}\n'
SHARDS = 'params: {kind: text}\nquery: {index: ByShard, key: ["S#{kind}#{*|shard:4}"]}\n'


@pytest.fixture
def store() -> FakeStore:
    made = checked(ONE)
    found = FakeStore(made.mapping.table, no_fence)
    put_items(found, items(made, *(row(number) for number in range(100))))
    return found


def bounded(store: FakeStore, at_most: int, *, late: bool = False) -> ItemStore:
    return cast("ItemStore", BoundedStore(store, Bounds(at_most, lambda: late)))


def test_a_statement_stops_at_its_bound() -> None:
    asked: list[Any] = []

    class Source(MemorySource):
        def query(self, *words: Any, **named: Any) -> list[tuple[Any, ...]]:
            asked.append(named)
            return super().query(*words, **named)

    source = Source(SCHEMA, {}, {"SELECT 1": lambda params: [(n,) for n in range(params["rows"])]})
    bound = BoundedSource(source, Bounds(3, lambda: False))
    assert bound.query("SELECT 1", {"rows": 3}) == [(0,), (1,), (2,)]
    with pins.refused(TooManyError):
        bound.query("SELECT 1", {"rows": 1_000_000})
    assert asked == [{"at_most": 3}] * 2


@pytest.mark.parametrize(
    ("pattern", "given"), [(ONE, {"tenant": "acme"}), (SHARDS, {"kind": "k"}), (BATCH, {"tenant": "acme"})]
)
def test_a_request_stops_at_its_bound(store: FakeStore, pattern: str, given: dict[str, str]) -> None:
    listed = {"ids": ",".join(map(str, range(100)))} if pattern == BATCH else {}
    asked = request(pattern, **given, **listed)
    assert len(fetch(bounded(store, 100), asked).items) == 100
    with pytest.raises(TooManyError):
        fetch(bounded(store, 99), asked)
    store.queries.clear()
    with pytest.raises(TooManyError):
        fetch(bounded(store, 5), asked)
    assert all(query["Limit"] <= 6 for query in store.queries)


def test_a_limit_below_the_bound_is_kept(store: FakeStore) -> None:
    found = fetch(bounded(store, 5), request(ONE, tenant="acme", limit="5"))
    assert [item["n"] for item in found.items] == [0, 1, 2, 3, 4]


def test_past_its_time_nothing_is_requested(store: FakeStore) -> None:
    with pins.refused(StoppedError):
        fetch(bounded(store, 5, late=True), request(ONE, tenant="acme"))
    assert store.queries == []
