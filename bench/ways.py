"""Ways from rows to a table: a naive script, and migrator's stages in this process, without the command.

    python -m bench.ways WAY SHAPE URL ENDPOINT

takes one way, and prints as JSON its items, CPU and time, and the peak memory of the whole process.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import boto3
import sqlalchemy as sa
from botocore.config import Config
from sqlalchemy.orm import Session

from bench.shapes import SHAPES, Shape
from migrator.cli.command_line import GARBAGE_SOUGHT
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.store import DynamoStore
from migrator.journal.memory import SqlMemory, SqlOpenFindings
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.model.journal import RunIdentity
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import Claims, ConditionalPath
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import live_entities
from migrator.stages.verify.stage import Verify, VerifyOptions
from tests.fakes.progress import Silent
from tests.fakes.store import FakeStore
from tests.support_capture import capturing
from tests.support_fence import OF_A_STILL_SOURCE, no_fence, written_alone
from tests.support_mapping import parse_mapping

Way = Callable[[Shape, str, str], int]
"""Of a shape, its database's URL and an endpoint, how many items were written or compared."""


def naively(shape: Shape, url: str, endpoint: str) -> int:
    """A team's first version: SQLAlchemy's ORM, a dict per row, boto3's batch_writer."""
    engine = sa.create_engine(source_url(url))
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    config = Config(region_name="us-east-1")
    table = boto3.resource("dynamodb", endpoint_url=endpoint, config=config, **keys).Table("Bench")
    with Session(engine) as session, table.batch_writer() as batch:
        # By pages: PyMySQL drops what is left of a streamed result when the ORM asks for the children of its first rows.
        model, last, count = shape.rows.column_descriptions[0]["entity"], 0, 0
        page = shape.rows.order_by(model.id).limit(1000)
        while rows := session.scalars(page.where(model.id > last)).all():
            for row in rows:
                batch.put_item(Item=shape.naive(row))
            last, count = rows[-1].id, count + len(rows)
    engine.dispose()
    return count


def by_backfill(shape: Shape, url: str, endpoint: str) -> int:
    source, journal = SqlSource(source_url(url)), SqlJournal.in_memory()
    checked = check_mapping(parse_mapping(shape.mapping, "m.yaml"), source.facts())
    design = checked.mapping.table
    store = DynamoStore(dynamodb_client(region=None, profile=None, endpoint=endpoint), design, no_fence)
    entities = {entity.name: entity for entity in checked.entities}
    claims = Claims(journal, source, entities, checked.unproved, "bench", memory=None)
    stage = Backfill(
        source,
        journal,
        written_alone(store, claims),
        Silent(),
        BackfillOptions(workers=1, page_rows=2000),
    )
    run = journal.start_run(RunIdentity("backfill", "bench", design.name, checked.mapping.revision))
    items = stage.run(run, checked.entities).total.items
    source.close()
    journal.close()
    return items


def beside_others(shape: Shape, url: str, endpoint: str) -> int:
    """A conditional backfill, with tickets from the source and findings in a journal, as with other writers.

    A fake answers for the control item, which is read once per page. Capture must be installed.
    """
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
            entities=live_entities(checked.mapping, checked.entities, capture.source),
            table=design,
            revision=checked.mapping.revision,
            check=no_fence,
        )
        path = ConditionalPath(refresh, SqlOpenFindings(journal.database, "bench", "bench"), {})
        options = BackfillOptions(workers=1, page_rows=2000)
        stage = Backfill(capture.source, journal, path, Silent(), options)
        run = journal.start_run(RunIdentity("backfill", "bench", design.name, checked.mapping.revision))
        items = stage.run(run, checked.entities).total.items
    journal.close()
    return items


def by_verify(shape: Shape, url: str, endpoint: str) -> int:
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
    assert (result.scanned, dict(result.findings)) == (result.total.items, {})
    source.close()
    journal.close()
    return result.total.items


def as_in_a_command(way: Way) -> Way:
    """With garbage collected as in a command, which leaves out what was imported."""

    def work(shape: Shape, url: str, endpoint: str) -> int:
        before = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(*GARBAGE_SOUGHT)
        try:
            return way(shape, url, endpoint)
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()

    return work


WAYS: dict[str, Way] = {
    "naive": naively,
    "backfill": as_in_a_command(by_backfill),
    "conditional": as_in_a_command(beside_others),
    "verify": as_in_a_command(by_verify),
}


def peak_mb() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(way: str, shape: str, url: str, endpoint: str) -> None:
    began, clock = time.process_time(), time.perf_counter()
    items = WAYS[way](SHAPES[shape], url, endpoint)
    took = {"items": items, "cpu_s": time.process_time() - began, "took_s": time.perf_counter() - clock}
    print(json.dumps({**took, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
