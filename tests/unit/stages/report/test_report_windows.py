"""Windows summed up for a report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.model.evidence import DiffKey, PatternPhase, State, Window
from migrator.model.report import Coverage
from migrator.stages.patterns.latencies import Latencies, added
from migrator.stages.report.shown import Windows

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
)
OTHERS = [
    replace(WINDOW, writer="w2", origin="replay", kinds={"": 10}, begun_at=MINUTE - 600),
    replace(WINDOW, writer="w3", revision="old"),
]


def test_a_pattern_sums_up_its_windows_of_this_mapping_alone() -> None:
    phases = {"recent": PatternPhase("recent", State("ramp", 10), 3, NOW_S - 700)}
    never, recent = Windows([WINDOW, *OTHERS], "rev", NOW_S, phases).patterns(["recent", "never"])
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


def test_differences_are_counted_by_what_found_them() -> None:
    found = Windows([WINDOW, *OTHERS], "rev", NOW_S).differences()
    assert {key: dict(count) for key, count in found.items()} == {
        ("recent", DiffKey("value", "", "total")): {"service": 2, "replay": 2}
    }


def test_what_is_from_before_the_last_move_is_told_apart() -> None:
    moved = {"recent": PatternPhase("recent", State("shadow"), 4, NOW_S - 60)}
    windows = Windows([WINDOW, *OTHERS], "rev", NOW_S, moved)
    (recent,) = windows.patterns(["recent"])
    assert (recent.compared, recent.different, recent.before_move, recent.outdated) == (10, 2, 10, 10)
    assert (recent.errors, recent.dropped) == ({"table": 1}, {"busy": 3})
    # Kinds of questions need not come again after a move, and curves show the whole time.
    assert [one.compared for one in recent.coverage] == [14, 6]
    assert recent.latency["sql"].answers == 6
    key = ("recent", DiffKey("value", "", "total"))
    assert windows.differences() == {key: {"service": 2}}
    assert windows.differences(since_move=False) == {key: {"replay": 2}}


def test_a_window_that_begins_with_the_move_is_of_after_it() -> None:
    moved = {"recent": PatternPhase("recent", State("shadow"), 1, MINUTE)}
    (recent,) = Windows([WINDOW], "rev", NOW_S, moved).patterns(["recent"])
    assert (recent.compared, recent.before_move) == (10, 0)


def test_patterns_that_differ_stand_before_those_that_do_not() -> None:
    clean = replace(WINDOW, pattern="clean", different=0, same=9)
    worse = replace(WINDOW, pattern="worse", different=9)
    names = [
        one.name
        for one in Windows([WINDOW, clean, worse], "rev", NOW_S).patterns(["clean", "recent", "worse"])
    ]
    assert names == ["worse", "recent", "clean"]


@pytest.mark.parametrize(
    ("age_s", "width_s"),
    [(0, 60), (95 * 60, 60), (97 * 60, 300), (86_000, 900), (7 * 86_400, 10_800), (80 * 86_400, 86_400)],
)
def test_a_timeline_has_spans_without_gaps_and_at_most_96_of_them(age_s: int, width_s: int) -> None:
    first = replace(WINDOW, begun_at=(int(NOW_S) - age_s) // 60 * 60)
    line = Windows([first, WINDOW], "rev", NOW_S).timeline(0)
    assert line.width_s == width_s
    assert 24 <= len(line.spans) <= 97
    places = [span.begun_at for span in line.spans]
    assert places == list(range(places[0], places[-1] + 1, width_s))
    assert sum(span.all for span in line.spans) == 22 == 2 * (7 + 1 + 2 + 1)
    assert places[-1] <= NOW_S < places[-1] + width_s


def test_nothing_compared_is_an_empty_timeline() -> None:
    assert Windows([], "rev", NOW_S).timeline(NOW_S - 100).spans == ()


def test_histograms_that_cannot_be_read_are_left_out() -> None:
    good = histogram(5)
    for broken in ("", "x", "HISTFAAA", good[:-9], "HISTFAAAAFd4nJNpmSzMwMDuxwABzFCaEURcm7yE"):
        assert added([broken]).curve() is None
        merged = added([broken, good]).curve()
        assert merged is not None
        assert merged.answers == 1
    assert added([]).curve() is None
