"""A background thread that calls one function again and again, until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread, current_thread


class Ticker:
    """Calls `work` every `interval_s()` seconds in a thread of its own, from `start` to `stop`; the first time after one
    interval. It never keeps a process from ending.

    What a call raises is told to `failed`, and the next call comes in its time; what `failed` raises ends the thread.
    A ticker runs once; `anew` gives the next one, also to a forked child, whose parent has kept the thread.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        failed: Callable[[Exception], None],
        interval_s: Callable[[], float],
    ) -> None:
        self.name = name
        self.work = work
        self.failed = failed
        self.interval_s = interval_s
        self._done = Event()
        self._thread = Thread(target=self._go_on, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_ended(self) -> bool:
        """Whether nothing more is to be done: somebody said so, in the middle of a call perhaps."""
        return self._done.is_set()

    @property
    def runs(self) -> bool:
        """Whether it was started, in this process or in the parent of a fork, and not stopped since."""
        return self._thread.ident is not None and not self._done.is_set()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """No call begins after this; one that is under way goes on. A call may say it itself."""
        self._done.set()

    def stop(self, patience_s: float) -> None:
        """The same, and waits so long for a call that is under way; not where that call is the caller."""
        self._done.set()
        if self._thread.ident is not None and self._thread is not current_thread():
            self._thread.join(patience_s)

    def anew(self) -> Ticker:
        """Another one that does the same and is yet to be started."""
        return Ticker(self.name, self.work, self.failed, self.interval_s)

    def _go_on(self) -> None:
        while not self._done.wait(self.interval_s()):
            try:
                self.work()
            except Exception as error:
                # Whatever it is: without this thread nobody would do the work any more, and nobody would be told.
                self.failed(error)
