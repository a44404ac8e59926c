"""A measured process of a run: opens everything, reports that it is ready, and processes pages once told to start.

`python -m bench.processes_work KIND SOURCE JOURNAL ENDPOINT [join]` begins a run and ends it, or joins the
active one. Its last line is its cost, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import closing

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.model.journal import Run, RunIdentity, RunKind
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import Claims
from migrator.stages.verify.stage import Verify, VerifyOptions
from tests.fakes.progress import Silent
from tests.support_fence import OF_A_STILL_SOURCE, no_fence, written_alone
from tests.support_mapping import parse_mapping

PAGE_ROWS, WORKERS = 2_000, 1
MAPPING = """
mapping: 1
table: {name: Bench, key: [PK, SK], type: type}
entities:
  orders:
    join: {customer: customer_id, country: customer.country_code}
    collect: {lines: {of: lines, by: order_id, order_by: [n]}}
    items:
      Order:
        key: ["ORDER#{id:09}", META]
        attributes:
          customer: customer.name
          country: country.name
          note: note
          placedAt: placed_at
          customerId: customer_id
          lines: {each: lines, attributes: {n: n, product: product, price: price}}
"""


def staged(
    kind: str, source: SqlSource, journal: SqlJournal, endpoint: str, checked: Checked
) -> Backfill | Verify:
    client = dynamodb_client(region=None, profile=None, endpoint=endpoint)
    store = DynamoStore(client, checked.mapping.table, no_fence)
    if kind == "verify":
        options = VerifyOptions(workers=WORKERS, page_rows=PAGE_ROWS)
        edges = (source, store, journal, Silent())
        return Verify(*edges, options=options, is_shared=True, **OF_A_STILL_SOURCE)
    entities = {entity.name: entity for entity in checked.entities}
    claims = Claims(journal, source, entities, checked.unproved, "bench", memory=None)
    options_of_it = BackfillOptions(workers=WORKERS, page_rows=PAGE_ROWS)
    path = written_alone(store, claims)
    return Backfill(source, journal, path, Silent(), options_of_it, is_shared=lambda: True)


def is_over(journal: SqlJournal, identity: RunIdentity) -> Callable[[], bool]:
    def ask() -> bool:
        run = journal.find_run(identity)
        return run is None or run.state != "running"

    return ask


def work(kind: RunKind, url: str, journal_url: str, endpoint: str, *, joins: bool) -> None:
    with closing(SqlSource(source_url(url))) as source, closing(SqlJournal(journal_url)) as journal:
        checked = check_mapping(parse_mapping(MAPPING, "m.yaml"), source.facts())
        identity = RunIdentity(kind, "bench", "Bench", checked.mapping.revision)
        stage = staged(kind, source, journal, endpoint, checked)
        found: Run | None = journal.find_run(identity) if joins else journal.start_run(identity)
        assert found is not None
        print("ready", flush=True)
        sys.stdin.readline()
        before, began = time.process_time(), time.monotonic()
        if joins:
            stage.join(found, checked.entities, is_over(journal, identity))
        else:
            result = stage.run(found, checked.entities)
            assert not dict(result.findings)
            journal.end_run(found, "done")
        took = {"cpu_s": time.process_time() - before, "wall_s": time.monotonic() - began}
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    work(sys.argv[1], *sys.argv[2:5], joins=sys.argv[5:] == ["join"])  # type: ignore[arg-type]
