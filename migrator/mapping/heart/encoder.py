"""Rows as the JSON of DynamoDB's items: a function generated for each entity, and items_for() for what it has no code for.

The generated function makes what `encode_item(items_for(entity, row))` makes, without the dicts in between. It raises for
every value that it has no code for, and that row goes through `items_for`, which also says why a row is refused. Its text
holds names and constants of the mapping, never a value of a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from migrator.mapping.heart.encoder_text import FunctionText
from migrator.mapping.heart.encoder_values import base64_text
from migrator.mapping.heart.items import (
    CompiledEntity,
    items_for,
    row_key,
    stamp,
    watched_names,
)
from migrator.mapping.heart.wire import encode_sized, number_bytes, text_bytes
from migrator.model.edges import RawPage
from migrator.model.errors import RowError
from migrator.model.journal import Finding
from migrator.model.table import (
    ItemKey,
    RowTree,
)

EncodedItem: TypeAlias = tuple[ItemKey, bytes, int, int | None]
"""An item's key, its attributes as JSON in DynamoDB's form, its bytes, and when it expires (epoch seconds)."""

Row: TypeAlias = tuple[Any, ...]
"""A row tree, or a row with raw texts at the places of `Encoder.raw`."""

Left: TypeAlias = Callable[[Row], None]
Encode: TypeAlias = Callable[[Sequence[Row], str, int, list[EncodedItem], Left], None]
"""Of rows, the JSON that ends an item (its ticket), the bytes of that, where to put the items, and what takes a row that it
has no code for."""


@dataclass(frozen=True)
class Encoder:
    """An entity's generated function. `raw`: the places of its rows that are to be read raw. `code`: its text."""

    entity: CompiledEntity
    encode: Encode
    raw: frozenset[int]
    code: str


@dataclass(frozen=True)
class EncodedPage:
    """What a page's rows became. `expired`: how many items were left out because their TTL has passed."""

    rows: int
    items: list[EncodedItem]
    expired: int
    refused: list[Finding]


def encode_page(encoder: Encoder, page: RawPage, ticket: int, now_s: float) -> EncodedPage:
    """The items of the rows, with their ticket; a row that items_for() refuses is a finding, and the others go on."""
    entity = encoder.entity
    end, end_bytes = _ending(entity, ticket)
    items: list[EncodedItem] = []
    refused: list[Finding] = []

    def left(row: Row) -> None:
        tree = page.whole(row)
        try:
            items.extend(_by_reference(entity, tree, ticket))
        except RowError as error:
            refused.append(Finding("refused", entity.name, str(error), row_key(entity, tree)))

    if page.raw == encoder.raw:
        encoder.encode(page.rows, end, end_bytes, items, left)
    else:
        for row in page.rows:
            left(row)
    if entity.table.ttl is None:
        return EncodedPage(len(page.rows), items, 0, refused)
    kept = [item for item in items if item[3] is None or item[3] > now_s]
    return EncodedPage(len(page.rows), kept, len(items) - len(kept), refused)


def encode_rows(
    encoder: Encoder, page: RawPage, ticket: int, now_s: float
) -> Iterator[tuple[Row, list[EncodedItem], Finding | None]]:
    """Of each row by itself its items, with their ticket, and why it has none where items_for() refuses it."""
    entity = encoder.entity
    end, end_bytes = _ending(entity, ticket)
    items: list[EncodedItem] = []
    refused: list[Finding] = []

    def left(row: Row) -> None:
        tree = page.whole(row)
        try:
            items.extend(_by_reference(entity, tree, ticket))
        except RowError as error:
            refused.append(Finding("refused", entity.name, str(error), row_key(entity, tree)))

    for row in page.rows:
        items, refused = [], []
        if page.raw == encoder.raw:
            encoder.encode((row,), end, end_bytes, items, left)
        else:
            left(row)
        if entity.table.ttl is not None:
            items = [item for item in items if item[3] is None or item[3] > now_s]
        yield row, items, refused[0] if refused else None


def _ending(entity: CompiledEntity, ticket: int) -> tuple[str, int]:
    """The JSON that ends an item, and its bytes in DynamoDB."""
    name = entity.table.ticket_attribute
    return f',{json.dumps(name)}:{{"N":"{ticket}"}}}}', text_bytes(name) + number_bytes(ticket)


def _by_reference(entity: CompiledEntity, row: RowTree, ticket: int) -> Iterator[EncodedItem]:
    items = items_for(entity, row)
    stamp(items, entity.table, ticket)
    for item in items:
        wired, size = encode_sized(item)
        expiry = item.get(entity.table.ttl) if entity.table.ttl else None
        yield (
            entity.table.key_of(item),
            orjson.dumps(wired, default=base64_text),
            size,
            expiry if isinstance(expiry, int) else None,
        )


# ── The generated function ──


def compile_encoder(entity: CompiledEntity, offered: AbstractSet[int] = frozenset()) -> Encoder | None:
    """The encoder of an entity. `offered`: places of its rows that can be read raw.

    None where no code is made for what they need: a transform, objects in S3, plain attributes that are keys of an index.
    """
    plan, mapping, table = entity.plan, entity.mapping, entity.table
    if plan.transformed or plan.entity.transform or entity.contents:
        return None
    if any(watched_names(plan, table, design) for design in plan.entity.items):
        return None
    text = FunctionText(mapping, plan, offered)
    if not text.code:
        return None
    names = dict(text.names)
    exec(compile(text.code, f"<items of {entity.name}>", "exec"), names)
    return Encoder(entity, names["encode"], text.raw, text.code)
