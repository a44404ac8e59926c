"""Results and progress of runs: tables and bars on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from migrator.cli.inert import plain
from migrator.cli.text import table_of
from migrator.mapping.model.journal import Tally
from migrator.mapping.model.results import BackfillResult, Explained, VerifyResult
from migrator.runtime.errors import amount
from migrator.runtime.values import asdict, picked

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from structlog.typing import FilteringBoundLogger


# ── Results of stages: a table for people, plain data for programs ──


def backfill_data(result: BackfillResult) -> dict[str, Any]:
    return {
        "run": result.run.id,
        "took_s": round(result.took_s, 3),
        **picked(result, "entities", "total", "findings"),
    }


def verify_data(result: VerifyResult) -> dict[str, Any]:
    """`clean` decides the exit code."""
    return {
        "run": result.run.id,
        "looked_since": result.run.started_at,
        "clean": not result.findings,
        "scanned_items": result.scanned,
        "stored_items_read": asdict(result.stored),
        "sample": None if (drawn := result.sample) is None else {"of": str(drawn), "seed": drawn.seed},
        "took_s": round(result.took_s, 3),
        **picked(result, "entities", "total", "findings", "not_compared", "not_proven"),
    }


def print_backfill(console: Console, result: BackfillResult) -> None:
    columns = ("entity", "rows ", "items ", "refused ", "expired ", "bytes ", "write units ")
    rows = (
        (name, *_counts(one.rows, one.items, one.refused, one.expired, one.bytes, one.write_units))
        for name, one in _with_total(result)
    )
    console.print(table_of(columns, rows))
    rate = result.total.rows / result.took_s if result.took_s else 0
    console.print(f"took {result.took_s:.1f} s, {rate:,.0f} rows/s; run {result.run.id}")


def print_backfill_verdict(console: Console, result: BackfillResult, allowed: int) -> None:
    counted = ", ".join(f"{number:,} {kind}" for kind, number in sorted(result.findings.items()))
    if result.total.refused > allowed:
        limit = f" (tuning.max_refused: {allowed:,})" if allowed else ""
        console.print(f"[bold red]not complete[/]: {counted}{limit}")
    else:
        console.print(f"[bold green]complete[/]: {counted or 'no row was refused'}")


def explained_lines(entity: str, plans: Sequence[Explained]) -> Iterator[str]:
    for plan in plans:
        yield f"{entity}, {plan.what}:"
        yield from (f"  {line}" for line in plan.lines)
        for table in plan.whole_tables:
            what = f"every page reads the whole of table {table}"
            yield f"  warning: {what}; let an index begin with the columns that it is read by, or take larger pages"


def print_verify(console: Console, result: VerifyResult) -> None:
    rows = (
        (name, *_counts(one.rows, one.items, one.refused, one.expired, one.different))
        for name, one in _with_total(result)
    )
    console.print(table_of(("entity", "rows ", "items ", "refused ", "expired ", "different "), rows))
    console.print(_looked_at(result))
    console.print(str(result.stored), markup=False)
    if result.total.different and not result.findings:
        console.print(
            f"{result.total.different:,} that differed at the first look agreed at a later one: changes on their way"
        )
    if result.run.resumed:
        since = f"rows were read since {result.run.started_at}, when this verify began before it was stopped"
        console.print(f"{since}; --restart reads all of them again", markup=False)
    for part in result.not_compared:
        console.print(f"not compared by plain SQL: {part.what} ({part.why})", markup=False)
    for part in result.not_proven:
        console.print(f"not proven: {part.what}: {part.why}", markup=False)


def print_verify_verdict(console: Console, result: VerifyResult) -> None:
    if result.findings:
        counted = ", ".join(f"{number:,} {kind}" for kind, number in sorted(result.findings.items()))
        console.print(f"[bold red]not clean[/]: {counted}")
    else:
        limit = " as far as this user sees rows" if result.not_proven else ""
        whole = limit if result.sample is None else " as far as the sample goes"
        console.print(f"[bold green]clean[/]{whole}: rows and items are equal")


def _looked_at(result: VerifyResult) -> str:
    if result.sample is None:
        return (
            f"{amount(result.scanned, 'stored item')} traced back to their rows; took {result.took_s:.1f} s"
        )
    what = f"a sample ({result.sample}, seed {result.sample.seed}): {amount(result.total.rows, 'row')} against their items"
    return f"{what}; the table against its rows, and totals, were not compared; took {result.took_s:.1f} s"


def _with_total(result: BackfillResult | VerifyResult) -> list[tuple[str, Tally]]:
    return [*result.entities.items(), ("total", result.total)]


def _counts(*numbers: float) -> Iterator[str]:
    return (f"{number:,.0f}" for number in numbers)


# ── Progress of a stage: bars on a terminal, a line now and then elsewhere ──

LINE_S = 10.0
"""How often the log has a line on the pages planned, and on those done, by now."""


class _Progress:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        return None


class _DrawnProgress(_Progress):
    _bars: Progress

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._bars.stop()


class Unshown(_Progress):
    def page_planned(self, entity: str, number: int) -> None: ...

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None: ...

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None: ...

    def others_done(self, entity: str, tally: Tally) -> None: ...

    def entity_done(self, entity: str) -> None: ...


class Bars(_DrawnProgress):
    """A bar per entity with rate and time left. A context manager."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bars = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>12}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._planning: dict[str, TaskID] = {}

    def page_planned(self, entity: str, number: int) -> None:
        """A separate bar until the entity's begins: the number of pages is not known yet."""
        if entity not in self._planning:
            self._planning[entity] = self._bars.add_task(f"{entity}: planning", total=None, rate="pages")
        self._bars.update(self._planning[entity], completed=number)

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None:
        if entity in self._planning:
            self._bars.remove_task(self._planning.pop(entity))
        # The table is read twice by a verify that compares digests.
        if entity in self._tasks:
            self._bars.remove_task(self._tasks[entity])
        self._tasks[entity] = self._bars.add_task(entity, total=rows_total, completed=rows_done, rate="")

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None:
        task = self._bars.tasks[self._bars.task_ids.index(self._tasks[entity])]
        # A table of one page has no known speed.
        speed = task.finished_speed or task.speed
        rate = f"{speed:,.0f} rows/s" if speed else ""
        self._bars.update(self._tasks[entity], advance=tally.rows, rate=rate)

    def others_done(self, entity: str, tally: Tally) -> None:
        self.page_done(entity, 0, tally, 0)

    def entity_done(self, entity: str) -> None:
        task = self._tasks[entity]
        self._bars.update(task, total=self._bars.tasks[self._bars.task_ids.index(task)].completed)


def live_line(console: Console, text: Callable[[], str], *, redirect_stdout: bool) -> Live:
    return Live(
        get_renderable=lambda: Text(plain(text()), no_wrap=True, overflow="ellipsis"),
        console=console,
        refresh_per_second=2,
        transient=True,
        redirect_stdout=redirect_stdout,
    )


class Lines(_Progress):
    """A line now and then through the log; one per page with --verbose. A run of seconds has none."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._planning: dict[str, float] = {}
        """Time of the last log line on an entity with pages being planned."""
        self._rows: dict[str, tuple[int, int]] = {}
        """By entity the rows done by now, and all its rows."""
        self._told_at = clock()

    def page_planned(self, entity: str, number: int) -> None:
        now = self._clock()
        if now - self._planning.setdefault(entity, now) >= LINE_S:
            self._planning[entity] = now
            self._log.info("pages_planned", entity=entity, pages=number)

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None:
        self._planning.pop(entity, None)
        self._rows[entity] = rows_done, rows_total
        self._log.debug("entity_started", entity=entity, rows_done=rows_done, rows_total=rows_total)

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None:
        done, total = self._rows.get(entity, (0, 0))
        self._rows[entity] = done + tally.rows, total
        if self._clock() - self._told_at >= LINE_S:
            self._told_at = self._clock()
            self._log.info("pages_done", entity=entity, rows_done=done + tally.rows, rows_total=total)
        self._log.debug(
            "page_done",
            entity=entity,
            page=number,
            rows=tally.rows,
            items=tally.items,
            refused=tally.refused,
            took_ms=took_ms,
        )

    def others_done(self, entity: str, tally: Tally) -> None:
        self._log.info(
            "pages_done_by_others", entity=entity, rows=tally.rows, items=tally.items, refused=tally.refused
        )

    def entity_done(self, entity: str) -> None:
        self._log.debug("entity_done", entity=entity)


# ── Progress of a replay: bars on a terminal, one log line a pattern elsewhere ──


class SampleBars(_DrawnProgress):
    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn())
        self._bars = Progress(*columns, TimeRemainingColumn(), console=console)
        self._tasks: dict[str, TaskID] = {}

    def pattern_started(self, pattern: str, samples: int) -> None:
        self._tasks[pattern] = self._bars.add_task(pattern, total=samples)

    def sample_done(self, pattern: str) -> None:
        self._bars.advance(self._tasks[pattern])

    def pattern_done(self, pattern: str, samples: int, suspects: int) -> None:
        self._bars.update(self._tasks[pattern], total=samples)


class SampleLines(_Progress):
    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log

    def pattern_started(self, pattern: str, samples: int) -> None: ...

    def sample_done(self, pattern: str) -> None: ...

    def pattern_done(self, pattern: str, samples: int, suspects: int) -> None:
        self._log.debug("pattern_asked", pattern=pattern, samples=samples, looked_at_again=suspects)
