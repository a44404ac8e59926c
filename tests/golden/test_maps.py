"""Golden cases of maps by a column of a list's rows."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.runtime.errors import MappingError, RowError
from tests import pins
from tests.golden import heart

SCHEMA = heart.facts(
    heart.table("customers", {"id": "integer!", "name": "text"}),
    heart.table(
        "addresses",
        {"customer_id": "integer!", "kind": "text!", "no": "integer", "street": "text", "flags": "json"},
        ("customer_id", "kind"),
        references={"customer_id": "customers.id"},
    ),
)
MAPPING = """
entities:
  customer:
    table: customers
    collect: {addresses: {of: addresses, by: customer_id}}
    items:
      Customer: {key: ["CUSTOMER#{id}", META], attributes: {addresses: %s}}
"""


def by(key: str, rows: list[dict[str, Any]], attributes: str = "street: street") -> Any:
    text = MAPPING % f"{{each: addresses, key: {key}, attributes: {{{attributes}}}}}"
    (item,) = heart.items(heart.entity(text, SCHEMA), {"id": 7, "addresses": rows})
    return item["addresses"]


HOME = {"kind": "home", "street": "1 Main St", "no": 1}
WORK = {"kind": "Ärger #1", "street": None, "no": 22}


def test_children_are_in_a_map_by_their_key() -> None:
    assert by("kind", [HOME, WORK]) == {"home": {"street": "1 Main St"}, "Ärger #1": {}}
    assert by("no", [HOME, WORK]) == {"1": {"street": "1 Main St"}, "22": {}}
    assert by("kind|upper", [HOME]) == {"HOME": {"street": "1 Main St"}}
    assert by('"{no:04}-{kind}"', [HOME]) == {"0001-home": {"street": "1 Main St"}}
    assert by("'no:02'", [HOME]) == {"01": {"street": "1 Main St"}}
    assert by("kind", []) == {}


def test_a_map_may_hold_sets_and_maps() -> None:
    rows = [HOME | {"flags": '["b", "a"]'}]
    assert by("kind", rows, "at: {map: {street: street}}, flags: flags|set") == {
        "home": {"at": {"street": "1 Main St"}, "flags": ["a", "b"]}
    }


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        ("kind|lower", [HOME, HOME | {"kind": "Home"}]),
        ("no", [HOME, WORK | {"no": None}]),
        ("street", [HOME | {"street": ""}]),
        ("'no:02'", [HOME | {"no": 100}]),
    ],
)
def test_a_key_that_is_missing_or_there_twice_refuses_the_row(key: str, rows: list[dict[str, Any]]) -> None:
    with pins.refused(RowError):
        by(key, rows)


@pytest.mark.parametrize(
    "key", ["nothing", "'home of {{none}}'", "kind|set", "kind|first", "'{kind'", "kind:x", "''"]
)
def test_a_wrong_key_is_a_fault(key: str) -> None:
    with pytest.raises(MappingError) as caught:
        by(key, [])
    assert pins.said([str(fault) for fault in caught.value.faults if not fault.warning])


@pytest.mark.parametrize(
    ("key", "is_warned"), [("kind", False), ("no", True), ("kind|lower", True), ("'{kind}-{no}'", False)]
)
def test_a_key_that_no_constraint_proves_is_a_warning(key: str, *, is_warned: bool) -> None:
    text = MAPPING % f"{{each: addresses, key: {key}, attributes: {{street: street}}}}"
    found = [fault for fault in heart.faults(text, SCHEMA) if "differ in" in fault]
    assert len(found) == is_warned
    assert not found or pins.said(found)
