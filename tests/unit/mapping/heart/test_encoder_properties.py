"""The generated function and items_for(): the same items, or the same refusal, for any mapping and row, raw texts included."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.mapping.heart.encoder import Encoder, compile_encoder
from migrator.mapping.heart.encoder_columns import RAW_KINDS
from migrator.model.edges import RawPage
from migrator.model.errors import MappingError, RowError
from tests.golden import heart
from tests.unit.mapping.heart.test_properties import KINDS

pytestmark = pytest.mark.property
EXAMPLES = int(os.environ.get("MIGRATOR_TEST_EXAMPLES", "50"))
ROWS_OF_AN_EXAMPLE = 34
"""So that the 3,000 examples of a night are more than 100,000 rows; a mapping takes as long as its rows."""

ROOT = {"id": "integer!", **{kind.replace(" ", "_").replace("(2)", "2"): kind for kind in KINDS}}
LINE = {
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
    heart.table("line", LINE, key=("root_id", "n"), references={"root_id": "root.id"}),
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


@lru_cache(100)
def made(drawn: tuple[Any, ...], raw: bool) -> Encoder | None:
    key, sort, index, attributes, words = drawn
    lines = [f"key: ['{key}', '{sort}']", words]
    if index is not None:
        lines.append(f"GSI1: ['{index[0]}', '{index[1]}']")
    written = ", ".join(f'"{name}": {value}' for name, value in attributes)
    lines.append(f"attributes: {{{written}}}")
    body = "\n".join(f"        {line}" for line in lines if line)
    text = f"""
entities:
  root:
    join: {{parent: parent_id}}
    collect:
      lines: {{of: line, by: root_id, order_by: [n]}}
      lines_count: {{count: all, of: line, by: root_id}}
      total: {{sum: number2, of: line, by: root_id}}
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
"""What a row is mostly made of: of columns that each refuse some values few rows would be left."""
COLUMNS = {name: kind.removesuffix("!") for name, kind in ROOT.items()}
COLUMNS |= {"parent.id": "integer", "parent_id": "integer", "parent.text": "text", "parent.number": "number"}
CHILD = {name: kind.removesuffix("!") for name, kind in LINE.items()}


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


def compared(drawn: tuple[Any, ...], many: Iterable[dict[str, Any]], *, raw: bool) -> None:
    with suppress(MappingError):
        encoder = made(drawn, raw)
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
                page = RawPage([row], encoder.raw, partial(_given, whole))
                heart.alike(encoder.entity, whole, encoder, page, by_module=False)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(MAPPINGS, st.data())
def test_both_make_the_same_items_or_the_same_refusal(drawn: tuple[Any, ...], data: st.DataObject) -> None:
    compared(drawn, rows_of(data.draw(pools(raw=False))), raw=False)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(MAPPINGS, st.data())
def test_the_same_of_raw_texts(drawn: tuple[Any, ...], data: st.DataObject) -> None:
    compared(drawn, rows_of(data.draw(pools(raw=True))), raw=True)
