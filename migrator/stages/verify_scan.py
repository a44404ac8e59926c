"""The table's side of verify: every stored item traced back to its row, and counted on the way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from migrator.errors import RowError
from migrator.mapping.direct import DirectItems
from migrator.mapping.items import CompiledEntity, items_for
from migrator.mapping.keys import encode_key, split_source
from migrator.model import Item, ItemKey, SourceKey, TableDesign
from migrator.ports import Finding, FindingKind, Journal, Rows, Run, SegmentState
from migrator.stages.projection import key_text
from migrator.stages.segments import TableWalk

_EXACT = Context(prec=200)


@dataclass(frozen=True)
class ScanTotals:
    """What a scan counted, past the heart: items in all, items per entity and type, sums of numeric attributes too."""

    items: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    sums: Mapping[tuple[str, str, str], Decimal] = field(default_factory=dict)

    def __add__(self, other: ScanTotals) -> ScanTotals:
        sums = dict(self.sums)
        for key, value in other.sums.items():
            sums[key] = _EXACT.add(sums.get(key, Decimal(0)), value)
        return ScanTotals(self.items + other.items, self.counts + other.counts, sums)

    def as_json(self) -> dict[str, Any]:
        sums = [[*key, str(value)] for key, value in self.sums.items()]
        return {
            "items": self.items,
            "counts": [[*key, count] for key, count in self.counts.items()],
            "sums": sums,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScanTotals:
        sums = {(entity, type_, name): Decimal(value) for entity, type_, name, value in data.get("sums", [])}
        counts = Counter({(entity, type_): count for entity, type_, count in data.get("counts", [])})
        return cls(int(data.get("items", 0)), counts, sums)


@dataclass(frozen=True)
class TableScan:
    """Scans segments and looks for the row of each item."""

    source: Rows
    walk: TableWalk
    journal: Journal
    run: Run
    entities: Mapping[str, CompiledEntity]
    direct: DirectItems = DirectItems()

    def segment(self, number: int) -> ScanTotals:
        """Everything of one segment, beginning where a run before this one stopped."""
        state = self.journal.segment(self.run, number)
        totals = ScanTotals.from_json(state.tally)
        if state.done:
            return totals
        for page in self.walk.pages(number, state.start):
            items = [item for item in page.items if not self._is_left_alone(item)]
            totals = totals + self._count(items)
            state = SegmentState(page.next_start, page.next_start is None, totals.as_json())
            self.journal.save_segment(self.run, number, state, self._untraced(items))
        return totals

    def _is_left_alone(self, item: Item) -> bool:
        return self._table.is_hidden(item) or self.direct.has(item, self._table)

    def _count(self, items: Sequence[Item]) -> ScanTotals:
        counts: Counter[tuple[str, str]] = Counter()
        sums: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
        for item in items:
            entity = str(item.get(self._table.source_attribute, "")).partition(":")[0]
            type_ = str(item.get(self._table.type_attribute, ""))
            counts[entity, type_] += 1
            for name, value in item.items():
                if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
                    added = _EXACT.add(sums[entity, type_, name], Decimal(value))
                    sums[entity, type_, name] = added
        return ScanTotals(len(items), counts, sums)

    def _untraced(self, items: Sequence[Item]) -> list[Finding]:
        """A finding for each item that no row says there should be."""
        findings: list[Finding] = []
        by_entity: dict[str, list[tuple[SourceKey, Item]]] = defaultdict(list)
        for item in items:
            try:
                name, key = split_source(str(item.get(self._table.source_attribute, "")))
            except ValueError:
                findings.append(
                    self._finding("foreign", "", item, "it has no _src: migrator did not write it")
                )
                continue
            by_entity[name].append((key, item))
        for name, traced in by_entity.items():
            findings += self._unexpected(name, traced)
        return findings

    def _unexpected(self, name: str, traced: Sequence[tuple[SourceKey, Item]]) -> Iterable[Finding]:
        entity = self.entities.get(name)
        if entity is None:
            for _, item in traced:
                yield self._finding("unexpected", name, item, "the mapping has no such entity")
            return
        wanted = self._wanted_keys(entity, sorted({key for key, _ in traced}))
        for key, item in traced:
            if key not in wanted:
                yield self._finding("unexpected", name, item, "its row is not there", key)
            elif self._table.key_of(item) not in wanted[key]:
                yield self._finding("unexpected", name, item, "its row makes no such item", key)

    def _wanted_keys(
        self, entity: CompiledEntity, keys: Sequence[SourceKey]
    ) -> dict[SourceKey, set[ItemKey]]:
        """Per row that is there, the keys of the items that it makes (expired ones too)."""
        wanted: dict[SourceKey, set[ItemKey]] = {}
        for row in self.source.read_rows(entity.plan, keys):
            try:
                made = items_for(entity, row)
            except RowError:
                made = []
            wanted[entity.source_key(row)] = {self._table.key_of(item) for item in made}
        return wanted

    def _finding(
        self, kind: FindingKind, entity: str, item: Item, reason: str, key: SourceKey = ""
    ) -> Finding:
        table = self._table
        shown = key_text(table, item) if all(part.name in item for part in table.key) else encode_key(["?"])
        return Finding(kind, entity, reason, key, shown, item_type=str(item.get(table.type_attribute, "")))

    @property
    def _table(self) -> TableDesign:
        return next(iter(self.entities.values())).table
