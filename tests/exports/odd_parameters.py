"""Questions with parameters that no row can have, or that are none: what every way to ask has to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

NOTES = """\
mapping: 1
table:
  name: Notes
  key: [PK, SK]
  type: type
  indexes: {ByTotal: [TotalPK, TotalSK]}
entities:
  note:
    items:
      Note:
        key: ["{owner}", "{name}"]
        ByTotal: ["{owner}", "T#{total:06.2f}"]
        keep: [owner, name, total, n]
  visit:
    items:
      Visit: {key: ["{place}#{at|month}", "{at|iso:s}"], keep: [n]}
access_patterns:
  one:
    params: {owner: text, name: text}
    get: {key: ["{owner}", "{name}"]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND name = :name
  listed:
    params: {owner: text, names: list of text}
    batch_get: {key: ["{owner}", "{names}"]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND name IN :names
  named:
    params: {owner: text, name: text}
    query: {key: ["{owner}", "{name}"]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND name = :name
  behind:
    params: {owner: text, name: text}
    query: {key: ["{owner}", {ge: "{name}"}]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND name >= :name
  until:
    params: {owner: text, name: text}
    query: {key: ["{owner}", {le: "{name}"}]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND name <= :name
  between:
    params: {owner: text, from: text, to: text}
    query: {key: ["{owner}", {between: ["{from}", "{to}"]}]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND name BETWEEN :from AND :to
  filtered:
    params: {owner: text, low: integer, high: integer}
    query: {key: ["{owner}"], filter: {n: {between: [low, high]}}}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND n BETWEEN :low AND :high
  costing:
    params: {owner: text, total: number}
    query: {index: ByTotal, key: ["{owner}", "T#{total:06.2f}"]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND total = :total
  dear:
    params: {owner: text, total: number}
    query: {index: ByTotal, key: ["{owner}", {ge: "T#{total:06.2f}"}]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND total >= :total
  cheap:
    params: {owner: text, total: number}
    query: {index: ByTotal, key: ["{owner}", {lt: "T#{total:06.2f}"}]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND total < :total
  month:
    params: {owner: text, at: timestamp}
    query: {key: ["{owner}#{at|month}"]}
    returns: [n]
    sql: SELECT n FROM visit WHERE place = :owner AND at >= :at AND at < datetime(:at, '+1 month')
  since:
    params: {owner: text, from: timestamp, to: timestamp}
    query: {key: ["{owner}#{*from,to|month}", {between: ["{from|iso:s}", "{to|iso:s}"]}]}
    returns: [n]
    sql: SELECT n FROM visit WHERE place = :owner AND at BETWEEN :from AND :to
  days:
    params: {owner: text, from: timestamp, to: timestamp}
    query: {key: ["{owner}#{*from,to|month}", {between: ["{from|date}", "{to|date}"]}]}
    returns: [n]
    sql: SELECT n FROM visit WHERE place = :owner AND at BETWEEN :from AND :to
"""
SCRIPT = """
CREATE TABLE note (owner TEXT NOT NULL, name TEXT NOT NULL, total NUMERIC(5, 2) NOT NULL, n INTEGER NOT NULL,
    PRIMARY KEY (owner, name));
CREATE TABLE visit (place TEXT NOT NULL, at TIMESTAMP NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (place, at));
INSERT INTO visit VALUES ('ann', '2026-01-01 00:00:00', 1), ('ann', '2026-01-20 10:00:00', 2), ('ann', '2026-02-03 00:00:00', 3);
INSERT INTO note VALUES ('ann', 'a', 0, 1), ('ann', 'b', 9.99, 2), ('ann', 'c', 10, 3), ('bo', 'a', 9.99, 4);
"""
REFUSED = "refused"


@dataclass(frozen=True)
class Question:
    """`found`: what `n` is in the answer, or REFUSED."""

    pattern: str
    params: Mapping[str, Any]
    found: list[int] | str


def _asked(pattern: str, found: list[int] | str, **params: Any) -> Question:
    return Question(pattern, {"owner": "ann"} | params, found)


LONG = "x" * 3000
QUESTIONS = [
    _asked("one", [2], name="b"),
    *(_asked("one", [], name=name) for name in ("", LONG)),
    *(_asked("one", [], owner=owner, name="b") for owner in ("", LONG)),
    *(_asked("one", REFUSED, name=name) for name in (None, 5, ["b"], True)),
    _asked("one", REFUSED, owner=None, name="b"),
    _asked("listed", [1, 3], names=["a", "", "c", LONG]),
    _asked("listed", [], names=[]),
    *(_asked("listed", REFUSED, names=names) for names in (None, "a", ["a", None], ["a", 5])),
    _asked("named", [2], name="b"),
    *(_asked("named", [], name=name) for name in ("", LONG)),
    *(_asked("named", REFUSED, name=name) for name in (None, 5)),
    _asked("behind", [1, 2, 3], name=""),
    *(_asked("behind", REFUSED, name=name) for name in (None, 5, LONG)),
    _asked("until", [], name=""),
    _asked("until", REFUSED, name=None),
    *(_asked("behind", [], owner=owner, name="a") for owner in ("", LONG)),
    _asked("between", [1, 2], **{"from": "a", "to": "b"}),
    _asked("between", [1, 2], **{"from": "", "to": "b"}),
    _asked("between", [], **{"from": "b", "to": "a"}),
    _asked("between", [], **{"from": "a", "to": ""}),
    _asked("between", REFUSED, **{"from": None, "to": "b"}),
    _asked("filtered", [2, 3], low=2, high=3),
    _asked("filtered", [], low=3, high=2),
    *(_asked("filtered", REFUSED, low=low, high=3) for low in (None, "2", True)),
    _asked("costing", [2], total=Decimal("9.99")),
    *(_asked("costing", [], total=total) for total in (-1, Decimal("9.999"), 1000)),
    *(_asked("costing", REFUSED, total=total) for total in (None, "9.99", True)),
    *(_asked("dear", found, total=n) for n, found in [(-1, [1, 2, 3]), (Decimal("9.999"), [3]), (1000, [])]),
    *(_asked("cheap", found, total=n) for n, found in [(-1, []), (Decimal("9.999"), [1, 2]), (1000, [1, 2, 3])]),
]  # fmt: skip
DAY = timedelta(days=1)
NEW_YEAR = datetime(2026, 1, 1)
QUESTIONS += [
    _asked("month", [1, 2], at=NEW_YEAR),
    *(_asked("month", REFUSED, at=NEW_YEAR + late) for late in (DAY, timedelta(microseconds=1))),
    _asked("since", [2], **{"from": NEW_YEAR + DAY, "to": NEW_YEAR + 20 * DAY}),
    _asked("days", [2], **{"from": NEW_YEAR + DAY, "to": NEW_YEAR + 20 * DAY}),
    _asked("days", REFUSED, **{"from": NEW_YEAR + DAY / 2, "to": NEW_YEAR + 20 * DAY}),
]
NOT_IN_JSON = [
    _asked("costing", REFUSED, total=Decimal("NaN")),
    _asked("dear", REFUSED, total=Decimal("Infinity")),
    _asked("filtered", REFUSED, low=10**30, high=3),
    _asked("one", REFUSED, name=b"b"),
    _asked("one", REFUSED, name="\ud800"),
]
