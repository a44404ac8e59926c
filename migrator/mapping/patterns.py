"""Access patterns compiled to requests: parameters in, key conditions out."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from migrator.errors import RowError, SettingsError
from migrator.facts import Kind
from migrator.mapping import values
from migrator.mapping.answers import Reader
from migrator.mapping.document import did_you_mean
from migrator.mapping.expressions import Places, compile_key
from migrator.mapping.filters import Surroundings
from migrator.model import Item, KeyAttribute, Mapping, Param, ParamType, Part, Pattern, Template

_CONDITIONS = {
    "equal": "#s = :s0",
    "begins_with": "begins_with(#s, :s0)",
    "between": "#s BETWEEN :s0 AND :s1",
    "ge": "#s >= :s0",
    "gt": "#s > :s0",
    "le": "#s <= :s0",
    "lt": "#s < :s0",
}
_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True)
class Request:
    """A Query as DynamoDB takes it, with plain Python values; its table's name is the store's to add.

    `limit` is how many items the answer has at most (None: all); it is counted by us, over pages.
    """

    query: dict[str, Any]
    limit: int | None


def read_params(pattern: Pattern, given: Dict[str, str]) -> dict[str, Any]:
    """The pattern's parameters out of texts, by their declared types; an unset optional one is None.

    Raises: SettingsError naming every parameter that is unknown, missing or not of its type.
    """
    known = {param.name: param for param in pattern.params}
    faults = [
        f"{pattern.name} has no parameter '{name}'{did_you_mean(name, known)}"
        for name in given.keys() - known.keys()
    ]
    found: dict[str, Any] = {}
    for param in pattern.params:
        try:
            found[param.name] = _param(param, given.get(param.name))
        except (ValueError, InvalidOperation, RowError):
            faults.append(f"parameter '{param.name}' is not of type {param.type}")
        except KeyError:
            faults.append(
                f"parameter '{param.name}' ({param.type}) is missing; give it with -p {param.name}=…"
            )
    if faults:
        raise SettingsError("\n".join(sorted(faults)))
    return found


def request_for(mapping: Mapping, pattern: Pattern, params: Dict[str, Any]) -> Request:
    """The Query that answers the pattern. A `get` is a Query for one whole key."""
    partition, sort = _key_attributes(mapping, pattern)
    render = _Renderer(mapping, params)
    names = {"#p": partition.name}
    bound: dict[str, Any] = {":p": render.key(pattern.key[0], partition)}
    if bound[":p"] is None:
        raise SettingsError(f"{pattern.name}: a parameter of the partition key is not set")
    condition = "#p = :p"
    if pattern.sort is not None and sort is not None:
        found = [render.key(template, sort) for template in pattern.sort.values]
        if None not in found:
            names["#s"] = sort.name
            bound.update({f":s{number}": value for number, value in enumerate(found)})
            condition += f" AND {_CONDITIONS[pattern.sort.operator]}"
    query: dict[str, Any] = {
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": bound,
        "ScanIndexForward": not pattern.descending,
    }
    if pattern.index:
        query["IndexName"] = pattern.index
    return Request(query, _limit(pattern, params))


def answer_of(mapping: Mapping, pattern: Pattern, items: list[Item]) -> dict[str, list[tuple[Any, ...]]]:
    """Per part of the answer the returned attributes of its items, in order; an attribute not there is None."""
    type_attribute = mapping.table.type_attribute
    return {
        part.name: [
            tuple(item.get(name) for name in part.attributes)
            for item in items
            if not part.type or item.get(type_attribute) == part.type
        ]
        for part in pattern.parts
    }


def sql_params(params: Dict[str, Any]) -> dict[str, Any]:
    """Parameters as a statement takes them; the source gives each the form that its driver binds."""
    return dict(params)


def plain_rows(
    part: Part, rows: list[tuple[Any, ...]], readers: Sequence[Reader] = ()
) -> list[tuple[Any, ...]]:
    """Rows of the part's SQL as the items would say them, for comparison. `readers`: of its attributes, if known."""
    reading = readers or [lambda raw: raw] * len(part.attributes)
    return [tuple(_plain(read(value)) for read, value in zip(reading, row, strict=False)) for row in rows]


class _Renderer:
    def __init__(self, mapping: Mapping, params: Dict[str, Any]) -> None:
        self.around = Surroundings(mapping.table.separator, mapping.maps, mapping.timezone)
        self.places = Places({name: number for number, name in enumerate(params)}, {})
        self.row = tuple(params.values())

    def key(self, template: Template, attribute: KeyAttribute) -> Any:
        try:
            return compile_key(template, attribute, self.places, self.around)(self.row)
        except (RowError, ValueError) as error:
            raise SettingsError(f"a parameter does not fit the key: {error}") from None


def _key_attributes(mapping: Mapping, pattern: Pattern) -> tuple[KeyAttribute, KeyAttribute | None]:
    for index in mapping.table.indexes:
        if index.name == pattern.index:
            return index.partition[0], index.sort[0] if index.sort else None
    key = mapping.table.key
    return key[0], key[1] if len(key) > 1 else None


def _limit(pattern: Pattern, params: Dict[str, Any]) -> int | None:
    if pattern.limit is None:
        return None
    limit = int(pattern.limit) if pattern.limit.isdecimal() else params.get(pattern.limit)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise SettingsError(f"{pattern.name}: the limit must be a whole number above 0")
    return limit


def _param(param: Param, text: str | None) -> Any:
    if text is None:
        if param.optional:
            return None
        raise KeyError(param.name)
    return _READERS[param.type](text)


def _truth(text: str) -> bool:
    found = _TRUTHS.get(text.lower())
    if found is None:
        raise ValueError(text)
    return found


_READERS: dict[ParamType, Any] = {
    "integer": int,
    "number": Decimal,
    "text": str,
    "boolean": _truth,
    "date": date.fromisoformat,
    "timestamp": values.decoder(Kind("timestamp")),
    "uuid": values.decoder(Kind("uuid")),
}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return values.decoder(Kind("float"))(value)
    if isinstance(value, Decimal):
        return values.checked_number(value)
    return values.attribute(str(value) if type(value).__name__ == "UUID" else value)
