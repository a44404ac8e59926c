"""Which item types are written together, and what a pattern that says `atomic: true` is warned of."""

from __future__ import annotations

import pytest

from migrator.mapping.check.keys import written_together
from tests import pins
from tests.golden.heart import check, facts, table

SCHEMA = facts(
    table("users", {"id": "integer!", "name": "text"}),
    table("orders", {"id": "integer!", "user_id": "integer!", "total": "integer"}),
)
HEAD = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: t, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
"""
TEXT = """
entities:
  user:
    table: users
    items:
      User: {key: ["USER#{id}", PROFILE], keep: [name]}
      Badge: {key: ["USER#{id}", BADGE], keep: [name], GSI1: [BADGES, "{id:06}"]}
      Alias: {key: ["ALIAS#{id}", ALIAS], keep: [name]}
  order:
    table: orders
    items:
      Order: {key: ["USER#{user_id}", "ORDER#{id:06}"], keep: [total]}
access_patterns:
"""
USER = 'params: {id: integer}, query: {key: ["USER#{id}"]}'
BADGES = "query: {index: GSI1, key: [BADGES]}, returns: [name], sql: SELECT 1"
PARTS = {
    "user": "user: {type: User, attributes: [name]}",
    "badge": "badge: {type: Badge, attributes: [name]}",
    "order": "order: {type: Order, attributes: [total]}",
}


def pattern(*parts: str, key: str = USER, atomic: str = "true") -> str:
    sql = ", ".join(f"{part}: SELECT 1" for part in parts)
    returns = ", ".join(PARTS[part] for part in parts)
    return f"{{{key}, returns: {{{returns}}}, sql: {{{sql}}}, order: any, atomic: {atomic}}}"


def together(*patterns: str) -> dict[str, set[str]]:
    text = TEXT + "".join(f"  p{number}: {one}\n" for number, one in enumerate(patterns))
    return {name: set(types) for name, types in written_together(check(text, SCHEMA, HEAD).mapping).items()}


def warnings(*patterns: str, text: str = TEXT) -> list[str]:
    text += "".join(f"  p{number}: {one}\n" for number, one in enumerate(patterns))
    return [str(one) for one in check(text, SCHEMA, HEAD).warnings if ".atomic" in one.where]


def test_only_patterns_that_say_so_are_atomic() -> None:
    assert together(pattern("user", "badge", atomic="false")) == {}


def test_types_that_the_answer_names_are_written_together() -> None:
    assert together(pattern("user", "badge")) == {"user": {"User", "Badge"}}


def test_without_named_types_all_that_the_key_can_give_are() -> None:
    plain = f"{{{USER}, returns: [name], sql: SELECT 1, atomic: true}}"
    assert together(plain) == {"user": {"User", "Badge"}, "order": {"Order"}}


def test_two_patterns_that_read_one_entity_make_one_group() -> None:
    alias = 'params: {id: integer}, get: {key: ["ALIAS#{id}", ALIAS]}, returns: [name], sql: SELECT 1'
    assert together(pattern("user"), f"{{{alias}, atomic: true}}") == {"user": {"User", "Alias"}}


def test_a_pattern_over_rows_of_several_entities_is_told_what_it_cannot_have() -> None:
    (warning,) = warnings(pattern("user", "order"))
    assert pins.said(warning)
    assert warning.startswith("m.yaml:17: warning: ")


def test_a_pattern_of_one_item_a_row_is_told_that_it_gains_little() -> None:
    (warning,) = warnings(pattern("order"))
    assert pins.said(warning)


def test_a_global_index_is_told_to_follow_item_by_item() -> None:
    found = warnings(f"{{{BADGES}, atomic: true}}")
    assert pins.said(found)


def test_a_pattern_that_can_be_had_is_not_warned_of() -> None:
    assert warnings(pattern("user", "badge")) == []


@pytest.mark.parametrize(("count", "is_told"), [(50, False), (51, True), (100, True), (101, True)])
def test_more_items_than_a_transaction_takes_are_told(count: int, *, is_told: bool) -> None:
    items = "".join(
        f'      N{n}: {{key: ["MANY#{{id}}", "N#{n:03}"], keep: [total]}}\n' for n in range(count)
    )
    text = TEXT.replace(
        "access_patterns:", f"  many:\n    table: orders\n    items:\n{items}access_patterns:"
    )
    many = 'params: {id: integer}, query: {key: ["MANY#{id}"]}, returns: [total], sql: SELECT 1'
    found = warnings(f"{{{many}, atomic: true}}", text=text)
    assert len(found) == is_told
    assert not is_told or pins.said(found)
