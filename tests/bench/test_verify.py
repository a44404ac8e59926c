"""CPU of a verify's process for each item, against a backfill of the same rows, over a table that answers at once.

Ways are measured in turn in one run, and the figures are medians of their ratios; only this process's CPU counts.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.model.journal import RunIdentity
from migrator.source.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.verify.stage import Verify, VerifyOptions
from migrator.target.client import dynamodb_client
from migrator.target.exchange import REFERENCE
from migrator.target.store import DynamoStore
from tests.bench.test_items import ROUNDS, ROWS, SHAPES, Shape, by_backfill, cpu_us
from tests.bench.test_items import url as url
from tests.fakes.progress import Silent
from tests.support_fence import OF_A_STILL_SOURCE, no_fence
from tests.support_mapping import parse_mapping

pytestmark = pytest.mark.bench


@pytest.fixture
def table() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.bench.table_sink"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


def by_verify(shape: Shape, url: str, endpoint: str) -> None:
    source, journal = SqlSource(source_url(url)), SqlJournal.in_memory()
    checked = check_mapping(parse_mapping(shape.mapping, "m.yaml"), source.facts())
    design = checked.mapping.table
    store = DynamoStore(dynamodb_client(region=None, profile=None, endpoint=endpoint), design, no_fence)
    stage = Verify(
        *(source, store, journal, Silent()),
        options=VerifyOptions(workers=1, page_rows=2000),
        **OF_A_STILL_SOURCE,
    )
    run = journal.start_run(RunIdentity("verify", "bench", design.name, checked.mapping.revision))
    result = stage.run(run, checked.entities)
    assert (result.total.items, result.scanned, dict(result.findings)) == (ROWS, ROWS, {})
    source.close()
    journal.close()


@pytest.mark.parametrize("name", SHAPES)
def test_cpu_of_an_item(url: str, name: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {"backfill": ("", by_backfill), "verify": ("", by_verify), "by reference": (REFERENCE, by_verify)}
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for way, (lane, work) in ways.items():
            monkeypatch.setenv("MIGRATOR_LANE", lane)
            figures[way].append(cpu_us(work, SHAPES[name], url, table))
    for way, found in figures.items():
        pairs = zip(found, figures["backfill"], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        print(
            f"\n{sa.make_url(url).get_backend_name()}, {name}, {way}: {statistics.median(found):.1f} µs of CPU an item,"
            f" {ratio:.2f} times a backfill's",
            end="",
        )
    print()
