"""Views of the table and its indexes for the report: facets by entity, and item collections of real rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from migrator.mapping.heart.items import CompiledEntity, items_for
from migrator.model.edges import Rows
from migrator.model.errors import Interrupted, MigratorError, RowError
from migrator.model.facts import kept_columns
from migrator.model.mapping import Entity, ItemDesign
from migrator.model.mapping import Mapping as MappingModel
from migrator.model.report import Facet, ItemCollection, SampleItem, View
from migrator.model.table import Index, Item, KeyOrder, RowTree, key_order
from migrator.stages.report.shown import Showing

_ROWS = 60
"""Rows of an entity to find item collections in; related rows are rarely the very first ones of both tables."""
_COLLECTIONS = 4
_ITEMS = 6
_Place: TypeAlias = tuple[KeyOrder, ...]
_Found: TypeAlias = list[tuple[_Place, SampleItem]]
"""Items of a partition, each with its sort position."""


@dataclass
class Views:
    """`source` None: no sample items. `failed`: why rows could not be read, '' where they could."""

    mapping: MappingModel
    entities: Sequence[CompiledEntity]
    showing: Showing
    source: Rows | None = None
    failed: str = ""
    _items: list[tuple[str, Item]] = field(default_factory=list)

    def all(self) -> list[View]:
        """The table first, then its indexes in the mapping's order."""
        self._items = self._sampled()
        table = self.mapping.table.asked(None)
        assert table is not None
        return [self._view(index) for index in (table, *self.mapping.table.indexes)]

    # ── rows ──

    def _sampled(self) -> list[tuple[str, Item]]:
        """Items of the first rows of each entity, with the entity's name."""
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

    def _view(self, index: Index) -> View:
        facets = [
            facet
            for entity in self.mapping.entities.values()
            for design in entity.items
            if (facet := self._facet(entity, design, index)) is not None
        ]
        return View(
            name=index.name,
            partition=[attribute.name for attribute in index.partition],
            sort=[attribute.name for attribute in index.sort],
            projection=index.projection if isinstance(index.projection, str) else ", ".join(index.projection),
            facets=facets,
            collections=self._collections(index),
        )

    def _facet(self, entity: Entity, design: ItemDesign, index: Index) -> Facet | None:
        """None where items of the design are not in the index."""
        forms = {name: form.source for name, form in self.showing.key_forms(design).items()}
        names = self._attributes(entity, design)
        own = {attribute.name for attribute in index.attributes}
        if not all(name in forms or name in names for name in own):
            return None
        keys = {
            attribute.name: forms.get(attribute.name, f"{{{attribute.name}}}")
            for attribute in index.attributes
        }
        return Facet(
            entity.name, design.type, keys, self._projected(index, [n for n in names if n not in own])
        )

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

    def _collections(self, index: Index) -> list[ItemCollection]:
        """A few item collections, each chosen for types that the ones before do not show."""
        names = [attribute.name for attribute in index.attributes]
        partition = [attribute.name for attribute in index.partition]
        by_partition: dict[tuple[str, ...], _Found] = defaultdict(list)
        for entity, item in self._items:
            if all(item.get(name) is not None for name in names):
                shown = self.showing.item(entity, item)
                sample = self._sample(index, item, shown)
                place = tuple(key_order(item[attribute.name]) for attribute in index.sort)
                by_partition[tuple(shown[name] for name in partition)].append((place, sample))
        return [
            ItemCollection(
                " ".join(key),
                [sample for _, sample in sorted(samples, key=lambda placed: placed[0])[:_ITEMS]],
            )
            for key, samples in _chosen(by_partition)
        ]

    def _sample(self, index: Index, item: Item, shown: Mapping[str, str]) -> SampleItem:
        own = [attribute.name for attribute in index.attributes]
        keys = {attribute.name for attribute in self.mapping.table.key} | {
            attribute.name
            for other_index in self.mapping.table.indexes
            for attribute in other_index.own_attributes(self.mapping.table)
        }
        names = self._projected(index, [name for name in shown if name not in keys])
        return SampleItem(
            type=self.mapping.table.type_of(item),
            key={name: shown[name] for name in own},
            attributes={name: shown[name] for name in names},
        )


def _chosen(by_partition: Mapping[tuple[str, ...], _Found]) -> Iterator[tuple[tuple[str, ...], _Found]]:
    left, shown = dict(by_partition), set[str]()

    def worth(key: tuple[str, ...]) -> tuple[int, int, int]:
        types = {sample.type for _, sample in left[key]}
        return len(types - shown), len(types), len(left[key])

    for _ in range(min(_COLLECTIONS, len(left))):
        key = max(left, key=worth)
        samples = left.pop(key)
        shown |= {sample.type for _, sample in samples}
        yield key, samples
