"""One access pattern answered by both sides."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from migrator.facts import EntityPlan
from migrator.mapping.answers import readers_for
from migrator.mapping.compare import equal
from migrator.mapping.patterns import answer_of, plain_rows, schema_of
from migrator.mapping.requests import request_for
from migrator.model import Mapping as MappingModel
from migrator.model import Part, Pattern
from migrator.ports import ItemStore, Source
from migrator.results import Answer, PartAnswer, Rows, Took
from migrator.stages.fetch import fetch

_EXACT = Context(prec=400)


def ask(
    mapping: MappingModel,
    pattern: Pattern,
    params: Mapping[str, Any],
    source: Source,
    store: ItemStore,
    *,
    plans: Sequence[EntityPlan] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> Answer:
    """The pattern's answer from the table and from SQL, compared part by part. `clock` gives seconds.

    `plans`: of all entities, so that SQL's values are compared by the declared types of their columns.

    Raises: SettingsError where the parameters make no request.
    """
    request = request_for(mapping, pattern, params)
    began = clock()
    fetched = fetch(store, request)
    fetched_at = clock()
    schema = schema_of(mapping, pattern, params)
    answered = {part.name: source.query(pattern.sql[part.name], params, schema) for part in pattern.parts}
    ended = clock()
    found = answer_of(mapping, pattern, fetched.items)
    rows = {
        part.name: plain_rows(part, answered[part.name], readers_for(mapping, plans, part))
        for part in pattern.parts
    }
    return Answer(
        pattern=pattern,
        request=request,
        parts=tuple(_compared(pattern, part, found[part.name], rows[part.name]) for part in pattern.parts),
        table=Took(fetched.round_trips, _ms(fetched_at - began)),
        sql=Took(len(pattern.parts), _ms(ended - fetched_at)),
        read_units=fetched.read_units,
    )


def _compared(pattern: Pattern, part: Part, items: Rows, rows: Rows) -> PartAnswer:
    several = part.one and max(len(items), len(rows)) > 1
    return PartAnswer(part, items, rows, _same(pattern, items, rows) and not several, several)


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
    if isinstance(value, dict):
        return {name: _comparable(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_comparable(one) for one in value]
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    return ("N", Decimal(value).normalize(_EXACT)) if number else value


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
