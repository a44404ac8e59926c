"""Faults of mapping files: each wrong use with the message that it gets."""

from __future__ import annotations

import pytest

from migrator.model.errors import MappingError
from tests import pins
from tests.golden.heart import HEAD, check, facts, faults, table

USERS = table(
    "users", {"id": "integer!", "email": "text", "org": "text", "seen": "timestamp", "tags": "unknown"}
)
ORDERS = table(
    "orders",
    {"id": "integer!", "user_id": "integer", "total": "number(2)", "status": "text", "PK": "text"},
    references={"user_id": "users.id"},
)
LINES = table("lines", {"order_id": "integer!", "no": "integer!", "name": "text"}, ("order_id", "no"))
LOGS = table("logs", {"text": "text"}, ())
SCHEMA = facts(USERS, ORDERS, LINES, LOGS)

USER = """
entities:
  users:
    items:
      User: {key: ["USER#{id}", META], %s}
"""
ORDER = """
entities:
  orders:
    %s
    items:
      Order: {key: ["ORDER#{id}", META], %s}
"""
PATTERN = """
entities:
  users:
    items:
      User: {key: ["USER#{id}", META], keep: [id], GSI1: ["EMAIL#{email|lower}", "USER#{id:06}"]}
access_patterns:
  p:
    params: {id: integer, email: text}
    %s
    returns: [id]
    sql: SELECT 1
"""

WRONG: list[tuple[str, str]] = [
    ("a column", USER % "keep: [emial]"),
    (
        "a column in a key",
        USER % 'GSI1: ["A#{idd}", M]',
    ),
    ("a table", ORDER % ("table: ordres", "")),
    (
        "a filter",
        USER % 'attributes: {x: "{email|lowr}"}',
    ),
    (
        "an index",
        USER % 'GSI2: ["A", "B"]',
    ),
    (
        "a map",
        USER % "attributes: {x: email|map:statuss}",
    ),
    (
        "a word",
        USER % "keeep: all",
    ),
    (
        "a word of an entity",
        ORDER % ("wher: {a: 1}", ""),
    ),
    (
        "an alias",
        ORDER % ("join: {user: user_id}", "attributes: {x: usr.email}"),
    ),
    ("an earlier alias", ORDER % ("join: {user: usr.user_id}", "")),
    ("no foreign key", ORDER % ("join: {user: total}", "")),
    (
        "a join that can multiply",
        ORDER % ("join: {u: {table: users, on: {status: email}}}", ""),
    ),
    (
        "a collection without a key to us",
        ORDER % ("collect: {l: {of: logs, by: text}}", ""),
    ),
    (
        "two aggregates in one",
        ORDER % ("collect: {l: {of: lines, by: order_id, sum: no, max: no}}", ""),
    ),
    (
        "a sum of texts",
        ORDER % ("collect: {l: {of: lines, by: order_id, sum: name}}", ""),
    ),
    (
        "a list as a value",
        ORDER % ("collect: {l: {of: lines, by: order_id}}", "attributes: {x: l}"),
    ),
    (
        "each of no list",
        USER % "attributes: {x: {each: l, attributes: {a: b}}}",
    ),
    (
        "at_most and first",
        ORDER % ("collect: {l: {of: lines, by: order_id, at_most: 1, first: 1}}", ""),
    ),
    ("padding of a text", USER % 'GSI1: [A, "{email:06}"]'),
    (
        "a time filter on a text",
        USER % "attributes: {x: email|iso}",
    ),
    ("a format that is none", USER % 'GSI1: [A, "{id:6}"]'),
    ("a format outside of braces", USER % 'attributes: {x: "id:06"}'),
    (
        "an argument too many",
        USER % "attributes: {x: email|lower:x}",
    ),
    (
        "an argument that is none",
        USER % "attributes: {x: seen|iso:min}",
    ),
    ("a brace that stays open", USER % 'attributes: {x: "{id"}'),
    ("a brace too many", USER % 'attributes: {x: "id}"}'),
    ("an empty brace", USER % 'attributes: {x: "{}"}'),
    (
        "a key with too few parts",
        'entities: {users: {items: {User: {key: ["USER#{id}"]}}}}',
    ),
    (
        "an index with too many parts",
        USER % "GSI1: [A, B, C]",
    ),
    (
        "a kept column of our name",
        ORDER % ("", "keep: all"),
    ),
    ("an attribute of our name", USER % "attributes: {_src: email}"),
    (
        "a type without a rule",
        USER % "keep: all",
    ),
    ("a TTL from a text", USER % "ttl: email"),
    (
        "a table without a key",
        'entities: {logs: {items: {Log: {key: ["LOG#{text}", M]}}}}',
    ),
    (
        "two open parts",
        'entities: {users: {items: {User: {key: ["U#{org}#{email}", "{id:06}"]}}}}',
    ),
    (
        "a pattern without its key",
        PATTERN % 'query: {key: ["USR#{id}"]}',
    ),
    (
        "a pattern with another padding",
        PATTERN % 'query: {key: ["USER#{id:06}"]}',
    ),
    (
        "a pattern with another filter",
        PATTERN % 'query: {index: GSI1, key: ["EMAIL#{email}"]}',
    ),
    (
        "a pattern of no index",
        PATTERN % 'query: {index: GSI9, key: ["USER#{id}"]}',
    ),
    (
        "a pattern's parameter",
        PATTERN % 'query: {key: ["USER#{idd}"]}',
    ),
    ("a range over a partition key", PATTERN % 'query: {key: [{ge: "USER#"}]}'),
    (
        "a pattern that scans",
        PATTERN % "",
    ),
    ("two sort conditions", PATTERN % 'query: {key: ["USER#{id}", {ge: A, le: B}]}'),
    (
        "a sort key that is not there",
        PATTERN % 'query: {key: ["USER#{id}", PROFILE]}',
    ),
]

WARNED: list[tuple[str, str]] = [
    ("an unpadded number", USER % 'GSI1: [A, "{id}"]'),
    (
        "a key that nothing proves",
        'entities: {users: {items: {E: {key: ["E#{email}", E]}}}}',
    ),
    (
        "an open prefix",
        PATTERN % 'query: {key: ["USER#{id}", {begins_with: MET}]}',
    ),
    (
        "an order that the separator breaks",
        PATTERN.replace("META", '"{email}#{id:06}"') % 'query: {key: ["USER#{id}"]}',
    ),
]


@pytest.mark.parametrize("text", [case[1] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_use_is_a_fault(text: str) -> None:
    with pytest.raises(MappingError) as caught:
        check(text, SCHEMA)
    serious = [str(fault) for fault in caught.value.faults if not fault.warning]
    assert pins.said(serious)


@pytest.mark.parametrize("text", [case[1] for case in WARNED], ids=[case[0] for case in WARNED])
def test_a_risk_is_a_warning(text: str) -> None:
    warnings = check(text, SCHEMA).warnings
    assert pins.said(warnings)


def test_every_fault_comes_at_once_with_its_line() -> None:
    text = """
entities:
  users:
    items:
      User:
        key: ["USER#{id}", "{email|lowr}"]
        GSI9: [A, B]
        keep: [emial, seeen]
  orders:
    colect: {}
    items:
      Order: {key: ["ORDER#{idd}", META]}
"""
    first = HEAD.count("\n") + 1
    found = faults(text, SCHEMA)
    lines = sorted(int(fault.split(":")[1]) for fault in found)
    assert lines == [first + 5, first + 6, first + 7, first + 7, first + 9, first + 11]


@pytest.mark.parametrize("type_", ["_tombstone", "_control"])
def test_a_type_of_our_own_is_refused(type_: str) -> None:
    found = faults(USER.replace("User: {", f"{type_}: {{") % "keep: [id]", SCHEMA)
    assert pins.said(found, type=type_)


@pytest.mark.parametrize(
    ("index", "warned"),
    [
        ("{key: [SK, PK], project: keys}", True),
        ("{key: [SK], project: [email]}", True),
        ("{key: [SK, PK]}", False),
        ("{key: [SK, PK], project: [type, email]}", False),
        ("{key: [SK, GSI1SK], project: keys}", False),
    ],
)
def test_an_index_whose_readers_cannot_tell_tombstones_is_a_warning(index: str, *, warned: bool) -> None:
    head = HEAD.replace("    GSI1: {key", f"    ByBack: {index}\n    GSI1: {{key")
    found = faults(USER % "keep: [id, email]", SCHEMA, head)
    if warned:
        assert pins.said(found)
    else:
        assert not pins.said_by("test_an_index_whose_readers_cannot_tell_tombstones_is_a_warning", found)
