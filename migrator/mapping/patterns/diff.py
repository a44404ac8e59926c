"""Differences between two answers, or between an expected and a stored item."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Context, Decimal
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeGuard

from msgspec import Struct

from migrator.mapping.model.evidence import Diff, DiffClass, Row
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import CompareRules, Normaliser, Part, Pattern, Ref
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import Item, Value
from migrator.mapping.patterns.answers import Designs, Written

# ── Normalisers: both answers under a pattern's rules of comparison ──


Step = Callable[[Any], Any]


def ruled(
    attributes: Sequence[str], rows: Sequence[Row], items: Sequence[Row], rules: CompareRules
) -> tuple[tuple[str, ...], list[Row], list[Row]]:
    """Attributes without ignored ones, rows and items, as they are compared."""
    places = [place for place, name in enumerate(attributes) if name not in rules.ignore]
    kept = tuple(attributes[place] for place in places)
    steps = [_steps(rules.normalise.get(name, ())) for name in kept]
    context = [
        [tuple(step(row[place]) for step, place in zip(steps, places, strict=True)) for row in side]
        for side in (rows, items)
    ]
    tolerances = {place: rules.tolerance[name] for place, name in enumerate(kept) if name in rules.tolerance}
    if tolerances:
        context[1] = _brought_near(context[0], context[1], tolerances)
    return kept, context[0], context[1]


# ── tolerances ──────────────────────────────────────────────────────────────────────────────────


def _brought_near(rows: list[Row], items: list[Row], tolerances: dict[int, Decimal]) -> list[Row]:
    by_rest: dict[str, tuple[list[Row], list[int]]] = defaultdict(lambda: ([], []))
    for row in rows:
        by_rest[_rest_of_row(row, tolerances)][0].append(row)
    for number, item in enumerate(items):
        by_rest[_rest_of_row(item, tolerances)][1].append(number)
    near_items = list(items)
    for group, numbers in by_rest.values():
        waiting = sorted(numbers, key=lambda number: _numbers(items[number], tolerances))
        # In the order of their numbers the first one that is near enough is never the wrong one to take.
        for row in sorted(group, key=lambda row: _numbers(row, tolerances)):
            near = _first_near(row, waiting, items, tolerances)
            if near is not None:
                near_items[waiting.pop(near)] = row
    return near_items


def _first_near(
    row: Row, waiting: list[int], items: Sequence[Row], tolerances: dict[int, Decimal]
) -> int | None:
    first = next((place for place in tolerances if _is_number(row[place])), None)
    if first is None:
        return None
    lowest, highest = row[first] - tolerances[first], row[first] + tolerances[first]
    place = bisect_left(waiting, lowest, key=lambda number: items[number][first])
    while place < len(waiting) and items[waiting[place]][first] <= highest:
        if _near(row, items[waiting[place]], tolerances):
            return place
        place += 1
    return None


def _rest_of_row(row: Row, tolerances: dict[int, Decimal]) -> str:
    return as_text(
        tuple(
            "a number" if place in tolerances and _is_number(value) else (value,)
            for place, value in enumerate(row)
        )
    )


def _numbers(row: Row, tolerances: dict[int, Decimal]) -> list[Decimal]:
    return [Decimal(row[place]) for place in tolerances if _is_number(row[place])]


def _near(row: Row, item: Row, tolerances: dict[int, Decimal]) -> bool:
    return all(
        not _is_number(row[place]) or abs(Decimal(row[place]) - Decimal(item[place])) <= allowed
        for place, allowed in tolerances.items()
    )


def _is_number(value: Any) -> TypeGuard[int | Decimal]:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


# ── normalisers ─────────────────────────────────────────────────────────────────────────────────


def _steps(names: Sequence[Normaliser]) -> Step:
    steps = [_NORMALISERS[name] for name in names]

    def normalised(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return normalised


def _of_text(change: Callable[[str], str]) -> Step:
    return lambda value: change(value) if isinstance(value, str) else value


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text[:10]).isoformat() if text[10:11] in ("", "T", " ") else text
    except ValueError:
        return text


def _unordered(value: Any) -> Any:
    return sorted(value, key=lambda element: as_text((element,))) if isinstance(value, list) else value


_SIX_DIGITS = Context(prec=6)
"""As MySQL and MariaDB show a FLOAT."""


def _six_digits(value: Any) -> Any:
    return _SIX_DIGITS.create_decimal(value) if _is_number(value) else value


_NORMALISERS: dict[Normaliser, Step] = {
    "lower": _of_text(str.lower),
    "upper": _of_text(str.upper),
    "trim": _of_text(str.strip),
    "unordered": _unordered,
    "date": _of_text(_day),
    "six_digits": _six_digits,
}


# ── Differences between the item that a row makes and the item that is stored ──


class AttributeDifference(Struct, frozen=True):
    """One attribute that differs; never its value.

    missing: expected, not stored. unexpected: stored, not expected. type: stored as another type.
    """

    attribute: str
    kind: Literal["missing", "unexpected", "type", "value"]


def differences(
    expected: Item, stored: Item, ignored: frozenset[str] = frozenset()
) -> Iterator[AttributeDifference]:
    """Differing attributes. Numbers are compared as numbers, texts byte by byte."""
    for name in sorted(expected.keys() - ignored):
        if name not in stored:
            yield AttributeDifference(name, "missing")
        elif type_of(expected[name]) != type_of(stored[name]):
            yield AttributeDifference(name, "type")
        elif not equal(expected[name], stored[name]):
            yield AttributeDifference(name, "value")
    for name in sorted(stored.keys() - expected.keys() - ignored):
        yield AttributeDifference(name, "unexpected")


def equal(value: Value, other: Value) -> bool:
    """Deep equality in type and content."""
    if type_of(value) != type_of(other):
        return False
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(equal(value[name], other[name]) for name in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(equal, value, other))
    return value == other


def type_of(value: Value) -> str:
    if isinstance(value, bool):
        return "BOOL"
    return "N" if isinstance(value, (int, Decimal)) else type(value).__name__


# ── Differences between two answers of an access pattern: which rows, which attributes, of which kind. Pure ──

Tolerances: TypeAlias = Mapping[str, Decimal]

_EXACT = Context(prec=400)
_COMPARED_AT_MOST = 4_000
"""Values compared at most to pair rows: some milliseconds, during which callers wait for the interpreter."""
_PAIRED_AT_MOST = 100_000
"""Values of rows and items that are paired by their keys at most; each is read once."""


Same: TypeAlias = Callable[[Row, Row], Iterator[bool]]
"""By place, whether two values are equal, or as near as the pattern's tolerances allow."""


def diffs(
    attributes: Sequence[str],
    rows: Sequence[Row],
    items: Sequence[Row],
    *,
    ordered: bool,
    tolerances: Tolerances = MappingProxyType({}),
    key: Sequence[str] | None = None,
) -> list[Diff]:
    """Differences; none if the answers are the same. `ordered`: whether their order counts.

    Rows of one side only are paired by `key` (see row_key), else by similarity of at least half of the
    attributes. So one changed value is reported as one.
    `tolerances`: by attribute how far apart numbers may be.
    """
    left_rows, left_items = _alone(rows, items)
    if not left_rows and not left_items:
        agree = not ordered or all(equal(list(a), list(b)) for a, b in zip(rows, items, strict=True))
        return [] if agree else [Diff("order")]
    allowed = [tolerances.get(name) for name in attributes]
    same = lambda row, item: map(_is_near, row, item, allowed)  # noqa: E731
    places = None
    if key is not None and set(key) <= set(attributes):
        places = [attributes.index(name) for name in key]

    def sign(row: Row) -> Row | None:
        return None if places is None else tuple(row[place] for place in places)

    pairs = _of_one_key(left_rows, left_items, places)
    rest_rows, rest_items = _rest(left_rows, left_items, pairs)
    pairs += [
        (rest_rows[at], rest_items[other])
        for at, other in _pairs(
            [left_rows[at] for at in rest_rows], [left_items[other] for other in rest_items], same
        )
    ]
    rest_rows, rest_items = _rest(left_rows, left_items, pairs)
    all_diffs = [
        diff
        for at, other in pairs
        for diff in _of_pair(attributes, left_rows[at], left_items[other], same, sign)
    ]
    for row in (left_rows[at] for at in rest_rows):
        all_diffs.append(Diff("missing", row=row, sign=sign(row), key=sign(row)))
    for item in (left_items[at] for at in rest_items):
        all_diffs.append(Diff("unexpected", item=item, sign=sign(item), key=sign(item)))
    return all_diffs


def _rest(
    rows: Sequence[Row], items: Sequence[Row], pairs: Sequence[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    of_rows, of_items = {at for at, _ in pairs}, {other for _, other in pairs}
    return (
        [at for at in range(len(rows)) if at not in of_rows],
        [at for at in range(len(items)) if at not in of_items],
    )


def _of_one_key(
    rows: Sequence[Row], items: Sequence[Row], places: Sequence[int] | None
) -> list[tuple[int, int]]:
    """`places`: of the attributes that identify a row; None if unknown."""
    if places is None or not rows or not items:
        return []
    is_few = (len(rows) + len(items)) * len(rows[0]) <= _PAIRED_AT_MOST
    return _by_values(rows, items, places) if is_few else []


def _by_values(rows: Sequence[Row], items: Sequence[Row], places: Sequence[int]) -> list[tuple[int, int]]:
    by_row, by_item = (
        {as_text(tuple(row[place] for place in places)): at for at, row in enumerate(side)}
        for side in (rows, items)
    )
    if len(by_row) < len(rows) or len(by_item) < len(items):
        return []
    return [(at, by_item[text]) for text, at in by_row.items() if text in by_item]


def _alone(rows: Sequence[Row], items: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows and items without an equal one on the other side; of duplicates only the surplus."""
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


def _pairs(rows: Sequence[Row], items: Sequence[Row], same: Same) -> list[tuple[int, int]]:
    if not rows or not items:
        return []
    if len(rows) * len(items) * len(rows[0]) > _COMPARED_AT_MOST:
        return _of_one_name(rows, items, same)
    likeness = [
        (-alike, at, other)
        for at, row in enumerate(rows)
        for other, item in enumerate(items)
        if 2 * (alike := sum(same(row, item))) >= len(row)
    ]
    pairs, used_rows, used_items = [], set(), set()
    for _, at, other in sorted(likeness):
        if at not in used_rows and other not in used_items:
            used_rows.add(at)
            used_items.add(other)
            pairs.append((at, other))
    return pairs


def _of_one_name(rows: Sequence[Row], items: Sequence[Row], same: Same) -> list[tuple[int, int]]:
    if (len(rows) + len(items)) * len(rows[0]) > _COMPARED_AT_MOST:
        return []
    for place in range(len(rows[0])):
        if pairs := _by_values(rows, items, (place,)):
            return [pair for pair in pairs if 2 * sum(same(rows[pair[0]], items[pair[1]])) >= len(rows[0])]
    return []


def _is_near(value: Any, other: Any, allowed: Decimal | None) -> bool:
    if allowed is None or not (type_of(value) == type_of(other) == "N"):
        return equal(value, other)
    return abs(Decimal(value) - Decimal(other)) <= allowed


def _of_pair(
    attributes: Sequence[str], row: Row, item: Row, same: Same, sign: Callable[[Row], Row | None]
) -> Iterator[Diff]:
    key = sign(row)
    for name, value, other, is_same in zip(attributes, row, item, same(row, item), strict=True):
        if not is_same:
            kind = _kind(value, other)
            # While the relay is behind, the value can differ at each comparison.
            values = (value, other) if kind == "value" else ()
            yield Diff(kind, name, row, item, None if key is None else (*key, *values), key)


def _kind(row: Any, item: Any) -> DiffClass:
    if row is None or item is None:
        return "missing" if item is None else "unexpected"
    return "value" if type_of(row) == type_of(item) else "type"


def as_text(row: Row) -> str:
    return repr([_comparable(value) for value in row])


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_comparable(element) for element in value]
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    return ("N", Decimal(value).normalize(_EXACT)) if number else value


# ── The attributes of an answer that identify the row or the item it came from. Pure ──


def row_key(mapping: MappingModel, designs: Designs, pattern: Pattern, part: Part) -> tuple[str, ...] | None:
    """Attributes that identify a row in the part's answer; () if it has one row at most.

    None if the pattern does not return them, or if the item types in the answer have different ones.
    """
    if part.one or pattern.operation == "get":
        return ()
    stored = tuple(attribute.name for attribute in mapping.table.key)
    if set(stored) <= set(part.attributes):
        return stored
    keys = {_of_item(plan, written, part) for plan, written in designs.of_part(part)}
    return keys.pop() if len(keys) == 1 else None


def _of_item(plan: EntityPlan, written: Written, part: Part) -> tuple[str, ...] | None:
    attributes = []
    for column in plan.key:
        plain = Ref((column.name,))
        name = next((attribute for attribute in part.attributes if written.get(attribute) == plain), None)
        if name is None:
            return None
        attributes.append(name)
    return tuple(attributes)
