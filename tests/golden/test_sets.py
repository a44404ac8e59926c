"""Golden cases of sets: of arrays, and of one column of a list's rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.items.wire import encode_item
from migrator.mapping.model.facts import Column, Kind, SchemaFacts, TableFacts
from migrator.mapping.model.table import SetOf
from migrator.runtime.errors import MappingError, RowError
from tests import pins
from tests.golden import heart
from tests.golden.shop import PLAIN, SCHEMA, made

OF_LIST = """
entities:
  orders:
    collect: {lines: {of: lines, by: order_id, join: {product: product_id}}}
    items:
      Order: {key: ["ORDER#{id}", META], attributes: {%s}}
"""


def of_lines(value: str, lines: list[dict[str, Any]]) -> Any:
    (item,) = heart.items(heart.entity(OF_LIST % f"x: {value}", SCHEMA), {"id": 7, "lines": lines})
    return item.get("x")


@pytest.mark.parametrize(
    ("raw", "members"),
    [
        ('["b", "a", "b"]', ["a", "b"]),
        ('["", "é", "Z"]', ["", "Z", "é"]),
        ("[2, 1.0, 1, 10, -0.5]", [Decimal("-0.5"), 1, 2, 10]),
        ("[]", None),
        (None, None),
    ],
)
def test_a_json_array_becomes_a_set(raw: str | None, members: list[Any] | None) -> None:
    value = made("attributes: {x: extra|set}", {"extra": raw}).get("x")
    assert value == members
    assert type(value) is (SetOf if members else type(None))


@pytest.mark.parametrize(
    "raw",
    [
        '["a", null]',
        '["a", 1]',
        "[true, false]",
        "[[1], [2]]",
        '[{"a": 1}]',
        '"a"',
        '{"a": 1}',
        "null",
        "no json",
    ],
)
def test_what_is_no_set_refuses_its_row(raw: str) -> None:
    with pins.refused(RowError):
        made("attributes: {x: extra|set}", {"extra": raw})


def test_one_column_of_a_list_becomes_a_set() -> None:
    lines: list[dict[str, Any]] = [
        {"product_id": 2, "price": Decimal("1.50"), "product.name": "Mug"},
        {"product_id": 10, "price": Decimal("1.5"), "product.name": "Cap"},
        {"product_id": 3, "price": None, "product.name": "mug"},
    ]
    assert of_lines("lines.product_id|set", lines) == [2, 3, 10]
    assert of_lines("lines.product.name|lower|set", lines) == ["cap", "mug"]
    assert of_lines("lines.price|or:'0'|text|set", lines) == ["0", "1.50"]
    assert of_lines("{map: {names: lines.product.name|set, n: {const: 1}}}", lines) == {
        "names": ["Cap", "Mug", "mug"],
        "n": 1,
    }
    assert of_lines("lines.product_id|set", []) is None
    assert of_lines("{map: {ids: lines.product_id|set}}", []) == {}
    with pins.refused(RowError):
        of_lines("lines.price|set", lines)


def test_mysqls_set_becomes_a_set() -> None:
    facts = heart.facts(heart.table("orders", {"id": "integer!", "c": "set"}))
    entity = heart.entity(PLAIN % "attributes: {x: c|set}", facts)
    for raw, members in (("b,a", ["a", "b"]), ("", None), (None, None)):
        (item,) = heart.items(entity, {"id": 7, "c": raw})
        assert item.get("x") == members
        assert members is None or type(item["x"]) is SetOf


def test_an_old_tables_set_stays_one() -> None:
    kind = Kind("list", element=Kind("text"), distinct=True)
    columns = (Column("id", "id", Kind("text"), False, "text"), Column("c", "c", kind, True, "set(text)"))
    facts = SchemaFacts(
        "dynamodb", {"orders": TableFacts("orders", "orders", columns, ("id",))}, loosely_typed=True
    )
    entity = heart.entity(PLAIN % "keep: [c], attributes: {x: c|set}", facts)
    (item,) = heart.items(entity, {"id": "7", "c": SetOf(["a", "b"])})
    assert encode_item({"c": item["c"], "x": item["x"]}) == {name: {"SS": ["a", "b"]} for name in ("c", "x")}
    (item,) = heart.items(entity, {"id": "7"})
    assert not item.keys() & {"c", "x"}


@pytest.mark.parametrize(
    "value",
    [
        "status|set",
        "open|set",
        "'{extra|set}'",
        "extra|set|json",
        "extra|json|set",
        "\"extra|or:'x'|set\"",
        "extra|set:2",
        "lines|set",
        "lines.nothing|set",
        "lines.extra|set",
        "lines.product_id|first|set",
        "{each: lines, attributes: {y: product_id|set}}",
        "{from: extra|set, to: s3}",
    ],
)
def test_wrong_use_of_a_set_is_a_fault(value: str) -> None:
    with pytest.raises(MappingError) as caught:
        heart.check(OF_LIST % f"x: {value}", SCHEMA)
    assert pins.said([str(fault) for fault in caught.value.faults if not fault.warning])


def test_a_parameter_is_no_list_of_rows() -> None:
    pattern = (
        'p: {params: {a: text}, query: {key: ["ORDER#{a}"], filter: {x: a|set}}, returns: [x], sql: SELECT 1}'
    )
    with pytest.raises(MappingError) as caught:
        heart.check(OF_LIST % "x: extra|set" + f"access_patterns: {{{pattern}}}", SCHEMA)
    assert pins.said([str(fault) for fault in caught.value.faults if not fault.warning])


@pytest.mark.parametrize("item", ['key: ["ORDER#{extra|set}", M]', 'key: ["ORDER#{id}", M], when: extra|set'])
def test_a_set_is_no_key_and_no_condition(item: str) -> None:
    with pytest.raises(MappingError) as caught:
        heart.check(f"entities: {{orders: {{items: {{Order: {{{item}}}}}}}}}", SCHEMA)
    assert pins.said([str(fault) for fault in caught.value.faults if not fault.warning])
