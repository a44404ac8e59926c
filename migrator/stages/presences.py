"""Heartbeats of this process's writers, given by one thread while they work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from types import TracebackType

from migrator.errors import MigratorError, SettingsError, StoppedError
from migrator.forks import Forked, tell_of_forks
from migrator.logs import get_logger
from migrator.ports.live import Writer, WriterKind, Writers
from migrator.ports.revisions import Revisions
from migrator.stages.lifetimes import Lifetimes, Presence
from migrator.ticker import Ticker

_log = get_logger("writers")


class Presences(Forked):
    """Use as a context manager: every presence taken inside is renewed until it is left.

    `unanswered`: how many requests nobody knows the end of; they may still take effect.
    """

    def __init__(
        self,
        writers: Writers,
        revisions: Revisions,
        lifetimes: Lifetimes,
        clock: Callable[[], float],
        unanswered: Callable[[], int],
    ) -> None:
        self.writers = writers
        self.revisions = revisions
        self.lifetimes = lifetimes
        self.clock = clock
        self.unanswered = unanswered
        self._begin_anew()
        tell_of_forks(self)

    def _begin_anew(self) -> None:
        self._here: list[Presence] = []
        self._lock = Lock()
        self._ticker = Ticker("heartbeat", self._renew, _not_renewed, lambda: self.lifetimes.beat_s)

    def __enter__(self) -> Presences:
        self._ticker.start()
        return self

    def after_fork(self, *, in_child: bool) -> None:
        """Places and their heartbeats stay with the parent; what a child writes, it enters for itself."""
        if in_child:
            began = self._ticker.runs
            self._begin_anew()
            if began:
                self._ticker.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.stop(self.lifetimes.silent_s)

    def now_s(self) -> float:
        """The time by the clock that tells since when writers work, so that tombstones are as old as they seem.

        By this machine's where none of its writers is here.
        """
        with self._lock:
            here = self._here[-1:]
        return here[0].now_s() if here else time.time()

    def enter(self, kind: WriterKind) -> Presence:
        """A place among the writers.

        Raises: StoppedError where an undo is deleting; SettingsError where an undo is to begin beside writers;
        OldRevisionError where another revision than this process's is the newest.
        """
        before = self.clock()
        writer = self.writers.enter(kind)
        try:
            # Looked for from a place of one's own: of two that enter at once, one at least sees the other.
            refuse_beside(writer, self.writers.living(self.lifetimes.gone_s), self.lifetimes)
            self.revisions.enter(writer)
        except MigratorError:
            self.writers.leave(writer)
            raise
        presence = Presence(self.writers, self.revisions, writer, self.lifetimes, self.clock)
        presence.seen_at = before
        with self._lock:
            self._here.append(presence)
        return presence

    def check(self) -> None:
        """Raises: StoppedError when any presence here must send nothing more; threads share what they send through."""
        with self._lock:
            here = list(self._here)
        for presence in here:
            presence.check()

    def leave(self, presence: Presence, *, clean: bool) -> None:
        """`clean`: its work ended by itself. The place stays until nothing of it can take effect any more."""
        with self._lock:
            if presence in self._here:
                self._here.remove(presence)
        if clean and not self.unanswered():
            self.writers.leave(presence.writer)
            self.revisions.leave(presence.writer)

    def _renew(self) -> None:
        with self._lock:
            here = list(self._here)
        for presence in here:
            # The journal may come back in time; check() stops the writer when it does not.
            with suppress(MigratorError):
                presence.beat()


def _not_renewed(error: Exception) -> None:
    """A writer whose heartbeats go on failing is stopped by check()."""
    _log.warning("heartbeat_not_given", reason=type(error).__name__)


def refuse_beside(entered: Writer, living: Sequence[Writer], lifetimes: Lifetimes) -> None:
    """Raises where one deletes what another writes: SettingsError for the one that deletes, StoppedError for the other."""
    if entered.kind == "undo":
        if named := ", ".join(sorted(f"a {_NAMED[one.kind]}" for one in living if one.kind != "undo")):
            advice = f"stop them, and wait {lifetimes.gone_s:g} s for those that were killed"
            raise SettingsError(f"undo deletes, and these write to the same table: {named}; {advice}")
    elif any(one.kind == "undo" for one in living):
        raise StoppedError(
            "an undo is deleting items of this table; the same command goes on when it has ended"
            f" (one that was killed counts for {lifetimes.gone_s:g} s)"
        )


_NAMED: Mapping[WriterKind, str] = {
    "fast": "backfill",
    "conditional": "backfill",
    "relay": "relay",
    "strict": "strict service",
    "undo": "undo",
}
