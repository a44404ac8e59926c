"""The journal in memory: remembered keys, key requests and writers."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.mapping.model.live import KeyRequest, Remembered, Root, Writer, WriterKind
from migrator.mapping.model.table import ItemKey
from migrator.runtime.values import replace
from tests.simulation.scheduler import Scheduler


@dataclass
class Memory:
    schedule: Scheduler
    remembered: dict[Root, Remembered] = field(default_factory=dict)
    requests: dict[KeyRequest, int] = field(default_factory=dict)
    ticket: int = 0

    def remember(self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]) -> dict[Root, Remembered]:
        self.schedule.step()
        before = {root: self.remembered.get(root, Remembered()) for root in intended}
        for root, keys in intended.items():
            if before[root].ticket <= ticket:
                self.remembered[root] = Remembered(ticket, before[root].keys | set(keys))
        return before

    def settle(self, ticket: int, current: Mapping[Root, Collection[ItemKey]]) -> None:
        self.schedule.step()
        for root, keys in current.items():
            if self.remembered.get(root, Remembered()).ticket == ticket:
                self.remembered[root] = Remembered(ticket, frozenset(keys))

    def request_keys(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        self.schedule.step()
        for request in requests:
            self.requests[request] = max(ticket, self.requests.get(request, ticket))

    def requests_of(self, keys: Sequence[ItemKey]) -> list[KeyRequest]:
        if not self.requests:
            return []
        self.schedule.step()
        return [request for request in self.requests if request.key in keys]

    def reached(self, ticket: int) -> None:
        self.schedule.step()
        self.ticket = max(self.ticket, ticket)

    def highest(self) -> int:
        return self.ticket

    def saved(self) -> tuple[Any, ...]:
        return copy.deepcopy((self.remembered, self.requests, self.ticket))

    def restore(self, saved: tuple[Any, ...]) -> None:
        self.remembered, self.requests, self.ticket = copy.deepcopy(saved)

    def withdraw(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        self.schedule.step()
        for request in requests:
            if self.requests.get(request, ticket) <= ticket:
                self.requests.pop(request, None)


@dataclass
class Writers:
    schedule: Scheduler
    here: dict[str, Writer] = field(default_factory=dict)
    guarded: bool = False
    count: int = 0

    def enter(self, kind: WriterKind) -> Writer:
        self.schedule.step()
        if kind == "fast" and self.guarded:
            kind = "conditional"
        now = self.schedule.now_s
        self.count += 1
        writer = Writer(f"w{self.count}", kind, now, now)
        self.here[writer.id] = writer
        return writer

    def beat(self, writer: Writer, *, begins: bool = False) -> Writer:
        registered = self.here.get(writer.id)
        if registered is None:
            return replace(writer, fenced=True)
        now = self.schedule.now_s
        # Not by replace(): it is a sixtieth of a schedule.
        since = now if begins else registered.since
        beaten = self.here[writer.id] = Writer(registered.id, registered.kind, since, now, registered.fenced)
        return beaten

    def leave(self, writer: Writer) -> None:
        self.schedule.step()
        self.here.pop(writer.id, None)

    def fence(self) -> list[Writer]:
        self.schedule.step()
        self.guarded = True
        fast = [writer for writer in self.here.values() if writer.kind == "fast"]
        for writer in fast:
            self.here[writer.id] = replace(writer, fenced=True)
        return [self.here[writer.id] for writer in fast]

    def living(self, silent_s: float) -> list[Writer]:
        self.schedule.step()
        return [writer for writer in self.here.values() if self.schedule.now_s - writer.alive_at <= silent_s]


@dataclass
class Identity:
    """model.edges.Identity; `id`: of the journal."""

    id: str = "journal"
    seen_tables: dict[str, int] = field(default_factory=dict)

    def journal_id(self) -> str:
        return self.id

    def seen(self, table_id: str) -> int | None:
        return self.seen_tables.get(table_id)

    def see(self, table_id: str, table: str, ticket: int) -> None:
        self.seen_tables[table_id] = max(ticket, self.seen_tables.get(table_id, ticket))

    def repaired(self, table_id: str, table: str, ticket: int) -> None:
        self.seen_tables[table_id] = ticket

    def tables_named(self, table: str) -> frozenset[str]:
        return frozenset(self.seen_tables)


@dataclass
class ClaimBook:
    schedule: Scheduler
    owners: dict[bytes, str] = field(default_factory=dict)

    def claim(self, table_id: str, claims: Sequence[tuple[bytes, str]]) -> dict[bytes, str]:
        self.schedule.step()
        owners_before = {}
        for digest, owner in claims:
            if self.owners.setdefault(digest, owner) != owner:
                owners_before[digest] = self.owners[digest]
        return owners_before

    def release(self, table_id: str, given_up: Sequence[tuple[bytes, str]]) -> None:
        self.schedule.step()
        for digest, owner in given_up:
            if self.owners.get(digest) == owner:
                del self.owners[digest]
