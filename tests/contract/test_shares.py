"""Shares of a run's budgets, on each kind of journal: all together never take more than there is, over any ten seconds."""

from __future__ import annotations

import pytest

from migrator.journal.operations import PROCESSES, WINDOW_S, SqlProcesses
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.instances import Advance, ProcessState, Share
from migrator.runtime.values import replace

SILENT_S = 30.0


class Shares:
    """Of one run's processes, which `status` does not list."""

    def __init__(self, journal: SqlJournal, scope: str = "run 1") -> None:
        self.processes = SqlProcesses(journal.database, "shop", SILENT_S)
        self.scope = scope

    def enter(self, **connections: int) -> None:
        self.processes.reserve(
            [Share(name, self.scope, connections=number) for name, number in connections.items()]
        )

    def beat(self, name: str, parts: int = 0, connections: int = 0) -> int:
        own = Share(name, self.scope, parts, connections)
        _, shared_by, _ = self.processes.beat(name, None, own, Advance())
        return shared_by

    def taken(self) -> int:
        return self.processes.connections_taken(self.scope)


@pytest.fixture
def shares(journal: SqlJournal) -> Shares:
    return Shares(journal)


def pass_by(journal: SqlJournal, seconds: float, *ids: str) -> None:
    """As if so much time had passed, for these or for all."""
    with journal.database.begin() as connection:
        for name, kept in PROCESSES.all(connection, "shop").items():
            if not ids or name in ids:
                earlier = replace(kept, since=kept.since - seconds, alive_at=kept.alive_at - seconds)
                PROCESSES.put(connection, "shop", earlier, name)


def test_one_alone_takes_all_at_once(journal: SqlJournal, shares: Shares) -> None:
    assert shares.beat("a") == 1
    assert Shares(journal, "run 2").beat("x") == 1


def test_expected_processes_need_not_wait_for_each_other(shares: Shares) -> None:
    shares.enter(b=0, c=0)
    assert [shares.beat(name) for name in "abc"] == [3, 3, 3]


def test_late_process_waits_until_others_took_less_for_10_s(journal: SqlJournal, shares: Shares) -> None:
    shares.beat("a")
    assert shares.beat("b") == 0, "the other takes everything"
    assert shares.beat("a", 1) == 2
    assert shares.beat("b") == 0, "the other has not said that it takes less"
    assert shares.beat("a", 2) == 2
    assert shares.beat("b") == 0, "what it took before is within the window"
    pass_by(journal, WINDOW_S + 1)
    shares.beat("a", 2)
    assert shares.beat("b") == 2


@pytest.mark.parametrize("way", ["leave", "ended"])
def test_share_that_one_leaves_is_taken_after_the_window(
    journal: SqlJournal, shares: Shares, way: str
) -> None:
    shares.enter(a=0, b=0)
    assert [shares.beat(name) for name in "ab"] == [2, 2]
    if way == "leave":
        shares.processes.leave("b", None)
    else:
        shares.processes.ended("b")
    assert shares.beat("a", 2) == 2
    pass_by(journal, WINDOW_S + 1, "b")
    assert shares.beat("a", 2) == 1


def test_dead_process_counts_as_left_and_a_silent_one_for_longer(journal: SqlJournal, shares: Shares) -> None:
    names = ("a", "dead", "silent")
    shares.enter(**dict.fromkeys(names, 0))
    for name in names:
        shares.beat(name)
    with journal.database.begin() as connection:
        kept = PROCESSES.all(connection, "shop")["dead"]
        gone = replace(kept, holder=replace(kept.holder, born="1"))
        PROCESSES.put(connection, "shop", gone, "dead")
    assert shares.beat("a", 3) == 3
    pass_by(journal, WINDOW_S + 1, "dead", "silent")
    assert shares.beat("a", 3) == 2
    pass_by(journal, SILENT_S, "silent")
    assert shares.beat("a", 2) == 1


def test_connections_are_counted_while_their_process_is_there(shares: Shares) -> None:
    shares.enter(a=5, b=3)
    assert shares.taken() == 8
    shares.beat("a", connections=5)
    shares.processes.leave("b", None)
    assert shares.taken() == 5


def test_killed_process_stays_listed_without_share(journal: SqlJournal, shares: Shares) -> None:
    state, own = ProcessState("backfill", "host-1", 77, "0.1.0"), Share("b", "run 1")
    last, _, _ = shares.processes.beat("b", state, own, Advance())
    assert (shares.processes.at_work("run 1"), shares.beat("a")) == (1, 0)
    pass_by(journal, 5)
    shares.processes.ended("b")
    assert shares.processes.at_work("run 1") == 1
    assert shares.processes.read().processes == [last]
    pass_by(journal, WINDOW_S + 1, "b")
    assert shares.beat("a") == 1


def test_process_without_share_does_not_count(shares: Shares) -> None:
    state = ProcessState("backfill", "host-1", 77, "0.1.0")
    shares.processes.beat("driver", state, None, Advance())
    assert shares.beat("a") == 1
    shares.processes.leave("driver", Advance())
    assert (shares.beat("a", 1), shares.processes.read().processes) == (1, [])
