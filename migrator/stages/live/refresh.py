"""Refresh: writes the items of root rows under a ticket, concurrently with other writers."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from migrator.mapping.items.encoder import encoded_of
from migrator.mapping.model.edges import Control, ObjectStore, RootFinder
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import ConditionalStore, KeyRequest, Memory, Outcome, Root, Tickets
from migrator.mapping.model.results import Refreshed
from migrator.mapping.model.table import (
    TOMBSTONE,
    EncodedItem,
    Item,
    ItemKey,
    SourceKey,
    TableDesign,
    item_key_text,
    source_text,
    split_source,
)
from migrator.runtime.errors import SettingsError, StoppedError, amount
from migrator.stages.live.send import LiveEntity, Round, refuse_unwritten, send, sorted_out

# ──
# Refresh: makes the items of root rows what the rows say now. The one way to write concurrently with other writers.

RootKeys: TypeAlias = Mapping[Root, Collection[ItemKey]]
"""Roots to be refreshed, each with item keys that it had; keys that it no longer has become tombstones."""

ROUNDS = 20
"""Rounds after which roots with keys that still move between them are left to a later attempt."""
TOMBSTONE_DAYS = 7


def behind(ticket: int, known_ticket: int) -> str:
    what = f"the source's ticket counter stands at {ticket}, and items were written with {known_ticket}"
    why = "the source was restored to an older state, or capture was uninstalled and installed again"
    return f"{what}: {why}; run `migrator recover JOB source-restored`"


def refuse_behind(tickets: Tickets, known_tickets: Sequence[int]) -> None:
    """`known_tickets`: those of written items. Raises: RestoredError if the source went back (rule 8)."""
    counter = tickets.highest()
    if counter < max(known_tickets, default=0):
        raise RestoredError(behind(counter, max(known_tickets)))


class RestoredError(SettingsError):
    """The source's counter has gone back; no writer may write until its epoch is raised."""


class UnsettledError(StoppedError):
    """Rows changed hands too fast to follow; a retry succeeds."""


@dataclass
class Refresh:
    """Rules 2, 3, 4 and 7 of docs/protocol.md. `check`: raises when its worker must stop writing."""

    rows: RootFinder
    store: ConditionalStore
    tickets: Tickets
    memory: Memory
    control: Control
    entities: Mapping[str, LiveEntity]
    table: TableDesign
    revision: str
    check: Callable[[], None]
    clock: Callable[[], float] = time.time
    objects: ObjectStore | None = None

    def __call__(self, root_keys: RootKeys, inserted: Collection[Root] = ()) -> Refreshed:
        """Refresh the roots, and the roots that own a key that one of them wants.

        `inserted`: roots of probably new rows, whose items are first tried as inserts.
        Raises: UnsettledError, UnwrittenError, or the error of an edge that gave up. Any part may be written
        then, and the same roots must be refreshed again.
        """
        work = _Refreshing(self, frozenset(inserted))
        left: dict[Root, set[ItemKey]] = {root: set(keys) for root, keys in root_keys.items()}
        for _ in range(ROUNDS):
            if not left:
                return work.done()
            left = work.round(left)
        if left:
            raise UnsettledError(f"{amount(len(left), 'row')} changed faster than they could be followed")
        return work.done()

    def draw(self) -> int:
        """Draw a ticket, known to journal and table before anything is written with it (rule 8).

        Raises: RestoredError if the source's counter has gone back.
        """
        # Asked first: a ticket that another writer draws after this one may be recorded before it. And a writer that
        # must not write draws nothing: each draw brings a restored counter nearer to the value at which it passes for
        # sound.
        known_ticket = self.memory.highest()
        counter = self.tickets.highest()
        if counter < known_ticket:
            raise RestoredError(behind(counter, known_ticket))
        ticket = self.tickets.draw()
        if ticket <= known_ticket:
            raise RestoredError(behind(ticket, known_ticket))
        self.memory.reached(ticket)
        # The journal may have gone back with the source; the table has not. No two draw the same number.
        other = self.control.raise_control(ticket)
        if other == ticket:
            self.memory.reached(other + 1)
            raise RestoredError(behind(ticket - 1, other))
        self._refuse_above(other)
        return ticket

    def refuse_newer(self, outcomes: Iterable[Outcome], ticket: int) -> None:
        """Raises: RestoredError if a write with `ticket` met one that the source's counter has not reached."""
        # Foreign items have no ticket.
        refused = (
            outcome.ticket for outcome in outcomes if outcome.verdict in ("newer", "tombstoned_by_other")
        )
        self._refuse_above(max((there for there in refused if there > ticket), default=0))

    def _refuse_above(self, ticket: int) -> None:
        """Raises: RestoredError if the table has a ticket above the source's counter, which has then gone back.

        The journal records this, so that no writer sharing it draws tickets.
        """
        counter = self.tickets.highest() if ticket else 0
        if counter < ticket:
            self.memory.reached(ticket)
            raise RestoredError(behind(counter, ticket))

    @property
    def together(self) -> Mapping[str, frozenset[str]]:
        return {name: entity.together for name, entity in self.entities.items() if entity.together}

    def tombstone(self, root: Root, key: ItemKey, ticket: int) -> EncodedItem:
        item: Item = {part.name: value for part, value in zip(self.table.key, key, strict=True)}
        item[self.table.type_attribute] = TOMBSTONE
        item[self.table.source_attribute] = source_text(*root)
        item[self.table.ticket_attribute] = ticket
        item[self.table.revision_attribute] = self.revision
        if self.table.ttl is not None:
            item[self.table.ttl] = int(self.clock()) + TOMBSTONE_DAYS * 86_400
        return encoded_of(item, self.table)


@dataclass
class _Refreshing:
    stage: Refresh
    inserted: frozenset[Root]
    result: Refreshed = field(default_factory=Refreshed)
    contested: set[tuple[Root, ItemKey]] = field(default_factory=set)
    """Key requests that the memory knew before the round began, so that its reading is later than they are."""
    answered: set[tuple[Root, ItemKey, bool, Root]] = field(default_factory=set)
    """Roots that want a key (True), or gave it up (False), and the other root that has it by its row, as read at that
    time. It is not read again: of two that have keys of one root, read in turns, each would be missing in the other's."""
    apart: set[tuple[Root, ItemKey]] = field(default_factory=set)
    """Keys that stay out of their root's transaction, which they would keep from ever coming about."""

    def round(self, root_keys: Mapping[Root, set[ItemKey]]) -> dict[Root, set[ItemKey]]:
        refresh_round = self._read(self.stage.draw(), root_keys)
        again: dict[Root, set[ItemKey]] = defaultdict(set)
        for root in self._remember(refresh_round):
            again[root] |= root_keys[root]
        self._write(refresh_round)
        for outcome in refresh_round.written:
            self._follow(refresh_round, outcome, again)
        self._ask_requesters(refresh_round, again)
        self._settle(refresh_round, again)
        return {root: keys | root_keys.get(root, set()) for root, keys in again.items()}

    def done(self) -> Refreshed:
        result = self.result
        result.findings = [*result.refused, *collision_findings(result), *result.apart]
        return result

    # ── reading ──

    def _forget(self, roots: Collection[Root], ticket: int) -> None:
        result = self.result
        result.refused = [
            finding for finding in result.refused if (finding.entity, finding.source_key) not in roots
        ]
        result.apart = {
            finding: None for finding in result.apart if (finding.entity, finding.source_key) not in roots
        }
        result.tickets |= dict.fromkeys(roots, ticket)

    def _read(self, ticket: int, root_keys: Mapping[Root, set[ItemKey]]) -> Round:
        by_entity: dict[str, list[SourceKey]] = defaultdict(list)
        for name, key in root_keys:
            by_entity[name].append(key)
        refresh_round = Round(
            ticket, {root: set(keys) for root, keys in root_keys.items()}, {root: {} for root in root_keys}
        )
        self._forget(root_keys.keys(), ticket)
        stage = self.stage
        for name, keys in by_entity.items():
            encoder = stage.entities[name].encoder
            pages = stage.rows.read_raw_rows(encoder.entity.plan, encoder.raw, keys)
            self.result.refused += refresh_round.read(encoder, pages, stage.clock(), stage.objects)
        self.result.roots += len(root_keys)
        return refresh_round

    def _remember(self, refresh_round: Round) -> list[Root]:
        """Add the keys intended before; return the roots another writer has read later, which are not written."""
        entities, states = self.stage.entities, refresh_round.states
        intended = {root: list(items) for root, items in states.items() if entities[root[0]].remembered}
        behind = []
        for root, before in (
            self.stage.memory.remember(refresh_round.ticket, intended).items() if intended else ()
        ):
            if before.ticket > refresh_round.ticket:
                behind.append(root)
                del refresh_round.states[root]
            else:
                refresh_round.recalled[root] = before.keys
        return behind

    # ── writing ──

    def _write(self, refresh_round: Round) -> None:
        stage = self.stage
        tombstones = [stage.tombstone(root, key, refresh_round.ticket) for root, key in refresh_round.stale()]
        live = (item for items in refresh_round.states.values() for item in items.values())
        sending = sorted_out([*tombstones, *live], stage.together, self.apart)
        inserted, self.inserted = {source_text(*root) for root in self.inserted}, frozenset()
        outcomes = send(stage.store, sending, stage.check, fresh=inserted)
        self.result.apart |= dict.fromkeys(sending.findings())
        refresh_round.written = outcomes
        refuse_unwritten(outcomes)
        stage.refuse_newer(outcomes, refresh_round.ticket)
        refresh_round.rolled_back |= {
            (outcome.item.root, outcome.item.key) for outcome in outcomes if outcome.verdict == "rolled_back"
        }

    # ── result ──

    def _follow(self, refresh_round: Round, outcome: Outcome, again: dict[Root, set[ItemKey]]) -> None:
        item, result = outcome.item, self.result
        if outcome.verdict == "stored":
            result.buried += item.is_tombstone
            result.stored += not item.is_tombstone
        elif outcome.verdict == "newer":
            result.newer += 1
        elif outcome.verdict in ("tombstoned_by_other", "rolled_back"):
            again[item.root] |= set()
        elif outcome.verdict == "owned_by_other":
            self._ask(refresh_round, outcome, again)

    def _ask(self, refresh_round: Round, outcome: Outcome, again: dict[Root, set[ItemKey]]) -> None:
        """Have the key's owner read again, then the root that wants it, unless that was just done."""
        root, key, is_put = outcome.item.root, outcome.item.key, not outcome.item.is_tombstone
        request, owner = (root, key), self._root_of(outcome.owner)
        has_key = owner is not None and key in refresh_round.states.get(owner, {})
        # Some keys stay out of transactions, which would wait forever for each other, or for another row's key.
        if not is_put:
            # No item of this root has the key, so no reader can see that its tombstone comes later.
            self.apart.add(request)
        elif owner is not None and not has_key and (owner, key) in refresh_round.rolled_back:
            # The owner gives up the key, and its own transaction waits for a key, perhaps for one of this
            # root.
            self.apart.add((owner, key))
        if (
            owner is not None
            and owner in refresh_round.had_keys
            and (not is_put or request in self.contested)
        ):
            # Read after the key request was written: a later change of the owner finds it.
            (self.answered.add if has_key else self.answered.discard)((root, key, is_put, owner))
        is_settled = owner is None or (root, key, is_put, owner) in self.answered
        if is_put and (is_settled or request not in self.contested):
            self.stage.memory.request_keys([KeyRequest(key, root)], refresh_round.ticket)
        if owner is None or is_settled:
            self.apart.add(request)
            if is_put:
                self.result.collisions.add(KeyRequest(key, root))
            return
        if is_put:
            self.contested.add(request)
        again[root] |= {key}
        again[owner] |= {key}

    def _ask_requesters(self, refresh_round: Round, again: dict[Root, set[ItemKey]]) -> None:
        """Read rows again that requested a key now given up; withdraw requests that are met or stale."""
        keys = list(dict.fromkeys(outcome.item.key for outcome in refresh_round.written))
        requests = self.stage.memory.requests_of(keys) if keys else ()
        stored = (
            {
                (outcome.item.root, outcome.item.key, not outcome.item.is_tombstone)
                for outcome in refresh_round.written
                if outcome.verdict == "stored"
            }
            if requests
            else ()
        )
        withdrawn = []
        for request in requests:
            items = refresh_round.states.get(request.root)
            if request.root[0] not in self.stage.entities:
                # Of an older mapping (rule 9): no row of this one wants the key.
                withdrawn.append(request)
            elif items is not None and (
                request.key not in items or (request.root, request.key, True) in stored
            ):
                withdrawn.append(request)
            elif any(key == request.key and not put and root != request.root for root, key, put in stored):
                again[request.root] |= {request.key}
        if withdrawn:
            # Not a request that a later read of the row has made meanwhile.
            self.stage.memory.withdraw(withdrawn, refresh_round.ticket)
            self.result.collisions -= set(withdrawn)
            # A row that wants the key once more requests it again before its owner is read: a later change of
            # the owner finds the request only so.
            gone = {(request.root, request.key) for request in withdrawn}
            self.contested -= gone
            self.answered = {answer for answer in self.answered if answer[:2] not in gone}

    def _settle(self, refresh_round: Round, again: Mapping[Root, set[ItemKey]]) -> None:
        states = refresh_round.states
        # Mostly every remembered key is current: then there is nothing to write.
        done = {
            root: list(states[root])
            for root, keys in refresh_round.recalled.items()
            if root not in again and not keys <= states[root].keys()
        }
        if done:
            self.stage.memory.settle(refresh_round.ticket, done)

    def _root_of(self, text: str) -> Root | None:
        try:
            root = split_source(text)
        except ValueError:
            return None
        return root if root[0] in self.stage.entities else None


def collision_findings(refreshed: Refreshed) -> list[Finding]:
    return [
        _collision(request)
        for request in sorted(refreshed.collisions, key=lambda request: source_text(*request.root))
    ]


def _collision(request: KeyRequest) -> Finding:
    entity, key = request.root
    owner = "another row makes the same key and has it, or an item that is not of this job"
    reason = f"{owner}; the one that gives it up leaves it to the other"
    return Finding("collision", entity, reason, key, item_key_text(request.key))
