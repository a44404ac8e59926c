"""Row trees and items as text that a person reads, and tables whose names can be copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from migrator.facts import CollectionPlan, EntityPlan, Slot
from migrator.mapping.shown_values import json_text
from migrator.model import Item, RowTree

if TYPE_CHECKING:
    from rich.table import Table


def row_tree_lines(plan: EntityPlan, row: RowTree) -> Iterator[str]:
    """The row tree, one value a line, children indented."""
    yield f"row of {plan.table.real}"
    yield from _slots(plan.slots, row, "  ")
    for one, value in zip(plan.collections, row[len(plan.slots) :], strict=True):
        yield from _collection(one, value)


def item_text(item: Item) -> str:
    """The item as indented JSON; numbers stay exact, bytes become {"b64": …}."""
    return json_text(item, indent=2)


def whole_names(table: Table, names: Iterable[str]) -> Table:
    """The table, its first column never narrower than the names in it."""
    table.columns[0].min_width = max(map(len, names), default=0)
    return table


def _slots(slots: Sequence[Slot], row: Sequence[Any], indent: str) -> Iterator[str]:
    for slot, value in zip(slots, row, strict=False):
        yield f"{indent}{slot.path} = {value!r}   ({slot.column.declared or slot.column.kind.name})"


def _collection(one: CollectionPlan, value: Any) -> Iterator[str]:
    alias = one.collection.alias
    if not one.collection.is_list:
        yield f"  {alias} = {value!r}   ({one.collection.kind} of {one.table.real})"
        return
    yield f"  {alias}: {len(value)} row(s) of {one.table.real}"
    for child in value:
        yield "    -"
        yield from _slots(one.slots, child, "      ")
