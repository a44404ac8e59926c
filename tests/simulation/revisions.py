"""Schedules in which the job goes on to another mapping while relays and backfills of the old one are at work."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from migrator.mapping.check.check import Checked
from migrator.mapping.heart.changes import needs_memory
from migrator.mapping.heart.encoder import Encoder
from migrator.model.errors import MigratorError, OldRevisionError, StoppedError
from migrator.model.live import Writer
from migrator.stages.live import relay
from migrator.stages.live.rounds import LiveEntity, encoders_of
from migrator.stages.live.writers import outlive
from tests.fakes.journal import FakeRevisions, RevisionBook
from tests.golden.heart import check
from tests.simulation.actors import OWNERS, Cast, populate
from tests.simulation.database import Database, Reader
from tests.simulation.rest import drain
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import HEAD, LIFETIMES, MAPPING, SCHEMA, World, captured, kept_once


@functools.cache
def old_checked() -> Checked:
    """The mapping of before: one attribute less, and the same keys."""
    text = MAPPING.replace("{ownerName: owner.name, age: age}", "{ownerName: owner.name}")
    assert text != MAPPING
    return check(text, SCHEMA, HEAD)


@functools.cache
def old_entities() -> dict[str, LiveEntity]:
    entities = relay.live_entities(
        old_checked().mapping, [kept_once(entity) for entity in old_checked().entities]
    )
    none: frozenset[str] = frozenset()
    return {
        name: replace(entity, remembered=needs_memory(entity.compiled.plan), together=none)
        for name, entity in entities.items()
    }


@functools.cache
def old_encoders() -> Mapping[str, Encoder]:
    return encoders_of(Reader(Database(Scheduler(0), captured())), old_entities())


@dataclass
class Revisions(FakeRevisions):
    """The journal's, each call a step of its own. `refuses`, `notices`: guards that a test takes away."""

    schedule: Scheduler
    book: RevisionBook
    own: str
    refuses: bool = True
    notices: bool = True

    def enter(self, writer: Writer) -> None:
        self.schedule.step()
        if self.refuses:
            super().enter(writer)
        self.book.by_writer[writer.id] = self.own

    def is_old(self) -> bool:
        self.schedule.step()
        return self.notices and super().is_old()

    def old(self, writers: Sequence[Writer]) -> list[Writer]:
        self.schedule.step()
        return super().old(writers)


class OldWorld(World):
    """The same world for writers of the old mapping."""

    @property
    def entities(self) -> dict[str, LiveEntity]:
        return old_entities()

    @property
    def encoders(self) -> Mapping[str, Encoder]:
        return old_encoders()

    @property
    def revision(self) -> str:
        return old_checked().mapping.revision


@dataclass
class Going(Cast):
    """Writers of the new mapping. `is_filled`: whether its backfill has come to its end."""

    waits: bool = True
    is_filled: bool = False

    def go_on(self) -> None:
        """What docs/schema-changes.md says: install, then a relay and the backfill by the new mapping."""
        for _ in range(self.schedule.random.randrange(1, 40)):
            self.schedule.step()
        self.world.revisions.register()
        self.schedule.start(partial(self.supervised, 2))
        self.outlive()
        self.is_filled = self.backfill()

    def supervised(self, times: int) -> None:
        """A relay that is started again whenever it has ended, whatever it ended of."""
        for _ in range(times):
            try:
                self.outlive()
                self.relay_once()
            except MigratorError:
                self.schedule.step()

    def outlive(self) -> None:
        if self.waits:
            outlive(self.world.writers, self.world.revisions, LIFETIMES, self.wait)

    def old_backfill(self) -> None:
        """It begins at any time, and its heartbeat is given by the clock and not before each page."""
        for _ in range(self.schedule.random.randrange(1, 80)):
            self.schedule.step()
        try:
            writer_lease = self.present("fast")
            for name in self.world.entities:
                for after in range(0, max(OWNERS) + 1, 2):
                    if self.schedule.chance(0.2):
                        writer_lease.beat()
                    self.page(name, after, writer_lease)
        except (OldRevisionError, StoppedError):
            return
        self.world.writers.leave(writer_lease.writer)


def run_on(seed: int, *, refuses: bool = True, notices: bool = True, waits: bool = True) -> World:
    """A world at rest after the schedule of a seed in which the job has gone on to the new mapping."""
    schedule = Scheduler(seed)
    rng = schedule.random
    book = RevisionBook()

    def revisions_of(own: str) -> Revisions:
        return Revisions(schedule, book, own, refuses, notices)

    world = World(
        schedule, unique=rng.random() < 0.7, faults=rng.choice((0.0, 0.1)), revisions=revisions_of("new")
    )
    # A relay has been here: every backfill writes by condition.
    world.writers.guarded = True
    populate(world)
    old_world = copy.copy(world)
    old_world.__class__, old_world.revisions = OldWorld, revisions_of("old")
    new, old = Going(world, waits=waits), Going(old_world, waits=waits)
    old_world.revisions.register()
    _enter(new, old)
    schedule.run(crash_share=rng.choice((0.0, 0.0, 0.01)))
    _come_to_rest(new)
    return world


def _enter(new: Going, old: Going) -> None:
    schedule, rng = new.schedule, new.schedule.random
    actors: list[Callable[[], object]] = [
        partial(new.service, strict=False) for _ in range(rng.randrange(1, 4))
    ]
    actors += [partial(old.supervised, 4) for _ in range(rng.randrange(1, 3))]
    actors += [new.go_on, partial(new.time, rng.randrange(2, 10), rng.choice((30.0, 400.0)))]
    if rng.random() < 0.4:
        actors.append(old.old_backfill)
    if new.world.faults:
        actors.append(partial(new.network, 40))
    for actor in actors:
        schedule.start(actor)


def _come_to_rest(new: Going) -> None:
    """No writer works by the old mapping any more; where the new one's backfill was killed, it is run again."""
    world = new.world
    world.table.faults = 0.0
    world.database.locks.clear()
    world.schedule.now_s += 1000.0
    if not new.is_filled:
        new.waits = True
        world.revisions.register()
        new.outlive()
        assert new.backfill(10)
    drain(world)
    root_keys = {request.root: [request.key] for request in world.memory.requests}
    world.database.add(root_keys)
    drain(world)
