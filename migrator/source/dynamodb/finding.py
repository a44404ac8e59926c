"""Documents found by the values of some columns: by their table's key, by an index, or by a scan where neither serves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from msgspec import Struct

from migrator.dynamodb.tables import DescribedIndex, DescribedTable, TableReader
from migrator.mapping.items.values import Undecodable
from migrator.mapping.items.wire import decode
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import TableFacts
from migrator.runtime.errors import MissingNameError
from migrator.runtime.retry import RateLimit, Retry, in_context
from migrator.source.dynamodb.values import key_type_of, value_of, wire_value, wired_key

Values = tuple[Any, ...]
AT_ONCE = 8
"""Queries side by side, of one page."""


class Way(Struct, frozen=True):
    """How documents are found by some columns. `key`: those that the request names; the others are compared by us."""

    kind: Literal["key", "query", "index", "scan"]
    key: tuple[str, ...] = ()
    index: DescribedIndex | None = None

    def __str__(self) -> str:
        if self.kind == "scan":
            return "one scan of the whole table"
        on = f"index {self.index.name}" if self.index else "its key"
        by = "BatchGetItem" if self.kind == "key" else "a Query for each"
        return f"{by}, by {on} ({', '.join(self.key)})"


def way_by(columns: Sequence[str], described: DescribedTable) -> Way:
    """The cheapest one: an index serves where one of the columns is its partition key."""
    table_key = tuple(described.key)
    if set(table_key) <= set(columns):
        return Way("key", table_key)
    for index in (None, *described.indexes):
        names = table_key if index is None else index.key
        if names[0] in columns:
            key = tuple(
                name
                for number, name in enumerate(names)
                if name in columns and (number == 0 or names[0] in columns)
            )
            return Way("query", key) if index is None else Way("index", key, index)
    return Way("scan")


class Finder:
    """The old tables, read by a TableReader under the names that the account has for them.

    `real`: by the mapping's name of each table. What each table is was asked once, or is asked now.
    """

    def __init__(self, reader: TableReader, real: Mapping[str, str]) -> None:
        self.reader = reader
        self.real = real
        self._described: dict[str, DescribedTable] = {}

    def patient(self, retry: Retry) -> Finder:
        """The same, which tries as long as `retry` says, and waits for no pace."""
        same = copy.copy(self)
        same.reader = TableReader(self.reader.client, retry, RateLimit())
        return same

    def real_name(self, table: TableFacts) -> str:
        """Raises: MissingNameError where the job does not name it."""
        if table.name not in self.real:
            what = f"the mapping declares table {table.name}, and the job does not name it"
            raise MissingNameError(f"{what}; write it among source: dynamodb: tables:")
        return self.real[table.name]

    def described(self, table: TableFacts, *, anew: bool = False) -> DescribedTable:
        if anew or table.name not in self._described:
            self._described[table.name] = self.reader.describe(self.real_name(table))
        return self._described[table.name]

    def way(self, table: TableFacts, columns: Sequence[str]) -> Way:
        return way_by(columns, self.described(table))

    def by_keys(self, table: TableFacts, keys: Iterable[WiredItem]) -> dict[Values, WiredItem]:
        """Documents by what `name_of` gives of their keys."""
        wanted = {name_of(key): key for key in keys}
        found = self.reader.get(self.real_name(table), list(wanted.values()))
        return {name_of({name: item[name] for name in table.primary_key}): item for item in found}

    def find(
        self, table: TableFacts, columns: Sequence[str], wanted: Iterable[Values]
    ) -> dict[Values, list[WiredItem]]:
        """Documents whose columns hold any of the tuples of values, by these. A tuple with a None in it finds nothing."""
        asked = [values for values in dict.fromkeys(wanted) if None not in values]
        if not asked:
            return {}
        way = self.way(table, columns)
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
        """The same by a scan of the whole table. `asked` None: all documents that have these columns."""
        pages = self.reader.scan(self.real_name(table))
        return _by_values(table, columns, (item for page in pages for item in page.items), asked)

    def _queried(
        self, table: TableFacts, columns: Sequence[str], asked: Sequence[Values], way: Way
    ) -> Iterable[WiredItem]:
        keys = {
            name_of(wired): wired
            for values in asked
            if (wired := _key_part(table, way.key, dict(zip(columns, values, strict=True)))) is not None
        }
        real = self.real_name(table)

        def one(key: WiredItem) -> list[WiredItem]:
            return list(self.reader.query(real, key, way.index))

        with ThreadPoolExecutor(AT_ONCE) as threads:
            futures = [threads.submit(in_context(one), key) for key in keys.values()]
            found = [item for future in futures for item in future.result()]
        if way.index is None or (way.index.is_local and way.index.whole):
            return found
        # A global index may be behind its table, and may lack attributes: what it names is read by its key.
        return self.by_keys(
            table, ({name: item[name] for name in table.primary_key} for item in found)
        ).values()


def _key_part(table: TableFacts, names: Sequence[str], values: Mapping[str, Any]) -> WiredItem | None:
    wired = {name: wire_value(values[name], key_type_of(table, name)) for name in names}
    return None if None in wired.values() else wired


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
    """Gives the values of these columns (by real name) of a document; None where one is missing, or no value to look for."""
    by_real = {column.real: column for column in table.columns}
    chosen = [by_real[name] for name in columns]

    def read(item: WiredItem) -> Values | None:
        values = tuple(value_of(item, column) for column in chosen)
        return None if any(_is_no_name(value) for value in values) else values

    return read


def _is_no_name(value: Any) -> bool:
    return value is None or isinstance(value, (Undecodable, list, dict))


def name_of(key: WiredItem) -> Values:
    """The same for equal keys; of different types there are no equal ones."""
    return tuple(_name(*next(iter(wire.items()))) for wire in key.values())


def _name(type_: str, value: Any) -> tuple[str, Any]:
    """Binary is bytes, or base64 text in answers that were read as JSON."""
    return type_, value if type_ == "S" else decode({type_: value})
