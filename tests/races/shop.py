"""The shop that races are run in: tables on one engine, captured, and the mapping that makes items of them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.live import Mark, MarkedBy, MarksState
from migrator.mapping.model.table import TableDesign
from migrator.runtime.values import replace
from migrator.settings.job import Job
from migrator.source.capture.log.reader import LogMarks
from migrator.stages.live.capture import CaptureStage
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import Live, Target
from migrator.stages.session.session import JobSession
from tests.support_capture import connect
from tests.support_fence import no_fence

MAPPING = """\
mapping: 1
table:
  name: Races
  key: [PK, SK]
  type: type
  ttl: expiresAt
  indexes:
    GSI1: {key: [GSI1PK, GSI1SK]}

entities:
  user:
    table: users
    collect: {placed: {count: all, of: orders, by: user_id}}
    items:
      User: {key: ["USER#{id}", META], GSI1: ["NAME#{name}", "USER#{id}"], keep: [name], attributes: {orders: placed}}
      Email: {key: ["EMAIL#{email}", META], when: email, attributes: {user: id}}
      Handle: {key: ["HANDLE#{handle}", META], when: handle, attributes: {user: id}}
  order:
    table: orders
    join: {user: user_id}
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{id}"]
        GSI1: [ORDERS, "{total:06}#{id}"]
        keep: [total]
        attributes: {user_name: user.name}
  tag:                                           # a key that is made of two rows
    table: tags
    join: {order: order_id}
    items:
      Tag: {key: ["TAGS#{order.user_id}", "{label}#{id}"], keep: [label]}
  node:
    table: nodes
    climb: {line: parent_id}
    items:
      Node: {key: ["TREE#{line.slug|first}", "PATH#{line.slug|path}#"], keep: [slug]}
"""
TABLES = (
    "CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(80) UNIQUE,"
    " handle VARCHAR(80))",
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, total INTEGER NOT NULL,"
    " FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE)",
    "CREATE TABLE tags (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, label VARCHAR(80) NOT NULL,"
    " FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE)",
    "CREATE TABLE nodes (id INTEGER PRIMARY KEY, parent_id INTEGER, slug VARCHAR(80) NOT NULL,"
    " FOREIGN KEY (parent_id) REFERENCES nodes (id))",
    "CREATE INDEX orders_of_user ON orders (user_id)",
    "CREATE INDEX tags_of_order ON tags (order_id)",
    "CREATE INDEX nodes_below ON nodes (parent_id)",
)
EMPTY = ("DELETE FROM users", "UPDATE nodes SET parent_id = NULL", "DELETE FROM nodes")
JOB = """\
job: 1
name: races
mapping: mapping.yaml
source: {{url: '{url}'}}
target: {{table: Races, endpoint: '{endpoint}'}}
journal: 'sqlite:///{folder}/journal.db'
tuning: {{request_life_s: 60, attempts: 6, backoff_cap_s: 0.02, page_rows: 1000, scan_segments: 1, workers: 2}}
"""


def log_needs(engine: str, tables: Sequence[str]) -> list[str]:
    """Statements for what capture from the log needs of these tables, or of the server."""
    if engine != "postgresql":
        return ["SET GLOBAL binlog_row_metadata = FULL"]
    names = [statement.split()[2] for statement in tables if statement.startswith("CREATE TABLE")]
    return [f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in names]


class Session:
    """A connection of a service's; every statement is a transaction, but between begin() and commit()."""

    def __init__(self, engine: str, url: str) -> None:
        self.connection = connect(engine, url)
        self._cursor = self.connection.cursor()

    def __call__(self, *statements: str) -> None:
        for statement in statements:
            self._cursor.execute(statement)

    def rows(self, statement: str) -> list[Any]:
        self._cursor.execute(statement)
        return list(self._cursor.fetchall())

    def begin(self, *statements: str) -> None:
        self("BEGIN", *statements)

    def commit(self) -> None:
        self("COMMIT")

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class Shop:
    """One database of one engine, for all races."""

    engine: str
    url: str
    job: Job
    opened: JobSession
    live: Live
    journal: SqlJournal
    sql: Session
    client: Any
    from_log: bool = False
    """Whether a reader of the log leaves the marks, and not triggers."""

    @property
    def mark_table(self) -> str:
        return "migrator.mark" if self.engine == "postgresql" else "migrator_mark"

    def clear(self) -> None:
        self.sql(*EMPTY)
        self.copy_log()
        self.sql(f"DELETE FROM {self.mark_table}")

    def copy_log(self) -> None:
        """Every change by now has its mark."""
        if isinstance(self.live.marks, AtOnceMarks):
            self.live.marks.drain()

    def leave_log(self) -> None:
        """Another reader may have the log."""
        if isinstance(self.live.marks, LogMarks):
            self.live.marks.leave()

    def new_target(self) -> Target:
        """A new table, by the one client of all races: making one takes as long as a whole race."""
        design = replace(self.opened.checked.mapping.table, name=f"Races{secrets.token_hex(6)}")
        admin = DynamoTableAdmin(self.client)
        admin.create(design)
        return Target(
            design, admin, DynamoStore(self.client, design, no_fence, job_wiring.backoff_of(self.job))
        )

    def target_through(self, endpoint: str, design: TableDesign) -> Target:
        """The table of that design by way of another endpoint."""
        job = replace(
            self.job, target=self.job.target.model_copy(update={"endpoint": endpoint, "table": design.name})
        )
        return job_wiring.open_target(job, design, lambda: False).fenced(no_fence)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One more connection of a service's; what it has not committed is rolled back."""
        opened = Session(self.engine, self.url)
        try:
            yield opened
        finally:
            opened.close()


class AtOnceMarks(LogMarks):
    """A change is a mark as soon as marks are taken: races count on an order of steps."""

    def take(self, count: int, lease_s: float) -> list[Mark]:
        self.drain()
        return super().take(count, lease_s)

    def state(self) -> MarksState:
        self.drain()
        return super().state()


@contextmanager
def open_shop(
    engine: str,
    url: str,
    endpoint: str,
    folder: Path,
    *,
    mapping: str = MAPPING,
    tables: Sequence[str] = TABLES,
    from_log: bool = False,
) -> Iterator[Shop]:
    (folder / "mapping.yaml").write_text(mapping)
    (folder / "races.yaml").write_text(JOB.format(url=url, endpoint=endpoint, folder=folder))
    job = job_wiring.read_job(folder / "races.yaml")
    sql = Session(engine, url)
    sql(*tables)
    with ExitStack() as stack:
        stack.callback(sql.close)
        opened = JobSession(job, "races", live_patience=job_wiring.backoff_of(job))
        session = stack.enter_context(opened)
        live = stack.enter_context(session.open_own_live("races"))
        if from_log:
            assert isinstance(live.marks, LogMarks)
            live = replace(live, marks=AtOnceMarks(live.marks.writing, live.marks.reader))
        marked_by: MarkedBy = "log" if from_log else "triggers"
        stage = CaptureStage(live.capture, job.name, session.checked.mapping.table, marked_by)
        stage.install([entity.plan for entity in session.checked.entities])
        session.live = live
        session.revisions.register()
        client = dynamodb_client(region=None, profile=None, endpoint=endpoint)
        yield Shop(engine, url, job, session, live, session.journal, sql, client, from_log)
