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

WRONG: list[tuple[str, str, str]] = [
    ("a column", USER % "keep: [emial]", "table users has no column 'emial'; did you mean 'email'?"),
    (
        "a column in a key",
        USER % 'GSI1: ["A#{idd}", M]',
        "table users has no column 'idd'; did you mean 'id'?",
    ),
    ("a table", ORDER % ("table: ordres", ""), "the source has no table 'ordres'; did you mean 'orders'?"),
    (
        "a filter",
        USER % 'attributes: {x: "{email|lowr}"}',
        "there is no filter 'lowr'; did you mean 'lower'?",
    ),
    (
        "an index",
        USER % 'GSI2: ["A", "B"]',
        "'GSI2' is no index of the table and no word of an item; did you mean 'GSI1'?",
    ),
    (
        "a map",
        USER % "attributes: {x: email|map:statuss}",
        "there is no map 'statuss'; did you mean 'status'?",
    ),
    (
        "a word",
        USER % "keeep: all",
        "'keeep' is no index of the table and no word of an item; did you mean 'keep'?",
    ),
    (
        "a word of an entity",
        ORDER % ("wher: {a: 1}", ""),
        "'wher' is not a word of this place; did you mean 'where'?",
    ),
    (
        "an alias",
        ORDER % ("join: {user: user_id}", "attributes: {x: usr.email}"),
        "there is no alias 'usr'; did you mean 'user'?",
    ),
    ("an earlier alias", ORDER % ("join: {user: usr.user_id}", ""), "there is no earlier alias 'usr'"),
    ("no foreign key", ORDER % ("join: {user: total}", ""), "orders declares no foreign key on total"),
    (
        "a join that can multiply",
        ORDER % ("join: {u: {table: users, on: {status: email}}}", ""),
        "nothing says that users has one row at most",
    ),
    (
        "a collection without a key to us",
        ORDER % ("collect: {l: {of: logs, by: text}}", ""),
        "no primary key; say order_by",
    ),
    (
        "two aggregates in one",
        ORDER % ("collect: {l: {of: lines, by: order_id, sum: no, max: no}}", ""),
        "is sum and max at once",
    ),
    (
        "a sum of texts",
        ORDER % ("collect: {l: {of: lines, by: order_id, sum: name}}", ""),
        "lines.name is text, which cannot be summed",
    ),
    (
        "a list as a value",
        ORDER % ("collect: {l: {of: lines, by: order_id}}", "attributes: {x: l}"),
        "'l' is a list; write {each: l",
    ),
    (
        "each of no list",
        USER % "attributes: {x: {each: l, attributes: {a: b}}}",
        "'l' is no list of this entity",
    ),
    (
        "at_most and first",
        ORDER % ("collect: {l: {of: lines, by: order_id, at_most: 1, first: 1}}", ""),
        "at_most refuses a row, first cuts it",
    ),
    ("padding of a text", USER % 'GSI1: [A, "{email:06}"]', "the format 06 pads numbers; 'email' is text"),
    (
        "a time filter on a text",
        USER % "attributes: {x: email|iso}",
        "the filter 'iso' takes date or timestamp; this is text",
    ),
    ("a format that is none", USER % 'GSI1: [A, "{id:6}"]', "the format '6' is not known"),
    ("a format outside of braces", USER % 'attributes: {x: "id:06"}', "has a format outside of braces"),
    (
        "an argument too many",
        USER % "attributes: {x: email|lower:x}",
        "the filter 'lower' takes 0 argument(s), not 1",
    ),
    (
        "an argument that is none",
        USER % "attributes: {x: seen|iso:min}",
        "the filter 'iso': knows s, ms, basic and ms,basic, not 'min'",
    ),
    ("a brace that stays open", USER % 'attributes: {x: "{id"}', "a '{' that is never closed"),
    ("a brace too many", USER % 'attributes: {x: "id}"}', "a '}' without its '{'"),
    ("an empty brace", USER % 'attributes: {x: "{}"}', "names no column"),
    (
        "a key with too few parts",
        'entities: {users: {items: {User: {key: ["USER#{id}"]}}}}',
        "has 1 part(s); the table's key is PK and SK",
    ),
    (
        "an index with too many parts",
        USER % "GSI1: [A, B, C]",
        "has 3 part(s); the key of GSI1 is GSI1PK, GSI1SK",
    ),
    (
        "a kept column of our name",
        ORDER % ("", "keep: all"),
        "the column 'PK' has the name of an attribute that migrator writes",
    ),
    ("an attribute of our name", USER % "attributes: {_src: email}", "'_src' is written by migrator itself"),
    (
        "a type without a rule",
        USER % "keep: all",
        "'tags' is of type unknown, which has no form in an item; write columns: {tags_text:",
    ),
    ("a TTL from a text", USER % "ttl: email", "'email' is text; a TTL comes from a timestamp"),
    (
        "a table without a key",
        'entities: {logs: {items: {Log: {key: ["LOG#{text}", M]}}}}',
        "logs has no primary key; say which columns name a row",
    ),
    (
        "two open parts",
        'entities: {users: {items: {User: {key: ["U#{org}#{email}", "{id:06}"]}}}}',
        "two rows can make one PK",
    ),
    (
        "a pattern without its key",
        PATTERN % 'query: {key: ["USR#{id}"]}',
        "no item has a partition key of this form",
    ),
    (
        "a pattern with another padding",
        PATTERN % 'query: {key: ["USER#{id:06}"]}',
        "no item has a partition key of this form",
    ),
    (
        "a pattern with another filter",
        PATTERN % 'query: {index: GSI1, key: ["EMAIL#{email}"]}',
        "there are: EMAIL#{email|lower}",
    ),
    (
        "a pattern of no index",
        PATTERN % 'query: {index: GSI9, key: ["USER#{id}"]}',
        "there is no index 'GSI9'; did you mean 'GSI1'?",
    ),
    (
        "a pattern's parameter",
        PATTERN % 'query: {key: ["USER#{idd}"]}',
        "there is no parameter 'idd'; did you mean 'id'?",
    ),
    ("a range over a partition key", PATTERN % 'query: {key: [{ge: "USER#"}]}', "never by a range"),
    (
        "a pattern that scans",
        PATTERN % "",
        "needs one of query:, get: and batch_get:; a Scan is no access pattern",
    ),
    ("two sort conditions", PATTERN % 'query: {key: ["USER#{id}", {ge: A, le: B}]}', "exactly one condition"),
    (
        "a sort key that is not there",
        PATTERN % 'query: {key: ["USER#{id}", PROFILE]}',
        "no item of this partition has such a sort key; there are: META",
    ),
]

WARNED: list[tuple[str, str, str]] = [
    ("an unpadded number", USER % 'GSI1: [A, "{id}"]', "the number 'id' is not padded, so 10 sorts before 9"),
    (
        "a key that nothing proves",
        'entities: {users: {items: {E: {key: ["E#{email}", E]}}}}',
        "nothing proves that no other row makes this key",
    ),
    (
        "an open prefix",
        PATTERN % 'query: {key: ["USER#{id}", {begins_with: MET}]}',
        "also matches longer names",
    ),
    (
        "an order that the separator breaks",
        PATTERN.replace("META", '"{email}#{id:06}"') % 'query: {key: ["USER#{id}"]}',
        "sorts otherwise than in SQL",
    ),
]


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_use_is_a_fault(text: str, message: str) -> None:
    with pytest.raises(MappingError) as caught:
        check(text, SCHEMA)
    serious = [str(fault) for fault in caught.value.faults if not fault.warning]
    assert any(message in fault for fault in serious), serious


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in WARNED], ids=[case[0] for case in WARNED])
def test_a_risk_is_a_warning(text: str, message: str) -> None:
    warnings = check(text, SCHEMA).warnings
    assert any(message in str(fault) for fault in warnings), warnings


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
