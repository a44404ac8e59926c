"""CPU per item of a backfill, fast and conditional, against a naive script and a replay of its requests.

All alternate in one run into a sink that answers at once; figures are medians of their ratios. Only this
process's CPU counts, so a busy machine does little harm. The replay sends prepared bytes on a bare socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench.measure import InTurn, Tables, alone
from bench.recorder import recording, replay
from bench.shapes import ROWS, SHAPES, engine_of
from bench.ways import WAYS, by_backfill
from migrator.dynamodb.exchange import BOTOCORE
from tests.support_capture import capturing
from tests.support_lanes import PROXY

TITLES = {
    "naive": ("naive", ""),
    "prepared bodies by botocore": ("backfill", BOTOCORE),
    "the same through a proxy": ("backfill", PROXY),
    "backfill": ("backfill", ""),
    "conditional backfill": ("conditional", ""),
}
"""Of what is measured the way, and the lane that its requests go by."""


def test_cpu_of_an_item(
    url: str, name: str, sink: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(url)
    with capturing(engine.lower(), url) as capture:
        capture.install()
    with recording() as (endpoint, requests):
        by_backfill(SHAPES[name], url, endpoint)

    def taken(title: str) -> Callable[[], int]:
        way, lane = TITLES[title]

        def work() -> int:
            with by_lane(lane, sink, monkeypatch) as endpoint:
                items = WAYS[way](SHAPES[name], url, endpoint)
            assert items == ROWS
            return items

        return work

    def replayed() -> int:
        replay(sink, requests)
        return ROWS

    found = InTurn.of({title: taken(title) for title in TITLES} | {"replay": replayed})
    for title in [*TITLES, "replay"]:
        peak = f"{peak_mb(title, name, url, sink, monkeypatch):.0f}" if title in TITLES else "–"
        tables.add(
            f"Backfill, {ROWS:,} rows, µs of CPU an item",
            rows=f"{engine}, {name}",
            way=title,
            CPU=f"{found.cpu_us(title):.1f}",
            less_than_naive=f"{found.ratio('naive', title):.1f}",
            times_the_replay=f"{found.ratio(title, 'replay'):.1f}",
            items_a_second=f"{found.a_second(title):,.0f}",
            MB_at_most=peak,
        )
    ratio = found.ratio("conditional backfill", "backfill")
    tables.add("Conditional backfill / fast", rows=f"{engine}, {name}", ratio=f"{ratio:.2f}")


def peak_mb(title: str, name: str, url: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> float:
    way, lane = TITLES[title]
    with by_lane(lane, endpoint, monkeypatch) as asked:
        return alone(way, name, url, asked).peak_mb


@contextmanager
def by_lane(lane: str, sink: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The endpoint, so that requests reach the sink by this lane."""
    with monkeypatch.context() as patch:
        patch.setenv("MIGRATOR_LANE", "" if lane == PROXY else lane)
        if lane == PROXY:
            # The sink answers whatever URL is asked for, so that it is a proxy, too.
            patch.setenv("HTTP_PROXY", sink)
            patch.setenv("NO_PROXY", "")
        yield "http://127.0.0.1:1" if lane == PROXY else sink
