"""Rows of a page as items and refusals: what every stage does before it writes or compares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrator.errors import RowError
from migrator.mapping.items import CompiledEntity, items_for, objects_for
from migrator.mapping.keys import item_key_text
from migrator.model import Item, RowTree, TableDesign
from migrator.ports import Finding


@dataclass(frozen=True)
class Projection:
    """Items of a page's rows, in the rows' order, and the objects that they point to. `expired` items are left out."""

    rows: int
    items: list[Item]
    expired: list[Item]
    refused: list[Finding]
    objects: dict[str, bytes]


def project(entity: CompiledEntity, rows: Sequence[RowTree], now_s: float) -> Projection:
    """The items of `rows`; a row that the heart refuses is a finding, and the others go on."""
    items: list[Item] = []
    expired: list[Item] = []
    refused: list[Finding] = []
    objects: dict[str, bytes] = {}
    for row in rows:
        try:
            made = items_for(entity, row)
            objects |= objects_for(entity, row)
        except RowError as error:
            refused.append(Finding("refused", entity.name, str(error), row_key(entity, row)))
            continue
        for item in made:
            (expired if is_expired(item, entity.table, now_s) else items).append(item)
    return Projection(len(rows), items, expired, refused, objects)


def is_expired(item: Item, table: TableDesign, now_s: float) -> bool:
    """Whether the item's TTL has passed. Such an item is clean present or absent: DynamoDB deletes late."""
    expiry = item.get(table.ttl) if table.ttl else None
    return isinstance(expiry, int) and expiry <= now_s


def key_text(table: TableDesign, item: Item) -> str:
    """The item's key as JSON text, for findings."""
    return item_key_text(table.key_of(item))


def stamp(items: Iterable[Item], table: TableDesign, ticket: int) -> None:
    """Writes the ticket of the reading into each item."""
    for item in items:
        item[table.ticket_attribute] = ticket


def row_key(entity: CompiledEntity, row: RowTree) -> str:
    """The row's key; '' where it holds what no key should."""
    try:
        return entity.source_key(row)
    except TypeError:
        return ""
