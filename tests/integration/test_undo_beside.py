"""An undo beside other writers: one of the two would delete what the other has just written."""

from __future__ import annotations

import pytest

from migrator.mapping.model.live import WriterKind
from migrator.runtime.errors import StoppedError
from tests import pins
from tests.faults.schedule import Faults, Wire
from tests.journeys.in_process import Ended
from tests.races.conftest import race, shops  # noqa: F401
from tests.races.harness import Race


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def filled(race: Race) -> Race:  # noqa: F811
    for number in range(1, 4):
        race.sql(f"INSERT INTO users (id, name) VALUES ({number}, 'Ann {number}')")
    assert race.command("backfill").code == 0
    race.sql(f"DELETE FROM {race.shop.mark_table}")
    return race


def said(ended: Ended) -> str:
    return " ".join((ended.out + ended.err).split())


@pytest.mark.parametrize("kind", ["relay", "strict", "conditional"])
def test_nothing_is_deleted_while_another_writes(filled: Race, kind: WriterKind) -> None:
    before = filled.live()
    writer_lease = filled.heartbeats.enter(kind)
    assert filled.command("clean", "--all-items", "--dry-run").code == 0
    refused = filled.command("clean", "--all-items", "--yes")
    assert (refused.code, pins.said(said(refused))) == (2, True)
    assert (filled.command("clean", "--all-items", "--yes", "--force").code, filled.live()) == (2, before)
    filled.heartbeats.leave(writer_lease, clean=True)
    assert filled.command("clean", "--all-items", "--yes").code == 0
    assert filled.live() == {}


def test_one_that_was_killed_is_waited_for(filled: Race) -> None:
    """What it sent last may land until then."""
    filled.heartbeats.enter("relay")
    filled.pass_time(60)
    assert filled.command("clean", "--all-items", "--yes").code == 2
    filled.pass_time(31)
    assert filled.command("clean", "--all-items", "--yes").code == 0


def test_no_writer_begins_while_it_deletes(filled: Race) -> None:
    """Commands that are given while its first delete is on the way."""
    said_then: dict[str, tuple[int, bool]] = {}

    def meanwhile(operation: str, body: Wire) -> bool:
        if operation == "DeleteItem" and not said_then:
            said_then["relay"] = began(filled, "relay")
            said_then["strict"] = began(filled, "strict")
            said_then["fast"] = began(filled, "fast")
        return False

    with filled.through(Faults(holds=meanwhile)) as (_, proxy):
        assert filled.command_through(proxy.url, "clean", "--all-items", "--yes").code == 0
    assert said_then == dict.fromkeys(("relay", "strict", "fast"), (3, True))
    assert filled.heartbeats.enter("relay").writer.kind == "relay"


def began(race: Race, kind: WriterKind) -> tuple[int, bool]:  # noqa: F811
    with pytest.raises(StoppedError) as told:
        race.heartbeats.enter(kind)
    return told.value.exit_code, "clean --all-items is deleting items of this table" in str(told.value)


def test_an_undo_leaves_the_fast_path_as_it_was(filled: Race) -> None:
    """What is written anew after it is as fast as it was."""
    assert filled.command("clean", "--all-items", "--yes").code == 0
    again = filled.command("backfill")
    assert (again.code, "path: fast" in again.err) == (0, True)
