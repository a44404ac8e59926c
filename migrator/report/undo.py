"""What undo counted or deleted: a table for people, plain data for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Column, Table

from migrator.results import UndoCounts


def undo_data(counts: UndoCounts) -> dict[str, Any]:
    """The counts as plain values: items per entity and type, deleted ones, those of others."""
    types = [{"entity": name, "type": kind, "items": n} for (name, kind), n in sorted(counts.types.items())]
    return {"types": types, "items": counts.items, "deleted": counts.gone, "left_alone": counts.others}


def print_undo(console: Console, counts: UndoCounts, *, dry_run: bool) -> None:
    table = Table("entity", "type", Column("items", justify="right"), box=None, pad_edge=False)
    for (name, kind), number in sorted(counts.types.items()):
        table.add_row(name, kind, f"{number:,}")
    console.print(table)
    others = f"{counts.others:,} item(s) of others are left alone"
    if dry_run:
        console.print(f"{counts.items:,} item(s) would be deleted; {others}")
        return
    changed = counts.items - counts.gone
    more = f"; {changed:,} changed meanwhile and stayed" if changed else ""
    console.print(f"{counts.gone:,} item(s) deleted{more}; {others}")
