"""Comparison of a row's items with the stored ones, and the re-check of differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.items import CompiledEntity, Projection, key_text, project
from migrator.mapping.model.edges import ItemStore, ObjectStore, Rows
from migrator.mapping.model.journal import Finding, FindingKind, Run
from migrator.mapping.model.live import Root
from migrator.mapping.model.table import Item, ItemKey, SourceKey, TableDesign, item_key_of, source_named
from migrator.mapping.patterns.diff import differences
from migrator.runtime.values import replace


def compare_item(entity: CompiledEntity, expected: Item, stored: Mapping[ItemKey, Item]) -> list[Finding]:
    table = entity.table
    item = stored.get(table.key_of(expected))
    if item is None or table.is_hidden(item):
        return [_finding("missing", entity, expected, "no item is stored under this key")]
    owner = item.get(table.source_attribute)
    if owner != expected[table.source_attribute] and isinstance(owner, str):
        row = source_named(owner)
        reason = f"the item under this key is that of {row or 'another writer'}"
        return [replace(_finding("collision", entity, expected, reason), owner=row)]
    ignored = frozenset({table.ticket_attribute, table.revision_attribute, *table.kept})
    differing = {one.attribute: one.kind for one in differences(expected, item, ignored)}
    whys = {"type": "the attribute's type differs", "value": "the attribute's value differs"}
    return [
        _finding("different", entity, expected, whys.get(kind, f"the attribute is {kind}"), attribute)
        for attribute, kind in differing.items()
    ]


def missing_objects(
    entity: CompiledEntity, projected: Projection[Item], objects: ObjectStore | None
) -> list[Finding]:
    if not projected.objects or objects is None:
        return []
    sizes = objects.sizes(list(projected.objects))
    gone = {name for name, data in projected.objects.items() if sizes.get(name) != len(data)}
    return [
        _finding("missing", entity, item, f"the object {name} that an item points to is not in S3")
        for item in (projected.items if gone else ())
        for name in dict.fromkeys(_pointers(item))
        if name in gone
    ]


def _pointers(item: Item) -> Iterator[str]:
    return (str(value["s3"]) for value in item.values() if isinstance(value, dict) and "s3" in value)


def _finding(kind: str, entity: CompiledEntity, item: Item, reason: str, attribute: str = "") -> Finding:
    source = str(item[entity.table.source_attribute])
    return Finding(
        kind=kind,  # type: ignore[arg-type]
        entity=entity.name,
        reason=reason,
        source_key=source.partition(":")[2],
        item_key=key_text(entity.table, item),
        attribute=attribute,
        item_type=entity.table.type_of(item),
    )


# ── Differences checked again ──


LOOKED_AT: tuple[FindingKind, ...] = ("missing", "different", "collision", "unexpected")
"""Kinds of findings that name a row, and an item unless several rows have its key."""
_AT_ONCE = 200


class Recheck(Struct, frozen=True):
    """Compares every row with a finding again, and drops findings that no longer hold."""

    source: Rows
    store: ItemStore
    journal: SqlJournal
    entities: Mapping[str, CompiledEntity]
    table: TableDesign
    clock: Callable[[], float]
    objects: ObjectStore | None = None

    def confirm(self, run: Run) -> dict[Root, set[ItemKey]]:
        keys_of_root: dict[Root, set[ItemKey]] = defaultdict(set)
        before: dict[Root, list[Finding]] = defaultdict(list)
        for finding in self.journal.findings(run):
            if finding.kind in LOOKED_AT and finding.entity in self.entities and finding.source_key:
                root = (finding.entity, finding.source_key)
                keys = keys_of_root[root]
                if finding.item_key:
                    keys.add(item_key_of(finding.item_key, self.table))
                before[root].append(finding)
        confirmed: dict[Root, set[ItemKey]] = {}
        for name, entity in self.entities.items():
            roots = [root for root in keys_of_root if root[0] == name]
            for start in range(0, len(roots), _AT_ONCE):
                page = {root: keys_of_root[root] for root in roots[start : start + _AT_ONCE]}
                still = {(one.entity, one.source_key) for one in self._look(entity, page)}
                self._forget(run, [one for root in page if root not in still for one in before[root]])
                confirmed |= {root: keys for root, keys in page.items() if root in still}
        return confirmed

    def _look(self, entity: CompiledEntity, keys_of_root: Mapping[Root, set[ItemKey]]) -> list[Finding]:
        rows = self.source.read_rows(entity.plan, [key for _, key in keys_of_root])
        projected = project(entity, rows, self.clock())
        expected: dict[SourceKey, dict[ItemKey, Item]] = defaultdict(dict)
        for item in projected.items:
            key = str(item[self.table.source_attribute]).partition(":")[2]
            expected[key][self.table.key_of(item)] = item
        keys_to_read = set[ItemKey]().union(*keys_of_root.values(), *expected.values())
        stored = self.store.get(sorted(keys_to_read, key=repr))
        findings = [finding for item in projected.items for finding in compare_item(entity, item, stored)]
        findings += missing_objects(entity, projected, self.objects)
        gone = {self.table.key_of(item) for item in projected.expired}
        for root, keys in keys_of_root.items():
            stale = keys - expected[root[1]].keys() - gone
            findings += [finding for key in stale if (finding := self._stale(root, key, stored.get(key)))]
        return findings

    def _stale(self, root: Root, key: ItemKey, item: Item | None) -> Finding | None:
        own = f"{root[0]}:{root[1]}"
        if item is None or self.table.is_hidden(item) or item.get(self.table.source_attribute) != own:
            return None
        return Finding("unexpected", root[0], "", root[1])

    def _forget(self, run: Run, gone: Sequence[Finding]) -> None:
        keys: dict[FindingKind, list[str]] = defaultdict(list)
        for finding in gone:
            keys[finding.kind].append(finding.item_key)
        for kind, item_keys in keys.items():
            self.journal.drop_findings(run, kind, item_keys)
