"""What two revisions of a mapping differ in, by hand; what means the same is the same; and what is refused."""

from __future__ import annotations

import random
from datetime import datetime
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.difference.difference import (
    MappingDifference,
    PlannedRevision,
    difference,
    refusals,
)
from migrator.mapping.items.items import items_for
from migrator.mapping.language.document import plain_of
from migrator.mapping.language.parse import examine_mapping
from migrator.runtime.errors import Fault, RowError
from tests import pins
from tests.golden.heart import facts, table
from tests.support_mapping import parse_mapping

ROOT = Path(__file__).resolve().parents[4]
SHIPPED = sorted([*(ROOT / "mappings").glob("*.yaml"), *(ROOT / "mappings" / "designs").glob("*.yaml")])
SCHEMA = facts(
    table(
        "customer", {"id": "integer!", "name": "text!", "email": "text!", "city": "text"}, unique=[("email",)]
    ),
    table(
        "orders",
        {
            "id": "integer!",
            "customer_id": "integer!",
            "number": "text!",
            "status": "text!",
            "placed": "timestamp!",
            "total": "number(2)!",
        },
        references={"customer_id": "customer.id"},
        unique=[("number",)],
    ),
)
BASE = """
mapping: 1
source: {timezone: UTC}
table:
  name: Shop
  key: [PK, SK]
  type: type
  ttl: expires
  separator: "#"
  indexes:
    GSI1: {key: [GSI1PK, GSI1SK]}
maps: {status: {P: pending, S: shipped}}
entities:
  customer:
    items:
      Customer: {key: ["CUSTOMER#{id}", META], keep: [name], attributes: {city: city}}
  order:
    table: orders
    join: {customer: customer_id}
    where: {status: [P, S]}
    items:
      Order:
        key: ["ORDER#{id}", META]
        GSI1: ["CUSTOMER#{customer_id}", "ORDER#{placed|iso:s}#{id:06}"]
        attributes:
          total: total
          status: "{status|map:status}"
          customer_name: customer.name
          at: "{placed|epoch}"
          slug: "{number|escape}"
      Ticket:
        key: ["ORDER#{id}", "TICKET#{number|escape}"]
        when: {status: [P]}
        ttl: placed
        attributes: {number: number}
access_patterns:
  order:
    params: {id: integer}
    get: {key: ["ORDER#{id}", META]}
    returns: [total]
    sql: SELECT total FROM orders WHERE id = :id
  orders_of_customer:
    params: {customer: integer}
    query: {index: GSI1, key: ["CUSTOMER#{customer}", {begins_with: "ORDER#"}]}
    returns: [total, status]
    sql: SELECT total, status FROM orders WHERE customer_id = :customer ORDER BY placed, id
"""


def checked(text: str) -> Checked:
    return check_mapping(parse_mapping(text, "shop.yaml"), SCHEMA)


def revision(text: str, *, planned: bool = True) -> PlannedRevision:
    if not planned:
        return PlannedRevision(parse_mapping(text, "shop.yaml").mapping)
    made = checked(text)
    return PlannedRevision(made.mapping, made.plans)


def changed(*edits: tuple[str, str], text: str = BASE) -> str:
    for before, after in edits:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def compared(old: str, new: str, *, planned: bool = True) -> MappingDifference:
    return difference(revision(old, planned=planned), revision(new, planned=planned))


def between(*edits: tuple[str, str], planned: bool = True) -> MappingDifference:
    return compared(BASE, changed(*edits), planned=planned)


def refused(old: str, new: str, *, planned: bool = True) -> list[Fault]:
    both = revision(old, planned=planned), revision(new, planned=planned)
    return refusals(*both, difference(*both), examine_mapping(new, "new.yaml").document)


def types(found: MappingDifference) -> dict[str, tuple[str, list[tuple[str, str, str]]]]:
    return {
        f"{entity.name}.{one.type}": (
            one.effect,
            [(part.name, part.before, part.after) for part in one.parts],
        )
        for entity in found.entities
        for one in entity.types
    }


def unasked() -> str:
    """Without patterns: their keys would have to follow."""
    return BASE.partition("access_patterns:")[0]


# ── by hand ──


def test_an_attribute_more() -> None:
    found = between(("attributes: {city: city}", 'attributes: {city: city, mail: "{email|lower}"}'))
    assert types(found) == {"customer.Customer": ("changed", [("attribute mail", "", '"{email|lower}"')])}
    assert found.schema.columns == {"customer": ("email",)}
    assert [(one.table, one.columns, one.dropped) for one in found.schema.captured or ()] == [
        ("customer", ("email",), ())
    ]
    assert found.schema.needs_install is True
    assert (found.patterns, found.table) == ((), ())


def test_attribute_of_columns_already_read_needs_no_new_triggers() -> None:
    found = between(("          total: total\n", '          total: total\n          sum: "{total}"\n'))
    assert types(found) == {"order.Order": ("changed", [("attribute sum", "", '"{total}"')])}
    assert found.schema.needs_install is False
    assert found.patterns == ()


def test_changed_key_format_hides_items_from_older_services() -> None:
    asks = 'get: {key: ["ORDER#{id}", META]}'
    found = between(
        ('["ORDER#{id}", META]\n        GSI1', '["ORDER#{id:08}", META]\n        GSI1'),
        (asks, asks.replace("{id}", "{id:08}")),
    )
    assert types(found) == {
        "order.Order": ("moved", [("base key", "ORDER#{id} + META", "ORDER#{id:08} + META")])
    }
    asked = {one.name: one for one in found.patterns}
    assert (asked["order"].parts, asked["order"].loses) == (("key",), ())
    assert asked["order"].old_loses == ("order.Order",)
    assert asked["orders_of_customer"].old_loses == ()
    assert asked["orders_of_customer"].answer_changes


def test_pattern_that_reaches_fewer_items_loses_its_answer() -> None:
    found = between(
        ("TICKET#{number|escape}", "{number|escape}#T"),
        ('["CUSTOMER#{customer}", {begins_with: "ORDER#"}]', '["CUSTOMER#{customer}"]'),
    )
    assert all(one.loses == () for one in found.patterns)
    old = changed(
        (
            "        ttl: placed\n",
            '        ttl: placed\n        GSI1: ["CUSTOMER#{customer_id}", "ORDER#T#{id:06}"]\n',
        )
    )
    (one,) = compared(old, BASE).patterns
    assert (one.name, one.loses) == ("orders_of_customer", ("order.Ticket",))


def test_changed_index_entry_changes_only_that_indexs_answers() -> None:
    found = between(("ORDER#{placed|iso:s}#{id:06}", "ORDER#{placed|iso:ms}#{id:06}"))
    assert types(found)["order.Order"] == (
        "changed",
        [("entry of GSI1", pins.text(), "CUSTOMER#{customer_id} + ORDER#{placed|iso:ms}#{id:06}")],
    )
    assert [(one.name, one.effect, one.answer_changes) for one in found.patterns] == [
        ("orders_of_customer", "same", True)
    ]


def test_a_condition_changes_which_rows_have_the_item() -> None:
    found = between(("when: {status: [P]}", "when: {status: [S]}"))
    ((entity,),) = (found.entities,)
    assert [(one.type, one.effect, one.some) for one in entity.types] == [("Ticket", "changed", True)]
    assert entity.types[0].parts[0].before == 'status in ("P")'


def test_other_rows_of_an_entity_change_all_of_its_items() -> None:
    found = between(("where: {status: [P, S]}", "where: {status: [P]}"))
    ((entity,),) = (found.entities,)
    assert [part.name for part in entity.rows] == ["where"]
    assert {one.type: one.effect for one in entity.types} == {"Order": "changed", "Ticket": "changed"}
    assert {one.name for one in found.patterns if one.answer_changes} == {"order", "orders_of_customer"}


@pytest.mark.parametrize(
    ("edit", "parts"),
    [
        (("{P: pending, S: shipped}", "{P: pending, S: sent}"), ["attribute status"]),
        (('separator: "#"', 'separator: "|"'), ["attribute slug", "base key"]),
        (("timezone: UTC", "timezone: Europe/Berlin"), ["attribute at", "ttl"]),
        (("ttl: expires", "ttl: until"), []),
    ],
)
def test_what_stands_elsewhere_changes_what_uses_it(edit: tuple[str, str], parts: list[str]) -> None:
    found = types(between(edit))
    assert sorted({name for _, made in found.values() for name, _, _ in made}) == sorted(parts)


def test_an_entity_and_an_item_that_come_and_go() -> None:
    old = changed(
        (
            '      Ticket:\n        key: ["ORDER#{id}", "TICKET#{number|escape}"]',
            '      Slip:\n        key: ["ORDER#{id}", "SLIP#{number|escape}"]',
        )
    )
    found = compared(old, BASE)
    assert {name: effect for name, (effect, _) in types(found).items()} == {
        "order.Ticket": "new",
        "order.Slip": "gone",
    }
    without = unasked().partition("  order:\n")[0]
    ((gone,), (came,)) = (compared(*texts).entities for texts in ((unasked(), without), (without, unasked())))
    assert (gone.name, gone.effect, {one.effect for one in gone.types}) == ("order", "gone", {"gone"})
    assert (came.name, came.effect, {one.effect for one in came.types}) == ("order", "new", {"new"})


def test_services_that_ask_an_index_which_is_gone_find_nothing() -> None:
    text = BASE.replace("GSI1:", "ByCustomer:").replace("index: GSI1,", "index: ByCustomer,")
    (one,) = compared(BASE, text).patterns
    assert (one.name, one.parts, one.loses) == ("orders_of_customer", ("request",), ())
    assert one.old_loses == ("order.Order",)


def test_added_or_removed_index_and_one_that_must_be_replaced() -> None:
    more = changed(
        ("GSI1: {key: [GSI1PK, GSI1SK]}", "GSI1: {key: [GSI1PK, GSI1SK]}\n    GSI2: {key: [GSI2PK, GSI2SK]}")
    )
    assert [(one.part, one.way) for one in compared(BASE, more).table] == [("index GSI2", "add")]
    assert [(one.part, one.way) for one in compared(more, BASE).table] == [("index GSI2", "remove")]
    other = changed(
        ("GSI1: {key: [GSI1PK, GSI1SK]}", "GSI1: {key: [GSI1PK, GSI1SK], project: [total, status]}")
    )
    assert [(one.part, one.way) for one in compared(BASE, other).table] == [("index GSI1", "replace")]
    (fault,) = refused(BASE, other)
    assert not fault.warning
    assert pins.said(fault.what)


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (("sql: SELECT total FROM orders", "sql: SELECT total FROM orders o"), "sql"),
        (("returns: [total]", "returns: [total, slug]"), "returns"),
        (("params: {id: integer}", "params: {id: number}"), "params"),
    ],
)
def test_a_pattern_itself(edit: tuple[str, str], part: str) -> None:
    found = between(edit)
    assert [(one.name, one.effect, one.parts, one.answer_changes) for one in found.patterns] == [
        ("order", "changed", (part,), True)
    ]
    assert found.entities == ()


def test_pattern_frequency_does_not_change_its_answer() -> None:
    found = between(("returns: [total]\n", "returns: [total]\n    frequency: 3/s\n"))
    assert [(one.name, one.parts, one.answer_changes) for one in found.patterns] == [
        ("order", ("calls_per_s",), False)
    ]


# ── what means the same ──

ALIKE: list[tuple[str, str]] = [
    ("keep: [name], attributes: {city: city}", "attributes: {city: city, name: name}"),
    ("where: {status: [P, S]}", "where: {status: [S, P]}  # a comment"),
    ("{P: pending, S: shipped}", "{S: shipped, P: pending}"),
    ("join: {customer: customer_id}", "join: {customer: {table: customer, on: {customer_id: id}}}"),
]


@pytest.mark.parametrize("edit", ALIKE)
def test_other_words_for_the_same(edit: tuple[str, str]) -> None:
    assert between(edit).is_empty


def test_a_join_of_another_name_is_the_same_join() -> None:
    edits = (("join: {customer: customer_id}", "join: {buyer: customer_id}"), ("customer.name", "buyer.name"))
    for planned in (True, False):
        assert between(*edits, planned=planned).is_empty


def test_attributes_of_the_entity_are_those_of_each_item() -> None:
    text = BASE.replace(
        '{key: ["CUSTOMER#{id}", META], keep: [name], attributes: {city: city}}',
        '{key: ["CUSTOMER#{id}", META], keep: [name]}\n    attributes: {city: city}',
    )
    assert text != BASE
    assert compared(BASE, text).is_empty


def test_renamed_index_with_the_same_attributes_rewrites_no_item() -> None:
    text = BASE.replace("GSI1:", "ByCustomer:").replace("index: GSI1,", "index: ByCustomer,")
    found = compared(BASE, text)
    assert found.entities == ()
    assert sorted((one.part, one.way) for one in found.table) == [
        ("index ByCustomer", "add"),
        ("index GSI1", "remove"),
    ]


def _shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, list):
        return [_shuffled(one, chance) for one in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    chance.shuffle(names)
    # A join may begin at an earlier one.
    return {name: value[name] if name == "join" else _shuffled(value[name], chance) for name in names}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: str(file.stem))
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_a_shuffled_mapping_means_the_same(file: Path, seed: int) -> None:
    text = file.read_text(encoding="utf-8")
    shuffled = yaml.safe_dump(_shuffled(plain_of(text), random.Random(seed)), sort_keys=False)
    there = PlannedRevision(parse_mapping(text, "a").mapping)
    assert difference(there, there).is_empty
    assert difference(there, PlannedRevision(parse_mapping(shuffled, "b").mapping)).is_empty


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
    found = difference(*(PlannedRevision(one.mapping, one.plans) for one in sides))
    named = {(entity.name, one.type) for entity in found.entities for one in entity.types}
    made = [_items(one, values) for one in sides]
    for key in {*made[0], *made[1]} - named:
        assert made[0].get(key) == made[1].get(key), key
    if sorted(_applicable(chosen)) == sorted(_applicable(others)):
        assert found.is_empty


_BACK = {"new": "gone", "gone": "new"}


@pytest.mark.parametrize(("first", "second"), list(combinations(EDITS[:6], 2)))
def test_differences_are_the_same_both_ways(first: tuple[str, str], second: tuple[str, str]) -> None:
    there = compared(BASE, changed(first, second))
    back = compared(changed(first, second), BASE)
    assert {name: _BACK.get(effect, effect) for name, (effect, _) in types(there).items()} == {
        name: effect for name, (effect, _) in types(back).items()
    }


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_each_edit_alone_makes_no_item_that_is_not_named(edit: tuple[str, str]) -> None:
    sides = [checked(BASE), checked(changed(edit))]
    found = difference(*(PlannedRevision(one.mapping, one.plans) for one in sides))
    named = {(entity.name, one.type) for entity in found.entities for one in entity.types}
    made = [_items(one, VALUES) for one in sides]
    differ = {key for key in {*made[0], *made[1]} if made[0].get(key) != made[1].get(key)}
    assert differ <= named
    assert found.is_empty is (edit in ALIKE)


def _with_key(key: str) -> str:
    return changed(('key: ["ORDER#{id}", META]\n        GSI1', f"key: [{key}]\n        GSI1"), text=unasked())


@pytest.mark.parametrize(
    ("key", "is_refused"),
    [
        ('"ORDER#{id:08}", META', False),  # the same row, however its number is padded
        ('"ORDER#{id}", INFO', False),
        ('"PURCHASE#{id}", META', False),
        ('"ORDER#{customer_id}#{id}", META', False),  # another number of separators
        ('"ORDER#{number}", META', True),  # where the texts end is not known
        ('"ORDER#{number|escape}", META', True),  # number 5 of one row, id 5 of another
        ('"ORDER#{customer_id}", META', True),
        ('"CUSTOMER#{id}", META', True),  # of another entity, and unchanged there: no other revision's key
        ('"ORDER#{id}", "TICKET#{id}"', True),
    ],
)
def test_keys_that_both_revisions_could_claim(key: str, is_refused: bool) -> None:
    found = [fault for fault in refused(unasked(), _with_key(key)) if not fault.warning]
    if key.startswith('"CUSTOMER'):
        assert found == [], "the checker of one mapping warns of it"
        return
    if key.endswith('"TICKET#{id}"'):
        assert found == [], "the row is named by what both begin with"
        return
    assert bool(found) is is_refused
    if is_refused:
        assert found[0].where == "entities.order.items.Order.key"
        assert pins.said(found[0].what)


def test_key_values_that_may_collide_identify_no_row() -> None:
    """Row 1 of customer 23 and row 12 of customer 3."""
    old, new = (_with_key(f'"ORDER#{{{id_}}}{{customer_id}}", META') for id_ in ("id", "id:02"))
    assert [fault.where for fault in refused(old, new)] == ["entities.order.items.Order.key"]


def test_entity_with_a_new_name_and_the_same_rows_is_renamed() -> None:
    new = unasked().replace("  order:\n", "  purchase:\n")
    (found,) = refused(unasked(), new)
    assert (found.where, found.warning) == ("entities.purchase", True)
    assert difference(revision(unasked()), revision(new)).renamed == {"purchase": "order"}


def test_entity_with_a_new_name_and_other_rows_cannot_reuse_keys() -> None:
    new = (
        unasked()
        .replace("  order:\n", "  purchase:\n")
        .replace("where: {status: [P, S]}", "where: {status: [P]}")
    )
    found = [fault for fault in refused(unasked(), new) if not fault.warning]
    assert {fault.where for fault in found} == {
        "entities.purchase.items.Order.key",
        "entities.purchase.items.Ticket.key",
    }


def test_without_a_source_keys_are_doubted_not_refused() -> None:
    (fault,) = refused(unasked(), _with_key('"ORDER#{id:08}", META'), planned=False)
    assert fault.warning
    assert "--source" in fault.what


@pytest.mark.parametrize(
    'edit',
    [
        ("key: [PK, SK]", "key: [PK, S]"),
        ("type: type", "type: kind"),
        ("GSI1: {key: [GSI1PK, GSI1SK]}", "GSI1: {key: [GSI1PK, GSI1SK]}\n    Local: {key: [PK, L], local: true}"),
        ("    table: orders\n", "    table: orders\n    key: [number]\n"),
    ], ids=["key-altered", "told-apart", "local-made", "name-rows"],
)  # fmt: skip
def test_what_a_table_cannot_become(edit: tuple[str, str]) -> None:
    faults = [fault for fault in refused(BASE, changed(edit)) if not fault.warning]
    assert pins.said(fault.what for fault in faults)
