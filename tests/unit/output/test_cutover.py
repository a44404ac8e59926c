"""The audit of moves as people and programs see it."""

from __future__ import annotations

import json

from migrator.model.evidence import Judgement, Line, Move, State
from migrator.output.cutover import history_data, history_lines
from tests import pins

SHADOW, RAMP = State("shadow"), State("ramp", 1)
LINES = (
    Line("lag", "no mark waits", "none", "ok"),
    Line("kinds", "half of them", "1 of 4", "no", 3.0),
    Line("p99", "a budget", "not enough", "unknown"),
)


def move(lines: tuple[Line, ...], **more: object) -> Move:
    judged = Judgement("orders", SHADOW, RAMP, 1, lines)
    return Move("orders", SHADOW, RAMP, "ada", evidence=judged.as_json(), **more)  # type: ignore[arg-type]


def test_a_line_of_the_history_says_by_what_evidence() -> None:
    good, bad = (move(lines, reason="drill") for lines in (LINES[:1], LINES))
    (clean,) = history_lines([good])
    (overridden,) = history_lines([bad])
    assert clean.endswith("by ada: drill (evidence: 1 ok)")
    assert overridden.endswith("by ada: drill (evidence: 1 ok; no: kinds; unknown: p99)")


def test_a_move_that_asked_for_none_says_none() -> None:
    for one in (move(()), Move("orders", RAMP, SHADOW, "ada")):
        assert next(history_lines([one])).endswith("by ada")
        assert history_data([one])[0]["evidence"] == []


def test_programs_get_the_evidence_as_data() -> None:
    (made,) = json.loads(json.dumps(history_data([move(LINES)])))
    assert made["evidence"][1] == {
        "name": "kinds",
        "asked": pins.text(),
        "found": "1 of 4",
        "verdict": "no",
        "age_s": 3.0,
        "mend": "",
    }


def test_evidence_that_was_edited_is_shown_as_it_stands() -> None:
    for text in ("[", "7", '[{"name": "kinds"}]', "[1]"):
        edited = Move("orders", SHADOW, RAMP, "ada", evidence=text)
        assert next(history_lines([edited])) == pins.text()
        assert history_data([edited])[0]["evidence"] == text
