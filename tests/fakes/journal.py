"""What a journal keeps of live change, in memory; it passes the contracts of the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from threading import RLock

from migrator.errors import MigratorError
from migrator.mapping.keys import item_key_text
from migrator.model import ItemKey
from migrator.ports.instances import Instance
from migrator.ports.live import Contest, Remembered, Root, Writer, WriterKind


class FakeMemory:
    """ports.live.Memory; a test may look at `roots` and `wishes`."""

    def __init__(self) -> None:
        self.roots: dict[Root, Remembered] = {}
        self.wishes: dict[tuple[str, Root], Contest] = {}
        self.ticket = 0
        self._lock = RLock()

    def reached(self, ticket: int) -> None:
        with self._lock:
            self.ticket = max(self.ticket, ticket)

    def highest(self) -> int:
        return self.ticket

    def remember(self, ticket: int, intended: Mapping[Root, Iterable[ItemKey]]) -> dict[Root, Remembered]:
        with self._lock:
            before = {root: self.roots.get(root, Remembered()) for root in intended}
            for root, keys in intended.items():
                if before[root].ticket <= ticket:
                    self.roots[root] = Remembered(ticket, before[root].keys | frozenset(keys))
        return before

    def settle(self, ticket: int, current: Mapping[Root, Iterable[ItemKey]]) -> None:
        with self._lock:
            for root, keys in current.items():
                held = self.roots.get(root, Remembered())
                if held.ticket == ticket:
                    self.roots[root] = Remembered(ticket, held.keys & frozenset(keys))

    def contest(self, contests: Sequence[Contest]) -> None:
        with self._lock:
            for one in contests:
                self.wishes.setdefault((item_key_text(one.key), one.root), one)

    def contests(self, keys: Sequence[ItemKey]) -> list[Contest]:
        asked = {item_key_text(key) for key in keys}
        with self._lock:
            return [self.wishes[place] for place in sorted(self.wishes) if place[0] in asked]

    def concede(self, contests: Sequence[Contest]) -> None:
        with self._lock:
            for one in contests:
                self.wishes.pop((item_key_text(one.key), one.root), None)


class FakeWriters:
    """ports.live.Writers by a clock of the test's own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.closed = False
        self.writers: dict[str, Writer] = {}
        self._numbers = count(1)
        self._lock = RLock()

    def enter(self, kind: WriterKind) -> Writer:
        with self._lock:
            given: WriterKind = "conditional" if kind == "fast" and self.closed else kind
            self.closed = self.closed or given != "fast"
            now = self.clock()
            made = Writer(f"writer-{next(self._numbers):06}", given, now, now)
            self.writers[made.id] = made
        return made

    def beat(self, writer: Writer, *, begins: bool = False) -> Writer:
        with self._lock:
            held = self.writers.get(writer.id)
            if held is None:
                return replace(writer, fenced=True)
            now = self.clock()
            self.writers[writer.id] = replace(held, since=now if begins else held.since, alive_at=now)
            return self.writers[writer.id]

    def leave(self, writer: Writer) -> None:
        with self._lock:
            self.writers.pop(writer.id, None)

    def fence(self) -> list[Writer]:
        with self._lock:
            self.closed = True
            fast = [replace(one, fenced=True) for one in self.writers.values() if one.kind == "fast"]
            self.writers |= {one.id: one for one in fast}
        return _in_order(fast)

    def living(self, silent_s: float) -> list[Writer]:
        with self._lock:
            return _in_order(one for one in self.writers.values() if one.alive_at > self.clock() - silent_s)


class FakeInstances:
    """ports.instances.Instances by a clock of the test's own. `away`: what every method raises, if anything."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.away: MigratorError | None = None
        self.instances: dict[str, Instance] = {}
        self._numbers = count(1)
        self._lock = RLock()

    def enter(self, instance: Instance) -> Instance:
        self._ask()
        with self._lock:
            now = self.clock()
            entered = replace(instance, id=f"instance-{next(self._numbers):06}", since=now, alive_at=now)
            self.instances[entered.id] = entered
        return entered

    def beat(self, instance: Instance) -> Instance:
        self._ask()
        with self._lock:
            self.instances[instance.id] = beaten = replace(instance, alive_at=self.clock())
        return beaten

    def leave(self, instance: Instance) -> None:
        self._ask()
        with self._lock:
            self.instances.pop(instance.id, None)

    def known(self) -> list[Instance]:
        self._ask()
        with self._lock:
            return sorted(self.instances.values(), key=lambda one: (one.since, one.id))

    def living(self, silent_s: float) -> list[Instance]:
        return [one for one in self.known() if one.alive_at > self.clock() - silent_s]

    def forget_silent(self, older_than_s: float) -> int:
        known, since = self.known(), self.clock() - older_than_s
        with self._lock:
            self.instances = {one.id: one for one in known if one.alive_at >= since}
        return len(known) - len(self.instances)

    def now_s(self) -> float:
        self._ask()
        return self.clock()

    def _ask(self) -> None:
        if self.away is not None:
            raise self.away


def _in_order(writers: Iterable[Writer]) -> list[Writer]:
    return sorted(writers, key=lambda one: (one.since, one.id))
