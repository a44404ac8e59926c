"""A verify by digests finds what the comparison by attributes alone finds, whatever stands in the table."""

from __future__ import annotations

import copy
import functools
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.encoder import compile_encoder
from migrator.mapping.items.items import project
from migrator.mapping.model.edges import Found, RawPage, ScanPage, WiredItem
from migrator.mapping.model.journal import Run, RunIdentity, SegmentState
from migrator.mapping.model.results import StoredRead, VerifyResult
from migrator.mapping.model.table import CONTROL, TOMBSTONE, Item, ItemKey
from migrator.runtime.errors import Interrupted, SettingsError
from migrator.runtime.values import replace
from migrator.stages.core.parallel import TableWalk
from migrator.stages.verify import digests, stage
from migrator.stages.verify.scan import DirectItems
from migrator.stages.verify.stage import Verify, VerifyOptions
from tests import pins
from tests.fakes.progress import Silent
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.golden import heart
from tests.support_fence import OF_A_STILL_SOURCE, no_fence
from tests.support_items import put_items
from tests.unit.mapping.items.test_items import EXAMPLES, JSON, MANY, TEXTS

COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-(10**12), 10**12),
    "number(2)": st.decimals(-(10**9), 10**9, places=2),
    "float": st.floats(),
    "text": TEXTS,
    "boolean": st.booleans(),
    "timestamp": st.datetimes() | st.just("no time"),
    "binary": st.binary(max_size=8),
    "json": JSON,
}
NAMES = {kind: kind.replace("(2)", "") + "_" for kind in COLUMNS}
THINGS = heart.table(
    "things",
    {"id": "integer!", "email": "text", "ends": "timestamp"} | {NAMES[kind]: kind for kind in COLUMNS},
)
PEOPLE = heart.table("people", {"id": "integer!", "email": "text", "n": "integer"})
TEXT = """
entities:
  things:
    items:
      Thing: {key: ["THING#{id}", META], GSI1: ["AT#{ends}", "{id}"], keep: all, ttl: ends}
      Mail: {key: ["MAIL#{email}", MAIL], keep: [integer_], when: {boolean_: [true]}}
  people:
    items:
      Person: {key: ["MAIL#{email}", MAIL], keep: [n], attributes: {GSI1PK: email}}
"""
NOW_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
ROW = st.fixed_dictionaries(
    {
        "email": st.sampled_from([*"abcdefg", None]),
        "ends": st.none() | st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1)),
        **{NAMES[kind]: st.none() | values for kind, values in COLUMNS.items()},
    }
)
PERSON = st.fixed_dictionaries({"email": st.sampled_from([*"abcdefghi", None]), "n": st.integers(0, 9)})

Spoil = Callable[[Item], list[Item]]
"""What stands in the table instead of an item."""
SPOILS: dict[str, Spoil] = {
    "as it was": lambda item: [item],
    "no item": lambda _: [],
    "another value": lambda item: [{**item, "integer_": 7, "n": 77}],
    "another type": lambda item: [{**item, "integer_": "7", "n": True}],
    "a number written otherwise": lambda item: [{**item, "integer_": Decimal("7.0"), "n": Decimal("1E+1")}],
    "an attribute too few": lambda item: [{name: value for name, value in item.items() if name != "json_"}],
    "an attribute too many": lambda item: [{**item, "extra": [None, {"b": b"\x00"}]}],
    "no index": lambda item: [{name: value for name, value in item.items() if name[:4] != "GSI1"}],
    "a list too long": lambda item: [{**item, "json_": [*_listed(item.get("json_")), 1]}],
    "another ticket and revision": lambda item: [{**item, "_tk": 99, "_rev": "other", "x": 1}, {**item, "_tk": 5}],
    "neither ticket nor revision": lambda item: [
        {name: value for name, value in item.items() if name not in ("_tk", "_rev")}
    ],
    "another's": lambda item: [{**item, "_src": "people:[1]"}],
    "nobody's": lambda item: [{name: value for name, value in item.items() if name != "_src"}],
    "a source that is no text": lambda item: [{**item, "_src": 5}],
    "a source that is no row's": lambda item: [{**item, "_src": "things"}],
    "an entity that is not mapped": lambda item: [{**item, "_src": "others:[1]"}],
    "a type that is no text": lambda item: [{**item, "type": 5}],
    "no type": lambda item: [{name: value for name, value in item.items() if name != "type"}],
    "a tombstone": lambda item: [{"PK": item["PK"], "SK": item["SK"], "type": TOMBSTONE, "_src": item["_src"], "_tk": 9}],
    "a row that is gone": lambda item: [item, {**item, "PK": "THING#x", "_src": "things:[99]"}],
    "a stale key": lambda item: [item, {**item, "SK": "OLD"}],
    "the control item": lambda item: [item, {"PK": "_control", "SK": "_control", "type": CONTROL, "_tk": 9}],
    "a direct item": lambda item: [item, {"PK": "D", "SK": "D", "type": "Direct"}, {"PK": "E", "SK": "E", "_src": "direct:[1]"}],
    "a direct item in its place": lambda item: [{**item, "_src": "direct:[1]"}],
}  # fmt: skip


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


Row = dict[str, Any]


CHECKED = heart.check(TEXT, heart.facts(THINGS, PEOPLE))
DIRECT = DirectItems(frozenset({"direct"}), frozenset({"Direct"}), ("COUNTER",))


def source_of(things: Sequence[Row], people: Sequence[Row]) -> MemorySource:
    rows = {"things": things, "people": people}
    return MemorySource(
        heart.facts(THINGS, PEOPLE),
        {name: [{"id": n, **row} for n, row in enumerate(made)] for name, made in rows.items()},
    )


def filled(source: MemorySource, spoils: Sequence[str]) -> FakeStore:
    """What the rows become, each item spoilt in its way; the first row that makes a key has it."""
    store = FakeStore(CHECKED.mapping.table, no_fence)
    made: list[Item] = []
    for entity in CHECKED.entities:
        projected = project(entity, source.read_page(entity.plan, None, None), NOW_S)
        made += [*projected.items, *projected.expired]
    ways = [*spoils, *["as it was"] * len(made)]
    for item, way in zip(made, ways, strict=False):
        if store.design.key_of(item) not in store.items:
            put_items(store, SPOILS[way]({**copy.deepcopy(item), "_tk": 3}))
    return store


IDENTITY = RunIdentity("verify", "job", "table", "r", "")


def verify(
    source: MemorySource,
    store: FakeStore,
    journal: SqlJournal,
    run: Run,
    check: Callable[[], None] = no_fence,
    page_rows: int = 3,
) -> VerifyResult:
    made = Verify(
        *(source, store, journal, Silent()),
        options=VerifyOptions(workers=1, page_rows=page_rows, scan_segments=2),
        clock=lambda: NOW_S,
        **OF_A_STILL_SOURCE | {"direct": DIRECT, "check": check},
    )
    return made.run(run, CHECKED.entities)


def verified(
    source: MemorySource, store: FakeStore, *, by_keys: bool = False, page_rows: int = 3
) -> tuple[VerifyResult, list[str]]:
    """The result, and every finding."""
    journal = _journal()
    run = journal.start_run(replace(IDENTITY, revision=f"{next(REVISIONS)}"))
    with pytest.MonkeyPatch.context() as patch:
        if by_keys:
            patch.setattr(stage, "DIGESTS_AT_MOST", -1)
        result = verify(source, store, journal, run, page_rows=page_rows)
    return result, sorted(map(repr, journal.findings(run)))


REVISIONS = itertools.count()


@functools.cache
def _journal() -> SqlJournal:
    """One for all examples, of which each has runs of its own: to make its tables takes longer than a verify."""
    return SqlJournal.in_memory()


def outcome(result: VerifyResult) -> Any:
    return replace(result, took_s=0, run=None, stored=None)  # type: ignore[arg-type]


@pytest.mark.property
@settings(MANY, max_examples=max(20, EXAMPLES // 8))
@given(
    st.lists(ROW, min_size=2, max_size=20),
    st.lists(PERSON, max_size=10),
    st.lists(st.sampled_from(sorted(SPOILS)), min_size=4, max_size=40),
)
def test_both_ways_find_the_same(things: list[Row], people: list[Row], spoils: list[str]) -> None:
    """Few and large tables: what an example costs are two runs in the journal, whatever stands in them."""
    source = source_of(things, people)
    store = filled(source, spoils)
    put_items(
        store,
        [{"PK": "COUNTER", "SK": "the service's"}, {"PK": "COUNTER", "SK": "ours", "_src": "things:[1]"}],
    )
    stored = copy.deepcopy(store.items)
    by_digest, by_attribute = (
        verified(source, store, by_keys=by_keys, page_rows=9) for by_keys in (False, True)
    )
    assert by_digest[1] == by_attribute[1]
    assert ["COUNTER" in one for one in by_digest[1]].count(True) == 1
    assert outcome(by_digest[0]) == outcome(by_attribute[0])
    assert store.items == stored


# ── What is read of the table ──


class CountedStore(FakeStore):
    """Counts keys read and pages scanned. `scanned`: what happens after a page was scanned."""

    keys_read = 0
    pages = 0

    def __init__(self, scanned: Callable[[], None] = lambda: None) -> None:
        super().__init__(CHECKED.mapping.table, no_fence)
        self.scanned = scanned

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        self.keys_read += len(keys)
        return super().get(keys)

    def scan_encoded(
        self, segment: int, segments: int, each: Callable[[WiredItem], Found], start: ItemKey | None = None
    ) -> Iterator[ScanPage[Found]]:
        for page in super().scan_encoded(segment, segments, each, start):
            self.pages += 1
            yield page
            self.scanned()


ROWS: list[Row] = [
    {"integer_": n, "number_": Decimal(n) / 4, "json_": {"b": [1, "é\n"], "a": None}, "binary_": b"\xff"}
    for n in range(20)
]
PAGES_OF_ROWS = 4
"""Scanned of 20 items in two segments, seven a page."""


def counted(source: MemorySource) -> CountedStore:
    store = CountedStore()
    store.items = filled(source, []).items
    return store


def test_of_a_clean_table_every_item_is_read_once() -> None:
    source = source_of(ROWS, [{"email": "a", "n": 1}])
    store = counted(source)
    result, found = verified(source, store)
    assert (found, result.scanned, store.keys_read, store.pages) == ([], 21, 0, PAGES_OF_ROWS)
    assert result.stored == StoredRead("one scan")


def scan_of(store: FakeStore, source: MemorySource) -> digests.DigestScan:
    entities = {entity.name: entity for entity in CHECKED.entities}
    walk = TableWalk(store, 2, 1, Event(), "stopped")
    run = _journal().start_run(replace(IDENTITY, revision=f"{next(REVISIONS)}"))
    digester = digests.Digester(CHECKED.mapping.table, bytes(digests.KEY_BYTES))
    return digests.DigestScan(source, walk, _journal(), run, entities, DIRECT, store=store, digester=digester)


def test_some_rows_of_a_page_go_by_items_for_though_all_match() -> None:
    source = source_of(ROWS, [])
    scan = scan_of(counted(source), source)
    for number in range(2):
        scan.look(number, scan.digests)
    scan.digests.sort()
    encoder = compile_encoder(CHECKED.entities[0])
    rows = source.read_page(encoder.entity.plan, None, None)
    matched = digests.match_rows(encoder, RawPage(rows), scan, NOW_S, array("I"))
    assert (matched.items, matched.left) == (20, rows[:1])


@pytest.mark.parametrize(("at_s", "counts"), [(-1, (1, 0, 1)), (0, (0, 1, 1)), (1, (0, 1, 1))])
def test_an_item_expires_in_the_very_second_of_its_ttl(at_s: int, counts: tuple[int, int, int]) -> None:
    """An item that expired is not missed in the table; row 0 goes by items_for() whatever was found."""
    source = source_of([{**ROWS[0], "boolean_": False, "ends": datetime(2026, 1, 1)}], [])
    encoder = compile_encoder(CHECKED.entities[0])
    rows = source.read_page(encoder.entity.plan, None, None)
    scan = scan_of(CountedStore(), source)
    matched = digests.match_rows(encoder, RawPage(rows), scan, NOW_S + at_s, array("I"))
    assert (matched.items, matched.expired, len(matched.left)) == counts


@pytest.mark.property
@settings(MANY, max_examples=max(20, EXAMPLES // 8))
@given(
    st.lists(ROW, min_size=2, max_size=9), st.lists(st.sampled_from(sorted(SPOILS)), min_size=4, max_size=9)
)
def test_both_executors_see_the_same_in_a_page(things: list[Row], spoils: list[str]) -> None:
    source = source_of(things, [])
    scan = scan_of(filled(source, spoils), source)
    native = scan.digester.native
    seen = []
    for executor in (native, None):
        scan.digester.native, found = executor, digests.Digests()
        seen.append((scan.look(0, found), found.count()))
    assert seen[0] == seen[1]


def test_only_differences_are_read_by_key_and_traced() -> None:
    source = source_of(ROWS, [])
    store = counted(source)
    store.items["THING#3", "META"]["integer_"] = 99
    store.items["THING#x", "META"] = {**store.items["THING#4", "META"], "PK": "THING#x"}
    traced: list[str] = []
    source.read_rows = lambda plan, keys: traced.extend(keys) or MemorySource.read_rows(source, plan, keys)  # type: ignore[method-assign,func-returns-value]
    _, found = verified(source, store)
    assert [kind for kind in ("different", "unexpected") for one in found if f"'{kind}'" in one] == [
        "different",
        "unexpected",
    ]
    assert (store.keys_read, sorted(traced)) == (1, ["[3]", "[4]"])


def test_too_many_digests_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(ROWS[:3], [])
    store = counted(source)
    store.items["THING#1", "META"]["integer_"] = 99
    for name in range(20):
        store.items["X", str(name)] = {"PK": "X", "SK": str(name), "type": "Thing"}
    _, wanted = verified(source, store, by_keys=True)
    for module in (digests, stage):
        monkeypatch.setattr(module, "DIGESTS_AT_MOST", 7)
    store.pages = 0
    result, found = verified(source, store)
    assert found == wanted
    assert result.stored.way == "keys"
    assert pins.said(result.stored.why)
    assert store.pages == 2, "each segment is left after the page that was too many"
    assert len(wanted) == 21


# ── A verify that is stopped ──


@pytest.mark.parametrize("after", [1, 2, 4, 5, 7, 11, 12, 14])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stopped_verify_resumes_to_the_same_findings(after: int, is_clean: bool) -> None:
    """Stopped while the table is scanned, while rows are compared, or while what was left is traced."""
    source = source_of(ROWS, [])
    store = counted(source)
    if not is_clean:
        store.items["THING#3", "META"]["integer_"] = 99
        store.items["THING#x", "META"] = {**store.items["THING#4", "META"], "PK": "THING#x"}
    wanted = verified(source, store)
    journal = SqlJournal.in_memory()
    run = journal.start_run(IDENTITY)
    seen = 0

    def stop() -> None:
        nonlocal seen
        seen += 1
        if seen == after:
            raise Interrupted("stopped")

    store.scanned = stop
    try:
        result = verify(source, store, journal, run, stop)
    except Interrupted:
        result = verify(source, store, journal, run, stop)
    assert sorted(map(repr, journal.findings(run))) == wanted[1]
    assert outcome(result) == outcome(wanted[0])
    assert all(journal.segment(run, number).done for number in range(2))
    journal.close()


def test_a_scan_resumes_with_its_first_settings() -> None:
    source = source_of(ROWS, [])
    store = counted(source)
    journal = SqlJournal.in_memory()
    run = journal.start_run(IDENTITY)
    totals = {"items": 1, "counts": [["things", "Thing", 1]], "sums": []}
    journal.save_segment(run, 1, SegmentState(("THING#0", "META"), False, totals), [])
    result = verify(source, store, journal, run)
    assert (store.pages, store.keys_read) == (0, 20)
    assert result.stored == StoredRead("keys", "the scan was begun before it was stopped")
    journal.close()


def test_changes_after_the_scan_are_compared_as_they_are_now() -> None:
    """A row and its item change together, a row goes with its item, and an item appears that no row makes."""
    source = source_of(ROWS, [])
    store = counted(source)
    changed: list[bool] = []

    def change() -> None:
        if store.pages == PAGES_OF_ROWS and not changed:
            changed.append(True)
            source.rows["things"][3]["integer_"] = 99
            store.items["THING#3", "META"]["integer_"] = 99
            source.rows["things"].pop(7)
            del store.items["THING#7", "META"]
            store.items["THING#x", "META"] = {**store.items["THING#4", "META"], "PK": "THING#x"}

    store.scanned = change
    _, found = verified(source, store)
    assert [one for one in found if "'unexpected'" in one] == found[-1:], found
    assert "THING#x" in found[-1]
    assert not [one for one in found if "'different'" in one or "'missing'" in one]


def test_processes_of_one_verify_have_one_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = SqlJournal.in_memory()
    run = journal.start_run(IDENTITY)
    assert stage.agreed(journal, run) is None
    stage.agree(journal, run, 2)
    key = stage.agreed(journal, run)
    stage.agree(journal, run, 2)
    assert key is not None
    assert (stage.agreed(journal, run), len(key)) == (key, digests.KEY_BYTES)
    monkeypatch.setattr(stage, "EXECUTOR", "another")
    with pytest.raises(SettingsError):
        stage.agreed(journal, run)
    journal.close()
