"""The audit of moves as people and programs see it."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from migrator.cli.cutover_text import (
    history_data,
    history_lines,
    instances_data,
    instances_lines,
    instances_table,
    marking_line,
)
from migrator.mapping.model.durations import age_text
from migrator.mapping.model.evidence import Judgement, Line, Move, State
from migrator.mapping.model.instances import Instance, ServiceRegistry
from migrator.runtime.values import replace
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


def test_history_line_names_its_evidence() -> None:
    good, bad = (move(lines, reason="drill") for lines in (LINES[:1], LINES))
    (clean,) = history_lines([good])
    (overridden,) = history_lines([bad])
    assert clean.endswith("by ada: drill (evidence: 1 ok)")
    assert overridden.endswith("by ada: drill (evidence: 1 ok; no: kinds; unknown: p99)")


def test_a_move_without_a_wait_reports_none() -> None:
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


NOW = 1_000_000.0
SHOP = Instance(
    "shop-api",
    "web-1",
    4711,
    "1.4.2",
    "0.1.0",
    "dual_write",
    "outbox",
    "abc",
    "here",
    "1",
    NOW - 500,
    NOW - 2,
)
READER = replace(SHOP, role="read", mode="", revision="old", id="2", pid=12, version="")


def service_registry(*known: Instance) -> ServiceRegistry:
    return ServiceRegistry(known, NOW, gone_s=90)


def shown(*known: Instance, revision: str | None = "abc") -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80).print(instances_table(service_registry(*known), revision))
    return out.getvalue().splitlines()


def test_a_table_of_instances_fits_a_terminal() -> None:
    pods = replace(SHOP, host="shop-api-7d9f8b6c5d-x2x4q", mode="strict")
    lines = shown(SHOP, READER, pods)
    assert lines[0].split() == ["service", "where", "role", "mode", "mapping", "heard", "of"]
    assert lines[1].split() == [
        "shop-api",
        "1.4.2",
        "web-1:4711",
        "dual_write",
        "outbox",
        "fits",
        "2",
        "s",
        "ago",
    ]
    assert lines[2].split() == ["shop-api", "web-1:12", "read", "-", "differs", "2", "s", "ago"]
    assert max(map(len, lines)) <= 80
    assert "differs" in lines[2]
    assert pods.host in lines[3]
    assert lines[4].strip() == ":4711"


def test_service_name_is_never_taken_for_a_style() -> None:
    assert "[bold]shop[/]" in "\n".join(shown(replace(SHOP, service="[bold]shop[/]", version="")))


def test_instances_lines_name_at_most_three_timed_out_instances() -> None:
    gone = [replace(SHOP, id=str(n), pid=n, alive_at=NOW - n * 3600) for n in range(1, 6)]
    assert list(instances_lines(service_registry(*gone), "abc", "0.1.0")) == [
        pins.text("goodbye"),
        pins.text("silent"),
        pins.text("goodbye-silent"),
        pins.text("see"),
    ]


def test_other_mappings_and_versions_are_reported() -> None:
    told = list(instances_lines(service_registry(READER, replace(SHOP, migrator="0.0.9")), "abc", "0.1.0"))
    assert told == [pins.text("differs"), pins.text("some")]
    assert list(instances_lines(service_registry(READER), None, "0.1.0")) == []


def test_marking_line_counts_no_readers_and_no_silent_instances() -> None:
    silent = replace(SHOP, alive_at=NOW - 90)
    assert marking_line(service_registry(SHOP, READER, silent)) == "captured by services; 1 instance running"
    assert marking_line(service_registry(SHOP, SHOP)) == pins.text("instances")
    assert pins.said(marking_line(service_registry(READER, silent)), "alive")


def test_programs_learn_all_that_is_known() -> None:
    one, two = instances_data(service_registry(SHOP, replace(SHOP, alive_at=NOW - 200.04)), "abc")
    assert (one["alive"], one["fits"], one["age_s"], one["pid"]) == (True, True, 2.0, 4711)
    assert (two["alive"], two["age_s"]) == (False, 200.0)
    assert instances_data(service_registry(SHOP), None)[0]["fits"] is None


@pytest.mark.parametrize(
    ("age_s", "text"), [(0.2, "0 s"), (59.9, "59 s"), (60, "1 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_an_age_has_its_own_unit(age_s: float, text: str) -> None:
    assert age_text(age_s) == text
