"""Timelines and curves as numbers."""

from __future__ import annotations

import pytest

from migrator.cli.page import bars_of, columns_of, curves_of, ms_text
from migrator.mapping.model.report import Curve, PhaseMove, Series, Span, WorkSpan
from tests.support_report import curve


def test_bars_stand_on_the_line_and_differences_hang_below_it() -> None:
    drawn = bars_of(
        Series(60, (Span(0, same=8, transient=2), Span(60), Span(120, same=5, different=1, errors=3)))
    )
    assert (drawn["most"], drawn["most_bad"]) == (10, 4)
    by_kind = {(bar.kind, bar.span.begun_at): bar for bar in drawn["bars"]}
    assert set(by_kind) == {("same", 0), ("transient", 0), ("same", 120), ("different", 120), ("errors", 120)}
    same, transient = by_kind["same", 0], by_kind["transient", 0]
    assert transient.y == 0
    assert transient.y + transient.height == pytest.approx(same.y)
    assert same.y + same.height < drawn["middle"]
    different, errors = by_kind["different", 120], by_kind["errors", 120]
    assert drawn["middle"] < different.y < errors.y
    assert errors.y + errors.height == pytest.approx(drawn["height"])
    assert errors.height == pytest.approx(3 * different.height)
    assert max(bar.x + drawn["bar"] for bar in drawn["bars"]) <= drawn["width"] == 30


def test_nothing_compared_is_drawn_as_nothing() -> None:
    assert bars_of(Series(60, ()))["bars"] == []
    assert bars_of(Series(60, (Span(0), Span(60))))["bars"] == []


def move(at: float) -> PhaseMove:
    return PhaseMove(at, "get", "off", "shadow", "ann", "", False)


def test_each_chart_has_its_own_scale_and_moves_at_their_time() -> None:
    work = Series(60, (WorkSpan(0, 100, 250.5, 0.0), WorkSpan(60), WorkSpan(120, 1, 1.0, 9.0)))
    items, units, lag = columns_of(work, [move(90.0), move(-1.0), move(200.0)])
    assert [(one["name"], one["most"]) for one in (items, units, lag)] == [
        ("items", 100),
        ("write units", 250.5),
        ("lag", 9.0),
    ]
    assert [column.span.begun_at for column in items["columns"]] == [0, 120]
    assert [column.y + column.height for column in items["columns"]] == [items["height"]] * 2
    assert items["columns"][0].height == lag["columns"][0].height == items["height"]
    # What was little is seen all the same.
    assert items["columns"][1].height == 1.0
    assert [x for x, _ in lag["moves"]] == [15.0]
    assert max(column.x + items["column"] for column in items["columns"]) <= items["width"] == 30


def test_nothing_written_is_drawn_as_nothing() -> None:
    assert columns_of(Series(60, ()), [move(0.0)]) == []
    assert [one["columns"] for one in columns_of(Series(60, (WorkSpan(0),)), [])] == [[], [], []]


def test_curves_stay_inside_of_their_picture_and_rise() -> None:
    drawn = curves_of({"table": curve(4.0, 18.0), "sql": curve(0.02, 2_400.0)})
    for path in drawn["paths"].values():
        points = [tuple(map(float, pair.split(","))) for pair in path[1:].split("L")]
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
        assert all(drawn["left"] <= x <= drawn["right"] and 0 <= y <= drawn["bottom"] for x, y in points)
    assert [label for _, label in drawn["across"]] == ["min", "p50", "p90", "p99", "p99.9"]
    assert drawn["up"][0][1] == "0.001 ms"
    assert drawn["up"][-1][1] == "10,000 s"


def test_equal_latencies_are_a_level_line_and_zero_is_no_fault() -> None:
    for ms in (0.0, 5.0):
        drawn = curves_of({"sql": Curve(1, ((0.0, ms), (50.0, ms), (99.9, ms)), ms)})
        heights = {point.split(",")[1] for point in drawn["paths"]["sql"][1:].split("L")}
        assert len(heights) == 1
        assert len(drawn["up"]) >= 2


@pytest.mark.parametrize(
    ("ms", "text"), [(0.042, "0.042 ms"), (4.1, "4.1 ms"), (120, "120 ms"), (2_480, "2.48 s")]
)
def test_milliseconds_have_three_digits(ms: float, text: str) -> None:
    assert ms_text(ms) == text
