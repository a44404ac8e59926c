"""A user's transform over a decoded row: called twice, from a fresh view each time, and refused if it is not pure."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from migrator.mapping.items.rows import Row, decoder_of, decoding_steps
from migrator.mapping.items.values import Decoder, Undecodable, as_text, decoder, stored
from migrator.mapping.model.facts import EntityPlan, Kind
from migrator.mapping.model.table import RowTree
from migrator.runtime.errors import RowError

Transform: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""A user's function: the decoded row by path (`name`, `customer.name`; lists as lists of dicts) in, a dict of new values by
name out. A value that DynamoDB has no form for (NaN, a number of 39 digits) is its text."""

_PLAIN = decoder(Kind("plain"))


def row_decoder(plan: EntityPlan, transform: Transform | None) -> Callable[[RowTree], Row]:
    """Raises: RowError, also for a transform that is not pure."""
    decode = decoder_of(decoding_steps(plan))
    if transform is None:
        return decode
    transformed = _transformer(plan, transform)
    return lambda row: transformed(decode(row))


def refused_row_decoder(plan: EntityPlan, transform: Transform | None) -> Callable[[RowTree], Row]:
    steps = decoding_steps(plan)
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


def _transformer(plan: EntityPlan, transform: Transform) -> Callable[[Row], Row]:
    wanted = [path.partition(".")[2] for path in plan.transformed]
    lists = {
        collection.collection.alias: [slot.path for slot in collection.slots]
        for collection in plan.collections
        if collection.collection.is_list
    }
    names = [slot.path for slot in plan.slots] + [
        collection.collection.alias for collection in plan.collections
    ]

    def view(row: Row) -> dict[str, Any]:
        # A deep copy: a transform's changes to a document must not reach the items.
        named = dict(zip(names, copy.deepcopy([_shown(value) for value in row]), strict=True))
        for alias, paths in lists.items():
            named[alias] = [dict(zip(paths, map(_shown, child), strict=True)) for child in named[alias]]
        return named

    def transformed(row: Row) -> Row:
        # Twice, each time from a fresh view: a transform that reads a clock, chance or its own state gives two results.
        first, again = (_called(transform, view(row), wanted) for _ in range(2))
        if first != again:
            raise RowError(
                "the transform returned two results for one row; it must be pure (no clock, no chance)"
            )
        return [*row, *first]

    return transformed


def _shown(value: Any) -> Any:
    return stored(as_text(value))


def _line(error: Exception) -> int:
    """The last line of the user's own code in the error's traceback."""
    steps = traceback.extract_tb(error.__traceback__)
    own = [step.lineno or 0 for step in steps if step.filename == steps[min(1, len(steps) - 1)].filename]
    return own[-1]


def _called(transform: Transform, view: dict[str, Any], wanted: Sequence[str]) -> list[Any]:
    try:
        given = transform(view)
    except Exception as error:  # a user's function may raise anything; its message may quote the row
        fault = f"the transform raised {type(error).__name__}"
        raise RowError(fault, private=f"line {_line(error)} of its module: {error}") from None
    if not isinstance(given, Mapping):
        raise RowError(f"the transform gave {type(given).__name__}, not a dict of names and values")
    missing = [name for name in wanted if name not in given]
    if missing:
        raise RowError(f"the transform did not return '{missing[0]}'; return it, as None if it has no value")
    try:
        return [_PLAIN(given[name]) for name in wanted]
    except RowError as error:
        raise RowError(f"the transform's value: {error}") from None
