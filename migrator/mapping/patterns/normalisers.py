"""Normalisers: both answers under a pattern's rules of comparison (ignored attributes, tolerances). Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TypeGuard

from migrator.mapping.model.evidence import Row
from migrator.mapping.model.mapping import CompareRules, Normaliser
from migrator.mapping.patterns.diff import as_text

Step = Callable[[Any], Any]


@dataclass(frozen=True)
class Normalised:
    """Rows and items as they are compared, in the order of `attributes`: those that are not ignored."""

    attributes: tuple[str, ...]
    rows: list[Row]
    items: list[Row]


def ruled(
    attributes: Sequence[str], rows: Sequence[Row], items: Sequence[Row], rules: CompareRules
) -> Normalised:
    """Both sides after the rules are applied; a number of an item within the tolerance is replaced by the row's."""
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
    return Normalised(kept, context[0], context[1])


# ── tolerances ──────────────────────────────────────────────────────────────────────────────────


def _brought_near(rows: list[Row], items: list[Row], tolerances: dict[int, Decimal]) -> list[Row]:
    """The items, each replaced by a row that lies within the tolerances; no row is used twice."""
    by_rest: dict[str, tuple[list[Row], list[int]]] = defaultdict(lambda: ([], []))
    for row in rows:
        by_rest[_rest(row, tolerances)][0].append(row)
    for number, item in enumerate(items):
        by_rest[_rest(item, tolerances)][1].append(number)
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
    """The index in `waiting` (sorted by their numbers) of the first item that is near the row."""
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


def _rest(row: Row, tolerances: dict[int, Decimal]) -> str:
    """The row's other values, and which of the tolerant ones are numbers at all."""
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
    """A step that changes texts only; any other value stays, and then shows as a difference of type."""
    return lambda value: change(value) if isinstance(value, str) else value


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text[:10]).isoformat() if text[10:11] in ("", "T", " ") else text
    except ValueError:
        return text


def _unordered(value: Any) -> Any:
    return sorted(value, key=lambda element: as_text((element,))) if isinstance(value, list) else value


_NORMALISERS: dict[Normaliser, Step] = {
    "lower": _of_text(str.lower),
    "upper": _of_text(str.upper),
    "trim": _of_text(str.strip),
    "unordered": _unordered,
    "date": _of_text(_day),
}
