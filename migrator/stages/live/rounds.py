"""One round of a refresh: a ticket, the items of rows that were read with it (plain, or as JSON), and what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from migrator.mapping.items.encoder import Encoder, compile_encoder, encode_rows
from migrator.mapping.items.items import CompiledEntity, keys_for, project
from migrator.mapping.model.edges import ObjectStore, RawPage
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import Outcome, Root
from migrator.mapping.model.table import (
    TOMBSTONE,
    EncodedItem,
    Item,
    ItemKey,
    RowTree,
    SourceKey,
    TableDesign,
)
from migrator.runtime.errors import StoppedError
from migrator.stages.live.send import root_of

# ── What is read ──

State: TypeAlias = dict[ItemKey, Item | EncodedItem]
"""The items of a root."""


@dataclass(frozen=True)
class LiveEntity:
    """`remembered`: its keys cannot be worked out from one row, so they are remembered (rule 7). `together`: item types
    that are written in one transaction (see mapping/check/keys.py)."""

    compiled: CompiledEntity
    remembered: bool
    together: frozenset[str] = frozenset()


class RowReader(Protocol):
    """Reads root rows by key; each call begins a snapshot of its own."""

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]: ...


@runtime_checkable
class RawReader(Protocol):
    """A RowReader whose rows also come in part as text; see RawRows of mapping/model/edges.py."""

    def raw_places(self, plan: EntityPlan) -> frozenset[int]: ...

    def read_raw_rows(
        self, plan: EntityPlan, raw: frozenset[int], keys: Sequence[SourceKey]
    ) -> list[RawPage]: ...


def encoders_of(rows: RowReader, entities: Mapping[str, LiveEntity]) -> dict[str, Encoder]:
    """By entity, of those that have one."""
    made = {
        name: compile_encoder(entity.compiled, _raw_places(rows, entity.compiled))
        for name, entity in entities.items()
    }
    return {name: encoder for name, encoder in made.items() if encoder is not None}


def _raw_places(rows: RowReader, entity: CompiledEntity) -> frozenset[int]:
    """Places that can be read raw; not those of the key, by which rows are named."""
    offered = rows.raw_places(entity.plan) if isinstance(rows, RawReader) else frozenset()
    return offered - frozenset(entity.key_places)


@dataclass(slots=True)
class Written:
    """What came of one write: the root and the key of the item, and whether it is a put or a tombstone."""

    outcome: Outcome
    root: Root
    key: ItemKey
    is_put: bool


def written_of(outcome: Outcome, table: TableDesign) -> Written:
    item = outcome.item
    is_put = item[table.type_attribute] != TOMBSTONE
    return Written(outcome, root_of(item, table), table.key_of(item), is_put)


STORED = Outcome({}, "stored")
"""Of an item that nothing is asked of any more."""


class UnwrittenError(StoppedError):
    """The table took other items, and some not. `roots`: those of the latter; `items`: their keys, each with why."""

    def __init__(self, unwritten: Sequence[Written]) -> None:
        self.items = {write.key: write.outcome.why for write in unwritten}
        self.roots = frozenset(write.root for write in unwritten)
        whys = "; ".join(sorted(set(self.items.values())))
        super().__init__(f"the table does not take an item of its rows: {whys}")


def refuse_unwritten(written: Sequence[Written]) -> None:
    """Raises: UnwrittenError where an item was not taken."""
    unwritten = [write for write in written if write.outcome.verdict == "unwritten"]
    if unwritten:
        raise UnwrittenError(unwritten)


@dataclass
class Round:
    """`had_keys`: keys that each root had. `states`: the items that it has. `recalled`: keys that were intended for it
    before.

    `rolled_back`: keys that could have been written, in transactions that were not.
    """

    ticket: int
    had_keys: dict[Root, set[ItemKey]]
    states: dict[Root, State]
    recalled: dict[Root, frozenset[ItemKey]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    rolled_back: set[tuple[Root, ItemKey]] = field(default_factory=set)

    def stale(self) -> Iterator[tuple[Root, ItemKey]]:
        """Keys that a root had and has not, in one order, so that a schedule can be replayed."""
        for root, items in self.states.items():
            had = {*self.had_keys[root], *self.recalled.get(root, ())} - items.keys()
            yield from ((root, key) for key in sorted(had, key=repr))

    def live_items(self) -> tuple[list[Item], list[tuple[Root, EncodedItem]]]:
        """The items that roots have: those that are as they are, and those that are JSON."""
        plain: list[Item] = []
        encoded: list[tuple[Root, EncodedItem]] = []
        for root, items in self.states.items():
            for item in items.values():
                if isinstance(item, tuple):
                    encoded.append((root, item))
                else:
                    plain.append(item)
        return plain, encoded

    # ── reading ──

    def read_items(
        self, entity: CompiledEntity, rows: Sequence[RowTree], now_s: float, objects: ObjectStore | None
    ) -> list[Finding]:
        """Adds the items of the rows, and keys that these may have had; findings of rows that items_for() refuses."""
        projected = project(entity, rows, now_s)
        if projected.objects and objects is not None:
            objects.put(projected.objects)
        refused = {finding.source_key for finding in projected.refused}
        for row in rows:
            root = (entity.name, entity.source_key(row))
            # A source whose keys ignore case finds another row as well: it is none of those that were asked for.
            if root in self.had_keys:
                self.had_keys[root] |= keys_for(entity, row, refused=root[1] in refused)
        for item in projected.items:
            root = root_of(item, entity.table)
            if root in self.states:
                self.states[root][entity.table.key_of(item)] = item
        return projected.refused

    def read_encoded(self, encoder: Encoder, pages: Sequence[RawPage], now_s: float) -> list[Finding]:
        """The same of rows whose items are made as JSON at once."""
        entity, refused = encoder.entity, list[Finding]()
        needs_row = any(is_foreign for is_foreign, _ in entity.keys)
        for page in pages:
            for row, items, finding in encode_rows(encoder, page, self.ticket, now_s):
                refused += [] if finding is None else [finding]
                root = (entity.name, entity.source_key(row))
                if root not in self.had_keys:
                    continue
                if needs_row or finding is not None:
                    self.had_keys[root] |= keys_for(entity, page.whole(row), refused=finding is not None)
                self.states[root].update({item[0]: item for item in items})
        return refused
