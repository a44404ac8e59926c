"""Look: what is stored in one item collection beside what its rows make now, attribute by attribute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, get_args

from migrator.mapping.items.items import CompiledEntity, items_for, key_text
from migrator.mapping.language.redaction import value_text
from migrator.mapping.model.edges import ItemStore, Rows
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import Root
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.report import FINE, Cell, Difference, Example, LookedItem, LookReport, LookState
from migrator.mapping.model.table import (
    CONTROL,
    Index,
    Item,
    ItemKey,
    SourceKey,
    TableDesign,
    item_key_text,
    key_order,
)
from migrator.mapping.patterns.diff import differences
from migrator.mapping.patterns.key_lookups import AskedKey
from migrator.mapping.patterns.param_sources import shown as key_forms
from migrator.mapping.patterns.param_sources import stored_keys
from migrator.runtime.errors import RowError
from migrator.stages.core.partitions import Made, Partitions
from migrator.stages.design.shown import Showing, clipped
from migrator.stages.verify.page_check import compare_item
from migrator.stages.verify.scan import DirectItems, Tracer

_STATES = frozenset(get_args(LookState))

_FIRST_ROWS = 20
"""Rows of each entity that are read to find an item of each of its types."""


@dataclass(frozen=True)
class Compared:
    """One base key: the item that a row makes under it now, and the one that is stored; None where there is none.

    `root`: the row that makes the item, else the one that the stored item names; `owner`: another row's item stands there.
    `differing`: attributes. `reason`: verify's words.
    """

    state: LookState
    key: ItemKey
    root: Root | None
    made: Item | None
    stored: Item | None
    differing: frozenset[str] = frozenset()
    reason: str = ""


@dataclass(frozen=True)
class Looked:
    """An item collection, in its order. Its fields are those of LookReport."""

    asked: AskedKey
    items: Sequence[Compared]
    refused: Sequence[Finding] = ()
    is_cut: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class _Stored:
    """Items of a collection by their base keys, in its order, each as the table has it now. `is_cut`: there are more."""

    items: Mapping[ItemKey, Item]
    is_cut: bool


def known_forms(mapping: MappingModel, table: TableDesign, index: Index) -> str:
    """What partition keys look like there, where none is given or nothing has it."""
    forms = key_forms([key.partition for key in stored_keys(mapping, index)])
    return f"partition keys of {index.name or table.name} look like this: {forms}"


@dataclass(frozen=True)
class Look:
    """Reads both sides of one collection, and writes nothing. `items_at_most`: stored ones that are looked at."""

    source: Rows
    store: ItemStore
    mapping: MappingModel
    table: TableDesign
    entities: Sequence[CompiledEntity]
    direct: DirectItems
    items_at_most: int = 100

    def look(self, asked: AskedKey, now_s: float) -> Looked:
        """Raises: StoppedError or SourceError where a side is away."""
        stored = self._stored(asked)
        made = Partitions(self.source, self.mapping, self.entities).made(
            asked, now_s, self._named(stored.items.values())
        )
        last = max(map(self._order(asked), stored.items.values()), default=None) if stored.is_cut else None
        wanted = [
            (entity, item)
            for entity, item in made.items
            if self.table.key_of(item) in stored.items
            or (asked.holds(item) and (last is None or self._order(asked)(item) <= last))
        ]
        more = [key for _, item in wanted if (key := self.table.key_of(item)) not in stored.items]
        items = {**stored.items, **self.store.get(more)}
        looked = self._compared(wanted, items) + self._left(wanted, made, items)
        return Looked(
            asked=asked,
            items=sorted(looked, key=lambda item: self._order(asked)(item.stored or item.made or {})),
            refused=made.refused,
            is_cut=stored.is_cut,
            notes=made.notes if looked else [*made.notes, known_forms(self.mapping, self.table, asked.index)],
        )

    def examples(self, showing: Showing) -> list[Example]:
        """An item of each type that the first rows make: a stored one, where one of them is.

        Raises: StoppedError or SourceError where a side is away.
        """
        made: dict[str, list[tuple[str, str, ItemKey]]] = defaultdict(list)
        for entity in self.entities:
            for row in self.source.read_page(entity.plan, None, None, _FIRST_ROWS):
                with suppress(RowError):  # which verify names
                    of_row = (entity.name, entity.source_key(row))
                    for item in items_for(entity, row):
                        made[self.table.type_of(item)].append((*of_row, self.table.key_of(item)))
        stored = self.store.get([key for items in made.values() for _, _, key in items])
        first = {
            type_: next((one for one in items if one[2] in stored), items[0]) for type_, items in made.items()
        }
        return [
            Example(
                clipped(type_), entity, showing.key(item_key_text(key), row), key, is_stored=key in stored
            )
            for type_, (entity, row, key) in first.items()
        ]

    # ── what is stored ──

    def _stored(self, asked: AskedKey) -> _Stored:
        keys: list[ItemKey] = []
        start: Mapping[str, Any] | None = None
        while len(keys) <= self.items_at_most:
            page = self.store.query(self._request(asked, self.items_at_most + 1 - len(keys)), start)
            keys += [self.table.key_of(item) for item in page.items]
            start = page.next_start
            if start is None:
                break
        shown = keys[: self.items_at_most]
        # An index is read a moment late, and may hold a part of each item only.
        by_key = self.store.get(shown)
        in_collection_order = {key: by_key[key] for key in shown if key in by_key}
        return _Stored(in_collection_order, len(keys) > len(shown) or start is not None)

    def _request(self, asked: AskedKey, limit: int) -> dict[str, Any]:
        index = asked.index
        pairs = list(zip((attribute.name for attribute in index.partition), asked.partition, strict=True))
        conditions = [f"#k{number} = :k{number}" for number in range(len(pairs))]
        if asked.sort != "":
            form = "begins_with(#k{0}, :k{0})" if index.sort[0].type == "text" else "#k{0} = :k{0}"
            conditions.append(form.format(len(pairs)))
            pairs.append((index.sort[0].name, asked.sort))
        return {
            **({"IndexName": index.name} if index.name else {"ConsistentRead": True}),
            "KeyConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": {f"#k{number}": name for number, (name, _) in enumerate(pairs)},
            "ExpressionAttributeValues": {f":k{number}": value for number, (_, value) in enumerate(pairs)},
            "Limit": limit,
        }

    def _named(self, items: Any) -> dict[str, list[SourceKey]]:
        """The rows that stored items name as theirs, by entity."""
        named: dict[str, dict[SourceKey, None]] = defaultdict(dict)
        for item in items:
            root = self.table.root_of(item)
            if root is not None:
                named[root[0]][root[1]] = None
        return {entity: list(keys) for entity, keys in named.items()}

    def _order(self, asked: AskedKey) -> Any:
        names = [attribute.name for attribute in (*asked.index.sort, *self.table.key)]
        return lambda item: tuple(key_order(item.get(name, Decimal(0))) for name in names)

    # ── the comparison, which is verify's ──

    def _compared(self, wanted: Sequence[tuple[str, Item]], items: Mapping[ItemKey, Item]) -> list[Compared]:
        by_name = {entity.name: entity for entity in self.entities}
        return [self._compare(by_name[entity], item, items) for entity, item in wanted]

    def _compare(self, entity: CompiledEntity, made: Item, items: Mapping[ItemKey, Item]) -> Compared:
        findings = compare_item(entity, made, items)
        key, root = self.table.key_of(made), self.table.root_of(made)
        return Compared(
            state=_state(findings),
            key=key,
            root=root,
            made=made,
            stored=items.get(key),
            differing=self._differing(made, items.get(key), findings),
            reason=findings[0].reason if findings and not findings[0].attribute else "",
        )

    def _differing(self, made: Item, stored: Item | None, findings: Sequence[Finding]) -> frozenset[str]:
        """The attributes that differ; those of another row's item, too, which verify does not compare."""
        if stored is not None and findings and findings[0].kind == "collision":
            own = frozenset({*self.table.own_attributes, *self.table.kept})
            return frozenset(difference.attribute for difference in differences(made, stored, own))
        return frozenset(finding.attribute for finding in findings if finding.attribute)

    def _left(
        self, wanted: Sequence[tuple[str, Item]], made: Made, items: Mapping[ItemKey, Item]
    ) -> list[Compared]:
        """The stored items that none of the wanted ones stands beside."""
        keys = {self.table.key_of(item) for _, item in wanted}
        expired = {self.table.key_of(item): item for _, item in made.expired}
        left = {key: item for key, item in items.items() if key not in keys}
        plain = [
            item
            for key, item in left.items()
            if key not in expired and not self.table.is_hidden(item) and not self.direct.has(item, self.table)
        ]
        by_name = {entity.name: entity for entity in self.entities}
        untraced = Tracer(self.source, by_name, self.table).untraced(plain)
        found = {finding.item_key: finding for finding in untraced}
        return [self._alone(key, item, expired.get(key), found) for key, item in left.items()]

    def _alone(
        self, key: ItemKey, item: Item, expired: Item | None, found: Mapping[str, Finding]
    ) -> Compared:
        finding = found.get(key_text(self.table, item))
        state: LookState = "unexpected"
        reason = "its row changes while it is looked at; look again"
        if finding is not None:
            state, reason = _state([finding]), finding.reason
        elif self.direct.has(item, self.table):
            state, reason = "direct", ""
        elif self.table.is_hidden(item):
            is_control = item.get(self.table.type_attribute) == CONTROL
            state, reason = "control" if is_control else "tombstone", ""
        elif expired is not None:
            state, reason = "expired", ""
        return Compared(state, key, self.table.root_of(item), expired, item, reason=reason)


def _state(findings: Sequence[Finding]) -> LookState:
    kind = findings[0].kind if findings else "same"
    assert kind in _STATES
    return kind  # type: ignore[return-value]


# ── As it may be shown ──


def shown(looked: Looked, job: str, table: TableDesign, showing: Showing) -> LookReport:
    """The collection with values, and parts of keys that may name a person, masked as `showing` says."""
    asked, names = looked.asked, [attribute.name for attribute in looked.asked.index.attributes]
    partition = dict(zip(names, asked.partition, strict=False))
    return LookReport(
        job=job,
        table=table.name,
        index=asked.index.name,
        partition=_masked(showing, {name: value_text(value) for name, value in partition.items()}),
        items=[_shown(compared, names, table, showing) for compared in looked.items],
        refused=[
            f"{finding.entity} {showing.key(finding.source_key, finding.source_key)}: {finding.reason}"
            for finding in looked.refused
        ],
        is_cut=looked.is_cut,
        notes=looked.notes,
    )


def _masked(showing: Showing, texts: Mapping[str, str]) -> dict[str, str]:
    cells = [Cell(name, text, None, differs=False) for name, text in texts.items()]
    return {cell.attribute: cell.sql or "" for cell in showing.difference(Difference("", cells=cells)).cells}


def _shown(compared: Compared, names: Sequence[str], table: TableDesign, showing: Showing) -> LookedItem:
    entity, row = compared.root or ("", "")
    known = compared.made or compared.stored or {}
    made = {} if compared.made is None else showing.item(entity, compared.made)
    stored = {} if compared.stored is None else _stored_texts(compared, entity, table, showing)
    cells = [
        Cell(name, made.get(name), stored.get(name), differs=_differs(compared, name))
        for name in made | stored
    ]
    return LookedItem(
        state=compared.state,
        type=clipped(table.type_of(known)),
        at=_masked(showing, {name: (stored | made).get(name, "null") for name in names}),
        key=showing.key(item_key_text(compared.key), row or "[]"),
        entity=entity,
        row=showing.key(row, row) if row else "",
        cells=[*_type_cell(compared, table), *showing.difference(Difference("", cells=cells)).cells],
        reason=showing.key(compared.reason, row or "[]"),
    )


def _stored_texts(compared: Compared, entity: str, table: TableDesign, showing: Showing) -> dict[str, str]:
    """What is stored, with what the mapping redacts of the item that the row makes masked there, too."""
    assert compared.stored is not None
    type_ = table.type_of(compared.made or compared.stored)
    return showing.item(entity, {**compared.stored, table.type_attribute: type_})


def _differs(compared: Compared, name: str) -> bool:
    one_side = compared.made is None or compared.stored is None or compared.state == "missing"
    return name in compared.differing or (
        one_side and compared.state != "same" and compared.state not in FINE
    )


def _type_cell(compared: Compared, table: TableDesign) -> list[Cell]:
    """The item's type, where it differs; the stored one may be anything."""
    if table.type_attribute not in compared.differing or compared.stored is None or compared.made is None:
        return []
    stored = compared.stored.get(table.type_attribute)
    return [
        Cell(
            table.type_attribute,
            value_text(table.type_of(compared.made)),
            None if stored is None else value_text(stored, redacted=True),
            differs=True,
        )
    ]
