"""How two answers of one access pattern differ: which rows, which attributes, and in what way. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from migrator.mapping.compare import equal, type_of

Row: TypeAlias = tuple[Any, ...]
"""Values of one row of an answer, in the order of its attributes."""
Tolerances: TypeAlias = Mapping[str, Decimal]
DiffClass = Literal["missing", "unexpected", "value", "type", "order"]

_EXACT = Context(prec=400)
_COMPARED_AT_MOST = 4_000
"""Values that are compared to pair rows, some milliseconds' worth; callers wait for the interpreter meanwhile."""
_PAIRED_AT_MOST = 100_000
"""Values of rows and items that are paired by their names, each of which is looked at once."""


@dataclass(frozen=True, slots=True)
class Diff:
    """One difference. `missing`: SQL has the row, the table has no item; `unexpected`: the other way round.

    `attribute`: '' where it is of a whole row, or of the order. `row`: SQL's, `item`: the table's; None where there is none.
    `sign`: what it is known by, whatever else of the row changes: the row's key, and of a value that differs both values.
    None where the row's key is not known. `key`: the row's key alone; () where an answer has one row at most.
    """

    kind: DiffClass
    attribute: str = ""
    row: Row | None = None
    item: Row | None = None
    sign: Row | None = None
    key: Row | None = field(default=None, compare=False)


def diffs(
    attributes: Sequence[str],
    rows: Sequence[Row],
    items: Sequence[Row],
    *,
    ordered: bool,
    tolerances: Tolerances = MappingProxyType({}),
    key: Sequence[str] | None = None,
) -> list[Diff]:
    """What differs; nothing where the answers are the same. `ordered`: whether their order counts.

    Rows that are on one side alone are paired with those of the other that have the same `key` (see row_key), else with
    those that they are most like (at least half of their attributes), so that one value that differs is told as one.
    `tolerances`: by attribute how far apart numbers may be.
    """
    left_rows, left_items = _alone(rows, items)
    if not left_rows and not left_items:
        agree = not ordered or all(equal(list(a), list(b)) for a, b in zip(rows, items, strict=True))
        return [] if agree else [Diff("order")]
    same = _Same([tolerances.get(name) for name in attributes])
    named = _Named.by(key, attributes)
    pairs = named.pairs(left_rows, left_items)
    rest_rows, rest_items = _rest(left_rows, left_items, pairs)
    pairs += [
        (rest_rows[at], rest_items[other])
        for at, other in _pairs(
            [left_rows[at] for at in rest_rows], [left_items[other] for other in rest_items], same
        )
    ]
    rest_rows, rest_items = _rest(left_rows, left_items, pairs)
    found = [
        diff
        for at, other in pairs
        for diff in _of_pair(attributes, left_rows[at], left_items[other], same, named)
    ]
    found += [named.missing(left_rows[at]) for at in rest_rows]
    found += [named.unexpected(left_items[at]) for at in rest_items]
    return found


def _rest(
    rows: Sequence[Row], items: Sequence[Row], pairs: Sequence[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    """Places of rows and of items that are in no pair."""
    of_rows, of_items = {at for at, _ in pairs}, {other for _, other in pairs}
    return (
        [at for at in range(len(rows)) if at not in of_rows],
        [at for at in range(len(items)) if at not in of_items],
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """`places`: of the attributes that name a row; None where they are not known."""

    places: tuple[int, ...] | None

    @classmethod
    def by(cls, key: Sequence[str] | None, attributes: Sequence[str]) -> _Named:
        """One of them may be ignored by the pattern, and so is not compared."""
        if key is None or not set(key) <= set(attributes):
            return cls(None)
        return cls(tuple(attributes.index(name) for name in key))

    def key(self, row: Row) -> Row | None:
        return None if self.places is None else tuple(row[place] for place in self.places)

    def missing(self, row: Row) -> Diff:
        return Diff("missing", row=row, sign=self.key(row), key=self.key(row))

    def unexpected(self, item: Row) -> Diff:
        return Diff("unexpected", item=item, sign=self.key(item), key=self.key(item))

    def pairs(self, rows: Sequence[Row], items: Sequence[Row]) -> list[tuple[int, int]]:
        """Places of rows and items of one name; nothing where two of a side have the same one, or there are too many."""
        if self.places is None or not rows or not items:
            return []
        if (len(rows) + len(items)) * len(rows[0]) > _PAIRED_AT_MOST:
            return []
        by_row, by_item = (
            {as_text(self.key(one) or ()): at for at, one in enumerate(side)} for side in (rows, items)
        )
        if len(by_row) < len(rows) or len(by_item) < len(items):
            return []
        return [(at, by_item[text]) for text, at in by_row.items() if text in by_item]


def _alone(rows: Sequence[Row], items: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows and items without an equal one on the other side, each as often as it is there too many."""
    by_text: dict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        by_text[as_text(item)].append(number)
    left_rows = []
    for row in rows:
        if same := by_text.get(as_text(row)):
            same.pop()
        else:
            left_rows.append(row)
    return left_rows, [items[number] for number in sorted(n for same in by_text.values() for n in same)]


def _pairs(rows: Sequence[Row], items: Sequence[Row], same: _Same) -> list[tuple[int, int]]:
    """Places of rows and items that are likest each other, each in one pair at most; of many those with the same name."""
    if not rows or not items:
        return []
    if len(rows) * len(items) * len(rows[0]) > _COMPARED_AT_MOST:
        return _of_one_name(rows, items, same)
    likeness = [
        (-alike, at, other)
        for at, row in enumerate(rows)
        for other, item in enumerate(items)
        if 2 * (alike := same.count(row, item)) >= len(row)
    ]
    found, used_rows, used_items = [], set(), set()
    for _, at, other in sorted(likeness):
        if at not in used_rows and other not in used_items:
            used_rows.add(at)
            used_items.add(other)
            found.append((at, other))
    return found


def _of_one_name(rows: Sequence[Row], items: Sequence[Row], same: _Same) -> list[tuple[int, int]]:
    """By the first attribute that tells all rows and all items apart, as an id does; nothing where there are too many."""
    if (len(rows) + len(items)) * len(rows[0]) > _COMPARED_AT_MOST:
        return []
    for place in range(len(rows[0])):
        by_row, by_item = (
            {as_text((one[place],)): at for at, one in enumerate(side)} for side in (rows, items)
        )
        both = by_row.keys() & by_item.keys()
        if both and len(by_row) == len(rows) and len(by_item) == len(items):
            pairs = [(at, by_item[text]) for text, at in by_row.items() if text in both]
            return [pair for pair in pairs if 2 * same.count(rows[pair[0]], items[pair[1]]) >= len(rows[0])]
    return []


@dataclass(frozen=True, slots=True)
class _Same:
    """Which values of a row and an item are the same. `allowed`: by place how far apart numbers may be; None: not at all."""

    allowed: Sequence[Decimal | None]

    def each(self, row: Row, item: Row) -> Iterator[bool]:
        return map(_is_near, row, item, self.allowed)

    def count(self, row: Row, item: Row) -> int:
        return sum(self.each(row, item))


def _is_near(one: Any, other: Any, allowed: Decimal | None) -> bool:
    if allowed is None or not (type_of(one) == type_of(other) == "N"):
        return equal(one, other)
    return abs(Decimal(one) - Decimal(other)) <= allowed


def _of_pair(attributes: Sequence[str], row: Row, item: Row, same: _Same, named: _Named) -> Iterator[Diff]:
    key = named.key(row)
    for name, one, other, is_same in zip(attributes, row, item, same.each(row, item), strict=True):
        if not is_same:
            kind = _kind(one, other)
            # A value that a relay is behind with is another one at each look.
            values = (one, other) if kind == "value" else ()
            yield Diff(kind, name, row, item, None if key is None else (*key, *values), key)


def _kind(row: Any, item: Any) -> DiffClass:
    if row is None or item is None:
        return "missing" if item is None else "unexpected"
    return "value" if type_of(row) == type_of(item) else "type"


def as_text(row: Row) -> str:
    """A row as text in which equal numbers are equal."""
    return repr([_comparable(value) for value in row])


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_comparable(one) for one in value]
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    return ("N", Decimal(value).normalize(_EXACT)) if number else value
