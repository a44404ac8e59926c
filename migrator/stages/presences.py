"""Heartbeats of this process's writers, given by one thread while they work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock, Thread
from types import TracebackType

from migrator.errors import MigratorError, SettingsError, StoppedError
from migrator.forks import Forked, tell_of_forks
from migrator.ports.live import Writer, WriterKind, Writers
from migrator.ports.revisions import Revisions
from migrator.stages.lifetimes import Lifetimes, Presence


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
        unanswered: Callable[[], int] = lambda: 0,
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
        self._done = Event()
        self._thread = Thread(target=self._renew, args=(self._done,), name="heartbeat", daemon=True)

    def __enter__(self) -> Presences:
        self._thread.start()
        return self

    def after_fork(self, *, in_child: bool) -> None:
        """Places and their heartbeats stay with the parent; what a child writes, it enters for itself."""
        if in_child:
            began = self._thread.ident is not None and not self._done.is_set()
            self._begin_anew()
            if began:
                self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(self.lifetimes.silent_s)

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

    def _renew(self, done: Event) -> None:
        while not done.wait(self.lifetimes.beat_s):
            with self._lock:
                here = list(self._here)
            for presence in here:
                try:
                    presence.beat()
                except MigratorError:
                    continue  # the journal may come back in time; check() stops the writer when it does not


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
