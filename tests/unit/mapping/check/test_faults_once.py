"""A mistake in a mapping is one fault: what follows from it is not reported as well."""

from __future__ import annotations

import pytest

from migrator.runtime.errors import MappingError
from tests.golden.heart import check, facts, table

SCHEMA = facts(
    table("users", {"id": "integer!", "name": "text!"}),
    table("orders", {"id": "integer!", "user_id": "integer!", "placed_at": "timestamp!"}),
)
ORDERS = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  orders:
    join: {user: {table: users, on: {user_id: id}}}
    items:
      Order: {key: ["USER#{user_id}", "ORDER#{placed_at|iso}#{id:010}"], attributes: {userName: user.name}}
access_patterns:
  of_user:
    params: {user_id: integer}
    query: {key: ["USER#{user_id}", {begins_with: "ORDER#"}]}
    returns: [userName]
    sql: SELECT name FROM orders
"""


@pytest.mark.parametrize(
    ("right", "wrong", "where"),
    [
        ("    items:", "    itms:", "entities.orders.itms"),
        ("    returns:", "    retruns:", "access_patterns.of_user.retruns"),
        ("on: {user_id", "on: {usr_id", "entities.orders.join.user.on.usr_id"),
        ("placed_at|iso", "placed_at|isoo", "entities.orders.items.Order.key.1"),
    ],
)
def test_a_misspelled_word_is_one_fault(right: str, wrong: str, where: str) -> None:
    with pytest.raises(MappingError) as raised:
        check(ORDERS.replace(right, wrong, 1), SCHEMA, head="")
    assert [fault.where for fault in raised.value.faults] == [where]
    assert "did you mean" in raised.value.faults[0].what
