"""The watch: what chance does moves nothing back, what is wrong always does; and what it does when it cannot look."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from migrator.cli.runs import RunEnd
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.evidence import OFF, Judgement, Move, PatternPhase, State, Window
from migrator.mapping.model.journal import RunIdentity
from migrator.mapping.model.live import MarksState
from migrator.runtime.errors import Interrupted, SourceError, StoppedError
from migrator.runtime.values import replace
from migrator.settings.job import Hook, WatchSettings
from migrator.stages.cutover.evidence import Aggregate, counted
from migrator.stages.cutover.moves import (
    LAG_AGAIN_S,
    LONGEST_S,
    Cutover,
    LagWatch,
    Watch,
    keep_watch,
    passed_by,
    passed_limits,
    tell,
)
from tests import pins
from tests.fakes.evidence import FakeEvidence
from tests.fakes.phases import FakePhases
from tests.unit.stages.core.evidence_world import NOW_S, PATTERN, histogram, slow, window

LIMITS = WatchSettings()
WINDOWS = 1000
CALLS = 60


SQLS = histogram({10: CALLS})


@lru_cache
def late(wrong: int) -> str:
    """Answers of the table's, some of them later than three times SQL's p99."""
    in_time: dict[float, int] = {8: CALLS - wrong}
    return histogram(in_time | ({31: wrong} if wrong else {}))


def simulated(random_: random.Random, times: float, kind: str) -> Iterator[Window]:
    """Minutes of calls of which `times` the limit are wrong; latencies beyond the limit, one of a hundred calls at it."""
    limit = {"mismatches": LIMITS.mismatch_max, "errors": LIMITS.error_max, "p99": 0.01}[kind]
    for minute in range(WINDOWS):
        wrong = sum(random_.random() < limit * times for _ in range(CALLS))
        made = replace(
            window(compared=CALLS),
            begun_at=int(NOW_S) + minute * 60,
            latency={"sql": SQLS} if kind == "p99" else {},
        )
        if kind == "mismatches":
            yield replace(made, different=wrong)
        elif kind == "errors":
            yield replace(made, answered={"table": CALLS - wrong}, errors={"table": wrong})
        else:
            yield replace(made, latency={"sql": SQLS, "table": late(wrong)})


def moved_back_at(times: float, kind: str, seed: int) -> int | None:
    """The first minute after which the limit counts as passed, looked at after each; None: never."""
    lately: deque[Window] = deque(maxlen=10)
    since = Aggregate()
    for minute, one in enumerate(simulated(random.Random(seed), times, kind)):
        lately.append(one)
        since.add(one)
        if kind == "p99" and minute > 10 and minute % 5:
            # Histograms take a while.
            continue
        for counts in (since, counted(lately)):
            if found := list(passed_by(PATTERN, counts, LIMITS, "")):
                assert [line.name for line in found] == [kind]
                return minute
    return None


@pytest.mark.parametrize("kind", ["mismatches", "errors", "p99"])
def test_watch_never_moves_back_at_half_limit_always_at_twice(kind: str) -> None:
    seeds = range(1 if kind == "p99" else 3)
    many = range(1 if kind == "p99" else 8)
    assert [moved_back_at(0.5, kind, seed) for seed in many] == [None] * len(many)
    minutes = [moved_back_at(2, kind, seed) for seed in seeds]
    assert None not in minutes
    hard = [moved_back_at(30, kind, seed) for seed in seeds]
    assert max(minute for minute in hard if minute is not None) <= 2


def test_good_hours_do_not_hide_a_late_fault() -> None:
    good = [replace(window(minutes), compared=5000, different=0) for minutes in range(20, 320)]
    bad = window(2, compared=200, different=20)
    found = passed_limits(PATTERN, [*good, bad], LIMITS, NOW_S)
    assert [line.name for line in found] == ["mismatches"]
    assert pins.said(found[0].found)
    assert not passed_limits(PATTERN, good, LIMITS, NOW_S)


def test_few_calls_are_judged_by_chance() -> None:
    assert passed_limits(PATTERN, [window(compared=99, different=99)], LIMITS, NOW_S)
    assert passed_limits(PATTERN, [window(compared=4, different=4)], LIMITS, NOW_S)
    assert not passed_limits(PATTERN, [window(compared=4, different=2)], LIMITS, NOW_S)
    assert not passed_limits(PATTERN, [window(compared=99, different=2)], LIMITS, NOW_S)


def test_late_answers_are_judged_by_the_hundred() -> None:
    assert not passed_limits(PATTERN, [slow("table", 99, 500)], LIMITS, NOW_S)
    assert passed_limits(PATTERN, [slow("table", 100, 500)], LIMITS, NOW_S)


def test_unsettled_comparisons_count_like_settled_ones() -> None:
    def passed(**counts: Any) -> list[str]:
        dropped = {why: counts.pop(why, 0) for why in ("unsettled", "ended")}
        seen = replace(window(compared=1000), dropped=dropped, **counts)
        return [line.found for line in passed_limits(PATTERN, [seen], LIMITS, NOW_S)]

    (found,) = passed(unsettled=400)
    assert found == pins.text()
    assert passed(unsettled=400, transient=100) == []
    assert passed(unsettled=400, transient=100, different=10)
    assert passed(transient=100, different=10) == []
    assert passed(ended=400) == []


def test_budget_allows_latencies_above_sqls_factor() -> None:
    late = [slow("table", 500, 31)]
    assert [line.name for line in passed_limits(PATTERN, late, LIMITS, NOW_S)] == ["p99"]
    assert not passed_limits(replace(PATTERN, p99_ms=40), late, LIMITS, NOW_S)
    only = [replace(late[0], latency={"table": late[0].latency["table"]})]
    assert not passed_limits(PATTERN, only, LIMITS, NOW_S)


# ── the stage ──


class Shop:
    def __init__(self) -> None:
        self.now_s = NOW_S
        self.phases = FakePhases(lambda: self.now_s)
        self.evidence = FakeEvidence(lambda: self.now_s)
        self.told: list[Judgement] = []
        cutover = Cutover(self.phases, "watch", "rev")
        self.watch = Watch(self.phases, self.evidence, {"orders": PATTERN}, LIMITS, cutover, self.told.append)

    def at(self, *states: State) -> None:
        before = OFF
        for version, state in enumerate(states):
            self.phases.move(Move("orders", before, state, "ada"), version)
            before = state

    def see(self, **more: object) -> None:
        begun_at = int(self.now_s // 60 * 60)
        self.evidence.keep([replace(window(), begun_at=begun_at, **more)], [])  # type: ignore[arg-type]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.mark.parametrize("last", [State("ramp", 10), State("live")])
def test_failing_pattern_goes_back_to_shadow_with_a_reason(shop: Shop, last: State) -> None:
    shop.at(State("shadow"), State("ramp", 10), *([last] if last.phase == "live" else []))
    shop.see(different=50)
    moved = shop.watch.once()
    assert [(one.before, one.after) for one in moved] == [(last, State("shadow"))]
    assert shop.told == moved
    line = shop.phases.history()[-1]
    assert (line.who, line.after) == ("watch", State("shadow"))
    assert pins.said(line.reason)
    assert "mismatches" in line.evidence
    assert shop.watch.once() == []


def test_pattern_that_the_table_does_not_answer_is_left_alone(shop: Shop) -> None:
    shop.at(State("shadow"))
    shop.see(different=500)
    assert shop.watch.once() == []


@pytest.mark.parametrize("later_s", [30, 120])
def test_replays_and_counts_before_the_move_are_not_reasons(shop: Shop, later_s: int) -> None:
    """Also of the move's own minute: the fault may have been mended before it."""
    shop.at(State("shadow"))
    shop.see(different=500)
    shop.now_s += later_s
    shop.phases.move(Move("orders", State("shadow"), State("ramp", 10), "ada"), 1)
    shop.see(different=500, origin="replay", writer="replay-1")
    assert shop.watch.once() == []


def test_a_pattern_with_few_calls_goes_back_by_those_of_days(shop: Shop) -> None:
    shop.at(State("shadow"), State("ramp", 10))
    for hour in range(72):
        shop.now_s += 3600
        shop.see(compared=10, answered={"table": 10}, latency={}, different=hour % 2)
    assert [one.after for one in shop.watch.once()] == [State("shadow")]


def test_watch_reads_hours_not_days_of_a_busy_pattern(shop: Shop) -> None:
    shop.at(State("shadow"), State("ramp", 10))
    for _ in range(24):
        shop.now_s += 3600
        shop.see(compared=5000, answered={"table": 5000}, latency={}, different=0)
    asked: list[float] = []
    windows = shop.evidence.windows
    shop.evidence.windows = lambda since, pattern=None: asked.append(since) or windows(since, pattern)  # type: ignore[method-assign,func-returns-value]
    assert shop.watch.once() == []
    assert asked == [shop.now_s - LONGEST_S]


def test_unreadable_pattern_leaves_the_others_watched(shop: Shop) -> None:
    shop.at(State("shadow"), State("ramp", 10))
    shop.see(different=50)
    found = shop.phases.all()
    edited = PatternPhase("edited", State("live"), 3, NOW_S, "edited was edited by hand")
    shop.watch.phases = with_(shop.phases, {"edited": edited, **found})
    assert [one.pattern for one in shop.watch.once()] == ["orders"]
    assert shop.watch.faults == {"edited": pins.text()}


def with_(phases: FakePhases, known: dict[str, PatternPhase]) -> FakePhases:
    """The same phases, seen as they were a moment ago, or edited by hand."""

    class Edited(FakePhases):
        def all(self) -> dict[str, PatternPhase]:
            return known

        def move(self, move: Move, version: int) -> PatternPhase:
            return phases.move(move, version)

    return Edited(phases.clock)


def test_a_pattern_is_watched_for_a_week(shop: Shop) -> None:
    shop.at(State("shadow"), State("ramp", 10), State("live"))
    shop.now_s += LIMITS.watched_s + 1
    shop.see(different=500)
    assert shop.watch.once() == []


def test_a_faster_move_is_not_overruled(shop: Shop) -> None:
    shop.at(State("shadow"), State("ramp", 10))
    shop.see(different=50)
    known = shop.phases.all()
    shop.phases.move(Move("orders", State("ramp", 10), State("shadow"), "ada"), 2)
    shop.watch.phases = with_(shop.phases, known)
    assert shop.watch.once() == []
    assert shop.phases.history()[-1].who == "ada"


def test_lag_is_reported_at_its_start_and_again_while_it_lasts() -> None:
    now = [0.0]
    age = [1.0]
    told: list[float] = []
    lag = LagWatch(
        lambda: MarksState(5, age[0]), 10.0, lambda state: told.append(state.oldest_age_s), lambda: now[0]
    )
    for now[0], age[0] in (
        (0, 1),
        (1, 11),
        (2, 12),
        (LAG_AGAIN_S, 13),
        (LAG_AGAIN_S + 1, 14),
        (400, 2),
        (401, 15),
    ):
        lag.once()
    assert told == [11, 14, 15]


def test_a_look_that_fails_is_looked_at_later_and_others_go_on() -> None:
    stop, looks = Event(), [0, 0]

    def broken() -> None:
        looks[0] += 1
        raise SourceError("away") if looks[0] % 2 else StoppedError("away")

    def sound() -> None:
        looks[1] += 1
        if looks[1] == 20:
            stop.set()

    keep_watch([broken, sound], 0.001, stop)
    assert looks[1] == 20 and 3 <= looks[0] <= 6  # noqa: PT018


COPY = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"


def test_a_hook_gets_the_event_as_json(tmp_path: Path) -> None:
    out = tmp_path / "an event; $HOME"
    hook = Hook(on=("rolled_back", "lag_high"), command=(sys.executable, "-c", COPY, str(out)))
    tell([hook], "run_failed", "shop", reason="other")
    assert not out.exists()
    tell([hook], "rolled_back", "shop", pattern="orders", reason="10 % “differ”")
    event = json.loads(out.read_text(encoding="utf-8"))
    assert event.pop("at").endswith("+00:00")
    assert event == {"event": "rolled_back", "job": "shop", "pattern": "orders", "reason": "10 % “differ”"}


def test_a_text_is_for_the_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    tell([Hook(on=("lag_high",), command=f"tr a-z A-Z | cat > {out}")], "lag_high", "shop")
    assert '"EVENT": "LAG_HIGH"' in out.read_text()


def test_the_words_of_a_list_never_meet_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    tell([Hook(on=("lag_high",), command=("echo", f"; touch {out}", f"$(touch {out})"))], "lag_high", "shop")
    assert not out.exists()


def test_failed_run_calls_the_hook_and_a_stopped_run_does_not(tmp_path: Path) -> None:
    journal = SqlJournal.in_memory()
    run = journal.start_run(RunIdentity("verify", "shop", "table", "rev"))
    out = tmp_path / "out"
    hooks = [Hook(on=("run_failed",), command=f"cat > {out}")]
    with suppress(Interrupted), RunEnd(journal.end_run, run, hooks):
        raise Interrupted("stopped")
    assert not out.exists()
    with pytest.raises(StoppedError), RunEnd(journal.end_run, run, hooks):
        raise StoppedError("DynamoDB gave up")
    event = json.loads(out.read_text())
    assert (event["event"], event["job"], event["run"], event["kind"]) == (
        "run_failed",
        "shop",
        run.id,
        "verify",
    )
    assert event["reason"] == "DynamoDB gave up"
    assert journal.runs("shop")[0].state == "failed"
    journal.close()


FAILING = {
    "a program that is not there": (("/no/such/program-s3cret",), "cannot be started (No such file"),
    "a zero byte": (("a\0b-s3cret",), "cannot be started"),
    "a failure": ("exit 3 # s3cret", "ended with exit code 3"),
    "one that reads nothing": (("true",), ""),
    "one that hangs": ("sleep 300 & sleep 300 # s3cret", "took longer than 0.3 s and was killed"),
}


@pytest.mark.parametrize("what", FAILING)
def test_failing_hook_is_logged_without_output_and_blocks_none(what: str, tmp_path: Path) -> None:
    command, said = FAILING[what]
    out = tmp_path / "out"
    hooks = [
        Hook(on=("lag_high",), command=command, wait=0.3),
        Hook(on=("lag_high",), command=f"cat > {out}"),
    ]
    begun = time.monotonic()
    with capture_logs() as logs:
        tell(hooks, "lag_high", "shop", padding="x" * 200_000)
    assert time.monotonic() - begun < 120
    assert out.exists()
    assert "s3cret" not in str(logs)
    assert [one["hook"] for one in logs] == ([0] if said else [])
    assert said in str(logs)
