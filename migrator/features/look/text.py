"""An item collection beside its rows, and a job's status: on a terminal, as data, and as pages that need no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.cli.inert import plain
from migrator.cli.page import digest, environment_of_pages, part_of_page
from migrator.mapping.model.report import FINE, Example, LookedItem, LookReport, LookState

STATE_WORDS: Mapping[LookState, str] = {
    "same": "stored as its row makes it",
    "different": "an attribute is not what the row makes",
    "missing": "a row makes it, and it is not stored",
    "unexpected": "stored, and no row makes it",
    "foreign": "stored, and not of this job",
    "collision": "another row's item is stored under its key",
    "expired": "its TTL has passed: there or not, both are right",
    "tombstone": "what a delete left, until it is purged",
    "control": "the control item of live change",
    "direct": "the service writes it itself; nothing is compared",
}

# ── on a terminal ──


def print_look(console: Console, report: LookReport, *, everything: bool) -> None:
    """One line an item, and the attributes that differ below it; `everything`: all attributes of each item."""
    console.print(Text(plain(f"{_place(report)}: {_key_text(report.partition)}")))
    for item in report.items:
        _print_item(console, item, everything=everything)
    # The counts last, where a person looks first in a terminal that has scrolled.
    for line in (*(f"refused: {text}" for text in report.refused), *_notes(report), summary(report)):
        console.print(Text(plain(line)), soft_wrap=True)


def summary(report: LookReport) -> str:
    """How many items there are of each state."""
    if not report.items:
        return "no item is stored, and no row makes one"
    return ", ".join(f"{count:,} {state}" for state, count in report.counts.items())


def _place(report: LookReport) -> str:
    return f"index {report.index} of table {report.table}" if report.index else f"table {report.table}"


def _notes(report: LookReport) -> list[str]:
    cut = ["more items are stored behind these; --limit shows more, --sk others"] if report.is_cut else []
    return [*cut, *report.notes]


def _key_text(key: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {text}" for name, text in key.items())


def _print_item(console: Console, item: LookedItem, *, everything: bool) -> None:
    head = Text("\n" if everything or item.state not in FINE else "")
    head.append(f"{item.state:<10}", style="green" if item.state in FINE else "bold red")
    of_row = f", row {item.entity} {item.row}" if item.row else ""
    head.append(plain(f" {item.type} {item.key}{of_row}"))
    if item.state != "same":
        head.append(plain(f": {item.reason or STATE_WORDS[item.state]}"))
    console.print(head, soft_wrap=True)
    cells = [cell for cell in item.cells if everything or cell.differs]
    if cells:
        console.print(_cells_table(cells))


def _cells_table(cells: Sequence[Any]) -> Table:
    table = Table("", "attribute", "the row makes", "stored", box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    for cell in cells:
        sides = (
            Text("–", style="dim") if text is None else Text(plain(text)) for text in (cell.sql, cell.item)
        )
        table.add_row("  ≠" if cell.differs else "   ", Text(plain(cell.attribute)), *sides)
    return table


# ── for programs ──


def look_data(report: LookReport) -> dict[str, Any]:
    """The collection as plain values, every attribute of each item; `made` and `stored` are null where there is none."""
    data = asdict(report)
    for item in data["items"]:
        item["attributes"] = [
            {
                "name": cell["attribute"],
                "made": cell["sql"],
                "stored": cell["item"],
                "differs": cell["differs"],
            }
            for cell in item.pop("cells")
        ]
    return data | {"clean": report.is_clean, "counts": report.counts}


# ── as pages ──


class Pages:
    """Pages of one job, without scripts. `indexes`: of its table, for the form that asks for a collection."""

    def __init__(self, job: str, table: str, indexes: Sequence[str], version: str) -> None:
        self._pages = environment_of_pages()
        self._pages.globals |= {"state_words": STATE_WORDS, "fine": FINE, "summary": summary, "notes": _notes}
        self._style = part_of_page(self._pages, "report.css") + part_of_page(self._pages, "look.css")
        self._common = {"job": job, "table": table, "indexes": indexes, "version": version}

    @property
    def policy(self) -> str:
        """What a browser may do with a page: use its own style, and send the form back here."""
        return (
            f"default-src 'none'; style-src {digest(self._style)}; form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'"
        )

    def look(
        self,
        asked: Mapping[str, str],
        report: LookReport | None,
        fault: str = "",
        examples: Sequence[Example] = (),
    ) -> str:
        """`asked`: the fields of the form as they were sent; `fault`: why a collection is missing. `examples`: an item of
        each type, if none was asked for."""
        return self._page("look.html", asked=asked, report=report, fault=fault, examples=examples)

    def status(self, status: Mapping[str, Any] | None, lines: Sequence[str], fault: str = "") -> str:
        """`status`: the data of `migrator status`; `lines`: what it says of live change."""
        return self._page("status.html", status=status, lines=lines, fault=fault)

    def refusal(self, what: str) -> str:
        """A page that says why there is none, and nothing of the job."""
        return self._pages.get_template("refusal.html").render(style=self._style, what=what)

    def _page(self, name: str, **given: Any) -> str:
        return self._pages.get_template(name).render(style=self._style, **self._common, **given)
