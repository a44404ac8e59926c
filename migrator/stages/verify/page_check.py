"""One page of a verify: rows read, made into items, compared with those that are stored, and checkpointed; on any host."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.items import CompiledEntity, Projection, key_text, project
from migrator.mapping.model.edges import ItemStore, ObjectStore, Rows
from migrator.mapping.model.journal import Finding, Page, Run, Tally
from migrator.mapping.model.table import Item, ItemKey, source_named
from migrator.mapping.patterns.diff import differences
from migrator.stages.verify.digests import Look, Places, match_rows


@dataclass(frozen=True)
class PageCheck:
    """Pages of one entity of one run, one with each call; called from many threads, and by many processes at once.

    `check` raises when the run has lost its lease. `begin`: returns when the next page may begin. `look`: digests of what is
    stored; without it each item is read by its key.
    """

    source: Rows
    store: ItemStore
    objects: ObjectStore | None
    journal: SqlJournal
    run: Run
    entity: CompiledEntity
    check: Callable[[], None]
    begin: Callable[[], None]
    clock: Callable[[], float]
    look: Look | None

    def __call__(self, page: Page) -> tuple[Page, Tally, int]:
        self.begin()
        started, places = time.monotonic(), array("I")
        entity, look = self.entity, self.look
        encoder = None if look is None else look.encoders.get(entity.name)
        if look is None or encoder is None:
            rows = self.source.read_page(entity.plan, page.after, page.upto)
            projected = project(entity, rows, self.clock())
            refused, differing = projected.refused, self._differing(projected, places)
            items, expired = len(projected.items), len(projected.expired)
        else:
            raw = self.source.read_raw(entity.plan, encoder.raw, page.after, page.upto)
            rows, now_s = raw.rows, self.clock()
            matched = match_rows(encoder, raw, look.scan.digests, now_s, places)
            refused, items, expired = matched.refused, matched.items, matched.expired
            differing = self._differing(project(entity, matched.left, now_s), places)
        different = len({finding.item_key for finding in differing})
        tally = Tally(rows=len(rows), items=items, refused=len(refused), expired=expired, different=different)
        self.check()
        parts = [places.tobytes()] if look is not None and look.is_shared else []
        self.journal.finish_page(self.run, page, tally, [*refused, *differing], parts=parts)
        return page, tally, round((time.monotonic() - started) * 1000)

    def _differing(self, projected: Projection, places: Places) -> list[Finding]:
        """What is found of items that are read by their keys and compared attribute by attribute."""
        entity, look = self.entity, self.look
        expected = projected.items
        if look is not None:
            expected = [item for item in expected if not look.has(item, places)]
            for item in projected.expired:
                look.has(item, places)
        stored = self.store.get([entity.table.key_of(item) for item in expected])
        differing = [finding for item in expected for finding in compare_item(entity, item, stored)]
        return differing + missing_objects(entity, projected, self.objects)


def compare_item(entity: CompiledEntity, expected: Item, stored: Mapping[ItemKey, Item]) -> list[Finding]:
    """A finding for each way in which the stored item is not the expected one."""
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
    return [
        _finding(
            "different",
            entity,
            expected,
            f"the attribute's {difference.kind} differs"
            if difference.kind in ("type", "value")
            else f"the attribute is {difference.kind}",
            difference.attribute,
        )
        for difference in differences(expected, item, ignored)
    ]


def missing_objects(
    entity: CompiledEntity, projected: Projection, objects: ObjectStore | None
) -> list[Finding]:
    """A finding for each object that an item points to and that S3 lacks, or has in another size."""
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
