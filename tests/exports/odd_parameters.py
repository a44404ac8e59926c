"""Questions with parameters that no row can have, or that are none: what every way to ask has to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

NOTES = """\
mapping: 1
table:
  name: Notes
  key: [PK, SK]
  type: type
  indexes: {ByTotal: [TotalPK, TotalSK], ByCost: {key: [CostPK, {name: cost, type: number}]}}
entities:
  note:
    items:
      Note:
        key: ["{owner}", "{name}"]
        ByTotal: ["{owner}", "T#{total:06.2f}"]
        ByCost: ["{owner}", "{total}"]
        keep: [owner, name, total, n, told]
  visit:
    items:
      Visit: {key: ["{place}#{at|month}", "{at|iso:s}"], keep: [n]}
      VisitOfWeek: {key: ["{place}#{at|week}", "{at|epoch:ms}#{at|desc}"], keep: [n]}
      VisitOfQuarter: {key: ["{place}#{at|quarter}", "{at|iso:s}"], keep: [n]}
  token:
    items:
      Token: {key: ["TOKEN#{id}", META], keep: [n]}
access_patterns:
  token:
    params: {owner: text, id: uuid}
    get: {key: ["TOKEN#{id}", META]}
    returns: [n]
    sql: SELECT n FROM token WHERE id = :id AND :owner <> ''
  tokens:
    params: {owner: text, ids: list of uuid}
    batch_get: {key: ["TOKEN#{ids}", META]}
    returns: [n]
    sql: SELECT n FROM token WHERE id IN :ids AND :owner <> ''
  labelled:
    params: {owner: text, label: text}
    query: {key: ["{owner}"], filter: {name: label}}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND name = :label
  labels:
    params: {owner: text, label: text}
    query: {key: ["{owner}"], filter: {name: {ge: label}}}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND name >= :label
  beginning:
    params: {owner: text, label: text}
    query: {key: ["{owner}"], filter: {name: {begins_with: label}}}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND substr(name, 1, length(:label)) = :label
  told:
    params: {owner: text}
    query: {key: ["{owner}"], filter: {told: {exists: true}}}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND told IS NOT NULL
  untold:
    params: {owner: text}
    query: {key: ["{owner}"], filter: {told: {exists: false}}}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND told IS NULL
  priced:
    params: {owner: text, total: number}
    query: {key: ["{owner}"], filter: {total: {le: total}}}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND total <= :total
  costed:
    params: {owner: text, total: number}
    query: {index: ByCost, key: ["{owner}", {ge: "{total}"}]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND total >= :total
  first:
    params: {owner: text, most: integer}
    query: {key: ["{owner}"], limit: most}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner ORDER BY name LIMIT :most
  ranged:
    params: {owner: text, low: optional integer, high: optional integer}
    query: {key: ["{owner}"], filter: {n: {between: [low, high]}}}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND (:low IS NULL OR n BETWEEN :low AND :high)
  spanned:
    params: {owner: text, from: optional text, to: optional text}
    query: {key: ["{owner}", {between: ["{from}", "{to}"]}]}
    returns: [n]
    sql: SELECT n FROM note WHERE owner = :owner AND (:from IS NULL OR name BETWEEN :from AND :to)
  visited:
    params: {owner: text, day: date}
    query: {key: ["{owner}#{day|month}"]}
    returns: [n]
    sql: SELECT n FROM visit WHERE place = :owner AND at >= :day AND at < date(:day, '+1 month')
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
  each_owner:
    params: {owner: text, owners: list of text, name: optional text}
    query: {key: ["{owners}", {ge: "{name}"}], descending: true, limit: 2}
    returns: [n]
    sql: >
      SELECT n FROM note WHERE owner IN :owners AND :owner <> '' AND name >= COALESCE(:name, '')
      ORDER BY name DESC LIMIT 2
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
  week:
    params: {owner: text, at: timestamp}
    query: {key: ["{owner}#{at|week}"]}
    returns: [n]
    sql: SELECT n FROM visit WHERE place = :owner AND at >= :at AND at < datetime(:at, '+7 days') ORDER BY at
  weeks:
    params: {owner: text, from: timestamp, to: timestamp}
    query: {key: ["{owner}#{*from,to|bucket:week}"]}
    returns: [n]
    sql: SELECT n FROM visit WHERE place = :owner AND at >= :from AND at < datetime(:to, '+7 days') ORDER BY at
  quarter:
    params: {owner: text, day: date}
    query: {key: ["{owner}#{day|bucket:quarter}"]}
    returns: [n]
    sql: SELECT n FROM visit WHERE place = :owner AND at >= :day AND at < date(:day, '+3 months') ORDER BY at
  quarters:
    params: {owner: text, from: timestamp, to: timestamp}
    query: {key: ["{owner}#{*from,to|quarter}", {between: ["{from|iso:s}", "{to|iso:s}"]}]}
    returns: [n]
    sql: SELECT n FROM visit WHERE place = :owner AND at BETWEEN :from AND :to ORDER BY at
"""
SCRIPT = """
CREATE TABLE note (owner TEXT NOT NULL, name TEXT NOT NULL, total NUMERIC(5, 2) NOT NULL, n INTEGER NOT NULL,
    told TEXT, PRIMARY KEY (owner, name));
CREATE TABLE visit (place TEXT NOT NULL, at TIMESTAMP NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (place, at));
CREATE TABLE token (id UUID NOT NULL PRIMARY KEY, n INTEGER NOT NULL);
INSERT INTO token VALUES ('0b3f2a52-7a8e-4d53-9e0c-6a1f00000001', 7);
INSERT INTO visit VALUES ('ann', '2026-01-01 00:00:00', 1), ('ann', '2026-01-20 10:00:00', 2), ('ann', '2026-02-03 00:00:00', 3);
INSERT INTO note VALUES ('ann', 'a', 0, 1, 'yes'), ('ann', 'b', 9.99, 2, NULL), ('ann', 'c', 10, 3, ''), ('bo', 'a', 9.99, 4, NULL);
"""
REFUSED = "refused"
Found = list[int] | str


@dataclass(frozen=True)
class Question:
    """`found`: what `n` is in the answer, or REFUSED."""

    pattern: str
    params: Mapping[str, Any]
    found: Found

    def __str__(self) -> str:
        values = {
            name: type(one).__name__ if isinstance(one, int) else f"{one}"[:40]
            for name, one in self.params.items()
        }
        return f"{self.pattern} {values}"


def _asked(pattern: str, found: Found, **params: Any) -> Question:
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
    _asked("each_owner", [2, 3], owners=["bo", "ann", "", LONG, "bo"], name=None),
    _asked("each_owner", [2, 3], owners=["ann"], name="b"),
    _asked("each_owner", [], owners=[], name=None),
    *(_asked("each_owner", REFUSED, owners=owners, name=None) for owners in (None, "ann", ["ann", 5])),
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
HUGE = "x" * 3_000_000
TOKEN = UUID("0b3f2a52-7a8e-4d53-9e0c-6a1f00000001")
BOUNDED: list[tuple[int | None, Found]] = [(3, [2, 3]), (None, REFUSED)]
QUESTIONS += [
    *(_asked("token", [7], id=str(id_)) for id_ in (TOKEN, str(TOKEN).upper())),
    *(_asked("token", REFUSED, id=id_) for id_ in (None, "", "x", 5, str(TOKEN)[:-1])),
    _asked("tokens", [7], ids=[str(TOKEN), str(TOKEN)]),
    *(_asked("tokens", REFUSED, ids=ids) for ids in ([str(TOKEN), ""], str(TOKEN), [None])),
    _asked("labelled", [2], label="b"),
    *(_asked("labelled", [], label=label) for label in ("", LONG, HUGE, "\0")),
    *(_asked("labelled", REFUSED, label=label) for label in (None, 5)),
    *(
        _asked("labels", found, label=label)
        for label, found in [("", [1, 2, 3]), ("b", [2, 3]), ("c" + LONG, [])]
    ),
    *(_asked("labels", REFUSED, label=label) for label in (HUGE, None)),
    *(
        _asked("beginning", found, label=label)
        for label, found in [("", [1, 2, 3]), ("b", [2]), (LONG, []), (HUGE, [])]
    ),
    *(
        _asked("priced", found, total=n)
        for n, found in [(-1, []), (Decimal("9.999"), [1, 2]), (1e14, [1, 2, 3])]
    ),
    *(
        _asked("costed", found, total=n)
        for n, found in [(-1, [1, 2, 3]), (Decimal("9.999"), [3]), (1e14, [])]
    ),
    *(_asked("priced", REFUSED, total=n) for n in (None, "1", True)),
    *(_asked("costed", REFUSED, total=n) for n in (None, "1", True)),
    _asked("told", [1, 3]),
    _asked("untold", [2]),
    _asked("untold", [], owner=""),
    _asked("first", [1, 2], most=2),
    _asked("first", [1, 2, 3], most=2**40),
    *(_asked("first", REFUSED, most=most) for most in (0, -1, None, "2", True)),
    *(_asked("ranged", found, low=2, high=high) for high, found in BOUNDED),
    _asked("ranged", REFUSED, low=None, high=3),
    _asked("ranged", [1, 2, 3], low=None, high=None),
    *(_asked("spanned", REFUSED, **{"from": low, "to": high}) for low, high in [("b", None), (None, "b")]),
    *(_asked("spanned", [1, 2, 3], **{"from": low, "to": high}) for low, high in [("a", "c"), (None, None)]),
    *(_asked("visited", REFUSED, day=day) for day in (None, "", "x", 5, "2026-13-01", "2026-01-32")),
    _asked("visited", [1, 2], day="2026-01-01"),
    *(
        _asked("month", [1, 2], at=at)
        for at in ("2026-01-01T00:00:00", "2026-01-01 00:00:00.000", "2026-01-01")
    ),
    *(
        _asked("month", REFUSED, at=at)
        for at in ("2026-01-01T00:00:01", "2026-13-01T00:00:00", "2026-01-01T25:00:00")
    ),
]
DAY = timedelta(days=1)
NEW_YEAR = datetime(2026, 1, 1)
QUESTIONS += [
    _asked("month", [1, 2], at=NEW_YEAR),
    *(_asked("month", REFUSED, at=NEW_YEAR + late) for late in (DAY, timedelta(microseconds=1))),
    _asked("since", [2], **{"from": NEW_YEAR + DAY, "to": NEW_YEAR + 20 * DAY}),
    _asked("days", [2], **{"from": NEW_YEAR + DAY, "to": NEW_YEAR + 20 * DAY}),
    _asked("days", REFUSED, **{"from": NEW_YEAR + DAY / 2, "to": NEW_YEAR + 20 * DAY}),
]
MONDAY = datetime(2025, 12, 29)
"""The first day of the week in which 2026 begins."""
LAST = datetime(9999, 12, 31)
QUESTIONS += [
    _asked("week", [1], at=MONDAY),
    _asked("week", [2], at=MONDAY + 21 * DAY),
    *(_asked("week", REFUSED, at=at) for at in (NEW_YEAR, MONDAY + timedelta(microseconds=1))),
    _asked("weeks", [1, 2, 3], **{"from": MONDAY, "to": MONDAY + 35 * DAY}),
    _asked("weeks", [], **{"from": LAST - 4 * DAY, "to": LAST - 4 * DAY}),
    _asked("quarter", [1, 2, 3], day="2026-01-01"),
    *(_asked("quarter", REFUSED, day=day) for day in ("2026-02-01", "2026-01-02")),
    _asked("quarters", [2, 3], **{"from": NEW_YEAR + DAY, "to": NEW_YEAR + 400 * DAY}),
    _asked("quarters", [], **{"from": LAST - 100 * DAY, "to": LAST}),
]
EAST = timezone(14 * timedelta(hours=1))
NOT_IN_JSON = [
    _asked("costing", REFUSED, total=Decimal("NaN")),
    _asked("dear", REFUSED, total=Decimal("Infinity")),
    _asked("filtered", REFUSED, low=10**30, high=3),
    *(
        _asked(pattern, REFUSED, total=n)
        for pattern in ("costing", "dear", "priced", "costed")
        for n in (
            Decimal("NaN"),
            Decimal("sNaN"),
            float("inf"),
            10**5000,
            Decimal("1e200"),
            [1],
        )
    ),
    *(_asked(pattern, found, total=1e30) for pattern, found in [("priced", [1, 2, 3]), ("costed", [])]),
    _asked("first", REFUSED, most=2**64),
    _asked("token", [7], id=TOKEN),
    _asked("visited", [1, 2], day=NEW_YEAR.date()),
    _asked("visited", REFUSED, day=NEW_YEAR),
    *(
        _asked("month", REFUSED, at=at)
        for at in ("", "x", 5, None, NEW_YEAR.date(), datetime.min.replace(tzinfo=EAST))
    ),
    _asked("one", REFUSED, name=b"b"),
    _asked("one", REFUSED, name="\ud800"),
]
