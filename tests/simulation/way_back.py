"""Schedules of the way back: pets are the service's to write while owners are relayed; then rows are the truth again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any, cast

from migrator.mapping.inverse.rows import Inverse, compile_inverse
from migrator.mapping.model.live import RowsVerified
from migrator.mapping.model.table import Item
from migrator.runtime.errors import MigratorError, StoppedError
from migrator.runtime.values import replace
from migrator.source.dynamodb.reader import StreamReader, begin
from migrator.stages.cutover.rollback import GoingBack, Owning, quiet
from migrator.stages.live.relay import Relay, RelayOptions
from migrator.stages.reverse.daemon import (
    DirectChangedError,
    ReverseDaemon,
    ReverseStatus,
    WhileDirect,
    status_of,
)
from migrator.stages.reverse.stage import Reverse, WrittenTable, items_by_row
from tests.fakes.reverse import FakeReverseJournal
from tests.fakes.stream_journal import FakeStreamJournal
from tests.simulation.database import Reader, RolledBack, Transaction
from tests.simulation.mappings import Compiled, compiled
from tests.simulation.scheduler import Scheduler
from tests.simulation.streamed import SimRowWriter, Stepping, StreamedTable
from tests.simulation.world import Parts, World
from tests.support_fence import no_fence

MAPPING = """
entities:
  owner: {items: {Owner: {key: ["OWNER#{id}", OWNER], attributes: {name: name}}}}
  pet: {items: {Pet: {key: ["OWNER#{owner_id}", "PET#{id}"], attributes: {id: id, owner_id: owner_id, age: age}}}}
"""
OWNERS, PETS = (1, 2, 3), (1, 2, 3, 4)
DIRECT = frozenset({"pet"})
SETTLE_S = 15.0
LEASE_S = 20.0


def apart(mapping: Compiled, names: frozenset[str]) -> Compiled:
    """The mapping without the entities that are direct."""

    def left(of: Any) -> Any:
        return {name: value for name, value in of.items() if name not in names}

    parts = {name: left(getattr(mapping, name)) for name in ("captured", "together", "apart", "image_keys")}
    return replace(mapping, **parts)


class Turns:
    """In place of an Event: set after so many looks."""

    def __init__(self, left: int) -> None:
        self.left = left

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


@dataclass
class Life:
    """A world and its actors. A test that breaks a rule overrides what it breaks.

    `truth`: pets as a service wrote them last, whichever side it wrote. `writing`: services that write the table just now.
    """

    schedule: Scheduler
    reverse_of: type[Reverse] = Reverse
    truth: dict[int, dict[str, int]] = field(default_factory=dict)
    direct: frozenset[str] = DIRECT
    writing: int = 0
    is_back: bool = False

    def __post_init__(self) -> None:
        self.whole = compiled(MAPPING)
        self.world = World(self.schedule, unique=False, faults=0.0, parts=Parts(table=StreamedTable))
        self.world.mapping = self.whole
        self.world.database.captured = self.whole.captured
        self.table = cast(StreamedTable, self.world.table)
        self.shards = FakeStreamJournal(self.schedule.clock)
        self.remembered = FakeReverseJournal(self.schedule.clock)
        self.writer = SimRowWriter(self.world.database, self.table, {"owner"})
        plans = [entity.plan for entity in self.whole.checked.entities if entity.name in DIRECT]
        self.entities = [entity for entity in self.whole.checked.entities if entity.name in DIRECT]
        self.tables = {plan.table.name: WrittenTable(plan.table, ("id",)) for plan in plans}
        self.inverse: Inverse = compile_inverse(self.whole.checked.mapping, plans)
        assert all(table.invertible for table in self.inverse.tables), self.inverse.tables
        self._populate()
        begin(self.table.stream, self.shards)
        self.world.mapping = self.relayed

    def _populate(self) -> None:
        """As it is when pets go direct: every row has its items, and no mark waits."""
        rng, tables = self.schedule.random, self.world.database.tables
        tables["owner"] |= {key: {"id": key, "name": "ann"} for key in OWNERS}
        for key in PETS:
            if rng.random() < 0.7:
                pet = {"id": key, "owner_id": rng.choice(OWNERS), "age": 0}
                tables["pet"][key], self.truth[key] = pet, pet
        for name, rows in (("owner", OWNERS), ("pet", self.truth)):
            self.world.refresh(no_fence)({(name, f"[{key}]"): [] for key in rows})

    @property
    def relayed(self) -> Compiled:
        """What relays make items of, as the journal says that entities are direct."""
        return apart(self.whole, self.direct)

    # ── services ──

    def direct_service(self, pets: tuple[int, ...], times: int) -> None:
        """Writes pets to the table: made, changed, given to another owner, deleted."""
        rng = self.schedule.random
        self.writing += 1
        try:
            for _ in range(times):
                self.schedule.step()
                self.write_directly(rng.choice(pets))
        finally:
            self.writing -= 1

    def write_directly(self, key: int) -> None:
        rng, before = self.schedule.random, self.truth.get(key)
        old = None if before is None else (f"OWNER#{before['owner_id']}", f"PET#{key}")
        if before is not None and rng.random() < 0.2:
            self.table.transact([], [old] if old else [])
            del self.truth[key]
            return
        pet = {"id": key, "owner_id": rng.choice(OWNERS), "age": rng.randrange(100)}
        item: Item = {"PK": f"OWNER#{pet['owner_id']}", "SK": f"PET#{key}", "T": "Pet", **pet}
        there = None if old is None else self.table.items.get(old)
        if there is not None and rng.random() < 0.5:
            item = {**there, **item}  # as UpdateItem, or a copy to another key, leaves it
        self.table.transact([item], [old] if old and old != self.table.design.key_of(item) else [])
        self.truth[key] = pet

    def sql_service(self, times: int) -> None:
        """Writes owners; and pets, where rows are their truth."""
        rng = self.schedule.random
        for _ in range(times):
            self.schedule.step()
            work = Transaction(self.world.database)
            pets: dict[int, dict[str, int] | None] = {}
            try:
                if self.is_back and rng.random() < 0.7:
                    key = rng.choice(PETS)
                    pet = {"id": key, "owner_id": rng.choice(OWNERS), "age": rng.randrange(100, 200)}
                    pets[key] = None if rng.random() < 0.2 else pet
                    work.write("pet", key, pets[key])
                else:
                    owner = rng.choice(OWNERS)
                    work.write("owner", owner, {"id": owner, "name": rng.choice(("ann", "bob"))})
                self.schedule.step()
                work.commit()
                self._committed(pets)
            except RolledBack:
                continue
            finally:
                work.release()

    def _committed(self, pets: dict[int, dict[str, int] | None]) -> None:
        for key, pet in pets.items():
            self.truth.pop(key, None)
            self.truth |= {} if pet is None else {key: pet}

    # ── relays ──

    def relays(self, times: int) -> None:
        self.writing += 1
        try:
            for _ in range(times):
                self.schedule.step()
                self.relay().once()
        except StoppedError:
            return
        finally:
            self.writing -= 1

    def relay(self) -> Relay:
        world, mapping = self.world, self.world.mapping
        options = RelayOptions(marks=3, roots=2, lease_s=20.0, ahead_after=0)
        reader = Reader(world.database)
        edges = (world.database, reader, world.refresh(no_fence), world.open_findings)
        return Relay(*edges, mapping.captured, mapping.image_keys, options)

    # ── reverse ──

    def reverse(self, turns: int) -> None:
        """One process; it goes on with other entities where the journal says so."""
        begun_at, stop = self.schedule.now_s, Turns(turns)
        while stop.left > 0 and self.remembered.stopped_at() <= begun_at:
            direct = self.direct
            try:
                self.daemon(direct, stop, begun_at, once=False)[0].run()
            except DirectChangedError:
                continue
            except StoppedError:
                return

    def daemon(
        self, direct: frozenset[str], stop: Any, begun_at: float, *, once: bool
    ) -> tuple[ReverseDaemon, WhileDirect]:
        def stepping(edge: Any) -> Any:
            return Stepping(edge, self.schedule)

        inverse = self.inverse if direct else replace(self.inverse, designs=())
        made = partial(items_by_row, Reader(self.world.database).read_rows, self.entities)
        edges = (self.table.get, self.writer, stepping(self.remembered), made)
        stage = self.reverse_of(inverse, self.tables if direct else {}, *edges, SETTLE_S)
        work = self.work_of(stage, direct)
        reader = StreamReader(
            stepping(self.table.stream),
            stepping(self.shards),
            work,
            owner=f"r{self.schedule.steps}.{id(stage)}",
            lease_s=LEASE_S,
            clock=self.schedule.clock,
        )
        return ReverseDaemon(reader, work, self.shards, stop, once, self.wait, begun_at, None), work

    def work_of(self, stage: Reverse, direct: frozenset[str]) -> WhileDirect:
        return WhileDirect(stage, direct, lambda: self.direct)

    # ── the way back ──

    def going_back(self) -> None:
        """Once the services that wrote the table have ended, and the relays."""
        while self.writing:
            self.schedule.step()
        steps = self.steps()
        steps.run()
        self.is_back = True

    def steps(self) -> GoingBack:
        before = (self.drain, self.compared, lambda: None)
        return GoingBack(False, no_fence, *before, self.capture, self.own, self.look, self.keep)

    def end_others(self) -> None:
        self.remembered.ask_to_stop()
        while status_of(self.shards, self.remembered).processes:
            self.wait(1.0)

    def drain(self) -> ReverseStatus:
        """Processes that are begun anew meanwhile are no reason to refuse here: they must do no harm."""
        self.end_others()
        begun_at = self.remembered.now()
        if self.direct:
            daemon, _ = self.daemon(self.direct, Event(), begun_at, once=True)
            daemon.run()
        return replace(status_of(self.shards, self.remembered), processes=0)

    def look(self) -> None:
        if self.direct:
            daemon, work = self.daemon(self.direct, Event(), self.remembered.now(), once=True)
            daemon.reader.work = quiet(work, self.table.design, {"Pet"}, "")
            daemon.run()

    def compared(self) -> RowsVerified:
        is_clean = self.pets_of_items() == self.world.database.tables["pet"]
        return RowsVerified({}, 0, {} if is_clean else {("pet", "different"): 1}, ())

    def capture(self) -> None:
        self.schedule.step()
        self.writer.captured.add("pet")

    def own(self) -> int:
        world = self.world
        edges = (Reader(world.database).read_page, self.table.get, self.table.own)
        owned = Owning(world.refresh(no_fence), *edges, [self.whole.together["pet"]]).run()
        self.schedule.step()
        return owned

    def keep(self) -> None:
        self.direct = frozenset()
        self.world.mapping = self.relayed
        self.schedule.step()

    # ── time ──

    def wait(self, wait_s: float) -> None:
        self.schedule.step()
        self.schedule.now_s += wait_s

    def time(self, times: int) -> None:
        for _ in range(times):
            self.wait(self.schedule.random.choice((0.1, 1.0, 5.0, 30.0)))
            if self.schedule.chance(0.2):
                self.table.stream.split()

    # ── what must hold at rest ──

    def pets_of_items(self) -> dict[int, dict[str, Any]]:
        items = (item for item in self.table.live().values() if item["T"] == "Pet")
        return {
            int(str(item["id"])): {name: item[name] for name in ("id", "owner_id", "age")} for item in items
        }

    def differences(self) -> Iterator[str]:
        rows, items = self.world.database.tables["pet"], self.pets_of_items()
        if self.writer.absent:
            yield f"rows that went while an item held them: {self.writer.absent}"
        if items != self.truth:
            yield f"items {items} instead of {self.truth}"
        if rows != self.truth:
            yield f"rows {rows} instead of {self.truth}"
        if self.remembered.waits:
            yield f"rows that wait: {self.remembered.waits}"
        if self.is_back:
            yield from self.world.differences()


def lived(seed: int, life_of: Callable[[Scheduler], Life] = Life) -> Life:
    """A life at rest: pets written directly, then, of two in three, the way back and pets written to SQL."""
    schedule = Scheduler(seed)
    life, rng = life_of(schedule), schedule.random
    crash_share = rng.choice((0.0, 0.01, 0.03))
    for pets in (PETS[:2], PETS[2:]):
        schedule.start(partial(life.direct_service, pets, rng.randrange(3, 9)))
    schedule.start(partial(life.sql_service, 3))
    for _ in range(2):
        schedule.start(partial(life.relays, 3))
        schedule.start(partial(life.reverse, rng.randrange(2, 12)))
    schedule.start(partial(life.time, 8))
    goes_back = rng.random() < 0.67
    schedule.run(crash_share=crash_share, limit=rng.randrange(50, 600) if goes_back else 20_000)
    if goes_back:
        _go_back(life, crash_share)
    _come_to_rest(life)
    return life


def _go_back(life: Life, crash_share: float) -> None:
    """The command is given until it has ended; processes of reverse that began before may still be there."""
    schedule = life.schedule
    tries = 0
    while not life.is_back:
        schedule.start(life.going_back)
        schedule.start(partial(life.time, 4))
        # What crashed is begun anew, and waits.
        schedule.run(crash_share=crash_share if tries < 3 else 0.0, limit=19_000)
        tries += 1
        assert tries < 9, "the way back never comes to its end"
    for _ in range(2):
        schedule.start(partial(life.sql_service, 5))
        schedule.start(partial(life.relays, 3))
    schedule.start(partial(life.reverse, 4))
    schedule.start(partial(life.time, 6))
    schedule.run(crash_share=crash_share)


def _come_to_rest(life: Life) -> None:
    schedule, world = life.schedule, life.world
    world.database.locks.clear()
    schedule.now_s += 1000.0
    for _ in range(100):
        if not world.database.marks:
            break
        schedule.now_s += 100.0
        life.relay().once()
    if life.direct:
        daemon, _ = life.daemon(life.direct, Event(), schedule.now_s, once=True)
        daemon.run()


def diverging(
    first: int, count: int, life_of: Callable[[Scheduler], Life] = Life
) -> Iterator[tuple[int, str]]:
    """Seeds whose lives do not end as they must, each with why."""
    for seed in range(first, first + count):
        try:
            found = next(iter(lived(seed, life_of).differences()), "")
        except (AssertionError, MigratorError) as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            yield seed, found
