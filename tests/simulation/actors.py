"""Actors of a schedule: a service, relays, backfills, purge, the network and the clock."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from migrator.mapping.model.edges import UNREPAIRED, RootFinder
from migrator.mapping.model.live import Change, Root, Writer
from migrator.mapping.model.table import ItemKey, encode_key, split_source
from migrator.runtime.errors import MigratorError, OldRevisionError, SourceError, StoppedError
from migrator.runtime.values import replace
from migrator.stages.backfill.write import ConditionalPath, PagePath
from migrator.stages.core.ownership import AnotherJournalError, OlderError
from migrator.stages.live.refresh import Refresh, RestoredError
from migrator.stages.live.relay import Relay
from migrator.stages.live.service import Strict
from migrator.stages.live.writers import Purge, WriterLease, fence_off
from migrator.stages.session.adoption import Adoption
from tests.simulation.database import Database, Reader, RolledBack, Saved, Transaction
from tests.simulation.journal import Identity
from tests.simulation.rest import comes_to_a_moment, drain, repair_key_requests, under_faults
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import LIFETIMES, Parts, World
from tests.support_fence import no_fence, page_of

OWNERS, PETS = (1, 2, 3), (1, 2)
NAMES = ("ann", "bob", None)
TRANSACTION_S = 200.0
POLICY_SHARE = 0.1
LATE_SHARE = 0.1
STORES = ("source", "source and journal", "source and journal", "table", "journal")
STRANGE = (RestoredError, AnotherJournalError, OlderError)


@dataclass
class Cast:
    """Makes the actors of one world. A test that breaks a rule overrides what it breaks.

    `noticed`: what stopped a writer that found that the stores do not belong together any more.
    """

    world: World
    noticed: list[MigratorError] = field(default_factory=list)
    goes_back: bool = True
    """Whether stores may go back, or be lost, unannounced."""
    is_filled: bool = False
    """Whether a backfill has come to its end, and no store went back after that."""

    @property
    def schedule(self) -> Scheduler:
        return self.world.schedule

    @property
    def database(self) -> Database:
        return self.world.database

    # ── the service ──

    def service(self, *, strict: bool) -> None:
        if strict:
            if not self.belongs():
                return
            # As a relay does: beside a fast run, its old items would replace newer ones of a writer with tickets.
            fence_off(self.world.writers, LIFETIMES, self.wait)
            writer_lease = self.present("strict")
        for _ in range(3):
            self.transaction(strict=strict)
        if strict:
            self.world.writers.leave(writer_lease.writer)

    def transaction(self, *, strict: bool = False) -> None:
        """One transaction of the service, committed or rolled back."""
        rng, begun_at = self.schedule.random, self.schedule.now_s
        work = Transaction(self.database)
        try:
            for _ in range(rng.randrange(1, 3)):
                self.schedule.step()
                self.change(work)
            if strict and work.marks:
                self.write_first(work, begun_at)
            self.schedule.step()
            if rng.random() < 0.15 or self.schedule.now_s - begun_at > TRANSACTION_S:
                return
            self.commit(work)
        except STRANGE as error:
            self.noticed.append(error)
        except (RolledBack, MigratorError):
            return
        finally:
            work.release()

    def commit(self, work: Transaction) -> None:
        work.commit()

    def change(self, work: Transaction) -> None:
        rng = self.schedule.random
        if rng.random() < 0.6:
            key = rng.choice(OWNERS)
            row = {"id": key, "name": rng.choice(NAMES)}
            work.write("owner", key, None if rng.random() < 0.25 else row)
        else:
            key = rng.choice(PETS)
            row = {"id": key, "owner_id": rng.choice(OWNERS), "age": rng.randrange(3)}
            work.write("pet", key, None if rng.random() < 0.25 else row)

    def write_first(self, work: Transaction, begun_at: float) -> None:
        self.write_checked(work, begun_at, no_fence)

    def write_checked(self, work: Transaction, begun_at: float, check: Callable[[], None]) -> None:
        """Strict mode: the product's own, over a reader inside of the transaction."""

        def relay_of(rows: RootFinder, check: Callable[[], None]) -> Relay:
            return replace(self.world.relay(self.world.refresh(check, work)), finder=rows)

        reader = Reader(self.database, work)
        strict = Strict(
            self.database.pre_mark, relay_of, LIFETIMES, self.schedule.clock, check, longest_s=TRANSACTION_S
        )
        changes = [Change(mark.table, mark.before, mark.after) for mark in work.marks]
        strict.write_first(changes, reader, begun_at)

    # ── relays ──

    def relays(self, times: int) -> None:
        """One relay: it starts, works, may be cut off, and starts again."""
        for _ in range(times):
            try:
                self.relay_once()
            except (StoppedError, SourceError):
                continue
            except STRANGE as error:
                self.noticed.append(error)
                return

    def relay_once(self) -> None:
        self.guard()
        fence_off(self.world.writers, LIFETIMES, self.wait)
        writer_lease = self.present("relay")
        relay = self.world.relay(self.refresh_of(writer_lease))
        for _ in range(2):
            writer_lease.beat(begins=True)
            relay.once()
        self.world.writers.leave(writer_lease.writer)

    def refresh_of(self, writer_lease: WriterLease) -> Refresh:
        return self.world.refresh(writer_lease.check)

    # ── backfills ──

    def backfill(self, rows: int = 2) -> bool:
        """A run over all entities, in pages of two rows; it begins anew when it was stopped. Whether it came to its end."""
        for _ in range(4):
            if not self.belongs():
                return False
            writer_lease = self.present("fast")
            try:
                for name in self.backfilled():
                    for after in range(0, max(OWNERS) + 1, rows):
                        writer_lease.beat(begins=True)
                        self.page(name, after, writer_lease, rows)
            except (StoppedError, SourceError):
                continue
            except STRANGE as error:
                self.noticed.append(error)
                return False
            self.world.writers.leave(writer_lease.writer)
            self.is_filled = True
            return True
        return False

    def backfilled(self) -> Iterable[str]:
        """Names of entities."""
        return self.world.entities

    def page(self, name: str, after: int, writer_lease: WriterLease, rows: int = 2) -> None:
        entity, reader = self.world.entities[name].compiled, Reader(self.database)

        def read() -> list[tuple[object, ...]]:
            return reader.read_page(entity.plan, encode_key([after]), encode_key([after + rows]))

        path: PagePath = ConditionalPath(self.refresh_of(writer_lease), self.world.open_findings, {})
        if writer_lease.writer.kind == "fast":
            path = self.world.fast_path(writer_lease.check)
        path.copy(entity, *page_of(read))

    # ── a policy ──

    def policy(self) -> None:
        """Row level security is switched on, and our role is exempted some time later."""
        rng = random.Random(f"policy {self.schedule.random.random()}")
        places = [*(("owner", key) for key in OWNERS), *(("pet", key) for key in PETS)]
        for _ in range(rng.randrange(40)):
            self.schedule.step()
        self.database.hidden = frozenset(rng.sample(places, rng.randrange(1, 4)))
        for _ in range(rng.randrange(1, 60)):
            self.schedule.step()
        self.database.hidden = frozenset()

    # ── stores that do not belong together any more ──

    def guard(self) -> None:
        self.world.keeping().guard()

    def belongs(self) -> bool:
        try:
            self.guard()
        except STRANGE as error:
            self.noticed.append(error)
        return not self.noticed

    def go_back(self, what: str) -> None:
        """A store goes back, or is lost, unannounced. Processes that work with it are cut off."""
        world, schedule = self.world, self.schedule
        source, table = world.database.saved(), world.table.saved()
        memory, seen = world.memory.saved(), dict(world.identity.seen_tables)
        fenced = world.writers.guarded
        self.meanwhile()
        # Also one that came to its end meanwhile: what it wrote goes with what is put back.
        self.is_filled = False
        if what in ("source", "source and journal"):
            world.database.restore(source)
        if what == "source and journal":
            world.memory.restore(memory)
            world.writers.here.clear()
            world.writers.guarded, world.identity.seen_tables = fenced, seen
        if what in ("table", "journal"):
            schedule.kill_all()
            schedule.now_s += LIFETIMES.gone_s + 1
            # A journal keeps everything by the id of the table.
            world.begin_journal()
        if what == "table":
            world.table.restore(table)
        if what == "journal":
            world.identity = Identity("another journal")

    def meanwhile(self) -> None:
        """What is lost."""
        rng = self.schedule.random
        self.schedule.run(limit=rng.randrange(10, rng.choice((30, 200))))

    def mend(self, error: MigratorError) -> None:
        """What an operator does: the advice, and nothing else."""
        self.schedule.kill_all()
        self.schedule.now_s += LIFETIMES.gone_s + 1
        self.noticed.clear()
        if isinstance(error, RestoredError):
            self.raise_epoch()
        if isinstance(error, AnotherJournalError):
            self.adopt()
        self.repair()
        if not isinstance(error, AnotherJournalError):
            self.adopt()

    def adopt(self) -> None:
        while True:
            try:
                self.adoption().run("a test")
            except StoppedError:
                continue  # the same command again
            return

    def adoption(self) -> Adoption:
        return self.world.adoption()

    # ── a restore ──

    def restore(self, saved: Saved) -> None:
        """The source goes back to an older state, all processes are stopped; then the two commands that set it right."""
        self.schedule.kill_all()
        self.is_filled = False
        self.database.restore(saved)
        self.database.hidden = frozenset()
        self.schedule.now_s += LIFETIMES.gone_s + 1
        self.raise_epoch()
        self.repair()
        self.adopt()

    def raise_epoch(self) -> None:
        self.world.identity.see(self.world.table.table_id, "Sim", UNREPAIRED)
        self.database.raise_epoch(max(self.world.memory.highest(), self.world.table.control.ticket))

    def repair(self) -> None:
        """What verify --repair does: a mark for every root that a difference names."""
        root_keys: dict[Root, list[ItemKey]] = defaultdict(list)
        wanted, live = self.world.wanted(), self.world.table.live()
        for key in dict.fromkeys((*wanted, *live)):
            claims = wanted.get(key, {})
            if key not in live or live[key] not in [
                {**item, "_tk": live[key]["_tk"]} for item in claims.values()
            ]:
                for root in claims:
                    root_keys[root].append(key)
                if key in live:
                    root_keys[split_source(str(live[key]["_src"]))].append(key)
        self.database.add(root_keys)

    # ── time, network, purge ──

    def present(self, kind: str) -> WriterLease:
        before = self.schedule.clock()
        writer: Writer = self.world.writers.enter(kind)  # type: ignore[arg-type]
        try:
            self.world.revisions.enter(writer)
        except OldRevisionError:
            self.world.writers.leave(writer)
            raise
        return WriterLease(
            self.world.writers, self.world.revisions, writer, LIFETIMES, self.schedule.clock, before
        )

    def network(self, times: int) -> None:
        for _ in range(times):
            self.schedule.step()
            if self.world.table.late and self.schedule.chance(0.3):
                self.world.table.deliver(self.schedule.random.randrange(len(self.world.table.late)))

    def time(self, times: int, longest_s: float) -> None:
        for _ in range(times):
            self.wait(self.schedule.random.choice((0.1, 1.0, 5.0, 30.0, longest_s)))

    def wait(self, wait_s: float) -> None:
        self.schedule.step()
        self.schedule.now_s += wait_s

    def purge(self) -> None:
        self.schedule.step()
        pages = [list(self.world.table.items.values())]
        design = self.world.table.design
        writers, table = self.world.writers, self.world.table
        list(Purge(table, writers, design, LIFETIMES, no_fence).run(pages, self.schedule.now_s))


def run(seed: int, cast_of: Callable[[World], Cast] = Cast, parts: Parts = Parts()) -> World:  # noqa: B008  (frozen)
    """A world at rest after the schedule of a seed. Which actors there are is chosen by the seed as well."""
    schedule = Scheduler(seed)
    rng = schedule.random
    atomic = rng.random() < 0.5 if parts.atomic is None else parts.atomic
    unique, faults = rng.random() < 0.7, rng.choice((0.0, 0.1, 0.3))
    world = World(schedule, unique=unique, faults=faults, atomic=atomic, parts=parts)
    populate(world)
    cast = cast_of(world)
    crash_share = rng.choice((0.0, 0.0, 0.01, 0.03))
    enter(cast)
    # By chance of its own: the other seeds stay the schedules that they were.
    has_policy = random.Random(f"policy {seed}").random() < POLICY_SHARE
    if has_policy:
        schedule.start(cast.policy)
    if rng.random() < 0.1:
        schedule.run(crash_share=crash_share, limit=rng.randrange(1, 60))
        saved = world.database.saved()
        schedule.run(crash_share=crash_share, limit=rng.randrange(1, 100))
        cast.restore(saved)
        enter(cast)
    elif rng.random() < 0.15 and cast.goes_back and comes_to_a_moment(world, crash_share):
        cast.go_back(rng.choice(STORES))
        enter(cast)
    schedule.run(crash_share=crash_share)
    come_to_rest(world, cast)
    if has_policy:
        under_policy(world, cast)
    elif random.Random(f"faults {seed}").random() < LATE_SHARE and not cast.noticed:
        under_faults(
            world, [partial(cast.service, strict=False), partial(cast.relays, 4), partial(cast.network, 40)]
        )
    return world


def under_policy(world: World, cast: Cast) -> None:
    """Changes are worked while a policy comes and goes. No backfill follows that would mend what was buried."""
    for actor in (partial(cast.service, strict=False), partial(cast.relays, 4), cast.policy):
        world.schedule.start(actor)
    world.schedule.run()
    world.database.hidden = frozenset()
    drain(world)


def enter(cast: Cast) -> None:
    """The actors of a schedule."""
    schedule, rng = cast.schedule, cast.schedule.random
    strict_share = rng.choice((0.0, 0.0, 0.5))
    for _ in range(rng.randrange(1, 4)):
        schedule.start(partial(cast.service, strict=rng.random() < strict_share))
    if rng.random() < 0.6:
        schedule.start(cast.backfill)
    for _ in range(rng.randrange(1, 3)):
        schedule.start(partial(cast.relays, 2))
    if cast.world.faults:
        schedule.start(partial(cast.network, 40))
    schedule.start(partial(cast.time, rng.randrange(2, 10), rng.choice((30.0, 400.0))))
    if rng.random() < 0.5:
        schedule.start(cast.purge)


def populate(world: World) -> None:
    """Rows from before capture: they have no marks, so that only a backfill brings them."""
    rng, tables = world.schedule.random, world.database.tables
    for key, name in zip(OWNERS, rng.sample(NAMES, len(NAMES)), strict=True):
        if rng.random() < 0.5:
            tables["owner"][key] = {"id": key, "name": name}
    for key in PETS:
        if tables["owner"] and rng.random() < 0.5:
            owner = rng.choice(sorted(tables["owner"]))
            tables["pet"][key] = {"id": key, "owner_id": owner, "age": 0}


def come_to_rest(world: World, cast: Cast) -> None:
    """The service is quiet, nothing fails any more; relays go on until no mark is left, and all late requests land."""
    world.table.faults = 0.0
    world.database.hidden = frozenset()
    world.database.locks.clear()
    world.schedule.now_s += 1000.0
    for _ in range(5):
        if _has_come_to_rest(world, cast):
            return
        cast.mend(cast.noticed[0])
        # What was mended has to stand what comes.
        world.schedule.start(partial(cast.service, strict=False))
        world.schedule.start(partial(cast.relays, 2))
        world.schedule.run()
    raise AssertionError(f"the advice does not help: {cast.noticed}")


def _has_come_to_rest(world: World, cast: Cast) -> bool:
    """Whether it went unnoticed that the stores do not belong together."""
    if cast.noticed or not cast.belongs():
        return False
    # Another one would mend what a broken rule has left.
    if not cast.is_filled:
        # No writer is there to come between its pages.
        world.schedule.start(partial(cast.backfill, max(OWNERS) + 1))
        world.schedule.run()
    if cast.noticed:
        return False
    try:
        drain(world)
        repair_key_requests(world)
    except STRANGE as error:
        cast.noticed.append(error)
    return not cast.noticed
