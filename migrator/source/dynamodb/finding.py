"""Find documents by column values: by the table's key, by an index, else by a scan."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from itertools import chain, repeat, takewhile
from types import NoneType
from typing import Any, Literal

from msgspec import Struct

from migrator.dynamodb.admin import probes
from migrator.dynamodb.tables import DescribedIndex, DescribedTable, TableReader
from migrator.mapping.items.values import Undecodable, checked_number, json_text
from migrator.mapping.items.wire import decode
from migrator.mapping.language.documents import KEY_KINDS, TYPE_NAMES, held_as, key_type
from migrator.mapping.model.edges import ActionProbe, WiredItem
from migrator.mapping.model.facts import Column, TableFacts
from migrator.mapping.model.table import (
    PARTITION_KEY_BYTES,
    SORT_KEY_BYTES,
    Index,
    KeyAttribute,
    SourceKey,
    TableDesign,
    decode_key,
)
from migrator.runtime.errors import MissingNameError, RowError, UnfitValueError
from migrator.runtime.retry import RateLimit, Retry, in_context
from migrator.settings.roles import Rights

# ── Values of documents, by their column's path and declared type; keys made from them ──

Wire = Mapping[str, Any]
"""One value in DynamoDB JSON: {"S": …}."""


def value_of(item: WiredItem, column: Column) -> Any:
    """The column's value for a row tree; sets are sorted lists. None if it, or a map on its path, is missing or
    NULL.

    A value of another type than declared becomes an Undecodable, which refuses the row.
    """
    found = _at(item, column.real)
    if found is None or isinstance(found, Undecodable):
        return found
    (type_,) = found
    if type_ == "NULL":
        return None
    if type_ not in held_as(column.declared):
        what = f"the document has {TYPE_NAMES[type_]} there, and it is declared {column.declared}"
        return Undecodable(None, f"{what}; correct the document, or declare it 'any'")
    value = decode(found)  # type: ignore[arg-type]
    # JSON's decoder parses a text, as SQL sources return one.
    return json_text(value) if column.declared == "json" and isinstance(value, str) else value


def _at(item: WiredItem, path: str) -> Wire | Undecodable | None:
    """An attribute with that whole name takes precedence over a path through maps."""
    if path in item or "." not in path:
        return item.get(path)
    level, names, here = item, path.split("."), ""
    for name in names[:-1]:
        here = f"{here}.{name}" if here else name
        found = level.get(name)
        if found is None or "NULL" in found:
            return None
        if "M" not in found:
            (type_,) = found
            return Undecodable(
                None, f"the document has {TYPE_NAMES[type_]} at '{here}', and no map to look into"
            )
        level = found["M"]
    return level.get(names[-1])


# ── keys ──


def wire_value(value: Any, type_: str, most_bytes: int) -> Wire | None:
    """None for a value that no key holds, such as an empty one: DynamoDB refuses a whole request with it."""
    if type_ == "S" and isinstance(value, str):
        return {"S": value} if 0 < len(value.encode()) <= most_bytes else None
    if type_ == "B" and isinstance(value, (bytes, bytearray, memoryview)):
        return {"B": bytes(value)} if 0 < len(value) <= most_bytes else None
    if type_ == "N" and isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        # Without an exponent, as DynamoDB returns numbers: a server that compares texts also finds the key.
        with suppress(RowError):
            return {"N": format(checked_number(Decimal(value)), "f")}
    return None


def wired_key(
    table: TableFacts, values: Mapping[str, Any], names: Sequence[str] | None = None
) -> WiredItem | None:
    """`names`: of attributes of an index; of the table's own key without them."""
    limits = chain((PARTITION_KEY_BYTES,), repeat(SORT_KEY_BYTES))
    wired = {
        name: wire_value(values.get(name), key_type_of(table, name), most_bytes)
        for name, most_bytes in zip(names or table.primary_key, limits, strict=False)
    }
    return None if None in wired.values() else wired


def key_of_text(table: TableFacts, key: SourceKey) -> WiredItem:
    """Raises: UnfitValueError if it is not a valid key of this table."""
    values = dict(zip(table.primary_key, decode_key(key), strict=False))
    wired = wired_key(
        table, {name: _number_of(value, key_type_of(table, name)) for name, value in values.items()}
    )
    if wired is None or len(decode_key(key)) != len(table.primary_key):
        raise UnfitValueError(f"table {table.name}: the key does not fit its key attributes and their types")
    return wired


def key_type_of(table: TableFacts, name: str) -> str:
    column = table.column(name)
    return key_type(column.declared) if column else ""


def _number_of(value: Any, type_: str) -> Any:
    """A source key stores a fractional number as text."""
    return Decimal(value) if type_ == "N" and isinstance(value, str) and _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False


Values = tuple[Any, ...]
AT_ONCE = 8
"""Concurrent queries of one page."""


class AccessPath(Struct, frozen=True):
    """`key`: columns in the request; migrator compares the others."""

    kind: Literal["key", "query", "index", "scan"]
    key: tuple[str, ...] = ()
    index: DescribedIndex | None = None

    def __str__(self) -> str:
        if self.kind == "scan":
            return "one scan of the whole table"
        on = f"index {self.index.name}" if self.index else "its key"
        by = "BatchGetItem" if self.kind == "key" else "a Query for each"
        return f"{by}, by {on} ({', '.join(self.key)})"


def way_by(columns: Mapping[str, str], described: DescribedTable, filled: Collection[str] = ()) -> AccessPath:
    """The cheapest one that finds every document. An index does so if the table's key, the columns and `filled`
    contain its whole key: documents without a part of it are not in the index.

    `columns`: with their key types. `filled`: columns that all wanted documents have.
    """
    table_key = tuple(described.key)
    if columns.keys() >= set(table_key):
        return AccessPath("key", table_key)
    if table_key[0] in columns:
        return AccessPath("query", table_key[:1])
    there = {*table_key, *columns, *filled}
    for index in described.indexes:
        asked = _asked_of(index, columns)
        if len(asked) >= index.partition and there.issuperset(index.key):
            return AccessPath("index", asked, index)
    return AccessPath("scan")


def _asked_of(index: DescribedIndex, columns: Mapping[str, str]) -> tuple[str, ...]:
    """The first attributes of the index that are columns of the same type; it contains no values of another."""
    return tuple(takewhile(lambda name: columns.get(name) == index.key[name], index.key))


def _attributes(key: Mapping[str, str]) -> tuple[KeyAttribute, ...]:
    return tuple(KeyAttribute(name, KEY_KINDS[type_]) for name, type_ in key.items())


class Finder:
    """Finds documents in the old tables. `real`: names in the AWS account by the mapping's. Describes each table
    once.
    """

    def __init__(self, reader: TableReader, real: Mapping[str, str]) -> None:
        self.reader = reader
        self.real = real
        self._described: dict[str, DescribedTable] = {}

    def patient(self, retry: Retry) -> Finder:
        same = copy.copy(self)
        same.reader = TableReader(self.reader.client, retry, RateLimit())
        return same

    def real_name(self, table: TableFacts) -> str:
        """Raises: MissingNameError if the job does not name the table."""
        if table.name not in self.real:
            what = f"the mapping declares table {table.name}, and the job does not name it"
            raise MissingNameError(f"{what}; write it among source: dynamodb: tables:")
        return self.real[table.name]

    def described(self, table: TableFacts, *, again: bool = False) -> DescribedTable:
        if again or table.name not in self._described:
            self._described[table.name] = self.reader.describe(self.real_name(table))
        return self._described[table.name]

    def way(self, table: TableFacts, columns: Sequence[str], filled: Collection[str] = ()) -> AccessPath:
        types = {name: key_type_of(table, name) for name in columns}
        return way_by(types, self.described(table), filled)

    def probe(self, table: TableFacts, actions: Sequence[str], indexes: Sequence[str]) -> list[ActionProbe]:
        described = self.described(table)
        design = TableDesign(
            self.real_name(table),
            _attributes(described.key),
            "",
            indexes=tuple(
                Index(index.name, _attributes(index.key)[: index.partition])
                for index in described.indexes
                if index.name in indexes
            ),
        )
        only = Rights(actions, [index.name for index in design.indexes])
        return probes(self.reader.client, design, write=False, only=only)

    def by_keys(self, table: TableFacts, keys: Iterable[WiredItem]) -> dict[Values, WiredItem]:
        wanted = {name_of(key): key for key in keys}
        found = self.reader.get(self.real_name(table), list(wanted.values()))
        return {name_of({name: item[name] for name in table.primary_key}): item for item in found}

    def find(
        self,
        table: TableFacts,
        columns: Sequence[str],
        wanted: Iterable[Values],
        filled: Collection[str] = (),
    ) -> dict[Values, list[WiredItem]]:
        """Documents by their values of the columns. A tuple with a None matches nothing. `filled`: as of way_by."""
        asked = [values for values in dict.fromkeys(wanted) if None not in values]
        if not asked:
            return {}
        way = self.way(table, columns, filled)
        if way.kind == "scan":
            return self.grouped(table, columns, frozenset(asked))
        if way.kind == "key":
            keys = [dict(zip(columns, values, strict=True)) for values in asked]
            wired = filter(None, (wired_key(table, key) for key in keys))
            items: Iterable[WiredItem] = self.by_keys(table, wired).values()
        else:
            items = self._queried(table, columns, asked, way)
        return _by_values(table, columns, items, frozenset(asked))

    def grouped(
        self, table: TableFacts, columns: Sequence[str], asked: frozenset[Values] | None = None
    ) -> dict[Values, list[WiredItem]]:
        """Like find, by a scan of the whole table. `asked` None: all documents that have these columns."""
        pages = self.reader.scan(self.real_name(table))
        return _by_values(table, columns, (item for page in pages for item in page.items), asked)

    def _queried(
        self, table: TableFacts, columns: Sequence[str], asked: Sequence[Values], way: AccessPath
    ) -> Iterable[WiredItem]:
        keys = {
            name_of(wired): wired
            for values in asked
            if (wired := wired_key(table, dict(zip(columns, values, strict=True)), way.key)) is not None
        }
        real = self.real_name(table)

        def one(key: WiredItem) -> list[WiredItem]:
            return list(self.reader.query(real, key, way.index))

        with ThreadPoolExecutor(AT_ONCE) as threads:
            futures = [threads.submit(in_context(one), key) for key in keys.values()]
            found = [item for future in futures for item in future.result()]
        if way.index is None or (way.index.is_local and way.index.whole):
            return found
        # A global index may lag its table, and may lack attributes, so its documents are read by their keys.
        return self.by_keys(
            table, ({name: item[name] for name in table.primary_key} for item in found)
        ).values()


def _by_values(
    table: TableFacts, columns: Sequence[str], items: Iterable[WiredItem], asked: frozenset[Values] | None
) -> dict[Values, list[WiredItem]]:
    read = reader_of(table, columns)
    found: dict[Values, list[WiredItem]] = {}
    for item in items:
        values = read(item)
        if values is not None and (asked is None or values in asked):
            found.setdefault(values, []).append(item)
    return found


def reader_of(table: TableFacts, columns: Sequence[str]) -> Callable[[WiredItem], Values | None]:
    """A function that returns None if a column is missing or not searchable."""
    by_real = {column.real: column for column in table.columns}
    chosen = [by_real[name] for name in columns]

    def read(item: WiredItem) -> Values | None:
        values = tuple(value_of(item, column) for column in chosen)
        unsearchable = any(isinstance(value, (NoneType, Undecodable, list, dict)) for value in values)
        return None if unsearchable else values

    return read


def name_of(key: WiredItem) -> Values:
    """A hashable form; values of different types are never equal."""
    return tuple(_name(*next(iter(wire.items()))) for wire in key.values())


def _name(type_: str, value: Any) -> tuple[str, Any]:
    return type_, value if type_ == "S" else decode({type_: value})
