"""How a replay gets on: bars on a terminal, one log line a pattern elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class SampleBars:
    """A bar per pattern. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn())
        self._bars = Progress(*columns, TimeRemainingColumn(), console=console)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> SampleBars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def pattern_started(self, pattern: str, samples: int) -> None:
        self._tasks[pattern] = self._bars.add_task(pattern, total=samples)

    def sample_done(self, pattern: str) -> None:
        self._bars.advance(self._tasks[pattern])

    def pattern_done(self, pattern: str, samples: int, suspects: int) -> None:
        self._bars.update(self._tasks[pattern], total=samples)


class SampleLines:
    """One line a pattern through the log."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log

    def __enter__(self) -> SampleLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def pattern_started(self, pattern: str, samples: int) -> None:
        """Nothing: what was asked is told at its end."""

    def sample_done(self, pattern: str) -> None:
        """Nothing: no line a sample."""

    def pattern_done(self, pattern: str, samples: int, suspects: int) -> None:
        self._log.info("pattern_asked", pattern=pattern, samples=samples, looked_at_again=suspects)
