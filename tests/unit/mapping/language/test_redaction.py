"""What a pattern redacts is hidden wherever its column goes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.mapping.check.check import Checked
from migrator.mapping.language.redaction import (
    Redaction,
    hidden_by_pattern,
    integers_of,
    json_text,
    key_templates,
    mask,
    masked_keys,
    redaction_of,
    value_text,
    value_texts,
)
from migrator.mapping.model.results import Hidden
from migrator.mapping.model.table import encode_key
from tests.golden import heart
from tests.support_mapping import parse_mapping

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


def test_pattern_hides_values_that_another_one_redacts() -> None:
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


def test_nothing_is_hidden_if_nothing_is_redacted() -> None:
    checked = heart.check(MAPPING.replace("    redact: [REDACTED]\n", ""), SCHEMA)
    plans = [one.plan for one in checked.entities]
    assert redaction_of(checked.mapping, plans) == Redaction(frozenset(), frozenset())
    assert set(hidden_by_pattern(checked.mapping, plans).values()) == {Hidden()}


KEYED = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
source: {schemas: [acme]}
entities:
  users:
    items:
      User: {key: ["TENANT#{@schema}#USER#{id:010}", META]}
      Email: {key: ["EMAIL#{email|lower}", EMAIL]}
      Visit: {key: ["U-{name}/{day}", "{at|iso:s}"]}
      Any: {key: ["{name}", "{name}{city}#END"]}
"""
TEMPLATES = key_templates(parse_mapping(KEYED, "m.yaml").mapping)
UUID = "7f6b1c1e-0d55-4b8e-9d6e-3a1f0a3d0b11"
ANN = mask("ann@example.com")


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (["EMAIL#ann@example.com", "EMAIL"], [f"EMAIL#{ANN}", "EMAIL"]),
        (["TENANT#acme#USER#0000000042", "META"], ["TENANT#acme#USER#0000000042", "META"]),
        (["TENANT#acme#USER#0012345678", "META"], [f"TENANT#acme#USER#{mask('0012345678')}", "META"]),
        (["TENANT#bolt#USER#1", "META"], [f"{mask('TENANT')}#{mask('bolt')}#{mask('USER')}#1", "META"]),
        (["U-Ann/2026-01-02", "2026-01-02T03:04:05Z"], [f"U-{mask('Ann')}/2026-01-02", "2026-01-02T03:04:05Z"]),
        ([UUID, "2026-01"], [UUID, "2026-01"]),
        (["+491701234567", "4111 1111"], [mask("+491701234567"), mask("4111 1111")]),
        (["Ann#END", "#END"], [f"{mask('Ann')}#END", "#END"]),
        ([42, None, True, {"b64": "QW5u"}], [42, None, True, mask('{"b64": "QW5u"}')]),
        (["EMAIL#EMAIL#x", "12.50"], [f"EMAIL#{mask('EMAIL#x')}", "12.50"]),
    ],
)  # fmt: skip
def test_only_parts_that_name_no_person_stay(key: list[object], shown: list[object]) -> None:
    text = (
        encode_key(key) if not any(isinstance(one, dict) for one in key) else '[42,null,true,{"b64":"QW5u"}]'
    )
    assert masked_keys(text, TEMPLATES) == encode_key(shown)


def test_integers_of_the_row_stay_in_its_items() -> None:
    known = integers_of('[12345678,"ann"]')
    assert known == {"12345678"}
    key = '["TENANT#acme#USER#0012345678","META"]'
    assert masked_keys(key, TEMPLATES, known) == key


def test_keys_in_a_sentence_are_masked_and_the_sentence_stays() -> None:
    said = 'Email: users ["ann@example.com"] makes the same key as users [7] [and [more'
    assert (
        masked_keys(said, TEMPLATES) == f'Email: users ["{ANN}"] makes the same key as users [7] [and [more'
    )


def test_without_a_mapping_all_text_is_masked() -> None:
    assert masked_keys('["EMAIL#ann@example.com","7"]', ()) == f'["{mask("EMAIL")}#{ANN}","7"]'


@given(st.text(alphabet="ghijk@.-+ ", min_size=3))
def test_a_name_never_shows_wherever_it_stands(name: str) -> None:
    for key in ([name], [f"EMAIL#{name}", f"{name}#END"], [f"U-{name}/{name}", f"TENANT#{name}"]):
        assert name not in masked_keys(encode_key(key), TEMPLATES)


TEXTS = [
    (None, "null"),
    (True, "true"),
    (7, "7"),
    (Decimal("9.90"), "9.90"),
    (Decimal("12345678901234567890.123456789"), "12345678901234567890.123456789"),
    ("9.90", '"9.90"'),
    ("Zoë \u2028</script>", '"Zoë \u2028</script>"'),
    ("\ud800", '"\ud800"'),
    (b"\x00\xff", '{"b64": "AP8="}'),
    ([1, {"a": Decimal("0.1")}], '[1, {"a": 0.1}]'),
    ((), "[]"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS)
def test_a_value_is_json_with_every_digit(value: Any, text: str) -> None:
    assert value_text(value) == text
    assert json.loads(text) is not ...


def test_redacted_values_are_masked_and_null_is_shown() -> None:
    names = ("id", "email", "phone")
    shown = value_texts(names, (1, "ann@x.example", None), {"email", "phone"})
    assert shown[0] == "1"
    assert shown[1].startswith("…")
    assert "ann" not in shown[1]
    assert shown[2] == "null"
    assert value_texts(names, (2, "ann@x.example", 3), {"email"})[1] == shown[1]
    assert value_texts(names, (2, "bob@x.example", 3), {"email"})[1] != shown[1]


def test_numbers_are_numbers_with_every_digit_in_json() -> None:
    value = {
        "total": Decimal("32.38"),
        "text": "32.38",
        "whole": Decimal("9.00"),
        "lines": [{"n": 1}],
        "no": [],
    }
    assert json_text(value) == (
        '{"total": 32.38, "text": "32.38", "whole": 9, "lines": [{"n": 1}], "no": []}'
    )
    assert json_text(Decimal("12345678901234567890.123456789")) == "12345678901234567890.123456789"
    plain = {"a": [1, {"b": None}], "c": {}, "d": "ä"}
    assert json_text(plain, indent=2) == json.dumps(plain, ensure_ascii=False, indent=2)
