"""A mapping whose items are asked in every way that an access pattern can."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping as Dict
from datetime import datetime, timedelta
from typing import Any

from migrator.mapping.check.check import Checked
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.results import Request
from migrator.mapping.model.table import Item
from migrator.mapping.patterns.params import read_params
from migrator.mapping.patterns.requests import Requests
from tests.golden import heart

HEAD = """
mapping: 1
table:
  name: Events
  key: [PK, SK]
  type: type
  indexes:
    ByShard: {key: [ShardPK, ShardSK]}
    ByDay: {key: [DayPK, DaySK]}
    ByCell: {key: [CellPK, CellSK]}
    ByTenant: {key: [[tenant, region], [kind, {name: n, type: number}]]}
    ByDigest: {key: [{name: digest, type: binary}], project: keys}
    ByNumber: {key: [PK, {name: n, type: number}], local: true}
"""
ITEMS = """
entities:
  events:
    attributes: {n: n, kind: kind}
    items:
      Event:
        key: ["EVENT#{tenant}", "E#{id:04}"]
        ByShard: ["S#{kind}#{id|shard:4}", "{seen|iso:s}"]
        ByDay: ["D#{seen|date}", "{seen|iso:s}#{id:04}"]
        ByCell: ["G#{lat,lng|geohash:6}", "E#{id:04}"]
        ByDigest: ["{digest}"]
        keep: [id, tenant, region, lat, lng, seen]
"""
COLUMNS = {
    "id": "integer!",
    "tenant": "text!",
    "region": "text",
    "kind": "text!",
    "n": "integer",
    "seen": "timestamp!",
    "lat": "number(6)",
    "lng": "number(6)",
    "digest": "binary",
}
SCHEMA = heart.facts(heart.table("events", COLUMNS))
START = datetime(2026, 1, 1)


def text(pattern: str) -> str:
    """The mapping with one access pattern, `p`."""
    body = pattern if "returns:" in pattern else pattern + "\nreturns: [id]"
    body = body if "sql:" in body else body + "\nsql: SELECT 1"
    return ITEMS + "access_patterns:\n  p:\n" + textwrap.indent(body, "    ")


def checked(pattern: str) -> Checked:
    return heart.check(text(pattern), SCHEMA, HEAD)


def the_pattern(pattern: str) -> Pattern:
    return checked(pattern).mapping.patterns["p"]


def faults(pattern: str) -> list[str]:
    return heart.faults(text(pattern), SCHEMA, HEAD)


def request(pattern: str, **given: str) -> Request:
    """The request for parameters as they are written on the command line."""
    made = checked(pattern)
    found = made.mapping.patterns["p"]
    return Requests(made.mapping, found).of(read_params(found, given))


def row(number: int, **more: Any) -> dict[str, Any]:
    """An event every six hours."""
    seen = START + timedelta(hours=6 * number)
    made = {"id": number, "tenant": "acme", "region": "eu", "kind": "k", "n": number, "seen": seen}
    return {**made, "digest": bytes([number]), **more}


def items(made: Checked, *rows: Dict[str, Any]) -> list[Item]:
    return [item for one in rows for item in heart.items(made.entities[0], dict(one))]
