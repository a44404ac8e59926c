"""Shares of a run's budgets, on each kind of journal: all together never take more than there is, over any ten seconds."""

from __future__ import annotations

import pytest

from migrator.journal.operations import SHARES, WINDOW_S, SqlShares
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.instances import Share
from migrator.runtime.values import replace

SILENT_S = 30.0


@pytest.fixture
def shares(journal: SqlJournal) -> SqlShares:
    return SqlShares(journal.database, "shop", "run 1", SILENT_S)


def pass_by(journal: SqlJournal, seconds: float, *ids: str) -> None:
    """As if so much time had passed, for these or for all."""
    with journal.database.begin() as connection:
        for name, kept in SHARES.all(connection, "shop").items():
            if not ids or name in ids:
                earlier = replace(kept, since=kept.since - seconds, alive_at=kept.alive_at - seconds)
                SHARES.put(connection, "shop", earlier, name)


def test_one_alone_takes_all_at_once(shares: SqlShares) -> None:
    shares.enter([Share("a")])
    assert shares.beat(Share("a")) == 1
    other_run = SqlShares(shares.database, "shop", "run 2", SILENT_S)
    other_run.enter([Share("x")])
    assert other_run.beat(Share("x")) == 1


def test_processes_that_are_expected_need_not_wait_for_each_other(shares: SqlShares) -> None:
    shares.enter([Share("b"), Share("c")])
    shares.enter([Share("a")])
    assert [shares.beat(Share(name)) for name in "abc"] == [3, 3, 3]


def test_one_that_comes_later_takes_nothing_until_the_others_have_taken_less_for_ten_seconds(
    journal: SqlJournal, shares: SqlShares
) -> None:
    shares.enter([Share("a")])
    shares.beat(Share("a"))
    shares.enter([Share("b")])
    assert shares.beat(Share("b")) == 0, "the other takes everything"
    assert shares.beat(Share("a", 1)) == 2
    assert shares.beat(Share("b")) == 0, "the other has not said that it takes less"
    assert shares.beat(Share("a", 2)) == 2
    assert shares.beat(Share("b")) == 0, "what it took before is within the window"
    pass_by(journal, WINDOW_S + 1)
    shares.beat(Share("a", 2))
    assert shares.beat(Share("b")) == 2


def test_what_one_leaves_is_taken_when_it_is_out_of_the_window(
    journal: SqlJournal, shares: SqlShares
) -> None:
    shares.enter([Share("a"), Share("b")])
    assert [shares.beat(Share(name)) for name in "ab"] == [2, 2]
    shares.leave("b")
    assert shares.beat(Share("a", 2)) == 2
    pass_by(journal, WINDOW_S + 1, "b")
    assert shares.beat(Share("a", 2)) == 1


def test_one_that_is_known_to_be_dead_counts_as_if_it_had_left_and_a_silent_one_for_longer(
    journal: SqlJournal, shares: SqlShares
) -> None:
    shares.enter([Share("a"), Share("dead"), Share("silent")])
    for name in ("a", "dead", "silent"):
        shares.beat(Share(name))
    with journal.database.begin() as connection:
        kept = SHARES.all(connection, "shop")["dead"]
        holder = kept.holder.replace('"born": "', '"born": "no')
        SHARES.put(connection, "shop", replace(kept, holder=holder), "dead")
    assert shares.beat(Share("a", 3)) == 3
    pass_by(journal, WINDOW_S + 1, "dead", "silent")
    assert shares.beat(Share("a", 3)) == 2
    pass_by(journal, SILENT_S, "silent")
    assert shares.beat(Share("a", 2)) == 1


def test_connections_are_counted_while_their_process_is_there(shares: SqlShares) -> None:
    shares.enter([Share("a", connections=5), Share("b", connections=3)])
    assert shares.connections_taken() == 8
    shares.beat(Share("a", connections=5))
    shares.leave("b")
    assert shares.connections_taken() == 5
