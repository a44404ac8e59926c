"""What a pattern redacts is hidden wherever its column goes."""

from __future__ import annotations

import pytest

from migrator.mapping.check.check import Checked
from migrator.mapping.show.redaction import Redaction, hidden_by_pattern, redaction_of
from migrator.model.results import Hidden
from tests.golden import heart

USERS = heart.table("users", {"id": "integer!", "email": "text!", "name": "text", "born": "date"})
ORDERS = heart.table(
    "orders",
    {"id": "integer!", "user_id": "integer!", "total": "number(2)"},
    references={"user_id": "users.id"},
)
SCHEMA = heart.facts(USERS, ORDERS)
MAPPING = """
entities:
  user:
    table: users
    collect:
      orders: {of: orders, by: user_id, join: {buyer: user_id}, at_most: 9, order_by: [id]}
    columns: {domain: "split_part(email, '@', 2)", initial: "left(name, 1)"}
    items:
      User:
        key: ["USER#{id}", PROFILE]
        GSI1: ["EMAIL#{email|lower}", "{born}"]
        keep: [id, email]
        attributes:
          called: name
          contact: "{name} <{email}>"
          card: {map: {mail: email, called: name}}
          shop: {const: web}
          domain: domain
          initial: initial
          bought: {each: orders, attributes: {total: total, mail: buyer.email}}
          totals: {each: orders, attributes: {total: total}}
  order:
    table: orders
    join: {user: user_id}
    items:
      Order: {key: ["ORDER#{id}", META], attributes: {sum: total, buyer: user.email, buyerName: user.name}}
access_patterns:
  by_email:
    params: {email: text}
    query: {index: GSI1, key: ["EMAIL#{email|lower}"]}
    returns: [id, called]
    sql: SELECT 1
    redact: [REDACTED]
  user:
    params: {id: integer}
    get: {key: ["USER#{id}", PROFILE]}
    returns: [id, contact]
    sql: SELECT 1
  by_mail:
    params: {mail: text}
    query: {index: GSI1, key: ["EMAIL#{mail|lower}"]}
    returns: {users: {type: User, attributes: [id]}}
    sql: {users: SELECT 1}
  order:
    params: {id: integer}
    get: {key: ["ORDER#{id}", META]}
    returns: {order: {type: Order, one: true, attributes: [sum, buyer]}}
    sql: {order: SELECT 1}
"""


def made(redact: str) -> tuple[Checked, Redaction]:
    checked = heart.check(MAPPING.replace("REDACTED", redact), SCHEMA)
    return checked, redaction_of(checked.mapping, [one.plan for one in checked.entities])


def hidden(redact: str) -> dict[str, set[str]]:
    checked, redaction = made(redact)
    plans = [entity.plan for entity in checked.entities]
    return {
        design.type: set(redaction.hidden(plan, design)) for plan in plans for design in plan.entity.items
    }


@pytest.mark.parametrize("redact", ["email"])
def test_a_column_is_hidden_in_every_item_that_is_made_of_it(redact: str) -> None:
    assert hidden(redact) == {
        "User": {"email", "contact", "card", "domain", "bought"},
        "Order": {"email", "buyer"},
    }


def test_an_attribute_hides_the_column_behind_it() -> None:
    assert hidden("called") == {
        "User": {"called", "contact", "card", "initial"},
        "Order": {"called", "buyerName"},
    }


def test_a_pattern_hides_what_another_one_redacts() -> None:
    checked, _ = made("email")
    found = hidden_by_pattern(checked.mapping, [one.plan for one in checked.entities])
    assert set(found["order"].attributes) == {"email", "buyer"}
    assert {"email", "contact", "buyer"} <= found["user"].attributes
    assert {name: set(one.params) for name, one in found.items()} == {
        "by_email": {"email"},
        "user": set(),
        # Another name for the same column.
        "by_mail": {"mail"},
        "order": set(),
    }


def test_keys_are_hidden_by_their_columns() -> None:
    checked, redaction = made("email")
    plan = checked.entities[0].plan
    (design,) = plan.entity.items
    assert [redaction.hides_key(plan, one) for one in design.key] == [False, False]
    assert [redaction.hides_key(plan, one) for one in design.entries[0].values] == [True, False]


def test_nothing_is_hidden_where_nothing_is_redacted() -> None:
    checked = heart.check(MAPPING.replace("    redact: [REDACTED]\n", ""), SCHEMA)
    plans = [one.plan for one in checked.entities]
    assert redaction_of(checked.mapping, plans) == Redaction(frozenset(), frozenset())
    assert set(hidden_by_pattern(checked.mapping, plans).values()) == {Hidden()}
