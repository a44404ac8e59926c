"""What access patterns give back: types, attributes and projections, each wrong use with its message."""

from __future__ import annotations

import pytest

from migrator.model.errors import MappingError
from tests import pins
from tests.golden.heart import check, facts, table

SCHEMA = facts(
    table("users", {"id": "integer!", "name": "text"}),
    table("orders", {"id": "integer!", "user_id": "integer!", "status": "text!", "total": "number(2)"}),
)
TEXT = """
mapping: 1
table:
  name: Shop
  key: [PK, SK]
  type: type
  indexes:
    GSI1: {key: [GSI1PK, GSI1SK], project: [total]}
    GSI2: {key: [GSI2PK, GSI2SK], project: keys}
entities:
  users:
    items:
      User: {key: ["USER#{id}", PROFILE], keep: all}
  orders:
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{id:06}"]
        GSI1: ["STATUS#{status}", "{id:06}"]
        GSI2: ["STATUS#{status}", "{id:06}"]
        keep: [total]
      OrderLog: {key: ["USER#{user_id}", "ORDER_LOG#{id:06}"], keep: [status]}
access_patterns:
  on_gsi1: {params: {s: text}, query: {index: GSI1, key: ["STATUS#{s}"]}, returns: [total], sql: SELECT 1}
  on_gsi2: {params: {s: text}, query: {index: GSI2, key: ["STATUS#{s}"]}, returns: [PK], sql: SELECT 1}
  p: {params: {id: integer}, query: %s, returns: %s, order: any, sql: %s}
"""


def text(query: str, returns: str) -> str:
    parts = [one.partition(":")[0].strip("{ ") for one in returns.split("{type")[:-1]]
    names = [part.rpartition(",")[2].strip() for part in parts]
    sql = "{" + ", ".join(f"{name}: SELECT 1" for name in names) + "}" if names else "SELECT 1"
    return TEXT % (query, returns, sql)


ALL = '{key: ["USER#{id}"]}'
ORDERS = '{key: ["USER#{id}", {begins_with: "ORDER#"}]}'

WRONG = {
    "an attribute": (ORDERS, "[totl]", "no item that the key gives has 'totl'; did you mean 'total'?"),
    "an attribute of another type": (ORDERS, "[status]", "no item that the key gives has 'status'"),
    "a column of keep: all": (ALL, "{u: {type: User, attributes: [nam]}}", "no item that the key gives has 'nam'; did you mean 'name'?"),
    "a type elsewhere": (ORDERS, "{u: {type: User, attributes: [id]}}", "no User has such a key; the key gives Order"),
    "not projected": ('{index: GSI1, key: ["STATUS#{id}"]}', "[status]", "the index GSI1 does not hold 'status'; add it to its project"),
    "keys only": ('{index: GSI2, key: ["STATUS#{id}"]}', "[total]", "the index GSI2 does not hold 'total'"),
}  # fmt: skip

WARNED = {
    "several types": (ALL, "[total]", "the key gives items of several types (Order, OrderLog, User); return parts by type"),
    "a type left out": (ALL, "{o: {type: Order, attributes: [total]}}", "the key also gives items of type OrderLog"),
    "an open prefix": ('{key: ["USER#{id}", {begins_with: ORDER}]}', "[total]", "several types (Order, OrderLog)"),
    "an index that no pattern asks": (ORDERS, "[total]", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_a_fault(name: str) -> None:
    query, returns, message = WRONG[name]
    with pytest.raises(MappingError) as caught:
        check(text(query, returns), SCHEMA, "")
    found = [str(fault) for fault in caught.value.faults if not fault.warning]
    assert any(message in fault for fault in found), found


@pytest.mark.parametrize("name", WARNED)
def test_a_risk_is_a_warning(name: str) -> None:
    query, returns, message = WARNED[name]
    found = [str(fault) for fault in check(text(query, returns), SCHEMA, "").warnings]
    assert any(message in fault for fault in found) if message else found == []


def test_an_index_and_an_attribute_that_no_pattern_reads_are_warnings() -> None:
    unread = text(ORDERS, "[total]").replace("project: [total]", "project: [total, status]")
    unread = "\n".join(line for line in unread.splitlines() if "on_gsi2" not in line)
    found = [fault.what for fault in check(unread, SCHEMA, "").warnings]
    assert found == [
        pins.text("storage"),
        pins.text("costs"),
    ]


def test_an_item_that_lacks_a_part_of_an_indexs_key_is_not_in_the_index() -> None:
    local = text('{index: ByTotal, key: ["USER#{id}"]}', "[total]").replace(
        "entities:", "    ByTotal: {key: [PK, {name: total, type: number}], local: true}\nentities:", 1
    )
    found = [fault.what for fault in check(local.replace("keep: all", "keep: [name]"), SCHEMA, "").warnings]
    assert not [what for what in found if "several types" in what]


def test_an_index_that_does_not_say_what_has_expired() -> None:
    expiring = TEXT.replace("  type: type\n", "  type: type\n  ttl: gone\n").replace(
        "keep: [total]\n", "keep: [total]\n        ttl: {from: id, days: 1}\n"
    )
    schema = facts(
        table("users", {"id": "integer!", "name": "text"}),
        table("orders", {"id": "timestamp!", "user_id": "integer!", "status": "text!", "total": "number(2)"}),
    )
    expiring = expiring.replace("{id:06}", "{id|iso}")

    def warnings(text: str) -> str:
        return "\n".join(map(str, check(text % (ORDERS, "[total]", "SELECT 1"), schema, "").warnings))

    assert pins.said(warnings(expiring), "ttl")
    assert pins.said(warnings(expiring), "other")
    there = warnings(expiring.replace("project: [total]", "project: [total, gone]"))
    assert not pins.said_by("test_an_index_that_does_not_say_what_has_expired ttl", there)
    assert "reads 'gone'" not in there
    without = warnings(expiring.replace("  ttl: gone\n", "").replace("ttl: {from: id, days: 1}", ""))
    assert not pins.said_by("test_an_index_that_does_not_say_what_has_expired ttl", without)
    assert not pins.said_by("test_an_index_that_does_not_say_what_has_expired other", without)
