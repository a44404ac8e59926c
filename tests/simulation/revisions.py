"""Schedules in which the job goes on to another mapping, and back, while relays, services and backfills by each are at work."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial

from migrator.mapping.difference.difference import EntityDifference, PlannedRevision, difference
from migrator.mapping.model.journal import Page
from migrator.mapping.model.live import Root, Writer
from migrator.mapping.model.results import Worked
from migrator.mapping.model.table import EncodedItem, ItemKey, encode_key, split_source
from migrator.runtime.errors import MigratorError, OldRevisionError, StoppedError
from migrator.runtime.values import replace
from migrator.stages.backfill.write import ConditionalPath, only_changed
from migrator.stages.live import relay
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.service import begin_when_alone
from migrator.stages.live.writers import WriterLease, outlive
from tests.fakes.journal import FakeRevisions, RevisionBook
from tests.simulation.actors import OWNERS, Cast, populate
from tests.simulation.database import Reader, Transaction
from tests.simulation.mappings import MAPPING, Compiled, compiled
from tests.simulation.rest import drain, repair_key_requests
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import LIFETIMES, World
from tests.support_fence import no_fence, page_of

OLD: dict[str, tuple[tuple[str, str], ...]] = {
    "an attribute less": ((" age: age}\n      Named", "}\n      Named"),),
    "another sort key": (('"CARD#{', '"C#{'),),
    "another key that moves from row to row": (('"NAME#{', '"N#{'),),
    "another key of each item": (
        ('"OWNER#{owner_id}", "PET#', '"KEEPER#{owner_id}", "PET#'),
        ('"NAMED#{', '"PETNAMED#{'),
    ),
    "a key that is not remembered": (('"TAG#{owner.name}", "PET#{id}"]\n', '"LABEL#{id}", "PET#{id}"]\n'),),
    "no condition": (('"NAMED#{id}", PET]\n        when: owner.name\n', '"NAMED#{id}", PET]\n'),),
    "an item type more": (
        ("  pet:\n    join", '      Badge:\n        key: ["BADGE#{name|or:none}", BADGE]\n  pet:\n    join'),
    ),
    "an entity more": (
        (
            "access_patterns:",
            '  label:\n    table: pet\n    join: {owner: owner_id}\n    items:\n      Label:\n'
            '        key: ["HOME#{owner.name}", HOME]\n        when: owner.name\naccess_patterns:',
        ),
    ),
    "an entity more that shares a key": (
        (
            "access_patterns:",
            '  nick:\n    table: owner\n    items:\n      Nick:\n'
            '        key: ["NAME#{name}", NAME]\n        when: name\naccess_patterns:',
        ),
    ),
}  # fmt: skip
"""What the mapping of before has, by what in place of what."""
KINDS = (*OLD, "all")


@functools.cache
def old_mapping(kind: str) -> Compiled:
    text = MAPPING
    for name in OLD if kind == "all" else [kind]:
        for new, old in OLD[name]:
            # Of all of them at once one may be in another's place.
            assert new in text or kind == "all", new
            text = text.replace(new, old)
    return compiled(text)


@functools.cache
def changed_entities(before: Compiled, after: Compiled) -> Mapping[str, EntityDifference]:
    """What changes of each entity, by its name."""
    old, new = (
        PlannedRevision(one.checked.mapping, [entity.plan for entity in one.checked.entities])
        for one in (before, after)
    )
    return {entity.name: entity for entity in difference(old, new).entities}


@dataclass
class Revisions(FakeRevisions):
    """The journal's, each call a step of its own. `refuses`: a guard that a test takes away."""

    schedule: Scheduler
    book: RevisionBook
    own: str
    refuses: bool = True

    def enter(self, writer: Writer) -> None:
        self.schedule.step()
        if self.refuses:
            super().enter(writer)
        self.book.by_writer[writer.id] = self.own

    def is_old(self) -> bool:
        self.schedule.step()
        return super().is_old()

    def old(self, writers: Sequence[Writer]) -> list[Writer]:
        self.schedule.step()
        return super().old(writers)


@dataclass
class PutAway:
    """How relays of an older mapping put marks away. `asks`: whether they ask their check before, a guard that a test takes
    away; `late`: marks that they put away though they knew of the newer mapping."""

    asks: bool = True
    late: list[int] = field(default_factory=list)


class ClockedRelay(relay.Relay):
    """Its heartbeat is given by the clock, also between what it writes and the putting away of the marks."""

    schedule: Scheduler
    lease: WriterLease
    put_away: PutAway

    def _put_away(self, works: Sequence[relay._Work], worked: Worked) -> None:
        if self.schedule.chance(0.5):
            self.lease.beat()
        refresh = self.refresh
        self.refresh = refresh if self.put_away.asks else replace(refresh, check=no_fence)
        try:
            super()._put_away(works, worked)
        finally:
            self.refresh = refresh
        if self.lease.is_old:
            self.put_away.late += [work.mark.id for work in works if work.mark is not None]


@dataclass
class Going(Cast):
    """Writers of one mapping. `is_done`: whether its change of the table has come to its end."""

    put_away: PutAway = field(default_factory=PutAway)
    waits: bool = True
    entities: Mapping[str, EntityDifference] | None = None
    """What is projected anew; None for all."""
    other: Compiled | None = None
    """The mapping that the job comes from."""
    is_done: bool = False

    def is_newest(self) -> bool:
        return not FakeRevisions.is_old(self.world.revisions)

    # ── the change ──

    def go_on(self) -> None:
        """A relay by this mapping, and beside it the change of the table."""
        for _ in range(self.schedule.random.randrange(1, 60)):
            self.schedule.step()
        self.register()
        self.schedule.start(partial(self.supervised, 2))
        self.migrate()

    def register(self) -> None:
        self.world.revisions.register(go_back=True)
        self.is_done = False

    def migrate(self, rows: int = 2) -> None:
        """What a command does that goes on to a mapping: rows are projected anew, then what no row makes is taken away."""
        try:
            self.outlive()
            self.meets_changes()
            if self.backfill(rows):
                self.meets_changes()
                self.is_done = self.sweep()
        except OldRevisionError:
            return

    def meets_changes(self) -> None:
        """Rows change all the while, and relays follow."""
        if self.world.schedule.chance(0.5):
            self.schedule.start(partial(self.service, strict=False))
            self.schedule.start(partial(self.supervised, 1))

    def outlive(self) -> None:
        if self.waits:
            # A look each five seconds: what others do meanwhile does not hang on it.
            outlive(self.world.writers, self.world.revisions, LIFETIMES, lambda wait_s: self.wait(5 * wait_s))

    def backfilled(self) -> Iterable[str]:
        every = self.world.entities
        return every if self.entities is None else [name for name in every if name in self.entities]

    def page(self, name: str, after: int, writer_lease: WriterLease, rows: int = 2) -> None:
        """Where only what changes is projected anew, as `migrator migrate-mapping` does."""
        if self.entities is None:
            super().page(name, after, writer_lease, rows)
            return
        entity, reader = self.world.entities[name], Reader(self.database)
        page = Page(name, after + 1, encode_key([after]), encode_key([after + rows]))
        assert self.other is not None
        former = self.other.apart.get(name)
        only = only_changed(
            *(self.entities[name], entity.together, former and former.compiled, reader),  # type: ignore[arg-type]
            is_first=True,
        )
        path = ConditionalPath(self.refresh_of(writer_lease), self.world.open_findings, {name: only})
        read = partial(reader.read_page, entity.compiled.plan, page.after, page.upto)
        path.copy(entity.compiled, *page_of(read, page=page))

    def sweep(self) -> bool:
        """Whether all items were taken away that no row makes by this mapping."""
        for _ in range(4):
            writer_lease = self.present("conditional")
            refresh = self.refresh_of(writer_lease)
            try:
                writer_lease.beat(begins=True)
                self.take_away(refresh)
            except OldRevisionError:
                raise
            except StoppedError:
                continue
            self.world.writers.leave(writer_lease.writer)
            return True
        return False

    def take_away(self, refresh: Refresh) -> None:
        """What items there are is looked at, whatever row of whatever time made them. Where a row makes one no more, it is
        read again with that key, or a tombstone goes there under a ticket from before the look."""
        ticket = refresh.draw()
        self.schedule.step()
        reads_again = self.schedule.chance(0.5)
        wanted = self.world.wanted()
        stale: dict[Root, list[ItemKey]] = defaultdict(list)
        buried: list[tuple[Root, ItemKey]] = []
        for key, item in self.world.table.live().items():
            root = split_source(str(item["_src"]))
            if root[0] in refresh.entities and reads_again and root not in wanted.get(key, {}):
                stale[root].append(key)
            elif root not in wanted.get(key, {}):
                buried.append((root, key))
        for _ in range(self.schedule.random.randrange(30)):
            self.schedule.step()
        for root, keys in stale.items():
            refresh({root: keys})
        for root, key in buried:
            refresh.check()
            self.bury(refresh, refresh.tombstone(root, key, ticket))
        self.give_away(refresh, [key for _, key in buried], ticket)

    def bury(self, refresh: Refresh, tombstone: EncodedItem) -> None:
        refresh.store.write([tombstone])

    def give_away(self, refresh: Refresh, keys: Sequence[ItemKey], ticket: int) -> None:
        """Rows that want a key are read again; those of entities that the mapping has not want none."""
        requests = refresh.memory.requests_of(keys)
        refresh.memory.withdraw([one for one in requests if one.root[0] not in refresh.entities], ticket)
        for request in requests:
            if request.root[0] in refresh.entities:
                refresh({request.root: [request.key]})

    # ── writers ──

    def supervised(self, times: int) -> None:
        """A relay that is started again whenever it has ended, whatever it ended of."""
        for _ in range(times):
            try:
                self.outlive()
                self.relay_once()
            except MigratorError:
                self.schedule.step()

    def service(self, *, strict: bool) -> None:
        """A strict one waits for others as the product's does; by an older mapping it leaves marks alone."""
        if strict:
            begin_when_alone(self.world.writers, self.world.revisions, LIFETIMES, self.wait)
        for _ in range(3):
            self.transaction(strict=strict)

    def write_first(self, work: Transaction, begun_at: float) -> None:
        try:
            writer_lease = self.present("strict")
        except OldRevisionError:
            return

        def check() -> None:
            if self.schedule.chance(0.2):
                writer_lease.beat()
            writer_lease.check()

        try:
            self.write_checked(work, begun_at, check)
        except OldRevisionError:
            return
        self.world.writers.leave(writer_lease.writer)

    def lone_backfill(self) -> None:
        """It begins at any time, and its heartbeat is given by the clock and not before each page."""
        for _ in range(self.schedule.random.randrange(1, 80)):
            self.schedule.step()
        try:
            writer_lease = self.present("fast")
            for name in self.world.entities:
                for after in range(0, max(OWNERS) + 1, 2):
                    if self.schedule.chance(0.2):
                        writer_lease.beat()
                    super().page(name, after, writer_lease)
        except (OldRevisionError, StoppedError):
            return
        self.world.writers.leave(writer_lease.writer)


class RevisionWorld(World):
    """The world as writers of one of its mappings see it."""

    put_away: PutAway

    def relay(self, refresh: Refresh | None = None, most_marks: int = 4) -> relay.Relay:
        made = super().relay(refresh, most_marks)
        lease = getattr(made.refresh.check, "__self__", None)
        if not isinstance(lease, WriterLease):
            return made
        clocked = ClockedRelay(*(getattr(made, one.name) for one in fields(made) if one.init))
        clocked.schedule, clocked.put_away, clocked.lease = self.schedule, self.put_away, lease
        return clocked


def run_on(
    seed: int,
    cast_of: type[Going] = Going,
    *,
    refuses: bool = True,
    waits: bool = True,
    put_away: PutAway | None = None,
    kind: str | None = None,
) -> World:
    """A world at rest after the schedule of a seed in which the job has gone on to another mapping."""
    schedule = Scheduler(seed)
    rng = schedule.random
    book = RevisionBook()
    kind = kind or rng.choice(KINDS)
    in_part = rng.random() < 0.5

    def revisions_of(own: str) -> Revisions:
        return Revisions(schedule, book, own, refuses)

    world = RevisionWorld(
        schedule,
        unique=rng.random() < 0.7,
        faults=rng.choice((0.0, 0.1)),
        atomic=rng.random() < 0.3,
        revisions=revisions_of("new"),
    )
    world.put_away = put_away or PutAway()
    # A relay has been here: every backfill writes by condition.
    world.writers.guarded = True
    populate(world)
    old_world = copy.copy(world)
    old_world.mapping, old_world.revisions = old_mapping(kind), revisions_of("old")
    new, old = (cast_of(one, put_away=world.put_away, waits=waits) for one in (world, old_world))
    new.other, old.other = old_world.mapping, world.mapping
    old.register()
    if in_part:
        _write_in_part(new, old)
    _enter(new, old)
    schedule.run(crash_share=rng.choice((0.0, 0.0, 0.01)))
    return _at_rest(new if new.is_newest() else old)


def _write_in_part(new: Going, old: Going) -> None:
    """Only what changes is written anew, so that the rest has to be there."""
    faults, old.world.table.faults = old.world.table.faults, 0.0
    old.schedule.start(partial(old.backfill, max(OWNERS) + 1))
    old.schedule.run()
    old.world.table.faults = faults
    new.entities = changed_entities(old.world.mapping, new.world.mapping)
    old.entities = changed_entities(new.world.mapping, old.world.mapping)


def _enter(new: Going, old: Going) -> None:
    schedule, rng = new.schedule, new.schedule.random
    strict_share = rng.choice((0.0, 0.0, 0.5))
    actors: list[Callable[[], object]] = [
        partial(rng.choice((new, old)).service, strict=rng.random() < strict_share)
        for _ in range(rng.randrange(1, 4))
    ]
    actors += [partial(old.supervised, 4) for _ in range(rng.randrange(1, 3))]
    actors += [
        partial(_move, [new, old, new][: rng.choice((1, 1, 2, 3))]),
        partial(new.time, rng.randrange(2, 10), rng.choice((30.0, 400.0))),
    ]
    if rng.random() < 0.4:
        actors.append(old.lone_backfill)
    if rng.random() < 0.3:
        actors.append(new.purge)
    if new.world.faults:
        actors.append(partial(new.network, 40))
    for actor in actors:
        schedule.start(actor)


def _move(casts: Sequence[Going]) -> None:
    """The job goes on from one mapping to the next one, at times before the change to that one has ended."""
    for cast, following in zip(casts, [*casts[1:], None], strict=True):
        cast.schedule.start(cast.go_on)
        for _ in range(cast.schedule.random.randrange(60, 300) if following else 0):
            cast.schedule.step()


def _at_rest(newest: Going) -> World:
    """Where the change was killed, it is run again; no writer works by the older mapping any more."""
    world = newest.world
    world.table.faults = 0.0
    world.database.locks.clear()
    world.schedule.now_s += 1000.0
    if newest.entities is not None:
        # What both mappings make alike keeps the revision that wrote it.
        world.unlike |= {"_rev"}
    if not newest.is_done:
        newest.waits = True
        newest.register()
        world.schedule.start(partial(newest.migrate, max(OWNERS) + 1))
        world.schedule.run()
        assert newest.is_done
    drain(world)
    # Of entities that it has not: nothing looks at them until a writer of such a key meets them.
    for request in [one for one in world.memory.requests if one.root[0] not in world.entities]:
        del world.memory.requests[request]
    repair_key_requests(world)
    return world
