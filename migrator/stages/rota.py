"""Places among the writers for work that never ends: turn after turn, by many threads of one service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from migrator.forks import Forked, tell_of_forks
from migrator.ports.live import WriterKind
from migrator.stages.lifetimes import Presence
from migrator.stages.presences import Presences
from migrator.stages.refresh import RestoredError

TURN_S = 60.0


@dataclass
class Place:
    """One place among the writers, and how many turns are under way in it."""

    presence: Presence
    begun_at: float
    turns: int = 0
    is_clean: bool = True


@dataclass(eq=False)
class Rota(Forked):
    """A place is given up when it is `TURN_S` old and its last turn has ended, so that purge need not wait for ever.

    `guard`: raises where source, journal and table do not belong together any more; asked before each place.
    """

    presences: Presences
    kind: WriterKind
    clock: Callable[[], float]
    guard: Callable[[], None]
    _current: Place | None = None
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        tell_of_forks(self)

    def after_fork(self, *, in_child: bool) -> None:
        """The place is the parent's."""
        if in_child:
            self._current, self._lock = None, Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A turn until the block ends."""
        turn = self.enter()
        try:
            yield
        except BaseException as error:
            self.fail(turn, error)
            raise
        self.leave(turn)

    def enter(self) -> Place:
        """A registered writer is here until the turn is left: what it reads is newer than its place.

        Raises: what the journal does where it cannot be asked, or StoppedError where nothing more may be sent.
        """
        place = self._taken()
        try:
            place.presence.check()
        except BaseException:
            self.leave(place, clean=False)
            raise
        return place

    def leave(self, place: Place, *, clean: bool = True) -> None:
        """`clean`: the turn's work ended by itself, so that nothing of it is on its way."""
        with self._lock:
            place.turns -= 1
            place.is_clean &= clean
            is_last = place is not self._current and not place.turns
        if is_last:
            self._leave(place)

    def fail(self, place: Place, error: BaseException) -> None:
        """Leaves a turn that ended with an error. Where the source went back, the next one asks `guard` first."""
        self.leave(place, clean=False)
        if isinstance(error, RestoredError):
            self.close()

    def close(self) -> None:
        with self._lock:
            place, self._current = self._current, None
        if place is not None and not place.turns:
            self._leave(place)

    def _taken(self) -> Place:
        left: Place | None = None
        with self._lock:
            old = self._current
            taken = old if old is not None and self._is_fresh(old) else self._new()
            self._current = taken
            taken.turns += 1
            # Who still has turns in it leaves it with the last of them.
            if old is not None and old is not taken and not old.turns:
                left = old
        if left is not None:
            self._leave(left)
        return taken

    def _is_fresh(self, place: Place) -> bool:
        return self.clock() - place.begun_at < TURN_S and not place.presence.writer.fenced

    def _new(self) -> Place:
        self.guard()
        return Place(self.presences.enter(self.kind), self.clock())

    def _leave(self, place: Place) -> None:
        self.presences.leave(place.presence, clean=place.is_clean)
