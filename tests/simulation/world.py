"""One schedule: a small service, its database, a table, relays and backfills around the protocol's own code."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from migrator.mapping.check.check import Checked
from migrator.mapping.heart.changes import captured_tables, needs_memory
from migrator.mapping.heart.encoder import Encoder
from migrator.mapping.heart.items import CompiledEntity, project
from migrator.mapping.heart.rows import Row
from migrator.mapping.reach import ImageKeys, compile_image_keys, no_keys
from migrator.model.facts import Captured
from migrator.model.instances import Lifetimes
from migrator.model.live import KeyRequest, Root
from migrator.model.table import Item, ItemKey, encode_key
from migrator.stages.adoption import Adoption
from migrator.stages.backfill.encoded import EncodedPath, encoded_where_possible, put_alone
from migrator.stages.backfill.inserts import Inserting, inserts_where_possible
from migrator.stages.backfill.write import Claims, ConditionalPath, FastPath, PagePath
from migrator.stages.live import relay as live_relay
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import Relay, RelayOptions
from migrator.stages.live.rounds import LiveEntity, encoders_of
from migrator.stages.ownership import Keeping, OnRecord
from tests.fakes.journal import FakeOpenFindings, FakeRevisions
from tests.fakes.phases import FakePhases
from tests.golden.heart import check, facts, table
from tests.simulation.database import Database, Reader, Transaction
from tests.simulation.journal import ClaimBook, Identity, Memory, Writers
from tests.simulation.scheduler import Scheduler
from tests.simulation.table import REQUEST_LIFE_S, FastStore, Table
from tests.support_fence import no_fence

HEAD = """
mapping: 1
table: {name: Sim, key: [PK, SK], type: T, ttl: expiresAt}
"""
MAPPING = """
entities:
  owner:
    collect: {pets: {count: all, of: pet, by: owner_id}}
    items:
      Owner:
        key: ["OWNER#{id}", OWNER]
        attributes: {name: name, pets: pets}
      Name:
        key: ["NAME#{name}", NAME]
        when: name
        attributes: {owner: id}
      Card:
        key: ["OWNER#{id}", "CARD#{name|or:none}"]
        attributes: {name: name, pets: pets}
  pet:
    join: {owner: owner_id}
    items:
      Pet:
        key: ["OWNER#{owner_id}", "PET#{id}"]
        attributes: {ownerName: owner.name, age: age}
      Named:                                   # its key is the row's own, and another row says whether it is there
        key: ["NAMED#{id}", PET]
        when: owner.name
  tag:
    table: pet
    join: {owner: owner_id}
    items:
      Tag:
        key: ["TAG#{owner.name}", "PET#{id}"]
        when: owner.name
        attributes: {age: age}
access_patterns:
  owner_and_card:
    params: {id: integer}
    query: {key: ["OWNER#{id}"]}
    returns: {owner: {type: Owner, attributes: [name, pets]}, card: {type: Card, attributes: [name, pets]}}
    atomic: true
    sql: {owner: SELECT 1, card: SELECT 1}
  by_name:                                     # its key moves from owner to owner
    params: {name: text}
    get: {key: ["NAME#{name}", NAME]}
    returns: [owner]
    atomic: true
    sql: SELECT 1
"""
SCHEMA = facts(
    table("owner", {"id": "integer!", "name": "text"}),
    table(
        "pet",
        {"id": "integer!", "owner_id": "integer!", "age": "integer"},
        references={"owner_id": "owner.id"},
    ),
)
LIFETIMES = Lifetimes(request_s=REQUEST_LIFE_S, silent_s=30.0)


@functools.cache
def checked() -> Checked:
    return check(MAPPING, SCHEMA, HEAD)


@functools.cache
def captured() -> dict[str, Captured]:
    return captured_tables([entity.plan for entity in checked().entities])


_ENCODERS: dict[frozenset[str], Mapping[str, Encoder]] = {}
"""By the entities that are remembered: schedules are many, and their mapping is one."""
_INSERTING: dict[frozenset[int], Mapping[str, Encoder]] = {}
"""The same of conditional pages, by the entities that have one; those live as long as the process."""


@functools.cache
def live_entities() -> dict[str, LiveEntity]:
    return live_relay.live_entities(checked().mapping, [kept_once(entity) for entity in checked().entities])


def kept_once(entity: CompiledEntity) -> CompiledEntity:
    """The same entity, each different row decoded and made an item once: it is pure, and schedules have few rows."""
    return replace(
        entity,
        decode=lru_cache(None)(entity.decode),
        makers=tuple(_made_once(make) for make in entity.makers),
    )


def _made_once(make: Callable[[Row, str], Item | None]) -> Callable[[Row, str], Item | None]:
    made: dict[int, Item | None] = {}

    def maker(row: Row, source: str) -> Item | None:
        row_id = id(row)  # decoded once, and kept
        if row_id not in made:
            made[row_id] = make(row, source)
        item = made[row_id]
        return None if item is None else dict(item)

    return maker


@functools.cache
def apart_entities() -> dict[str, LiveEntity]:
    """As if no pattern were atomic."""
    none: frozenset[str] = frozenset()
    return {
        name: replace(entity, remembered=needs_memory(entity.compiled.plan), together=none)
        for name, entity in live_entities().items()
    }


@functools.cache
def live_encoders(*, atomic: bool) -> Mapping[str, Encoder]:
    """Of the entities whose items relays make as JSON at once."""
    entities = live_entities() if atomic else apart_entities()
    made = encoders_of(Reader(Database(Scheduler(0), captured())), entities)
    assert "pet" in made
    return made


@functools.cache
def image_keys() -> dict[str, ImageKeys]:
    mapping = checked().mapping
    return {
        name: no_keys
        if needs_memory(entity.compiled.plan)
        else _keys_once(compile_image_keys(mapping, entity.compiled.plan))
        for name, entity in live_entities().items()
    }


def _keys_once(keys: ImageKeys) -> ImageKeys:
    cached: dict[tuple[object, ...], frozenset[ItemKey]] = {}

    def of(image: Mapping[str, object]) -> frozenset[ItemKey]:
        shown = tuple(image.items())
        if shown not in cached:
            cached[shown] = frozenset(keys(dict(image)))
        return cached[shown]

    return of


@dataclass(frozen=True)
class Parts:
    """What a world is made of; a test that breaks a rule puts a broken part in. `atomic`: None where the seed says it."""

    database: type[Database] = Database
    table: type[Table] = Table
    memory: type[Memory] = Memory
    writers: type[Writers] = Writers
    atomic: bool | None = None


@dataclass
class World:
    """All that there is in a schedule. `atomic`: whether an owner's items are written together."""

    schedule: Scheduler
    unique: bool = True
    faults: float = 0.1
    atomic: bool = False
    parts: Parts = Parts()
    database: Database = field(init=False)
    table: Table = field(init=False)
    memory: Memory = field(init=False)
    writers: Writers = field(init=False)
    claims: Claims = field(init=False)
    identity: Identity = field(default_factory=Identity)
    revisions: FakeRevisions = field(default_factory=FakeRevisions)

    def __post_init__(self) -> None:
        self.database = self.parts.database(self.schedule, captured(), self.unique)
        self.table = self.parts.table(self.schedule, checked().mapping.table, self.faults)
        self.table.sending = self.database.has_read
        self.begin_journal()

    def begin_journal(self) -> None:
        """Begins with an empty journal."""
        self.memory = self.parts.memory(self.schedule)
        self.open_findings = FakeOpenFindings()
        self.writers = self.parts.writers(self.schedule)
        book, entities = ClaimBook(self.schedule), {entity.name: entity for entity in checked().entities}
        unproved = checked().unproved
        self.claims = Claims(book, Reader(self.database), entities, unproved, "Sim", memory=self.memory)

    @property
    def entities(self) -> dict[str, LiveEntity]:
        return live_entities() if self.atomic else apart_entities()

    @property
    def encoders(self) -> Mapping[str, Encoder]:
        return live_encoders(atomic=self.atomic)

    @property
    def revision(self) -> str:
        return checked().mapping.revision

    def refresh(self, check: Callable[[], None], transaction: Transaction | None = None) -> Refresh:
        return Refresh(
            rows=Reader(self.database, transaction),
            store=self.table,
            tickets=self.database,
            memory=self.memory,
            control=self.table,
            entities=self.entities,
            table=checked().mapping.table,
            revision=self.revision,
            check=check,
            clock=self.schedule.clock,
        )

    def on_record(self) -> OnRecord:
        return OnRecord(self.identity.id)

    def keeping(self) -> Keeping:
        return Keeping(
            job="sim",
            table="Sim",
            table_id=self.table.table_id,
            tickets=self.database,
            memory=self.memory,
            control=self.table,
            identity=self.identity,
            on_record=self.on_record,
            is_empty=lambda: not self.table.items,
        )

    def adoption(self) -> Adoption:
        return Adoption(
            job="sim",
            table_id=self.table.table_id,
            design=checked().mapping.table,
            remembered=frozenset(name for name, entity in self.entities.items() if entity.remembered),
            pages=lambda: [list(self.table.items.values())],
            memory=self.memory,
            writers=self.writers,
            control=self.table,
            identity=self.identity,
            phases=FakePhases(self.schedule.clock),
            on_record=self.on_record,
            keep_direct=lambda entities: None,
        )

    def relay(self, refresh: Refresh | None = None, most_marks: int = 4) -> Relay:
        marks = 1 + self.schedule.random.randrange(most_marks)
        options = RelayOptions(marks=marks, roots=2, lease_s=20.0)
        refresh = refresh or self.refresh(no_fence)
        if marks % 2:
            # Both ways beside each other.
            refresh.encoders = self.encoders
        return Relay(
            self.database,
            Reader(self.database),
            refresh,
            self.open_findings,
            captured(),
            image_keys(),
            options,
        )

    def fast_path(self, check: Callable[[], None]) -> PagePath:
        remembered = frozenset(name for name, entity in self.entities.items() if entity.remembered)
        store = FastStore(self.table, check)
        path = FastPath(store, self.claims, self.schedule.clock, check, None, self.memory, remembered)
        if remembered not in _ENCODERS:
            made = encoded_where_possible(path, [entity.compiled for entity in self.entities.values()])
            assert isinstance(made, EncodedPath)
            _ENCODERS[remembered] = made.encoders
        return EncodedPath(path, _ENCODERS[remembered], partial(put_alone, path, store))

    def inserting(self, path: ConditionalPath) -> PagePath:
        """The conditional path by encoders, which are made once for the same entities."""
        entities = path.refresh.entities.values()
        plain = frozenset(id(one.compiled) for one in entities if not one.remembered and not one.together)
        if plain not in _INSERTING:
            made = inserts_where_possible(path)
            assert isinstance(made, EncodedPath)
            _INSERTING[plain] = made.encoders
        return EncodedPath(path, _INSERTING[plain], Inserting(path, path.refresh.store))

    # ── what must hold at rest ──

    def wanted(self) -> dict[ItemKey, dict[Root, Item]]:
        """Per key, each root that has it by its row, and the item that it makes of it."""
        claims: dict[ItemKey, dict[Root, Item]] = defaultdict(dict)
        view = Transaction(self.database)
        reader = Reader(self.database, sees_all=True)
        for name, live in live_entities().items():
            plan = live.compiled.plan
            for key, _ in view.rows(plan.table.real):
                tree = reader._tree(view, plan, key)
                assert tree is not None
                for item in project(live.compiled, [tree], 0.0).items:
                    claims[self.table.design.key_of(item)][(name, encode_key([key]))] = item
        return claims

    def differences(self) -> list[str]:
        """Every way in which the live items and the known collisions differ from what the rows make."""
        wanted, live = self.wanted(), self.table.live()
        differences = [f"missing: {key}" for key in wanted if key not in live]
        differences += [f"stale: {key} of {item['_src']}" for key, item in live.items() if key not in wanted]
        for key, claims in wanted.items():
            if key not in live:
                continue
            holder = [root for root, item in claims.items() if _same(item, live[key])]
            if not holder:
                differences.append(f"different: {key}: {live[key]} instead of {claims}")
            requesting = {request.root for request in self.memory.requests if request.key == key}
            if len(claims) > 1 and requesting | set(holder[:1]) != set(claims):
                differences.append(f"collision: {key}: {sorted(claims)}, known of {sorted(requesting)}")
            if len(claims) == 1 and requesting:
                differences.append(f"no collision: {key}, and yet wanted by {requesting}")
        return differences + [f"no collision: {request}" for request in self._idle_requests(wanted)]

    def _idle_requests(self, wanted: Mapping[ItemKey, Mapping[Root, Item]]) -> list[KeyRequest]:
        return [
            request for request in self.memory.requests if request.root not in wanted.get(request.key, {})
        ]


def _same(first: Item, second: Item) -> bool:
    return first.keys() | {"_tk"} == second.keys() and all(
        second[name] == first[name] for name in first if name != "_tk"
    )
