"""Which calls have a shadow, and what it comes to."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from migrator.mapping.model.evidence import DiffKey, Side, Window
from migrator.mapping.model.mapping import Param, Part, Pattern
from migrator.mapping.model.results import Hidden, PartAnswer
from migrator.mapping.patterns.answers import TooManyError
from migrator.settings.job import ShadowSettings
from migrator.stages.patterns.question import compared
from migrator.stages.patterns.replay import Sampler
from migrator.stages.reads.backends import Bounds, ShadowedCall, SideError
from migrator.stages.reads.metrics import ReadMetrics
from migrator.stages.reads.shadow import ROUNDS, AnsweredCall, Breaker, Budget, Shadow
from tests import pins
from tests.fakes.evidence import FakeEvidence

PATTERN = Pattern("p", (Param("id", "text"),), "get", (), parts=(Part("", "", ("id", "total")),))
HIDDEN = Hidden(frozenset({"total"}), frozenset({"id"}))
Rows = list[tuple[Any, ...]]


class Call:
    """Two sides that a test changes."""

    def __init__(self, rows: Rows, items: Rows) -> None:
        self.answers: dict[Side, Any] = {"sql": rows, "table": items}
        self.asked: list[Side] = []

    def ask(self, side: Side, bounds: Bounds) -> Any:
        self.asked.append(side)
        found = self.answers[side]
        if isinstance(found, BaseException):
            raise found
        return found() if callable(found) else found

    def compared(self, items: Rows, rows: Rows) -> tuple[PartAnswer, ...]:
        return (compared(PATTERN, PATTERN.parts[0], items, rows),)

    def shadowed(self) -> ShadowedCall:
        return ShadowedCall(PATTERN, self.ask, self.compared)


class Ticks:
    """A clock that goes on while a test waits for something, and stands while the test is busy itself."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Shadowing:
    """A shadow and what it counted."""

    def __init__(self, shadow: Shadow, ledger: ReadMetrics, evidence: FakeEvidence, clock: Ticks) -> None:
        self.clock = clock
        self.shadow = shadow
        self.ledger = ledger
        self.evidence = evidence

    def offer(self, call: Call, side: Side = "sql") -> None:
        given = call.answers[side]
        self.shadow.offer("p", lambda: AnsweredCall(call.shadowed(), side, given, {"id": "1"}))

    def until(self, holds: Callable[[Window], bool]) -> Window:
        ends_at = time.monotonic() + 120
        while True:
            self.ledger.flush()
            found = self.evidence.windows(0)
            if found and holds(found[0]):
                return found[0]
            assert time.monotonic() < ends_at, found
            time.sleep(0.01)
            self.clock.now_s += 0.02


@contextmanager
def shadowing(
    lag_s: Callable[[], float] = lambda: 0.0, clock: Callable[[], float] | None = None, **given: Any
) -> Iterator[Shadowing]:
    # Unchecked, since clocks of tests may run faster than a job's limits allow for.
    settings = ShadowSettings().model_copy(
        update={"settle_s": 0.2, "deadline_s": 60, "per_s": 1000, "at_once": 2, **given}
    )
    evidence, ticks = FakeEvidence(lambda: 6000.0), Ticks()
    blank = Window("", 0, "", "shop", "rev", "service")
    ledger = ReadMetrics(evidence, blank, {}, lambda: "me", clock=lambda: 6000.0)
    shadow = Shadow(
        settings,
        ledger,
        lambda name: Sampler(PATTERN, HIDDEN, "me", "rev"),
        lag_s=lag_s,
        clock=clock or ticks,
    )
    with shadow:
        yield Shadowing(shadow, ledger, evidence, ticks)


def test_equal_answers_are_the_same() -> None:
    with shadowing() as one:
        call = Call([(1, 5)], [(1, 5)])
        one.offer(call)
        found = one.until(lambda window: window.compared == 1)
        assert (found.same, found.answered, call.asked) == (1, {"table": 1}, ["table"])
        one.offer(call, "table")
        assert one.until(lambda window: window.compared == 2).answered == {"table": 1, "sql": 1}


def test_persistent_difference_counts_after_rereading_both_sides() -> None:
    with shadowing() as one:
        call = Call([(1, 5), (2, 6)], [(1, 5), (2, 7)])
        one.offer(call)
        found = one.until(lambda window: window.different == 1)
        assert found.found == {DiffKey("value", "", "total"): 1}
        assert call.asked == ["table", *["table", "sql"] * len(ROUNDS)]
        (sample,) = one.evidence.samples()
        assert sample.params["id"].startswith("…")
        assert sample.row is not None
        assert sample.item is not None
        assert sample.row[0] == "2"
        assert "6" not in {sample.row[1], sample.item[1]}


def test_while_an_older_change_is_on_its_way_nothing_counts() -> None:
    with shadowing(lag_s=lambda: 100.0, settle_s=1.0) as one:
        call = Call([(1, 5)], [(1, 6)])
        one.offer(call)
        # More looks than what no change stands before would have had.
        assert one.until(lambda window: len(call.asked) > 1 + 2 * len(ROUNDS)).compared == 0
        call.answers["table"] = [(1, 5)]
        assert one.until(lambda window: window.compared == 1).transient == 1


def test_a_change_that_never_arrives_counts_in_the_end() -> None:
    with shadowing(lag_s=lambda: 100.0, settle_s=0.4) as one:
        call = Call([(1, 5)], [(1, 6)])
        one.offer(call)
        assert one.until(lambda window: window.compared == 1).different == 1
        assert len(call.asked) > 1 + 2 * len(ROUNDS)


def test_changes_from_after_the_first_look_keep_nothing_back() -> None:
    with shadowing(lag_s=lambda: 0.05, settle_s=0.2) as one:
        call = Call([(1, 5)], [(1, 6)])
        one.offer(call)
        assert one.until(lambda window: window.compared == 1).different == 1
        assert len(call.asked) == 1 + 2 * len(ROUNDS)


def test_what_goes_away_is_transient() -> None:
    with shadowing() as one:
        call = Call([(1, 5)], [])
        one.offer(call)
        one.until(lambda window: window.answered == {"table": 1})
        call.answers["table"] = [(1, 5)]
        found = one.until(lambda window: window.compared == 1)
        assert (found.transient, found.found) == (1, {})


def test_row_that_differs_in_another_way_each_time_is_in_flight() -> None:
    numbers = iter(range(1000))
    with shadowing() as one:
        one.offer(Call([(1, 5)], lambda: [(next(numbers), 100)]))  # type: ignore[arg-type]
        # The item is another one at every look; the row is missing at each.
        found = one.until(lambda window: window.compared == 1)
        assert found.found == {DiffKey("missing"): 1}


def test_three_samples_of_each_kind_are_kept_of_a_call() -> None:
    with shadowing() as one:
        one.offer(Call([(n, 5) for n in range(4)], [(n, 6) for n in range(4)]))
        found = one.until(lambda window: window.different == 1)
        assert (list(found.found.values()), len(one.evidence.samples())) == ([4], 3)


def test_error_is_counted_and_is_not_a_difference() -> None:
    with shadowing() as one:
        one.offer(Call([(1, 5)], SideError("table", "it is away")))  # type: ignore[arg-type]
        found = one.until(lambda window: window.errors == {"table": 1})
        assert (found.compared, found.found) == (0, {DiffKey("error", "", "table"): 1})
        assert one.evidence.samples()[0].why == pins.text()


@pytest.mark.parametrize("error", [SystemExit, type("Timeout", (BaseException,), {})])
def test_base_exception_is_counted_as_an_error(error: type[BaseException]) -> None:
    """As a framework raises it in a service's function."""
    with shadowing() as one:
        for number in range(1, 5):
            one.offer(Call([(1, 5)], error()))  # type: ignore[arg-type]
            one.until(lambda window, n=number: window.errors == {"table": n})  # type: ignore[misc]
        assert one.evidence.samples()[0].why == f"{error.__name__} was raised"
        call = Call([(1, 5)], [])
        one.offer(call)
        call.answers["sql"] = error()
        one.until(lambda window: window.dropped == {"unsettled": 1})
        # All threads are still there.
        one.offer(Call([], []))
        one.until(lambda window: window.same == 1)


def test_an_error_on_a_later_check_is_silent() -> None:
    with shadowing() as one:
        call = Call([(1, 5)], [])
        one.offer(call)
        call.answers["sql"] = SideError("sql", "away")
        found = one.until(lambda window: bool(window.dropped))
        assert (found.dropped, found.compared) == ({"unsettled": 1}, 0)


def test_all_that_is_dropped_has_a_reason() -> None:
    go = Event()
    with shadowing(sample=0.0) as one:
        one.offer(Call([], []))
        one.until(lambda window: window.dropped == {"sampled": 1})
    with shadowing(per_s=1.0) as one:
        for _ in range(3):
            one.offer(Call([], []))
        one.until(lambda window: window.dropped == {"budget": 2} and window.same == 1)
    with shadowing(deadline_s=60) as one:
        for _ in range(5):
            one.offer(Call([], go.wait))  # type: ignore[arg-type]
        one.until(lambda window: window.dropped == {"busy": 3})
        go.set()
    with shadowing(breaker_after=2, breaker_pause_s=60) as one:
        for number in range(1, 3):
            one.offer(Call([], SideError("table", "away")))  # type: ignore[arg-type]
            one.until(lambda window, n=number: window.errors == {"table": n})  # type: ignore[misc]
        one.offer(Call([], []))
        one.until(lambda window: window.dropped == {"breaker": 1})
    one.offer(Call([], []))
    one.until(lambda window: window.dropped == {"breaker": 1, "closed": 1})


def test_after_its_pause_a_breaker_lets_one_try() -> None:
    with shadowing(breaker_after=1, breaker_pause_s=0.1) as one:
        one.offer(Call([], SideError("table", "away")))  # type: ignore[arg-type]
        one.until(lambda window: window.errors == {"table": 1})
        one.clock.now_s += 0.15
        one.offer(Call([], []))
        one.until(lambda window: window.same == 1)
        one.offer(Call([], []))
        one.until(lambda window: window.same == 2)


def test_what_hangs_is_an_error_at_its_deadline() -> None:
    go = Event()
    with shadowing(deadline_s=0.3) as one:
        one.offer(Call([], go.wait))  # type: ignore[arg-type]
        found = one.until(lambda window: window.errors == {"table": 1})
        assert one.evidence.samples()[0].why == pins.text()
        go.set()
        time.sleep(0.1)
        assert one.until(lambda window: True) == found


@pytest.mark.parametrize("error", [TooManyError("x"), SideError("sql", "x"), ZeroDivisionError()])
def test_incomparable_answer_does_not_affect_the_caller(error: Exception) -> None:
    def fails() -> AnsweredCall:
        raise error

    with shadowing(at_once=1) as one:
        for _ in range(3):
            one.shadow.offer("p", fails)
        # The places are free again.
        one.offer(Call([], []))
        found = one.until(lambda window: window.same == 1)
        assert found.errors.get("sql", 0) + sum(found.dropped.values()) == 3


def test_differences_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.stages.reads.shadow.DOUBTS_AT_ONCE", 3)
    with shadowing(settle_s=60.0) as one:
        for number in range(1, 6):
            one.offer(Call([(1, 5)], []))
            one.until(lambda window, n=number: window.answered == {"table": n})  # type: ignore[misc]
        assert one.until(lambda window: True).dropped == {"unsettled": 2}
    # At the end the others are given up, too.
    assert one.until(lambda window: window.dropped == {"unsettled": 2, "ended": 3}).compared == 0


ONE_S = 0.002


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_allows_its_number_per_second() -> None:
    clock = Clock()
    budget = Budget(10, ONE_S, clock)
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]
    clock.now += 0.5
    assert [budget.take() for _ in range(6)] == [True] * 5 + [False]
    # However long none was taken, there is one second's worth.
    clock.now += 3600
    assert sum(budget.take() for _ in range(100)) == 10


def test_a_budget_below_one_allows_one_periodically() -> None:
    clock = Clock()
    budget = Budget(0.1, ONE_S, clock)
    assert [budget.take(), budget.take()] == [True, False]
    clock.now += 9
    assert not budget.take()
    clock.now += 1.1
    assert budget.take()


def test_long_cpu_use_counts_as_several_shadows() -> None:
    clock = Clock()
    budget = Budget(10, ONE_S, clock)
    assert budget.take()
    budget.spend(ONE_S / 2)
    assert budget.take()
    budget.spend(ONE_S * 15)
    # Six more than there were.
    clock.now += 0.5
    assert not budget.take()
    clock.now += 0.3
    assert budget.take()


def test_a_breaker_opens_after_errors_in_a_row_and_lets_one_try() -> None:
    clock = Clock()
    breaker = Breaker(3, 30, clock)
    for _ in range(2):
        breaker.failed()
    breaker.succeeded()
    for _ in range(3):
        assert not breaker.is_open
        breaker.failed()
    assert breaker.is_open
    clock.now += 30
    assert not breaker.is_open
    breaker.begins()
    # While the trial runs no other one does.
    assert breaker.is_open
    breaker.failed()
    clock.now += 29
    assert breaker.is_open
    clock.now += 1
    breaker.begins()
    breaker.succeeded()
    assert not breaker.is_open


def test_a_shadow_that_computes_for_long_is_seldom_begun() -> None:
    def computes() -> Rows:
        ends_at = time.thread_time() + 0.02
        while time.thread_time() < ends_at:
            pass
        return []

    with shadowing(per_s=20.0, deadline_s=60) as one:
        one.offer(Call([], computes))  # type: ignore[arg-type]
        one.until(lambda window: window.same == 1)
        time.sleep(0.1)
        one.offer(Call([], []))
        assert one.until(lambda window: bool(window.dropped)).dropped == {"budget": 1}


def test_copy_on_the_callers_time_counts_as_several_shadows() -> None:
    def copied() -> AnsweredCall:
        ends_at = time.thread_time() + 0.02
        while time.thread_time() < ends_at:
            pass
        return AnsweredCall(Call([], []).shadowed(), "sql", [], {"id": "1"})

    with shadowing(per_s=20.0, deadline_s=60) as one:
        one.shadow.offer("p", copied)
        one.offer(Call([], []))
        assert one.until(lambda window: bool(window.dropped)).dropped == {"budget": 1}


def test_one_comparison_is_made_at_a_time() -> None:
    under_way: list[int] = []

    class Slow(Call):
        def compared(self, items: Rows, rows: Rows) -> tuple[PartAnswer, ...]:
            under_way.append(1)
            time.sleep(0.05)
            most.append(len(under_way))
            under_way.pop()
            return super().compared(items, rows)

    most: list[int] = []
    with shadowing(at_once=4, deadline_s=60) as one:
        for _ in range(4):
            one.offer(Slow([], []))
        one.until(lambda window: window.same == 4)
    assert most == [1, 1, 1, 1]


def tenfold() -> float:
    """Seconds ten times as short as they are."""
    return time.monotonic() * 10


@pytest.mark.parametrize(("share", "calls_per_s"), [(0.3, 100.0), (1.0, 15.0)])
def test_a_busy_service_hides_no_difference(share: float, calls_per_s: float) -> None:
    """As a job without settings has it: many more calls than are compared, or nearly as many."""
    chance = random.Random(7)
    defaults = {name: getattr(ShadowSettings(), name) for name in ("settle_s", "per_s", "at_once")}
    with shadowing(clock=tenfold, deadline_s=6000, **defaults) as one:
        looked_at = 0
        while looked_at < 300:
            for _ in range(30):
                one.offer(Call([(1, 5)], [(1, 6 if chance.random() < share else 5)]))
                time.sleep(0.1 / calls_per_s)
            found = one.until(lambda window: True)
            assert "broken" not in found.dropped
            unsettled = found.dropped.get("unsettled", 0)
            looked_at = found.compared + unsettled
    assert found.transient == 0
    # Those that were judged for good are some of them; with the others it is the share.
    assert abs((found.different + unsettled) / looked_at - share) < 0.1
    assert found.different >= 20
