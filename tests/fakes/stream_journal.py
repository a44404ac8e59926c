"""Checkpoints of a stream in memory, by a clock of the test's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from migrator.mapping.model.live import FORGOTTEN_S, Checkpoint, Checkpoints, Shard, allotted
from migrator.runtime.values import replace


class FakeStreamJournal:
    """model.streams.shards.StreamJournal of one job and table."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.arn = ""
        self.listed_at = 0.0
        self.shards: dict[str, Checkpoint] = {}
        self.alive_until: dict[str, float] = {}

    def stream(self) -> str:
        return self.arn

    def begin(self, stream: str) -> None:
        self.arn, self.listed_at = stream, self.clock()
        self.shards, self.alive_until = {}, {}

    def list_shards(self, stream: str, shards: Sequence[Shard], age_s: float) -> None:
        if stream != self.arn:
            return
        for shard in shards:
            self.shards.setdefault(shard.id, Checkpoint(shard.id, shard.parent, "", self.listed_at))
        now, named = self.clock(), {shard.id for shard in shards}
        self.listed_at = max(self.listed_at, now - age_s)
        for known in list(self.shards.values()):
            if known.is_finished and known.shard not in named and known.passed_at < now - FORGOTTEN_S:
                del self.shards[known.shard]

    def claim(self, stream: str, owner: str, lease_s: float) -> Checkpoints:
        now = self._enter(owner, lease_s)
        if stream != self.arn:
            return Checkpoints(now, ())
        readers = sum(until > now for until in self.alive_until.values())
        held = {shard.shard for shard in allotted(self.shards.values(), owner, readers, now)}
        for shard in self.shards.values():
            if shard.shard in held:
                self.shards[shard.shard] = replace(shard, owner=owner, leased_until=now + lease_s)
            elif shard.owner == owner:
                self.shards[shard.shard] = replace(shard, owner="")
        return Checkpoints(now, tuple(self.shards[name] for name in sorted(held)))

    def renew(self, stream: str, owner: str, lease_s: float, passed_at: Mapping[str, float]) -> set[str]:
        now = self._enter(owner, lease_s)
        own = [shard for shard in self.shards.values() if shard.owner == owner and stream == self.arn]
        for shard in own:
            passed = max(shard.passed_at, passed_at.get(shard.shard, 0.0))
            self.shards[shard.shard] = replace(shard, leased_until=now + lease_s, passed_at=passed)
        return {shard.shard for shard in own}

    def save(self, stream: str, owner: str, done: Checkpoint) -> bool:
        known = self.shards.get(done.shard)
        if stream != self.arn or known is None or known.owner != owner:
            return False
        moved = replace(known, sequence=done.sequence, passed_at=done.passed_at, is_finished=done.is_finished)
        self.shards[done.shard] = moved
        return True

    def leave(self, stream: str, owner: str) -> None:
        self.alive_until.pop(owner, None)
        for shard in self.shards.values():
            if shard.owner == owner:
                self.shards[shard.shard] = replace(shard, owner="")

    def read(self, stream: str) -> Checkpoints:
        shards = sorted(self.shards) if stream == self.arn else []
        return Checkpoints(self.clock(), tuple(self.shards[name] for name in shards))

    def _enter(self, owner: str, lease_s: float) -> float:
        now = self.clock()
        self.alive_until[owner] = now + lease_s
        return now
