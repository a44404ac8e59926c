"""Edges of rollbacks and moves of patterns: stream, inverse mapping, row writer, evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.dynamodb.tables import DynamoStream
from migrator.journal.reverse import SqlReverseJournal, SqlStreamJournal
from migrator.mapping.inverse.rows import Inverse, compile_inverse
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Progress
from migrator.mapping.model.live import StreamJournal
from migrator.runtime.retry import Retry, running_s
from migrator.source.dynamodb.reader import StreamReader, Work, begin
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.connect import address_of
from migrator.source.sql.row_writing import SqlRowWriter
from migrator.stages.core import ownership as owner
from migrator.stages.cutover.rollback import WayBack
from migrator.stages.reverse.daemon import (
    SqlWriterStatus,
    following,
    hindrances,
    made_one_way,
    notes,
    shared_tables,
    sql_writers,
    status_of,
    unreadable,
)
from migrator.stages.reverse.stage import (
    SETTLE_S,
    Reverse,
    Spellings,
    WrittenTable,
    items_by_row,
    waiting_no_more,
)
from migrator.stages.reverse.verify import RowVerify
from migrator.stages.session.job import backoff_of, client_of
from migrator.stages.session.session import JobSession
from migrator.stages.session.source import secret_providers

LOCK_WAIT_S = 10.0

if TYPE_CHECKING:
    from migrator.source.grants import SqlGrants
    from migrator.source.reader import SqlSource


def shards_of(session: JobSession) -> SqlStreamJournal:
    return SqlStreamJournal(session.journal.database, session.job.name, session.design.name)


def remembered_of(session: JobSession) -> SqlReverseJournal:
    return SqlReverseJournal(session.journal.database, session.job.name, session.design.name)


def inverse_of(session: JobSession, plans: Sequence[EntityPlan]) -> Inverse:
    return compile_inverse(session.checked.mapping, plans, session.source.views())


def written_tables(
    inverse: Inverse, plans: Sequence[EntityPlan], others: Sequence[EntityPlan]
) -> dict[str, WrittenTable]:
    """Tables to write: those of entities by the entity's key, those of lists by their primary key.

    Leaves out tables of `others`, whose rows are the truth.
    """
    listed = (child.table for design in inverse.designs for child in design.lists)
    tables = {table.name: WrittenTable(table, table.primary_key) for table in listed}
    for plan in (one for one in plans if not one.is_single):
        tables[plan.table.name] = WrittenTable(plan.table, tuple(column.name for column in plan.key))
    return made_one_way({one.table: tables[one.table] for one in inverse.tables}, others)


def grants_of(session: JobSession) -> SqlGrants:
    from migrator.source.grants import SqlGrants  # only lists of grants parse SQL

    live, mapping = session.live, session.checked.mapping
    captured = live.capture.captured(session.plans)
    names = session.job.direct or mapping.entities
    plans = [entity.plan for entity in session.checked.named(names)]
    tables = written_tables(inverse_of(session, plans), plans, session.checked.besides(names))
    written = [table.facts for table in tables.values()]
    return SqlGrants(
        live.sql_marks.writing, mapping, session.plans, captured, written, session.source.facts()
    )


class ReverseEdges(Struct, frozen=True, dict=True):
    session: JobSession
    names: Collection[str]

    @cached_property
    def entities(self) -> tuple[CompiledEntity, ...]:
        return self.session.checked.named(self.names)

    @cached_property
    def source(self) -> SqlSource:
        """The primary alone: a replica lags behind writes."""
        return self.session.sql.at_primary()

    @property
    def plans(self) -> list[EntityPlan]:
        return [entity.plan for entity in self.entities]

    @cached_property
    def inverse(self) -> Inverse:
        return inverse_of(self.session, self.plans)

    @cached_property
    def stream(self) -> DynamoStream:
        job = self.session.job
        retry = Retry(backoff_of(job), self.session.stop.is_set)
        clients = client_of(job, "dynamodb"), client_of(job, "dynamodbstreams")
        return DynamoStream(*clients, self.session.design.name, retry)

    def hindrances(self) -> list[str]:
        takes_rows = self.session.source.takes_rows
        return list(hindrances(self.inverse, self.entities, self.stream.state(), takes_rows=takes_rows))

    def unreadable(self) -> list[str]:
        return list(unreadable(self.inverse, self.entities, takes_rows=self.session.source.takes_rows))

    def two_ways(self) -> list[str]:
        return list(shared_tables(self.session.checked.besides(self.names), self.inverse))

    def notes(self) -> list[str]:
        """Harmless reasons for rows not to match their items."""
        with closing(self.writer()) as rows:
            triggers = rows.changing_triggers([table.facts for table in self.tables.values()])
        return list(notes([table.facts for table in self.tables.values()], triggers))

    def sql_writers(self, *, refuse: bool) -> SqlWriterStatus:
        tables = following(self.tables.values(), self.plans, self.session.plans)
        return sql_writers(self.session.live.capture, self.session.job.name, tables, refuse=refuse)

    @cached_property
    def tables(self) -> dict[str, WrittenTable]:
        return written_tables(self.inverse, self.plans, self.session.checked.besides(self.names))

    def reader(self, work: Work, shards: StreamJournal) -> StreamReader:
        return StreamReader(self.stream, shards, work, lease_s=self.session.job.tuning.lease_s)

    def begin(self, shards: StreamJournal) -> None:
        begin(self.stream, shards)

    @contextmanager
    def stage(self, settle_s: float = SETTLE_S) -> Iterator[Reverse]:
        target = self.session.target
        with closing(self.writer()) as rows:
            page_rows = self.session.job.tuning.page_rows
            spellings = Spellings.read(self.source, self.entities, page_rows)
            made = partial(items_by_row, partial(spellings.read_rows, self.source), self.entities)
            edges = (target.store.get, rows, remembered_of(self.session), made)
            yield Reverse(self.inverse, self.tables, *edges, settle_s, spellings)

    def verify(self, stage: Reverse, progress: Progress, settle_s: float) -> RowVerify:
        edges = (stage, self.source, self.entities, self.session.target.pages, self.session.stop, running_s)
        return RowVerify(*edges, progress, self.session.job.tuning.page_rows, settle_s)

    def move_counters(self) -> None:
        """Move past existing rows, so that a service's new rows do not collide with them."""
        with closing(self.writer()) as rows:
            rows.move_counters([table.facts for table in self.tables.values()])

    def writer(self) -> SqlRowWriter:
        job, settings, facts = self.session.job, self.session.job.source, self.source.facts()
        address = address_of(settings.url, settings.command, secret_providers(job.path.parent, job.target))
        options = ConnectionOptions(
            name=name_of(job.name, "reverse"),
            pool_size=1,
            lock_wait_s=LOCK_WAIT_S,
            statement_timeout_s=settings.statement_timeout_s,
        )
        return SqlRowWriter(address, options, Retry(backoff_of(job), self.session.stop.is_set), facts)


def keep_direct(session: JobSession, table_id: str) -> None:
    """Record the entities the service writes itself from now on. Rows of the others stop waiting."""
    job, revision = session.job, session.checked.mapping.revision
    taken_back = session.on_record().direct - set(job.direct)
    owner.keep_direct(session.journal, job.name, table_id, revision, job.direct)
    tables = ReverseEdges(session, taken_back).tables
    remembered_of(session).withdraw(waiting_no_more(tables, job.direct))


def way_back_of(session: JobSession, entities: Collection[str]) -> WayBack:
    hindrances = ReverseEdges(session, entities).hindrances()
    status = status_of(shards_of(session), remembered_of(session))
    return WayBack(hindrances, status, session.source.takes_rows)
