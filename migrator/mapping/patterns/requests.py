"""Access patterns compiled to DynamoDB requests; and cursors, signed texts with the start of the next page. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any

from msgspec import Struct

from migrator.mapping.items.filters import (
    UNITS,
    FilterContext,
    cut_of,
    is_whole,
    precision_for,
    reach_m,
    texts_of,
)
from migrator.mapping.items.rows import Compiled, RowPlaces, bound_text, compile_key, compile_value
from migrator.mapping.model.evidence import Side
from migrator.mapping.model.mapping import (
    Expression,
    Mapping,
    Operator,
    Pattern,
    Ref,
    SortCondition,
    Template,
    paths_in,
    uses_in,
)
from migrator.mapping.model.results import Nearby, Request
from migrator.mapping.model.table import (
    BATCH_GET_KEYS,
    ITEM_BYTES,
    PARTITION_KEY_BYTES,
    QUERY_LIMIT,
    SORT_KEY_BYTES,
    Index,
    Item,
    ItemKey,
    KeyAttribute,
    Value,
)
from migrator.runtime.errors import RowError, SettingsError
from migrator.runtime.values import replace

# ── A pattern's templates and expressions, rendered with its parameters ──

_KEYS = 256
"""Size of the cache of compiled key templates per pattern: its own, and those with recent texts for its `*`."""


NO_KEY: Any = object()
"""In place of a key's value that the mapping refuses for every row: no item has it."""


class Renderer:
    """Raises SettingsError, naming the pattern, for a missing key parameter, or an impossible bound."""

    def __init__(self, requests: Requests, params: Dict[str, Any]) -> None:
        self.requests = requests
        self.pattern = requests.pattern
        self.params = params
        self.row = tuple(params.get(name) for name in requests.names)
        for name, unit in requests.cut.items():
            if isinstance(value := params.get(name), date) and not is_whole(unit, value):
                what = f"{self.pattern.name}: the key contains only the {unit} of parameter '{name}'"
                raise SettingsError(f"{what}; give the start of one")

    def key(self, template: Template, attribute: KeyAttribute) -> Any:
        try:
            return self.requests.key(template, attribute)(self.row)
        except (RowError, ValueError):
            return NO_KEY

    def bound(self, template: Template, attribute: KeyAttribute, *, up: bool) -> Any:
        """A bound of a range: a number that its format cannot hold becomes the next one `up`, or down.

        Raises: SettingsError if more than that number follows, or something else does not fit.
        """
        value = self.key(template, attribute)
        last = template.refs[-1] if template.refs else None
        if value is NO_KEY and last is not None and last.format and not last.filters:
            text = bound_text(self.params[last.paths[0]], last.format, up=up)
            parts = tuple(text if part is last else part for part in template.parts)
            value = self.key(replace(template, parts=parts), attribute)
        if value is NO_KEY:
            what = f"{self.pattern.name}: a parameter does not fit the bound of {attribute.name}"
            raise SettingsError(f"{what}; give one that a row can have")
        return value

    def set_key(self, template: Template, attribute: KeyAttribute) -> Any:
        value = self.key(template, attribute)
        if value is None:
            raise unset(self.pattern)
        return value

    def texts(self, star: Ref) -> list[str]:
        values = [self.params[path] for path in star.paths]
        if None in values:
            raise unset(self.pattern)
        try:
            return texts_of(star.filters[0], values)
        except (RowError, ValueError) as error:
            raise SettingsError(f"{self.pattern.name}: {error}") from None

    def value(self, expression: Expression) -> Any:
        try:
            return self.requests.value(expression)(self.row)
        except (RowError, ValueError) as error:
            raise SettingsError(
                f"{self.pattern.name}: a parameter does not fit the filter: {error}"
            ) from None


def cut_params(pattern: Pattern) -> dict[str, str]:
    """The unit of time to which a key, or a filter, cuts each parameter. A key that names one item may cut a
    second: it is the item's own time.
    """
    keys = [*pattern.key, *(c.values[0] for c in pattern.sort if c.operator == "equal")]
    bounds: list[Expression] = [v for c in pattern.sort if c.operator != "equal" for v in c.values]
    bounds += [value for condition in pattern.filters for value in condition.values]
    units = {
        path: next(filter(None, map(cut_of, use.ref.filters)), "")
        for value in (*keys, *bounds)
        for use in uses_in(value)
        for path in use.ref.paths
    }
    in_bounds = set(paths_in(bounds))
    return {path: unit for path, unit in units.items() if unit and (path in in_bounds or unit in UNITS)}


def unset(pattern: Pattern) -> SettingsError:
    return SettingsError(f"{pattern.name}: a parameter of the key is not set")


# ── Requests to DynamoDB, made from an access pattern and its parameters ──

CONDITIONS: dict[Operator, str] = {
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


class Requests:
    """Requests of one pattern, compiled once; see params.read_params. Thread-safe."""

    def __init__(self, mapping: Mapping, pattern: Pattern) -> None:
        self.pattern = pattern
        self.names = tuple(param.name for param in pattern.params)
        self.cut = cut_params(pattern)
        columns = {name: number for number, name in enumerate(self.names)}
        self._places = RowPlaces(columns, around=FilterContext.of(mapping))
        self.key = lru_cache(_KEYS)(self._compiled_key)
        self._values: dict[int, Compiled] = {}
        self._table = mapping.table
        self._key = tuple(attribute.name for attribute in mapping.table.key)
        self._index = mapping.table.asked(pattern.index)
        self._star = pattern.star
        self._takes_all = _takes_all(pattern)

    def _compiled_key(self, template: Template, attribute: KeyAttribute) -> Compiled:
        return compile_key(template, attribute, self._places)

    def value(self, expression: Expression) -> Compiled:
        """Compile once by id: the pattern's expressions live as long as this object."""
        compiled = self._values.get(id(expression))
        if compiled is None:
            compiled = self._values[id(expression)] = compile_value(expression, self._places)
        return compiled

    def of(self, params: Dict[str, Any]) -> Request:
        """Raises: SettingsError if a key parameter is not set or does not fit."""
        table = self._table
        return replace(self._request(params), type_attribute=table.type_attribute, ttl_attribute=table.ttl)

    def refuse_unfit(self, params: Dict[str, Any]) -> None:
        """Check the parameters only. Raises: SettingsError, as `of`."""
        operation = self.pattern.operation
        if self._takes_all:
            _limit(self.pattern, params)
        elif operation == "query":
            self.tests(params)
        elif operation == "get":
            self._whole_keys(params)
        else:
            self._listed_keys(params)

    def _request(self, params: Dict[str, Any]) -> Request:
        pattern, key = self.pattern, self._key
        if pattern.operation == "query":
            return self._query(self.tests(params))
        if pattern.operation == "get":
            gets = ({"Key": one, "ConsistentRead": pattern.consistent} for one in self._whole_keys(params))
            return Request("get", tuple(gets), key)
        keys = self._listed_keys(params)
        sent = tuple(
            {"Keys": keys[start : start + BATCH_GET_KEYS], "ConsistentRead": pattern.consistent}
            for start in range(0, len(keys), BATCH_GET_KEYS)
        )
        return Request("batch_get", sent, key)

    def _query(self, made: QueryParts) -> Request:
        pattern, index = self.pattern, self._index
        assert index is not None
        return Request(
            operation="query",
            sent=tuple(_parameters(pattern, partition, made) for partition in made.partitions),
            key=self._key,
            sort=tuple(attribute.name for attribute in index.sort),
            descending=pattern.descending,
            limit=made.limit,
            near=made.near,
        )

    def tests(self, params: Dict[str, Any]) -> QueryParts:
        """Comparisons of the pattern's query. Raises: SettingsError, as `of`."""
        pattern, index, star = self.pattern, self._index, self._star
        assert index is not None
        render = Renderer(self, params)
        sort, filters = _sort(pattern, index, render), _filters(pattern, render)
        renders = (
            [Renderer(self, given) for given in each_given(pattern, params)] if pattern.listed else [render]
        )
        is_asked = sort is not None and filters is not None
        partitions = _partitions(pattern, index, star, renders) if is_asked else []
        return QueryParts(
            partitions,
            sort or [],
            filters or [],
            _limit(pattern, params),
            None if star is None else _near(pattern, star, params),
        )

    def _whole_keys(self, params: Dict[str, Any]) -> list[dict[str, Any]]:
        render, sort = Renderer(self, params), [condition.values[0] for condition in self.pattern.sort]
        partitions = [self.pattern.key] if self._star is None else _starred(self.pattern, self._star, render)
        keys = [
            {
                attribute.name: render.set_key(template, attribute)
                for attribute, template in zip(self._table.key, (*partition, *sort), strict=True)
            }
            for partition in partitions
        ]
        fits = all(_is_key(*one) for key in keys for one in zip(key.values(), _KEY_BYTES, strict=False))
        return keys if fits else []

    def _listed_keys(self, params: Dict[str, Any]) -> list[dict[str, Any]]:
        pattern = self.pattern
        keys: dict[ItemKey, dict[str, Any]] = {}
        for given in each_given(pattern, params):
            for key in self._whole_keys(given):
                keys.setdefault(tuple(key.values()), key)
        return list(keys.values())


def _takes_all(pattern: Pattern) -> bool:
    """Whether all values of the parameters make a request, except of the limit.

    Without filters a key's text exists for each value that is set; one that does not fit is NO_KEY, which only a bound
    refuses.
    """
    optional = {param.name for param in pattern.params if param.optional}
    refs = [ref for template in pattern.templates for ref in template.refs]
    return (
        not pattern.filters
        and not any(ref.filters or optional.intersection(ref.paths) for ref in refs)
        and all(condition.operator == "equal" for condition in pattern.sort[:-1])
        and all(condition.operator in ("equal", "begins_with") for condition in pattern.sort[-1:])
    )


# ── query ───────────────────────────────────────────────────────────────────────────────────────


class KeyTest(Struct, frozen=True):
    attribute: str
    operator: Operator
    values: Sequence[Any]


class QueryParts(Struct, frozen=True):
    """A Query with its parameters: tests of partitions, of the sort key and of filtered attributes."""

    partitions: list[list[KeyTest]]
    sort: list[KeyTest]
    filters: list[KeyTest]
    limit: int | None
    near: Nearby | None


def each_given(pattern: Pattern, params: Dict[str, Any]) -> list[Dict[str, Any]]:
    """One set of parameters for each value of the key's list. Raises: SettingsError if it is not set."""
    values = params[pattern.listed]
    if values is None:
        raise unset(pattern)
    return [{**params, pattern.listed: value} for value in dict.fromkeys(values)]


def _partitions(
    pattern: Pattern, index: Index, star: Ref | None, renders: Sequence[Renderer]
) -> list[list[KeyTest]]:
    asked = [
        [
            KeyTest(attribute.name, "equal", [render.set_key(template, attribute)])
            for attribute, template in zip(index.partition, templates, strict=True)
        ]
        for render in renders
        for templates in ([pattern.key] if star is None else _starred(pattern, star, render))
    ]
    return [tests for tests in asked if all(_is_key(test.values[0], PARTITION_KEY_BYTES) for test in tests)]


def _starred(pattern: Pattern, star: Ref, render: Renderer) -> Iterator[tuple[Template, ...]]:
    for text in render.texts(star):
        yield tuple(template.with_star(text) for template in pattern.key)


def _sort(pattern: Pattern, index: Index, render: Renderer) -> list[KeyTest] | None:
    tests: list[KeyTest] = []
    for number, (attribute, condition) in enumerate(zip(index.sort, pattern.sort, strict=False)):
        values = _values(render, condition, attribute)
        if not _is_set(pattern, attribute.name, condition.values, values):
            continue
        if len(tests) < number:
            # DynamoDB takes conditions on a sort key from its left; leaving one out would drop those after
            # it.
            missing = index.sort[number - 1].name
            raise SettingsError(
                f"{pattern.name}: {attribute.name} can be queried only together with {missing}"
            )
        test = _of_keys(pattern, KeyTest(attribute.name, condition.operator, values))
        if test is None:
            return None
        if test.values:
            tests.append(test)
    return tests


MOVED_UP: dict[Operator, tuple[bool, ...]] = {
    "between": (True, False),
    "ge": (True,),
    "gt": (False,),
    "le": (False,),
    "lt": (True,),
}
"""Of the ranges: the direction in which a bound that no key can have is moved, which leaves the same keys in it."""


def _values(render: Renderer, condition: SortCondition, attribute: KeyAttribute) -> list[Any]:
    directions = MOVED_UP.get(condition.operator)
    if directions is None:
        return [render.key(condition.values[0], attribute)]
    return [
        render.bound(template, attribute, up=up)
        for template, up in zip(condition.values, directions, strict=True)
    ]


# ── what DynamoDB refuses to compare: keys that are empty or too long, bounds that are reversed ──

_KEY_BYTES = (PARTITION_KEY_BYTES, SORT_KEY_BYTES)


def _is_key(value: Any, most: int) -> bool:
    """Source: AWS Developer Guide, "Quotas in Amazon DynamoDB"."""
    if isinstance(value, (str, bytes)):
        return 0 < _size(value) <= most
    return value is not NO_KEY


def _size(value: str | bytes) -> int:
    return len(value.encode() if isinstance(value, str) else value)


def _of_keys(pattern: Pattern, test: KeyTest) -> KeyTest | None:
    """The test for DynamoDB, without values if every key passes it; None if no key can.

    Raises: SettingsError for a range with a bound that is longer than a key.
    """
    operator, values = test.operator, test.values
    if values[0] is NO_KEY:
        return None
    if operator == "equal" or not isinstance(values[0], (str, bytes)):
        can_be = _is_key(values[0], SORT_KEY_BYTES) and not _is_reversed(test)
        return test if can_be else None
    if _is_reversed(test) or (operator in ("between", "le", "lt") and not values[-1]):
        return None
    if not _can_be(pattern, test, SORT_KEY_BYTES):
        return None
    if values[0]:
        return test
    return KeyTest(test.attribute, "le", values[1:]) if operator == "between" else replace(test, values=[])


def _can_be(pattern: Pattern, test: KeyTest, most: int) -> bool:
    """Raises: SettingsError for a range with a bound longer than `most` bytes."""
    is_longer = any(_size(value) > most for value in test.values if isinstance(value, (str, bytes)))
    if is_longer and test.operator not in ("equal", "begins_with"):
        what = f"{pattern.name}: a parameter makes a bound of {test.attribute} longer than it can be"
        raise SettingsError(f"{what} ({most} bytes)")
    return not is_longer and not _is_reversed(test)


def _is_set(pattern: Pattern, attribute: str, bounds: Sequence[Expression], values: Sequence[Any]) -> bool:
    """Whether all bounds have their parameters. Raises: SettingsError if only one of two is set."""
    if None not in values:
        return True
    if any(value is not None and [*paths_in([bound])] for bound, value in zip(bounds, values, strict=True)):
        what = f"{pattern.name}: only one bound of {attribute} is set"
        raise SettingsError(f"{what}; give both or neither, or write |or: in each bound")
    return False


def _is_reversed(test: KeyTest) -> bool:
    if test.operator != "between":
        return False
    low, high = test.values
    types = {
        "text" if isinstance(one, str) else "bytes" if isinstance(one, bytes) else "number"
        for one in (low, high)
    }
    return len(types) > 1 or low > high


def _parameters(pattern: Pattern, partition: list[KeyTest], made: QueryParts) -> dict[str, Any]:
    names: dict[str, str] = {}
    bound: dict[str, Any] = {}
    conditions = [*_clauses("p", partition, names, bound), *_clauses("s", made.sort, names, bound)]
    filters = list(_clauses("f", made.filters, names, bound))
    query: dict[str, Any] = {
        "KeyConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": bound,
        "ScanIndexForward": not pattern.descending,
    }
    if filters:
        query["FilterExpression"] = " AND ".join(filters)
    if pattern.index:
        query["IndexName"] = pattern.index
    if pattern.consistent:
        query["ConsistentRead"] = True
    return query


def _filters(pattern: Pattern, render: Renderer) -> list[KeyTest] | None:
    given = []
    for comparison in pattern.filters:
        values = [render.value(value) for value in comparison.values]
        if _is_set(pattern, comparison.attribute, comparison.values, values):
            given.append(KeyTest(comparison.attribute, comparison.operator, values))
    return given if all(_can_be(pattern, test, ITEM_BYTES) for test in given) else None


def _clauses(
    letter: str, tests: Sequence[KeyTest], names: dict[str, str], bound: dict[str, Any]
) -> Iterator[str]:
    count = 0
    for number, test in enumerate(tests):
        names[f"#{letter}{number}"] = test.attribute
        places = []
        for value in test.values:
            places.append(f":{letter}{count}")
            bound[places[-1]] = value
            count += 1
        yield CONDITIONS[test.operator].format(f"#{letter}{number}", *places)


def _limit(pattern: Pattern, params: Dict[str, Any]) -> int | None:
    if pattern.limit is None:
        return None
    limit = int(pattern.limit) if pattern.limit.isdecimal() else params.get(pattern.limit)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise SettingsError(f"{pattern.name}: the limit must be a whole number above 0")
    return limit if limit is None else min(limit, QUERY_LIMIT)


def _near(pattern: Pattern, star: Ref, params: Dict[str, Any]) -> Nearby | None:
    """The circle of the answer.

    Raises: SettingsError if the queried cells might not contain all of it.
    """
    near = pattern.near
    if near is None:
        return None
    latitude, longitude = (params[name] for name in near.origin)
    within = params[near.within_m] if isinstance(near.within_m, str) else near.within_m
    if latitude is None or longitude is None or within is None:
        raise SettingsError(f"{pattern.name}: a parameter of near is not set")
    if not 0 < within < float("inf"):
        raise SettingsError(f"{pattern.name}: the distance must be a number of metres above 0")
    precision = int(star.filters[0].args[0])
    if within > reach_m(latitude, precision):
        raise SettingsError(_too_far(pattern, precision, latitude, float(within)))
    return Nearby((float(latitude), float(longitude)), near.at, float(within))


def _too_far(pattern: Pattern, precision: int, latitude: Any, within: float) -> str:
    wider = precision_for(latitude, within)
    mend = f"geohash:{wider} is enough" if wider else "no geohash is enough"
    reach = math.floor(reach_m(latitude, precision))
    wanted = f"{within:.1f}".removesuffix(".0")
    return f"{pattern.name}: nine cells of geohash:{precision} reach {reach} m at this latitude, not {wanted} m; {mend}"


_SIGNED_BYTES = 16
_FORM = 1
Start = Item | None
"""Position in one partition: the key attributes of the last returned item; None before the first."""


class Cursor(Struct, frozen=True):
    """The state of a read page by page.

    `given`: items or rows on earlier pages.
    `asked`: a digest of the parameters.
    `begun_at`: seconds since 1970, of the first page.
    `starts`: of the table's partitions.
    `row`: a digest of SQL's last row.
    """

    pattern: str
    asked: str
    revision: str
    side: Side
    begun_at: float
    given: int
    starts: tuple[Start, ...] = ()
    row: str = ""


def digest_of(params: Dict[str, str]) -> str:
    return row_digest(json.dumps(sorted(params.items())))


def signed(cursor: Cursor, key: str) -> str:
    """Signed text: it is not encrypted, and cannot be changed without the key."""
    content = [
        _FORM,
        cursor.pattern,
        cursor.asked,
        cursor.revision,
        cursor.side,
        cursor.begun_at,
        cursor.given,
        [start and [_plain(name, start[name]) for name in start] for start in cursor.starts],
        cursor.row,
    ]
    body = json.dumps(content, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_signature(body, key) + body).decode("ascii").rstrip("=")


def opened(text: str, key: str) -> Cursor:
    """Raises: SettingsError if the text was not signed with the key."""
    try:
        whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _forged() from None
    signature, body = whole[:_SIGNED_BYTES], whole[_SIGNED_BYTES:]
    if not hmac.compare_digest(signature, _signature(body, key)):
        raise _forged()
    form, pattern, params_digest, revision, side, begun_at, given, starts, row = json.loads(body)
    if form != _FORM:
        raise SettingsError("the cursor was made by another version of migrator; start paging again")
    read = tuple(None if start is None else dict(map(_value, start)) for start in starts)
    return Cursor(pattern, params_digest, revision, side, begun_at, given, read, row)


def _forged() -> SettingsError:
    what = "invalid cursor: it is damaged, forged, or signed with another reads.cursor_key"
    return SettingsError(f"{what}; start paging again, and give all processes the same key")


def _signature(body: bytes, key: str) -> bytes:
    return hmac.new(key.encode(), b"migrator cursor " + body, hashlib.sha256).digest()[:_SIGNED_BYTES]


def row_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _plain(name: str, value: Value) -> list[Any]:
    if isinstance(value, bytes):
        return [name, "B", base64.b64encode(value).decode("ascii")]
    return [name, "S", value] if isinstance(value, str) else [name, "N", str(value)]


def _value(plain: list[Any]) -> tuple[str, Value]:
    name, type_, text = plain
    if type_ == "B":
        return name, base64.b64decode(text)
    if type_ == "S":
        return name, text
    number = Decimal(text)
    return name, int(number) if number == number.to_integral_value() else number
