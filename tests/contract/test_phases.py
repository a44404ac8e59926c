"""Phases of access patterns: the fake ones, and journals of every kind."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from migrator.journal import schema
from migrator.journal.phases import SqlPhases
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlInstances
from migrator.mapping.model.edges import KeptPhase
from migrator.mapping.model.evidence import OFF, Move, MovedError, PatternPhase, Phases, State
from migrator.mapping.model.instances import Instance
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.contract.silence import LONG_S, silence
from tests.fakes.phases import FakePhases

HOUSE = Path(__file__).parents[2]
SHADOW, RAMP, LIVE = State("shadow"), State("ramp", 10), State("live")


@pytest.fixture
def make(journal_or_fake: SqlJournal | None) -> Callable[[str], Phases]:
    """A function from a job's name to the phases of its patterns."""
    made: dict[str, Phases] = {}
    if journal_or_fake is None:
        return lambda job: made.setdefault(job, FakePhases(time.time))
    database = journal_or_fake.database
    return lambda job: SqlPhases(database, job)


@pytest.fixture
def phases(make: Callable[[str], Phases]) -> Phases:
    return make("shop")


def moved(
    before: State = OFF, after: State = SHADOW, pattern: str = "orders", who: str = "ada@web-1"
) -> Move:
    return Move(pattern, before, after, who)


def test_a_pattern_that_was_never_moved_is_not_there(phases: Phases) -> None:
    assert phases.all() == {}
    assert phases.history() == []
    assert phases.confirmed() == {}


def test_a_move_gives_the_next_version_and_a_line_of_the_audit(phases: Phases) -> None:
    before = time.time()
    first = phases.move(moved(), 0)
    assert (first.pattern, first.state, first.version) == ("orders", SHADOW, 1)
    assert abs(first.since - before) < 30
    said = Move("orders", SHADOW, RAMP, "ädä", "’n’ mehr", '{"a": 1}', override=True, revision="abc")
    second = phases.move(said, 1)
    assert phases.all() == {"orders": second} == {"orders": PatternPhase("orders", RAMP, 2, second.since)}
    lines = phases.history("orders")
    assert [(one.before, one.after, one.version) for one in lines] == [(OFF, SHADOW, 1), (SHADOW, RAMP, 2)]
    last = lines[-1]
    assert (last.who, last.reason, last.evidence, last.override) == ("ädä", "’n’ mehr", '{"a": 1}', True)
    assert (last.revision, last.at) == ("abc", second.since)
    assert phases.history("others") == []


def test_ramp_audience_is_kept_with_the_move_until_the_next_one(phases: Phases) -> None:
    named = State("ramp", 0, (("name", "a, b=ü’"), ("user_id", "42")))
    phases.move(moved(), 0)
    phases.move(moved(SHADOW, named), 1)
    assert phases.all()["orders"].state == named
    with pins.refused(MovedError):
        phases.move(moved(State("ramp", 0), LIVE), 2)
    phases.move(moved(named, SHADOW), 2)
    assert phases.all()["orders"].state == SHADOW
    assert [(move.before, move.after) for move in phases.history()] == [
        (OFF, SHADOW),
        (SHADOW, named),
        (named, SHADOW),
    ]
    # The table keeps shares alone.
    assert phases.take_over("users", KeptPhase("ramp 5 %", 4), "ada", "lost").state == State("ramp", 5)
    assert phases.take_over("orders", KeptPhase(named.word, 4), "ada", "lost").state == SHADOW


def test_move_from_a_past_version_fails_and_names_the_first(phases: Phases) -> None:
    phases.move(moved(who="ada@web-1"), 0)
    for late, version in ((moved(who="bob@web-2"), 0), (moved(SHADOW, RAMP), 0), (moved(OFF, SHADOW), 1)):
        with pins.refused(MovedError, "moved"):
            phases.move(late, version)
    with pins.refused(MovedError, "off"):
        phases.move(moved(SHADOW, RAMP, pattern="users"), 3)
    assert len(phases.history()) == 1
    assert list(phases.all()) == ["orders"]


@pytest.mark.parametrize("start", [0, 1], ids=["the first move", "a later move"])
def test_of_two_movers_at_once_one_wins(phases: Phases, start: int) -> None:
    for round_ in range(5):
        pattern = f"orders{round_}"
        before = OFF
        if start:
            phases.move(moved(pattern=pattern), 0)
            before = SHADOW
        at_once = Barrier(2)

        def race(who: str, before: State = before, pattern: str = pattern, at_once: Barrier = at_once) -> str:
            after = RAMP if before == SHADOW else SHADOW
            at_once.wait()
            try:
                return f"won {phases.move(moved(before, after, pattern, who), start).version}"
            except MovedError as error:
                return str(error)

        with ThreadPoolExecutor(2) as pool:
            said = list(pool.map(race, ["ada", "bob"]))
        assert [one for one in said if one.startswith("won")] == [f"won {start + 1}"]
        winner = phases.history(pattern)[-1].who
        assert f"{winner} moved it" in next(one for one in said if not one.startswith("won"))
        assert len(phases.history(pattern)) == start + 1


def test_jobs_have_phases_of_their_own(make: Callable[[str], Phases]) -> None:
    make("shop").move(moved(), 0)
    make("shop").confirm("a", {"orders": 1})
    assert make("other").all() == {}
    assert make("other").history() == []
    assert make("other").confirmed() == {}
    assert make("other").move(moved(), 0).version == 1


def test_pattern_names_differing_in_case_are_two(phases: Phases) -> None:
    phases.move(moved(pattern="orders"), 0)
    phases.move(moved(pattern="Orders"), 0)
    assert set(phases.all()) == {"orders", "Orders"}


def test_instance_confirms_the_phases_that_it_uses(phases: Phases) -> None:
    phases.confirm("a", {"orders": 1, "users": 0})
    phases.confirm("b", {"orders": 2})
    phases.confirm("a", {"orders": 2})
    assert phases.confirmed() == {"a": {"orders": 2}, "b": {"orders": 2}}
    phases.confirm("b", {})
    assert phases.confirmed() == {"a": {"orders": 2}}


def test_what_an_instance_confirmed_goes_with_it(journal: SqlJournal) -> None:
    instances, phases = SqlInstances(journal.database, "shop"), SqlPhases(journal.database, "shop")
    shop = Instance("shop", "web-1", 4711, "1.4.2", "0.1.0", "read", "", "abc", "")
    left, silent, living = (instances.enter(shop) for _ in range(3))
    for one in (left, silent, living):
        phases.confirm(one.id, {"orders": 1})
    instances.leave(left)
    silence(instances, silent)
    assert instances.forget_silent(LONG_S / 2) == 1
    assert phases.confirmed() == {living.id: {"orders": 1}}


def test_documented_statement_reads_the_phases_of_services(journal: SqlJournal) -> None:
    """As services in other languages ask, by the words of docs/other-languages.md."""
    (sql,) = re.findall(
        r"```sql\n(SELECT p\.pattern.*?)```", (HOUSE / "docs" / "other-languages.md").read_text(), re.DOTALL
    )
    phases = SqlPhases(journal.database, "shop")
    named = State("ramp", 0, (("user_id", "42"),))
    for before, after, version in ((OFF, SHADOW, 0), (SHADOW, named, 1)):
        phases.move(moved(before, after), version)
    phases.move(moved(pattern="users"), 0)
    SqlPhases(journal.database, "other").move(moved(pattern="others"), 0)
    with journal.database.begin() as connection:
        rows = connection.exec_driver_sql(sql).mappings().all()
    told = {row["pattern"]: row for row in rows}
    assert set(told) == set(phases.all())
    for name, phase in phases.all().items():
        row = told[name]
        state = (row["phase"], row["percent"], row["version"], row["since"], row["audited"])
        assert state == (phase.state.phase, phase.state.percent, phase.version, phase.since, phase.state.word)
    assert json.loads(told["orders"]["audience"])["after"] == [["user_id", "42"]]
    assert told["users"]["audience"] is None


EDITS: dict[str, Any] = {
    "an unknown word": update(schema.phase).values(phase="lively", percent=0),
    "a ramp of 300": update(schema.phase).values(percent=300),
    "another phase": update(schema.phase).values(phase="live", percent=0),
    "a higher version": update(schema.phase).values(version=7),
    "no phase": delete(schema.phase),
}


@pytest.mark.parametrize("edit", EDITS)
def test_phase_edited_by_hand_reports_the_fix_and_stops_no_other(journal: SqlJournal, edit: str) -> None:
    phases = SqlPhases(journal.database, "shop")
    phases.move(moved(), 0)
    right = phases.move(moved(SHADOW, RAMP), 1)
    with journal.database.begin() as connection:
        connection.execute(EDITS[edit])
    phases.move(moved(pattern="users"), 0)
    known = phases.all()
    assert (known["users"].state, known["users"].fault) == (SHADOW, "")
    assert (known["orders"].state, known["orders"].version) == (RAMP, 2)
    with pins.refused(SettingsError) as caught:
        phases.move(moved(RAMP, LIVE), 2)
    assert known["orders"].fault in str(caught.value)
    assert phases.mend("orders") == right == phases.all()["orders"]
    assert phases.mend("orders") == right
    assert phases.move(moved(RAMP, LIVE), 2).version == 3
    assert len(phases.history("orders")) == 3


def test_pattern_without_a_fault_needs_no_repair(phases: Phases) -> None:
    assert phases.mend("orders") == PatternPhase("orders")
    made = phases.move(moved(), 0)
    assert phases.mend("orders") == made == phases.all()["orders"]


def test_phase_without_an_audit_line_is_a_fault_until_removed(journal: SqlJournal) -> None:
    row = {"job": "shop", "pattern": "orders", "phase": "live", "percent": 0, "version": 1, "since": 0.0}
    with journal.database.begin() as connection:
        connection.execute(insert(schema.phase).values(**row))
    phases = SqlPhases(journal.database, "shop")
    said = phases.all()["orders"]
    assert (said.state, said.version) == (OFF, 0)
    assert pins.said(said.fault, "audit")
    with pins.refused(SettingsError):
        phases.move(moved(), 0)
    assert phases.mend("orders") == PatternPhase("orders")
    assert phases.all() == {}


@pytest.mark.parametrize(
    ("word", "audience"),
    [
        *((word, None) for word in ("ramp 0 %", "ramp 101 %", "ramp", "gone")),
        ("ramp 0 %", "{"),
        ("ramp 0 %", '{"before": [], "after": [["user_id"]]}'),
        ("live", '{"before": [], "after": [["user_id", "42"]]}'),
    ],
)
def test_an_audit_that_was_edited_by_hand_is_refused(
    journal: SqlJournal, word: str, audience: str | None
) -> None:
    phases = SqlPhases(journal.database, "shop")
    phases.move(moved(), 0)
    with journal.database.begin() as connection:
        connection.execute(update(schema.move).values(after=word, audience=audience))
    assert pins.said(phases.all()["orders"].fault, "orders")
    for ask in (phases.history, lambda: phases.mend("orders")):
        with pins.refused(SettingsError, "restore"):
            ask()


def test_phase_kept_by_the_table_is_taken_over_with_its_version(phases: Phases) -> None:
    made = phases.take_over("orders", KeptPhase("live", 4), "migrator", "the journal was lost")
    assert (made.state, made.version) == (LIVE, 4)
    assert phases.all()["orders"] == made
    (line,) = phases.history("orders")
    said = (line.before, line.after, line.who, line.reason, line.version)
    assert said == (OFF, LIVE, "migrator", pins.text(), 4)
    assert phases.move(moved(LIVE, SHADOW), 4).version == 5


def test_a_version_never_goes_back_when_a_phase_is_taken_over(phases: Phases) -> None:
    phases.move(moved(), 0)
    phases.move(moved(SHADOW, RAMP), 1)
    assert phases.take_over("orders", KeptPhase("ramp 5 %", 1), "migrator", "").version == 3
    with pins.refused(SettingsError):
        phases.take_over("orders", KeptPhase("odd", 9), "migrator", "")
