"""Item collections by their key: which one is asked for, and the items that rows make in it now."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec import Struct

from migrator.mapping.items.items import CompiledEntity, project
from migrator.mapping.items.scalars import checked_number
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import Item, KeyAttribute, SourceKey, TableDesign, Value
from migrator.mapping.patterns.key_lookups import AskedKey, RowLookup, row_lookups
from migrator.runtime.errors import RowError, SettingsError, UnfitValueError, did_you_mean

ROWS_AT_MOST = 2_000
"""Rows of an entity that are read for one item collection."""

# ── Which collection ──


def asked_key(table: TableDesign, index: str | None, partition: Sequence[str], sort: str = "") -> AskedKey:
    """The collection that texts name, one text for each attribute of the partition key. Raises: SettingsError."""
    design = table.asked(index or None)
    if design is None:
        names = [other.name for other in table.indexes]
        known = f"; there are: {', '.join(names)}" if names else "; the table has none"
        raise SettingsError(f"the table has no index '{index}'{did_you_mean(str(index), names) or known}")
    if len(partition) != len(design.partition):
        named = " ".join(f"--pk {attribute.name.upper()}" for attribute in design.partition)
        what = f"{len(partition)} value(s) for the partition key, which is {_listed(design.partition)}"
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


# ── What rows make in it ──


@dataclass
class Made:
    """Items, each with its entity; `expired` ones are past their TTL. `refused`: rows that may belong to the collection.
    `notes`: entities whose rows were not all looked at."""

    items: list[tuple[str, Item]] = field(default_factory=list)
    expired: list[tuple[str, Item]] = field(default_factory=list)
    refused: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Partitions(Struct, frozen=True):
    """Reads rows, bounded, and makes their items by `items_for`."""

    source: Rows
    mapping: MappingModel
    entities: Sequence[CompiledEntity]
    rows_at_most: int = ROWS_AT_MOST

    def made(
        self, asked: AskedKey, now_s: float, named: Mapping[str, Sequence[SourceKey]] | None = None
    ) -> Made:
        """What rows make in the collection. `named`: rows that are read besides, by entity; of these every item is given."""
        made = Made()
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

    def _rows(self, entity: CompiledEntity, lookup: RowLookup, made: Made) -> dict[SourceKey, Any]:
        most = self.rows_at_most
        if lookup.lookup is None:
            rows = self.source.read_page(entity.plan, None, None, most + 1)
            if len(rows) > most:
                what = f"only the first {most:,} rows of {entity.name} were looked at"
                made.notes.append(f"{what}: the key does not say which rows make it")
            return {entity.source_key(row): row for row in rows[:most]}
        try:
            keys = self.source.find_roots(entity.plan, lookup.lookup, [lookup.values], None, most + 1)
        except UnfitValueError:
            return {}  # the column can hold no such value, so no row does
        if len(keys) > most:
            made.notes.append(
                f"only the first {most:,} rows of {entity.name} that have this key were looked at"
            )
        return self._read(entity, keys[:most])

    def _read(self, entity: CompiledEntity, keys: Sequence[SourceKey]) -> dict[SourceKey, Any]:
        rows = self.source.read_rows(entity.plan, keys) if keys else []
        return {entity.source_key(row): row for row in rows}

    def _kept(
        self, entity: CompiledEntity, items: Sequence[Item], asked: AskedKey, keys: Collection[SourceKey]
    ) -> list[tuple[str, Item]]:
        """Those in the collection, and all of the rows with these keys."""
        source, whole = entity.table.source_attribute, frozenset(keys)
        return [
            (entity.name, item)
            for item in items
            if asked.holds(item) or str(item[source]).partition(":")[2] in whole
        ]
