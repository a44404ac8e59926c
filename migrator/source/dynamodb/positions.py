"""Places in the order in which a scan reads a table: ends of segments, which are pages, and keys of documents.

DynamoDB has no order of keys over partitions. A segment of a parallel scan holds the partitions of one range of hashes,
always the same ones for the same number of segments: so `["segment",3,16]`, the end of the fourth of sixteen, is a bound
that holds whatever is written or deleted meanwhile, and needs no read to be found. A document's own key is a place in the
order of a scan that is not divided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from migrator.mapping.model.table import SourceKey, decode_key, encode_key
from migrator.runtime.errors import SourceError

MOST_SEGMENTS = 1_000_000
"""Source: API reference, Scan, TotalSegments."""
MOST_SEGMENTS_HERE = 32
"""Of a server on this machine: MiniStack walks through the whole table for each request of a segment."""
_SEGMENT = "segment"
_PARTS = 3
"""More than a key of DynamoDB has attributes, so that no key looks like the end of a segment."""


class SegmentEnd(Struct, frozen=True):
    """Behind the last document of segment `number`, from 0, of `of`."""

    number: int
    of: int

    @property
    def text(self) -> SourceKey:
        return encode_key([_SEGMENT, self.number, self.of])


def place_of(text: SourceKey | None) -> SegmentEnd | SourceKey | None:
    """The end of a segment, or the text of a document's key."""
    if text is None:
        return None
    values = decode_key(text)
    return SegmentEnd(values[1], values[2]) if len(values) == _PARTS and values[0] == _SEGMENT else text


class Stretch(Struct, frozen=True):
    """What one scan reads: a segment of `of`, or, undivided, what is behind the key `start`, up to the key `stop`."""

    segment: int = 0
    of: int = 1
    start: SourceKey | None = None
    stop: SourceKey | None = None


def stretches(after: SourceKey | None, upto: SourceKey | None) -> list[Stretch]:
    """The scans that read what is behind one place, up to another. Raises: SourceError for places of two orders."""
    begin, end = place_of(after), place_of(upto)
    segments = [place for place in (begin, end) if isinstance(place, SegmentEnd)]
    if not segments:
        return [Stretch(start=after, stop=upto)]
    of = segments[0].of
    mixed = len(segments) < sum(place is not None for place in (begin, end))
    if mixed or any(place.of != of for place in segments):
        raise SourceError(
            "a page of documents begins and ends in two different orders; begin the run anew (--restart)"
        )
    first = begin.number + 1 if isinstance(begin, SegmentEnd) else 0
    last = end.number if isinstance(end, SegmentEnd) else of - 1
    return [Stretch(number, of) for number in range(first, last + 1)]


def segment_bounds(
    rows: int, page_rows: int, most: int, after: SourceKey | None, upto: SourceKey | None
) -> Iterator[SourceKey]:
    """Ends of segments of about `page_rows` of about `rows` documents; what is behind the last bound is one more page.

    Between ends of segments: those of the same number of segments.
    """
    begin, end = place_of(after), place_of(upto)
    given = next((place for place in (begin, end) if isinstance(place, SegmentEnd)), None)
    of = given.of if given else segments_of(rows, page_rows, most)
    first = begin.number + 1 if isinstance(begin, SegmentEnd) else 0
    last = end.number if isinstance(end, SegmentEnd) else of - 2
    yield from (SegmentEnd(number, of).text for number in range(first, last + 1))


def segments_of(rows: int, page_rows: int, most: int) -> int:
    """How many pages of about `page_rows` about `rows` documents are."""
    return min(most, MOST_SEGMENTS, max(1, math.ceil(rows / page_rows)))
