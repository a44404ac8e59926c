"""A small shop, its filled table and what is on record of it, in memory."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update

from migrator.features.report.gather import Report, ReportOptions, ReportRecords, ReportSides
from migrator.journal import schema
from migrator.journal.operations import SqlProcesses, runs_as_they_stand
from migrator.journal.runs import SqlJournal
from migrator.mapping.difference.difference import answer_digests
from migrator.mapping.items.items import items_for
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.durations import moment
from migrator.mapping.model.evidence import DiffKey, Sample, Window
from migrator.mapping.model.instances import ServiceRegistry
from migrator.mapping.model.journal import Finding, RunIdentity, RunKind
from migrator.mapping.model.report import LagReport, ReportModel
from migrator.runtime.values import replace
from tests.fakes.evidence import FakeEvidence
from tests.fakes.phases import FakePhases
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.golden import heart
from tests.support_fence import no_fence
from tests.support_items import put_items

NOW_S = 1_700_000_123.0
OPTIONS = ReportOptions(whole_values=True)
MINUTE = 1_700_000_100
USERS = heart.table("users", {"id": "integer!", "email": "text!", "name": "text"})
ORDERS = heart.table(
    "orders",
    {"id": "integer!", "user_id": "integer!", "total": "number(2)"},
    references={"user_id": "users.id"},
)
SCHEMA = heart.facts(USERS, ORDERS)
MAPPING = """
entities:
  user:
    table: users
    items: {User: {key: ["USER#{id}", PROFILE], GSI1: ["EMAIL#{email}", "{id:05}"], keep: [email, name]}}
  order:
    table: orders
    join: {user: user_id}
    items: {Order: {key: ["USER#{user_id}", "ORDER#{id:05}"], keep: [total], attributes: {buyer: user.email}}}
access_patterns:
  get_user:
    params: {id: integer}
    get: {key: ["USER#{id}", PROFILE]}
    returns: [email, name]
    sql: SELECT 1
    redact: [email]
  orders_of:
    params: {id: integer}
    query: {key: ["USER#{id}", {begins_with: "ORDER#"}]}
    returns: {orders: {type: Order, attributes: [total, buyer]}}
    sql: {orders: SELECT 1}
"""
CHECKED = heart.check(MAPPING, SCHEMA)
REVISION = CHECKED.mapping.revision
USERS_ROWS: list[dict[str, Any]] = [{"id": n, "email": f"secret{n}@x", "name": f"N{n}"} for n in range(1, 4)]
ORDERS_ROWS: list[dict[str, Any]] = [{"id": n, "user_id": n % 3 + 1, "total": 10 * n} for n in range(1, 7)]
WINDOW = Window(
    "get_user",
    MINUTE,
    "w",
    "shop",
    REVISION,
    "service",
    compared=4,
    same=2,
    different=2,
    kinds={"": 4},
    found={DiffKey("value", "", "name"): 2},
    answer=answer_digests(CHECKED.mapping, ())["get_user"],
)
SAMPLE = Sample(
    "get_user",
    DiffKey("value", "", "name"),
    MINUTE,
    "w",
    REVISION,
    {"id": "1"},
    ("email", "name"),
    ("…1a2b", '"Ann"'),
    ("…1a2b", '"ANN"'),
)


class World:
    """A filled table that a test may spoil, and what is on record."""

    def __init__(self) -> None:
        self.journal = SqlJournal.in_memory()
        self.evidence = FakeEvidence(lambda: NOW_S)
        self.phases = FakePhases(lambda: NOW_S)
        self.source = MemorySource(SCHEMA, {"users": USERS_ROWS, "orders": ORDERS_ROWS})
        self.store = FakeStore(CHECKED.mapping.table, no_fence)
        self.sides = ReportSides(
            CHECKED.mapping, CHECKED.mapping.table, CHECKED.entities, self.source, self.store
        )
        self.lag = LagReport(0)
        for entity in CHECKED.entities:
            for row in self.source.read_page(entity.plan, None, None):
                put_items(self.store, items_for(entity, row))

    def run(
        self, kind: RunKind, *found: Finding, scope: str = "", revision: str = "", at: float = NOW_S - 3_600
    ) -> None:
        """A run that is done, when it began, and what it found."""
        identity = RunIdentity(kind, "shop", "table", revision or digest(), scope)
        run = self.journal.start_run(identity)
        self.journal.add_findings(run, found)
        self.journal.end_run(run, "done")
        with self.journal.database.begin() as connection:
            here = update(schema.run).where(schema.run.c.id == run.id)
            connection.execute(here.values(started_at=moment(at)))

    def report(self, options: ReportOptions = OPTIONS, **sides: Any) -> Report:
        records = ReportRecords(
            "shop",
            "jobs/shop.yaml",
            "/jobs/.migrator/shop.db",
            "0.1.0",
            ServiceRegistry((), NOW_S, 30.0),
            self.lag,
            runs_as_they_stand(self.journal, "shop"),
            self.journal.tally,
            self.journal,
            self.evidence,
            self.phases,
            SqlProcesses(self.journal.database, "shop", 30).minutes,
        )
        return Report(records, replace(self.sides, **sides), options)

    def gather(self, options: ReportOptions = OPTIONS, **sides: Any) -> ReportModel:
        return self.report(options, **sides).gather()


def digest() -> str:
    return columns_digest(REVISION, [entity.plan for entity in CHECKED.entities])


def different(number: int, attribute: str = "total") -> Finding:
    key = f'["USER#{number % 3 + 1}","ORDER#{number:05}"]'
    return Finding("different", "order", "the attribute's value differs", f"[{number}]", key, attribute)
