"""Access patterns in wrong use, each with the message that it gets."""

from __future__ import annotations

import pytest

from migrator.mapping.check.check import check_form
from migrator.mapping.language.parse import examine_mapping
from tests import pins
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
    ("a range first", QUERY % '{key: [{ge: "A"}]}', "query.key.0: a partition key is asked for by one text, never by a range"),
    ("an unknown index", QUERY % '{index: ByTenat, key: ["a"]}', "query.index: there is no index 'ByTenat'; did you mean 'ByTenant'?"),
    ("a partition attribute is missing", QUERY % '{index: ByTenant, key: [["{tenant}"]]}', "query.key.0: has 1 part(s); the partition key is tenant, region: give each of them"),
    ("one text for two attributes", QUERY % '{index: ByTenant, key: ["{tenant}"]}', "query.key.0: has 1 part(s); the partition key is tenant, region: give each of them"),
    ("too many conditions", QUERY % '{index: ByTenant, key: [["{tenant}", "{tenant}"], ["a", "{id}", "b"]]}', "query.key.1: has 3 condition(s); attributes of the sort key: kind, n"),
    ("no sort key", QUERY % '{index: ByDigest, key: ["{tenant}", "b"]}', "query.key.1: has 1 condition(s); attributes of the sort key: none"),
    ("a range before the last", QUERY % '{index: ByTenant, key: [["{tenant}", "{tenant}"], [{ge: "a"}, "{id}"]]}', "query.key.1: only the last condition on a sort key may be a range; those before it are texts"),
    ("two ranges at once", QUERY % '{key: ["EVENT#{tenant}", {ge: "E#", le: "E#~"}]}', "query.key.1: a sort key takes exactly one condition (one of begins_with, between, ge, gt, le, lt)"),
    ("two stars", QUERY % '{key: ["{*|shard:4}{*|shard:4}"]}', "query.key.0: has more than one *; ask one of them at a time"),
    ("a star in a sort key", QUERY % '{key: ["EVENT#{tenant}", "E#{*|shard:4}"]}', "query.key.1: '*|shard:4': a * stands in the partition key of an access pattern's query only"),
    ("a star in a get", GET + 'get: {key: ["EVENT#{*|shard:4}", "E"]}', "get.key.0: '*|shard:4': a * stands in the partition key of an access pattern's query only"),
    ("another number of shards", QUERY % '{index: ByShard, key: ["S#{tenant}#{*|shard:8}"]}', "query.key.0: no item has a partition key of this form in ByShard; there are: S#{kind}#{id|shard:4}"),
    ("another bucket", QUERY % '{index: ByDay, key: ["D#{*when,when|bucket:hour}"]}', "query.key.0: no item has a partition key of this form in ByDay; there are: D#{seen|date}"),
    ("another precision", QUERY % '{index: ByCell, key: ["G#{*least,id|geohash:5}"]}', "no item has a partition key of this form in ByCell; there are: G#{lat,lng|geohash:6}"),
    ("a range that begins behind all", QUERY % '{key: ["EVENT#{tenant}", {between: ["E$", "E~"]}]}', "query.key.1: no sort key of this partition begins with 'E$'; there are: E#{id:04}"),
    ("a range that ends before all", QUERY % '{key: ["EVENT#{tenant}", {between: ["E#", "D~"]}]}', "query.key.1: no sort key of this partition begins with 'D~'"),
    ("a text in a number key", QUERY % '{index: ByNumber, key: ["EVENT#{tenant}", "N{id}"]}', "query.key.1: n is a number key: it takes one value in braces"),
    ("the beginning of a number", QUERY % '{index: ByNumber, key: ["EVENT#{tenant}", {begins_with: "{id}"}]}', "query.key.1: n is a number key: it has no beginning; write ge, gt, le, lt or between"),
    ("a consistent global index", QUERY % '{index: ByDay, key: ["D#{when|date}"], consistent: true}', "query.consistent: ByDay is a global index, which is never read consistently; ask the table or a local index"),
    ("a filter by a key", QUERY % '{%s, filter: {SK: {ge: tenant}}}' % KEY, "query.filter.SK: 'SK' is a key attribute, which DynamoDB does not filter by; write the condition into key"),
    ("a filter by a name", QUERY % '{%s, filter: {kind: start}}' % KEY, "query.filter.kind: there is no parameter 'start'; known: flag, id, ids, least, tenant, when; a constant is written {const: start}"),
    ("a filter by a template", QUERY % '{%s, filter: {kind: "{start}"}}' % KEY, "access_patterns.p: there is no parameter 'start'"),
    ("a filter by two ranges", QUERY % '{%s, filter: {kind: {ge: tenant, le: tenant}}}' % KEY, "query.filter.kind: an attribute takes exactly one condition"),
    ("a filter by a fraction", QUERY % '{%s, filter: {kind: {const: 1.5}}}' % KEY, "query.filter.kind: a constant is a text, a whole number, true or false; give others as a parameter"),
    ("a filter by nothing", QUERY % '{%s, filter: {kind: {const: null}}}' % KEY, "query.filter.kind: a constant is a text, a whole number, true or false"),
    ("a filter by what is not there", QUERY % '{index: ByDigest, key: ["{tenant}"], filter: {kind: tenant}}', "query.filter.kind: the index ByDigest does not hold 'kind'; add it to its project"),
    ("an answer that is not there", QUERY % '{index: ByDigest, key: ["{flag}"]}\nreturns: [id]', "p.returns: the index ByDigest does not hold 'id'; add it to its project"),
    ("a type that is not there", QUERY % '{index: ByDigest, key: ["{flag}"]}\nreturns: {a: {type: Event, attributes: [PK]}}\nsql: {a: SELECT 1}', "p.returns.a: the index ByDigest does not hold 'type'; add it to its project"),
    ("a list in a query", QUERY % '{key: ["EVENT#{ids}"]}', "access_patterns.p.query: 'ids' is a list; only the key of batch_get takes one"),
    ("a list in a filter", QUERY % '{%s, filter: {kind: ids}}' % KEY, "access_patterns.p.query: 'ids' is a list; only the key of batch_get takes one"),
    ("a batch of one", GET + 'batch_get: {key: ["EVENT#{tenant}", "E#{id:04}"]}', "batch_get.key: the key of batch_get takes exactly one list, such as product_ids: list of integer"),
    ("a batch of two lists", GET + 'batch_get: {key: ["EVENT#{more}", "E#{ids:04}"]}', "batch_get.key: the key of batch_get takes exactly one list"),
    ("half of a key", GET + 'get: {key: ["EVENT#{tenant}"]}', "get.key: has 1 part(s); the table's key is PK and SK"),
    ("two operations", GET + 'get: {key: ["EVENT#{tenant}", E]}\nquery: {key: [A]}', "needs one of query:, get: and batch_get:"),
    ("a filter of a get", GET + 'get: {key: ["EVENT#{tenant}", E], filter: {a: b}}', "get.filter: 'filter' is not a word of this place"),
    ("an unknown limit", QUERY % '{%s, limit: n}' % KEY, "there is no parameter 'n'"),
    ("a limit of 0", QUERY % '{%s, limit: 0}' % KEY, "query.limit: input should be greater than or equal to 1"),
    ("a text as limit", QUERY % '{%s, limit: tenant}' % KEY, "query.limit: the parameter 'tenant' must be an integer"),
    ("a date of a text", QUERY % '{key: ["EVENT#{tenant|date}"]}', "query.key.0: the filter 'date' takes date or timestamp; 'tenant' is text"),
    ("a padded text", QUERY % '{key: ["EVENT#{tenant}", "E#{tenant:04}"]}', "query.key.1: the format 04 pads numbers; the parameter 'tenant' is text"),
    ("a bucket of numbers", QUERY % '{index: ByDay, key: ["D#{*id,id|bucket:day}"]}', "query.key.0: the filter 'bucket' takes date or timestamp; 'id' is integer"),
    ("near without a geohash", QUERY % '{%s}\nnear: {from: [a, b], at: [lat, lng], within_m: 5}' % KEY, "p.near: near needs a query whose partition key has a geohash, such as {*lat,lng|geohash:6}"),
    ("near another place", NEAR % ("", "lat, other", "5"), "p.near.from: near.from must name the parameters of the geohash: [lat, lng]"),
    ("near by name", NEAR % ("", "lat, lng", "name"), "p.near.within_m: the parameter 'name' must be a number of metres"),
    ("near an unknown", NEAR % ("", "lat, lng", "metres"), "p: there is no parameter 'metres'"),
    ("near nothing", NEAR % ("", "lat, lng", "0"), "within_m"),
    ("near, descending", NEAR % (", descending: true", "lat, lng", "5"), "query.descending: near gives the nearest first; leave descending out"),
    ("a schema", QUERY % '{%s}\nschema: tenat' % KEY, "p: there is no parameter 'tenat'; did you mean 'tenant'?"),
    ("a schema by number", QUERY % '{%s}\nschema: id' % KEY, "p.schema: the parameter 'id' must be a text"),
    ("a type", 'params: {a: list of things}\nquery: {key: ["EVENT#{a}"]}', "p.params.a: 'things' is no type of a parameter; known: binary, boolean, date"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_wrong_use_is_a_fault(pattern: str, message: str) -> None:
    serious = [fault for fault in faults(pattern) if ": warning: " not in fault]
    assert any(message in fault for fault in serious), serious


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
        if "no access pattern asks" not in fault and "reserved" not in fault
    ] == []


def test_a_filter_is_a_warning() -> None:
    (fault,) = [one for one in faults(f"{ASKED}, filter: {{kind: tenant}}}}") if "query.filter" in one]
    assert pins.said(fault)


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
    assert "there are: PROFILE" in fault


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
        ("n: {between: [least, kind]}", "both bounds must be of one type, and these are N, S"),
        ('n: {between: [least, "{least}"]}', "both bounds must be of one type, and these are N, S"),
        ("kind: {begins_with: kind}", ""),
        ('kind: {begins_with: "{least}"}', ""),
        ("n: yes_", ""),
        ("n: {between: [least, 99]}", ""),
        ("seen: {between: [since, since]}", ""),
    ],
)
def test_a_filter_that_dynamodb_refuses_is_a_fault(comparison: str, fault: str) -> None:
    found = faults(
        "params: {tenant: text, kind: text, least: integer, yes_: boolean, since: timestamp}\n"
        f'query: {{key: ["EVENT#{{tenant}}"], filter: {{{comparison}}}}}'
    )
    told = [one for one in found if "query.filter." in one]
    assert [fault in one for one in told] == ([True] if fault else [])
