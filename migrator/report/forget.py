"""What forgetting a row counted, took away and leaves: lines for people, plain data for programs; no key of the row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migrator.results import Forgotten, RowTraces


def found_lines(found: RowTraces) -> Iterator[str]:
    yield f"kept of the row: {_listed(found.counts)}"


def hint_lines(found: RowTraces) -> Iterator[str]:
    # Samples are there, or not, whatever row is meant.
    own = [number for kind, number in found.counts.items() if kind != "samples"]
    if not any((*own, found.items, found.is_there)):
        yield "If you expected something: is the key written as `migrator findings --show-keys` shows it?"


def forgotten_lines(done: Forgotten) -> Iterator[str]:
    yield f"forgotten: {_listed(done.gone)}"
    if done.young:
        what = f"{done.young:,} tombstone(s) must stay until no late writer can bring an item back"
        yield f"{what}; run the same command again in {done.ripe_in_s:,.0f} s, or when older work has ended"
    if done.is_late:
        what = "somebody still writes what he read before, or the row has come back: remembered keys stay"
        yield f"{what}; run the same command again when he is done"


def left_lines(left: Sequence[str]) -> Iterator[str]:
    yield "What this command cannot take away:"
    yield from (f"  - {one}" for one in left)


def left_of(found: RowTraces, *, in_s3: bool) -> list[str]:
    """What stays elsewhere, and who must see to it."""
    left = [
        "point-in-time recovery of the table (up to 35 days), its backups, exports and stream (24 hours)",
        "backups, replicas and binary logs of the source, and of the journal's database; pages of them that are not"
        " overwritten yet (VACUUM)",
        "items and rows of others that quote the row, and whatever your own logs hold",
    ]
    if in_s3:
        left.append("objects in S3 that its items pointed to, and their older versions")
    if found.page_bounds:
        left.append(
            f"{found.page_bounds:,} page(s) of runs in the journal that begin or end at the row's key"
        )
    if found.is_there:
        left.append("the row itself, its items, and what the relay needs as long as the row is there")
    elif found.items:
        left.append(f"{found.items:,} item(s) of the row in the table")
    return left


def forget_data(found: RowTraces, done: Forgotten | None, left: Sequence[str]) -> dict[str, Any]:
    """`forgotten` is null where nothing was taken away because only counts were asked for."""
    return {
        "row_in_source": found.is_there,
        "items": found.items,
        "found": found.counts,
        "forgotten": None if done is None else dict(done.gone),
        "tombstones_left": len(found.tombstones) if done is None else done.young,
        "again_in_s": 0 if done is None else round(done.ripe_in_s),
        "writers_late": False if done is None else done.is_late,
        "left": list(left),
    }


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in counts.items() if number) or "nothing"
