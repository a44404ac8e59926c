"""Keys worked out from an image of a row: those that the heart gives its items, whatever their `when`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.items.changes import captured_tables, needed_columns, needs_memory
from migrator.mapping.items.items import ImageKeys, compile_entity, compile_image_keys, items_for
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import Mapping
from migrator.runtime.errors import RowError
from migrator.runtime.values import replace
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests.golden import heart, shop
from tests.support_services import REPOSITORY

ORDERS = """
entities:
  orders:
    join: {user: user_id}
    items:
      Order: {key: ["ORDER#{id}", META]}
      Invoice: {key: ["INVOICE#{invoice_no}", "I#{created_at|iso:s}"], when: invoice_no}
      Waiting: {key: ["WAITING#{status}", "{id:04}"], when: {status: [P]}}
      Named: {key: ["NAME#{user.name}", "ORDER#{id}"]}
"""


def compiled(text: str) -> tuple[ImageKeys, EntityPlan, Mapping]:
    checked = heart.check(text, shop.SCHEMA)
    plan = checked.entities[0].plan
    return compile_image_keys(checked.mapping, plan), plan, checked.mapping


def test_each_design_gives_its_key_even_without_its_item() -> None:
    keys, plan, _ = compiled(ORDERS)
    image = {"id": 7, "invoice_no": "A#1", "status": "S", "created_at": datetime(2026, 1, 2, 3, 4, 5)}
    assert keys(image) == {
        ("ORDER#7", "META"),
        ("INVOICE#A#1", "I#2026-01-02T03:04:05"),
        ("WAITING#S", "0007"),
    }
    # What is made of a joined column cannot be worked out from the row.
    assert needs_memory(plan)


@pytest.mark.parametrize(
    ("items", "needed"),
    [
        ('{A: {key: ["U#{user_id}", "{created_at|iso:s}#{id}"]}}', {"id", "user_id", "created_at"}),
        ('{A: {key: ["U#{user_id|or:none}", "{id}"]}}', {"id"}),
        ('{A: {key: ["U#{user_id}", "{id}"]}, B: {key: ["S#{status}", "{id}"]}}', {"id"}),
        ('{A: {key: ["U#{user_id}", "{id}"]}, B: {key: ["{id}", X], when: user_id}}', {"id", "user_id"}),
        ('{A: {key: ["U#{user.name}", "{id}"], when: {status: [P, null]}}}', {"id"}),
    ],
)
def test_row_without_needed_column_has_no_items(items: str, needed: set[str]) -> None:
    text = f"entities: {{orders: {{join: {{user: user_id}}, where: {{total: [1, null]}}, items: {items}}}}}"
    assert needed_columns(compiled(text)[1]) == needed
    where = text.replace("{total: [1, null]}", "{invoice_no: [A]}")
    assert needed_columns(compiled(where)[1]) == needed | {"invoice_no"}


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ({"invoice_no": None}, {"ORDER#7", "WAITING#S"}),
        ({"invoice_no": "x" * 2100}, {"ORDER#7", "WAITING#S"}),
        ({"status": "\ud800"}, {"ORDER#7", "INVOICE#1"}),
        ({"created_at": "no time", "status": None}, {"ORDER#7"}),
    ],
)
def test_a_key_that_is_refused_is_none(values: dict[str, Any], left: set[str]) -> None:
    keys, _, _ = compiled(ORDERS)
    image = {"id": 7, "invoice_no": "1", "status": "S", "created_at": datetime(2026, 1, 2)}
    assert {key[0] for key in keys({**image, **values})} == left


def test_image_without_a_key_column_is_reported() -> None:
    keys, _, _ = compiled(ORDERS)
    with pytest.raises(KeyError, match="invoice_no"):
        keys({"id": 7, "status": "S"})


def test_keys_of_numbers_are_numbers() -> None:
    head = heart.HEAD.replace("[PK, SK]", "[{name: PK, type: number}, {name: SK, type: binary}]")
    text = 'entities: {orders: {items: {Order: {key: ["{total}", "{picture}"]}}}}'
    checked = heart.check(text, shop.SCHEMA, head)
    keys = compile_image_keys(checked.mapping, checked.entities[0].plan)
    assert keys({"id": 7, "total": Decimal("1.50"), "picture": b"\xff"}) == {(Decimal("1.50"), b"\xff")}
    assert keys({"id": 7, "total": "NaN", "picture": b"\xff"}) == frozenset()


# ── the shop's own mapping ──


@pytest.fixture(scope="module")
def checked_shop(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    file = tmp_path_factory.mktemp("shop") / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((REPOSITORY / "docker" / "shop" / "schema.sql").read_text())
    text = (REPOSITORY / "mappings" / "ecommerce.yaml").read_text()
    source = SqlSource(source_url(f"sqlite:///{file}"))
    try:
        return check_mapping(examine_mapping(text, "m.yaml"), source.facts())
    finally:
        source.close()


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-1, 10**11),
    "number": st.decimals(-1, 99, places=2).map(str),
    "text": st.text(max_size=5) | st.sampled_from(["pending", "#", "x" * 1100, "\ud800"]),
    "timestamp": st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(str) | st.just("2020"),
}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_keys_of_an_image_are_those_that_the_heart_makes(checked_shop: Checked, data: st.DataObject) -> None:
    entity = data.draw(st.sampled_from(checked_shop.entities))
    assert not needs_memory(entity.plan)
    items = tuple(replace(item, when=()) for item in entity.plan.entity.items)
    always = replace(entity.plan, entity=replace(entity.plan.entity, items=items))
    row = tuple(data.draw(st.none() | VALUES[slot.column.kind.name]) for slot in always.slots)
    image = {slot.path: value for slot, value in zip(always.slots, row, strict=True) if slot.alias == ""}
    found = compile_image_keys(checked_shop.mapping, entity.plan)(image)
    try:
        made = items_for(compile_entity(checked_shop.mapping, always), row)
    except RowError:
        return
    assert found == {checked_shop.mapping.table.key_of(item) for item in made}


def test_content_of_a_mark_is_enough_for_the_keys(checked_shop: Checked) -> None:
    plans = [entity.plan for entity in checked_shop.entities]
    for captured in captured_tables(plans).values():
        held = dict.fromkeys(captured.columns)
        for plan in (plan for plan in plans if plan.table == captured.table):
            assert compile_image_keys(checked_shop.mapping, plan)(held) == frozenset()
