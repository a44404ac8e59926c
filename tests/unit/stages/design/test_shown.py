"""Windows summed up for a report."""

from __future__ import annotations

from collections import Counter

import pytest

from migrator.mapping.model.evidence import DiffKey, PatternPhase, Sample, State, Window
from migrator.mapping.model.instances import WorkMinute
from migrator.mapping.model.report import Coverage
from migrator.runtime.values import replace
from migrator.stages.design.shown import Counted, Windows, work_series
from migrator.stages.patterns.latencies import Latencies

NOW_S = 1_700_000_123.0
MINUTE = 1_700_000_100


def histogram(*ms: float) -> str:
    latencies = Latencies()
    for one in ms:
        latencies.record(one)
    return latencies.text()


WINDOW = Window(
    "recent",
    MINUTE,
    "w1",
    "shop",
    "rev",
    "service",
    errors={"table": 1},
    compared=10,
    same=7,
    transient=1,
    different=2,
    dropped={"busy": 3},
    kinds={"": 4, "limit,since": 6},
    found={DiffKey("value", "", "total"): 2},
    latency={"sql": histogram(1, 2, 3), "table": histogram(10)},
    answer="answer",
)
ANSWERS = {"recent": "answer", "clean": "answer", "worse": "answer"}
KIND = ("recent", DiffKey("value", "", "total"))
OTHERS = [
    replace(WINDOW, writer="w2", origin="replay", kinds={"": 10}, begun_at=MINUTE - 600),
    replace(WINDOW, writer="w3", answer="old"),
]


def test_a_pattern_sums_up_its_windows_of_this_mapping_alone() -> None:
    phases = {"recent": PatternPhase("recent", State("ramp", 10), 3, NOW_S - 700)}
    never, recent = Windows([WINDOW, *OTHERS], ANSWERS, NOW_S, phases).patterns(["recent", "never"])
    assert (never.name, never.phase, never.compared, never.age_s) == ("never", "off", 0, None)
    assert (recent.phase, recent.since) == ("ramp 10 %", NOW_S - 700)
    assert (recent.compared, recent.same, recent.transient, recent.different) == (20, 14, 2, 4)
    assert (recent.outdated, recent.errors, recent.dropped) == (10, {"table": 2}, {"busy": 6})
    assert recent.coverage == [
        Coverage((), 14, 23.0, ["replay", "service"]),
        Coverage(("limit", "since"), 6, 23.0, ["service"]),
    ]
    assert recent.age_s == 23.0
    assert recent.latency["sql"].answers == 6
    assert recent.latency["sql"].at(50.0) == pytest.approx(2, rel=0.001)
    assert recent.latency["table"].max_ms == pytest.approx(10, rel=0.001)


def test_differences_are_counted_by_their_finder() -> None:
    found = Windows([WINDOW, *OTHERS], ANSWERS, NOW_S).differences()
    (counted,) = found.values()
    assert found.keys() == {KIND}
    assert counted == Counted(Counter(service=2, replay=2), MINUTE + 60)


def test_differences_before_the_last_move_are_kept_apart() -> None:
    moved = {"recent": PatternPhase("recent", State("shadow"), 4, NOW_S - 60)}
    windows = Windows([WINDOW, *OTHERS], ANSWERS, NOW_S, moved)
    (recent,) = windows.patterns(["recent"])
    assert (recent.compared, recent.different, recent.before_move, recent.outdated) == (10, 2, 10, 10)
    assert (recent.errors, recent.dropped) == ({"table": 1}, {"busy": 3})
    # Kinds of questions need not come again after a move, and curves show the whole time.
    assert [one.compared for one in recent.coverage] == [14, 6]
    assert recent.latency["sql"].answers == 6
    assert {kind: counted.by_origin for kind, counted in windows.differences().items()} == {
        KIND: {"service": 2}
    }
    before = windows.differences("moved")
    assert {kind: counted.by_origin for kind, counted in before.items()} == {KIND: {"replay": 2}}


REPLAY = replace(WINDOW, writer="w2", origin="replay", begun_at=MINUTE - 600)
AT_END = Sample("recent", KIND[1], MINUTE - 300.0, "w2", "rev")


@pytest.mark.parametrize(
    ("verified_s", "mended", "until", "after"),
    [
        (0.0, 0, 0.0, 20),
        (MINUTE - 301.0, 0, 0.0, 10),
        (MINUTE - 300.0, 2, MINUTE - 300.0, 10),
        (MINUTE + 59.0, 2, MINUTE - 300.0, 0),
        (MINUTE + 60.0, 4, MINUTE + 60.0, 0),
    ],
)
def test_differences_before_a_clean_verify_are_history(
    verified_s: float, mended: int, until: float, after: int
) -> None:
    windows = Windows([WINDOW, REPLAY], ANSWERS, NOW_S, verified_s=verified_s, samples=[AT_END])
    (recent,) = windows.patterns(["recent"])
    assert (recent.different, recent.mended, recent.mended_until) == (4, mended, until)
    assert (recent.differing, recent.compared_after) == (4 - mended, after)
    standing, history = windows.differences(), windows.differences("verified")
    assert sum(counted.by_origin.total() for counted in standing.values()) == 4 - mended
    assert sum(counted.by_origin.total() for counted in history.values()) == mended


def test_window_begun_after_a_move_still_ends_with_its_minute() -> None:
    after_move = replace(WINDOW, begun_at=MINUTE + 57)
    for verified_s, mended in ((MINUTE + 59.0, 0), (MINUTE + 60.0, 2)):
        windows = Windows([after_move], ANSWERS, NOW_S, verified_s=verified_s)
        assert windows.patterns(["recent"])[0].mended == mended


def test_replay_that_lost_samples_is_as_recent_as_newer_samples() -> None:
    younger = replace(AT_END, writer="w9", at=MINUTE + 0.0)
    windows = Windows([REPLAY], ANSWERS, NOW_S, verified_s=MINUTE - 1.0, samples=[younger])
    assert windows.patterns(["recent"])[0].mended == 0
    assert replace(windows, verified_s=MINUTE + 0.0).patterns(["recent"])[0].mended == 2


def test_failed_calls_do_not_become_history_by_a_verify() -> None:
    error = DiffKey("error", "", "table")
    windows = Windows([replace(WINDOW, found={error: 1})], ANSWERS, NOW_S, verified_s=NOW_S)
    assert windows.differences().keys() == {("recent", error)}
    assert windows.differences("verified") == {}


def test_a_window_that_begins_with_the_move_is_of_after_it() -> None:
    moved = {"recent": PatternPhase("recent", State("shadow"), 1, MINUTE)}
    (recent,) = Windows([WINDOW], ANSWERS, NOW_S, moved).patterns(["recent"])
    assert (recent.compared, recent.before_move) == (10, 0)


def test_patterns_that_differ_stand_before_those_that_do_not() -> None:
    clean = replace(WINDOW, pattern="clean", different=0, same=9)
    worse = replace(WINDOW, pattern="worse", different=9)
    names = [
        one.name
        for one in Windows([WINDOW, clean, worse], ANSWERS, NOW_S).patterns(["clean", "recent", "worse"])
    ]
    assert names == ["worse", "recent", "clean"]


@pytest.mark.parametrize(
    ("age_s", "width_s"),
    [(0, 60), (95 * 60, 60), (97 * 60, 300), (86_000, 900), (7 * 86_400, 10_800), (80 * 86_400, 86_400)],
)
def test_timeline_has_at_most_96_spans_without_gaps(age_s: int, width_s: int) -> None:
    first = replace(WINDOW, begun_at=(int(NOW_S) - age_s) // 60 * 60)
    line = Windows([first, WINDOW], ANSWERS, NOW_S).timeline(0)
    assert line.width_s == width_s
    assert 24 <= len(line.spans) <= 97
    places = [span.begun_at for span in line.spans]
    assert places == list(range(places[0], places[-1] + 1, width_s))
    assert sum(span.all for span in line.spans) == 22 == 2 * (7 + 1 + 2 + 1)
    assert places[-1] <= NOW_S < places[-1] + width_s


def test_nothing_compared_is_an_empty_timeline() -> None:
    assert Windows([], ANSWERS, NOW_S).timeline(NOW_S - 100).spans == ()


def test_writes_are_kept_apart_by_process_and_minute() -> None:
    at = MINUTE // 60 * 60 - 600
    minutes = [
        WorkMinute("old", at - 60, 1_000, 2_000.0, 5.0),
        WorkMinute("new", at, 10, 20.0, 0.0),
        WorkMinute("old", at, 1_007, 2_010.5, 3.0),
        WorkMinute("old", at + 60, 1_008, 2_011.5, 4.0),
    ]
    work = work_series(minutes, float(at), NOW_S)
    told = [(span.begun_at, span.items, span.write_units, span.lag_s) for span in work.spans if span.items]
    assert told == [(at, 17, 30.5, 3.0), (at + 60, 1, 1.0, 4.0)]
    assert work.width_s == 60
    assert len(work.spans) >= 24
    # A wider look sees what the process had done before.
    assert sum(span.items for span in work_series(minutes, at - 60.0, NOW_S).spans) == 1_018
    assert work_series([], 0.0, NOW_S).spans == work_series(minutes[:1], float(at), NOW_S).spans == ()
