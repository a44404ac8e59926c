"""The program of an entity: what it looks like, and what its native executor leaves to items_for(). Equality: tests/golden/heart.py."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.mapping.items import _native
from migrator.mapping.items.encoder import Encoder, PutTexts, compile_encoder, encode_page, encode_puts
from migrator.mapping.items.program import RAW_KINDS, program_lines
from migrator.mapping.model.edges import RawPage
from migrator.runtime.errors import MappingError, RowError
from migrator.runtime.values import replace
from migrator.source.engines.postgresql import connect
from tests import pins
from tests.golden import heart
from tests.support_libpq import Answer, in_place
from tests.unit.mapping.items.test_items import KINDS

USERS = heart.facts(
    heart.table(
        "users", {"id": "integer!", "name": "text", "born": "date", "total": "number(2)", "data": "json"}
    )
)
TEXT = """
entities:
  users:
    items:
      User:
        key: ["USER#{id:06}", "NAME#{name}"]
        keep: all
        GSI1: ["BORN#{born|month}", "{name}"]
"""
NOW_S = 1.0e9


def left_by(made: Encoder, row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The row where the native executor leaves it."""
    left: list[tuple[Any, ...]] = []
    assert made.native is not None
    made.native.encode([row], 0, b"}", 0, [], left.append)
    return left


def read(rows: list[tuple[Any, ...]]) -> RawPage:
    return RawPage(rows, frozenset(), tuple)


def encoder() -> Encoder:
    return compile_encoder(heart.entity(TEXT, USERS))


def test_the_program_is_readable() -> None:
    program = encoder().program
    assert not isinstance(program, str)
    assert "\n".join(program_lines(program)) == pins.text()


@pytest.mark.parametrize(
    "row",
    [
        (1, "Ann", "2001-02-03", Decimal("1.50"), {"a": [1, None]}),
        (1, '\u2028\x00"\\é🎵', None, None, None),
        (120, "x", None, Decimal("-0.00"), None),
        (120, "x", None, Decimal("-1200.5000"), None),
        (5, "x", None, Decimal("1E+5"), None),
        (120, "x", "2001-02-03", 3, "[]"),
        (0, "x", "2300-02-03", True, "{}"),
    ],
)
def test_rows_of_plain_values_need_no_reference(row: tuple[Any, ...]) -> None:
    made = encoder()
    assert not left_by(made, row)
    heart.both_ways(made.entity, row)


@pytest.mark.parametrize(
    "row",
    [
        (-1, "negative", None, None, None),
        (10_000_000, "too wide", None, None, None),
        (1, None, None, None, None),
        (1, "\ud800", None, None, None),
        (1, "x" * 2000, None, None, None),
        (1, "y", None, None, "y" * 500_000),
        (None, "x", None, None, None),
        (1, 5, None, None, None),
        (1, "x", "no date", None, None),
        (1, "x", None, float("nan"), None),
    ],
)
def test_rows_left_over_are_refused_in_the_references_words(row: tuple[Any, ...]) -> None:
    made = encoder()
    page = encode_page(made, read([row, (7, "Bea", None, None, None)]), 0, NOW_S)
    assert [finding.kind for finding in page.refused] == ["refused"]
    assert [item.key for item in page.items] == [("USER#000007", "NAME#Bea")]
    with pins.refused(RowError) as caught:
        heart.both_ways(made.entity, row)
    assert str(caught.value) == page.refused[0].reason


def test_names_and_constants_of_a_mapping_are_not_operations() -> None:
    hostile = "\"'{}\\\n#');import os"
    schema = heart.facts(heart.table("t", {"id": "integer!", hostile: "text"}))
    key = json.dumps(["T#{id}", hostile.replace("{", "{{").replace("}", "}}")])
    attributes = json.dumps({"other": {"const": hostile}, hostile + "2": "id"})
    text = f"entities: {{t: {{items: {{T: {{key: {key}, keep: all, attributes: {attributes}}}}}}}}}"
    entity = heart.entity(text, schema)
    assert not isinstance(compile_encoder(entity).program, str)
    heart.both_ways(entity, (1, "x"))


@pytest.mark.parametrize("attributes", ["{GSI1PK: name}", "{story: {from: name, to: s3}}"])
def test_items_that_need_more_have_no_program(attributes: str) -> None:
    text = TEXT.replace("        GSI1:", f"        attributes: {attributes}\n        #")
    assert compile_encoder(heart.entity(text, USERS)).program == pins.text()


def test_expired_items_are_left_out_and_counted() -> None:
    schema = heart.facts(heart.table("t", {"id": "integer!", "ends": "timestamp"}))
    text = "entities: {t: {items: {T: {key: ['T#{id}', T], ttl: ends}}}}"
    made = compile_encoder(heart.entity(text, schema))
    page = encode_page(made, read([(1, "1999-01-01"), (2, "2030-01-01"), (3, None)]), 0, NOW_S)
    assert ([item.key[0] for item in page.items], len(page.expired)) == (["T#2", "T#3"], 1)


def test_puts_are_the_text_of_the_items_and_a_slice_a_part_of_it() -> None:
    made = encoder()
    left, refused = (Decimal(3), "é", None, None, None), (-1, "Bea", None, None, None)
    rows = [(1, "Ann", "2001-02-03", None, None), refused, left, (4, 'C"', None, 1.5, None)]
    assert left_by(made, left) == [left]
    listed, puts = (encode(made, read(rows), 7, NOW_S) for encode in (encode_page, encode_puts))
    assert isinstance(puts.items, PutTexts)
    assert (list(puts.items), puts.refused) == (listed.items, listed.refused)
    part = puts.items[1:3]
    assert (list(part), part.sizes, len(part)) == (listed.items[1:3], puts.items.sizes[1:3], 2)
    assert part.json() == b",".join(b'{"PutRequest":{"Item":%b}}' % item.json for item in part)


def test_items_of_one_key_are_no_text_of_puts() -> None:
    rows = [(1, "Ann", None, None, None), (2, "Bea", None, None, None), (1, "Ann", "2001-02-03", None, None)]
    page = encode_puts(encoder(), read(rows), 7, NOW_S)
    assert page == encode_page(encoder(), read(rows), 7, NOW_S)
    one_left = [(1, "Ann", None, None, None), (Decimal(1), "Ann", None, None, None)]
    assert not isinstance(encode_puts(encoder(), read(one_left), 7, NOW_S).items, PutTexts)


def test_expired_items_are_no_puts() -> None:
    schema = heart.facts(heart.table("t", {"id": "integer!", "ends": "timestamp"}))
    text = "entities: {t: {items: {T: {key: ['T#{id}', T], ttl: ends}}}}"
    made = compile_encoder(heart.entity(text, schema))
    left = [(Decimal(4), "1999-01-01"), (Decimal(5), "2030-01-01")]
    rows = read([(1, "1999-01-01"), (2, "2030-01-01"), (3, None), *left])
    page, listed = encode_puts(made, rows, 0, NOW_S), encode_page(made, rows, 0, NOW_S)
    assert (list(page.items), list(page.expired)) == (listed.items, listed.expired)
    assert len(page.expired) == 2


@pytest.mark.parametrize(("first", "last"), [(-1, 1), (0, 3), (1, 1), (2, 1)])
def test_puts_are_never_read_beyond_their_end(first: int, last: int) -> None:
    puts = _native.PutBuffer()
    for number in range(2):
        puts.add((str(number), 1), b"{}", 5)
    with pytest.raises(IndexError):
        puts.batch(first, last)
    with pytest.raises(IndexError):
        puts.inserts(first, last, lambda _: b"")
    assert (puts.batch(0, 2), puts.sizes, puts.is_distinct) == (
        b'{"PutRequest":{"Item":{}}},{"PutRequest":{"Item":{}}}',
        [5, 5],
        True,
    )


def wired_values() -> st.SearchStrategy[Any]:
    leaves = st.fixed_dictionaries({"S": st.text(st.characters(exclude_categories=["Cs"]))}) | st.just(
        {"BOOL": True}
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(lambda one: {"L": one}, st.lists(inner, max_size=3))
            | st.builds(
                lambda one: {"M": one}, st.dictionaries(st.text('a"}{][,:\\', max_size=4), inner, max_size=3)
            )
        ),
        max_leaves=8,
    )


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), wired_values(), min_size=1)
)
def test_names_and_values_are_those_of_the_object(item: dict[str, Any]) -> None:
    names, values = _native.names_and_values(orjson.dumps(item))
    assert orjson.loads(b"[%b]" % names) == list(item)
    assert orjson.loads(b"[%b]" % values) == list(item.values())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{}",
        b"[1]",
        b'{"a',
        b'{"a\\',
        b'{"a"',
        b'{"a":',
        b'{"a":{"S":"x"}',
        b'{"a":{"S":"x\\',
    ],
)
def test_a_text_that_is_no_whole_item_has_no_names(text: bytes) -> None:
    with pytest.raises(ValueError, match="no object"):
        _native.names_and_values(text)


@pytest.mark.parametrize("raw", [False, True])
def test_without_the_native_executor_rows_are_read_whole(raw: bool) -> None:
    entity = heart.entity(TEXT, USERS)
    native = compile_encoder(entity, frozenset({0, 2, 3} if raw else ()))
    alone = replace(native, native=None)
    assert (native.raw, alone.raw) == (frozenset({0, 3} if raw else ()), frozenset())
    rows = [(1, "Ann", "2001-02-03", Decimal("1.50"), None), (-1, "x", None, None, None)]
    assert encode_page(alone, read(rows), 7, NOW_S) == encode_page(native, read(rows), 7, NOW_S)


@pytest.mark.parametrize("place", [-2, 1, 2**40])
def test_a_program_names_only_places_of_its_row(place: int) -> None:
    columns = (("integer", -1, None, None),)
    with pytest.raises(ValueError, match=str(place)):
        _native.Program(
            columns, (b"", -1, (), str), (("T", None, (("column", b"", 0, (place,)),)),), tuple, (), 9
        )
    with pytest.raises(ValueError):
        _native.Program(columns, (b"", place, (), str), (), tuple, (), 9)
    with pytest.raises(ValueError):
        _native.Program(columns, (b"", -1, (place,), str), (), tuple, (), 9)


@pytest.mark.parametrize("count", [-1, 2, 2**40])
def test_an_entry_has_all_of_its_keys(count: int) -> None:
    operations = (("entry", b"", 0, (None, count)), ("column", b"", 0, (0,)))
    with pytest.raises(ValueError):
        _native.Program(
            (("integer", -1, None, None),), (b"", -1, (), str), (("T", None, operations),), tuple, (), 9
        )


ORDERS = heart.facts(
    heart.table(
        "orders",
        {
            "id": "integer!",
            "customer_id": "integer",
            "code": "text",
            "at": "timestamp",
            "paid": "boolean",
            "u": "uuid",
        },
        references={"customer_id": "customers.id"},
    ),
    heart.table("customers", {"id": "integer!", "name": "text!", "city": "text"}),
    heart.table(
        "lines",
        {"order_id": "integer!", "n": "integer!", "price": "number(2)", "name": "text", "on": "date"},
        key=("order_id", "n"),
        references={"order_id": "orders.id"},
    ),
)
WITH_LINES = """
entities:
  orders:
    join: {customer: customer_id}
    collect:
      lines: {of: lines, by: order_id, %s}
      sold: {of: lines, by: order_id, sum: price}
    items:
      Order:
        key: ["ORDER#{id}", "{code}"]
        GSI1: ["C#{customer.name}#{customer.city}", "{at}#{u}"]
        attributes:
          customer: customer.name
          title: "{code} of {customer.name}"
          paid: paid
          sold: sold
          lines: {each: lines, attributes: {n: n, price: price, label: "{n:04} {name}", day: on|month, fixed: {const: 7}}}
"""
LINE = (1, Decimal("1.50"), 'a"b', "2024-02-29")


def orders(words: str) -> tuple[Encoder, dict[str, int]]:
    entity = heart.entity(WITH_LINES % words, ORDERS)
    made = compile_encoder(entity)
    paths = [slot.path for slot in entity.plan.slots]
    paths += [one.collection.alias for one in entity.plan.collections]
    return made, {path: place for place, path in enumerate(paths)}


def order(places: dict[str, int], values: dict[str, Any]) -> tuple[Any, ...]:
    row: list[Any] = [None] * len(places)
    for path, value in values.items():
        row[places[path]] = value
    return tuple(row)


WHOLE = {
    "id": 1,
    "code": "é",
    "customer.name": "Ann",
    "customer.city": "\\",
    "at": "2024-03-31 02:30:00",
    "paid": True,
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"lines": (LINE, (2, None, None, None)), "sold": Decimal("3.00")},
        {"customer.name": None, "customer.city": None, "lines": (LINE,) * 3, "paid": False},
        {"u": "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "at": "2024-03-31T02:30:00.5"},
        {"customer.name": "", "at": None, "paid": 0},
    ],
)
def test_joins_lists_and_aggregates_need_no_reference(changed: dict[str, Any]) -> None:
    made, places = orders("order_by: [n]")
    row = order(places, {"lines": (), **WHOLE, **changed})
    assert not left_by(made, row)
    heart.both_ways(made.entity, row)


@pytest.mark.parametrize(("words", "count"), [("first: 1", 5), ("at_most: 2", 2), ("at_most: 2", 3)])
def test_bounds_of_a_list_hold(words: str, count: int) -> None:
    made, places = orders(f"order_by: [n], {words}")
    row = order(places, {**WHOLE, "lines": (LINE,) * count})
    assert len(left_by(made, row)) == (count == 3)
    if count == 3:
        with pins.refused(RowError):
            heart.both_ways(made.entity, row)
    else:
        heart.both_ways(made.entity, row)


@pytest.mark.parametrize("child", [(-1, None, "x", None), (1, "x", None, None), (1, None, "\ud800", None)])
def test_unsupported_child_value_leaves_its_row_to_the_reference(child: tuple[Any, ...]) -> None:
    made, places = orders("order_by: [n]")
    row = order(places, {**WHOLE, "lines": (LINE, child)})
    assert left_by(made, row) == [row]


def test_a_child_of_an_item_that_is_not_there_refuses_its_row() -> None:
    text = (WITH_LINES % "order_by: [n]").replace(
        "        key:", "        when: {paid: true}\n        key:", 1
    )
    entity = heart.entity(text, ORDERS)
    paths = [slot.path for slot in entity.plan.slots] + [
        one.collection.alias for one in entity.plan.collections
    ]
    places = {path: place for place, path in enumerate(paths)}
    row = order(places, {**WHOLE, "paid": False, "lines": (LINE, (1, None, "x", "no date"))})
    assert left_by(compile_encoder(entity), row) == [row]
    assert heart.both_ways(entity, order(places, {**WHOLE, "paid": False, "lines": (LINE,)})) == []


def test_a_child_is_decoded_by_its_own_kinds() -> None:
    """Its second column is a timestamp where the row's is a date; and no name of an attribute is taken for one of the code."""
    schema = heart.facts(
        heart.table("trips", {"id": "integer!", "day": "date"}),
        heart.table(
            "stops",
            {"trip_id": "integer!", "n": "integer!", "at": "timestamp"},
            key=("trip_id", "n"),
            references={"trip_id": "trips.id"},
        ),
    )
    text = """
entities:
  trips:
    collect: {stops: {of: stops, by: trip_id, order_by: [n]}}
    items:
      Trip:
        key: ["TRIP#{id}", META]
        attributes: {day: day, stops: {each: stops, attributes: {n: n, " decode1": at, "(decode1(d1)": at}}}
"""
    row = (1, date(2026, 1, 2), ((1, datetime(2026, 1, 2)), (2, None)))
    (item,) = heart.both_ways(heart.entity(text, schema), row)
    stops = item["stops"]
    assert isinstance(stops, list)
    assert stops[0] == dict.fromkeys((" decode1", "(decode1(d1)"), "2026-01-02T00:00:00.000000") | {"n": 1}


EXAMPLES = int(os.environ.get("MIGRATOR_TEST_EXAMPLES", "50"))
ROWS_OF_AN_EXAMPLE = 34

ROOT = {"id": "integer!", **{kind.replace(" ", "_").replace("(2)", "2"): kind for kind in KINDS}}
DRAWN_LINE = {
    "root_id": "integer!",
    "n": "integer!",
    "text": "text",
    "number2": "number(2)",
    "at": "timestamp",
    "u": "uuid",
}
SCHEMA = heart.facts(
    heart.table("parent", {"id": "integer!", "text": "text!", "number": "number"}),
    heart.table("root", {**ROOT, "parent_id": "integer"}, references={"parent_id": "parent.id"}),
    heart.table("line", DRAWN_LINE, key=("root_id", "n"), references={"root_id": "root.id"}),
)
KEY_PARTS = st.sampled_from(
    [
        "{id}",
        "{id:06}",
        "{integer}",
        "{integer:04}",
        "{text}",
        "{uuid}",
        "{date}",
        "{timestamp}",
        "{text|lower}",
        "{number2:08.2f}",
        "{parent.text}",
    ]
)
KEYS = st.lists(st.tuples(st.sampled_from(["", "#", 'A\\"é#']), KEY_PARTS), min_size=1, max_size=3).map(
    lambda parts: "".join(before + part for before, part in parts)
)
VALUES = st.sampled_from(
    [
        *(name for name in ROOT if name != "id"),
        *("parent.number", "parent.text", "text|upper", "date|month", "number|text", "timestamp|text"),
        *('"{text} of {id:04}"', '"{date}{text|lower}"', "{const: [1, null]}", "total", "lines_count"),
        "{each: lines, attributes: {n: n, t: text, p: number2, at: at}}",
        '{each: lines, attributes: {label: "{n:03} {text}", day: at|date, u: u}}',
        "{a: text, b: {c: number2}}",
    ]
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["a", "b", 'é\\"', "c", "d", "e"]), VALUES, max_size=4)
MAPPINGS = st.builds(
    lambda key, sort, index, attributes, words: (key, sort, index, tuple(attributes.items()), words),
    KEYS,
    KEYS,
    st.none() | st.tuples(KEYS, KEYS),
    ATTRIBUTES,
    st.sampled_from(["", "keep: all", "when: text", "when: {boolean: true}", "ttl: timestamp_with_zone"]),
)


OF_CHILDREN = re.compile(r"lines|total")
COLLECT = """
    collect:
      lines: {of: line, by: root_id, order_by: [n]}
      lines_count: {count: all, of: line, by: root_id}
      total: {sum: number2, of: line, by: root_id}"""


@lru_cache(100)
def made(drawn: tuple[Any, ...], raw: bool, collects: bool = True) -> Encoder | None:
    key, sort, index, attributes, words = drawn
    lines = [f"key: ['{key}', '{sort}']", words]
    if index is not None:
        lines.append(f"GSI1: ['{index[0]}', '{index[1]}']")
    written = ", ".join(
        f'"{name}": {value}' for name, value in attributes if collects or not OF_CHILDREN.search(value)
    )
    lines.append(f"attributes: {{{written}}}")
    body = "\n".join(f"        {line}" for line in lines if line)
    text = f"""
entities:
  root:
    join: {{parent: parent_id}}
{COLLECT if collects else ""}
    items:
      Root:
{body}
"""
    entity = heart.entity(text, SCHEMA)
    offered = [place for place, slot in enumerate(entity.plan.slots) if slot.column.kind.name in RAW_KINDS]
    return compile_encoder(entity, frozenset(offered if raw else ()))


# ── rows: what a driver gives, and the server's own text of it ──

RAW_TEXT: dict[type, Callable[[Any], str]] = {
    int: str,
    Decimal: lambda value: format(value, "f"),
    date: date.isoformat,
    time: time.isoformat,
    datetime: lambda value: value.replace(tzinfo=None).isoformat(" ") + ("+00" if value.tzinfo else ""),
    UUID: str,
}
RAW_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-(2**63), 2**64),
    "number": st.decimals(allow_nan=True, allow_infinity=True, places=5) | st.just(Decimal("0E-10")),
    "number(2)": st.decimals(allow_nan=False, allow_infinity=False, places=2),
    "date": st.dates() | st.sampled_from(["infinity", "0001-01-01 BC", "0000-00-00", "2024-02-31"]),
    "time": st.times() | st.sampled_from(["24:00:00", "-01:00:00", "838:59:59"]),
    "timestamp": st.datetimes()
    | st.sampled_from(["-infinity", "10000-01-01 00:00:00", "0000-00-00 00:00:00"]),
    "timestamp with zone": st.datetimes(timezones=st.just(UTC)) | st.just("0044-03-15 12:00:00+00 BC"),
    "uuid": st.uuids(),
}


GOOD: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(0, 9_999),
    "number": st.decimals(-(10**20), 10**20, places=7),
    "number(2)": st.decimals(0, 99_999, places=2),
    "float": st.floats(allow_nan=False, allow_infinity=False, min_value=-1e120, max_value=1e120),
    "text": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
    "boolean": st.booleans(),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "timestamp with zone": st.datetimes(timezones=st.just(UTC)),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=20),
    "json": st.sampled_from([{"a": [1, None, "é"]}, [], '{"b": 1.50}', "true", "null"]),
    "plain": st.integers() | st.text(alphabet="ab", max_size=3) | st.binary(max_size=5),
}
COLUMNS = {name: kind.removesuffix("!") for name, kind in ROOT.items()}
COLUMNS |= {"parent.id": "integer", "parent_id": "integer", "parent.text": "text", "parent.number": "number"}
CHILD = {name: kind.removesuffix("!") for name, kind in DRAWN_LINE.items()}


def pools(raw: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Values by column, and values of any sort for some columns."""
    kinds = {**KINDS, **RAW_VALUES} if raw else KINDS
    odd = st.sampled_from(sorted(COLUMNS)).flatmap(
        lambda name: st.tuples(st.just(name), st.none() | kinds[COLUMNS[name]])
    )
    odd_child = st.sampled_from(sorted(CHILD)).flatmap(
        lambda name: st.tuples(st.just(name), st.none() | KINDS[CHILD[name]])
    )
    return st.fixed_dictionaries(
        {
            "row": st.fixed_dictionaries(
                {name: st.lists(GOOD[kind], min_size=1, max_size=2) for name, kind in COLUMNS.items()}
            ),
            "child": st.fixed_dictionaries({name: GOOD[kind] for name, kind in CHILD.items()}),
            "odd": st.lists(odd, max_size=3),
            "odd_child": st.lists(odd_child, max_size=2),
            "seed": st.integers(0, 2**32),
        }
    )


def rows_of(pool: dict[str, Any]) -> Iterator[dict[str, Any]]:
    chance = random.Random(pool["seed"])
    for _ in range(ROWS_OF_AN_EXAMPLE):
        row = {name: chance.choice(values) for name, values in pool["row"].items()}
        if pool["odd"] and chance.random() < 0.4:
            name, value = chance.choice(pool["odd"])
            row[name] = value
        children = [{**pool["child"], "n": number} for number in range(chance.randrange(3))]
        if children and pool["odd_child"] and chance.random() < 0.4:
            name, value = chance.choice(pool["odd_child"])
            children[-1][name] = value
        yield row | {
            "lines": children,
            "lines_count": len(children),
            "total": chance.choice([None, Decimal("1.50"), 3]),
        }


def _given(tree: tuple[Any, ...], _: tuple[Any, ...]) -> tuple[Any, ...]:
    return tree


def compared(
    drawn: tuple[Any, ...], many: Iterable[dict[str, Any]], *, raw: bool, placed: bool = False
) -> None:
    """`placed`: rows are read where libpq has them; a row with children is not."""
    with suppress(MappingError):
        encoder = made(drawn, raw, collects=not placed)
        if encoder is None:
            return
        plan = encoder.entity.plan
        paths = [slot.path for slot in plan.slots]
        for values in many:
            tree = [values[path] for path in paths]
            for one in plan.collections:
                value = values[one.collection.alias]
                if one.collection.is_list:
                    value = tuple(tuple(line[slot.path] for slot in one.slots) for line in value)
                tree.append(value)
            row, whole = tuple(tree), tuple(tree)
            row = tuple(
                RAW_TEXT.get(type(value), str)(value) if place in encoder.raw and value is not None else value
                for place, value in enumerate(row)
            )
            with suppress(RowError):
                rows = in_place([row], len(row)) if placed else [row]
                page = RawPage(rows, encoder.raw, partial(_given, whole))
                heart.alike(encoder.entity, whole, encoder, page, by_module=False)


@pytest.mark.property
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(MAPPINGS, st.data())
def test_both_make_the_same_items_or_the_same_refusal(drawn: tuple[Any, ...], data: st.DataObject) -> None:
    compared(drawn, rows_of(data.draw(pools(raw=False))), raw=False)


@pytest.mark.property
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(MAPPINGS, st.data())
def test_the_same_of_raw_texts(drawn: tuple[Any, ...], data: st.DataObject) -> None:
    compared(drawn, rows_of(data.draw(pools(raw=True))), raw=True)


@pytest.mark.property
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(MAPPINGS, st.data())
def test_the_same_of_what_libpq_has(drawn: tuple[Any, ...], data: st.DataObject) -> None:
    compared(drawn, rows_of(data.draw(pools(raw=True))), raw=True, placed=True)


@given(st.lists(st.tuples(st.none() | st.text(st.characters(exclude_categories=["Cs"])), st.integers())))
def test_rows_that_libpq_has_are_a_sequence_of_tuples(rows: list[tuple[Any, ...]]) -> None:
    placed = in_place(rows, 2)
    assert (len(placed), list(placed)) == (len(rows), rows)
    assert [placed[number] for number in range(len(rows))] == rows
    assert (placed[::3], placed[:2], placed[-2:]) == (rows[::3], rows[:2], rows[-2:])
    assert placed.values((0,)) == [text for text, _ in rows]
    assert placed.values((1, 0)) == [(number, text) for text, number in rows]
    for number in (-1, len(rows)):
        with pytest.raises(IndexError):
            placed[number]


def test_answer_is_never_read_beyond_its_end() -> None:
    answer = Answer([[b"1", None]], 2)
    address = (1, 2, 3)
    with pytest.raises(ValueError, match="1 functions for 2 columns"):
        _native.Result(answer, address, (None,), lambda *_: [])
    with pytest.raises(ValueError, match="a function of libpq is missing"):
        _native.Result(answer, (1, 0, 3), (None, None), lambda *_: [])
    placed = in_place([("1", None)], 2)
    for places in [(2,), (-1,), (0, 2)]:
        with pytest.raises(IndexError):
            placed.values(places)
    made = encoder().native
    assert made is not None
    with pytest.raises(ValueError, match="2 columns for a program of 5"):
        made.encode(placed, 0, b"}", 0, [], print)


def test_an_answer_that_was_cleared_is_not_read() -> None:
    functions = connect._functions()
    assert functions is not None
    answer = Answer([[b"1", b"2", None, None, None]], 5)
    placed = _native.Result(answer, functions, (None,) * 5, lambda *_: [])
    assert placed.values((0,)) == ["1"]
    answer.clear()
    made = encoder().native
    assert made is not None
    for read_it in (lambda: placed.values((0,)), lambda: made.encode(placed, 0, b"}", 0, [], print)):
        with pytest.raises(ValueError, match="cleared"):
            read_it()


def test_libpq_text_that_is_not_utf_8_leaves_its_row() -> None:
    functions, left = connect._functions(), list[tuple[Any, ...]]()
    assert functions is not None
    answer = Answer([[b"1", b"\xff", None, None, None]], 5)
    row = (1, "?", None, None, None)
    placed = _native.Result(answer, functions, (int, None, None, None, None), lambda *_: [row])
    made, items = encoder().native, list[Any]()
    assert made is not None
    made.encode(placed, 0, b"}", 0, items, left.append)
    assert (items, left) == ([], [row])


# ── rows of MySQL's text protocol ──


def packet(number: int, values: Sequence[bytes | None], form: int = 0) -> bytes:
    """A row. `form`: of the lengths, which may be longer than needed."""

    def length(n: int) -> bytes:
        chosen = max(form, 0 if n < 251 else 252 if n < 1 << 16 else 253)
        return (
            bytes([chosen]) + n.to_bytes({252: 2, 253: 3, 254: 8}[chosen], "little") if chosen else bytes([n])
        )

    body = b"".join(b"\xfb" if value is None else length(len(value)) + value for value in values)
    return len(body).to_bytes(3, "little") + bytes([number % 256]) + body


def taken(data: bytes, number: int, *encodings: str | None) -> tuple[tuple[int, int], list[tuple[Any, ...]]]:
    rows: list[tuple[Any, ...]] = []
    return _native.take_rows(data, 0, number, encodings, (None,) * len(encodings), rows), rows


@given(
    st.lists(st.none() | st.binary(max_size=300) | st.just(b"x" * 70_000), min_size=1, max_size=5),
    st.integers(0, 255),
    st.sampled_from([0, 252, 253, 254]),
    st.integers(1, 5),
)
def test_rows_of_packets_are_taken_as_far_as_they_are_whole(
    values: list[bytes | None], number: int, form: int, cut: int
) -> None:
    # The first value is short: a packet that begins with a long one is left to PyMySQL.
    rows = [(None, *values), (b"", *values[::-1])]
    packets = [packet(number, rows[0], form), packet(number + 1, rows[1])]
    data, encodings = b"".join(packets), (None,) * (len(values) + 1)
    assert taken(data, number, *encodings) == ((len(data), (number + 2) % 256), rows)
    assert taken(data[:-cut], number, *encodings) == ((len(packets[0]), (number + 1) % 256), rows[:1])
    assert taken(data, number + 1, *encodings) == ((0, number + 1), [])


def test_texts_are_decoded_and_values_made_of_them() -> None:
    data, rows = packet(0, ["7é".encode(), b"12", None, b"\xff"]), list[tuple[Any, ...]]()
    _native.take_rows(data, 0, 0, ("latin-1",) * 4, (None, int, int, None), rows)
    assert rows == [("7é", 12, None, "ÿ")]


@pytest.mark.parametrize(
    "body", [b"\x01", b"\x02a", b"\x01a", b"\x01a\xfc\x01", b"\x01a\xfe" + b"\xff" * 8, b"\x01a\xff\x01"]
)
def test_a_row_that_is_longer_than_its_packet_is_refused(body: bytes) -> None:
    whole = len(body).to_bytes(3, "little") + b"\0" + body + b"more"
    with pytest.raises(ValueError, match=r"row|length"):
        taken(whole, 0, None, None)


@given(st.binary(max_size=60), st.integers(1, 4))
def test_bytes_that_are_no_rows_end_or_are_refused(body: bytes, columns: int) -> None:
    with suppress(ValueError):
        (end, _), rows = taken(len(body).to_bytes(3, "little") + b"\0" + body, 0, *(None,) * columns)
        assert (end > 0) == bool(rows)
