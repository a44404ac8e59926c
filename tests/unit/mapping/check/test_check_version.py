"""The version by which an application locks: what may name it, and what its column must be."""

from __future__ import annotations

import pytest

from migrator.mapping.heart.changes import captured_tables
from tests.golden.heart import HEAD, check, entity, facts, faults, items, table

SCHEMA = facts(
    table(
        "orders",
        {
            "id": "integer!",
            "user_id": "integer!",
            "lock": "integer!",
            "maybe": "integer",
            "whole": "number(0)!",
            "cents": "number(2)!",
            "label": "text!",
            "seen": "timestamp!",
            "two words": "integer!",
        },
        references={"user_id": "users.id"},
    ),
    table("users", {"id": "integer!", "lock": "integer!"}),
)
TEXT = """
entities:
  order:
    table: orders
    join: {user: user_id}
    columns: {twice: {sql: "lock * 2", type: integer}}
    attributes: {note: label, theirs: user.id}
    version: %s
    items:
      Order: {key: ["ORDER#{id}", META], attributes: {title: label}}
      Line: {key: ["ORDER#{id}", LINE], keep: [lock, label]}
"""
LINE = len(HEAD.splitlines()) + TEXT[: TEXT.index("version")].count("\n") + 1


@pytest.mark.parametrize(
    ("version", "attribute"),
    [
        ("lock", "lock"),
        ("whole", "whole"),
        ("{attribute: version, from: lock}", "version"),
        ("two words", "two words"),
    ],
)
def test_every_item_carries_the_version(version: str, attribute: str) -> None:
    assert faults(TEXT % version, SCHEMA) == []
    row = {"id": 7, "user_id": 1, "lock": 3, "whole": 3, "two words": 3, "label": "x", "user.lock": 9}
    made = items(entity(TEXT % version, SCHEMA), row)
    assert [one[attribute] for one in made] == [3, 3]


WRONG = {
    "no column": ("lok", "table orders has no column 'lok'; did you mean 'lock'?"),
    "not whole": ("cents", "'cents' is number (number(2)!); optimistic locking counts in whole numbers"),
    "a text": ("label", "'label' is text"),
    "a time": ("{attribute: v, from: seen}", "'seen' is timestamp"),
    "a column of a parent": ("user.lock", "name one column of the row itself, without a filter"),
    "a filter": ("lock|text", "name one column of the row itself, without a filter"),
    "a template": ('"{lock}"', "name one column of the row itself, without a filter"),
    "several columns": ('"lock,id|geohash:5"', "name one column of the row itself, without a filter"),
    "a computed column": ("twice", "'twice' is no column of orders"),
    "an attribute of ours": ("{attribute: _tk, from: lock}", "'_tk' is written by migrator itself"),
    "a key": ("{attribute: PK, from: lock}", "'PK' is written by migrator itself"),
    "the ttl": ("{attribute: expiresAt, from: lock}", "'expiresAt' is written by migrator itself"),
    "an attribute of the entity": ("{attribute: note, from: lock}", "'note' stands in attributes too"),
    "an attribute of an item": (
        "{attribute: title, from: lock}",
        "'title' stands in items.Order.attributes too",
    ),
    "half of a form": ("{attribute: v}", "'from' is missing"),
    "a list": ("[lock]", "version"),
    "a number": ("7", "version"),
    "nothing": ('""', "version"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_a_fault_with_its_line(name: str) -> None:
    version, message = WRONG[name]
    found = [one for one in faults(TEXT % version, SCHEMA) if ": warning: " not in one]
    assert any(message in one for one in found), found
    assert all(one.startswith(f"m.yaml:{LINE}: entities.order.version") for one in found), found


def test_a_column_that_may_be_null_is_a_warning() -> None:
    (warning,) = faults(TEXT % "maybe", SCHEMA)
    assert warning.startswith(f"m.yaml:{LINE}: warning: entities.order.version: 'maybe' may be NULL")
    row = {"id": 7, "user_id": 1, "lock": 3, "label": "x"}
    assert not [one for one in items(entity(TEXT % "maybe", SCHEMA), row) if "maybe" in one]


def test_a_change_of_the_version_alone_leaves_a_mark() -> None:
    plain = "".join(line for line in TEXT.splitlines(keepends=True) if "columns:" not in line)
    (made,) = check(plain % "{attribute: v, from: whole}", SCHEMA).entities
    assert "whole" in (captured_tables([made.plan])["orders"].watched or ())
