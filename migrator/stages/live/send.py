"""The order in which the writes of one refresh are sent: tombstones, transactions of a row, single items."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import orjson

from migrator.mapping.items.encoder_values import base64_text
from migrator.mapping.items.wire import decode, decode_item, encode_sized, item_bytes
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import ConditionalStore, Outcome, Root
from migrator.mapping.model.table import (
    ITEM_BYTES,
    TOMBSTONE,
    TRANSACTION_ACTIONS,
    TRANSACTION_BYTES,
    EncodedItem,
    Item,
    ItemKey,
    TableDesign,
    source_text,
    split_source,
)
from migrator.runtime.errors import ItemRefusedError, NeverTakenError

Group = list[Item]
EncodedGroup: TypeAlias = tuple[Root, list[EncodedItem]]
"""The items and tombstones of one root that are written in one transaction."""
_AS_TOMBSTONE = TOMBSTONE.encode()
_SO = "so they were written one by one, and a reader may see a mix of them"


@dataclass(frozen=True, slots=True)
class Taken:
    """An item that the table took: its root, its key, and whether it is a put or a tombstone."""

    root: Root
    key: ItemKey
    is_put: bool


@dataclass
class TransactionGroups:
    """The writes to be sent. `groups`: transactions, each of one root. `too_big`: roots whose items do not fit in one.

    `encoded`: items as JSON, and `encoded_groups`: transactions of such items and of tombstones, which carry `ticket`;
    `stored`: those of them that the table took, once they were sent.
    """

    tombstones: list[Item] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    live: list[Item] = field(default_factory=list)
    too_big: dict[Root, str] = field(default_factory=dict)
    encoded: list[tuple[Root, EncodedItem]] = field(default_factory=list)
    encoded_groups: list[EncodedGroup] = field(default_factory=list)
    ticket: int = 0
    stored: list[Taken] = field(default_factory=list)

    def add(self, items: Iterable[Item], table: TableDesign) -> None:
        for item in items:
            (self.tombstones if _is_tombstone(item, table) else self.live).append(item)

    def as_items(self, table: TableDesign, keys: Collection[ItemKey]) -> None:
        """Makes items of what is JSON and has one of the keys: those go one after the other, in order."""
        groups, singles = self.encoded_groups, self.encoded
        self.encoded_groups, self.encoded = [], []
        for root, items in groups:
            if any(item[0] in keys for item in items):
                self.groups.append([item_of(item) for item in items])
            else:
                self.encoded_groups.append((root, items))
        for root, item in singles:
            if item[0] in keys:
                self.add([item_of(item)], table)
            else:
                self.encoded.append((root, item))

    def findings(self) -> list[Finding]:
        """One for each root whose items should have been written in one transaction and were not."""
        return [Finding("apart", name, why, key) for (name, key), why in self.too_big.items()]


@dataclass(frozen=True, slots=True)
class EncodedState:
    """Items as JSON, each with its root, and the ticket that all of them carry."""

    items: Sequence[tuple[Root, EncodedItem]] = ()
    ticket: int = 0


def sorted_out(
    items: Iterable[Item],
    table: TableDesign,
    together: Mapping[str, frozenset[str]],
    apart: Collection[tuple[Root, ItemKey]] = (),
    encoded: EncodedState = EncodedState(),
) -> TransactionGroups:
    """The items as they are to be sent. `together`: per entity the item types that are written in one transaction, with
    the row's tombstones; `apart`: keys of roots that are none the less written by themselves."""
    sending = TransactionGroups(ticket=encoded.ticket)
    if not together:
        sending.add(items, table)
        sending.encoded += encoded.items
        return sending
    # By key: a transaction takes no two of one key, and of two the later one would stay.
    grouped = defaultdict[Root, dict[ItemKey, Item]](dict)
    for item in items:
        root, key = root_of(item, table), table.key_of(item)
        types = together.get(root[0], frozenset())
        joins = item[table.type_attribute] in types or (bool(types) and _is_tombstone(item, table))
        if joins and (root, key) not in apart:
            grouped[root][key] = item
        else:
            sending.add([item], table)
    as_json = defaultdict[Root, list[EncodedItem]](list)
    for root, encoded_item in encoded.items:
        types = together.get(root[0], frozenset())
        if types and _type_of(encoded_item, table) in types and (root, encoded_item[0]) not in apart:
            as_json[root].append(encoded_item)
        else:
            sending.encoded.append((root, encoded_item))
    for root, by_key in grouped.items():
        if root not in as_json:
            _add_group(sending, table, root, list(by_key.values()))
    for root, encoded_items in as_json.items():
        _add_encoded_group(sending, table, root, encoded_items, list(grouped.get(root, {}).values()))
    return sending


def _add_group(sending: TransactionGroups, table: TableDesign, root: Root, group: Group) -> None:
    why = _too_big(len(group), map(item_bytes, group))
    if why:
        sending.too_big[root] = why
    if why or len(group) == 1:
        sending.add(group, table)
    else:
        sending.groups.append(group)


def _add_encoded_group(
    sending: TransactionGroups,
    table: TableDesign,
    root: Root,
    items: Sequence[EncodedItem],
    others: Sequence[Item],
) -> None:
    """`others`: the root's tombstones, which come to the same transaction, and items of it that are no JSON."""
    group = [*(encoded_of(item, table) for item in others), *items]
    why = _too_big(len(group), (size for _, _, size, _ in group))
    if why:
        sending.too_big[root] = why
    if why or len(group) == 1:
        sending.add(others, table)
        sending.encoded += [(root, item) for item in items]
    else:
        sending.encoded_groups.append((root, group))


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
    if keys := _keys_of_many(sending, table):
        sending.as_items(table, keys)
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
    if sending.encoded_groups:
        _send_encoded_groups(store, sending, sent, table, check)
    _send_encoded(store, sending, sent, table, check, fresh)
    return sent.result(is_taken=bool(sending.stored))


def _keys_of_many(sending: TransactionGroups, table: TableDesign) -> set[ItemKey]:
    """Keys of more than one item: of a row that gives a key up and one that takes it, of two rows that make one."""
    plain = [*sending.live, *(item for group in sending.groups for item in group)]
    grouped = (item[0] for _, items in sending.encoded_groups for item in items)
    counts = Counter([*map(table.key_of, plain), *grouped, *(item[0] for _, item in sending.encoded)])
    return {key for key, count in counts.items() if count > 1} if len(counts) < counts.total() else set()


def _send_encoded_groups(
    store: ConditionalStore,
    sending: TransactionGroups,
    sent: _Sent,
    table: TableDesign,
    check: Callable[[], None],
) -> None:
    groups = sending.encoded_groups
    check()
    try:
        named = [(source_text(*root), items) for root, items in groups]
        outcomes = store.write_encoded_together(named, sending.ticket)
    except ItemRefusedError:
        # Which of them it is, and what then becomes of it, is looked for where they are items.
        sending.encoded_groups = []
        for plain in ([item_of(item) for item in items] for _, items in groups):
            sent.add(plain, partial(_send_groups, store, [plain], sending, table))
        return
    except NeverTakenError as error:
        sent.stuck.append(error)
        unwritten = (item_of(item) for _, items in groups for item in items)
        outcomes = [Outcome(item, "unwritten", why=str(error)) for item in unwritten]
    sent.outcomes += outcomes
    refused = {table.key_of(outcome.item) for outcome in outcomes}
    sending.stored += [
        Taken(root, item[0], not _is_encoded_tombstone(item, table))
        for root, items in groups
        for item in items
        if item[0] not in refused
    ]


def _send_encoded(
    store: ConditionalStore,
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
        sending.stored += [Taken(root, item[0], is_put=True) for root, item in part if item[0] not in refused]


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


def _too_big(count: int, sizes: Iterable[int]) -> str:
    """Why so many items of these bytes are no transaction; '' where they are one."""
    if count * ITEM_BYTES <= TRANSACTION_BYTES:
        return ""
    size = sum(sizes)
    if count > TRANSACTION_ACTIONS:
        what = f"{count} items and tombstones; a transaction takes {TRANSACTION_ACTIONS}"
    elif size > TRANSACTION_BYTES:
        what = f"{size:,} bytes; a transaction takes {TRANSACTION_BYTES:,}"
    else:
        return ""
    return f"atomic: the row comes to {what}, {_SO}"


def item_of(encoded: EncodedItem) -> Item:
    """The item that is encoded."""
    return decode_item(orjson.loads(encoded[1]))


def encoded_of(item: Item, table: TableDesign) -> EncodedItem:
    """The item as JSON. When it expires is left out."""
    wired, size = encode_sized(item)
    return table.key_of(item), orjson.dumps(wired, default=base64_text), size, None


def _type_of(encoded: EncodedItem, table: TableDesign) -> str:
    return str(decode(orjson.loads(encoded[1])[table.type_attribute]))


def _is_encoded_tombstone(encoded: EncodedItem, table: TableDesign) -> bool:
    return _AS_TOMBSTONE in encoded[1] and _type_of(encoded, table) == TOMBSTONE


def root_of(item: Item, table: TableDesign) -> Root:
    """The root that an item of ours is of."""
    return split_source(str(item[table.source_attribute]))


def _is_tombstone(item: Item, table: TableDesign) -> bool:
    return item[table.type_attribute] == TOMBSTONE
