"""A table that is never cut: its columns share the width there is; where that is too little, each row is a block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.style import Style, StyleType
from rich.table import Column, Table
from rich.text import Text

from migrator.cli.inert import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

_BETWEEN = 2
"""Blanks that each column has beside it, without a box."""
_FOLDED = 16
"""A longer word may be folded."""
_SHORT = 10
"""A cell no wider is never folded: a number with its unit, an age."""
_NAME = 8
"""Names of the first column are whole, for they are copied: one that is wider than its column has a line of its own."""


class FittedTable(Table):
    """One without a box. Numbers, which are columns to the right, are never folded."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        texts = [[_text(console, cell) for cell in (column.header, *column.cells)] for column in self.columns]
        narrowest = [
            _narrowest(column, cells, is_name=at == 0)
            for at, (column, cells) in enumerate(zip(self.columns, texts, strict=True))
        ]
        room = options.max_width - _BETWEEN * len(narrowest)
        for_names = room - sum(narrowest[1:])
        if for_names < min(narrowest[0], _NAME):
            yield from self._blocks(texts)
            return
        narrowest[0] = min(narrowest[0], for_names)
        widest = [max(cell.cell_len for cell in cells) for cells in texts]
        yield from self._rows(texts, _widths(narrowest, widest, room))

    def _rows(self, columns: Sequence[Sequence[Text]], widths: Sequence[int]) -> RenderResult:
        """A row is drawn by itself, so that a name before it may be wider than its column."""
        yield self._part(widths)
        for at, row in enumerate(self.rows, 1):
            name, *others = (cells[at] for cells in columns)
            if name.cell_len > widths[0]:
                yield Text(name.plain, Style.combine([Style.parse(str(row.style or "none")), _style(name)]))
                name = Text("")
            yield self._part(widths, (name, *others), row.style)

    def _part(
        self, widths: Sequence[int], cells: Sequence[Text] = (), style: StyleType | None = None
    ) -> Table:
        """One row; the title and the headings where there are no cells."""
        part = Table(
            title=None if cells else self.title, title_justify="left", show_header=not cells, box=None
        )
        part.pad_edge, part.header_style, part.title_style = False, self.header_style, self.title_style
        for column, width in zip(self.columns, widths, strict=True):
            part.add_column(column.header, justify=column.justify, width=width, overflow="fold")
        if cells:
            part.add_row(*cells, style=style)
        return part

    def _blocks(self, columns: Sequence[Sequence[Text]]) -> RenderResult:
        """A row's first cell on a line of its own; below it what the other columns say, each behind its name."""
        if self.title:
            yield Text(str(self.title), self.title_style or "")
        (_, *names), *others = columns
        for at, name in enumerate(names, 1):
            told = [Text.assemble(cells[0], " ", cells[at]) for cells in others if cells[at].plain]
            yield name
            yield Padding(Text("; ").join(told), (0, 0, 0, 2))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]], **look: Any) -> FittedTable:
    """A column whose name ends in a blank holds numbers. Cells are text, never markup. `look`: as rich's Table has it."""
    table = FittedTable(box=None, pad_edge=False, **look)
    for name in columns:
        table.add_column(name.strip(), justify="right" if name.endswith(" ") else "left")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row))
    return table


def _style(text: Text) -> Style:
    return Style.parse(str(text.style or "none"))


def _text(console: Console, cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else console.render_str(str(cell))


def _narrowest(column: Column, cells: Sequence[Text], *, is_name: bool) -> int:
    header, *values = cells
    heading = _longest_word(header)
    if is_name or column.no_wrap or column.justify == "right":
        return max([heading, *(value.cell_len for value in values)])
    least = (
        value.cell_len if value.cell_len <= _SHORT else min(_FOLDED, _longest_word(value)) for value in values
    )
    return max([heading, *least])


def _longest_word(text: Text) -> int:
    return max((Text(word).cell_len for word in text.plain.split()), default=0)


def _widths(narrowest: Sequence[int], widest: Sequence[int], room: int) -> list[int]:
    """Each column's width: what is left is shared among those that have more to say."""
    widths = list(narrowest)
    while growing := [at for at, width in enumerate(widths) if width < widest[at]]:
        left = room - sum(widths)
        if left <= 0:
            break
        for at in growing:
            more = min(max(1, left // len(growing)), widest[at] - widths[at], room - sum(widths))
            widths[at] += more
    return widths
