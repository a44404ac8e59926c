"""Re-check of differences: while a service writes, the row or the item may simply have been in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migrator.mapping.heart.items import CompiledEntity
from migrator.model.edges import ItemStore, ObjectStore, Rows
from migrator.model.journal import Finding, FindingKind, Journal, Run
from migrator.model.keys import item_key_of
from migrator.model.live import Root
from migrator.model.table import Item, ItemKey, SourceKey, TableDesign
from migrator.stages.projection import project
from migrator.stages.verify.stage import compare_item, missing_objects

LOOKED_AT: tuple[FindingKind, ...] = ("missing", "different", "collision", "unexpected")
"""Kinds of findings that name a row and an item."""
_AT_ONCE = 200


@dataclass(frozen=True)
class Recheck:
    """Looks again at every row that a finding names, and forgets what is no difference any more."""

    source: Rows
    store: ItemStore
    journal: Journal
    entities: Mapping[str, CompiledEntity]
    table: TableDesign
    clock: Callable[[], float]
    objects: ObjectStore | None = None

    def confirm(self, run: Run) -> dict[Root, set[ItemKey]]:
        """Rows that still differ from their items, with the item keys in question."""
        told: dict[Root, set[ItemKey]] = defaultdict(set)
        before: dict[Root, list[Finding]] = defaultdict(list)
        for finding in self.journal.findings(run):
            if finding.kind in LOOKED_AT and finding.entity in self.entities and finding.source_key:
                root = (finding.entity, finding.source_key)
                told[root].add(item_key_of(finding.item_key, self.table))
                before[root].append(finding)
        confirmed: dict[Root, set[ItemKey]] = {}
        for name, entity in self.entities.items():
            roots = [root for root in told if root[0] == name]
            for start in range(0, len(roots), _AT_ONCE):
                page = {root: told[root] for root in roots[start : start + _AT_ONCE]}
                found = self._look(entity, page)
                self._forget(run, [one for root in page for one in before[root]], found)
                confirmed |= {root: told[root] for root in page if (name, root[1]) in _roots(found)}
        return confirmed

    def _look(self, entity: CompiledEntity, told: Mapping[Root, set[ItemKey]]) -> list[Finding]:
        rows = self.source.read_rows(entity.plan, [key for _, key in told])
        projected = project(entity, rows, self.clock())
        expected: dict[SourceKey, dict[ItemKey, Item]] = defaultdict(dict)
        for item in projected.items:
            key = str(item[self.table.source_attribute]).partition(":")[2]
            expected[key][self.table.key_of(item)] = item
        asked = {key for keys in told.values() for key in keys} | {
            key for items in expected.values() for key in items
        }
        stored = self.store.get(sorted(asked, key=repr))
        found = [one for item in projected.items for one in compare_item(entity, item, stored)]
        found += missing_objects(entity, projected, self.objects)
        gone = {self.table.key_of(item) for item in projected.expired}
        for root, keys in told.items():
            stale = keys - expected[root[1]].keys() - gone
            found += [one for key in stale if (one := self._stale(root, key, stored.get(key)))]
        return found

    def _stale(self, root: Root, key: ItemKey, item: Item | None) -> Finding | None:
        """A finding where the item is the root's, and no row says that there should be one."""
        own = f"{root[0]}:{root[1]}"
        if item is None or self.table.is_hidden(item) or item.get(self.table.source_attribute) != own:
            return None
        return Finding("unexpected", root[0], "", root[1])

    def _forget(self, run: Run, before: Sequence[Finding], found: Sequence[Finding]) -> None:
        still = _roots(found)
        gone: dict[FindingKind, list[str]] = defaultdict(list)
        for finding in before:
            if (finding.entity, finding.source_key) not in still:
                gone[finding.kind].append(finding.item_key)
        for kind, keys in gone.items():
            self.journal.drop_findings(run, kind, keys)


def _roots(found: Sequence[Finding]) -> set[Root]:
    return {(one.entity, one.source_key) for one in found}
