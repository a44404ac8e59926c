"""What check lets pass of filters and types, a backfill writes: an ordinary value refuses no row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.items.filters import FILTERS
from migrator.mapping.model.facts import Kind
from migrator.runtime.errors import MappingError, RowError
from migrator.runtime.values import replace
from tests.golden import heart

ORDINARY: dict[str, Any] = {
    "integer": 7,
    "number(2)": Decimal("1.50"),
    "float": 1.5,
    "text": "abc",
    "boolean": True,
    "date": dt.date(2026, 1, 2),
    "time": dt.time(10, 11, 12),
    "timestamp": dt.datetime(2026, 1, 2, 3, 4, 5),
    "uuid": "0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b",
    "binary": b"\x01\xff",
    "bits": "101",
    "set": "a,b",
}
ARGUMENTS = {"or": ":'x'", "shard": ":4", "at": ":2", "bucket": ":day", "geohash": ":5"}
EACH = ["", *(f"|{name}{ARGUMENTS.get(name, '')}" for name in FILTERS if name != "map")]
FILLED = [f"|or:'x'{one}" for one in EACH]
WRITTEN = [*EACH, *FILLED, *(f"{one}|geohash:5" for one in EACH), "|text|lower", "|iso:s", "|iso:s|desc"]
PADDED = [
    f":{form}{one}" for form in ("06", "09.2f") for one in ["", "|desc", "|or:'x'|desc", "|or:'0'|desc"]
]
MAPPING = """
entities: {{t: {{items: {{T: {{key: ["T#{{id}}", T], attributes: {{x: {value}}}}}}}}}}}
"""


@pytest.mark.parametrize("form", ["c{}", '"at {{c{}}}"'], ids=["value", "text"])
@pytest.mark.parametrize("kind", ORDINARY)
def test_checked_mapping_refuses_no_ordinary_value(kind: str, form: str) -> None:
    facts = heart.facts(heart.table("t", {"id": "integer!", "c": kind}))
    lied = []
    for written in [*WRITTEN, *(PADDED if "at" in form else ())]:
        text = MAPPING.format(value=form.format(written))
        try:
            compiled = heart.entity(text, facts)
        except MappingError:
            continue
        for value in (ORDINARY[kind], None):
            row = (value, 1) if compiled.plan.slots[0].path == "c" else (1, value)
            try:
                heart.both_ways(compiled, row, by_module=False)
            except RowError as error:
                warned = "decimals" in str(error) and any(
                    "refuses rows" in fault for fault in heart.faults(text, facts)
                )
                lied += [] if warned else [(written, value, str(error))]
    assert lied == []


@pytest.mark.parametrize(
    ("key", "is_fault"),
    [
        ('["T#{c}", T]', True),
        ('["T#{c|text}", T]', True),
        ('["T#{c|hash}", T]', False),
        ('["T#{c|shard:4}", "{id}"]', False),
    ],
)
def test_bytes_in_a_key_of_text_are_a_fault(key: str, is_fault: bool) -> None:
    facts = heart.facts(heart.table("t", {"id": "integer!", "c": "binary!"}))
    found = heart.faults(f"\nentities: {{t: {{items: {{T: {{key: {key}}}}}}}}}\n", facts)
    assert any("bytes" in fault for fault in found if "warning" not in fault) == is_fault


@pytest.mark.parametrize(
    ("kind", "condition", "is_fault", "is_warned"),
    [
        ("binary", "{c: abc}", True, False),
        ("binary", "c", False, False),
        ("binary", "{c: null}", False, False),
        ("json", "{c: abc}", False, True),
        ("json", "c", False, False),
        ("text", "{c: abc}", False, False),
    ],
)
def test_a_condition_on_what_has_no_text_is_told(
    kind: str, condition: str, is_fault: bool, is_warned: bool
) -> None:
    facts = heart.facts(heart.table("t", {"id": "integer!", "c": kind}))
    for item in (f"when: {condition}", f'GSI1: {{key: ["A{{id}}", B], when: {condition}}}'):
        found = heart.faults(
            f'\nentities: {{t: {{items: {{T: {{key: ["T#{{id}}", T], {item}}}}}}}}}\n', facts
        )
        of_column = [fault for fault in found if "'c' is" in fault]
        assert [("warning" not in fault) for fault in of_column] == [is_fault] * (is_fault or is_warned)


@pytest.mark.parametrize(("inner", "is_fault"), [(Kind("binary"), True), (Kind("text"), False)])
def test_json_of_a_list_of_bytes_is_a_fault(inner: Kind, is_fault: bool) -> None:
    table = heart.table("t", {"id": "integer!", "c": "text"})
    nested = Kind("list", element=Kind("list", element=inner))
    columns = (table.columns[0], replace(table.columns[1], kind=nested))
    found = heart.faults(
        '\nentities: {t: {items: {T: {key: ["T#{id}", T], attributes: {x: "c|json"}}}}}\n',
        heart.facts(replace(table, columns=columns)),
    )
    assert any("bytes" in fault for fault in found) == is_fault


@pytest.mark.parametrize(("scale", "is_warned"), [(1, False), (2, False), (3, True)])
def test_column_with_more_decimals_than_its_format_is_a_warning(scale: int, is_warned: bool) -> None:
    facts = heart.facts(heart.table("t", {"id": "integer!", "c": f"number({scale})!"}))
    told = heart.faults(MAPPING.format(value='"{c:09.2f}"'), facts)
    assert any("decimals" in fault for fault in told) == is_warned
