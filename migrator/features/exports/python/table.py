"""What a generated module for the time after a migration does on boto3 alone: access patterns, their pages, and writes of
all items of a row in one transaction.

Copied into it as far as it is needed, behind `values`. The constants are those of one table: the module has its own in their
place.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import heapq
import hmac
import importlib
import itertools
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from migrator.features.exports.python.values import (
    Item,
    RefusedError,
    _filter_bucket,
    _filter_geohash,
    _naive,
    _read_integer,
    _set,
    _shard_text,
)

# ── places and times that a question goes over ──


def _buckets(since: dt.date, until: dt.date, unit: str) -> list[str]:
    """The buckets of time from the one that holds `since` to that of `until`, 400 at most."""
    found: list[str] = []
    moment, last = _naive(since), _filter_bucket(until, unit)
    while (text := _filter_bucket(moment, unit)) <= last:
        if len(found) == 400:
            raise RefusedError(f"more than 400 buckets ({unit}) between both times; use a shorter time")
        found.append(text)
        try:
            moment = _following(unit, moment)
        except (OverflowError, ValueError):
            break  # the year 9999 is the last one that there is
    return found


def _following(unit: str, moment: dt.datetime) -> dt.datetime:
    if unit == "year":
        return moment.replace(year=moment.year + 1, month=1, day=1)
    if unit in ("month", "quarter"):
        last = moment.month + (2 if unit == "quarter" else 0)
        return moment.replace(year=moment.year + last // 12, month=last % 12 + 1, day=1)
    if unit == "week":
        return moment + dt.timedelta(days=7 - moment.weekday())
    return moment + dt.timedelta(**{f"{unit}s": 1})


def _shards(count: int) -> list[str]:
    return [_shard_text(number, count) for number in range(count)]


def _any_of(copies: list[str]) -> list[str]:
    """One of an item's copies: each is read as often as the others."""
    return [random.choice(copies)]


def _cells(latitude: Any, longitude: Any, precision: int) -> list[str]:
    """The place's cell and then its neighbours, each once: over the date line too, and none beyond a pole."""
    height, width = _cell_degrees(precision)
    _filter_geohash(latitude, longitude, str(precision))  # refuses what is not on the earth
    row = min(math.floor((float(latitude) + 90) / height), round(180 / height) - 1)
    column = min(math.floor((float(longitude) + 180) / width), round(360 / width) - 1)
    around = [(0, 0), *((up, right) for up in (-1, 0, 1) for right in (-1, 0, 1))]
    cells: dict[str, None] = {}
    for up, right in around:
        lat = (row + up + 0.5) * height - 90
        if abs(lat) < 90:
            lng = ((column + right + 0.5) * width) % 360 - 180
            cells[_filter_geohash(lat, lng, str(precision))] = None
    return list(cells)


def _cell_degrees(precision: int) -> tuple[float, float]:
    bits = 5 * precision
    return 180 / 2 ** (bits // 2), 360 / 2 ** (bits - bits // 2)


_EARTH_M = 6_371_008.8


def _reach_m(latitude: Any, precision: int) -> float:
    """The largest radius around any place of this latitude that its cell and neighbours cover."""
    height, width = (math.radians(side) for side in _cell_degrees(precision))
    across = math.asin(math.sin(width) * max(0.0, math.cos(math.radians(float(latitude)))))
    return _EARTH_M * min(height, across)


def _distance_m(start: tuple[Any, Any], end: tuple[Any, Any]) -> float:
    """Metres between two places over the ground, by the haversine formula on a sphere."""
    lat, lng, end_lat, end_lng = (math.radians(float(value)) for value in (*start, *end))
    half = (
        math.sin((end_lat - lat) / 2) ** 2
        + math.cos(lat) * math.cos(end_lat) * math.sin((end_lng - lng) / 2) ** 2
    )
    return 2 * _EARTH_M * math.asin(math.sqrt(min(1.0, half)))


TABLE = "Table"
_KEY: Sequence[str] = ("PK", "SK")
_TYPE = "type"
_TTL: str | None = None
_QUESTIONS: dict[str, Callable[[Mapping[str, Any]], _Question]] = {}


# ── questions ──

_Test = tuple[str, str, Sequence[Any]]
"""An attribute, an operator, its values."""
_SortTest = tuple[str, str, Callable[[], Sequence[Any]]]
"""The same with what makes the values."""
_MOST = 2**31 - 1
_ITEM_BYTES = 400 * 1024
_TESTS = {
    "equal": "{0} = {1}",
    "begins_with": "begins_with({0}, {1})",
    "between": "{0} BETWEEN {1} AND {2}",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "le": "{0} <= {1}",
    "lt": "{0} < {1}",
    "exists": "attribute_exists({0})",
    "absent": "attribute_not_exists({0})",
}


@dataclass(frozen=True)
class _Near:
    origin: tuple[Any, Any]
    at: Sequence[str]
    within_m: Any
    precision: int


@dataclass(frozen=True)
class _Question:
    """An access pattern with its parameters. `keys`: whole keys, of a query its partitions;
    `order`: the sort attributes of what it reads, `position`: all that name a place in it;
    `parts`: item types by part, '' for any."""

    operation: str
    keys: Sequence[Item]
    parts: Mapping[str, str]
    sort: Sequence[_SortTest] = ()
    filters: Sequence[_Test] = ()
    index: str | None = None
    order: Sequence[str] = ()
    position: Sequence[str] = ()
    descending: bool = False
    limit: int | None = None
    consistent: bool = False
    near: _Near | None = None

    def set_sort(self) -> list[_Test] | None:
        """Conditions on the sort key without unset parameters; None if no item satisfies them."""
        tests: list[_Test] = []
        for number, (name, operator, made) in enumerate(self.sort):
            try:
                values = made()
            except RefusedError:
                if operator in ("equal", "begins_with"):
                    return None  # no row has such a key
                raise
            if None in values:
                continue
            if len(tests) < number:
                raise RefusedError(f"{name} can be used only together with {self.sort[number - 1][0]}")
            test = _possible(name, operator, values)
            if test is None:
                return None
            tests += [test] if test[2] else []
        return tests

    def queries(self) -> list[Item]:
        """Parameters of a Query for each partition."""
        sort = self.set_sort()
        if sort is None:
            return []
        filters = [test for test in self.filters if None not in test[2]]
        if not all(_can_be(*test, _ITEM_BYTES) for test in filters):
            return []
        return [self._query(partition, sort, filters) for partition in self.keys]

    def _query(self, partition: Item, sort: list[_Test], filters: list[_Test]) -> Item:
        names: dict[str, str] = {}
        bound: Item = {}
        equal: list[_Test] = [(name, "equal", (value,)) for name, value in partition.items()]
        query = {
            "KeyConditionExpression": _clauses([*equal, *sort], names, bound),
            "FilterExpression": _clauses(filters, names, bound),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": bound,
            "IndexName": self.index,
            "ConsistentRead": self.consistent or None,
            "ScanIndexForward": not self.descending,
        }
        return {name: value for name, value in query.items() if value not in (None, "")}


def _keys_of(made: Callable[[Any], Item], elements: Iterable[Any], sort_bytes: int = 1024) -> list[Item]:
    """The keys to ask, without those that no item can have."""
    keys = []
    for element in elements:
        try:
            key = made(element)
        except RefusedError:
            continue  # no row has such a value
        values = [_set(name, value) for name, value in key.items()]
        if _is_key(values[0], 2048) and all(_is_key(value, sort_bytes) for value in values[1:]):
            keys.append(key)
    return keys


def _is_key(value: Any, most: int) -> bool:
    return not isinstance(value, (str, bytes)) or 0 < _size(value) <= most


def _size(value: str | bytes) -> int:
    return len(value.encode() if isinstance(value, str) else value)


def _possible(name: str, operator: str, values: Sequence[Any]) -> _Test | None:
    """The test as DynamoDB takes it, without values if every key passes it; None if no key does."""
    if operator == "equal" or not isinstance(values[0], (str, bytes)):
        is_possible = _is_key(values[0], 1024) and not _is_reversed(operator, values)
        return (name, operator, values) if is_possible else None
    if _is_reversed(operator, values) or (operator in ("between", "le", "lt") and not values[-1]):
        return None
    if not _can_be(name, operator, values, 1024):
        return None
    if values[0]:
        return name, operator, values
    return (name, "le", values[1:]) if operator == "between" else (name, operator, [])


def _can_be(name: str, operator: str, values: Sequence[Any], most: int) -> bool:
    """Whether a value of so many bytes can pass. Raises: RefusedError for a longer bound."""
    is_longer = any(_size(value) > most for value in values if isinstance(value, (str, bytes)))
    if is_longer and operator not in ("equal", "begins_with"):
        raise RefusedError(f"a parameter makes a bound of {name} longer than it can be ({most} bytes)")
    return not is_longer and not _is_reversed(operator, values)


def _is_reversed(operator: str, values: Sequence[Any]) -> bool:
    """Whether the bounds are of two types, or in reversed order; DynamoDB refuses both."""
    if operator != "between":
        return False
    low, high = (value if isinstance(value, (str, bytes)) else Decimal(value) for value in values)
    return type(low) is not type(high) or bool(low > high)  # type: ignore[operator]


def _clauses(tests: Sequence[_Test], names: dict[str, str], bound: Item) -> str:
    clauses = []
    for name, operator, values in tests:
        places = []
        for value in values:
            places.append(f":v{len(bound)}")
            bound[places[-1]] = _wire(value)
        names[f"#n{len(names)}"] = name
        clauses.append(_TESTS[operator].format(f"#n{len(names) - 1}", *places))
    return " AND ".join(clauses)


# ── values in DynamoDB's form ──


def _wire(value: Any) -> Item:
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, (int, Decimal)):
        return {"N": str(value)}
    if isinstance(value, bytes):
        return {"B": value}
    if value is None:
        return {"NULL": True}
    if isinstance(value, set):
        ((form, _),) = _wire(next(iter(value))).items()
        return {f"{form}S": [_wire(one)[form] for one in sorted(value)]}
    if isinstance(value, Mapping):
        return {"M": {name: _wire(inner) for name, inner in value.items()}}
    return {"L": [_wire(inner) for inner in value]}


def _plain(wired: Mapping[str, Any]) -> Any:
    ((form, value),) = wired.items()
    if form == "N":
        return _read_integer(Decimal(value))
    if form == "M":
        return {name: _plain(inner) for name, inner in value.items()}
    if form == "L":
        return [_plain(inner) for inner in value]
    if form in ("SS", "BS", "NS"):
        return sorted(_read_integer(Decimal(one)) if form == "NS" else one for one in value)
    return None if form == "NULL" else value


def _item(wired: Mapping[str, Any]) -> Item:
    return {name: _plain(value) for name, value in wired.items()}


def _wired(item: Item) -> Item:
    return {name: _wire(value) for name, value in item.items()}


def _is_shown(item: Item) -> bool:
    """No tombstone of the migration, and not expired: DynamoDB deletes such items late."""
    expiry = item.get(_TTL) if _TTL else None
    expired = isinstance(expiry, (int, Decimal)) and not isinstance(expiry, bool) and expiry <= time.time()
    return item.get(_TYPE) not in ("_tombstone", "_control") and not expired


# ── the table ──


class _Table:
    """`client`: boto3's for DynamoDB. `cursor_key`: signs cursors, the same in all processes."""

    def __init__(self, client: Any, table: str = TABLE, *, cursor_key: str = "", trace: bool = False) -> None:
        self._client, self._name, self._trace = client, table, trace
        self._cursor_key = cursor_key or os.environ.get("CURSOR_KEY", "")

    @classmethod
    def connect(cls) -> Self:
        """By the environment: AWS_REGION and boto3's other variables, CURSOR_KEY for pages."""
        # boto3 itself reads AWS_DEFAULT_REGION alone.
        region = os.environ.get("AWS_REGION")
        return cls(importlib.import_module("boto3").client("dynamodb", region_name=region))

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── answers ──

    def _ask(self, pattern: str, params: Mapping[str, Any]) -> dict[str, list[Item]]:
        """The answer's items by part."""
        question = _QUESTIONS[pattern](params)
        items = self._keyed(question) if question.operation != "query" else self._queried(question)
        return {
            part: [item for item in items if not type_ or item.get(_TYPE) == type_]
            for part, type_ in question.parts.items()
        }

    async def _ask_async(self, pattern: str, params: Mapping[str, Any]) -> dict[str, list[Item]]:
        return await asyncio.to_thread(self._ask, pattern, params)

    def _keyed(self, question: _Question) -> list[Item]:
        keys = list({tuple(key.values()): key for key in question.keys}.values())
        if question.operation == "get":
            items = [self._read(key, consistent=question.consistent) for key in keys]
            return [item for item in items if item is not None]
        found: dict[tuple[Any, ...], Item] = {}
        for start in range(0, len(keys), 100):
            for item in self._batch(keys[start : start + 100], consistent=question.consistent):
                found[tuple(item[name] for name in _KEY)] = item
        return [found[place] for key in keys if (place := tuple(key.values())) in found]

    def _read(self, key: Item, *, consistent: bool) -> Item | None:
        given = self._client.get_item(TableName=self._name, Key=_wired(key), ConsistentRead=consistent)
        item = _item(given["Item"]) if "Item" in given else None
        return item if item is not None and _is_shown(item) else None

    def _batch(self, keys: list[Item], *, consistent: bool) -> list[Item]:
        wanted: Any = {self._name: {"Keys": [_wired(key) for key in keys], "ConsistentRead": consistent}}
        items: list[Item] = []
        for attempt in itertools.count():
            given = self._client.batch_get_item(RequestItems=wanted)
            items += [_item(one) for one in given.get("Responses", {}).get(self._name, [])]
            wanted = given.get("UnprocessedKeys")
            if not wanted:
                break
            time.sleep(random.uniform(0, min(5.0, 0.05 * 2**attempt)))
        return [item for item in items if _is_shown(item)]

    def _queried(self, question: _Question) -> list[Item]:
        limit = question.limit if question.near is None else None
        queries = question.queries()
        streams = [(query, limit, None) for query in queries]
        items = list(itertools.islice(self._merged(question, streams), limit))
        if question.near is not None:
            items = _nearest(items, question.near)[: question.limit]
        return items

    def _merged(
        self, question: _Question, asked: Sequence[tuple[Item, int | None, Item | None]]
    ) -> Iterator[Item]:
        """Items of several partitions in the order of the sort key, each once."""
        if len(asked) < 2:
            found = [self._partition(*one) for one in asked]
        else:
            with ThreadPoolExecutor(min(8, len(asked))) as threads:
                found = list(threads.map(lambda one: self._partition(*one), asked))

        def order(item: Item) -> tuple[Any, ...]:
            return tuple(item[name] for name in question.order)

        seen = set()
        for item in heapq.merge(*found, key=order, reverse=question.descending):
            key = tuple(item[name] for name in _KEY)
            if key not in seen:
                seen.add(key)
                yield item

    def _partition(self, query: Item, limit: int | None, start: Item | None) -> list[Item]:
        """Items of one Query, up to the limit. DynamoDB counts before it filters."""
        items: list[Item] = []
        for pages in itertools.count():
            sized = {} if limit is None else {"Limit": min(limit * 2**pages, _MOST)}
            begins = {} if start is None else {"ExclusiveStartKey": start}
            given = self._client.query(TableName=self._name, **query, **sized, **begins)
            items += [item for item in map(_item, given["Items"]) if _is_shown(item)]
            start = given.get("LastEvaluatedKey")
            if start is None or (limit is not None and len(items) >= limit):
                break
        return items[:limit]

    # ── pages ──

    def _page(
        self, pattern: str, params: Mapping[str, Any], cursor: str | None, size: int
    ) -> tuple[list[Item], str | None]:
        """Up to `size` items, and the cursor of the next page."""
        if not 1 <= size <= 1000:
            raise RefusedError(f"{pattern}: size is a whole number from 1 to 1000")
        question = _QUESTIONS[pattern](params)
        queries = question.queries()
        asked = hashlib.sha256(repr((pattern, queries)).encode()).hexdigest()[:16]
        begun: list[Item | None] = [None] * len(queries)
        given, starts = self._opened(cursor, asked) if cursor else (0, begun)
        if question.limit is not None:
            size = min(size, max(question.limit - given, 0))
        # One more than wanted shows whether there is another page.
        streams = [(query, size + 1, start) for query, start in zip(queries, starts, strict=True)]
        found = list(self._merged(question, streams)) if size else []
        taken, given = found[:size], given + min(size, len(found))
        if len(found) <= size or (question.limit is not None and given >= question.limit):
            return taken, None
        for number, partition in enumerate(question.keys):
            last = [item for item in taken if all(item.get(name) == partition[name] for name in partition)]
            if last:
                starts[number] = _wired({name: last[-1][name] for name in question.position})
        return taken, self._signed([asked, given, starts])

    async def _page_async(
        self, pattern: str, params: Mapping[str, Any], cursor: str | None, size: int
    ) -> tuple[list[Item], str | None]:
        return await asyncio.to_thread(self._page, pattern, params, cursor, size)

    def _signed(self, content: Any) -> str:
        body = json.dumps(content, default=lambda value: {"b64": base64.b64encode(value).decode()}).encode()
        return base64.urlsafe_b64encode(self._signature(body) + body).decode()

    def _signature(self, body: bytes) -> bytes:
        if len(self._cursor_key) < 16:
            raise RefusedError(
                "cursors are signed by a key of 16 characters or more: "
                "cursor_key=, or CURSOR_KEY in the environment"
            )
        return hmac.digest(self._cursor_key.encode(), body, "sha256")[:16]

    def _opened(self, cursor: str, asked: str) -> tuple[int, list[Any]]:
        try:
            text = base64.urlsafe_b64decode(cursor)
        except ValueError:
            text = b""
        if len(text) < 17 or not hmac.compare_digest(self._signature(text[16:]), text[:16]):
            raise RefusedError("the cursor is damaged or forged; start again from the first page")
        of, given, starts = json.loads(text[16:], object_hook=_of_json)
        if of != asked:
            raise RefusedError("the cursor is of another question; start again from the first page")
        return given, starts


def _of_json(value: Item) -> Any:
    return base64.b64decode(value["b64"]) if set(value) == {"b64"} else value


def _nearest(items: Sequence[Item], near: _Near) -> list[Item]:
    """The items within the circle, the nearest first."""
    latitude, longitude = near.origin
    if latitude is None or longitude is None or near.within_m is None or not 0 < near.within_m < float("inf"):
        raise RefusedError("a place and a distance of more than 0 metres are taken")
    if near.within_m > _reach_m(latitude, near.precision):
        raise RefusedError("the distance reaches past the cells that are asked")
    measured = []
    for item in items:
        place = tuple(item.get(name) for name in near.at)
        if all(isinstance(value, (int, Decimal)) for value in place):
            metres = _distance_m((latitude, longitude), (place[0], place[1]))
            measured.append((metres, tuple(item[name] for name in _KEY), item))
    return [
        item
        for metres, _, item in sorted(measured, key=lambda one: one[:2])
        if metres <= float(near.within_m)
    ]


# ── writes ──

_REVISION = ""
_OWN = ("_src", "_rev")
_ATTRIBUTES: dict[str, Sequence[str]] = {}
_DOCUMENTS: Sequence[str] = ()


class ConflictError(Exception):
    """Another writer was quicker, or the row exists: read it again. `types`: of the items."""

    def __init__(self, doing: str, types: Sequence[str]) -> None:
        super().__init__(f"{doing}: not as expected: {', '.join(types)}; read the row again")
        self.types = tuple(types)


class _Writable(_Table):
    """`trace`: writes carry `_src` and `_rev`, by which `migrator verify` finds the row."""

    def __init__(self, client: Any, table: str = TABLE, *, cursor_key: str = "", trace: bool = False) -> None:
        super().__init__(client, table, cursor_key=cursor_key)
        self._trace = trace

    def _put(self, doing: str, source: tuple[str, Sequence[Any]], items: Sequence[Item]) -> None:
        """Raises: ConflictError where one of them is there already."""
        self._transact(doing, [(item, self._put_action(item, source)) for item in items])

    def _change(
        self,
        doing: str,
        source: tuple[str, Sequence[Any]],
        before: Sequence[Item],
        after: Sequence[Item],
        version: str | None,
    ) -> None:
        """Raises: ConflictError if an item is not as in `before`, or one of a new key exists."""
        old = {tuple(item[name] for name in _KEY): item for item in before}
        actions = []
        for item in after:
            was = old.pop(tuple(item[name] for name in _KEY), None)
            action = self._put_action(item, source) if was is None else self._update(was, item, version)
            actions.append((item, action))
        actions += [(item, {"Delete": self._as_before(item, version)}) for item in old.values()]
        self._transact(doing, actions)

    def _put_action(self, item: Item, source: tuple[str, Sequence[Any]]) -> Item:
        """A put that replaces nothing but what a migration left there, or what has expired."""
        names = {"#key": _KEY[0], "#type": _TYPE}
        free = "attribute_not_exists(#key) OR #type = :gone"
        bound: Item = {":gone": "_tombstone"}
        if _TTL is not None:
            names["#ttl"], bound[":now"] = _TTL, int(time.time())
            free += " OR #ttl <= :now"
        traced = {_OWN[0]: _source_text(*source), _OWN[1]: _REVISION} if self._trace else {}
        put = {
            "Item": _wired({**item, **traced}),
            "ConditionExpression": free,
            "ExpressionAttributeNames": names,
        }
        return {"Put": {"TableName": self._name, **put, "ExpressionAttributeValues": _wired(bound)}}

    def _update(self, was: Item, item: Item, version: str | None) -> Item:
        """What differs is set or removed; attributes that are not the mapping's stay."""
        action = self._as_before(was, version)
        names, bound = action["ExpressionAttributeNames"], action["ExpressionAttributeValues"]
        setting, removing = [], []
        for name in dict.fromkeys([*was, *item]):
            if was.get(name) == item.get(name) and type(was.get(name)) is type(item.get(name)):
                continue
            place = f"#s{len(names)}"
            names[place] = name
            if name in item:
                bound[f":s{len(names)}"] = _wire(item[name])
                setting.append(f"{place} = :s{len(names)}")
            else:
                removing.append(place)
        if not setting and not removing:
            return {"ConditionCheck": action}
        sets = f"SET {', '.join(setting)}" if setting else ""
        removes = f"REMOVE {', '.join(removing)}" if removing else ""
        return {"Update": {**action, "UpdateExpression": f"{sets} {removes}".strip()}}

    def _as_before(self, item: Item, version: str | None) -> Item:
        """An action on the item if it is unchanged: by its version, or by all attributes."""
        type_ = item[_TYPE]
        watched = [version] if version else [name for name in _ATTRIBUTES[type_] if name not in _KEY]
        names, bound, clauses = {"#type": _TYPE}, {":type": _wire(type_)}, ["#type = :type"]
        for number, name in enumerate(watched):
            names[f"#w{number}"] = name
            place, absent = f"#w{number}", f"attribute_not_exists(#w{number})"
            # A row has None for the document `null`, which an item keeps.
            if name in item or name in _DOCUMENTS:
                bound[f":w{number}"] = _wire(item.get(name))
                absent = f"({absent} OR {place} = :w{number})"
            clauses.append(f"{place} = :w{number}" if name in item else absent)
        condition = " AND ".join(clauses)
        if len(condition) > 4096:
            what = f"{type_}: {len(watched)} attributes do not fit into one condition of DynamoDB (4 KB)"
            raise RefusedError(f"{what}; name a column that counts changes in the mapping (version:)")
        return {
            "TableName": self._name,
            "Key": _wired({name: item[name] for name in _KEY}),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": bound,
        }

    def _transact(self, doing: str, actions: Sequence[tuple[Item, Item]]) -> None:
        """All actions or none; waits a moment for another transaction on the same items."""
        if len(actions) > 100:
            raise RefusedError(f"{doing}: {len(actions)} items at once; a transaction of DynamoDB takes 100")
        for attempt in range(6 if actions else 0):
            try:
                self._client.transact_write_items(TransactItems=[action for _, action in actions])
                return
            except self._client.exceptions.TransactionCanceledException as error:
                reasons = [reason["Code"] for reason in error.response["CancellationReasons"]]
                failed = [
                    str(item[_TYPE])
                    for (item, _), reason in zip(actions, reasons, strict=True)
                    if reason in ("ConditionalCheckFailed", "TransactionConflict")
                ]
                if "ConditionalCheckFailed" in reasons or (failed and attempt == 5):
                    raise ConflictError(doing, failed) from None
                if not failed:
                    raise
            time.sleep(random.uniform(0, 0.05 * 2**attempt))


def _source_text(entity: str, key: Sequence[Any]) -> str:
    """The row that items are of, as a migration writes it."""
    plain = [value if isinstance(value, (int, str)) else str(value) for value in key]
    return f"{entity}:{json.dumps(plain, ensure_ascii=False, separators=(',', ':'))}"
