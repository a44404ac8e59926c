"""The way back from complete: what speaks for it, its steps in their order, and the same steps again after a kill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.mapping.model.evidence import PatternPhase, State
from migrator.mapping.model.live import StreamRecord, Unkept, WaitingRow
from migrator.mapping.model.mapping import Entity
from migrator.mapping.model.table import Item, KeyAttribute, TableDesign
from migrator.runtime.errors import RefusedError, SettingsError, StoppedError
from migrator.runtime.values import replace
from migrator.settings.job import CutoverSettings
from migrator.stages.cutover.evidence import Unknown
from migrator.stages.cutover.moves import Cutover
from migrator.stages.cutover.rollback import GoingBack, WayBack, may_go_back, named, quiet, stays_open
from migrator.stages.reverse.daemon import ReverseStatus
from tests import pins
from tests.fakes.phases import FakePhases

LIMITS = CutoverSettings()
WELL = ReverseStatus(True, {"s1": 2.0}, 1, [])
PARKED = WaitingRow(("orders", "[1]"), "refused", 0.0, "unique", tries=9)
GONE = WaitingRow(("orders", "[1]"), "gone", 0.0)
CHANGING = WaitingRow(("orders", "[2]"), "changing", 0.0)


@pytest.mark.parametrize(
    ("way_back", "said"),
    [
        (WayBack([], WELL), {"way back": "ok", "reverse": "ok"}),
        (WayBack(["no stream"], WELL), {"way back": "no", "reverse": "ok"}),
        (WayBack([], replace(WELL, processes=0)), {"way back": "ok", "reverse": "no"}),
        (WayBack([], replace(WELL, lags_s={"s1": 11.0})), {"way back": "ok", "reverse": "no"}),
        (WayBack([], replace(WELL, waiting=[PARKED])), {"way back": "ok", "reverse": "no"}),
        (WayBack([], replace(WELL, waiting=[GONE])), {"way back": "ok", "reverse": "ok"}),
        (WayBack([], replace(WELL, waiting=[CHANGING])), {"way back": "ok", "reverse": "ok"}),
        (WayBack([], ReverseStatus(False, {}, 0, [])), {"way back": "ok", "reverse": "no"}),
        (Unknown("away"), {"way back": "unknown"}),
    ],
)
def test_complete_needs_a_rollback_or_one_way(way_back: WayBack | Unknown, said: dict[str, str]) -> None:
    lines = list(stays_open(lambda: way_back, LIMITS, one_way=False))
    assert {line.name: line.verdict for line in lines} == said
    assert all("--one-way" in line.mend for line in lines if line.verdict != "ok")
    (one_way,) = stays_open(lambda: way_back, LIMITS, one_way=True)
    assert (one_way.verdict, one_way.found) == ("ok", pins.text())


@pytest.mark.parametrize(
    ("status", "writing", "is_drained", "said"),
    [
        (WELL, (), True, {}),
        (replace(WELL, processes=0), (), True, {}),
        (replace(WELL, lags_s={"s1": 9000.0}), (), True, {}),
        (replace(WELL, waiting=[CHANGING]), (), True, {}),
        (replace(WELL, waiting=[PARKED]), (), True, {"reverse": "no"}),
        (ReverseStatus(False, {}, 0, []), (), True, {"reverse": "no"}),
        (WELL, ("relay",), True, {"ours": "no"}),
        (ReverseStatus(False, {}, 0, []), (), False, {}),
    ],
)
def test_rollback_is_refused_for_stuck_rows_and_not_for_lag(
    status: ReverseStatus, writing: tuple[str, ...], is_drained: bool, said: dict[str, str]
) -> None:
    lines = may_go_back(WayBack([], status), writing, (), is_drained=is_drained)
    assert {line.name: line.verdict for line in lines if line.verdict != "ok"} == said


def test_confirmation_by_an_operator_is_among_the_evidence() -> None:
    lines = may_go_back(WayBack([], WELL), (), ("users", "orders"), is_drained=False)
    (unwritten,) = [line for line in lines if line.name == "unwritten"]
    assert (unwritten.verdict, unwritten.found) == ("ok", pins.text())
    (lost,) = [line for line in may_go_back(WayBack(["lost"], WELL), (), (), is_drained=False) if line.mend]
    assert "--unwritten ENTITY" in lost.mend


# ── its steps ──


class Killed(BaseException):
    """The process is gone."""


ORDER = ["drain", "compare", "move_counters", "capture", "own", "look", "keep"]


@dataclass
class Steps:
    """`dies_at`: before which step it is killed; with `after`, once that is done."""

    drained: ReverseStatus = field(default_factory=lambda: replace(WELL, processes=0))
    is_clean: bool = True
    unkept: Unkept = Unkept()
    drops: bool = False
    dies_at: str = ""
    after: bool = False
    loses_lease_at: str = ""
    done: list[str] = field(default_factory=list)

    def going_back(self) -> GoingBack:
        results: dict[str, Any] = {"drain": self.drained, "compare": self, "own": 3}
        return GoingBack(self.drops, self._check, *(self._step(name, results.get(name)) for name in ORDER))

    def _check(self) -> None:
        if self.loses_lease_at and ORDER[len(self.done)] == self.loses_lease_at:
            raise StoppedError("another run may be at work")

    def _step(self, name: str, result: Any) -> Callable[[], Any]:
        def step() -> Any:
            if name == self.dies_at and not self.after:
                raise Killed
            self.done.append(name)
            if name == self.dies_at:
                raise Killed
            return result

        return step


def test_rollback_completes_rows_before_marks_and_record_is_last() -> None:
    steps = Steps()
    assert steps.going_back().run() == 3
    assert steps.done == ORDER


def test_unkept_attributes_are_named_and_dropped_on_request_only() -> None:
    unkept = Unkept({("Customer", "nickname"): 2}, {("Order", "tags"): 1})
    steps = Steps(unkept=unkept)
    with pytest.raises(RefusedError, match=r"Customer\.nickname, Order\.tags") as refused:
        steps.going_back().run()
    assert steps.done == ["drain", "compare"]
    assert all(word in str(refused.value) for word in ("--drop-attributes", "writes: {keep: […]}"))
    assert Steps(unkept=unkept, drops=True).going_back().run() == 3


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", ORDER)
def test_killed_at_any_step_the_same_command_resumes(name: str, after: bool) -> None:
    """None is left out because it may have been done before."""
    steps = Steps(dies_at=name, after=after)
    with pytest.raises(Killed):
        steps.going_back().run()
    assert "keep" not in steps.done or (name, after) == ("keep", True)
    steps.dies_at = ""
    steps.done.clear()
    steps.going_back().run()
    assert steps.done == ORDER


@pytest.mark.parametrize(
    ("steps", "done"),
    [
        (Steps(replace(WELL, processes=0, waiting=[GONE])), ["drain"]),
        (Steps(WELL), ["drain"]),
        (Steps(is_clean=False), ["drain", "compare"]),
    ],
    ids=["processes-ended", "started-meanwhile", "differ-processes"],
)
def test_what_is_not_proven_changes_nothing(steps: Steps, done: list[str]) -> None:
    with pins.refused(RefusedError):
        steps.going_back().run()
    assert steps.done == done


def test_rollback_without_direct_writes_names_how_rows_catch_up() -> None:
    steps = Steps(is_clean=False)
    with pins.refused(RefusedError):
        replace(steps.going_back(), drain=None, look=None).run()
    assert steps.done == ["compare"]


@pytest.mark.parametrize("name", [name for name in ORDER if name not in ("compare", "look")])
def test_no_step_that_writes_begins_without_the_lease(name: str) -> None:
    steps = Steps(loses_lease_at=name)
    with pytest.raises(StoppedError):
        steps.going_back().run()
    assert steps.done == ORDER[: ORDER.index(name)]


DESIGN = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
ITEM: Item = {"PK": "A", "SK": "B", "type": "Order", "total": 1}


@pytest.mark.parametrize(
    ("old", "new", "is_written"),
    [
        (ITEM, {**ITEM, "_src": "orders:[1]", "_tk": 7, "_rev": "r"}, False),
        ({**ITEM, "_tk": 3}, {**ITEM, "_tk": 7, "total": 2}, True),
        (None, ITEM, True),
        (ITEM, None, True),
        (None, {**ITEM, "type": "User"}, False),
    ],
)
def test_while_all_is_quiet_only_what_is_ours_alone_is_put_away(old: Any, new: Any, is_written: bool) -> None:
    worked: list[StreamRecord] = []
    quiet_work = quiet(lambda records, _: worked.extend(records), DESIGN, {"Order"}, "What next.")
    other = StreamRecord("2", 0.0, {}, None, {**ITEM, "type": "User"})
    if is_written:
        with pins.refused(RefusedError):
            quiet_work([StreamRecord("1", 0.0, {}, old, new), other], lambda: None)
        assert not worked
    else:
        quiet_work([StreamRecord("1", 0.0, {}, old, new), other], lambda: None)
        assert other in worked


def test_an_entity_of_several_schemas_becomes_ours_in_each() -> None:
    """Keys of the mapping's entities are `orders@a`; a job names what is written."""

    def entity(name: str, schema: str) -> Any:
        plan = SimpleNamespace(entity=Entity(name, "orders", (), schema=schema))
        return SimpleNamespace(compiled=SimpleNamespace(plan=plan))

    entities = {name: entity(name, name[-1:]) for name in ("orders@a", "orders@b", "users")}
    assert named(entities, {"orders"}) == [entities["orders@a"], entities["orders@b"]]


# ── the pattern ──


def test_only_a_pattern_that_is_complete_goes_this_way() -> None:
    cutover = Cutover(FakePhases(lambda: 1.0), "ada")
    for state in (State("live"), State("shadow")):
        with pins.refused(SettingsError, "way-2"):
            cutover.go_back(PatternPhase("orders", state), None, "", ())
    with pins.refused(SettingsError, "hand"):
        cutover.go_back(PatternPhase("orders", State("complete"), fault="edited by hand"), None, "", ())
    with pins.refused(SettingsError, "way"):
        cutover.go_back(PatternPhase("orders", State("complete")), State("live"), "", ())
    with pins.refused(SettingsError, "phase"):
        cutover.roll_back(PatternPhase("orders", State("complete")), None, "")
