"""Sets of transactions by their global identifiers (GTIDs): a position in MySQL's binary log. Pure.

Source: MySQL Reference Manual, "GTID Format and Storage"; mysql-server, sql/rpl_gtid_set.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from uuid import UUID

from msgspec import Struct

from migrator.runtime.errors import SourceError

Intervals = tuple[tuple[int, int], ...]
"""(first, last) of each, in order and with gaps between them."""
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")


class GtidSet(Struct, frozen=True):
    """Transactions by their GTIDs. `sources`: numbers by UUID or UUID:tag."""

    sources: Mapping[str, Intervals] = {}

    @classmethod
    def of(cls, text: str) -> GtidSet:
        """Raises: SourceError."""
        found: dict[str, list[tuple[int, int]]] = {}
        try:
            for part in filter(None, re.split(r"[\s,]+", text)):
                uuid, *pieces = part.split(":")
                source = str(UUID(uuid))
                for piece in pieces:
                    if _TAG.fullmatch(piece):
                        source = f"{UUID(uuid)}:{piece}"
                        continue
                    first, _, last = piece.partition("-")
                    found.setdefault(source, []).append((int(first), int(last or first)))
        except ValueError:
            raise SourceError(
                "the server sent a set of GTIDs that cannot be read; nothing was skipped"
            ) from None
        return cls({source: _merged(sorted(of)) for source, of in found.items()})

    def text(self) -> str:
        return ",".join(
            ":".join([source, *(f"{first}-{last}" for first, last in intervals)])
            for source, intervals in sorted(self.sources.items())
        )

    def plus(self, other: GtidSet) -> GtidSet:
        sources = dict(self.sources)
        for source, intervals in other.sources.items():
            own = sources.get(source, ())
            last = own[-1] if own else (0, -1)
            if len(intervals) == 1 and intervals[0][0] == last[1] + 1:
                # The next transaction, the usual case.
                sources[source] = (*own[:-1], (last[0], intervals[0][1]))
            else:
                sources[source] = _merged(sorted((*own, *intervals)))
        return GtidSet(sources)

    def __ge__(self, other: GtidSet) -> bool:
        return all(
            any(first <= begin and end <= last for first, last in self.sources.get(source, ()))
            for source, intervals in other.sources.items()
            for begin, end in intervals
        )

    def __gt__(self, other: GtidSet) -> bool:
        return self >= other and not other >= self

    def encoded(self) -> bytes:
        """The form of COM_BINLOG_DUMP_GTID; servers before 8.3 do not support the one with tags."""
        is_tagged = any(":" in source for source in self.sources)
        count = len(self.sources)
        head = bytes([1, *count.to_bytes(6, "little"), 1]) if is_tagged else count.to_bytes(8, "little")
        return head + b"".join(self._encoded(is_tagged=is_tagged))

    def _encoded(self, *, is_tagged: bool) -> Iterator[bytes]:
        for source, intervals in sorted(self.sources.items()):
            uuid, _, tag = source.partition(":")
            yield UUID(uuid).bytes
            if is_tagged:
                yield bytes([len(tag) << 1]) + tag.encode()
            yield len(intervals).to_bytes(8, "little")
            for first, last in intervals:
                yield first.to_bytes(8, "little") + (last + 1).to_bytes(8, "little")


def gtid(source: str, number: int) -> GtidSet:
    return GtidSet({source: ((number, number),)})


def _merged(intervals: list[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for first, last in intervals:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
