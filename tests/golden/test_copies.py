"""Golden cases of an item that is written in copies, and a get that reads any of them."""

from __future__ import annotations

import pytest

from migrator.mapping.patterns.requests import Requests
from tests import pins
from tests.golden import heart

SCHEMA = heart.facts(heart.table("page", {"name": "text!", "body": "text"}, ("name",)))
MAPPING = """
entities:
  page:
    items:
      Page: {key: ["PAGE#{name}#{*|shard:3}", META], keep: [body]}
      Name: {key: ["NAME#{name}", META]}
access_patterns:
  read_page:
    params: {name: text}
    get: {key: ["PAGE#{name}#{*|shard:3}", META]}
    returns: [body]
    sql: SELECT body FROM page WHERE name = :name
"""


def test_copies_differ_only_in_the_number_in_their_key() -> None:
    *copies, name = heart.items(heart.entity(MAPPING, SCHEMA), {"name": "home", "body": "x"})
    assert [item.pop("PK") for item in copies] == ["PAGE#home#0", "PAGE#home#1", "PAGE#home#2"]
    assert copies == [{"SK": "META", "type": "Page", "_src": 'page:["home"]', "body": "x"}] * 3
    assert name["PK"] == "NAME#home"


def test_a_get_reads_one_of_them() -> None:
    mapping = heart.check(MAPPING, SCHEMA).mapping
    request = Requests(mapping, mapping.patterns["read_page"]).of({"name": "home"})
    assert [sent["Key"]["PK"] for sent in request.sent] == ["PAGE#home#0", "PAGE#home#1", "PAGE#home#2"]
    assert request.calls == 1


def test_copies_are_known_to_be_apart() -> None:
    assert not [fault for fault in heart.faults(MAPPING, SCHEMA) if ".items." in fault]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('shard:3}", META], keep', 'shard:101}", META], keep'),
        ('shard:3}", META], keep', 'shard:4}", META], keep'),
        ('shard:3}", META], keep', 'copy:3}", META], keep'),
        ('{*|shard:3}", META], keep', '", "{*|shard:3}"], keep'),
        ('shard:3}", META], keep', 'shard:3}{*|shard:3}", META], keep'),
        ('get: {key: ["PAGE#{name}#{*|shard:3}", META]}', 'get: {key: ["PAGE#{name}#{*|shard:11}", META]}'),
        ('get: {key: ["PAGE#{name}#{*|shard:3}", META]}', 'query: {key: ["PAGE#{name}#{*|shard:3}"]}'),
    ],
    ids=["101", "another number", "no such filter", "in the sort key", "two", "another width", "all at once"],
)
def test_copies_in_wrong_use_are_a_fault(request: pytest.FixtureRequest, old: str, new: str) -> None:
    assert old in MAPPING
    faults = heart.faults(MAPPING.replace(old, new, 1), SCHEMA)
    assert pins.said("\n".join(one for one in faults if "warning" not in one), request.node.callspec.id)
