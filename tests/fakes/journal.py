"""What a journal keeps of live change, in memory; it passes the contracts of the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import RLock

from migrator.mapping.model.instances import Instance, ServiceRegistry, Standing
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import KeyRequest, Remembered, Root, Writer, WriterKind
from migrator.mapping.model.table import ItemKey, item_key_text
from migrator.runtime.errors import MigratorError, OldRevisionError
from migrator.runtime.values import replace


class FakeMemory:
    """model.live.Memory; a test may look at `roots` and `requests`."""

    def __init__(self) -> None:
        self.roots: dict[Root, Remembered] = {}
        self.requests: dict[tuple[str, Root], KeyRequest] = {}
        self.tickets: dict[KeyRequest, int] = {}
        self.ticket = 0
        self._lock = RLock()

    def reached(self, ticket: int) -> None:
        with self._lock:
            self.ticket = max(self.ticket, ticket)

    def highest(self) -> int:
        return self.ticket

    def remember(self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]) -> dict[Root, Remembered]:
        with self._lock:
            before = {root: self.roots.get(root, Remembered()) for root in intended}
            for root, keys in intended.items():
                if before[root].ticket <= ticket:
                    self.roots[root] = Remembered(ticket, before[root].keys | frozenset(keys))
        return before

    def settle(self, ticket: int, current: Mapping[Root, Collection[ItemKey]]) -> None:
        with self._lock:
            for root, keys in current.items():
                held = self.roots.get(root, Remembered())
                if held.ticket == ticket:
                    self.roots[root] = Remembered(ticket, held.keys & frozenset(keys))

    def request_keys(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        with self._lock:
            for request in requests:
                self.requests.setdefault((item_key_text(request.key), request.root), request)
                self.tickets[request] = max(ticket, self.tickets.get(request, ticket))

    def requests_of(self, keys: Sequence[ItemKey]) -> list[KeyRequest]:
        wanted = {item_key_text(key) for key in keys}
        with self._lock:
            return [
                self.requests[request_key]
                for request_key in sorted(self.requests)
                if request_key[0] in wanted
            ]

    def withdraw(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        with self._lock:
            for request in requests:
                if self.tickets.get(request, ticket) <= ticket:
                    self.requests.pop((item_key_text(request.key), request.root), None)
                    self.tickets.pop(request, None)


class FakeOpenFindings:
    """model.live.OpenFindings; each finding by its place, with the ticket of the reading that made it."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, ...], tuple[int, Finding]] = {}
        self._lock = RLock()

    def settle(self, tickets: Mapping[Root, int], findings: Sequence[Finding]) -> None:
        with self._lock:
            newer = {
                key
                for key, (ticket, finding) in self.open.items()
                if ticket > tickets.get(_root(finding), ticket)
            }
            left = {
                key: kept for key, kept in self.open.items() if key in newer or _root(kept[1]) not in tickets
            }
            new: dict[tuple[str, ...], tuple[int, Finding]] = {
                (finding.kind, *_root(finding), finding.item_key, finding.attribute): (
                    tickets.get(_root(finding), 0),
                    finding,
                )
                for finding in findings
            }
            self.open = {**new, **left, **{key: new[key] for key in new.keys() - newer}}

    def close_marks(self) -> None:
        self._keep(lambda finding: finding.kind != "mark")

    def keep_entities(self, names: Collection[str]) -> None:
        self._keep(lambda finding: finding.kind == "mark" or finding.entity in names)

    def counts(self, above: int = -1) -> dict[str, int]:
        return dict(Counter(finding.kind for ticket, finding in self.open.values() if ticket > above))

    def read(self, limit: int | None = None) -> list[Finding]:
        return [finding for _, finding in sorted(self.open.values(), key=lambda kept: kept[0])][:limit]

    def roots(self) -> list[Root]:
        return sorted({_root(finding) for _, finding in self.open.values() if finding.source_key})

    def _keep(self, wanted: Callable[[Finding], bool]) -> None:
        with self._lock:
            self.open = {key: kept for key, kept in self.open.items() if wanted(kept[1])}


def _root(finding: Finding) -> Root:
    return finding.entity, finding.source_key


class FakeWriters:
    """model.live.Writers by a clock of the test's own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.closed = False
        self.writers: dict[str, Writer] = {}
        self._numbers = count(1)
        self._lock = RLock()

    def enter(self, kind: WriterKind) -> Writer:
        with self._lock:
            given: WriterKind = "conditional" if kind == "fast" and self.closed else kind
            self.closed = self.closed or given not in ("fast", "undo")
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
            fast = [replace(writer, fenced=True) for writer in self.writers.values() if writer.kind == "fast"]
            self.writers |= {writer.id: writer for writer in fast}
        return _in_order(fast)

    def living(self, silent_s: float) -> list[Writer]:
        with self._lock:
            return _in_order(
                writer for writer in self.writers.values() if writer.alive_at > self.clock() - silent_s
            )


@dataclass
class RevisionBook:
    """What a journal holds of one job's revisions."""

    newest: str = ""
    seen: set[str] = field(default_factory=set)
    by_writer: dict[str, str] = field(default_factory=dict)


class FakeRevisions:
    """model.instances.Revisions; those of one job share a `book`."""

    def __init__(self, book: RevisionBook | None = None, own: str = "own") -> None:
        self.book = book if book is not None else RevisionBook()
        self.own = own

    def standing(self) -> Standing:
        if self.book.newest in ("", self.own):
            return "newest" if self.book.newest else "first"
        return "old" if self.own in self.book.seen else "new"

    def register(self, *, go_back: bool = False) -> Standing:
        before = self.standing()
        if before == "old" and not go_back:
            raise OldRevisionError("the job has gone on to another mapping")
        self.book.newest = self.own
        self.book.seen.add(self.own)
        return before

    def enter(self, writer: Writer) -> None:
        if self.standing() in ("new", "old"):
            raise OldRevisionError("the job has gone on to another mapping")
        self.register()
        self.book.by_writer[writer.id] = self.own

    def leave(self, writer: Writer) -> None:
        self.book.by_writer.pop(writer.id, None)

    def is_old(self) -> bool:
        return self.book.newest not in ("", self.own)

    def old(self, writers: Sequence[Writer]) -> list[Writer]:
        newest, revisions = self.book.newest, self.book.by_writer
        return [writer for writer in writers if newest and revisions.get(writer.id, newest) != newest]


class FakeInstances:
    """model.instances.Instances by a clock of the test's own. `away`: what every method raises, if anything."""

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
            return sorted(self.instances.values(), key=lambda instance: (instance.since, instance.id))

    def registry(self, gone_s: float) -> ServiceRegistry:
        return ServiceRegistry(tuple(self.known()), self.clock(), gone_s)

    def forget_silent(self, older_than_s: float) -> int:
        registered, since = self.known(), self.clock() - older_than_s
        with self._lock:
            self.instances = {instance.id: instance for instance in registered if instance.alive_at >= since}
        return len(registered) - len(self.instances)

    def _ask(self) -> None:
        if self.away is not None:
            raise self.away


def _in_order(writers: Iterable[Writer]) -> list[Writer]:
    return sorted(writers, key=lambda writer: (writer.since, writer.id))
