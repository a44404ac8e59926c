"""One round of a refresh: a ticket, the items of rows that were read with it, and what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import Struct

from migrator.mapping.items.encoder import Encoder, compile_encoder, encode_page
from migrator.mapping.items.items import CompiledEntity, keys_for
from migrator.mapping.model.edges import ObjectStore, RawPage
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import Outcome, Root
from migrator.mapping.model.table import EncodedItem, ItemKey
from migrator.runtime.errors import StoppedError


class LiveEntity(Struct, frozen=True, dict=True):
    """An entity as writers concurrent with others see it."""

    compiled: CompiledEntity
    remembered: bool
    """Whether its keys cannot be computed from one row, so that they are remembered (rule 7)."""
    together: frozenset[str] = frozenset()
    """Item types that are written in one transaction (see mapping/check/keys.py)."""
    offered: frozenset[int] = frozenset()
    """Places of its rows that can be read raw."""

    @cached_property
    def encoder(self) -> Encoder:
        """It reads no place of the key raw: rows are named by those."""
        return compile_encoder(self.compiled, self.offered - frozenset(self.compiled.key_places))


class UnwrittenError(StoppedError):
    """The table took other items, and some not. `roots`: those of the latter; `items`: their keys, each with why."""

    def __init__(self, unwritten: Sequence[Outcome]) -> None:
        self.items = {outcome.item.key: outcome.why for outcome in unwritten}
        self.roots = frozenset(outcome.item.root for outcome in unwritten)
        whys = "; ".join(sorted(set(self.items.values())))
        super().__init__(f"the table does not take an item of its rows: {whys}")


def refuse_unwritten(written: Sequence[Outcome]) -> None:
    """Raises: UnwrittenError where an item was not taken."""
    unwritten = [outcome for outcome in written if outcome.verdict == "unwritten"]
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
    states: dict[Root, dict[ItemKey, EncodedItem]]
    recalled: dict[Root, frozenset[ItemKey]] = field(default_factory=dict)
    written: list[Outcome] = field(default_factory=list)
    rolled_back: set[tuple[Root, ItemKey]] = field(default_factory=set)

    def stale(self) -> Iterator[tuple[Root, ItemKey]]:
        """Keys that a root had and has not, in one order, so that a schedule can be replayed."""
        for root, items in self.states.items():
            had = {*self.had_keys[root], *self.recalled.get(root, ())} - items.keys()
            yield from ((root, key) for key in sorted(had, key=repr))

    def read(
        self, encoder: Encoder, pages: Sequence[RawPage], now_s: float, objects: ObjectStore | None
    ) -> list[Finding]:
        """Adds the items of the rows, and keys that these may have had; findings of rows that items_for() refuses."""
        entity, refused, needed = encoder.entity, list[Finding](), dict[str, bytes]()
        needs_row = any(is_foreign for is_foreign, _ in entity.keys)
        for page in (RawPage([row], read.raw, read.whole) for read in pages for row in read.rows):
            (row,), made = page.rows, encode_page(encoder, page, self.ticket, now_s)
            refused += made.refused
            needed |= made.objects
            root = (entity.name, entity.source_key(row))
            # A source whose keys ignore case finds another row as well: it is none of those that were asked for.
            if root not in self.had_keys:
                continue
            if needs_row or made.refused:
                self.had_keys[root] |= keys_for(entity, page.whole(row), refused=bool(made.refused))
            self.states[root].update({item.key: item for item in made.items})
        if needed and objects is not None:
            objects.put(needed)
        return refused
