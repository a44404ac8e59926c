"""What a person at night reads: how a process stands, and when it will be done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from migrator.commands.status_work import (
    Standing,
    eta_s,
    left_text,
    pace_line,
    standing_of,
    standings,
    status_lines,
)
from migrator.mapping.model.instances import AS_SET, Failure, Operations, ProcessState, Throttle
from migrator.runtime.values import replace
from tests import pins

NOW = 10_000.0
WORKS = ProcessState(
    *("backfill", "db-1", 77, "0.1.0"),
    done=100_000, left=50_000, rate=100.0, fall=100.0, id="a", since=NOW - 1000, alive_at=NOW - 2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        ({}, "works"),
        ({"rate": 40.0}, "slow"),
        ({"rate": 0.0, "silent_s": 90.0}, "stalled"),
        ({"rate": 0.0, "silent_s": 90.0, "left": 0}, "idle"),
        ({"held": "paused by ops@host", "silent_s": 90.0}, "held"),
        ({"trouble": "waits 4 s: DynamoDB is away"}, "tries again"),
        ({"alive_at": NOW - 40}, "silent"),
    ],
    ids=["case", "since-began", "wait-min", "rows-wait", "paused-host", "waits-away", "heard-frozen"],
)
def test_slow_differs_from_stalled_and_from_the_rest(change: dict[str, object], standing: Standing) -> None:
    told = standing_of(replace(WORKS, **change), NOW, is_dead=False)  # type: ignore[arg-type]
    assert (told.standing, told.why) == (standing, pins.text())


@pytest.mark.parametrize(("silent_s", "standing"), [(59.9, "works"), (60.0, "stalled")])
def test_process_is_stalled_after_a_minute(silent_s: float, standing: Standing) -> None:
    assert standing_of(replace(WORKS, silent_s=silent_s), NOW, is_dead=False).standing == standing


def test_a_young_process_is_not_called_slow() -> None:
    young = replace(WORKS, since=NOW - 60, rate=1.0, done=100_000)
    assert standing_of(young, NOW, is_dead=False).standing == "works"


def test_a_dead_process_is_dead_at_once() -> None:
    told = standing_of(WORKS, NOW, is_dead=True)
    assert (told.standing, told.is_at_work) == ("dead", False)


def lines(operations: Operations) -> list[str]:
    return list(
        status_lines("no change is pending", operations, standings(operations, lambda process: False))
    )


def test_five_lines_and_one_for_each_process() -> None:
    relay = replace(WORKS, kind="relay", pid=78, done=5000, left=30, rate=5.0, fall=-2.0)
    failed = [Failure("relay", "db-1", 78, NOW - 130, "DynamoDB is away")]
    assert lines(Operations([WORKS, relay], failed, AS_SET, NOW)) == [
        pins.text("lag"),
        "rate     backfill 100 rows/s, relay 5.0 changes/s",
        pins.text("grow"),
        "failure  none now; last 2 min ago, relay on db-1:78: DynamoDB is away",
        pins.text("pace"),
        "alive    backfill on db-1:77 (migrator 0.1.0, for 16 min): works; 100 rows/s",
        "         relay on db-1:78 (migrator 0.1.0, for 16 min): works; 5.0 changes/s",
    ]


@pytest.mark.parametrize(
    ("change", "ended_at", "over"),
    [
        ({}, {}, True),
        ({"trouble": "waits 4 s"}, {}, False),
        ({"pid": 79}, {}, False),
        ({"pid": 79, "since": NOW - 100}, {}, True),
        ({"pid": 79}, {"relay": NOW - 200}, False),
        ({"pid": 79}, {"relay": NOW - 100}, True),
    ],
)
def test_failure_ends_once_its_process_or_the_next_progresses(
    change: dict[str, object], ended_at: dict[str, float], over: bool
) -> None:
    relay = replace(WORKS, kind="relay", pid=78)
    failed = [Failure("relay", "db-1", 78, NOW - 130, "away")]
    now = Operations([replace(relay, **change)], failed, AS_SET, NOW)  # type: ignore[arg-type]
    said = list(status_lines("", now, standings(now, lambda process: False), ended_at))[3]
    assert said.startswith("failure  none now; last 2 min ago" if over else "failure  2 min ago")


AWAY = Failure("relay", "db-1", 78, NOW - 130, "away")
RELAY = replace(WORKS, kind="relay", pid=78, id="r")


def failure_line(*processes: ProcessState, failures: Sequence[Failure] = (AWAY,)) -> str:
    now = Operations(processes, failures, AS_SET, NOW)
    (line,) = (
        line
        for line in status_lines("", now, standings(now, lambda process: False), {"relay": NOW - 100})
        if line.startswith("failure")
    )
    return line.removeprefix("failure  ")


def test_newer_relay_without_progress_does_not_end_a_failure() -> None:
    now = Operations([replace(RELAY, pid=79, since=NOW - 20, done=0, left=0)], [AWAY], AS_SET, NOW)
    line = list(status_lines("", now, standings(now, lambda process: False)))[3]
    assert line == "failure  2 min ago, relay on db-1:78: away"


def test_failure_continues_while_another_relay_runs() -> None:
    assert failure_line(replace(RELAY, trouble="away"), replace(RELAY, pid=79, id="s")).startswith(
        "2 min ago"
    )


def test_a_failure_that_is_over_stays_over_on_pause() -> None:
    assert failure_line(replace(RELAY, held="paused by ops")).startswith("none now")


def test_ongoing_failure_is_shown_before_a_newer_resolved_one() -> None:
    over = Failure("backfill", "db-1", 77, NOW - 60, "throttled")
    line = failure_line(WORKS, replace(RELAY, trouble="away"), failures=[over, AWAY])
    assert line == "2 min ago, relay on db-1:78: away"


def test_dead_relays_are_not_shown_next_to_a_later_living_one() -> None:
    dead = [replace(RELAY, pid=pid, id=str(pid), alive_at=NOW - 600) for pid in (71, 72)]
    now = Operations([*dead, replace(RELAY, since=NOW - 500, done=100)], [], AS_SET, NOW)
    standing = standings(now, lambda process: process.pid < 78)
    alive = [line for line in status_lines("", now, standing) if "db-1:" in line]
    assert [line.split()[3] for line in alive] == ["db-1:78"]
    assert [one.standing for one in standing] == ["dead", "dead", "works"]
    assert ["again" in one.why for one in standing] == [False, False, False]


def test_dead_relay_without_successor_is_shown_with_next_step() -> None:
    dead = replace(RELAY, pid=71, id="d")
    now = Operations([replace(RELAY, since=NOW - 5000), dead], [], AS_SET, NOW)
    standing = standings(now, lambda process: process.pid == 71)
    assert sum("db-1:71" in line for line in status_lines("", now, standing)) == 1


def test_a_relay_is_not_idle_while_marks_wait() -> None:
    idle = replace(WORKS, kind="relay", left=0, rate=0.0, silent_s=90.0)
    (told,) = standings(Operations([idle], [], AS_SET, NOW), lambda process: False, waiting=8)
    assert (told.standing, told.why) == ("stalled", pins.text("min"))
    tries = replace(idle, trouble="the source is away")
    assert left_text(tries) == pins.text("while")


@pytest.mark.parametrize(("waiting", "has_end"), [(8, True), (30, True), (31, False)])
def test_growing_backlog_since_the_last_beat_has_unknown_end(waiting: int, has_end: bool) -> None:
    relay = replace(WORKS, kind="relay", left=30, fall=5.0)
    (told,) = standings(Operations([relay], [], AS_SET, NOW), lambda process: False, waiting=waiting)
    assert (eta_s(told.process) is not None) == has_end


def test_an_idle_job_is_reported_as_idle() -> None:
    assert lines(Operations([], [], AS_SET, NOW))[1:] == [
        pins.text("rate"),
        pins.text("work"),
        pins.text("failure"),
        pins.text("pace"),
        pins.text("alive"),
    ]


def test_pace_names_its_setter_and_how_to_undo_it() -> None:
    paused = Throttle(paused=True, who="ops@host", since=NOW - 60, reason="INC-7")
    assert pace_line(paused, NOW) == (pins.text("resume"))
    slower = Throttle(max_write_units=2000, who="me", since=NOW - 60)
    assert pace_line(slower, NOW) == pins.text("ago")


@pytest.mark.parametrize(
    "change",
    [
        {"left": 0},
        {},
        {"held": "paused"},
        {"trouble": "DynamoDB is away"},
        {"fall": -3.0},
        {"fall": 0.0},
        {"fall": 0.0, "since": NOW - 20},
    ],
    ids=["nothing-left", "about-min", "left-held", "left-trouble", "left-grow", "end-sight", "known-yet"],
)
def test_remaining_work_has_an_end_only_if_predictable(change: dict[str, object]) -> None:
    assert left_text(replace(WORKS, **change)) == pins.text()  # type: ignore[arg-type]
