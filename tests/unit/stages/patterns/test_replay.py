"""Patterns replayed on both sides: what counts as a difference, and what was only in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from threading import Event
from typing import Any

import pytest

from migrator.mapping.model.evidence import SAMPLES_KEPT, Diff, DiffKey, PatternPhase, State
from migrator.mapping.model.mapping import Param, Part, Pattern
from migrator.mapping.model.report import Curve
from migrator.mapping.model.results import Example, Hidden, PatternReplay, ReplayResult
from migrator.runtime.errors import Interrupted, SourceError, amount
from migrator.runtime.values import replace
from migrator.settings.job import CutoverSettings
from migrator.stages.patterns.replay import Replay, ReplayOptions, ReplayRecord
from tests import pins
from tests.fakes.evidence import FakeEvidence
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.golden.patterns import SCHEMA, checked, items, row
from tests.support_fence import no_fence
from tests.support_items import put_items
from tests.unit.stages.core.evidence_world import facts

ROWS = 12
LIST = """
params: {tenant: text}
query: {key: ["EVENT#{tenant}"]}
returns: [id, n, kind]
"""
ONE = """
params: {tenant: text}
query: {key: ["EVENT#{tenant}"]}
returns: {all: {type: Event, one: true, attributes: [id]}}
sql: {all: SELECT 1}
"""
Answers = Callable[[Mapping[str, Any]], list[tuple[Any, ...]]]


class Progress:
    """A progress that is not shown."""

    def pattern_started(self, pattern: str, samples: int) -> None: ...

    def sample_done(self, pattern: str) -> None: ...

    def pattern_done(self, pattern: str, samples: int, suspects: int) -> None: ...


def rows_of(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(number, number, "k") for number in range(ROWS)] if params["tenant"] == "acme" else []


class Replayed:
    """A pattern on a table and a source that a test may spoil."""

    def __init__(self, pattern: str = LIST, answers: Answers = rows_of, **options: Any) -> None:
        self.made = checked(pattern)
        self.store = FakeStore(self.made.mapping.table, no_fence)
        put_items(self.store, items(self.made, *(row(number) for number in range(ROWS))))
        self.source = MemorySource(
            SCHEMA, {"events": [row(number) for number in range(ROWS)]}, {"SELECT 1": answers}
        )
        self.options = ReplayOptions(**{"samples": 20, "seed": 1, "workers": 2, **options})
        self.sleep: Callable[[float], None] = lambda wait_s: None
        self.lag_s = 0.0
        self.stop = Event()
        self.control = False

    def spoil(self, number: int, **values: Any) -> None:
        self.store.items["EVENT#acme", f"E#{number:04}"].update(values)

    def run(self) -> ReplayResult:
        stage = Replay(
            self.made.mapping,
            self.made.entities,
            self.source,
            None if self.control else self.store,
            self.options,
            progress=Progress(),
            stop=self.stop,
            lag_s=lambda: self.lag_s,
            sleep=lambda wait_s: self.sleep(wait_s),
        )
        return stage.run(list(self.made.mapping.patterns.values()))

    def pattern(self) -> PatternReplay:
        (found,) = self.run().patterns
        return found


def test_equal_answers_are_clean() -> None:
    replayed = Replayed()
    result = replayed.run()
    (found,) = result.patterns
    assert result.clean
    assert (found.samples, found.same, found.different, found.transient) == (20, 20, 0, 0)
    assert found.empty == found.absent > 0
    assert {side: one.answers for side, one in found.latency.items()} == {"table": 20, "sql": 20}
    times = [(*map(one.at, (50.0, 90.0, 99.0)), one.max_ms) for one in found.latency.values()]
    assert all(0 < one[0] <= one[1] <= one[2] <= one[3] for one in times)


def spoiled(replayed: Replayed, how: str) -> None:
    key = ("EVENT#acme", "E#0003")
    if how == "missing":
        del replayed.store.items[key]
    elif how == "unexpected":
        put_items(replayed.store, items(replayed.made, row(99, kind="x")))
    elif how == "order":
        one, other = replayed.store.items[key], replayed.store.items["EVENT#acme", "E#0004"]
        kept = ("PK", "SK")
        swapped = [{**b, **{name: a[name] for name in kept}} for a, b in ((one, other), (other, one))]
        put_items(replayed.store, swapped)
    else:
        spoiled: dict[str, dict[str, Any]] = {"value": {"n": 7}, "type": {"n": "3"}, "attribute": {"n": None}}
        replayed.spoil(3, **spoiled[how])


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("missing", DiffKey("missing")),
        ("unexpected", DiffKey("unexpected")),
        ("value", DiffKey("value", attribute="n")),
        ("type", DiffKey("type", attribute="n")),
        ("attribute", DiffKey("missing", attribute="n")),
        ("order", DiffKey("order")),
    ],
)
def test_a_corruption_has_its_class(how: str, kind: DiffKey) -> None:
    replayed = Replayed()
    spoiled(replayed, how)
    result = replayed.run()
    (found,) = result.patterns
    assert not result.clean
    assert set(found.found) == {kind}
    assert found.found[kind] == found.different == 20 - found.empty > 0
    assert len(found.examples[kind]) == min(SAMPLES_KEPT, found.found[kind])
    assert found.examples[kind][0].params == {"tenant": "acme"}


def test_hidden_options_are_listed_with_it() -> None:
    hidden = Replayed(LIST + "redact: [kind, tenant]\n").pattern().hidden
    assert {"kind", "tenant"} <= hidden.attributes
    assert hidden.params == {"tenant"}


def test_what_goes_away_is_transient() -> None:
    replayed = Replayed()
    replayed.spoil(3, n=7)
    replayed.sleep = lambda wait_s: replayed.spoil(3, n=3)
    found = replayed.pattern()
    assert found.transient == 20 - found.empty
    assert (found.different, found.found) == (0, {})


def test_without_time_to_settle_the_first_look_counts() -> None:
    replayed = Replayed(settle_s=0)
    replayed.spoil(3, n=7)
    replayed.sleep = lambda wait_s: replayed.spoil(3, n=3)
    assert replayed.pattern().different


def test_other_rows_in_flight_at_each_look_are_not_a_difference() -> None:
    numbers = count()

    def busy(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows = rows_of(params)
        return [*rows[:-1], (11, 1000 + next(numbers), "k")] if rows else rows

    replayed = Replayed(answers=busy)
    found = replayed.pattern()
    # The item of the busy row stays behind for good: that is one, and no more than that.
    assert set(found.found) == {DiffKey("value", attribute="n")}

    def moving(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows = rows_of(params)
        if rows:
            del rows[next(numbers) % len(rows)]
        return rows

    found = Replayed(answers=moving).pattern()
    assert (found.different, found.transient > 0) == (0, True)


def test_a_real_difference_is_found_among_rows_in_flight() -> None:
    numbers = count()

    def busy(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows = rows_of(params)
        return [*rows, (500 + next(numbers), 1, "new")] if rows else rows

    replayed = Replayed(answers=busy)
    replayed.spoil(3, n=7)
    assert set(replayed.pattern().found) == {DiffKey("value", attribute="n")}


def test_an_error_of_one_side_is_a_difference_and_ends_nothing() -> None:
    def failing(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        raise SourceError("the source is away")

    found = Replayed(answers=failing, settle_s=0).pattern()
    assert set(found.found) == {DiffKey("error", attribute="sql")}
    assert found.examples[DiffKey("error", attribute="sql")][0].why == pins.text("away")
    assert found.samples < 20
    assert pins.said(found.missing_why, "errors")
    assert set(found.latency) == {"table"}


def test_an_error_that_goes_away_is_transient() -> None:
    numbers = count()

    def once(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if next(numbers) == 4:
            raise SourceError("a moment")
        return rows_of(params)

    found = Replayed(answers=once).pattern()
    assert (found.transient, found.different, found.same) == (1, 0, 19)


def test_what_an_error_hid_still_counts() -> None:
    numbers = count()

    def first_fails(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if next(numbers) < 2:
            raise SourceError("a moment")
        return rows_of(params)

    replayed = Replayed(answers=first_fails, samples=2, workers=1, seed=3)
    replayed.spoil(3, n=7)
    found = replayed.pattern()
    assert found.empty == 0
    assert (found.different, set(found.found)) == (2, {DiffKey("value", attribute="n")})


@pytest.mark.parametrize("given", [(1, 2), (1, 2, 3, 4)])
def test_statement_with_a_wrong_column_count_is_an_sql_error(given: tuple[int, ...]) -> None:
    found = Replayed(answers=lambda params: [given], settle_s=0).pattern()
    (example, *_) = found.examples[DiffKey("error", attribute="sql")]
    assert f"gives {amount(len(given), 'column')}, and it returns 3 attributes: id, n, kind" in example.why


def test_control_compares_sql_with_sql() -> None:
    numbers = count()
    quiet = Replayed()
    quiet.control = True
    quiet.store.items.clear()
    assert quiet.run().clean
    assert quiet.run().control
    noisy = Replayed(answers=lambda params: [(next(numbers), 1, "k")], settle_s=0)
    noisy.control = True
    assert noisy.pattern().different == 20


def test_second_row_is_a_difference_if_a_part_has_one() -> None:
    replayed = Replayed(ONE, lambda params: [(n,) for n, _, _ in rows_of(params)])
    found = replayed.pattern()
    assert set(found.found) == {DiffKey("unexpected", "all")}
    (example, *_) = found.examples[DiffKey("unexpected", "all")]
    assert example.why == pins.text()


@pytest.mark.slow
def test_very_many_differences_are_counted_and_few_are_kept() -> None:
    many = 3_000
    replayed = Replayed(answers=lambda params: [(n, n, "q") for n in range(50, 50 + many)], samples=10)
    found = replayed.pattern()
    kind = DiffKey("missing")
    assert found.found[kind] == 10 * many
    assert sum(map(len, found.examples.values())) <= 2 * SAMPLES_KEPT


def test_the_rules_of_the_pattern_hold() -> None:
    replayed = Replayed(LIST + "compare: {tolerance: {n: 5}}")
    replayed.spoil(3, n=7)
    assert replayed.run().clean
    replayed.spoil(3, n=9)
    assert not replayed.run().clean


def test_it_stops_on_request() -> None:
    replayed = Replayed()
    replayed.stop.set()
    with pytest.raises(Interrupted):
        replayed.run()


UNNAMED = """
params: {tenant: text}
query: {key: ["EVENT#{tenant}"]}
returns: [n, kind]
"""


def changing(replayed: Replayed, kind: str) -> None:
    """Row 3 changes at every look, and its item with it, where there is one; SQL says `kind`."""
    numbers, width = count(100), len(replayed.made.mapping.patterns["p"].parts[0].attributes)

    def answer(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows = rows_of(params)
        if rows:
            rows[3] = (3, next(numbers), kind)
        return [row[-width:] for row in rows]

    replayed.source.answers["SELECT 1"] = answer


def following(replayed: Replayed) -> None:
    """The item of row 3 says at every look what SQL will say."""
    query, numbers = replayed.store.query, count(100)

    def asked(*given: Any, **named: Any) -> Any:
        replayed.spoil(3, n=next(numbers))
        return query(*given, **named)

    replayed.store.query = asked  # type: ignore[method-assign]


def test_a_value_that_is_wrong_in_a_row_that_changes_lasts() -> None:
    replayed = Replayed(LIST, samples=1, workers=1)
    changing(replayed, "wrong")
    following(replayed)
    assert set(replayed.pattern().found) == {DiffKey("value", attribute="kind")}


def test_missing_attribute_of_a_changing_row_persists() -> None:
    replayed = Replayed(LIST, samples=1, workers=1)
    changing(replayed, "k")
    replayed.spoil(3, n=None)
    assert set(replayed.pattern().found) == {DiffKey("missing", attribute="n")}


def test_a_row_that_changes_and_has_no_item_is_missing() -> None:
    replayed = Replayed(LIST, samples=1, workers=1)
    changing(replayed, "k")
    del replayed.store.items["EVENT#acme", "E#0003"]
    assert set(replayed.pattern().found) == {DiffKey("missing")}


def test_a_value_that_a_relay_is_behind_with_does_not_last() -> None:
    replayed = Replayed(LIST, samples=1, workers=1)
    changing(replayed, "k")
    numbers, query = count(), replayed.store.query

    def behind(*given: Any, **named: Any) -> Any:
        replayed.spoil(3, n=next(numbers))
        return query(*given, **named)

    replayed.store.query = behind  # type: ignore[method-assign]
    found = replayed.pattern()
    assert (found.transient, found.different) == (1, 0)


def test_changing_row_without_its_key_cannot_be_found_again() -> None:
    replayed = Replayed(UNNAMED, samples=1, workers=1)
    changing(replayed, "wrong")
    following(replayed)
    found = replayed.pattern()
    assert (found.transient, found.different) == (1, 0)


def counting(asked: list[None]) -> Answers:
    """Answers of SQL that are right, and counted."""

    def answers(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        asked.append(None)
        return rows_of(params)

    return answers


@pytest.mark.parametrize(("lag_s", "looks"), [(0.0, 5), (60.0, 9)])
def test_replay_looks_longer_while_old_changes_wait_for_a_relay(lag_s: float, looks: int) -> None:
    asked: list[None] = []
    replayed = Replayed(answers=counting(asked), samples=1, settle_s=0.01)
    replayed.lag_s = lag_s
    replayed.spoil(3, n=7)
    result = replayed.run()
    assert (len(asked), result.clean, result.lag_s) == (looks, False, lag_s)


def test_what_a_late_relay_brings_is_transient() -> None:
    asked: list[None] = []
    replayed = Replayed(answers=counting(asked), samples=1, settle_s=1)
    replayed.lag_s = 60.0
    replayed.sleep = lambda wait_s: replayed.spoil(3, n=3) if len(asked) > 6 else None
    replayed.spoil(3, n=7)
    result = replayed.run()
    assert (len(asked), result.clean, result.lag_s) == (8, True, 0.0)


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
    latency={
        "table": Curve(9, ((50.0, 1), (90.0, 2), (99.0, 3)), 4),
        "sql": Curve(10, ((50.0, 1), (90.0, 2), (99.0, 3)), 4),
    },
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
def test_replay_begun_after_a_move_counts_and_an_earlier_not(
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


def test_control_and_unreadable_patterns_are_not_evidence(evidence: FakeEvidence) -> None:
    ReplayRecord(evidence, "rev", ANSWERS).keep(replace(RESULT, control=True), BEGAN)
    ReplayRecord(evidence, "rev", ANSWERS).keep(
        replace(RESULT, patterns=[PatternReplay(PATTERN, missing_why="no key")]), BEGAN
    )
    assert evidence.windows(0) == []
    assert evidence.samples() == []
