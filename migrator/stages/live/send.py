"""Order of a refresh's writes: tombstones, transactions of a row, single items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from msgspec import Struct

from migrator.mapping.items.encoder import Encoder, PutTexts, compile_encoder, encode_page
from migrator.mapping.items.items import CompiledEntity, keys_for
from migrator.mapping.model.edges import ObjectStore, RawPage
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import ConditionalStore, Outcome, Root
from migrator.mapping.model.table import (
    ITEM_BYTES,
    TRANSACTION_ACTIONS,
    TRANSACTION_BYTES,
    EncodedItem,
    ItemKey,
)
from migrator.runtime.errors import ItemRefusedError, NeverTakenError, StoppedError

Group = Sequence[EncodedItem]
"""The items and tombstones of one root that are written in one transaction."""
_SO = "so they were written one by one, and a reader may see a mix of them"


@dataclass
class TransactionGroups:
    tombstones: list[EncodedItem] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    """Transactions, each of one root."""
    live: list[EncodedItem] = field(default_factory=list)
    texts: PutTexts | None = None
    """Items of new rows as text, instead of all of the others."""
    too_big: dict[Root, str] = field(default_factory=dict)
    """Roots with items that do not fit in one transaction, with the reason."""

    def add(self, items: Iterable[EncodedItem]) -> None:
        for item in items:
            (self.tombstones if item.is_tombstone else self.live).append(item)

    def findings(self) -> list[Finding]:
        return [Finding("apart", name, why, key) for (name, key), why in self.too_big.items()]


def sorted_out(
    items: Iterable[EncodedItem],
    together: Mapping[str, frozenset[str]],
    apart: Collection[tuple[Root, ItemKey]] = (),
) -> TransactionGroups:
    """Group the items for sending.

    `together`: per entity, the item types written in one transaction with the row's tombstones.
    `apart`: keys of roots that are written separately anyway.
    """
    sending = TransactionGroups()
    if not together:
        sending.add(items)
        return sending
    # By key: a transaction refuses two of one key, and of two the later one would stay.
    grouped = defaultdict[Root, dict[ItemKey, EncodedItem]](dict)
    for item in items:
        root = item.root
        types = together.get(root[0], frozenset())
        joins = item.type in types or (bool(types) and item.is_tombstone)
        if joins and (root, item.key) not in apart:
            grouped[root][item.key] = item
        else:
            sending.add([item])
    for root, by_key in grouped.items():
        group = list(by_key.values())
        why = _too_big(group)
        if why:
            sending.too_big[root] = why
        if why or len(group) == 1:
            sending.add(group)
        else:
            sending.groups.append(group)
    return sending


def send(
    store: ConditionalStore,
    sending: TransactionGroups,
    check: Callable[[], None],
    *,
    fresh: Collection[str] = (),
) -> list[Outcome]:
    """Outcome of each item, without the stored ones of `texts`. `check` is called before each wave.

    `fresh`: `_src` of roots with probably free keys (see ConditionalStore.write).
    A group that DynamoDB refuses as a whole is added to `too_big`.
    Raises: NeverTakenError if the table took no item.
    """
    outcomes = list[Outcome]()
    # Of waves of which the table took nothing.
    stuck = list[NeverTakenError]()

    def add(items: Sequence[EncodedItem], work: Callable[[], list[Outcome]]) -> None:
        check()
        try:
            outcomes.extend(work())
        except NeverTakenError as error:
            # A wave may be of one item: only the others can show whether the item or the table is at fault.
            stuck.append(error)
            outcomes.extend(Outcome(item, "unwritten", why=str(error)) for item in items)

    # Tombstones before puts: a key that moves from one root to another is free when it is wanted.
    for wave in waves(sending.tombstones):
        add(wave, partial(store.write, wave))
    for groups in group_waves(sending.groups):
        items = [item for group in groups for item in group]
        add(items, partial(_send_groups, store, groups, sending))
    for wave in waves(sending.live):
        others = [item for item in wave if item.source not in fresh] if fresh else wave
        inserts = [item for item in wave if item.source in fresh] if fresh else []
        for items, is_fresh in ((others, False), (inserts, True)):
            if items:
                add(items, partial(store.write, items, fresh=is_fresh))
    if sending.texts is not None:
        add(sending.texts, partial(store.write, sending.texts, fresh=True))
    if stuck and all(outcome.verdict == "unwritten" for outcome in outcomes):
        raise stuck[0]
    return outcomes


def _send_groups(
    store: ConditionalStore, groups: Sequence[Group], sending: TransactionGroups
) -> list[Outcome]:
    try:
        return store.write_together(groups)
    except ItemRefusedError:
        if len(groups) > 1:
            # Items written already may be written again.
            return [outcome for group in groups for outcome in _send_groups(store, [group], sending)]
        (group,) = groups
        sending.too_big[group[0].root] = f"atomic: DynamoDB does not take its items at once, {_SO}"
        # Tombstones first, as always. An item that DynamoDB refuses on its own is refused here.
        ordered = sorted(group, key=lambda item: not item.is_tombstone)
        return [outcome for wave in waves(ordered) for outcome in store.write(wave)]


def waves(items: Sequence[EncodedItem]) -> list[list[EncodedItem]]:
    """The fewest groups with unique keys: a store takes no two items of one key at once."""
    if len({item.key for item in items}) == len(items):
        return [list(items)] if items else []
    return [[item for group in wave for item in group] for wave in _waves([[item] for item in items])]


def group_waves(groups: Sequence[Group]) -> list[list[Group]]:
    """Waves of groups; among groups with a common key, those with a tombstone come first."""
    return _waves(sorted(groups, key=lambda group: not any(item.is_tombstone for item in group)))


def _waves(groups: Sequence[Group]) -> list[list[Group]]:
    waves_made: list[list[Group]] = []
    count: dict[ItemKey, int] = defaultdict(int)
    for group in groups:
        keys = [item.key for item in group]
        wave = max(count[key] for key in keys)
        if wave == len(waves_made):
            waves_made.append([])
        waves_made[wave].append(group)
        count.update(dict.fromkeys(keys, wave + 1))
    return waves_made


def _too_big(items: Group) -> str:
    if len(items) * ITEM_BYTES <= TRANSACTION_BYTES:
        return ""
    size = sum(item.size_bytes for item in items)
    if len(items) > TRANSACTION_ACTIONS:
        what = f"{len(items)} items and tombstones; a transaction takes {TRANSACTION_ACTIONS}"
    elif size > TRANSACTION_BYTES:
        what = f"{size:,} bytes; a transaction takes {TRANSACTION_BYTES:,}"
    else:
        return ""
    return f"atomic: the row comes to {what}, {_SO}"


class LiveEntity(Struct, frozen=True, dict=True):
    compiled: CompiledEntity
    remembered: bool
    """Whether its keys cannot be computed from one row, so that they are remembered (rule 7)."""
    together: frozenset[str] = frozenset()
    """Item types that are written in one transaction (see mapping/check/keys.py)."""
    offered: frozenset[int] = frozenset()
    """Places of its rows that can be read raw."""

    @cached_property
    def encoder(self) -> Encoder:
        """Reads no part of the key raw, since the key names the row."""
        return compile_encoder(self.compiled, self.offered - frozenset(self.compiled.key_places))


class UnwrittenError(StoppedError):
    """The table refused some items: `items`, with the reason by key, of `roots`."""

    def __init__(self, unwritten: Sequence[Outcome]) -> None:
        self.items = {outcome.item.key: outcome.why for outcome in unwritten}
        self.roots = frozenset(outcome.item.root for outcome in unwritten)
        whys = "; ".join(sorted(set(self.items.values())))
        super().__init__(f"the table does not take an item of its rows: {whys}")


def refuse_unwritten(written: Sequence[Outcome]) -> None:
    unwritten = [outcome for outcome in written if outcome.verdict == "unwritten"]
    if unwritten:
        raise UnwrittenError(unwritten)


@dataclass
class Round:
    """`had_keys`: keys each root had before.
    `states`: its items now.
    `recalled`: keys intended for it before.
    `rolled_back`: writable keys in transactions that failed.
    """

    ticket: int
    had_keys: dict[Root, set[ItemKey]]
    states: dict[Root, dict[ItemKey, EncodedItem]]
    recalled: dict[Root, frozenset[ItemKey]] = field(default_factory=dict)
    written: list[Outcome] = field(default_factory=list)
    rolled_back: set[tuple[Root, ItemKey]] = field(default_factory=set)

    def stale(self) -> Iterator[tuple[Root, ItemKey]]:
        """Keys that a root had and lost, in a fixed order, so that a schedule can be replayed."""
        for root, items in self.states.items():
            had = {*self.had_keys[root], *self.recalled.get(root, ())} - items.keys()
            yield from ((root, key) for key in sorted(had, key=repr))

    def read(
        self, encoder: Encoder, pages: Sequence[RawPage], now_s: float, objects: ObjectStore | None
    ) -> list[Finding]:
        """Add the items of the rows, and keys they may have had; return findings of refused rows."""
        entity, refused, needed = encoder.entity, list[Finding](), dict[str, bytes]()
        needs_row = any(is_foreign for is_foreign, _ in entity.keys)
        for page in (RawPage([row], read.raw, read.whole) for read in pages for row in read.rows):
            (row,), made = page.rows, encode_page(encoder, page, self.ticket, now_s)
            refused += made.refused
            needed |= made.objects
            root = (entity.name, entity.source_key(row))
            # A source with keys that ignore case finds another row as well, which was not requested.
            if root not in self.had_keys:
                continue
            if needs_row or made.refused:
                self.had_keys[root] |= keys_for(entity, page.whole(row), refused=bool(made.refused))
            self.states[root].update({item.key: item for item in made.items})
        if needed and objects is not None:
            objects.put(needed)
        return refused
