"""Key conditions and filters as DynamoDB reads them, as far as migrator writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from migrator.mapping.model.table import Item

_CLAUSE = re.compile(
    r"begins_with\((?P<begins>#\w+), (?P<prefix>:\w+)\)"
    r"|(?P<between>#\w+) BETWEEN (?P<low>:\w+) AND (?P<high>:\w+)"
    r"|(?P<name>#\w+) (?P<operator>=|>=|>|<=|<) (?P<value>:\w+)"
)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    ">=": lambda one, other: one >= other,
    ">": lambda one, other: one > other,
    "<=": lambda one, other: one <= other,
    "<": lambda one, other: one < other,
}


def holds(item: Item, expression: str, request: Mapping[str, Any]) -> bool:
    """Whether the item meets every clause; the request has the names and values."""
    assert _CLAUSE.sub("", expression).replace(" AND ", "") == "", expression
    return all(test(item) for test in _tests(expression, request))


def _tests(expression: str, request: Mapping[str, Any]) -> Iterator[Callable[[Item], bool]]:
    names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
    for clause in _CLAUSE.finditer(expression):
        name = names[clause["begins"] or clause["between"] or clause["name"]]
        if clause["begins"]:
            yield _test(name, values[clause["prefix"]], lambda one, prefix: one.startswith(prefix))
        elif clause["between"]:
            yield _test(name, values[clause["low"]], _COMPARED[">="])
            yield _test(name, values[clause["high"]], _COMPARED["<="])
        else:
            yield _test(name, values[clause["value"]], _COMPARED[clause["operator"]])


def _test(name: str, value: Any, compare: Callable[[Any, Any], bool]) -> Callable[[Item], bool]:
    """An attribute that is missing, or of another type, meets nothing."""
    return lambda item: _kind(item.get(name)) == _kind(value) and compare(item[name], value)


def _kind(value: Any) -> str:
    return type(value).__name__ if isinstance(value, (str, bytes, bool)) or value is None else "number"
