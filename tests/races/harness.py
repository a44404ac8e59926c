"""One race: a table of its own, the product's own parts stepped by hand, and what must hold when all is at rest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import update

from migrator.cli.runs import RunEnd
from migrator.features.recover.work import raise_epoch
from migrator.journal.schema import writer
from migrator.journal.writers import SqlWriters
from migrator.mapping.items.encoder import compile_encoder
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.live import Mark, MarksState
from migrator.mapping.model.results import Worked
from migrator.mapping.model.table import CONTROL, TOMBSTONE, Item, RowTree
from migrator.source.reader import SqlSource
from migrator.stages.backfill.write import Claims, ConditionalPath, Copied, FastPath, PagePath, encoders_of
from migrator.stages.live.relay import Relay, RelayOptions
from migrator.stages.live.writers import WriterHeartbeats
from migrator.stages.process import begin, identity_of
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import Target
from migrator.stages.session.session import ConcurrentEdges, JobSession
from migrator.stages.verify.stage import Verify, VerifyOptions
from tests.fakes.progress import Silent
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.journeys.in_process import Ended, run_here
from tests.races.shop import Shop
from tests.support_fence import OF_A_STILL_SOURCE, page_of

Happens = Callable[[], object]


class Pause:
    """A check (it stands before each write) at which something happens; at the first call the first, and so on."""

    def __init__(self, *happens: Happens) -> None:
        self.left = list(happens)
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.left:
            self.left.pop(0)()


@dataclass
class Race:
    """The parts of one test."""

    shop: Shop
    target: Target
    table_id: str
    heartbeats: WriterHeartbeats = field(init=False)
    tuning: dict[str, float] = field(default_factory=dict)
    """What `command` sets beside the shop's own."""

    def __post_init__(self) -> None:
        writers = SqlWriters(self.shop.journal.database, self.table_id)
        # Not entered: no thread gives heartbeats, so that a test says when one is given.
        self.heartbeats = WriterHeartbeats(
            writers,
            self.session.revisions,
            job_wiring.lifetimes_of(self.shop.job),
            time.monotonic,
            lambda: self.target.store.sent.unanswered,
        )

    @property
    def sql(self) -> Callable[..., None]:
        return self.shop.sql

    @cached_property
    def beside(self) -> ConcurrentEdges:
        return ConcurrentEdges(self.session, self.shop.live, self.target, self.heartbeats)

    @cached_property
    def session(self) -> JobSession:
        """The shop's edges, and this race's table."""
        opened, session = self.shop.opened, JobSession(self.shop.job, "races")
        session.source, session.checked = opened.source, opened.checked
        session.journal, session.live = self.shop.journal, self.shop.live
        session.target, session.table_id = self.target, self.table_id
        return session

    def entity(self, name: str) -> CompiledEntity:
        return self.beside.entities[name].compiled

    @contextmanager
    def through(self, faults: Faults) -> Iterator[tuple[Race, FaultProxy]]:
        """The same race by way of a proxy with faults."""
        with FaultProxy(str(self.shop.job.target.endpoint), faults) as proxy:
            target = self.shop.target_through(proxy.url, self.target.design)
            yield Race(self.shop, target, self.table_id), proxy

    def command(self, *words: str) -> Ended:
        """What a command says that is run with a job file for this race's table."""
        return self.command_through(str(self.shop.job.target.endpoint), *words)

    def raise_epoch(self) -> None:
        """The first step of `migrator recover JOB source-restored` alone."""
        with JobSession(self._job_file(str(self.shop.job.target.endpoint))) as session:
            raise_epoch(session, 0)

    def command_through(self, endpoint: str, *words: str) -> Ended:
        """The same by way of another endpoint."""
        path, job = self._job_file(endpoint), self.shop.job
        # Else the command waits for a reader of the log that reads nothing meanwhile.
        self.shop.leave_log()
        position = 2 if words[0] == "capture" else 1
        return run_here([*words[:position], str(path), *words[position:]], job.path.parent, dict(os.environ))

    def _job_file(self, endpoint: str) -> Path:
        job = self.shop.job
        path = job.path.with_name(f"{self.target.design.name}.yaml")
        text = job.path.read_text().replace("table: Races", f"table: {self.target.design.name}")
        tuning = "".join(f", {name}: {value}" for name, value in self.tuning.items())
        path.write_text(
            text.replace(str(job.target.endpoint), endpoint).replace("workers: 2}", f"workers: 2{tuning}}}")
        )
        # Each race has a table of its own, and all of them one job.
        job_wiring.keep_names(job_wiring.read_job(path))
        return path

    def pass_time(self, passed_s: float) -> float:
        """So much time passes for the journal: everything that writers did is so much longer ago."""
        moved = {name: writer.c[name] - passed_s for name in ("since", "alive_at")}
        with self.shop.journal.database.begin() as connection:
            here = writer.c.table_id == self.table_id
            connection.execute(update(writer).where(here).values(**moved))
        return passed_s

    # ── relays ──

    def relay(self, before_write: Happens = lambda: None, **options: float) -> Relay:
        """`before_write` stands before each wave of writes, after the rows were read."""
        made = self.beside.relay(lambda: _nothing(before_write()))
        made.options = RelayOptions(**options)  # type: ignore[arg-type]
        return made

    def work(self, **options: Any) -> list[Worked]:
        """A relay works until no mark is left that it could take."""
        relay, done = self.relay(**options), []
        while (worked := relay.once()).taken:
            done.append(worked)
        return done

    @contextmanager
    def aside(self, count: int = 1) -> Iterator[list[Mark]]:
        """Another relay takes the oldest marks meanwhile, and does nothing with them."""
        marks = self.shop.live.marks.take(count, 3600)
        yield marks
        for mark in marks:
            self.shop.live.marks.advance(mark, mark.cursor)

    def mark_ids(self) -> list[int]:
        self.shop.copy_log()
        return [
            int(row[0]) for row in self.shop.sql.rows(f"SELECT id FROM {self.shop.mark_table} ORDER BY id")
        ]

    # ── backfills ──

    def copy(
        self,
        name: str,
        *,
        fast: bool = False,
        keys: Sequence[str] | None = None,
        after_read: Happens = lambda: None,
        check: Happens = lambda: None,
    ) -> Copied:
        """Rows of an entity (None: all) as one page; `after_read` happens between its reading and its writing."""
        entity, source = self.entity(name), self.session.source
        assert isinstance(source, SqlSource)

        def read() -> list[RowTree]:
            rows = source.read_rows(entity.plan, keys or [])
            after_read()
            return rows

        def raw(places: frozenset[int]) -> RawPage:
            page = source.read_raw(entity.plan, places, None, None)
            after_read()
            return page

        beside = ConditionalPath(
            self.beside.refresh(lambda: _nothing(check())), self.beside.open_findings, {}
        )
        return (self.fast_path(check) if fast else beside).copy(
            entity, *page_of(read, raw if keys is None else None)
        )

    def fast_path(self, check: Happens = lambda: None) -> PagePath:
        checked = self.session.checked
        entities = {entity.name: entity for entity in checked.entities}
        memory, table_id = self.beside.session.memory, self.table_id
        claims = Claims(
            self.shop.journal, self.session.source, entities, checked.unproved, table_id, memory=memory
        )
        remembered = frozenset(name for name, entity in self.beside.entities.items() if entity.remembered)
        store = self.target.store
        encoders = encoders_of(self.session.source, checked.entities, compile_encoder)
        return FastPath(
            store, claims, encoders, time.time, lambda: _nothing(check()), None, memory, remembered
        )

    def fill(self, *, fast: bool = True) -> None:
        """A backfill of everything; the marks that the rows left are put away, for they tell nothing new."""
        for name in self.beside.entities:
            self.copy(name, fast=fast)
        self.shop.copy_log()
        self.shop.sql(f"DELETE FROM {self.shop.mark_table}")

    # ── what there is ──

    def stored(self) -> list[Item]:
        """Everything that stands in the table, but the control item."""
        return [item for item in self.whole() if item["type"] != CONTROL]

    def whole(self) -> list[Item]:
        """Everything that stands in the table."""
        return [item for page in self.target.store.scan(0, 1) for item in page.items]

    def live(self) -> dict[tuple[str, str], Item]:
        """The items that readers see."""
        hidden = self.target.design.is_hidden
        return {(str(item["PK"]), str(item["SK"])): item for item in self.stored() if not hidden(item)}

    def item(self, partition: str, sort: str = "META") -> Item:
        return self.live()[partition, sort]

    def tombstones(self) -> dict[tuple[str, str], Item]:
        return {
            (str(item["PK"]), str(item["SK"])): item for item in self.stored() if item["type"] == TOMBSTONE
        }

    def differences(self) -> dict[str, int]:
        """What the product's verify finds, by kind."""
        session, target, journal = self.session, self.target, self.shop.journal
        identity = identity_of("verify", session, self.table_id, session.checked.entities)
        tuning = session.job.tuning
        options = VerifyOptions(tuning.workers, tuning.page_rows, tuning.scan_segments)
        stage = Verify(
            *(session.source, target.store, journal, Silent()), options=options, **OF_A_STILL_SOURCE
        )
        run = begin(journal, identity, again=True, after=0)
        with RunEnd(journal.end_run, run):
            return {
                str(kind): count for kind, count in stage.run(run, session.checked.entities).findings.items()
            }

    def comes_to_rest(self) -> None:
        """All marks are worked, none failed, and items are what the rows say."""
        worked = self.work()
        assert not [finding for work in worked for finding in work.findings]
        assert self.shop.live.marks.state() == MarksState()
        assert self.differences() == {}


def _nothing(_: object) -> None:
    return
