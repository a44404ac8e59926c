"""Opens what the way back needs: the stream and its checkpoints, the inverse of the mapping, a writer of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Event

from migrator.dynamodb.stream import DynamoStream
from migrator.journal.reverse import SqlReverseJournal
from migrator.journal.runs import SqlJournal
from migrator.journal.streams import SqlStreamJournal
from migrator.mapping.inverse.rows import Inverse, compile_inverse
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Progress
from migrator.runtime.retry import Retry, running_s
from migrator.settings.job import Job
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.connect import address_of
from migrator.source.grants import SqlGrants
from migrator.source.reader import SqlSource
from migrator.source.sql.row_writing import SqlRowWriter
from migrator.stages.reverse.daemon import (
    SqlWriters,
    following,
    hindrances,
    made_one_way,
    notes,
    shared_tables,
    sql_writers,
    unreadable,
)
from migrator.stages.reverse.stage import SETTLE_S, Reverse, WrittenTable, items_by_row
from migrator.stages.reverse.verify import RowVerify
from migrator.stages.session.job import JobContext, Target, backoff_of, client_of, secret_providers
from migrator.stages.session.live import ONCE, open_live

LOCK_WAIT_S = 10.0


def checkpoints_of(job: Job, journal: SqlJournal, table: str) -> SqlStreamJournal:
    return SqlStreamJournal(journal.database, job.name, table)


def remembered_of(job: Job, journal: SqlJournal, table: str) -> SqlReverseJournal:
    return SqlReverseJournal(journal.database, job.name, table)


def inverse_of(context: JobContext, plans: Sequence[EntityPlan]) -> Inverse:
    return compile_inverse(context.checked.mapping, plans, context.source.views())


def written_tables(
    inverse: Inverse, plans: Sequence[EntityPlan], others: Sequence[EntityPlan]
) -> dict[str, WrittenTable]:
    """A table with an entity of its own by that one's key; one whose rows stand in lists by its primary key.

    None that one of `others` is made of: its rows are the truth.
    """
    listed = (child.table for design in inverse.designs for child in design.lists)
    tables = {table.name: WrittenTable(table, table.primary_key) for table in listed}
    for plan in plans:
        tables[plan.table.name] = WrittenTable(plan.table, tuple(column.name for column in plan.key))
    return made_one_way({one.table: tables[one.table] for one in inverse.tables}, others)


@contextmanager
def open_grants(context: JobContext) -> Iterator[SqlGrants]:
    """What each role needs in the job's source."""
    with open_live(context.job, "grants", patience=ONCE, source=context.source) as live:
        captured = live.capture.captured(context.plans)
        mapping, facts = context.checked.mapping, context.source.facts()
        names = context.job.direct or mapping.entities
        plans = [entity.plan for entity in context.checked.named(names)]
        tables = written_tables(inverse_of(context, plans), plans, context.checked.besides(names))
        written = [table.facts for table in tables.values()]
        yield SqlGrants(live.sql_marks.writing, mapping, context.plans, captured, written, facts)


@dataclass(frozen=True)
class ReverseEdges:
    """The edges of the way back of the named entities, whether the job says that they are direct or not."""

    context: JobContext
    target: Target
    names: Collection[str]
    stop: Callable[[], bool]

    @cached_property
    def entities(self) -> tuple[CompiledEntity, ...]:
        return self.context.checked.named(self.names)

    @cached_property
    def source(self) -> SqlSource:
        """The primary alone: on a replica rows that were written just now are not there yet, and others still are."""
        return self.context.sql.at_primary()

    @property
    def plans(self) -> list[EntityPlan]:
        return [entity.plan for entity in self.entities]

    @cached_property
    def inverse(self) -> Inverse:
        """With the table's name as the job has it, by which items are read."""
        return inverse_of(self.context, self.plans)

    @cached_property
    def stream(self) -> DynamoStream:
        job = self.context.job
        retry = Retry(backoff_of(job), self.stop)
        clients = client_of(job, "dynamodb"), client_of(job, "dynamodbstreams")
        return DynamoStream(*clients, self.target.design.name, retry)

    def hindrances(self) -> list[str]:
        takes_rows = self.context.source.takes_rows
        return list(hindrances(self.inverse, self.entities, self.stream.state(), takes_rows=takes_rows))

    def unreadable(self) -> list[str]:
        return list(unreadable(self.inverse, self.entities, takes_rows=self.context.source.takes_rows))

    def two_ways(self) -> list[str]:
        """Where these entities are direct, and no others."""
        return list(shared_tables(self.context.checked.besides(self.names), self.inverse))

    def notes(self) -> list[str]:
        """What does not stand in the way, and may keep rows from being what their items say."""
        with closing(self.writer()) as rows:
            triggers = rows.changing_triggers([table.facts for table in self.tables.values()])
        return list(notes(self.tables.values(), triggers, loosely_typed=self.source.facts().loosely_typed))

    def sql_writers(self, *, refuse: bool) -> SqlWriters:
        """`refuse`: makes the triggers that are missing."""
        job = self.context.job
        tables = following(self.tables.values(), self.plans, self.context.plans)
        with open_live(job, "reverse", stop=self.stop, patience=ONCE, source=self.context.source) as live:
            return sql_writers(live.capture, job.name, tables, refuse=refuse)

    @cached_property
    def tables(self) -> dict[str, WrittenTable]:
        return written_tables(self.inverse, self.plans, self.context.checked.besides(self.names))

    @contextmanager
    def stage(self, journal: SqlJournal, settle_s: float = SETTLE_S) -> Iterator[Reverse]:
        job = self.context.job
        with closing(self.writer()) as rows:
            remembered = remembered_of(job, journal, self.target.design.name)
            made = partial(items_by_row, self.source, self.entities)
            edges = (self.target.store, rows, remembered, made)
            yield Reverse(self.inverse, self.tables, *edges, settle_s)

    def verify(self, stage: Reverse, stop: Event, progress: Progress, settle_s: float) -> RowVerify:
        """Of the rows that `stage` writes; it ends with Interrupted after `stop`."""
        edges = (stage, self.source, self.entities, self.target.pages, stop, running_s)
        return RowVerify(*edges, progress, self.context.job.tuning.page_rows, settle_s)

    def move_counters(self) -> None:
        """Past the rows that are there, so that a service that inserts rows again does not meet them."""
        with closing(self.writer()) as rows:
            rows.move_counters([table.facts for table in self.tables.values()])

    def writer(self) -> SqlRowWriter:
        job, settings, facts = self.context.job, self.context.job.source, self.source.facts()
        address = address_of(settings.url, settings.command, secret_providers(job.path.parent, job.target))
        options = ConnectionOptions(
            name=name_of(job.name, "reverse"),
            pool_size=1,
            lock_wait_s=LOCK_WAIT_S,
            statement_timeout_s=settings.statement_timeout_s,
        )
        return SqlRowWriter(address, options, Retry(backoff_of(job), self.stop), facts)
