"""How an item would say the values that SQL answers, attribute by attribute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from migrator.errors import RowError
from migrator.facts import EntityPlan, Kind
from migrator.mapping.expressions import Places, compile_ref
from migrator.mapping.filters import Surroundings
from migrator.mapping.items import kept_columns
from migrator.mapping.uniqueness import kind_of
from migrator.mapping.values import attribute, decoder
from migrator.model import Expression, Mapping, Part, Ref

Reader = Callable[[Any], Any]

_TIMES = frozenset({"timestamp", "date"})


def readers_for(mapping: Mapping, plans: Sequence[EntityPlan], part: Part) -> tuple[Reader, ...]:
    """Per attribute of the part, a function from the driver's value to the item's.

    By the declared type of the attribute's column: SQLite gives floats for exact numbers and text for times.
    A value that is not of that type, and that of an attribute that is more than one column, stays as it is.
    """
    return tuple(_reader(mapping, set(_columns(plans, part.type, name))) for name in part.attributes)


def _columns(plans: Sequence[EntityPlan], type_: str, name: str) -> Iterator[tuple[Kind, Ref] | None]:
    """The column behind the attribute, and its filters, in every item type that has it; None: it is no one column."""
    for plan in plans:
        for item in plan.entity.items:
            written = {**plan.entity.attributes, **item.attributes}
            if type_ in ("", item.type) and name in written:
                yield _column(plan, written[name])
            elif type_ in ("", item.type) and name in kept_columns(plan, item):
                yield _column(plan, Ref((name,)))


def _column(plan: EntityPlan, expression: Expression) -> tuple[Kind, Ref] | None:
    if not isinstance(expression, Ref) or len(expression.paths) != 1:
        return None
    kind = kind_of(expression.paths[0], plan)
    # A statement may well give the very text that a filter makes; of times alone can one tell which of the two it is.
    plain = not expression.filters and expression.format is None
    if kind is None or not (plain or kind.name in _TIMES):
        return None
    return kind, replace(expression, paths=("",))


def _reader(mapping: Mapping, columns: set[tuple[Kind, Ref] | None]) -> Reader:
    only = columns.pop() if len(columns) == 1 else None
    if only is None:
        return lambda raw: raw
    kind, ref = only
    decode = decoder(kind)
    around = Surroundings(mapping.table.separator, mapping.maps, mapping.timezone)
    filtered = compile_ref(ref, Places({"": 0}, {}), around)

    def read(raw: Any) -> Any:
        try:
            return attribute(filtered((decode(raw),)))
        except (RowError, ValueError):
            return raw

    return read
