"""A replay as evidence: what goes into the journal, redacted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from migrator.model.evidence import Diff, DiffKey, PatternPhase, State
from migrator.model.mapping import Param, Part, Pattern
from migrator.model.results import Example, Hidden, Latency, PatternReplay, ReplayResult
from migrator.settings.job import CutoverSettings
from migrator.stages.patterns.replay import ReplayRecord
from tests import pins
from tests.fakes.evidence import FakeEvidence
from tests.unit.stages.evidence_world import facts

NOW_S = 1_700_000_123.0
BEGAN = 1_700_000_121
ANSWERS = {"p": "answer"}
VALUE, ERROR = DiffKey("value", attribute="email"), DiffKey("error", attribute="table")
PATTERN = Pattern(
    "p",
    (Param("id", "integer"), Param("since", "date", optional=True)),
    "get",
    (),
    parts=(Part("", "", ("id", "email")),),
)
REPLAYED = PatternReplay(
    PATTERN,
    samples=10,
    hidden=Hidden(frozenset({"email"}), frozenset({"id"})),
    kinds={(): 4, ("since",): 6},
    same=6,
    transient=1,
    different=3,
    failed=Counter({("since",): 1}),
    found=Counter({VALUE: 2, ERROR: 1}),
    examples={
        VALUE: [Example({"id": "4711"}, ("id", "email"), Diff("value", "email", (1, "ann@x"), (1, "bob@x")))],
        ERROR: [Example({"id": "4712"}, why="the table does not answer")],
    },
    latency={"table": Latency(9, 1, 2, 3, 4), "sql": Latency(10, 1, 2, 3, 4)},
    histograms={"table": "HIST-T", "sql": "HIST-S"},
)
RESULT = ReplayResult([REPLAYED], seed=1, control=False, took_s=1.5)


@pytest.fixture
def evidence() -> FakeEvidence:
    return FakeEvidence(lambda: NOW_S)


def test_counts_add_up_and_errors_are_not_compared(evidence: FakeEvidence) -> None:
    ReplayRecord(evidence, "rev", ANSWERS).keep(RESULT, BEGAN)
    (window,) = evidence.windows(0)
    assert (window.pattern, window.begun_at, window.origin, window.revision) == ("p", BEGAN, "replay", "rev")
    assert window.answer == "answer"
    assert (window.compared, window.same, window.transient, window.different) == (9, 6, 1, 2)
    assert window.errors == {"table": 1}
    assert window.answered == {"table": 9, "sql": 10}
    assert window.kinds == {"": 4, "since": 5}
    assert window.found == {DiffKey("value", "", "email"): 2, DiffKey("error", "", "table"): 1}
    assert window.latency == {"table": "HIST-T", "sql": "HIST-S"}
    assert len(window.writer) <= 32


def test_samples_are_redacted(evidence: FakeEvidence) -> None:
    ReplayRecord(evidence, "rev", ANSWERS).keep(RESULT, BEGAN)
    by_kind = {one.key.kind: one for one in evidence.samples()}
    value, error = by_kind["value"], by_kind["error"]
    assert value.attributes == ("id", "email")
    assert value.row is not None
    assert value.item is not None
    assert value.row[0] == value.item[0] == "1"
    assert value.row[1].startswith("…")
    assert value.row[1] != value.item[1]
    assert value.params["id"].startswith("…")
    assert (error.why, error.attributes, error.row) == (pins.text(), (), None)
    assert "@" not in repr(evidence.samples())
    assert "4711" not in repr(evidence.samples())
    assert value.at == NOW_S


def test_it_is_evidence_of_when_it_began(evidence: FakeEvidence) -> None:
    """A move in between, of the same minute or not, is not answered for by it."""
    slept: list[float] = []
    record = ReplayRecord(FakeEvidence(lambda: 1000.25), "rev", ANSWERS)
    begun_at = record.begin(lambda: False, slept.append)
    assert begun_at == 1001
    assert sum(slept) == pytest.approx(0.75)
    ReplayRecord(evidence, "rev", ANSWERS).keep(RESULT, begun_at)
    assert [one.begun_at for one in evidence.windows(0)] == [1001]


@pytest.mark.parametrize(("took_s", "compared"), [(4.0, 9), (6.0, 0)])
def test_what_began_after_a_move_counts_and_what_began_before_does_not(
    evidence: FakeEvidence, took_s: float, compared: int
) -> None:
    """Both end in the minute of the move."""
    replayed = replace(REPLAYED, histograms={})
    ReplayRecord(evidence, "rev", ANSWERS).keep(replace(RESULT, patterns=[replayed]), int(NOW_S - took_s))
    moved = PatternPhase("p", State("shadow"), 1, NOW_S - 5)
    found = facts(pattern=PATTERN, phase=moved, now_s=NOW_S, windows=evidence.windows(0))
    assert found.counts(CutoverSettings(), since_move=True).compared == compared


def test_two_replays_of_one_minute_both_stay(evidence: FakeEvidence) -> None:
    ReplayRecord(evidence, "rev", ANSWERS).keep(RESULT, BEGAN)
    ReplayRecord(evidence, "rev", ANSWERS).keep(RESULT, BEGAN)
    assert len(evidence.windows(0)) == 2


def test_a_control_and_patterns_that_could_not_be_asked_are_no_evidence(evidence: FakeEvidence) -> None:
    ReplayRecord(evidence, "rev", ANSWERS).keep(replace(RESULT, control=True), BEGAN)
    ReplayRecord(evidence, "rev", ANSWERS).keep(
        replace(RESULT, patterns=[PatternReplay(PATTERN, missing_why="no key")]), BEGAN
    )
    assert evidence.windows(0) == []
    assert evidence.samples() == []
