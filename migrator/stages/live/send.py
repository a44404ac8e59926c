"""The order in which the writes of one refresh are sent: tombstones, transactions of a row, single items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

import orjson

from migrator.mapping.heart.encoder import EncodedItem
from migrator.mapping.heart.wire import decode_item, item_bytes
from migrator.model.errors import ItemRefusedError, NeverTakenError
from migrator.model.journal import Finding
from migrator.model.live import ConditionalStore, Outcome, Root
from migrator.model.table import (
    ITEM_BYTES,
    TOMBSTONE,
    TRANSACTION_ACTIONS,
    TRANSACTION_BYTES,
    Item,
    ItemKey,
    TableDesign,
    source_text,
    split_source,
)

Group = list[Item]
_SO = "so they were written one by one, and a reader may see a mix of them"


@runtime_checkable
class EncodedWrites(Protocol):
    """A ConditionalStore that also takes items as JSON in DynamoDB's form.

    `takes_encoded`: whether it does now, for which its requests must go by our own exchange.
    """

    @property
    def takes_encoded(self) -> bool: ...

    def write_encoded(
        self, items: Sequence[tuple[str, EncodedItem]], ticket: int, *, fresh: bool = False
    ) -> list[Outcome]:
        """As `ConditionalStore.write`; the outcomes of those alone that are not stored.

        Each item with what its `_src` holds; `ticket`: which all of them carry.
        """


@dataclass
class TransactionGroups:
    """The writes to be sent. `groups`: transactions, each of one root. `too_big`: roots whose items do not fit in one.

    `encoded`: items as JSON, which carry `ticket`; `stored`: those of them that the table took, once they were sent.
    """

    tombstones: list[Item] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    live: list[Item] = field(default_factory=list)
    too_big: dict[Root, str] = field(default_factory=dict)
    encoded: list[tuple[Root, EncodedItem]] = field(default_factory=list)
    ticket: int = 0
    stored: list[tuple[Root, ItemKey]] = field(default_factory=list)

    def add(self, items: Iterable[Item], table: TableDesign) -> None:
        for item in items:
            (self.tombstones if _is_tombstone(item, table) else self.live).append(item)

    def findings(self) -> list[Finding]:
        """One for each root whose items should have been written in one transaction and were not."""
        return [Finding("apart", name, why, key) for (name, key), why in self.too_big.items()]


def sorted_out(
    items: Iterable[Item],
    table: TableDesign,
    together: Mapping[str, frozenset[str]],
    apart: Collection[tuple[Root, ItemKey]] = (),
) -> TransactionGroups:
    """The items as they are to be sent. `together`: per entity the item types that are written in one transaction, with
    the row's tombstones; `apart`: keys of roots that are none the less written by themselves."""
    # By key: a transaction takes no two of one key, and of two the later one would stay.
    sending, grouped = TransactionGroups(), defaultdict[Root, dict[ItemKey, Item]](dict)
    if not together:
        sending.add(items, table)
        return sending
    for item in items:
        root, key = root_of(item, table), table.key_of(item)
        types = together.get(root[0], frozenset())
        joins = item[table.type_attribute] in types or (bool(types) and _is_tombstone(item, table))
        if joins and (root, key) not in apart:
            grouped[root][key] = item
        else:
            sending.add([item], table)
    for root, by_key in grouped.items():
        group = list(by_key.values())
        why = _too_big(group)
        if why:
            sending.too_big[root] = why
        if why or len(group) == 1:
            sending.add(group, table)
        else:
            sending.groups.append(group)
    return sending


def send(
    store: ConditionalStore,
    sending: TransactionGroups,
    table: TableDesign,
    check: Callable[[], None],
    *,
    fresh: Collection[Root] = (),
) -> list[Outcome]:
    """What came of each item; NeverTakenError only where the table took none of all of them.

    `check` stands before each wave. `fresh`: roots whose keys are thought to be free (see ConditionalStore.write).

    A group that DynamoDB does not take as one is added to those that are too big.
    """
    sent = _Sent()
    takes_encoded = isinstance(store, EncodedWrites) and store.takes_encoded
    if not takes_encoded or len({item[0] for _, item in sending.encoded}) < len(sending.encoded):
        # Two rows make one key: the later one is to meet the item of the first.
        sending.live += [item_of(encoded) for _, encoded in sending.encoded]
        sending.encoded = []
    # Tombstones before puts: a key that moves from one root to another is free when it is wanted.
    for wave in waves(sending.tombstones, table):
        check()
        sent.add(wave, partial(store.write, wave))
    for groups in group_waves(sending.groups, table):
        check()
        items = [item for group in groups for item in group]
        sent.add(items, partial(_send_groups, store, groups, sending, table))
    for wave in waves(sending.live, table):
        by_freshness: dict[bool, list[Item]] = defaultdict(list)
        for item in wave:
            by_freshness[bool(fresh) and root_of(item, table) in fresh].append(item)
        for is_fresh, items in by_freshness.items():
            check()
            sent.add(items, partial(store.write, items, fresh=is_fresh))
    if isinstance(store, EncodedWrites):
        _send_encoded(store, sending, sent, table, check, fresh)
    return sent.result(is_taken=bool(sending.stored))


def _send_encoded(
    store: EncodedWrites,
    sending: TransactionGroups,
    sent: _Sent,
    table: TableDesign,
    check: Callable[[], None],
    fresh: Collection[Root],
) -> None:
    by_freshness: dict[bool, list[tuple[Root, EncodedItem]]] = defaultdict(list)
    for root, item in sending.encoded:
        by_freshness[bool(fresh) and root in fresh].append((root, item))
    for is_fresh, part in by_freshness.items():
        check()
        named = [(source_text(*root), item) for root, item in part]
        try:
            outcomes = store.write_encoded(named, sending.ticket, fresh=is_fresh)
        except NeverTakenError as error:
            sent.stuck.append(error)
            outcomes = [Outcome(item_of(item), "unwritten", why=str(error)) for _, item in part]
        sent.outcomes += outcomes
        refused = {table.key_of(outcome.item) for outcome in outcomes}
        sending.stored += [(root, item[0]) for root, item in part if item[0] not in refused]


@dataclass
class _Sent:
    """What came of the waves so far; `stuck`: of those of which the table took nothing."""

    outcomes: list[Outcome] = field(default_factory=list)
    stuck: list[NeverTakenError] = field(default_factory=list)

    def add(self, items: Sequence[Item], work: Callable[[], list[Outcome]]) -> None:
        try:
            self.outcomes += work()
        except NeverTakenError as error:
            # A wave may be of one item: only the others can say whether it is that one's fault or the table's.
            self.stuck.append(error)
            self.outcomes += [Outcome(item, "unwritten", why=str(error)) for item in items]

    def result(self, *, is_taken: bool) -> list[Outcome]:
        """`is_taken`: whether the table took something that has no outcome here."""
        if self.stuck and not is_taken and all(outcome.verdict == "unwritten" for outcome in self.outcomes):
            raise self.stuck[0]
        return self.outcomes


def _send_groups(
    store: ConditionalStore, groups: Sequence[Group], sending: TransactionGroups, table: TableDesign
) -> list[Outcome]:
    try:
        return store.write_together(groups)
    except ItemRefusedError:
        if len(groups) > 1:
            # What was written already may be written again.
            return [outcome for group in groups for outcome in _send_groups(store, [group], sending, table)]
        (group,) = groups
        sending.too_big[root_of(group[0], table)] = f"atomic: DynamoDB does not take its items at once, {_SO}"
        # Tombstones first, as ever. An item that DynamoDB refuses for itself is refused here.
        ordered = sorted(group, key=lambda item: not _is_tombstone(item, table))
        return [outcome for wave in waves(ordered, table) for outcome in store.write(wave)]


def waves(items: Sequence[Item], table: TableDesign) -> list[list[Item]]:
    """The items in as few groups as there are of one key at most: a store takes no two under one key at once."""
    if len(items) < 2:
        return [list(items)] if items else []
    made: list[list[Item]] = []
    count: dict[ItemKey, int] = defaultdict(int)
    for item in items:
        key = table.key_of(item)
        if count[key] == len(made):
            made.append([])
        made[count[key]].append(item)
        count[key] += 1
    return made


def group_waves(groups: Sequence[Group], table: TableDesign) -> list[list[Group]]:
    """The same of groups; of groups that share a key, one with a tombstone goes before one without."""
    burying = sorted(groups, key=lambda group: not any(_is_tombstone(item, table) for item in group))
    return _waves(burying, table)


def _waves(groups: Sequence[Group], table: TableDesign) -> list[list[Group]]:
    if len(groups) < 2:
        return [list(groups)] if groups else []
    waves_made: list[list[Group]] = []
    count: dict[ItemKey, int] = defaultdict(int)
    for group in groups:
        keys = [table.key_of(item) for item in group]
        wave = max(count[key] for key in keys)
        if wave == len(waves_made):
            waves_made.append([])
        waves_made[wave].append(group)
        count.update(dict.fromkeys(keys, wave + 1))
    return waves_made


def _too_big(group: Group) -> str:
    """Why the group is no transaction; '' where it is one."""
    if len(group) * ITEM_BYTES <= TRANSACTION_BYTES:
        return ""
    size = sum(map(item_bytes, group))
    if len(group) > TRANSACTION_ACTIONS:
        what = f"{len(group)} items and tombstones; a transaction takes {TRANSACTION_ACTIONS}"
    elif size > TRANSACTION_BYTES:
        what = f"{size:,} bytes; a transaction takes {TRANSACTION_BYTES:,}"
    else:
        return ""
    return f"atomic: the row comes to {what}, {_SO}"


def item_of(encoded: EncodedItem) -> Item:
    """The item that is encoded."""
    return decode_item(orjson.loads(encoded[1]))


def root_of(item: Item, table: TableDesign) -> Root:
    """The root that an item of ours is of."""
    return split_source(str(item[table.source_attribute]))


def _is_tombstone(item: Item, table: TableDesign) -> bool:
    return item[table.type_attribute] == TOMBSTONE
