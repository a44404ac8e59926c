"""One schedule: a small service, its database, a table, relays and backfills around the protocol's own code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from migrator.mapping.items.items import project
from migrator.mapping.model.instances import Lifetimes
from migrator.mapping.model.live import KeyRequest, Root
from migrator.mapping.model.table import Item, ItemKey, encode_key
from migrator.stages.backfill.write import Claims, FastPath, PagePath
from migrator.stages.core.ownership import Keeping, OnRecord
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import Relay, RelayOptions
from migrator.stages.live.send import LiveEntity
from migrator.stages.session.adoption import Adoption
from tests.fakes.journal import FakeOpenFindings, FakeRevisions
from tests.fakes.phases import FakePhases
from tests.simulation.database import Database, Reader, Transaction
from tests.simulation.journal import ClaimBook, Identity, Memory, Writers
from tests.simulation.mappings import Compiled, compiled
from tests.simulation.scheduler import Scheduler
from tests.simulation.table import REQUEST_LIFE_S, FastStore, Table
from tests.support_fence import no_fence

LIFETIMES = Lifetimes(request_s=REQUEST_LIFE_S, silent_s=30.0)


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
    """All that there is in a schedule. `atomic`: whether an owner's items are written together.

    `unlike`: attributes that need not be what the rows make of them.
    """

    schedule: Scheduler
    unique: bool = True
    faults: float = 0.1
    atomic: bool = False
    parts: Parts = Parts()
    mapping: Compiled = field(default_factory=compiled)
    unlike: frozenset[str] = frozenset({"_tk"})
    database: Database = field(init=False)
    table: Table = field(init=False)
    memory: Memory = field(init=False)
    writers: Writers = field(init=False)
    claims: Claims = field(init=False)
    identity: Identity = field(default_factory=Identity)
    revisions: FakeRevisions = field(default_factory=FakeRevisions)

    def __post_init__(self) -> None:
        self.database = self.parts.database(self.schedule, self.mapping.captured, self.unique)
        self.table = self.parts.table(self.schedule, self.mapping.checked.mapping.table, self.faults)
        self.table.sending = self.database.has_read
        self.begin_journal()

    def begin_journal(self) -> None:
        """Begins with an empty journal."""
        self.memory = self.parts.memory(self.schedule)
        self.open_findings = FakeOpenFindings()
        self.writers = self.parts.writers(self.schedule)
        book, entities = (
            ClaimBook(self.schedule),
            {entity.name: entity for entity in self.mapping.checked.entities},
        )
        unproved = self.mapping.checked.unproved
        self.claims = Claims(book, Reader(self.database), entities, unproved, "Sim", memory=self.memory)

    @property
    def entities(self) -> Mapping[str, LiveEntity]:
        return self.mapping.entities(atomic=self.atomic)

    @property
    def revision(self) -> str:
        return self.mapping.checked.mapping.revision

    def refresh(self, check: Callable[[], None], transaction: Transaction | None = None) -> Refresh:
        return Refresh(
            rows=Reader(self.database, transaction),
            store=self.table,
            tickets=self.database,
            memory=self.memory,
            control=self.table,
            entities=self.entities,
            table=self.mapping.checked.mapping.table,
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
            design=self.mapping.checked.mapping.table,
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
        options = RelayOptions(marks=marks, roots=2, lease_s=20.0, ahead_after=0)
        refresh = refresh or self.refresh(no_fence)
        return Relay(
            self.database,
            Reader(self.database),
            refresh,
            self.open_findings,
            self.mapping.captured,
            self.mapping.image_keys,
            options,
        )

    def fast_path(self, check: Callable[[], None]) -> PagePath:
        remembered = frozenset(name for name, entity in self.entities.items() if entity.remembered)
        store = FastStore(self.table, check)
        encoders = {name: entity.encoder for name, entity in self.entities.items()}
        clock, memory = self.schedule.clock, self.memory
        return FastPath(store, self.claims, encoders, clock, check, None, memory, remembered)

    # ── what must hold at rest ──

    def wanted(self) -> dict[ItemKey, dict[Root, Item]]:
        """Per key, each root that has it by its row, and the item that it makes of it."""
        claims: dict[ItemKey, dict[Root, Item]] = defaultdict(dict)
        view = Transaction(self.database)
        reader = Reader(self.database, sees_all=True)
        for name, live in self.entities.items():
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
        differences += [
            f"stale: {key} of {item.get('_src')!s}" for key, item in live.items() if key not in wanted
        ]
        for key, claims in wanted.items():
            if key not in live:
                continue
            holder = [root for root, item in claims.items() if self._same(item, live[key])]
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

    def _same(self, first: Item, second: Item) -> bool:
        return first.keys() | {"_tk"} == second.keys() and all(
            second[name] == first[name] for name in first if name not in self.unlike
        )
