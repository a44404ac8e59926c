"""Row trees, items and answers as text that a person reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table

from migrator.facts import CollectionPlan, EntityPlan, Slot
from migrator.model import Item, RowTree
from migrator.results import Answer, PartAnswer

_ROWS_SHOWN = 10


def row_tree_lines(plan: EntityPlan, row: RowTree) -> Iterator[str]:
    """The row tree, one value a line, children indented."""
    yield f"row of {plan.table.real}"
    yield from _slots(plan.slots, row, "  ")
    for one, value in zip(plan.collections, row[len(plan.slots) :], strict=True):
        yield from _collection(one, value)


def item_text(item: Item) -> str:
    """The item as indented JSON; numbers stay exact, bytes become {"b64": …}."""
    return json.dumps(json_ready(item), ensure_ascii=False, indent=2)


def json_ready(value: Any) -> Any:
    """`value` with what JSON does not know made plain; a Decimal that is no integer becomes text."""
    if isinstance(value, Mapping):
        return {name: json_ready(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(one) for one in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else str(value)
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode("ascii")}
    return value


def answer_data(answer: Answer) -> dict[str, Any]:
    """The answer as plain values."""
    return {
        "pattern": answer.pattern.name,
        "same": answer.same,
        "parts": [
            {
                "part": one.part.name,
                "attributes": list(one.part.attributes),
                "items": json_ready(one.items),
                "rows": json_ready(one.rows),
                "same": one.same,
            }
            for one in answer.parts
        ],
        "round_trips": answer.round_trips,
        "read_units": answer.read_units,
    }


def print_answer(console: Console, answer: Answer) -> None:
    """DynamoDB's answer beside SQL's, part by part, the first rows of each."""
    for one in answer.parts:
        console.print(_answer_table(answer, one))
        if max(len(one.items), len(one.rows)) > _ROWS_SHOWN:
            console.print(f"… {len(one.items):,} items, {len(one.rows):,} rows in all")
    verdict = "[bold green]the same[/]" if answer.same else "[bold red]not the same[/]"
    order = "" if answer.pattern.order == "exact" else " (compared as sets)"
    console.print(f"{answer.pattern.name}: {verdict}{order}; {answer.round_trips} request(s)")


def _answer_table(answer: Answer, one: PartAnswer) -> Table:
    title = f"{answer.pattern.name} {one.part.name}".strip()
    table = Table(title=title, title_justify="left", pad_edge=False)
    table.add_column("DynamoDB", overflow="fold")
    table.add_column("SQL", overflow="fold")
    for number in range(min(_ROWS_SHOWN, max(len(one.items), len(one.rows)))):
        table.add_row(_cell(one.items, number), _cell(one.rows, number))
    return table


def _cell(rows: Sequence[tuple[Any, ...]], number: int) -> str:
    if number >= len(rows):
        return ""
    text = " | ".join("–" if value is None else _shown(value) for value in rows[number])
    return text.replace("[", r"\[")


def _shown(value: Any) -> str:
    plain = json_ready(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


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
