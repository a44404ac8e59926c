"""`migrator look`: what is stored in one item collection beside what its rows make now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.cli.command_line import print_json
from migrator.cli.inert import plain
from migrator.cli.options import stdout, stop_on_signals
from migrator.cli.page import digest, environment_of_pages, part_of_page
from migrator.commands.query_work import query
from migrator.features.look.look import Look, known_forms, shown
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.report import FINE, Example, LookedItem, LookReport, LookState
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import CLEAN, DIFFERENT, SettingsError
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.core.partitions import asked_key
from migrator.stages.design.shown import Showing
from migrator.stages.session.job import design_for, read_job
from migrator.stages.session.session import JobSession
from migrator.stages.verify.scan import direct_items

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


_PATIENCE_S = 10.0
"""How long a side that does not answer is asked again: a person waits for it."""


@dataclass(frozen=True)
class Masks:
    """What is shown whole: keys, also the parts that may name a person, and values that nothing redacts."""

    whole_keys: bool
    whole_values: bool


@dataclass(frozen=True)
class Sides:
    """Both sides of a job, open to be read."""

    session: JobSession
    masks: Masks

    def report(self, partition: tuple[str, ...], sort: str, index: str | None, limit: int) -> LookReport:
        """One collection, as it may be shown. Raises: SettingsError where there is no such collection."""
        checked, table = self.session.checked, self.session.target.design
        if not partition:
            refuse_no_key(self.session.job, checked.mapping, table, index)
        looked = self._look(limit).look(asked_key(table, index, partition, sort), time.time())
        return shown(looked, self.session.job.name, table, self._showing())

    def examples(self) -> list[Example]:
        """An item of each type, in the mapping's order. Raises: StoppedError or SourceError where a side is away."""
        return self._look(1).examples(self._showing())

    def _look(self, limit: int) -> Look:
        checked, target = self.session.checked, self.session.target
        return Look(
            *(self.session.source, target.store, checked.mapping, target.design, checked.entities),
            direct=direct_items(checked, self.session.job.leave),
            items_at_most=limit,
        )

    def _showing(self) -> Showing:
        checked = self.session.checked
        return Showing(
            checked.mapping,
            [entity.plan for entity in checked.read],
            whole_keys=self.masks.whole_keys or self.masks.whole_values,
            whole_values=self.masks.whole_values,
        )


def refuse_no_key(job: Job, mapping: MappingModel, table: TableDesign, index: str | None) -> None:
    """Raises: SettingsError, which says what partition keys look like, or which indexes there are."""
    design = table.asked(index or None)
    if design is None:
        asked_key(table, index, ())
        return
    whole = " ".join(f"--pk {attribute.name.upper()}" for attribute in design.partition)
    command = f"migrator look {job.path} {whole}" + (f" --index {index}" if index else "")
    raise SettingsError(f"a partition key is missing; {known_forms(mapping, table, design)}; write {command}")


@contextmanager
def open_sides(job: Job, masks: Masks, command: str, stop: Event) -> Iterator[Sides]:
    """`stop`: whether to give up waiting for a side. Raises: TargetError where the table is not there, or is another one."""
    patience_s = min(job.tuning.give_up_after_s, _PATIENCE_S)
    patient = replace(job, tuning=job.tuning.model_copy(update={"give_up_after_s": patience_s}))
    with JobSession(patient, command, workers=1, stop=stop) as session:
        _ = session.checked, session.table_id
        yield Sides(session, masks)


def look(job: Path, pattern: str | None, params: tuple[str, ...], explain: bool, **asked: Any) -> int:
    """The exit code of `migrator look`."""
    if pattern is None:
        if params or explain:
            raise click.UsageError("-p and --explain go with --pattern")
        return _look(job, **asked)
    if asked["partition"] or asked["sort"] or asked["index"] or asked["everything"]:
        raise click.UsageError("--pattern goes without --pk, --sk, --index and --all")
    return query(job, pattern, params, explain, asked["as_json"])


def _look(
    job: Path,
    partition: tuple[str, ...],
    sort: str,
    index: str | None,
    limit: int,
    everything: bool,
    whole_keys: bool,
    whole_values: bool,
    as_json: bool,
) -> int:
    read = read_job(job, asks_source=bool(partition))
    masks = Masks(whole_keys, whole_values)
    if not partition:
        # What keys look like is said where no side answers, too.
        mapping = sound_mapping(read.mapping).mapping
        refuse_no_key(read, mapping, design_for(read, mapping.table), index)
    with stop_on_signals() as stop, open_sides(read, masks, "look", stop) as sides:
        report = sides.report(partition, sort, index, limit)
    if as_json:
        print_json(look_data(report))
    else:
        print_look(stdout(), report, everything=everything)
    return CLEAN if report.is_clean else DIFFERENT
