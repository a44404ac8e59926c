"""CPU of a conditional backfill's process for each item, against the fast one's, into a sink that answers at once.

Tickets are drawn from the source, and findings looked up in a journal, as they are beside other writers. Of the control item a
fake answers: it is asked once a page.
"""

from __future__ import annotations

import statistics

import pytest
import sqlalchemy as sa

from migrator.journal.memory import SqlMemory, SqlOpenFindings
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.model.journal import RunIdentity
from migrator.stages.backfill.inserts import inserts_where_possible
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import ConditionalPath
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import live_entities
from migrator.target.client import dynamodb_client
from migrator.target.conditional import ConditionalWrites
from migrator.target.exchange import REFERENCE
from migrator.target.store import DynamoStore
from tests.bench.test_items import PLAIN, ROUNDS, Shape, by_backfill, cpu_us, url  # noqa: F401
from tests.fakes.progress import Silent
from tests.fakes.store import FakeStore
from tests.support_capture import capturing
from tests.support_fence import no_fence
from tests.support_mapping import parse_mapping

pytestmark = pytest.mark.bench


def beside_others(shape: Shape, url: str, endpoint: str) -> int:  # noqa: F811
    """How many items were written."""
    engine, journal = sa.make_url(url).get_backend_name(), SqlJournal.in_memory()
    with capturing("mariadb" if engine == "mysql" else engine, url) as capture:
        checked = check_mapping(parse_mapping(shape.mapping, "m.yaml"), capture.source.facts())
        design = checked.mapping.table
        client = dynamodb_client(region=None, profile=None, endpoint=endpoint)
        refresh = Refresh(
            rows=capture.source,
            store=ConditionalWrites(DynamoStore(client, design, no_fence)),
            tickets=capture.tickets,
            memory=SqlMemory(journal.database, "bench"),
            control=FakeStore(design, no_fence),
            entities=live_entities(checked.mapping, checked.entities),
            table=design,
            revision=checked.mapping.revision,
            check=no_fence,
        )
        path = inserts_where_possible(
            ConditionalPath(refresh, SqlOpenFindings(journal.database, "bench", "bench"))
        )
        options = BackfillOptions(workers=1, page_rows=2000)
        stage = Backfill(capture.source, journal, path, Silent(), options)
        run = journal.start_run(RunIdentity("backfill", "bench", design.name, checked.mapping.revision))
        items = stage.run(run, checked.entities).total.items
    journal.close()
    return items


def test_cpu_of_a_conditional_item(url: str, sink: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    with capturing(
        "mariadb" if url.startswith(("mysql", "mariadb")) else url.split(":")[0].split("+")[0], url
    ) as capture:
        capture.install()
    figures: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for lane in (REFERENCE, "exchange"):
            monkeypatch.setenv("MIGRATOR_LANE", lane)
            figures.setdefault(f"fast, {lane}", []).append(cpu_us(by_backfill, PLAIN, url, sink))
            figures.setdefault(f"conditional, {lane}", []).append(cpu_us(beside_others, PLAIN, url, sink))
    for name, found in figures.items():
        print(f"\n{name}: {statistics.median(found):.1f} µs of CPU an item", end="")
    ratios = [
        one / other
        for one, other in zip(figures["conditional, exchange"], figures["fast, exchange"], strict=True)
    ]
    print(f"\nconditional / fast: {statistics.median(ratios):.2f}")
