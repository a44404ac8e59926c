"""Rows as the JSON of DynamoDB's items: a function generated for each entity, and items_for() for what it has no code for.

The generated function makes what `encode_item(items_for(entity, row))` makes, without the dicts in between. It raises for
every value that it has no code for, and that row goes through `items_for`, which also says why a row is refused. Its text
holds names and constants of the mapping, never a value of a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from migrator.mapping.items.encoder_text import FunctionText, Orders
from migrator.mapping.items.encoder_values import base64_text
from migrator.mapping.items.items import (
    CompiledEntity,
    items_for,
    objects_for,
    row_key,
    stamp,
    watched_names,
)
from migrator.mapping.items.wire import decode_item, encode_sized, number_bytes, text_bytes
from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.table import (
    EncodedItem,
    Item,
    RowTree,
    TableDesign,
)
from migrator.runtime.errors import RowError

Row: TypeAlias = tuple[Any, ...]
"""A row tree, or a row with raw texts at the places of `Encoder.raw`."""

Left: TypeAlias = Callable[[Row], None]
Encode: TypeAlias = Callable[[Sequence[Row], int, str, int, list[EncodedItem], Left], None]
"""Of rows, their ticket, the JSON that ends an item (its ticket), by how much its bytes are more than that, where to put the
items, and what takes a row that it has no code for."""


@dataclass(frozen=True)
class Encoder:
    """What makes an entity's items. `raw`: the places of its rows that are to be read raw. `code`: the text of its generated
    function; '' if items_for() makes all of its items."""

    entity: CompiledEntity
    encode: Encode
    raw: frozenset[int] = frozenset()
    code: str = ""


@dataclass(frozen=True)
class EncodedPage:
    """What a page's rows became. `expired`: items that are left out because their TTL has passed. `objects`: what items only
    point to, by name."""

    rows: int
    items: list[EncodedItem]
    expired: list[EncodedItem]
    refused: list[Finding]
    objects: dict[str, bytes]


def encode_page(encoder: Encoder, page: RawPage, ticket: int, now_s: float) -> EncodedPage:
    """The items of the rows, with their ticket; a row that items_for() refuses is a finding, and the others go on."""
    entity = encoder.entity
    end, more = _ending(entity, ticket)
    encoded = EncodedPage(len(page.rows), [], [], [], {})
    items = encoded.items

    def left(row: Row) -> None:
        tree = page.whole(row)
        try:
            made = _by_reference(entity, tree, ticket)
            encoded.objects.update(objects_for(entity, tree))
            items.extend(made)
        except RowError as error:
            encoded.refused.append(Finding("refused", entity.name, str(error), row_key(entity, tree)))

    if page.raw == encoder.raw:
        encoder.encode(page.rows, ticket, end, more, items, left)
    else:
        leave(page.rows, ticket, end, more, items, left)
    if entity.table.ttl is not None:
        encoded.expired[:] = (item for item in items if item.expiry is not None and item.expiry <= now_s)
        if encoded.expired:
            items[:] = (item for item in items if item.expiry is None or item.expiry > now_s)
    return encoded


def leave(
    rows: Sequence[Row], ticket: int, end: str, more: int, items: list[EncodedItem], left: Left
) -> None:
    """Leaves all rows to items_for()."""
    for row in rows:
        left(row)


def _ending(entity: CompiledEntity, ticket: int) -> tuple[str, int]:
    """The JSON that ends an item, and how many bytes DynamoDB counts for it beyond those of the text."""
    name = entity.table.ticket_attribute
    end = f',{json.dumps(name)}:{{"N":"{ticket}"}}}}'
    return end, text_bytes(name) + number_bytes(ticket) - len(end.encode())


def _by_reference(entity: CompiledEntity, row: RowTree, ticket: int) -> list[EncodedItem]:
    items = items_for(entity, row)
    stamp(items, entity.table, ticket)
    return [encoded_of(item, entity.table) for item in items]


def encoded_of(item: Item, table: TableDesign) -> EncodedItem:
    """The item as it is written. Raises: RowError naming the attribute if a value has no DynamoDB type."""
    wired, size_bytes = encode_sized(item)
    expiry, ticket = item.get(table.ttl) if table.ttl else None, item.get(table.ticket_attribute)
    return EncodedItem(
        table.key_of(item),
        orjson.dumps(wired, default=base64_text),
        size_bytes,
        expiry if isinstance(expiry, int) else None,
        str(item.get(table.type_attribute, "")),
        str(item.get(table.source_attribute, "")),
        ticket if isinstance(ticket, int) else 0,
    )


def item_of(encoded: EncodedItem) -> Item:
    """The item as plain values."""
    return decode_item(orjson.loads(encoded.json))


# ── Items as text alone, in an order of attributes that is asked for ──

EncodedText: TypeAlias = tuple[bytes, int | None]
"""An item as JSON without the braces and the quotation mark around it, and when it expires. Its ticket is 0."""


@dataclass(frozen=True)
class TextEncoder:
    """As Encoder. `may_have_maps`: whether its items may hold maps beside those of lists, which are in no certain order;
    `names_in_lists`: those of the maps of lists, by type and list."""

    entity: CompiledEntity
    encode: Callable[[Sequence[Row], list[EncodedText], Left], None]
    raw: frozenset[int]
    orders: Orders
    may_have_maps: bool
    names_in_lists: Orders


@dataclass(frozen=True)
class EncodedTexts:
    """What a page's rows became, items whose TTL has passed among it."""

    items: list[EncodedText]
    refused: list[Finding]


def encode_texts(encoder: TextEncoder, page: RawPage) -> EncodedTexts:
    """The items of the rows as text; a row that items_for() refuses is a finding, and the others go on."""
    entity, items, refused = encoder.entity, list[EncodedText](), list[Finding]()

    def left(row: Row) -> None:
        tree = page.whole(row)
        try:
            for item in _by_reference(entity, tree, 0):
                wired = orjson.loads(item.json)
                items.append((text_in_order(wired, item.type, encoder.orders), item.expiry))
        except RowError as error:
            refused.append(Finding("refused", entity.name, str(error), row_key(entity, tree)))

    if page.raw == encoder.raw:
        encoder.encode(page.rows, items, left)
    else:
        for row in page.rows:
            left(row)
    return EncodedTexts(items, refused)


def text_in_order(wired: dict[str, Any], type_: str, orders: Orders) -> bytes:
    """The text of an item of this type with all names in order."""
    for where, order in orders.items():
        if where[0] == type_ and len(where) == 2 and "L" in wired.get(where[1], ()):
            wired[where[1]]["L"] = [
                {"M": _in_order(child["M"], order)} if "M" in child else child
                for child in wired[where[1]]["L"]
            ]
    return orjson.dumps(_in_order(wired, orders.get((type_,), ())), default=base64_text)[2:-2]


def _in_order(values: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    first: dict[str, Any] = {name: values[name] for name in order if name in values}
    return first | values if len(first) < len(values) else first


def compile_texts(entity: CompiledEntity, offered: AbstractSet[int], orders: Orders) -> TextEncoder | None:
    """As `compile_encoder`."""
    text = _function(entity, offered, orders)
    if text is None:
        return None
    return TextEncoder(
        entity, _executed(entity, text), text.raw, orders, text.may_have_maps, text.names_in_lists
    )


# ── The generated function ──


def compile_encoder(entity: CompiledEntity, offered: AbstractSet[int] = frozenset()) -> Encoder:
    """The encoder of an entity. `offered`: places of its rows that can be read raw.

    items_for() makes all items if no code is made for what they need: a transform, objects in S3, plain attributes that
    are keys of an index.
    """
    text = _function(entity, offered, None)
    if text is None:
        return Encoder(entity, leave)
    return Encoder(entity, _executed(entity, text), text.raw, text.code)


def _function(
    entity: CompiledEntity, offered: AbstractSet[int], orders: Orders | None
) -> FunctionText | None:
    plan, mapping, table = entity.plan, entity.mapping, entity.table
    if plan.transformed or plan.entity.transform or entity.contents:
        return None
    if any(watched_names(plan, table, design) for design in plan.entity.items):
        return None
    text = FunctionText(mapping, plan, offered, orders)
    return text if text.code else None


def _executed(entity: CompiledEntity, text: FunctionText) -> Any:
    names = dict(text.names)
    exec(compile(text.code, f"<items of {entity.name}>", "exec"), names)
    return names["encode"]
