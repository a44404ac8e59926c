"""Re-check of differences found by verify: while a service writes, a row or an item may have been in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.items import CompiledEntity, project
from migrator.mapping.model.edges import ItemStore, ObjectStore, Rows
from migrator.mapping.model.journal import Finding, FindingKind, Run
from migrator.mapping.model.live import Root
from migrator.mapping.model.table import Item, ItemKey, SourceKey, TableDesign, item_key_of
from migrator.stages.verify.page_check import compare_item, missing_objects

LOOKED_AT: tuple[FindingKind, ...] = ("missing", "different", "collision", "unexpected")
"""Kinds of findings that name a row and an item."""
_AT_ONCE = 200


@dataclass(frozen=True)
class Recheck:
    """Compares every row that a finding names again, and drops findings that no longer hold."""

    source: Rows
    store: ItemStore
    journal: SqlJournal
    entities: Mapping[str, CompiledEntity]
    table: TableDesign
    clock: Callable[[], float]
    objects: ObjectStore | None = None

    def confirm(self, run: Run) -> dict[Root, set[ItemKey]]:
        """Rows that still differ from their items, with the item keys in question."""
        keys_of_root: dict[Root, set[ItemKey]] = defaultdict(set)
        before: dict[Root, list[Finding]] = defaultdict(list)
        for finding in self.journal.findings(run):
            if finding.kind in LOOKED_AT and finding.entity in self.entities and finding.source_key:
                root = (finding.entity, finding.source_key)
                keys_of_root[root].add(item_key_of(finding.item_key, self.table))
                before[root].append(finding)
        confirmed: dict[Root, set[ItemKey]] = {}
        for name, entity in self.entities.items():
            roots = [root for root in keys_of_root if root[0] == name]
            for start in range(0, len(roots), _AT_ONCE):
                page = {root: keys_of_root[root] for root in roots[start : start + _AT_ONCE]}
                found_findings = self._look(entity, page)
                self._forget(
                    run, [finding_before for root in page for finding_before in before[root]], found_findings
                )
                confirmed |= {
                    root: keys_of_root[root] for root in page if (name, root[1]) in _roots(found_findings)
                }
        return confirmed

    def _look(self, entity: CompiledEntity, keys_of_root: Mapping[Root, set[ItemKey]]) -> list[Finding]:
        rows = self.source.read_rows(entity.plan, [key for _, key in keys_of_root])
        projected = project(entity, rows, self.clock())
        expected: dict[SourceKey, dict[ItemKey, Item]] = defaultdict(dict)
        for item in projected.items:
            key = str(item[self.table.source_attribute]).partition(":")[2]
            expected[key][self.table.key_of(item)] = item
        keys_to_read = {key for keys in keys_of_root.values() for key in keys} | {
            key for items in expected.values() for key in items
        }
        stored = self.store.get(sorted(keys_to_read, key=repr))
        findings = [finding for item in projected.items for finding in compare_item(entity, item, stored)]
        findings += missing_objects(entity, projected, self.objects)
        gone = {self.table.key_of(item) for item in projected.expired}
        for root, keys in keys_of_root.items():
            stale = keys - expected[root[1]].keys() - gone
            findings += [finding for key in stale if (finding := self._stale(root, key, stored.get(key)))]
        return findings

    def _stale(self, root: Root, key: ItemKey, item: Item | None) -> Finding | None:
        """A finding if the item belongs to the root, but no row makes it any more."""
        own = f"{root[0]}:{root[1]}"
        if item is None or self.table.is_hidden(item) or item.get(self.table.source_attribute) != own:
            return None
        return Finding("unexpected", root[0], "", root[1])

    def _forget(self, run: Run, before: Sequence[Finding], findings_now: Sequence[Finding]) -> None:
        still = _roots(findings_now)
        gone: dict[FindingKind, list[str]] = defaultdict(list)
        for finding in before:
            if (finding.entity, finding.source_key) not in still:
                gone[finding.kind].append(finding.item_key)
        for kind, keys in gone.items():
            self.journal.drop_findings(run, kind, keys)


def _roots(findings: Sequence[Finding]) -> set[Root]:
    return {(finding.entity, finding.source_key) for finding in findings}
