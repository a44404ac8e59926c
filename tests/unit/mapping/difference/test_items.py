"""What a difference does not name makes the same items, whatever the two revisions are."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.mapping.check.check import Checked
from migrator.mapping.difference.difference import Revision, difference
from migrator.mapping.heart.items import items_for
from migrator.model.errors import RowError
from tests.unit.mapping.difference.test_difference import (
    ALIKE,
    BASE,
    changed,
    checked,
    compared,
    types,
)

EDITS: list[tuple[str, str]] = [
    ("attributes: {city: city}", "attributes: {town: city}"),
    ("keep: [name]", "keep: {except: [email]}"),
    ("where: {status: [P, S]}", "where: {status: [S]}"),
    ("timezone: UTC", "timezone: Asia/Tokyo"),
    ('separator: "#"', 'separator: "/"'),
    ("{P: pending, S: shipped}", "{P: waiting, S: shipped}"),
    ("total: total", "total: '{total|text}'"),
    ("ORDER#{placed|iso:s}#{id:06}", "ORDER#{placed|iso:s}#{id:09}"),
    ("when: {status: [P]}", "when: {status: [P, S]}"),
    ("ttl: placed", "ttl: {from: placed, days: 3}"),
    ("TICKET#{number|escape}", "TICKET#{number|hash}"),
    ("attributes: {number: number}", "attributes: {number: number, name: customer.name}"),
    ("[GSI1PK, GSI1SK]", "[G1, G2]"),
    ("      Ticket:", "      Slip:"),
    ("customer_name: customer.name", "customer_name: customer.city"),
    (
        'GSI1: ["CUSTOMER#{customer_id}", "ORDER#{placed|iso:s}#{id:06}"]',
        'GSI1: {key: ["CUSTOMER#{customer_id}", "ORDER#{placed|iso:s}#{id:06}"], when: {status: [S]}}',
    ),
    *ALIKE[:1],
    *ALIKE[3:],
]


def _applicable(edits: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without those whose place another one has taken."""
    return [
        edit
        for edit in edits
        if not any(other is not edit and (other[0] in edit[0] or edit[0] in other[0]) for other in edits)
    ]


VALUES: dict[str, Any] = {
    "id": 7, "name": "Ann", "email": "ann@example.com", "city": "Rome", "customer_id": 3, "number": "A-1",
    "status": "P", "placed": datetime(2026, 6, 10, 14, 32), "total": Decimal("9.50"),
}  # fmt: skip


def _items(made: Checked, values: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    by_type: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entity in made.entities:
        row = tuple(values[slot.path.rpartition(".")[2]] for slot in entity.plan.slots)
        try:
            items = items_for(entity, row)
        except RowError:
            items = []
        for item in items:
            plain = {name: value for name, value in item.items() if name != "_rev"}
            by_type.setdefault((entity.name, str(item["type"])), []).append(plain)
    return by_type


@settings(max_examples=40, deadline=None)
@given(
    chosen=st.lists(st.sampled_from(EDITS), max_size=3, unique=True),
    others=st.lists(st.sampled_from(EDITS), max_size=2, unique=True),
    number=st.sampled_from(["A-1", "A#1", "A/1"]),
    status=st.sampled_from(["P", "S"]),
    city=st.sampled_from([None, "Rome"]),
)
def test_items_that_are_not_named_are_the_same(
    chosen: list[tuple[str, str]], others: list[tuple[str, str]], number: str, status: str, city: str | None
) -> None:
    values = VALUES | {"city": city, "number": number, "status": status}
    sides = [checked(changed(*_applicable(edits))) for edits in (chosen, others)]
    found = difference(*(Revision(one.mapping, one.plans) for one in sides))
    named = {(entity.name, one.type) for entity in found.entities for one in entity.types}
    made = [_items(one, values) for one in sides]
    for key in {*made[0], *made[1]} - named:
        assert made[0].get(key) == made[1].get(key), key
    if sorted(_applicable(chosen)) == sorted(_applicable(others)):
        assert found.is_empty


_BACK = {"new": "gone", "gone": "new"}


@pytest.mark.parametrize(("first", "second"), list(combinations(EDITS[:6], 2)))
def test_differences_are_the_same_both_ways(first: tuple[str, str], second: tuple[str, str]) -> None:
    there = compared(BASE, changed(first, second)).difference()
    back = compared(changed(first, second), BASE).difference()
    assert {name: _BACK.get(effect, effect) for name, (effect, _) in types(there).items()} == {
        name: effect for name, (effect, _) in types(back).items()
    }


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_each_edit_alone_makes_no_item_that_is_not_named(edit: tuple[str, str]) -> None:
    sides = [checked(BASE), checked(changed(edit))]
    found = difference(*(Revision(one.mapping, one.plans) for one in sides))
    named = {(entity.name, one.type) for entity in found.entities for one in entity.types}
    made = [_items(one, VALUES) for one in sides]
    differ = {key for key in {*made[0], *made[1]} if made[0].get(key) != made[1].get(key)}
    assert differ <= named
    assert found.is_empty is (edit in ALIKE)
