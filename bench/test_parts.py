"""CPU of a backfilled item by part: planning pages, reading, encoding and sending, and the start of a run.

Parts are measured one after the other over the same pages, and the start as a run over a hundred rows.
Encoding and sending are shown with their minimum in this Python: one % of text per row, and prepared bytes on
a bare socket. Two shares of sending are measured separately: requests signed and written out (also the hashes
of their bodies alone), and answers checked and read. The journal's part is a page's claim and checkpoint.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import orjson
import sqlalchemy as sa

from bench.measure import ROUNDS, Tables
from bench.recorder import recording, replay
from bench.shapes import PLAIN, ROWS, engine_of, fill_users, more_users
from bench.sink import answer_to
from bench.ways import by_backfill, naively
from migrator.dynamodb.answers import consumed_by_meter, received
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.exchange import json_of
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.items.encoder import compile_encoder, encode_page
from migrator.mapping.model.journal import RunIdentity, Tally
from migrator.mapping.model.table import EncodedItem
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import pages_of
from tests.support_fence import no_fence
from tests.support_mapping import parse_mapping

Result = TypeVar("Result")

FEW = 100
NAIVE_AT_MOST = 100_000
PARTS = {
    "start_of_a_run": "start",
    "planning": "planning",
    "reading": "reading",
    "encoding": "encoding",
    "of_it_one_%_a_row": "one %",
    "sending": "sending",
    "of_it_requests_signed": "signing",
    "of_that_hashes": "hashing",
    "of_it_answers_read": "answers",
    "of_it_a_bare_socket": "bare socket",
    "journal": "journal",
    "whole_run": "whole",
    "naive_/_20": "naive / 20",
}
_ITEM = (
    '{"PK":{"S":"USER#%s"},"SK":{"S":"PROFILE"},"GSI1PK":{"S":"EMAIL#%s"},"GSI1SK":{"S":"USER#%s"},"type":{"S":"User"},'
    '"_src":{"S":"users:[%s]"},"_rev":{"S":"0a1b2c3d"},"id":{"N":"%s"},"email":{"S":"%s"},"name":{"S":"%s"},'
    '"city":{"S":"%s"},"note":{"S":"%s"},"total":{"N":"%s"},"created_at":{"S":"%s"},"visits":{"N":"%s"},"_tk":{"N":"0"}}'
)


def one_percent_a_row(rows: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Texts as long as the items, without escapes, sizes or checks."""
    return [(_ITEM % (row[0], row[1], row[0], row[0], *row)).encode() for row in rows]


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
    journal = SqlJournal.in_memory()
    run = journal.start_run(RunIdentity("backfill", "bench", entity.table.name, checked.mapping.revision))
    journal.plan_pages(run, entity.name, pages_of(source, entity.plan, 2000))
    signed = partial(client.exchange.transport.request, client, "BatchWriteItem")
    claim = partial(journal.claim_pages, run, entity.name, "bench", 1, 60.0)
    for page in timed("planning", lambda: list(pages_of(source, entity.plan, 2000))):
        after, upto = page.after, page.upto
        rows = timed("reading", lambda: source.read_raw(entity.plan, encoder.raw, after, upto))  # noqa: B023
        made = timed("encoding", lambda: encode_page(encoder, rows, 0, 0.0))  # noqa: B023
        timed("one %", lambda: one_percent_a_row(rows.rows))  # noqa: B023
        timed("sending", lambda: store.put(made.items))  # noqa: B023
        requests = requests_of(checked.mapping.table.name, made.items)
        bodies = list(map(json_of, requests))
        timed("hashing", lambda: [sha256(body).hexdigest() for body in bodies])  # noqa: B023
        timed("signing", lambda: [signed(body) for body in bodies])  # noqa: B023
        timed("answers", lambda: [answer_read(client, request) for request in requests])  # noqa: B023
        timed("journal", lambda: (claim(), journal.finish_page(run, page, Tally(), [])))  # noqa: B023
    source.close()
    journal.close()
    return took_s


def requests_of(table: str, items: Sequence[EncodedItem]) -> list[dict[str, Any]]:
    puts = [orjson.Fragment(b'{"PutRequest":{"Item":%b}}' % item.json) for item in items]
    return [
        {"RequestItems": {table: puts[at : at + 25]}, "ReturnConsumedCapacity": "INDEXES"}
        for at in range(0, len(puts), 25)
    ]


class Answered:
    def recv(self, _: int) -> bytes:
        return answer_to(b"BatchWriteItem", b"")


def answer_read(client: Any, request: dict[str, Any]) -> object:
    """Consumed capacity in an answer, after all checks."""
    answer = client.exchange.answer(client, "BatchWriteItem", request, received(Answered()))
    return consumed_by_meter(answer)


def test_parts_of_an_item(empty: str, sink: str, tables: Tables) -> None:
    def cpu_s(work: Callable[[], object]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    fill_users(empty, FEW)
    starts = [cpu_s(lambda: by_backfill(PLAIN, empty, sink)) for _ in range(ROUNDS)]
    engine = sa.create_engine(source_url(empty))
    with engine.begin() as connection:
        connection.execute(sa.text(more_users(empty, FEW + 1, ROWS)))
    engine.dispose()
    rounds = []
    for number in range(ROUNDS):
        with recording() as (recorder, requests):
            by_backfill(PLAIN, empty, recorder)
        rounds.append(
            {
                **parts_of(empty, sink),
                "start": starts[number],
                "bare socket": cpu_s(lambda: replay(sink, requests)),
                "whole": cpu_s(lambda: by_backfill(PLAIN, empty, sink)),
            }
        )
        if ROWS <= NAIVE_AT_MOST:
            rounds[-1]["naive / 20"] = cpu_s(lambda: naively(PLAIN, empty, sink)) / 20
    cells = {
        column: f"{statistics.median(each[part] for each in rounds) / ROWS * 1e6:.1f}"
        for column, part in PARTS.items()
        if part in rounds[0]
    }
    tables.add(
        f"Parts of an item, plain rows, µs of CPU by {ROWS:,} items", database=engine_of(empty), **cells
    )
