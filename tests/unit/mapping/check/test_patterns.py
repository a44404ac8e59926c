"""Access patterns in wrong use, each with the message that it gets."""

from __future__ import annotations

import pytest

from migrator.mapping.check.check import check_form
from migrator.mapping.language.parse import examine_mapping
from migrator.runtime.errors import MappingError
from tests import pins
from tests.golden.heart import check, facts, table
from tests.golden.patterns import faults, the_pattern

QUERY = "params: {tenant: text, id: integer, ids: list of integer, least: number, when: timestamp, flag: boolean}\nquery: %s"
KEY = 'key: ["EVENT#{tenant}"]'
ASKED = QUERY % ("{" + KEY)
NEAR = """
params: {lat: number, lng: number, other: number, name: text, radius: text}
query: {index: ByCell, key: ["G#{*lat,lng|geohash:6}"]%s}
near: {from: [%s], at: [lat, lng], within_m: %s}
"""
GET = "params: {tenant: text, ids: list of integer, more: list of text, id: integer}\n"

WRONG = [
    ("a range first", QUERY % '{key: [{ge: "A"}]}'),
    ("an unknown index", QUERY % '{index: ByTenat, key: ["a"]}'),
    ("a partition attribute is missing", QUERY % '{index: ByTenant, key: [["{tenant}"]]}'),
    ("one text for two attributes", QUERY % '{index: ByTenant, key: ["{tenant}"]}'),
    ("too many conditions", QUERY % '{index: ByTenant, key: [["{tenant}", "{tenant}"], ["a", "{id}", "b"]]}'),
    ("no sort key", QUERY % '{index: ByDigest, key: ["{tenant}", "b"]}'),
    ("a range before the last", QUERY % '{index: ByTenant, key: [["{tenant}", "{tenant}"], [{ge: "a"}, "{id}"]]}'),
    ("two ranges at once", QUERY % '{key: ["EVENT#{tenant}", {ge: "E#", le: "E#~"}]}'),
    ("two stars", QUERY % '{key: ["{*|shard:4}{*|shard:4}"]}'),
    ("a star in a sort key", QUERY % '{key: ["EVENT#{tenant}", "E#{*|shard:4}"]}'),
    ("a star in a get", GET + 'get: {key: ["EVENT#{*|shard:4}", "E"]}'),
    ("another number of shards", QUERY % '{index: ByShard, key: ["S#{tenant}#{*|shard:8}"]}'),
    ("another bucket", QUERY % '{index: ByDay, key: ["D#{*when,when|bucket:hour}"]}'),
    ("another precision", QUERY % '{index: ByCell, key: ["G#{*least,id|geohash:5}"]}'),
    ("a range that begins behind all", QUERY % '{key: ["EVENT#{tenant}", {between: ["E$", "E~"]}]}'),
    ("a range that ends before all", QUERY % '{key: ["EVENT#{tenant}", {between: ["E#", "D~"]}]}'),
    ("a text in a number key", QUERY % '{index: ByNumber, key: ["EVENT#{tenant}", "N{id}"]}'),
    ("a parameter of text in a number key", QUERY % '{index: ByNumber, key: ["EVENT#{tenant}", "{tenant}"]}'),
    ("a padded number in a number key", QUERY % '{index: ByNumber, key: ["EVENT#{tenant}", {ge: "{id:04}"}]}'),
    ("bytes in a text key", 'params: {digest: binary}\nquery: {key: ["EVENT#{digest}"]}'),
    ("the beginning of a number", QUERY % '{index: ByNumber, key: ["EVENT#{tenant}", {begins_with: "{id}"}]}'),
    ("a consistent global index", QUERY % '{index: ByDay, key: ["D#{when|date}"], consistent: true}'),
    ("a filter by a key", QUERY % '{%s, filter: {SK: {ge: tenant}}}' % KEY),
    ("a filter by a name", QUERY % '{%s, filter: {kind: start}}' % KEY),
    ("a filter by a template", QUERY % '{%s, filter: {kind: "{start}"}}' % KEY),
    ("a filter by two ranges", QUERY % '{%s, filter: {kind: {ge: tenant, le: tenant}}}' % KEY),
    ("a filter by a text that is no condition", QUERY % '{%s, filter: {kind: {exists: maybe}}}' % KEY),
    ("a filter that exists and is less", QUERY % '{%s, filter: {kind: {exists: true, le: tenant}}}' % KEY),
    ("a filter by a fraction", QUERY % '{%s, filter: {kind: {const: 1.5}}}' % KEY),
    ("a filter by nothing", QUERY % '{%s, filter: {kind: {const: null}}}' % KEY),
    ("a filter by what is not there", QUERY % '{index: ByDigest, key: ["{tenant}"], filter: {kind: tenant}}'),
    ("an answer that is not there", QUERY % '{index: ByDigest, key: ["{flag}"]}\nreturns: [id]'),
    ("a type that is not there", QUERY % '{index: ByDigest, key: ["{flag}"]}\nreturns: {a: {type: Event, attributes: [PK]}}\nsql: {a: SELECT 1}'),
    ("a list in a query", QUERY % '{key: ["EVENT#{tenant}", "E#{ids}"]}'),
    ("a list in a filter", QUERY % '{%s, filter: {kind: ids}}' % KEY),
    ("a batch of one", GET + 'batch_get: {key: ["EVENT#{tenant}", "E#{id:04}"]}'),
    ("a batch of two lists", GET + 'batch_get: {key: ["EVENT#{more}", "E#{ids:04}"]}'),
    ("half of a key", GET + 'get: {key: ["EVENT#{tenant}"]}'),
    ("two operations", GET + 'get: {key: ["EVENT#{tenant}", E]}\nquery: {key: [A]}'),
    ("a filter of a get", GET + 'get: {key: ["EVENT#{tenant}", E], filter: {a: b}}'),
    ("an unknown limit", QUERY % '{%s, limit: n}' % KEY),
    ("a limit of 0", QUERY % '{%s, limit: 0}' % KEY),
    ("a text as limit", QUERY % '{%s, limit: tenant}' % KEY),
    ("a date of a text", QUERY % '{key: ["EVENT#{tenant|date}"]}'),
    ("a padded text", QUERY % '{key: ["EVENT#{tenant}", "E#{tenant:04}"]}'),
    ("a bucket of numbers", QUERY % '{index: ByDay, key: ["D#{*id,id|bucket:day}"]}'),
    ("near without a geohash", QUERY % '{%s}\nnear: {from: [a, b], at: [lat, lng], within_m: 5}' % KEY),
    ("near another place", NEAR % ("", "lat, other", "5")),
    ("near by name", NEAR % ("", "lat, lng", "name")),
    ("near an unknown", NEAR % ("", "lat, lng", "metres")),
    ("near nothing", NEAR % ("", "lat, lng", "0")),
    ("near, descending", NEAR % (", descending: true", "lat, lng", "5")),
    ("a schema", QUERY % '{%s}\nschema: tenat' % KEY),
    ("a schema by number", QUERY % '{%s}\nschema: id' % KEY),
    ("a type", 'params: {a: list of things}\nquery: {key: ["EVENT#{a}"]}'),
]  # fmt: skip


@pytest.mark.parametrize("pattern", [case[1] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_use_is_a_fault(pattern: str) -> None:
    serious = [fault for fault in faults(pattern) if ": warning: " not in fault]
    assert pins.said(serious)


RIGHT = [
    ("a day by its date", QUERY % '{index: ByDay, key: ["D#{when|bucket:day}"]}'),
    ("days by their dates", QUERY % '{index: ByDay, key: ["D#{*when,when|date}"]}'),
    ("attributes that are kept", QUERY % '{index: ByTenant, key: [["{tenant}", "x-{tenant}"], "{tenant}"]}'),
    ("a local index, consistently", QUERY % '{index: ByNumber, key: ["EVENT#{tenant}", {ge: "{least}"}], consistent: true}'),
    ("up to the character after the separator", QUERY % '{key: ["EVENT#{tenant}", {between: ["E#", "E$"]}]}'),
    ("below the character after the separator", QUERY % '{key: ["EVENT#{tenant}", {lt: "E$"}]}'),
    ("a prefix that ends in a day", QUERY % '{index: ByDay, key: ["D#{when|date}", {begins_with: "{when|date}"}]}'),
    ("a prefix that ends in a padded number", QUERY % '{key: ["EVENT#{tenant}", {begins_with: "E#{id:04}"}]}'),
    ("one shard of several", QUERY % '{index: ByShard, key: ["S#{tenant}#{id|shard:4}"]}'),
    ("near by number", NEAR % ("", "lat, lng", "12.5")),
]  # fmt: skip


@pytest.mark.parametrize("pattern", [case[1] for case in RIGHT], ids=[case[0] for case in RIGHT])
def test_right_use_is_not(pattern: str) -> None:
    assert [
        fault
        for fault in faults(pattern)
        if "no access pattern queries" not in fault and "reserved" not in fault
    ] == []


def test_a_filter_is_a_warning() -> None:
    (fault,) = [one for one in faults(f"{ASKED}, filter: {{kind: tenant}}}}") if "query.filter" in one]
    assert pins.said(fault)


def test_a_filter_of_the_one_item_under_a_whole_key_is_none() -> None:
    one = "params: {tenant: text, id: integer}\nquery: {key: ['EVENT#{tenant}', 'E#{id:04}'], filter: {kind: {exists: true}}}"
    assert [fault for fault in faults(one) if "query.filter" in fault] == []


def test_atomic_and_schema_are_kept() -> None:
    made = the_pattern(ASKED + "}\natomic: true\nschema: tenant")
    assert (made.atomic, made.schema) == (True, "tenant")
    made = the_pattern(ASKED + "}")
    assert (made.atomic, made.schema) == (False, None)


PROFILES = """
mapping: 1
table: {name: Users, key: [PK, SK], type: type}
entities:
  users:
    items:
      User: {key: ["USER#{id}", "PROFILE"], keep: [id, name]}
access_patterns:
  p:
    params: {id: integer}
    query: {key: ["USER#{id}", {%s}]}
    returns: [id, name]
    sql: SELECT id, name FROM users WHERE id = :id
"""


@pytest.mark.parametrize(
    "condition",
    ['begins_with: "PROFILE#"', 'begins_with: "PROFILE#{id}"', 'ge: "PROFILE#"', 'gt: "PROFILE~"'],
)
def test_a_condition_that_no_constant_sort_key_holds_is_a_fault(condition: str) -> None:
    (fault,) = serious_faults(condition)
    assert pins.said(fault)
    assert "existing: PROFILE" in fault


@pytest.mark.parametrize("condition", ['begins_with: "PROFILE"', 'begins_with: "PRO"', 'le: "PROFILE#"'])
def test_a_condition_that_a_constant_sort_key_holds_is_none(condition: str) -> None:
    assert serious_faults(condition) == []


def serious_faults(condition: str) -> list[str]:
    found = check_form(examine_mapping(PROFILES % condition, "m.yaml"))
    return [str(fault) for fault in found if not fault.warning]


@pytest.mark.parametrize(
    ("comparison", "fault"),
    [
        ("n: {begins_with: least}", "begins_with compares S and B in DynamoDB, and this is N"),
        ("n: {ge: yes_}", "ge compares S and B and N in DynamoDB, and this is BOOL"),
        ("n: {between: [least, kind]}", "both bounds must be of one type, but these are N, S"),
        ('n: {between: [least, "{least}"]}', "both bounds must be of one type, but these are N, S"),
        ("kind: {begins_with: kind}", ""),
        ('kind: {begins_with: "{least}"}', ""),
        ("n: yes_", ""),
        ("n: {between: [least, 99]}", ""),
        ("seen: {between: [since, since]}", ""),
        ("seen: {exists: true}", ""),
    ],
)
def test_a_filter_that_dynamodb_refuses_is_a_fault(comparison: str, fault: str) -> None:
    found = faults(
        "params: {tenant: text, kind: text, least: integer, yes_: boolean, since: timestamp}\n"
        f'query: {{key: ["EVENT#{{tenant}}"], filter: {{{comparison}}}}}'
    )
    told = [one for one in found if "query.filter." in one]
    assert [fault in one for one in told] == ([True] if fault else [])


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

WRONG_RETURNS = {
    "an attribute": (ORDERS, "[totl]", "no item under this key has 'totl'; did you mean 'total'?"),
    "an attribute of another type": (ORDERS, "[status]", "no item under this key has 'status'"),
    "a column of keep: all": (ALL, "{u: {type: User, attributes: [nam]}}", "no item under this key has 'nam'; did you mean 'name'?"),
    "a type elsewhere": (ORDERS, "{u: {type: User, attributes: [id]}}", "no User has such a key; the key returns Order"),
    "not projected": ('{index: GSI1, key: ["STATUS#{id}"]}', "[status]", "the index GSI1 does not contain 'status'; add it to its project"),
    "keys only": ('{index: GSI2, key: ["STATUS#{id}"]}', "[total]", "the index GSI2 does not contain 'total'"),
}  # fmt: skip

WARNED = {
    "several types": (ALL, "[total]", "the key returns items of several types (Order, OrderLog, User); return parts by type"),
    "a type left out": (ALL, "{o: {type: Order, attributes: [total]}}", "the key also gives items of type OrderLog"),
    "an open prefix": ('{key: ["USER#{id}", {begins_with: ORDER}]}', "[total]", "several types (Order, OrderLog)"),
    "an index that no pattern asks": (ORDERS, "[total]", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_RETURNS)
def test_a_wrong_return_is_a_fault(name: str) -> None:
    query, returns, message = WRONG_RETURNS[name]
    with pytest.raises(MappingError) as caught:
        check(text(query, returns), SCHEMA, "")
    found = [str(fault) for fault in caught.value.faults if not fault.warning]
    assert any(message in fault for fault in found), found


@pytest.mark.parametrize("name", WARNED)
def test_a_risk_is_a_warning(name: str) -> None:
    query, returns, message = WARNED[name]
    found = [str(fault) for fault in check(text(query, returns), SCHEMA, "").warnings]
    assert any(message in fault for fault in found) if message else found == []


def test_index_and_attribute_that_no_pattern_reads_are_warnings() -> None:
    unread = text(ORDERS, "[total]").replace("project: [total]", "project: [total, status]")
    unread = "\n".join(line for line in unread.splitlines() if "on_gsi2" not in line)
    found = [fault.what for fault in check(unread, SCHEMA, "").warnings]
    assert found == [pins.text("storage"), pins.text("costs")]


def test_item_without_part_of_an_index_key_is_not_in_the_index() -> None:
    local = text('{index: ByTotal, key: ["USER#{id}"]}', "[total]").replace(
        "entities:", "    ByTotal: {key: [PK, {name: total, type: number}], local: true}\nentities:", 1
    )
    found = [fault.what for fault in check(local.replace("keep: all", "keep: [name]"), SCHEMA, "").warnings]
    assert not [what for what in found if "several types" in what]


def test_index_without_the_ttl_attribute_is_reported() -> None:
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
    assert not pins.said_by("test_index_without_the_ttl_attribute_is_reported ttl", there)
    assert "reads 'gone'" not in there
    without = warnings(expiring.replace("  ttl: gone\n", "").replace("ttl: {from: id, days: 1}", ""))
    assert not pins.said_by("test_index_without_the_ttl_attribute_is_reported ttl", without)
    assert not pins.said_by("test_index_without_the_ttl_attribute_is_reported other", without)
