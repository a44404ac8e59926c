"""The steps of a change to another mapping: in order, gone on with, and refused where they must not begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from migrator.mapping.difference.difference import EntityDifference, MappingDifference, SchemaDifference
from migrator.mapping.difference.meaning import PatternDifference
from migrator.mapping.difference.steps import (
    ORDER,
    ROUNDS,
    Asked,
    ChangeDirection,
    Confirmed,
    answered,
    proven,
    refuse_direct,
    run_steps,
    there,
    way_of,
)
from migrator.mapping.model.evidence import PatternPhase, State
from migrator.mapping.model.instances import ChangeStep, RevisionChange, Standing
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from tests import pins

CHANGE = RevisionChange(1, "old", "new", goes_back=False, step="indexes")


class Killed(BaseException):
    """As a kill -9: nothing more is done."""


@dataclass
class Book:
    """A journal that may be killed before it has kept that a step is done."""

    change: RevisionChange = CHANGE
    dies_after: ChangeStep = ""

    def advance(self, change: RevisionChange, step: ChangeStep) -> None:
        if change.step and self.dies_after and self.done_of(step) == self.dies_after:
            self.dies_after = ""
            raise Killed
        self.change = replace(self.change, step=step)

    def done_of(self, following: ChangeStep) -> ChangeStep:
        return ORDER[-1] if not following else ORDER[ORDER.index(following) - 1]


@dataclass
class World:
    book: Book = field(default_factory=Book)
    done: list[ChangeStep] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    dies_in: ChangeStep = ""

    def run(self, still: Callable[[], None] = lambda: None) -> None:
        works = {step: self.work(step) for step in ORDER}
        run_steps(self.book.change, works, self.book.advance, still, self.said.append)

    def work(self, step: ChangeStep) -> Callable[[], str]:
        def work() -> str:
            if step == self.dies_in:
                self.dies_in = ""
                raise Killed
            self.done.append(step)
            return "done"

        return work


def test_all_steps_are_done_in_order_and_reported() -> None:
    world = World()
    world.run()
    assert (tuple(world.done), world.book.change.is_done) == (ORDER, True)
    assert world.said[0] == "1/6 indexes: done"


@pytest.mark.parametrize("step", ORDER)
def test_a_change_that_was_killed_in_a_step_resumes_with_it(step: ChangeStep) -> None:
    world = World(dies_in=step)
    with pytest.raises(Killed):
        world.run()
    assert (world.book.change.step, tuple(world.done)) == (step, ORDER[: ORDER.index(step)])
    world.run()
    assert (tuple(world.done), world.book.change.is_done) == (ORDER, True)


@pytest.mark.parametrize("step", ORDER)
def test_kill_before_a_step_is_recorded_repeats_only_that_step(
    step: ChangeStep,
) -> None:
    world = World(Book(dies_after=step))
    with pytest.raises(Killed):
        world.run()
    world.run()
    assert (tuple(dict.fromkeys(world.done)), world.done.count(step)) == (ORDER, 2)


def test_file_edited_during_a_change_stops_it_before_a_step() -> None:
    world = World()

    def still() -> None:
        if "newest" in world.done:
            raise SettingsError("edited")

    with pytest.raises(SettingsError):
        world.run(still)
    assert world.book.change.step == "items"


# ── where it is to go ──


def asked(
    own: str, standing: Standing, *, is_left: bool = False, go_back: bool = False, again: bool = False
) -> Asked:
    return Asked(own, standing, is_left, go_back, again, "", "", None)


def known(newest: str, before: str, last: RevisionChange | None) -> dict[str, Any]:
    return {"newest": newest, "before": before, "last": last}


UNFINISHED = replace(CHANGE, step="items")
BACK = RevisionChange(2, "new", "old", goes_back=True, step="items")
BACK_DONE = replace(BACK, step="")
LEFT_AGAIN = asked("new", "old", is_left=True, again=True)


@pytest.mark.parametrize(
    ("question", "recorded", "way"),
    [
        (asked("b", "new"), known("a", "", None), ChangeDirection("a", "b", False)),
        (asked("a", "newest"), known("a", "", None), there("a")),
        # A relay has made it the newest, and no change was ever begun to it.
        (asked("b", "newest"), known("b", "a", None), ChangeDirection("a", "b", False)),
        (asked("new", "newest"), known("new", "old", replace(CHANGE, step="")), there("new")),
        (
            asked("new", "newest"),
            known("new", "old", UNFINISHED),
            ChangeDirection("old", "new", False, UNFINISHED),
        ),
        (
            asked("new", "newest", go_back=True),
            known("new", "old", UNFINISHED),
            ChangeDirection("new", "old", True),
        ),
        (
            asked("other", "new", go_back=True),
            known("new", "old", UNFINISHED),
            ChangeDirection("new", "old", True),
        ),
        (
            asked("new", "old", go_back=True),
            known("old", "new", BACK),
            ChangeDirection("new", "old", True, BACK),
        ),
        (
            asked("new", "newest", go_back=True),
            known("new", "old", replace(CHANGE, step="")),
            ChangeDirection("new", "old", True),
        ),
        (
            asked("older", "old", go_back=True),
            known("new", "old", None),
            ChangeDirection("new", "older", True),
        ),
        # From one that it went back to it goes to an older one, and once more to the one that it left where that is said.
        (
            asked("older", "old", go_back=True),
            known("old", "new", BACK_DONE),
            ChangeDirection("old", "older", True),
        ),
        (LEFT_AGAIN, known("old", "new", BACK_DONE), ChangeDirection("old", "new", False)),
        (
            replace(LEFT_AGAIN, standing="new"),
            known("old", "new", BACK_DONE),
            ChangeDirection("old", "new", False),
        ),
    ],
)
def test_the_way_follows_from_the_file_and_the_journal(
    question: Asked, recorded: dict[str, Any], way: ChangeDirection
) -> None:
    assert way_of(replace(question, **recorded)) == way


@pytest.mark.parametrize(
    ("question", "recorded"),
    [
        (asked("a", "first"), known("", "", None)),
        (asked("other", "new"), known("old", "", UNFINISHED)),
        (asked("new", "old"), known("old", "new", BACK)),
        (asked("a", "old"), known("b", "a", None)),
        (asked("a", "newest", go_back=True), known("a", "", None)),
        # A deployment that gives the command each time, by the file that the job went back from.
        (asked("new", "old", is_left=True), known("old", "new", BACK_DONE)),
        (asked("new", "new", is_left=True), known("old", "new", BACK_DONE)),
    ],
    ids=[
        "run-backfill",
        "during-new",
        "new-during",
        "stay-put",
        "knows-before",
        "back-old",
        "stay-put-asked",
    ],
)
def test_invalid_way_is_refused_with_the_fix(question: Asked, recorded: dict[str, Any]) -> None:
    with pins.refused(SettingsError):
        way_of(replace(question, **recorded))


@pytest.mark.parametrize(
    "question",
    [
        asked("new", "old", is_left=True, go_back=True),
        # What was left may never have been the newest; and the older file may be in place by now.
        asked("new", "new", is_left=True, go_back=True),
        asked("old", "newest", go_back=True),
    ],
)
def test_job_already_back_is_there_if_requested_again(question: Asked) -> None:
    found = way_of(replace(question, **known("old", "new", BACK_DONE)))
    assert (found.before, found.after) == ("old", "old")
    assert pins.said(found.advice)


# ── the gate ──


def found(*patterns: PatternDifference) -> MappingDifference:
    entity = EntityDifference("user@eu", "user", "changed", (), ())
    return MappingDifference((entity,), patterns, SchemaDifference({}, {}, ()), ())


def test_only_changed_patterns_that_dynamodb_answers_block() -> None:
    names = ("same", "changed", "gone", "asked", "in_sql")
    changed = [
        PatternDifference("same", "changed", ("p99_ms",), answer_changes=False),
        PatternDifference("changed", "same", (), answer_changes=True),
        PatternDifference("gone", "gone", (), answer_changes=False),
        PatternDifference("asked", "same", (), answer_changes=False, old_loses=("user.User",)),
        PatternDifference("in_sql", "same", (), answer_changes=True),
        PatternDifference("new", "new", (), answer_changes=True),
    ]
    phases = {name: PatternPhase(name, State("live")) for name in names[:-1]}
    phases["in_sql"] = PatternPhase("in_sql", State("shadow"))
    assert [name for name, _ in answered(found(*changed), phases)] == ["changed", "gone", "asked"]


def test_items_that_the_service_writes_itself_are_not_changed() -> None:
    refuse_direct(found(), ["order"])
    with pins.refused(SettingsError):
        refuse_direct(found(), ["user"])


# ── the proof ──

DIFFERS: Confirmed = {("user", "1"): {("A", "B")}}
CLEAN: Confirmed = {}


@pytest.mark.parametrize(("looks", "written"), [([], 0), ([CLEAN], 1), ([DIFFERS, CLEAN], 2)])
def test_proven_step_rewrites_differences_and_compares_again(looks: list[Confirmed], written: int) -> None:
    refreshed: list[object] = []
    left = iter(looks)
    first = DIFFERS if looks else CLEAN
    assert proven(first, refreshed.append, lambda: next(left)) == (CLEAN, written)
    assert refreshed == [DIFFERS] * written


def test_proven_row_that_always_differs_is_left_to_the_next_call() -> None:
    refreshed: list[object] = []
    assert proven(DIFFERS, refreshed.append, lambda: DIFFERS) == (DIFFERS, ROUNDS)
    assert len(refreshed) == ROUNDS
