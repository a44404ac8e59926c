"""Views of table and indexes for the report: facets by entity, and item collections of real rows."""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from msgspec import Struct

from migrator.mapping.items.items import CompiledEntity, items_for, project
from migrator.mapping.items.values import checked_number
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.facts import kept_columns
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.mapping import Entity, ItemDesign
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.report import Facet, SampleItem, ShownCollection, View
from migrator.mapping.model.table import (
    Index,
    Item,
    KeyAttribute,
    KeyOrder,
    RowTree,
    SourceKey,
    TableDesign,
    Value,
    key_order,
)
from migrator.mapping.patterns.param_sources import AskedKey, RowLookup, row_lookups, shown, stored_keys
from migrator.runtime.errors import (
    Interrupted,
    MigratorError,
    RowError,
    SettingsError,
    UnfitValueError,
    amount,
    did_you_mean,
)
from migrator.stages.design.shown import Showing

ROWS_AT_MOST = 2_000
"""Rows of an entity that are read for one item collection."""

# ── Which collection ──


def asked_key(table: TableDesign, index: str | None, partition: Sequence[str], sort: str = "") -> AskedKey:
    """The collection of a key in text form, one text per attribute of the partition key. Raises: SettingsError."""
    design = table.asked(index or None)
    if design is None:
        names = [other.name for other in table.indexes]
        known = f"; there are: {', '.join(names)}" if names else "; the table has none"
        raise SettingsError(f"the table has no index '{index}'{did_you_mean(str(index), names) or known}")
    if len(partition) != len(design.partition):
        named = " ".join(f"--pk {attribute.name.upper()}" for attribute in design.partition)
        what = (
            f"{amount(len(partition), 'value')} for the partition key, which is {_listed(design.partition)}"
        )
        raise SettingsError(f"{what}; write {named}")
    if sort and not design.sort:
        raise SettingsError(f"{index or 'the table'} has no sort key; leave --sk out")
    values = (_typed(attribute, text) for attribute, text in zip(design.partition, partition, strict=True))
    return AskedKey(design, tuple(values), _typed(design.sort[0], sort) if sort else "")


def _listed(attributes: Iterable[KeyAttribute]) -> str:
    return ", ".join(attribute.name for attribute in attributes)


def _typed(attribute: KeyAttribute, text: str) -> Value:
    try:
        text.encode()
        if attribute.type == "number":
            return checked_number(Decimal(text))
        if attribute.type == "binary":
            return base64.b64decode(text, validate=True)
    except (UnicodeEncodeError, InvalidOperation, binascii.Error, RowError):
        form = {"number": "a number", "binary": "bytes, written as base64"}.get(attribute.type, "UTF-8 text")
        raise SettingsError(f"{attribute.name} is {form}; what was given is not") from None
    if not text:
        raise SettingsError(f"{attribute.name} is empty; no item has an empty key")
    return text


# ── The items that rows make in it ──


@dataclass
class RowItems:
    """`expired`: items past their TTL.
    `refused`: rows that may belong to the collection.
    `notes`: entities whose rows were not all read.
    """

    items: list[tuple[str, Item]] = field(default_factory=list)
    expired: list[tuple[str, Item]] = field(default_factory=list)
    refused: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Partitions(Struct, frozen=True):
    source: Rows
    mapping: MappingModel
    entities: Sequence[CompiledEntity]
    rows_at_most: int = ROWS_AT_MOST

    def made(
        self, asked: AskedKey, now_s: float, named: Mapping[str, Sequence[SourceKey]] | None = None
    ) -> RowItems:
        """Items that rows make in the collection. `named`: additional rows by entity; all their items are returned."""
        made = RowItems()
        for entity in self.entities:
            keys = (named or {}).get(entity.name, ())
            rows = self._read(entity, keys)
            likely = set(rows)
            for lookup in row_lookups(self.mapping, entity.plan, asked):
                found = self._rows(entity, lookup, made)
                likely |= found.keys() if lookup.lookup is not None else set()
                rows |= found
            projected = project(entity, list(rows.values()), now_s)
            made.items += self._kept(entity, projected.items, asked, keys)
            made.expired += self._kept(entity, projected.expired, asked, keys)
            made.refused += [finding for finding in projected.refused if finding.source_key in likely]
        return made

    def _rows(self, entity: CompiledEntity, lookup: RowLookup, made: RowItems) -> dict[SourceKey, Any]:
        most = self.rows_at_most
        if lookup.lookup is None:
            rows = self.source.read_page(entity.plan, None, None, most + 1)
            if len(rows) > most:
                what = f"only the first {most:,} rows of {entity.name} were looked at"
                made.notes.append(f"{what}: the key does not show which rows make it")
            return {entity.source_key(row): row for row in rows[:most]}
        try:
            keys = self.source.find_roots(entity.plan, lookup.lookup, [lookup.values], None, most + 1)
        except UnfitValueError:
            return {}  # the column can hold no such value, so no row does
        if len(keys) > most:
            what = f"only the first {most:,} rows of {entity.name} that have this key"
            made.notes.append(f"{what} were looked at")
        return self._read(entity, keys[:most])

    def _read(self, entity: CompiledEntity, keys: Sequence[SourceKey]) -> dict[SourceKey, Any]:
        rows = self.source.read_rows(entity.plan, keys) if keys else []
        return {entity.source_key(row): row for row in rows}

    def _kept(
        self, entity: CompiledEntity, items: Sequence[Item], asked: AskedKey, keys: Collection[SourceKey]
    ) -> list[tuple[str, Item]]:
        source, whole = entity.table.source_attribute, frozenset(keys)
        return [
            (entity.name, item)
            for item in items
            if asked.holds(item) or str(item[source]).partition(":")[2] in whole
        ]


_ROWS = 60
"""Rows of an entity to find item collections in; related rows are rarely the very first ones of both tables."""
_COLLECTIONS = 4
_ITEMS = 6
_ITEMS_OF_ONE = 50
"""Limit for a collection that was requested by its key."""
_Place: TypeAlias = tuple[KeyOrder, ...]
_Found: TypeAlias = list[tuple[_Place, SampleItem]]
"""Items of a partition, each with its sort position."""


@dataclass
class Views:
    """`source`: None for no sample items. `failed`: why rows could not be read, '' if they could."""

    mapping: MappingModel
    entities: Sequence[CompiledEntity]
    showing: Showing
    source: Rows | None = None
    failed: str = ""

    def all(self) -> list[View]:
        items = self._sampled()
        return [self._view(index, items) for index in self._indexes()]

    def under(self, key: str, now_s: float) -> tuple[list[View], list[str]]:
        """Collections of one partition key, in table and indexes, and notes on unread parts.

        Raises: SourceError if rows cannot be read.
        """
        assert self.source is not None
        partitions = Partitions(self.source, self.mapping, self.entities)
        views, notes = [], []
        for index in self._indexes():
            asked = _asked(self.mapping.table, index, key)
            made = partitions.made(asked, now_s) if asked is not None else RowItems()
            if made.items:
                views.append(self._view(index, made.items, 1, _ITEMS_OF_ONE))
            notes += made.notes
        return views, list(dict.fromkeys(notes))

    def key_forms(self) -> list[str]:
        forms = (
            (index, shown([key.partition for key in stored_keys(self.mapping, index)]))
            for index in self._indexes()
        )
        return [
            f"partition keys of {index.name or 'the table'} look like this: {form}" for index, form in forms
        ]

    def _indexes(self) -> list[Index]:
        table = self.mapping.table.asked(None)
        assert table is not None
        return [table, *self.mapping.table.indexes]

    # ── rows ──

    def _sampled(self) -> list[tuple[str, Item]]:
        items: list[tuple[str, Item]] = []
        for entity in self.entities if self.source is not None else ():
            for row in self._rows(entity):
                try:
                    items += [(entity.name, item) for item in items_for(entity, row)]
                except RowError:
                    continue  # reported among the refused rows
        return items

    def _rows(self, entity: CompiledEntity) -> list[RowTree]:
        assert self.source is not None
        try:
            return [] if self.failed else self.source.read_page(entity.plan, None, None, _ROWS)
        except Interrupted:
            raise
        except MigratorError as error:
            self.failed = str(error)
            return []

    # ── one view ──

    def _view(
        self, index: Index, items: Sequence[tuple[str, Item]], most: int = _COLLECTIONS, each: int = _ITEMS
    ) -> View:
        """`most`: collections shown. `each`: items of each."""
        by_partition = self._collections(index, items)
        facets = [
            facet
            for entity in self.mapping.entities.values()
            for design in entity.items
            if design.copy <= 1 and (facet := self._facet(entity, design, index)) is not None
        ]
        return View(
            name=index.name,
            partition=[attribute.name for attribute in index.partition],
            sort=[attribute.name for attribute in index.sort],
            projection=index.projection if isinstance(index.projection, str) else ", ".join(index.projection),
            facets=facets,
            collections=[
                ShownCollection(" ".join(key), shown[:each], max(0, len(shown) - each))
                for key, samples in _chosen(by_partition, most)
                for shown in [[sample for _, sample in samples]]
            ],
            more=max(0, len(by_partition) - most),
        )

    def _facet(self, entity: Entity, design: ItemDesign, index: Index) -> Facet | None:
        forms = {name: form.source for name, form in self.showing.key_forms(design).items()}
        names = self._attributes(entity, design)
        own = [attribute.name for attribute in index.attributes]
        if not all(name in forms or name in names for name in own):
            return None
        keys = {name: forms.get(name, f"{{{name}}}") for name in own}
        projected = self._projected(index, [name for name in names if name not in own])
        return Facet(entity.name, design.type, keys, projected)

    def _attributes(self, entity: Entity, design: ItemDesign) -> list[str]:
        plan = next((compiled.plan for compiled in self.entities if compiled.name == entity.name), None)
        if plan is not None:
            kept: Sequence[str] = kept_columns(plan, design)
        else:
            kept = design.keep if isinstance(design.keep, tuple) else ()
        return list(dict.fromkeys([*kept, *entity.attributes, *design.attributes]))

    def _projected(self, index: Index, names: Sequence[str]) -> list[str]:
        if not index.name or index.projection == "all":
            return list(names)
        return [name for name in names if name in index.projection] if index.projection != "keys" else []

    def _collections(self, index: Index, items: Sequence[tuple[str, Item]]) -> dict[tuple[str, ...], _Found]:
        names = [attribute.name for attribute in index.attributes]
        partition = [attribute.name for attribute in index.partition]
        by_partition: dict[tuple[str, ...], _Found] = defaultdict(list)
        for entity, item in items:
            if all(item.get(name) is not None for name in names):
                texts = self.showing.item(entity, item)
                sample = self._sample(index, item, texts)
                place = tuple(key_order(item[attribute.name]) for attribute in index.sort)
                by_partition[tuple(texts[name] for name in partition)].append((place, sample))
        return {key: sorted(found, key=lambda placed: placed[0]) for key, found in by_partition.items()}

    def _sample(self, index: Index, item: Item, shown: Mapping[str, str]) -> SampleItem:
        own, keys = [attribute.name for attribute in index.attributes], self.showing.key_names
        names = self._projected(index, [name for name in shown if name not in keys])
        return SampleItem(
            type=self.mapping.table.type_of(item),
            key={name: shown[name] for name in own},
            attributes={name: shown[name] for name in names},
        )


def _asked(table: TableDesign, index: Index, key: str) -> AskedKey | None:
    try:
        return asked_key(table, index.name, (key,))
    except SettingsError:
        return None


def _chosen(
    by_partition: Mapping[tuple[str, ...], _Found], at_most: int
) -> Iterator[tuple[tuple[str, ...], _Found]]:
    """A few item collections, each chosen for types the earlier ones lack."""
    left, shown = dict(by_partition), set[str]()

    def worth(key: tuple[str, ...]) -> tuple[int, int, int]:
        types = {sample.type for _, sample in left[key]}
        return len(types - shown), len(types), len(left[key])

    for _ in range(min(at_most, len(left))):
        key = max(left, key=worth)
        samples = left.pop(key)
        shown |= {sample.type for _, sample in samples}
        yield key, samples
