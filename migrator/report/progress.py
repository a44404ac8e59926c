"""How a stage gets on: bars on a terminal, one JSON line a page elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from structlog.typing import FilteringBoundLogger

from migrator.ports import Tally


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

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None:
        self._tasks[entity] = self._bars.add_task(entity, total=rows_total, completed=rows_done, rate="")

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None:
        task = self._bars.tasks[self._bars.task_ids.index(self._tasks[entity])]
        speed = f"{task.finished_speed or task.speed or 0:,.0f} rows/s"
        self._bars.update(self._tasks[entity], advance=tally.rows, rate=speed)

    def entity_done(self, entity: str) -> None:
        task = self._tasks[entity]
        self._bars.update(task, total=self._bars.tasks[self._bars.task_ids.index(task)].completed)


class Lines:
    """One line a page through the log."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None:
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
