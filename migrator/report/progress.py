"""How a stage gets on: bars on a terminal, one JSON line a page elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from migrator.ports import Tally
from migrator.report.inert import plain

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

PLANNING_S = 10.0
"""How often the log is told how many pages are planned."""


class Bars:
    """A bar per entity with rate and time left. Use as a context manager."""

    def __init__(self, console: Console) -> None:
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

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def page_planned(self, entity: str, number: int) -> None:
        """A bar of its own, which ends when the entity's begins: nobody knows how many pages there will be."""
        if entity not in self._planning:
            self._planning[entity] = self._bars.add_task(f"{entity}: planning", total=None, rate="pages")
        self._bars.update(self._planning[entity], completed=number)

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None:
        if entity in self._planning:
            self._bars.remove_task(self._planning.pop(entity))
        self._tasks[entity] = self._bars.add_task(entity, total=rows_total, completed=rows_done, rate="")

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None:
        task = self._bars.tasks[self._bars.task_ids.index(self._tasks[entity])]
        speed = f"{task.finished_speed or task.speed or 0:,.0f} rows/s"
        self._bars.update(self._tasks[entity], advance=tally.rows, rate=speed)

    def entity_done(self, entity: str) -> None:
        task = self._tasks[entity]
        self._bars.update(task, total=self._bars.tasks[self._bars.task_ids.index(task)].completed)


def live_line(console: Console, text: Callable[[], str], *, redirect_stdout: bool) -> Live:
    """A line that is drawn anew twice a second, at one place, until the context ends; all else is printed above it."""
    return Live(
        get_renderable=lambda: Text(plain(text()), no_wrap=True, overflow="ellipsis"),
        console=console,
        refresh_per_second=2,
        transient=True,
        redirect_stdout=redirect_stdout,
    )


class Lines:
    """One line a page through the log."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._planning: dict[str, float] = {}
        """When the log was told last of an entity whose pages are being planned."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def page_planned(self, entity: str, number: int) -> None:
        now = self._clock()
        if now - self._planning.setdefault(entity, now) >= PLANNING_S:
            self._planning[entity] = now
            self._log.info("pages_planned", entity=entity, pages=number)

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None:
        self._planning.pop(entity, None)
        self._log.info("entity_started", entity=entity, rows_done=rows_done, rows_total=rows_total)

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None:
        self._log.info(
            "page_done",
            entity=entity,
            page=number,
            rows=tally.rows,
            items=tally.items,
            refused=tally.refused,
            took_ms=took_ms,
        )

    def entity_done(self, entity: str) -> None:
        self._log.info("entity_done", entity=entity)
