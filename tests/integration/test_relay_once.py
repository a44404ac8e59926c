"""`relay --once` beside another relay: 0 says that no mark is left, and not that another relay has some."""

from __future__ import annotations

from threading import Timer

import pytest

from tests import pins
from tests.races.conftest import race, shops  # noqa: F401
from tests.races.harness import Race

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def changed(race: Race) -> Race:  # noqa: F811
    """A change whose mark is still to be worked; leases of one second."""
    race.sql("INSERT INTO users (id, name) VALUES (1, 'Ann')")
    race.tuning["lease_s"] = 1
    return race


def test_marks_of_one_that_was_killed_are_waited_for(changed: Race) -> None:
    """Its lease ends by itself."""
    assert len(changed.shop.live.marks.take(10, 0.7)) == 1
    ended = changed.command("relay", "--once")
    assert (ended.code, ended.err.count("warning")) == (0, 0)
    assert ("USER#1", "META") in changed.live()


def test_marks_of_one_that_works_are_waited_for(changed: Race) -> None:
    marks = changed.shop.live.marks.take(10, 3600)
    other = Timer(0.5, changed.shop.live.marks.finish, [[mark.id for mark in marks]])
    other.start()
    ended = changed.command("relay", "--once")
    other.join()
    assert ended.code == 0


def test_marks_that_another_keeps_are_no_success(changed: Race) -> None:
    changed.shop.live.marks.take(10, 3600)
    ended = changed.command("relay", "--once")
    if changed.shop.engine == "sqlite":
        # By the clocks of several hosts: a lease longer than this relay's own is of a clock that is ahead, and is cut.
        assert (ended.code, ("USER#1", "META") in changed.live()) == (0, True)
        return
    assert (ended.code, pins.said(" ".join(ended.err.split()))) == (1, True)
    assert changed.live() == {}
