"""A source that goes back and takes the journal with it (`journal: source`): no writer writes, and no mark is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.runtime.errors import SettingsError
from migrator.stages.live.relay import Relay, RelayOptions
from tests import pins
from tests.integration.going_back import REPAIR, Shop, open_shop

pytestmark = pytest.mark.slow

LOST = "UPDATE customer SET name = 'lost' WHERE id = 1"


@pytest.fixture
def shop(tmp_path: Path, postgres_database: str, postgres_url: str, dynamodb_url: str) -> Iterator[Shop]:
    made = open_shop(tmp_path, postgres_database, postgres_url, dynamodb_url)
    yield made
    made.drop_copies()


def emptied(relay: Relay) -> None:
    while relay.once().taken:
        pass


def lose(shop: Shop) -> str:
    """A change is worked by a relay that keeps nothing of it in time; the source as it was before the change."""
    saved = shop.saved()
    with shop.relay() as beside:
        shop.sql(LOST)
        emptied(beside.relay(lambda: None))
    assert shop.items()["C#1", "META"]["name"] == "lost"
    return saved


def mend(shop: Shop) -> None:
    """The advice, word for word."""
    shop.done("recover", "source-restored", "--settle", "0s")
    shop.done("verify", "--settle", "0s")


def test_a_running_relay_stops_and_keeps_its_marks(shop: Shop) -> None:
    saved = shop.saved()
    with shop.relay() as beside:
        relay = beside.relay(lambda: None)
        relay.options = RelayOptions(lease_s=0)
        shop.sql(LOST)
        emptied(relay)
        shop.restore(saved)
        shop.sql("UPDATE customer SET name = 'after' WHERE id = 1")
        for _ in range(5):  # the counter does not come up by being asked
            with pins.refused(SettingsError):
                relay.once()
    assert shop.marks() == 1
    refused = shop.command("relay", "--once")
    assert (refused.code, REPAIR in refused.err) == (2, True)
    mend(shop)
    assert shop.items()["C#1", "META"]["name"] == "after"


@pytest.mark.parametrize("change", ["UPDATE customer SET name = 'after' WHERE id = 1", ""])
def test_restarted_relay_stops_after_any_restore(shop: Shop, change: str) -> None:
    """Also where no row that went back was changed again, so that no write is refused."""
    saved = lose(shop)
    shop.restore(saved)
    if change:
        shop.sql(change)
    marks = shop.marks()
    for _ in range(3):
        refused = shop.command("relay", "--once")
        assert (refused.code, REPAIR in refused.err) == (2, True), refused.err
    assert shop.marks() == marks
    assert shop.command("backfill", "--restart").code == 2
    mend(shop)
    assert shop.items()["C#1", "META"]["name"] == ("after" if "after" in change else "ann")


def test_an_idle_relay_notices(shop: Shop) -> None:
    saved = shop.saved()
    with shop.relay() as beside:
        relay = beside.relay(lambda: None)
        shop.sql(LOST)
        emptied(relay)
        shop.restore(saved)
        with pins.refused(SettingsError):
            beside.guard()
