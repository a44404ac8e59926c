"""Entities that are set apart because the service writes them: which items, tables and patterns are theirs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from migrator.mapping.check.check import Checked
from migrator.mapping.check.keys import patterns_reading
from migrator.mapping.items.changes import direct_tables
from migrator.runtime.errors import SettingsError
from migrator.settings.transforms import known_regions, price_of, with_writes
from migrator.stages.verify.scan import direct_items
from tests import pins
from tests.golden.heart import check, facts, table

SCHEMA = facts(
    table("users", {"id": "integer!", "name": "text"}),
    table("orders", {"id": "integer!", "user_id": "integer!", "total": "integer"}),
)
HEAD = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: t}
"""
ORDER = """
  order:
    table: orders
    join: {user: {table: users, on: {user_id: id}}}
    items:
      Order: {key: ["USER#{user_id}", "ORDER#{id:06}"], keep: [total], attributes: {name: user.name}}
"""
TEXT = f"""
entities:
  user:
    table: users
    items:
      User: {{key: ["USER#{{id}}", PROFILE], keep: [name]}}
{ORDER}
access_patterns:
  user: {{params: {{id: integer}}, get: {{key: ["USER#{{id}}", PROFILE]}}, returns: [name], sql: SELECT 1}}
  orders:
    params: {{id: integer}}
    query: {{key: ["USER#{{id}}", {{begins_with: "ORDER#"}}]}}
    returns: [total]
    sql: SELECT 1
    order: any
"""


def checked(text: str = TEXT) -> Checked:
    return check(text, SCHEMA, HEAD)


def test_a_direct_entity_is_not_among_those_that_stages_see() -> None:
    found = with_writes(checked(), ["order"])
    assert [one.name for one in found.entities] == ["user"]
    assert [one.name for one in found.direct] == ["order"]
    assert [one.name for one in found.read] == ["user", "order"]
    assert direct_tables(found.direct_plans, found.plans) == [
        "orders"
    ]  # users: somebody of ours reads it still


@pytest.mark.parametrize(
    ("item", "is_direct"),
    [
        ({"_src": "order:[1]", "type": "Order"}, True),
        ({"_src": "user:[1]", "type": "User"}, False),
        ({"_src": "user:[1]", "type": "Order"}, False),
        ({"type": "Order"}, True),
        ({"type": "User"}, False),
        ({"type": "Other"}, False),
        ({}, False),
        ({"_src": 7, "type": "Order"}, True),
    ],
)
def test_item_is_identified_by_its_source_or_else_by_its_type(
    item: dict[str, object], is_direct: bool
) -> None:
    found = with_writes(checked(), ["order"])
    assert direct_items(found, ()).has(item, found.mapping.table) is is_direct  # type: ignore[arg-type]


def test_patterns_that_give_its_items_are_its_own() -> None:
    assert patterns_reading(checked().mapping, ["order"]) == ["orders"]
    assert patterns_reading(checked().mapping, ["user", "order"]) == ["user", "orders"]
    assert patterns_reading(checked().mapping, []) == []


@pytest.mark.parametrize("names", [["orders"], ["user"]], ids=["you-mean", "order-users"])
def test_what_is_wrong_is_reported(names: list[str]) -> None:
    with pytest.raises(SettingsError) as told:
        with_writes(checked(), names)
    assert pins.said(str(told.value))


@pytest.mark.parametrize("region", ["us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1"])
def test_a_region_has_prices_with_their_date_and_page(region: str) -> None:
    price = price_of(region)
    assert price is not None
    assert Decimal("0.1") < price.read * 4 < price.write < 2
    assert Decimal("0.2") < price.storage < 1
    assert price.source.startswith("20")
    assert "aws.amazon.com/dynamodb/pricing" in price.source


def test_workers_of_glue_and_of_emr_have_prices_of_their_own() -> None:
    price = price_of("us-east-1")
    assert price is not None
    assert (price.glue_worker_hour, price.emr_worker_hour) == (Decimal("0.44"), Decimal("0.302952"))


def test_infrequent_access_costs_more_to_write_and_less_to_keep() -> None:
    price = price_of("us-east-1", "standard_infrequent_access")
    assert price is not None
    assert (price.write, price.storage) == (Decimal("0.78125"), Decimal("0.100"))
    assert price_of("us-east-1", "standard") == price_of("us-east-1")


def test_a_region_that_the_file_has_not_is_not_guessed() -> None:
    assert price_of("mars-north-1") is None
    assert price_of(None) is None
    assert "us-east-1" in known_regions()
