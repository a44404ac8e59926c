"""Phases as a service knows them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from threading import Event

import pytest
from structlog.testing import capture_logs

from migrator.mapping.model.evidence import OFF, ROUTES, Move, PatternPhase, State, answering
from migrator.mapping.model.live import ConditionalStore, Outcome
from migrator.mapping.model.table import EncodedItem, Item
from migrator.runtime.errors import SettingsError, StoppedError
from migrator.stages.reads.reads import PhaseCache
from tests import pins
from tests.fakes.phases import FakePhases
from tests.support_waiting import until
from tests.unit.stages.core.live_world import Shop


class Away(FakePhases):
    """Phases that cannot be asked while there is a `fault`."""

    fault: Exception | None = None
    asked = 0

    def all(self) -> dict[str, PatternPhase]:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return super().all()


@pytest.fixture
def phases() -> Away:
    return Away(time.time)


def move(phases: FakePhases, before: State, after: State, version: int) -> None:
    phases.move(Move("p", before, after, "me"), version)


def test_phases_are_renewed_and_confirmed_once_calls_act_by_them(phases: Away) -> None:
    with PhaseCache(phases, lambda: "me", 0.01) as cache:
        assert cache.state("p") == OFF
        move(phases, OFF, State("shadow"), 0)
        until(lambda: cache.state("p") == State("shadow"))
        until(lambda: phases.confirmed() == {"me": {"p": 1}})
        move(phases, State("shadow"), State("ramp", 10), 1)
        until(lambda: phases.confirmed() == {"me": {"p": 2}})
        assert cache.state("p") == State("ramp", 10)
        assert cache.state("unknown") == OFF


def test_an_instance_without_an_id_confirms_later(phases: Away) -> None:
    names = [""]
    move(phases, OFF, State("shadow"), 0)
    with PhaseCache(phases, lambda: names[0], 0.01) as cache:
        assert cache.state("p") == State("shadow")
        assert phases.confirmed() == {}
        names[0] = "me"
        until(lambda: phases.confirmed() == {"me": {"p": 1}})


@pytest.mark.parametrize(
    "fault", [StoppedError("away"), SettingsError("edited by hand"), KeyError("a secret"), MemoryError()]
)
def test_failing_start_raises_and_later_the_last_phases_stay(phases: Away, fault: Exception) -> None:
    phases.fault = fault
    with pytest.raises(type(fault)), PhaseCache(phases, lambda: "me", 0.01):
        pass
    phases.fault = None
    move(phases, OFF, State("live"), 0)
    with capture_logs() as logs, PhaseCache(phases, lambda: "me", 0.01) as cache:
        phases.fault = fault
        before = phases.asked
        until(lambda: phases.asked > before + 3)
        assert cache.state("p") == State("live")
        assert [one["event"] for one in logs] == ["phases_cannot_be_read"]
        assert "secret" not in str(logs)
        phases.fault = None
        move(phases, State("live"), State("shadow"), 1)
        until(lambda: cache.state("p") == State("shadow"))


def test_a_state_is_given_while_the_journal_hangs() -> None:
    class Hanging(FakePhases):
        answers, asking = Event(), Event()

        def all(self) -> dict[str, PatternPhase]:
            if not self.answers.is_set():
                self.asking.set()
                assert self.answers.wait(120)
            return super().all()

    phases = Hanging(time.time)
    phases.answers.set()
    with PhaseCache(phases, lambda: "me", 0.01) as cache:
        phases.answers.clear()
        assert phases.asking.wait(120)
        # A caller that waited for the journal would wait for the line after this one.
        assert [cache.state("p") for _ in range(1000)] == [OFF] * 1000
        phases.answers.set()


class Edited(FakePhases):
    """Phases of which one was edited by hand."""

    edited = ""

    def all(self) -> dict[str, PatternPhase]:
        found = super().all()
        if self.edited:
            found[self.edited] = PatternPhase(self.edited, State("live"), 7, 0.0, "p was edited by hand")
        return found


def test_a_phase_that_was_edited_by_hand_holds_up_no_other_one() -> None:
    phases = Edited(time.time)
    move(phases, OFF, State("shadow"), 0)
    with capture_logs() as logs, PhaseCache(phases, lambda: "me", 0.01) as cache:
        phases.edited = "p"
        phases.move(Move("q", OFF, State("shadow"), "me"), 0)
        until(lambda: cache.state("q") == State("shadow"))
        assert cache.state("p") == State("shadow")
        until(lambda: phases.confirmed() == {"me": {"p": 1, "q": 1}})
        until(lambda: [one["reason"] for one in logs] == ["p was edited by hand"])
    with pins.refused(SettingsError), PhaseCache(phases, lambda: "me", 0.01):
        pass


PATH = [
    State("off"),
    State("shadow"),
    State("ramp", 50),
    State("ramp", 100),
    State("live"),
    State("complete"),
]
PAIRS = [*pairwise(PATH), *((after, before) for before, after in pairwise(PATH[:-1]))]
STEPS = ("write", "relay", "move", "seen by one", "one reads", "two reads")
AFTER = {"relay": "write", "seen by one": "move"}


def orders() -> Iterator[tuple[str, ...]]:
    """Every order in which they can happen."""
    for order in permutations(STEPS):
        if all(order.index(step) > order.index(first) for step, first in AFTER.items()):
            yield order


@dataclass
class Moving:
    """One pattern over one row. Instance one sees the move, two has not looked yet; `share`: where the call stands."""

    before: State
    after: State
    share: float
    shop: Shop
    round: int
    phases: FakePhases = field(default_factory=lambda: FakePhases(lambda: 0.0))

    def __post_init__(self) -> None:
        version, known = 0, State("off")
        for state in PATH[1 : PATH.index(self.before) + 1]:
            version, known = self.phases.move(Move("p", known, state, "x"), version).version, state
        self.version = version
        self.one, self.two = (PhaseCache(self.phases, lambda name=name: name, 1.0) for name in ("one", "two"))  # type: ignore[misc]
        self.one.renew()
        self.two.renew()

    def do(self, step: str) -> None:
        if step == "write":
            self.shop.change("users", 1, name=f"new {self.round}")
        elif step == "relay":
            self.shop.relay.once()
        elif step == "move":
            self.phases.move(Move("p", self.before, self.after, "x"), self.version)
        elif step == "seen by one":
            self.one.renew()

    def read(self, cache: PhaseCache) -> str:
        """What a caller is told."""
        if answering(cache.state("p"), self.share, {}) == "table":
            return str(self.shop.live()["USER#1", "META"]["name"])
        return str(self.shop.rows["users"][0]["name"])


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda state: str(state))
def test_no_answer_is_staler_than_lag_and_no_write_is_lost(before: State, after: State) -> None:
    shop = Shop()
    for number, order in enumerate(orders()):
        old, new = f"new {number - 1}", f"new {number}"
        shop.change("users", 1, name=old)
        shop.relay.once()
        moving = Moving(before, after, (number % 4) / 4, shop, number)
        for place, step in enumerate(order):
            moving.do(step)
            if step.endswith("reads"):
                done = order[:place]
                said = moving.read(moving.one if step == "one reads" else moving.two)
                # Between the write and the relay either may be: that is lag, and nothing else is.
                allowed = {new} if "relay" in done else {old, new} if "write" in done else {old}
                assert said in allowed, order
        assert (shop.live()["USER#1", "META"]["name"], shop.marks.state().waiting) == (new, 0)
        confirmed = moving.phases.confirmed()
        assert confirmed["one"]["p"] == moving.version + 1
        assert confirmed.get("two", {}).get("p", 0) == moving.version


def test_neighbours_never_leave_a_side_without_the_other() -> None:
    """While two phases are at once, the side that one of them answers from is kept up to date under both."""
    for before, after in PAIRS:
        sides = {answering(state, share, {}) for state in (before, after) for share in (0.0, 0.99)}
        if sides == {"sql", "table"}:
            # Only where both are compared, so that a difference of the two is seen.
            assert ROUTES[before.phase].compares
            assert ROUTES[after.phase].compares


@dataclass
class Paused:
    """A store whose writer sleeps before its first write, while `meanwhile` happens."""

    store: ConditionalStore
    meanwhile: list[object]
    sends_texts: bool = True

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        while self.meanwhile:
            self.meanwhile.pop(0)()  # type: ignore[operator]
        return self.store.write(items, fresh=fresh)

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        return self.store.write_together(groups)

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        return self.store.remove_tombstones(tombstones)


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda state: str(state))
def test_a_writer_that_sleeps_across_a_move_does_no_harm(before: State, after: State) -> None:
    shop = Shop()
    shop.change("users", 1, name="new 0")
    moving = Moving(before, after, 0.0, shop, 1)
    real = shop.refresh.store

    def others() -> None:
        """Another relay and the move, while the first one sleeps with what it has read."""
        shop.refresh.store = real
        for step in ("write", "move", "relay", "seen by one"):
            moving.do(step)

    shop.refresh.store = Paused(real, [others])
    shop.relay.once()
    assert shop.live()["USER#1", "META"]["name"] == "new 1"
    assert {moving.read(moving.one), moving.read(moving.two)} == {"new 1"}
    assert shop.marks.state().waiting == 0
