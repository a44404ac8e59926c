"""Which columns give the parameters of a pattern, and as what they are asked."""

from __future__ import annotations

import pytest

from migrator.mapping.check.check import check_mapping
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.patterns.param_sources import (
    matching_keys,
    may_give,
    origins_of,
    plans_by_entity,
    reachable_keys,
    redacted_params,
    same_forms,
    stored_keys,
    typed_parts,
)
from tests.golden.heart import check as check_text
from tests.golden.heart import facts, table
from tests.golden.patterns import checked
from tests.support_mapping import parse_mapping
from tools.pages.golden import ROOT

WAYS = {
    "a whole key": (
        'params: {tenant: text, id: integer}\nget: {key: ["EVENT#{tenant}", "E#{id:04}"]}',
        {"tenant": ("tenant", "equal"), "id": ("id", "equal")},
    ),
    "other names": (
        'params: {whose: text, number: integer}\nget: {key: ["EVENT#{whose}", "E#{number:04}"]}',
        {"whose": ("tenant", "equal"), "number": ("id", "equal")},
    ),
    "bounds and a limit": (
        """params: {tenant: text, from: integer, to: optional integer, most: integer}
query: {key: ["EVENT#{tenant}", {between: ["E#{from:04}", "E#{to:04|or:'~'}"]}], limit: most}""",
        {"tenant": ("tenant", "equal"), "from": ("id", "low"), "to": ("id", "high")},
    ),
    "part of a key": (
        'params: {tenant: text, region: text}\nquery: {index: ByTenant, key: [["{tenant}", "{region}"]]}',
        {"tenant": ("tenant", "equal"), "region": ("region", "equal")},
    ),
    "plain attributes and a number": (
        'params: {t: text, r: text, k: text, n: integer}\n'
        'query: {index: ByTenant, key: [["{t}", "{r}"], ["{k}", {ge: "{n}"}]]}',
        {"t": ("tenant", "equal"), "r": ("region", "equal"), "k": ("kind", "equal"), "n": ("n", "low")},
    ),
    "filters": (
        'params: {tenant: text, least: optional integer, place: text}\n'
        'query: {key: ["EVENT#{tenant}"], filter: {n: {ge: least}, region: place, kind: {const: k}}}',
        {"tenant": ("tenant", "equal"), "least": ("n", "low"), "place": ("region", "equal")},
    ),
    "every shard": (
        'params: {kind: text}\nquery: {index: ByShard, key: ["S#{kind}#{*|shard:4}"]}',
        {"kind": ("kind", "equal")},
    ),
    "every day": (
        'params: {since: date, until: date}\nquery: {index: ByDay, key: ["D#{*since,until|date}"]}',
        {"since": ("seen", "low"), "until": ("seen", "high")},
    ),
    "one day": (
        'params: {day: date}\nquery: {index: ByDay, key: ["D#{day|date}"]}',
        {"day": ("seen", "bucket")},
    ),
    "the beginning of a time": (
        'params: {kind: text, day: date}\n'
        'query: {index: ByShard, key: ["S#{kind}#{*|shard:4}", {begins_with: "{day|date}"}]}',
        {"kind": ("kind", "equal"), "day": ("seen", "bucket")},
    ),
    "a place": (
        'params: {y: number, x: number, r: number}\nquery: {index: ByCell, key: ["G#{*y,x|geohash:6}"]}\n'
        "near: {from: [y, x], at: [lat, lng], within_m: r}",
        {"y": ("lat", "equal"), "x": ("lng", "equal")},
    ),
    "some keys": (
        'params: {tenant: text, ids: list of integer}\nbatch_get: {key: ["EVENT#{tenant}", "E#{ids:04}"]}',
        {"tenant": ("tenant", "equal"), "ids": ("id", "equal")},
    ),
    "binary": (
        'params: {digest: binary}\nquery: {index: ByDigest, key: ["{digest}"]}\nreturns: [PK]',
        {"digest": ("digest", "equal")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", sorted(WAYS))
def test_parameters_come_from_the_columns_behind_the_key(way: str) -> None:
    pattern, wanted = WAYS[way]
    made = checked(pattern)
    ((_, found),) = origins_of(
        made.mapping, made.mapping.patterns["p"], plans_by_entity([made.entities[0].plan])
    )
    assert {name: (one.path, one.role) for name, one in found.items()} == wanted


def test_of_a_descending_key_the_bounds_change_sides() -> None:
    text = """
mapping: 1
table: {name: Tab, key: [PK, SK], type: type}
entities:
  e: {items: {E: {key: ["A#{a}", "N#{n:04|desc}#{id:04}"], keep: [n]}}}
access_patterns:
  p:
    params: {a: text, high: integer, low: integer}
    query: {key: ["A#{a}", {between: ["N#{high:04|desc}", "N#{low:04|desc}#~"]}]}
    returns: [n]
    sql: SELECT 1
"""
    schema = facts(table("e", {"id": "integer!", "a": "text!", "n": "integer!"}))
    made = check_mapping(examine_mapping(text, "m.yaml"), schema)
    ((_, found),) = origins_of(
        made.mapping, made.mapping.patterns["p"], plans_by_entity([made.entities[0].plan])
    )
    assert {name: one.role for name, one in found.items()} == {"a": "equal", "high": "high", "low": "low"}


def test_parameter_is_redacted_with_the_attribute_of_its_column() -> None:
    text = """
mapping: 1
table: {name: Tab, key: [PK, SK], type: type}
entities:
  e: {items: {E: {key: ["M#{mail}", "N#{id:04}"], attributes: {email: mail, label: "no {id}", kind: kind}}}}
access_patterns:
  p:
    params: {whose: text, number: integer, limit: integer}
    query: {key: ["M#{whose}", {ge: "N#{number:04}"}], limit: limit}
    returns: [email, label, kind]
    redact: [%s]
    sql: SELECT 1
"""
    schema = facts(table("e", {"id": "integer!", "mail": "text!", "kind": "text"}))
    found = {}
    for name in ("email", "label", "whose", "kind", "limit"):
        made = check_mapping(examine_mapping(text % name, "m.yaml"), schema)
        pattern = made.mapping.patterns["p"]
        found[name] = redacted_params(
            pattern, origins_of(made.mapping, pattern, plans_by_entity([made.entities[0].plan]))
        )
    assert found == {
        "email": {"whose"},
        "label": {"number"},
        "whose": {"whose"},
        "kind": set(),
        "limit": {"limit"},
    }


MAPPINGS = sorted((ROOT / "mappings").glob("*.yaml"))


@pytest.mark.parametrize("path", MAPPINGS, ids=lambda path: path.stem)
def test_matching_keys_are_those_of_the_same_forms(path: object) -> None:
    mapping = parse_mapping(path.read_text(encoding="utf-8"), path.stem).mapping  # type: ignore[attr-defined]
    for pattern in mapping.patterns.values():
        index = mapping.table.asked(pattern.index)
        assert index is not None
        keys = stored_keys(mapping, index)
        assert keys is stored_keys(mapping, index)
        same = [key for key in keys if same_forms(pattern.key, key.partition)]
        found = list(matching_keys(mapping, pattern.key, index))
        assert {id(key) for key in found} == {id(key) for key in same}
        reached = [
            key
            for key in same
            if all(may_give(condition, form) for condition, form in zip(pattern.sort, key.sort, strict=False))
        ]
        assert {id(key) for key in reachable_keys(mapping, pattern, index)} == {id(key) for key in reached}


FLAGS = """
entities:
  config: {items: {Config: {key: ["CONFIG#{id}", META], keep: [system]}}}
  users: {items: {User: {key: ["USER#{id}", META], keep: [system]}}}
access_patterns:
  Config:
    params: {id: integer}
    get: {key: ["CONFIG#{id}", META]}
    returns: [system]
    sql: SELECT system FROM config WHERE id = :id
  User:
    params: {id: integer}
    get: {key: ["USER#{id}", META]}
    returns: [system]
    sql: SELECT system FROM users WHERE id = :id
"""


def test_a_part_without_a_type_has_the_type_of_its_key() -> None:
    tables = (
        table(name, {"id": "integer!", "system": kind})
        for name, kind in (("config", "boolean"), ("users", "text"))
    )
    mapping = check_text(FLAGS, facts(*tables)).mapping
    for name, pattern in mapping.patterns.items():
        assert [part.type for part in typed_parts(mapping, pattern)] == [name]
