"""Item collections as people think in them: keys and attributes of real rows, on a terminal and as a part of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.cli.inert import plain
from migrator.cli.page import environment_of_pages
from migrator.mapping.model.report import ItemCollection, SampleItem, View

_NARROWEST = 12
"""Letters that a column needs to be read; with less, an item's attributes are listed."""

# ── on a terminal ──


def print_views(console: Console, views: Sequence[View]) -> None:
    """Each view with one line a type, and below it its collections, their items in the order of the sort key."""
    for view in views:
        console.print()
        console.print(Text(plain(_title(view)), style="bold"))
        console.print(_facets(view))
        for found in view.collections:
            _print_collection(console, view, found)
        if view.more:
            console.print(
                Text(f"  {view.more:,} more item collection(s) of the rows that were read", style="dim")
            )


def _title(view: View) -> str:
    keys = " · ".join(filter(None, (", ".join(view.partition), ", ".join(view.sort))))
    return f"index {view.name}: {keys}, projects {view.projection}" if view.name else f"the table: {keys}"


def _facets(view: View) -> Table:
    table = Table("  type", *view.partition, *view.sort, "other attributes", box=None, pad_edge=False)
    table.header_style = "dim"
    for facet in view.facets:
        keys = [Text(plain(form)) for form in facet.keys.values()]
        table.add_row(
            Text(plain(f"  {facet.type}")), *keys, Text(plain(", ".join(facet.attributes)), style="dim")
        )
    return table


def _print_collection(console: Console, view: View, found: ItemCollection) -> None:
    console.print(Text(plain(f"  {', '.join(view.partition)} {found.partition}"), style="cyan"))
    for type_, run in groupby(found.items, key=lambda item: item.type):
        items = list(run)
        columns = [*view.sort, *view.columns(type_)]
        if (len(columns) + 1) * _NARROWEST <= console.width:
            console.print(_items_table(view, type_, columns, items))
        else:
            for line in _item_lines(view, items):
                console.print(Text(plain(line)), soft_wrap=True)
    if found.more:
        console.print(Text(f"    and {found.more:,} more of the rows that were read", style="dim"))


def _items_table(view: View, type_: str, columns: Sequence[str], items: Sequence[SampleItem]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (f"    {type_}", *columns):
        table.add_column(Text(plain(name)), overflow="fold")
    for item in items:
        texts = {**item.attributes, **{name: item.key[name] for name in view.sort}}
        cells = (texts.get(name) for name in columns)
        table.add_row("", *(Text("–", style="dim") if text is None else Text(plain(text)) for text in cells))
    return table


def _item_lines(view: View, items: Sequence[SampleItem]) -> Iterator[str]:
    for item in items:
        key = " ".join(item.key[name] for name in view.sort)
        pairs = ", ".join(f"{name}: {text}" for name, text in item.attributes.items())
        yield f"    {item.type} {key}  {pairs}".rstrip()


# ── for programs, and as a part of a page ──


def views_data(views: Sequence[View]) -> list[dict[str, Any]]:
    """The views as plain values."""
    return [asdict(view) for view in views]


def views_fragment(views: Sequence[View]) -> Markup:
    """The views as a part of a page in the report's style (report.css); what they hold of rows is text, never markup."""
    return Markup(environment_of_pages().get_template("collections.html").render(views=views))
