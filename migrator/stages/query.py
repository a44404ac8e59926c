"""One access pattern answered by both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from migrator.facts import EntityPlan
from migrator.mapping.answers import readers_for
from migrator.mapping.compare import equal
from migrator.mapping.patterns import Request, answer_of, plain_rows, request_for, sql_params
from migrator.model import Item, Pattern
from migrator.model import Mapping as MappingModel
from migrator.ports import ItemStore, Source
from migrator.results import Answer, PartAnswer, Rows


def ask(
    mapping: MappingModel,
    pattern: Pattern,
    params: Mapping[str, Any],
    source: Source,
    store: ItemStore,
    *,
    plans: Sequence[EntityPlan] = (),
) -> Answer:
    """The pattern's answer from the table and from SQL, compared part by part.

    `plans`: of all entities, so that SQL's values are compared by the declared types of their columns.
    """
    request = request_for(mapping, pattern, params)
    items, round_trips, read_units = _fetch(store, request)
    found = answer_of(mapping, pattern, items)
    parts = []
    for part in pattern.parts:
        answered = source.query(pattern.sql[part.name], sql_params(params))
        rows = plain_rows(part, answered, readers_for(mapping, plans, part))
        parts.append(PartAnswer(part, found[part.name], rows, _same(pattern, found[part.name], rows)))
    return Answer(pattern, request, tuple(parts), round_trips, read_units)


def _fetch(store: ItemStore, request: Request) -> tuple[list[Item], int, float]:
    """All pages (also empty ones that are followed by more), up to the request's limit."""
    items: list[Item] = []
    start, trips, units = None, 0, 0.0
    while True:
        query = (
            request.query if request.limit is None else {**request.query, "Limit": request.limit - len(items)}
        )
        page = store.query(query, start)
        items += page.items
        start, trips, units = page.next_start, trips + 1, units + page.read_units
        if start is None or (request.limit is not None and len(items) >= request.limit):
            return items[: request.limit], trips, units


def _same(pattern: Pattern, items: Rows, rows: Rows) -> bool:
    if pattern.order == "any":
        return Counter(map(_text, items)) == Counter(map(_text, rows))
    return len(items) == len(rows) and all(
        equal(list(one), list(other)) for one, other in zip(items, rows, strict=True)
    )


def _text(row: tuple[Any, ...]) -> str:
    """A row as text in which equal numbers are equal."""
    return repr([_comparable(value) for value in row])


def _comparable(value: Any) -> Any:
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    return ("N", Decimal(value).normalize()) if number else value
