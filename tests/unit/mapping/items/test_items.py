"""When an item counts as expired: from the second that its TTL names."""

from __future__ import annotations

import os
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from migrator.mapping.check.check import check_form, check_mapping
from migrator.mapping.items.items import is_expired
from migrator.mapping.items.wire import decode_item, encode_item
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.results import Request
from migrator.mapping.model.table import Item, KeyAttribute, TableDesign
from migrator.runtime.errors import MappingError, RowError
from migrator.stages.patterns.question import shown
from tests import pins
from tests.golden import heart

TABLE = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type", ttl="expiresAt")
REQUEST = Request("get", (), ("PK", "SK"), type_attribute="type", ttl_attribute="expiresAt")
AT = 1_800_000_000


@pytest.mark.parametrize(
    ("now_s", "expired"), [(AT - 1, False), (AT - 0.001, False), (AT, True), (AT + 1, True)]
)
def test_an_item_expires_in_the_second_of_its_ttl(now_s: float, expired: bool) -> None:
    item: Item = {"type": "User", "expiresAt": AT}
    assert is_expired(item, TABLE, now_s) is expired
    stored = item | {"expiresAt": Decimal(AT)}
    assert shown([stored], REQUEST, now_s) == ([] if expired else [stored])


@pytest.mark.parametrize("value", [None, "1", str(AT)])
def test_an_item_without_a_number_as_ttl_never_expires(value: Any) -> None:
    item = {"type": "User"} | ({"expiresAt": value} if value else {})
    assert not is_expired(item, TABLE, AT + 1)
    assert shown([item], REQUEST, AT + 1) == [item]


EXAMPLES = int(os.environ.get("MIGRATOR_TEST_EXAMPLES", "50"))

MANY = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
MAPPINGS = [path.read_text() for path in sorted((Path(__file__).parents[4] / "mappings").rglob("*.yaml"))]

TEXTS = st.text(max_size=12) | st.text(alphabet="#%ab\u00e9 \U0001f3b5", max_size=8)
NUMBERS = st.decimals(allow_nan=True, allow_infinity=True) | st.decimals(places=2, allow_nan=False)
TIMES = st.datetimes(timezones=st.none() | st.just(UTC))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(),
    "number": NUMBERS,
    "number(2)": NUMBERS | st.floats(),
    "float": st.floats(),
    "text": TEXTS | st.text(st.characters(categories=["Cs", "L"]), max_size=4),
    "boolean": st.booleans() | st.integers(-1, 2),
    "date": st.dates() | TEXTS,
    "time": st.times() | TEXTS,
    "timestamp": TIMES | TEXTS,
    "timestamp with zone": TIMES,
    "uuid": st.uuids() | TEXTS,
    "binary": st.binary(max_size=20) | TEXTS,
    "json": JSON,
    "plain": st.integers() | NUMBERS | TEXTS | st.binary(max_size=5) | TIMES | JSON,
}
ALL = heart.table(
    "all", {"id": "integer!"} | {kind.replace(" ", "_").replace("(2)", "2"): kind for kind in KINDS}
)
EVERYTHING = heart.entity(
    'entities: {all: {items: {All: {key: ["ALL#{id}", M], keep: all}}}}', heart.facts(ALL)
)


@pytest.mark.property
@MANY
@given(st.fixed_dictionaries({kind: st.none() | values for kind, values in KINDS.items()}))
def test_any_row_round_trips_as_an_item_or_is_refused(
    row: dict[str, Any],
) -> None:
    assert next(slot.path for slot in EVERYTHING.plan.slots) == "id"
    try:
        (item,) = heart.both_ways(EVERYTHING, (1, *row.values()), by_module=False)
    except RowError as error:
        reason = str(error)
    else:
        reason = ""
        assert decode_item(encode_item(item)) == item
    assert not reason or reason.startswith("all")


@pytest.mark.property
@pytest.mark.parametrize("value", [b"", b'{"a": 1}', {"a": [b"x"]}])
def test_bytes_in_a_json_column_are_refused_and_never_left_out(value: Any) -> None:
    row = [value if slot.path == "json" else None for slot in EVERYTHING.plan.slots[1:]]
    with pins.refused(RowError):
        heart.both_ways(EVERYTHING, (1, *row))


# ── keys ────────────────────────────────────────────────────────────────────────────────────────

ROWS = heart.facts(
    heart.table(
        "t",
        {"id": "integer!", "a": "text!", "b": "text!", "n": "integer!", "d": "date!", "u": "uuid!"},
        unique=(("a", "b"), ("u",)),
    )
)
WRITTEN = (
    "{id} {id:06} {a} {b} {a|escape} {b|escape} {n} {n:04} {d} {d|month} {u} {a|lower} {id|shard:4} {a|hash} {id|text} "
    "{d|iso:s|desc} {n:04|desc}"
)
PARTS = st.sampled_from(WRITTEN.split())
JOINS = st.sampled_from(["#", "", "A#", "#B#", "X"])
TEMPLATES = st.lists(st.tuples(JOINS, PARTS), min_size=1, max_size=3).map(
    lambda parts: "".join(before + part for before, part in parts)
)
ONE_ROW = st.tuples(
    st.integers(0, 30),
    st.text(alphabet="#%aA1", max_size=4),
    st.text(alphabet="#%aA1", max_size=4),
    st.integers(0, 3),
    st.dates(date(2026, 1, 1), date(2026, 2, 9)),
    st.sampled_from([f"00000000-0000-0000-0000-00000000000{n}" for n in range(5)]),
)


@pytest.mark.property
@MANY
@given(TEMPLATES, TEMPLATES, ONE_ROW, ONE_ROW)
def test_keys_that_check_proved_apart_are_apart(
    partition: str, sort: str, one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    text = f"entities: {{t: {{items: {{T: {{key: ['{partition}', '{sort}']}}}}}}}}"
    try:
        checked = check_mapping(examine_mapping(heart.HEAD + text, "m.yaml"), ROWS)
    except MappingError:
        return
    assume(not checked.unproved["t"])
    # Two rows of one table: they differ in every unique key of it.
    assume(one[0] != other[0] and one[1:3] != other[1:3] and one[5] != other[5])
    (entity,) = checked.entities
    order = {"id": 0, "a": 1, "b": 2, "n": 3, "d": 4, "u": 5}
    places = [order[slot.path] for slot in entity.plan.slots]
    keys = []
    for row in (one, other):
        try:
            (item,) = heart.both_ways(entity, tuple(row[place] for place in places))
        except RowError:
            return
        keys.append((item["PK"], item["SK"]))
    assert keys[0] != keys[1], text


# ── order ───────────────────────────────────────────────────────────────────────────────────────

SORTED = heart.table(
    "s", {"id": "integer!", "n": "number(2)", "at": "timestamp with zone", "local": "timestamp"}
)


def sort_key(template: str, row: dict[str, Any]) -> bytes:
    entity = heart.entity(
        f"entities: {{s: {{items: {{S: {{key: [P, '{template}']}}}}}}}}", heart.facts(SORTED)
    )
    (item,) = heart.items(entity, {"id": 1, **row})
    return str(item["SK"]).encode()


@pytest.mark.property
@MANY
@given(*[st.decimals(0, 10**9, places=2)] * 2)
def test_padded_numbers_sort_as_numbers(one: Decimal, other: Decimal) -> None:
    for template, turned in (("{n:015.2f}", False), ("{n:015.2f|desc}", True)):
        keys = sort_key(template, {"n": one}), sort_key(template, {"n": other})
        assert (keys[0] < keys[1]) == (one > other if turned else one < other)


@pytest.mark.property
@MANY
@given(*[TIMES] * 2, st.sampled_from(["iso", "iso:ms", "iso:s", "iso:basic"]))
def test_times_of_fixed_width_sort_as_times(one: datetime, other: datetime, form: str) -> None:
    width = {"iso": timedelta(0), "iso:ms": timedelta(milliseconds=1)}.get(form, timedelta(seconds=1))
    column = "at" if one.tzinfo else "local"
    other = other.replace(tzinfo=one.tzinfo)
    assume(abs(one - other) >= width and one != other)
    for template, turned in ((f"{{{column}|{form}}}", False), (f"{{{column}|{form}|desc}}", True)):
        keys = sort_key(template, {column: one}), sort_key(template, {column: other})
        assert keys[0] != keys[1]
        assert (keys[0] < keys[1]) == (one > other if turned else one < other)


# ── broken mappings ─────────────────────────────────────────────────────────────────────────────


def broken(text: str, seed: int) -> str:
    """The text with a few places cut out, doubled, swapped or overwritten."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(max(len(text), 1))
        end = min(len(text), start + chance.choice([1, 2, 5, 40, 400]))
        piece = chance.choice(
            [
                "",
                text[start:end] * 2,
                "{",
                "}",
                "[",
                "\n  ",
                ": ",
                "|",
                "'",
                '"',
                "\t",
                "\0",
                "&a",
                "*a",
                "!!python/object",
                "é🎵",
                "null",
                "1e9",
                "-",
            ]
        )
        text = text[:start] + piece + text[end:]
    return text


@pytest.mark.property
@pytest.mark.parametrize("seed", range(12))
def test_any_broken_mapping_ends_in_a_message(seed: int) -> None:
    for number in range(25):
        text = broken(MAPPINGS[(seed + number) % len(MAPPINGS)], seed * 1000 + number)
        try:
            parsed = examine_mapping(text, "m.yaml")
            check_form(parsed)
            check_mapping(parsed, ROWS)
        except MappingError as error:
            faults = error.faults
        else:
            faults = ()
        assert all(fault.what and "Form" not in fault.what for fault in faults), faults
