"""Row trees decoded: from what the drivers gave, in SQL's order, to one Python value per place."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from migrator.mapping.heart.expressions import Places, Row
from migrator.mapping.heart.scalars import NoFormError, Undecodable, as_text, of_column
from migrator.mapping.heart.values import Decoder, decoder
from migrator.model.errors import RowError
from migrator.model.facts import CollectionPlan, EntityPlan, Kind
from migrator.model.table import CLIMB_LEVELS, RowTree

Transform: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""A user's function: the decoded row by path (`name`, `customer.name`; lists as lists of dicts) in, a dict of new values by
name out. A value that DynamoDB has no form for (NaN, a number of 39 digits) is its text."""

_PLAIN = decoder(Kind("plain"))


def places_of(plan: EntityPlan) -> Places:
    """Where each path stands in a decoded row: slots, collections, then what the transform gives."""
    columns = {slot.path: number for number, slot in enumerate(plan.slots)}
    lists = {}
    for number, one in enumerate(plan.collections, start=len(plan.slots)):
        if one.collection.is_list:
            inner = {slot.path: place for place, slot in enumerate(one.slots)}
            lists[one.collection.alias] = (number, Places(inner, {}))
        else:
            columns[one.collection.alias] = number
    first = len(plan.slots) + len(plan.collections)
    columns |= {path: number for number, path in enumerate(plan.transformed, start=first)}
    return Places(columns, lists)


def row_decoder(plan: EntityPlan, transform: Transform | None) -> Callable[[RowTree], Row]:
    """A function from a row tree to the decoded row. Raises: RowError, also for a transform that is not pure."""
    decode = _decoder(_steps(plan))
    if transform is None:
        return decode
    transformed = _transformer(plan, transform)
    return lambda row: transformed(decode(row))


def refused_row_decoder(plan: EntityPlan, transform: Transform | None) -> Callable[[RowTree], Row]:
    """The same for a row that is refused: what cannot be decoded stands there as Undecodable, and the rest as it is."""
    steps = _steps(plan)
    transformed = None if transform is None else _transformer(plan, transform)

    def decode(row: RowTree) -> Row:
        decoded = [_or_unfit(step, raw) for (_, step), raw in zip(steps, row, strict=True)]
        if transformed is None:
            return decoded
        try:
            return transformed(decoded)
        except RowError as error:
            return [*decoded, *(Undecodable(None, str(error)) for _ in plan.transformed)]

    return decode


def _or_unfit(step: Decoder, raw: Any) -> Any:
    try:
        return step(raw)
    except (RowError, TypeError) as error:
        return Undecodable(getattr(error, "text", None), str(error))


def _steps(plan: EntityPlan) -> list[tuple[str, Decoder]]:
    """What decodes each place of the plan's row tree, and the path of it."""
    steps = [(slot.path, decoder(slot.column.kind)) for slot in plan.slots]
    return steps + [(one.collection.alias, _collection_decoder(one)) for one in plan.collections]


def _decoder(steps: Sequence[tuple[str, Decoder]]) -> Callable[[Sequence[Any]], list[Any]]:
    def decode(row: Sequence[Any]) -> list[Any]:
        decoded: list[Any] = []
        try:
            for (path, step), raw in zip(steps, row, strict=True):
                try:
                    decoded.append(step(raw))
                except NoFormError as error:
                    decoded.append(Undecodable(error.text, of_column(path, error)))
        except RowError as error:
            raise RowError(of_column(steps[len(decoded)][0], error)) from None
        return decoded

    return decode


# ── collections ─────────────────────────────────────────────────────────────────────────────────


def _collection_decoder(one: CollectionPlan) -> Decoder:
    collection = one.collection
    if collection.kind == "count":
        return decoder(Kind("integer"))
    if not collection.is_list:
        return decoder(one.column.kind if one.column else Kind("unknown"))
    decode = _decoder([(slot.path, decoder(slot.column.kind)) for slot in one.slots])
    if collection.kind == "climb":
        return _climb_decoder(decode)

    def children(raw: Sequence[RowTree]) -> list[Row]:
        if collection.at_most is not None and len(raw) > collection.at_most:
            raise RowError(f"more than {collection.at_most} children (at_most)")
        return [decode(child) for child in raw[: collection.first]]

    return children


def _climb_decoder(decode: Callable[[Sequence[Any]], Row]) -> Decoder:
    def line(raw: Sequence[RowTree]) -> list[Row]:
        if len(raw) > CLIMB_LEVELS:
            cycle = len({repr(row) for row in raw}) < len(raw)
            what = "its ancestors come round in a cycle" if cycle else f"more than {CLIMB_LEVELS} levels"
            raise RowError(f"{what}; mend the rows, or leave them out with where:")
        return [decode(row) for row in raw]

    return line


# ── transforms ──────────────────────────────────────────────────────────────────────────────────


def _transformer(plan: EntityPlan, transform: Transform) -> Callable[[Row], Row]:
    wanted = [path.partition(".")[2] for path in plan.transformed]
    lists = {
        one.collection.alias: [slot.path for slot in one.slots]
        for one in plan.collections
        if one.collection.is_list
    }
    names = [slot.path for slot in plan.slots] + [one.collection.alias for one in plan.collections]

    def view(row: Row) -> dict[str, Any]:
        # A copy all the way down: what a transform does to a document must not reach the items.
        named = dict(zip(names, copy.deepcopy([as_text(value) for value in row]), strict=True))
        for alias, paths in lists.items():
            named[alias] = [dict(zip(paths, map(as_text, child), strict=True)) for child in named[alias]]
        return named

    def transformed(row: Row) -> Row:
        # Twice, each time from a fresh view: what reads a clock, chance or its own memory gives itself away.
        first, again = (_called(transform, view(row), wanted) for _ in range(2))
        if first != again:
            raise RowError(
                "the transform gives two results for one row; it must be pure (no clock, no chance)"
            )
        return [*row, *first]

    return transformed


def _line(error: Exception) -> int:
    """Where in the user's own code the error was raised, or passed last."""
    steps = traceback.extract_tb(error.__traceback__)
    own = [step.lineno or 0 for step in steps if step.filename == steps[min(1, len(steps) - 1)].filename]
    return own[-1]


def _called(transform: Transform, view: dict[str, Any], wanted: Sequence[str]) -> list[Any]:
    try:
        given = transform(view)
    except Exception as error:  # a user's function may raise anything; its message may quote the row
        said = f"the transform raised {type(error).__name__}"
        raise RowError(said, private=f"line {_line(error)} of its module: {error}") from None
    if not isinstance(given, Mapping):
        raise RowError(f"the transform gave {type(given).__name__}, not a dict of names and values")
    missing = [name for name in wanted if name not in given]
    if missing:
        raise RowError(f"the transform gave no '{missing[0]}'; give it, as None where there is no value")
    try:
        return [_PLAIN(given[name]) for name in wanted]
    except RowError as error:
        raise RowError(f"the transform's value: {error}") from None
