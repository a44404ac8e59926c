"""Rows as the JSON of DynamoDB's items: by an entity's program, and by items_for() for the rest.

The native executor (_native.pyx) makes the same JSON without the dicts in between. It leaves values that its
operations do not accept, and refusals, to items_for(); without a compiler, all items.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import orjson
from msgspec import Struct

from migrator.mapping.items.items import (
    CompiledEntity,
    Projection,
    items_for,
    objects_for,
    row_key,
    stamp,
)
from migrator.mapping.items.native import _native
from migrator.mapping.items.program import Program, compile_program
from migrator.mapping.items.wire import base64_text, decode_item, encode_sized, number_bytes, text_bytes
from migrator.mapping.model.edges import RawPage, WiredItem
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.table import (
    ITEM_BYTES,
    EncodedItem,
    Item,
    RowTree,
    TableDesign,
    encode_key,
)
from migrator.runtime.errors import RowError

Row: TypeAlias = tuple[Any, ...]
"""A row tree, or a row with raw texts at the places of `Encoder.raw`."""

Left: TypeAlias = Callable[[Row], None]
"""Takes a row that the native executor leaves."""

_LEAVING = (RowError, TypeError, ValueError, AttributeError, ArithmeticError, LookupError)
"""Errors of a program's functions for bad values. UnicodeError is a ValueError."""


def _executable(program: Program) -> _native.Program | None:
    if _native is None:
        return None
    key = (f"{program.entity}:".encode(), program.key_place, program.key_places, encode_key)
    items = tuple((item.type, item.when, tuple(map(_operation, item.operations))) for item in program.items)
    return _native.Program(program.columns, key, items, EncodedItem, _LEAVING, ITEM_BYTES)


def _operation(operation: tuple[Any, ...]) -> tuple[Any, ...]:
    more = tuple(_executable(one) if isinstance(one, Program) else one for one in operation[3])
    return (*operation[:3], more)


class Encoder(Struct, frozen=True):
    """`program`: or why items_for() makes all items.
    `native`: the program's executor, if installed.
    """

    entity: CompiledEntity
    program: Program | str
    native: _native.Program | None

    @property
    def raw(self) -> frozenset[int]:
        return frozenset() if isinstance(self.program, str) or self.native is None else self.program.raw


EncodedPage: TypeAlias = Projection[EncodedItem]


def encode_page(encoder: Encoder, page: RawPage, ticket: int, now_s: float) -> EncodedPage:
    """Items with their ticket; a row that items_for() refuses is a finding, and the others continue."""
    items: list[EncodedItem] = []
    left, refused, objects = _by_reference(encoder.entity, page, ticket, items.append)
    if encoder.native is not None and page.raw == encoder.raw:
        encoder.native.encode(page.rows, ticket, *_ending(encoder.entity, ticket), items, left)
    else:
        for row in page.rows:
            left(row)
    expired = []
    if encoder.entity.table.ttl is not None:
        expired = [item for item in items if _has_expired(item, now_s)]
        if expired:
            items = [item for item in items if not _has_expired(item, now_s)]
    return EncodedPage(len(page.rows), items, expired, refused, objects)


def _has_expired(item: EncodedItem, now_s: float) -> bool:
    return item.expiry is not None and item.expiry <= now_s


class PutTexts(Sequence[EncodedItem]):
    """Items as the text of the puts that BatchWriteItem takes: a slice is a part of that text. No two have one key.

    A single item is read from its JSON. `sizes`: in bytes.
    """

    def __init__(self, puts: _native.PutBuffer, table: TableDesign, numbers: range) -> None:
        self._puts = puts
        self._table = table
        self._numbers = numbers

    @property
    def sizes(self) -> list[int]:
        return self._puts.sizes[self._numbers.start : self._numbers.stop]

    def json(self) -> bytes:
        return self._puts.batch(self._numbers.start, self._numbers.stop)

    def inserts(self, head_of: Callable[[bytes], bytes | None]) -> bytes | None:
        """The same items as JSON of INSERT statements. `head_of`: of the JSON of an item's names, the JSON before its
        values; None, here too, if the statement would be too long.
        """
        return self._puts.inserts(self._numbers.start, self._numbers.stop, head_of)

    def digests(self, digester: _native.Digester) -> bytes:
        """Eight bytes of each item."""
        return digester.puts(self._puts, self._numbers.start, self._numbers.stop)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return PutTexts(self._puts, self._table, self._numbers[number])
        at = self._numbers[number]
        put = orjson.loads(self._puts.batch(at, at + 1))["PutRequest"]
        return encoded_of(decode_item(put["Item"]), self._table)


def sizes_of(items: Sequence[tuple[Any, ...]]) -> list[int]:
    """Bytes of EncodedItems, or of tuples that begin as they do."""
    return items.sizes if isinstance(items, PutTexts) else [item[2] for item in items]


def encode_puts(encoder: Encoder, page: RawPage, ticket: int, now_s: float) -> EncodedPage:
    """As encode_page, with PutTexts if the native executor makes the items and no two have the same key."""
    if encoder.native is None or page.raw != encoder.raw:
        return encode_page(encoder, page, ticket, now_s)
    puts, expired, table = _native.PutBuffer(), _native.PutBuffer(), encoder.entity.table

    def keep(item: EncodedItem) -> None:
        (expired if _has_expired(item, now_s) else puts).add(item.key, item.json, item.size_bytes)

    left, refused, objects = _by_reference(encoder.entity, page, ticket, keep)
    encoder.native.puts(page.rows, now_s, *_ending(encoder.entity, ticket), puts, expired, left)
    if not puts.is_distinct:
        return encode_page(encoder, page, ticket, now_s)
    made, late = (PutTexts(texts, table, range(len(texts))) for texts in (puts, expired))
    return EncodedPage(len(page.rows), made, late, refused, objects)


def _ending(entity: CompiledEntity, ticket: int) -> tuple[bytes, int]:
    name = entity.table.ticket_attribute
    end = f',{json.dumps(name, ensure_ascii=False)}:{{"N":"{ticket}"}}}}'
    return end.encode(), text_bytes(name) + number_bytes(ticket)


def _by_reference(
    entity: CompiledEntity, page: RawPage, ticket: int, keep: Callable[[EncodedItem], None]
) -> tuple[Left, list[Finding], dict[str, bytes]]:
    """What takes the rows that items_for() makes, and the lists of refused rows and of objects that it fills."""
    refused: list[Finding] = []
    objects: dict[str, bytes] = {}

    def left(row: Row) -> None:
        tree = page.whole(row)
        try:
            made = _encoded(entity, tree, ticket)
            objects.update(objects_for(entity, tree))
        except RowError as error:
            refused.append(Finding("refused", entity.name, str(error), row_key(entity, tree)))
        else:
            for item in made:
                keep(item)

    return left, refused, objects


def _encoded(entity: CompiledEntity, row: RowTree, ticket: int) -> list[EncodedItem]:
    items = items_for(entity, row)
    stamp(items, entity.table, ticket)
    return [encoded_of(item, entity.table) for item in items]


def encoded_of(item: Item, table: TableDesign) -> EncodedItem:
    """Raises: RowError naming the attribute if a value has no DynamoDB type."""
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


def names_and_values(encoded: EncodedItem) -> tuple[bytes, bytes]:
    """The item's attributes and their values, as JSON lists without brackets."""
    if _native is not None:
        return _native.names_and_values(encoded.json)
    wired = orjson.loads(encoded.json)
    return orjson.dumps(list(wired))[1:-1], orjson.dumps(list(wired.values()))[1:-1]


def items_in(text: bytes) -> Iterable[WiredItem]:
    """Items in JSON with commas between them, parsed one by one.

    Thousands parsed at once have left the processor's cache before they are used, which takes three times as long.
    Raises: ValueError for text that is not JSON.
    """
    if _native is None:
        return orjson.loads(b"[%b]" % text)
    return map(orjson.loads, _native.objects(text))


def item_of(encoded: EncodedItem) -> Item:
    return decode_item(orjson.loads(encoded.json))


def compile_encoder(entity: CompiledEntity, offered: AbstractSet[int] = frozenset()) -> Encoder:
    """Compile the encoder. `offered`: places of rows that can be read raw."""
    program = compile_program(entity.mapping, entity.plan, offered)
    return Encoder(entity, program, None if isinstance(program, str) else _executable(program))
