"""A service that reads: tables, their items, phases that a test moves, and what was counted."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from migrator.api import Answer, Migration, Parts, Records
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.phases import SqlEvidence, SqlPhases
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.evidence import Move, PatternPhase, Sample, State, Window
from migrator.mapping.model.table import Value
from migrator.settings.transforms import sound_mapping
from migrator.stages.session import job as job_wiring
from tests.journeys.in_process import run_here
from tests.support_adapter import DRIVERS, service_url
from tests.support_fence import no_fence
from tests.support_waiting import until

MAPPING = """\
mapping: 1
source: {timezone: UTC}
table:
  name: Reads
  key: [PK, SK]
  type: type
  ttl: expiresAt
  indexes:
    GSI1: {key: [GSI1PK, GSI1SK]}
entities:
  user: {table: users, items: {User: {key: ["USER#{id}", META], keep: [name, email]}}}
  order:
    table: orders
    attributes: {orderId: id, placedAt: placed_at}
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{id:06}"]
        GSI1: ["STATUS#{status}", "{id:06}"]
        keep: [total, status, paid]
  session:
    table: sessions
    items:
      Session: {key: ["SESSION#{id}", META], attributes: {sessionId: id}, keep: [user_id], ttl: expires_at}
access_patterns:
  recent_orders:
    params: {user_id: integer, limit: optional integer}
    query: {key: ["USER#{user_id}", {begins_with: "ORDER#"}], descending: true, limit: limit}
    returns: [orderId, total, status, placedAt, paid]
    sql: >-
      SELECT id, total, status, placed_at, paid FROM orders WHERE user_id = :user_id AND
      (SELECT count(*) FROM orders newer WHERE newer.user_id = :user_id AND newer.id > orders.id) < COALESCE(:limit, 100000)
      ORDER BY id DESC
  user_and_orders:
    params: {user_id: integer}
    query: {key: ["USER#{user_id}"]}
    returns:
      user: {type: User, one: true, attributes: [name, email]}
      orders: {type: Order, attributes: [orderId, total]}
    redact: [email]
    sql:
      user: SELECT name, email FROM users WHERE id = :user_id
      orders: SELECT id, total FROM orders WHERE user_id = :user_id ORDER BY id
  by_status:
    params: {status: text}
    query: {index: GSI1, key: ["STATUS#{status}"]}
    returns: [orderId]
    sql: SELECT id FROM orders WHERE status = :status ORDER BY id
  session_by_id:
    params: {session_id: text}
    get: {key: ["SESSION#{session_id}", META]}
    returns: [sessionId, user_id]
    sql: SELECT id, user_id FROM sessions WHERE id = :session_id AND expires_at > CURRENT_TIMESTAMP
"""
TABLES = (
    "CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(80))",
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, total NUMERIC(10,2) NOT NULL,"
    " status VARCHAR(20) NOT NULL, placed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, paid BOOLEAN)",
    "CREATE TABLE sessions (id VARCHAR(20) PRIMARY KEY, user_id INTEGER, expires_at TIMESTAMP NOT NULL)",
)
ROWS = (
    "INSERT INTO users VALUES (1, 'Ada', 'ada@example.com'), (2, 'Bob', NULL)",
    *(
        f"INSERT INTO orders VALUES ({n}, {1 + n % 2}, {n}.50, '{'open' if n % 3 else 'sent'}',"
        f" '2026-01-{n:02} 10:00:00', {'TRUE' if n % 2 else 'NULL'})"
        for n in range(1, 21)
    ),
    "INSERT INTO sessions VALUES ('new', 1, '2037-01-01 00:00:00'), ('old', 2, '2020-01-01 00:00:00')",
)
JOB = """\
job: 1
name: reads
mapping: mapping.yaml
source: {{url: '{url}'}}
target: {{table: {table}, endpoint: '{endpoint}'}}
journal: 'sqlite:///{folder}/journal.db'
tuning: {{request_life_s: 1, silent_s: 60, attempts: 4, backoff_cap_s: 0.02, give_up_after_s: 3}}
reads:
  phase_cache_s: 0.1
  patience_s: 5
  cursor_key: 0123456789abcdef
  shadow: {{settle_s: {settle_s}, deadline_s: {deadline_s}, per_s: 10000, max_rows: {max_rows}}}
"""
ALL = ("recent_orders", "user_and_orders", "by_status", "session_by_id")


@dataclass
class ReadShop:
    """One database, its items, one job. `journal`: where a test moves phases and looks at counts."""

    folder: Path
    job: Path
    engine: sa.Engine
    store: DynamoStore
    journal: SqlJournal

    def migration(self, **options: Any) -> Migration:
        return Migration.load(self.job, **{"service": "shop", **options})

    @property
    def phases(self) -> SqlPhases:
        return SqlPhases(self.journal.database, "reads")

    def move(self, phase: str, percent: int = 0, *patterns: str) -> None:
        """Each of the patterns (all of them) to a phase, from wherever it is."""
        for name in patterns or ALL:
            known = self.phases.all().get(name, PatternPhase(name))
            after = State(phase, percent)  # type: ignore[arg-type]
            if known.state != after:
                self.phases.move(Move(name, known.state, after, "a test"), known.version)

    def sql(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    def windows(self) -> dict[str, Window]:
        """The sum of all minutes by pattern."""
        found: dict[str, Window] = {}
        for one in SqlEvidence(self.journal.database, "reads").windows(0):
            found[one.pattern] = _sum(found.get(one.pattern), one)
        return found

    def samples(self, pattern: str) -> list[Sample]:
        return list(SqlEvidence(self.journal.database, "reads").samples(pattern))

    def until(
        self, migration: Migration, pattern: str, holds: Callable[[Window], bool], limit_s: float = 120
    ) -> Window:
        """The counts of the pattern when they are as wanted."""
        ends_at = time.monotonic() + limit_s
        while True:
            migration._reads().reads.ledger.flush()
            found = self.windows().get(pattern)
            if found is not None and holds(found):
                return found
            assert time.monotonic() < ends_at, found
            time.sleep(0.02)


def records(answer: Answer) -> Records:
    """The answer of a pattern without parts."""
    assert isinstance(answer, Records)
    return answer


def part_of(answer: Answer, name: str) -> dict[str, Value]:
    """The one record of a part."""
    assert isinstance(answer, Parts)
    part = answer[name]
    assert isinstance(part, dict)
    return part


def _sum(one: Window | None, other: Window) -> Window:
    """Counts of two minutes, as far as tests look at them."""
    if one is None:
        return other
    made: dict[str, Any] = {}
    for name in ("answered", "errors", "dropped", "kinds", "found"):
        first, second = getattr(one, name), getattr(other, name)
        made[name] = {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}
    for name in ("compared", "same", "transient", "different"):
        made[name] = getattr(one, name) + getattr(other, name)
    return Window(
        one.pattern,
        one.begun_at,
        one.writer,
        one.service,
        one.revision,
        one.origin,
        **made,
        latency=other.latency,
    )


@contextmanager
def open_read_shop(
    engine_name: str,
    url: str,
    endpoint: str,
    folder: Path,
    *,
    settle_s: float = 0.3,
    deadline_s: float = 2.0,
    max_rows: int = 1000,
    items_from: str = "",
    marked: bool = False,
    mapping: str = MAPPING,
    rows: Sequence[str] = (*TABLES, *ROWS),
) -> Iterator[ReadShop]:
    """`rows`: statements that make tables and fill them. `items_from`: the endpoint that items are filled through, where `endpoint` is one that lies. `marked`: triggers leave
    marks of changes."""
    (folder / "mapping.yaml").write_text(mapping)
    job, table = folder / "reads.yaml", f"Reads{secrets.token_hex(4)}"
    given = {"settle_s": settle_s, "deadline_s": deadline_s, "max_rows": max_rows}
    text = JOB.format(url=url, endpoint=items_from or endpoint, folder=folder, table=table, **given)
    job.write_text(text)
    engine = sa.create_engine(service_url(engine_name, url, DRIVERS))
    with engine.begin() as connection:
        for statement in rows:
            connection.exec_driver_sql(statement)
    capture = [["capture", "install"]] if marked else []
    for words in (["table", "create"], *capture, ["backfill"]):
        ended = run_here([*words, str(job)], folder, dict(os.environ))
        assert ended.code == 0, ended.out + ended.err
    job.write_text(JOB.format(url=url, endpoint=endpoint, folder=folder, table=table, **given))
    read = job_wiring.read_job(job)
    design = job_wiring.design_for(read, sound_mapping(read.mapping).mapping.table)
    client = dynamodb_client(region=None, profile=None, endpoint=items_from or endpoint)
    with job_wiring.open_journal(read) as journal:
        try:
            yield ReadShop(folder, job, engine, DynamoStore(client, design, no_fence), journal)
        finally:
            engine.dispose()


def seen(migration: Migration, phase: str, pattern: str = "recent_orders") -> None:
    """Waits until the migration acts by the phase."""
    until(lambda: migration._reads().reads.phases.state(pattern).phase == phase)
