"""Of what the CPU of a backfilled item consists: planning pages, reading, encoding and sending, and the start of a run.

Parts are measured one after the other over the same pages, and the start as a run over a hundred rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from migrator.mapping.check.check import check_mapping
from migrator.mapping.heart.encoder import compile_encoder, encode_page
from migrator.source.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import pages_of
from migrator.target.client import dynamodb_client
from migrator.target.store import DynamoStore
from tests.bench.test_growth import filled
from tests.bench.test_items import PLAIN, ROUNDS, ROWS, by_backfill
from tests.support_fence import no_fence
from tests.support_mapping import parse_mapping

pytestmark = pytest.mark.bench
Result = TypeVar("Result")


def parts_of(url: str, endpoint: str) -> dict[str, float]:
    """CPU of this process by part, in seconds."""
    took_s: dict[str, float] = {}

    def timed(part: str, work: Callable[[], Result]) -> Result:
        began = time.process_time()
        result = work()
        took_s[part] = took_s.get(part, 0.0) + time.process_time() - began
        return result

    source = SqlSource(source_url(url))
    checked = check_mapping(parse_mapping(PLAIN.mapping, "m.yaml"), source.facts())
    client = dynamodb_client(region=None, profile=None, endpoint=endpoint)
    store = DynamoStore(client, checked.mapping.table, no_fence)
    (entity,) = checked.entities
    encoder = compile_encoder(entity, source.raw_places(entity.plan))
    assert encoder is not None
    for page in timed("planning pages", lambda: list(pages_of(source, entity.plan, 2000))):
        after, upto = page.after, page.upto
        rows = timed("reading", lambda: source.read_raw(entity.plan, encoder.raw, after, upto))  # noqa: B023
        made = timed("encoding", lambda: encode_page(encoder, rows, 0, 0.0))  # noqa: B023
        timed("sending", lambda: store.put_encoded(made.items))  # noqa: B023
    source.close()
    return took_s


def test_parts_of_an_item(sink: str, tmp_path: Path) -> None:
    url, few = filled(tmp_path / "bench.db", ROWS), filled(tmp_path / "few.db", 100)
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        by_backfill(PLAIN, few, sink)
        rounds.append({"start of a run": time.process_time() - began, **parts_of(url, sink)})
    for part in rounds[0]:
        took_us = statistics.median(one[part] for one in rounds) / ROWS * 1e6
        print(f"\n{part}: {took_us:.1f} µs of CPU an item of {ROWS:,}", end="")
    print()
