"""Names of access patterns are whole in every table, however narrow the terminal, so that they can be copied."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from io import StringIO

import pytest
from rich.console import Console

from migrator.cli.cutover_text import PhaseView, views_table
from migrator.commands.query_work import print_replay, replay_data
from migrator.features.report.work import print_report
from migrator.mapping.model.evidence import Diff, DiffKey, PatternPhase, State
from migrator.mapping.model.mapping import Param, Part, Pattern
from migrator.mapping.model.report import Curve
from migrator.mapping.model.results import Example, Hidden, PatternReplay, ReplayResult
from migrator.runtime.values import replace
from tests import pins
from tests.support_report import MODEL

NAME = "all_invoices_of_a_customer_between_two_days"


def phases(console: Console) -> None:
    views = [PhaseView(PatternPhase(name, State("live"), 3, 0.0), 2, 1) for name in (NAME, "short")]
    console.print(views_table(views, 100.0))


def replayed(console: Console) -> None:
    given = result(found=False)
    (one,) = given.patterns
    print_replay(console, replace(given, patterns=[replace(one, pattern=replace(one.pattern, name=NAME))]))


def reported(console: Console) -> None:
    print_report(console, replace(MODEL, patterns=(replace(MODEL.patterns[0], name=NAME),), groups=()))


@pytest.mark.parametrize("width", [50, 60, 80, 100])
@pytest.mark.parametrize("told", [phases, replayed, reported])
def test_a_name_is_whole_in_each_of_its_tables(told: Callable[[Console], None], width: int) -> None:
    screen, wide = StringIO(), StringIO()
    told(Console(file=screen, width=width))
    told(Console(file=wide, width=400))
    assert screen.getvalue().count(NAME) == wide.getvalue().count(NAME) > 0


VALUE = DiffKey("value", attribute="email")
HOSTILE = "[bold]x[/] \x1b[31m<script>"
PATTERN = Pattern(
    "p",
    (Param("id", "integer"), Param("whose", "text"), Param("since", "date", optional=True)),
    "get",
    (),
    parts=(Part("", "", ("id", "email")),),
)


HIDDEN = Hidden(frozenset({"email"}), frozenset({"whose"}))
SEEN = Diff("value", "email", (1, "ann@x.example"), (1, "bob@x.example"))


def result(*, hidden: Hidden = HIDDEN, found: bool = True, diff: Diff = SEEN) -> ReplayResult:
    one = PatternReplay(
        PATTERN,
        samples=10,
        origins={"id": "users.id", "whose": "users.mail"},
        hidden=hidden,
        kinds={(): 4, ("since",): 6},
        absent=2,
        same=9,
        empty=1,
        different=int(found),
        found=Counter({VALUE: 3} if found else {}),
        examples={VALUE: [Example({"id": "1", "whose": HOSTILE}, ("id", "email"), diff)]},
        latency={"table": Curve(10, ((50.0, 1.5), (90.0, 2), (99.0, 1234.5)), 2000)},
    )
    return ReplayResult([one], seed=5, control=False, took_s=1.25)


def printed(given: ReplayResult) -> str:
    out = io.StringIO()
    print_replay(Console(file=out, width=160), given)
    return out.getvalue()


def test_query_names_relay_lag_as_a_cause_of_differences() -> None:
    assert "lacks changes" not in printed(result())
    text = printed(replace(result(), lag_s=31.4))
    assert pins.said(text)
    assert "`migrator status`" in text
    assert replay_data(replace(result(), lag_s=31.4))["lag_s"] == 31.4


def test_example_shows_both_sides_and_masks_redacted_values() -> None:
    text = printed(result())
    assert "p: 3 value email" in text
    assert "» email" in text
    assert "@x.example" not in text
    assert "script" not in text
    (row,) = [line for line in text.splitlines() if "» email" in line]
    one, other = row.split()[-2:]
    assert one.startswith("…")
    assert one != other
    assert pins.said(text)


def test_what_a_terminal_would_obey_is_escaped() -> None:
    text = printed(result(hidden=Hidden()))
    assert "\x1b[31m" not in text
    assert r"[bold]x[/] \u001b[31m<script>" in text


def test_nothing_of_a_row_is_obeyed_by_a_terminal() -> None:
    email = "a\x9b31m\u202eb"
    diff = Diff("value", "email", (1, email), (1, None))
    text = printed(result(hidden=Hidden(), diff=diff))
    assert not {"\x9b", "\u202e"} & set(text)
    assert r'"a\u009b31m\u202eb"' in text
    data = json.dumps(replay_data(result(hidden=Hidden(), diff=diff)))
    example = json.loads(data)["patterns"][0]["differences"][0]["examples"][0]
    assert json.loads(example["row"]["email"]) == email


def test_a_number_and_its_text_are_two() -> None:
    given = result(hidden=Hidden(), diff=Diff("type", "email", (1, Decimal("16.50")), (1, "16.50")))
    (row,) = [line for line in printed(given).splitlines() if "» email" in line]
    assert row.split()[-2:] == ["16.50", '"16.50"']
    (example,) = replay_data(given)["patterns"][0]["differences"][0]["examples"]
    assert (example["row"]["email"], example["item"]["email"]) == ("16.50", '"16.50"')


def test_counts_and_parameters_are_reported() -> None:
    text = printed(result(found=False))
    assert pins.said(text, "optional")
    assert "1,234.5 ms" in text
    assert pins.said(text, "clean")


def test_the_data_is_json_with_nothing_redacted_in_it() -> None:
    data = json.loads(json.dumps(replay_data(result())))
    assert not data["clean"]
    (one,) = data["patterns"]
    assert one["kinds"] == [{"set": [], "samples": 4}, {"set": ["since"], "samples": 6}]
    (found,) = one["differences"]
    assert (found["class"], found["attribute"], found["count"]) == ("value", "email", 3)
    assert found["examples"][0]["row"]["id"] == "1"
    assert "@" not in json.dumps(data)
    assert one["latency_ms"] == {"table": {"answers": 10, "p50": 1.5, "p90": 2, "p99": 1234.5, "max": 2000}}


def unasked(name: str) -> PatternReplay:
    return PatternReplay(replace(PATTERN, name=name), 0, missing_why="no row gives id")


def test_a_pattern_without_a_question_is_not_proven() -> None:
    fine = result(found=False)
    given = replace(fine, patterns=[*fine.patterns, unasked("q"), unasked("r")])
    assert not given.clean
    (verdict,) = [line for line in printed(given).splitlines() if "took" in line]
    assert verdict == pins.text()
    assert "not clean" not in printed(given)
    assert replay_data(given)["not_proven"] == ["q", "r"]
    assert replay_data(given)["clean"] is False


def test_differences_come_before_unproven_parts() -> None:
    found = result()
    given = replace(found, patterns=[*found.patterns, unasked("q")])
    (verdict,) = [line for line in printed(given).splitlines() if "took" in line]
    assert verdict == pins.text()
    assert replay_data(result(found=False))["not_proven"] == []
