"""Items of entities that a new mapping has no more: tombstones in their place, segment by segment, and keys offered."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.features.revisions.migrate_work import Gone
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.live import KeyRequest
from migrator.mapping.model.table import TOMBSTONE, Item, ItemKey
from migrator.runtime.errors import StoppedError
from migrator.runtime.values import replace
from migrator.stages.live.relay import live_entities
from tests.golden.heart import check
from tests.support_fence import no_fence
from tests.support_items import write_items
from tests.support_session import session_by
from tests.unit.stages.core.live_world import HEAD, MAPPING, SCHEMA, Shop

NICKS = '  nicks: {table: users, items: {Nick: {key: ["MAIL#{name}", EMAIL]}}}\n'
NEWER = MAPPING.replace("EMAIL#{email}", "MAIL#{email}")


class Leaving:
    """Two users, ann with the nickname that is bea's address by the newer mapping, which has no nicknames."""

    def __init__(self) -> None:
        self.shop = Shop(NICKS)
        self.shop.change("users", 1, name="b@x", email="a@x")
        self.shop.change("users", 2, name="Bea", email="b@x")
        self.shop.relay.once()
        new = check(NEWER, SCHEMA, HEAD)
        self.refresh = replace(
            self.shop.refresh,
            entities=live_entities(new.mapping, new.entities, self.shop.source),
            revision=new.mapping.revision,
        )
        self.journal = SqlJournal.in_memory()
        self.run: Run = self.journal.start_run(RunIdentity("gone", "shop", "T", "rev", "change 1"))

    def stage(self, check: Any = no_fence, segments: int = 1) -> Gone:
        shop, refresh = self.shop, replace(self.refresh, check=check)
        return Gone(
            *(shop.store, refresh.table, frozenset({"nicks"}), check, segments, 1),
            refresh=refresh,
            open_findings=shop.open_findings,
        )

    def replaced(self, **chosen: Any) -> int:
        return self.stage(**chosen).run(session_by(self.journal), self.run)

    def nicks(self) -> dict[ItemKey, Item]:
        return {
            key: item
            for key, item in self.shop.store.items.items()
            if str(item.get("_src", "")).startswith("nicks:")
        }


@pytest.fixture
def leaving() -> Leaving:
    return Leaving()


def test_removed_entity_items_become_tombstones_and_others_stay(leaving: Leaving) -> None:
    before = {key: item for key, item in leaving.shop.store.items.items() if "USER#" in str(key)}
    assert leaving.replaced(segments=3) == 2
    assert {item["type"] for item in leaving.nicks().values()} == {TOMBSTONE}
    assert {item["_src"] for item in leaving.nicks().values()} == {"nicks:[1]", "nicks:[2]"}
    assert before.items() <= leaving.shop.store.items.items()
    assert leaving.replaced(segments=3) == 2, "what all calls of the run did"


def test_late_write_of_the_older_mapping_leaves_nothing(leaving: Leaving) -> None:
    late = [item for item in leaving.nicks().values() if item["type"] == "Nick"]
    assert late
    leaving.replaced()
    assert {outcome.verdict for outcome in write_items(leaving.shop.store, late)} == {"newer"}
    assert {item["type"] for item in leaving.nicks().values()} == {TOMBSTONE}


def wanted(leaving: Leaving) -> tuple[ItemKey, str]:
    """The key that bea's row requests, which a nickname has."""
    key, user = ("MAIL#b@x", "EMAIL"), ("users", "[2]")
    leaving.shop.memory.request_keys([KeyRequest(key, user), KeyRequest(key, ("nicks", "[7]"))], 1)
    return key, "users:[2]"


def test_freed_key_is_offered_to_the_row_that_requested_it(leaving: Leaving) -> None:
    key, owner = wanted(leaving)
    leaving.replaced()
    item = leaving.shop.store.items[key]
    assert (item["type"], item["_src"]) == ("Email", owner)
    assert not leaving.shop.memory.requests_of([key])


def test_key_offer_missed_by_a_kill_is_made_in_the_next_call(leaving: Leaving) -> None:
    key, owner = wanted(leaving)
    requests_of = leaving.shop.memory.requests_of

    def killed(keys: Any) -> Any:
        raise StoppedError("killed")

    leaving.shop.memory.requests_of = killed  # type: ignore[method-assign]
    with pytest.raises(StoppedError):
        leaving.replaced()
    assert leaving.shop.store.items[key]["type"] == TOMBSTONE
    leaving.shop.memory.requests_of = requests_of  # type: ignore[method-assign]
    leaving.replaced()
    assert leaving.shop.store.items[key]["_src"] == owner


def test_it_resumes_behind_the_last_page_that_is_done(leaving: Leaving) -> None:
    for number in range(3, 43):
        leaving.shop.change("users", number, name=f"n{number}")
    leaving.shop.relay.once()
    asked, most = 0, 1

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > most:
            raise StoppedError("the lease is lost")

    with pytest.raises(StoppedError):
        leaving.replaced(check=check)
    done = leaving.journal.segment(leaving.run, 0)
    assert 0 < done.tally["replaced"] < 42
    assert done.start is not None
    scanned: list[Any] = []
    scan = leaving.shop.store.scan
    leaving.shop.store.scan = lambda *place: scanned.append(place) or scan(*place)  # type: ignore[method-assign,func-returns-value]
    assert leaving.replaced() == 42
    assert scanned == [(0, 1, done.start)]
