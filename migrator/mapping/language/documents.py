"""Old tables of DynamoDB: types of declared columns, and the facts that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict

from migrator.mapping.model.facts import Column, Kind, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import DocumentTable, Mapping
from migrator.mapping.model.table import KeyType

DIALECT = "dynamodb"
_NUMBER = re.compile(r"number\((?P<scale>\d+)\)")
_SET = re.compile(r"set\((?P<of>text|number|binary)\)")
_ZONED = "timestamp with zone"
_ANY = ("S", "N", "B", "BOOL", "L", "M", "SS", "NS", "BS")
_HELD_AS: Dict[str, tuple[str, ...]] = {
    "text": ("S",),
    "integer": ("N",),
    "number": ("N",),
    "boolean": ("BOOL",),
    "binary": ("B",),
    "date": ("S",),
    "time": ("S",),
    "timestamp": ("S",),
    _ZONED: ("S",),
    "uuid": ("S",),
    "list": ("L",),
    "map": ("M",),
    "json": ("S", "N", "BOOL", "L", "M"),
    "any": _ANY,
    "set(text)": ("SS",),
    "set(number)": ("NS",),
    "set(binary)": ("BS",),
}
KEY_KINDS: Dict[str, KeyType] = {"S": "text", "N": "number", "B": "binary"}
"""DynamoDB's types of key attributes, with the mapping's names of them."""
TYPE_NAMES: Dict[str, str] = {
    "S": "a text (S)",
    "N": "a number (N)",
    "B": "binary (B)",
    "BOOL": "a boolean (BOOL)",
    "NULL": "NULL",
    "L": "a list (L)",
    "M": "a map (M)",
    "SS": "a set of texts (SS)",
    "NS": "a set of numbers (NS)",
    "BS": "a set of binaries (BS)",
}


def held_as(declared: str) -> tuple[str, ...]:
    return _HELD_AS["number" if _NUMBER.fullmatch(declared) else declared]


def key_type(declared: str) -> str:
    types = held_as(declared)
    return types[0] if len(types) == 1 and types[0] in KEY_KINDS else ""


def kind_of_type(declared: str) -> Kind:
    """The kind; a set stays one (SetOf), with ordered members, and lists and maps contain JSON values."""
    if match := _NUMBER.fullmatch(declared):
        return Kind("number", scale=int(match["scale"]))
    if match := _SET.fullmatch(declared):
        return Kind("list", element=Kind(match["of"]), distinct=True)  # type: ignore[arg-type]
    if declared in ("list", "map"):
        return Kind("json")
    if declared == "any":
        return Kind("plain")
    if declared == _ZONED:
        return Kind("timestamp", zone=True)
    return Kind(declared)  # type: ignore[arg-type]


def facts_of(mapping: Mapping) -> SchemaFacts:
    """The mapping's old tables in the form of a catalogue. Times and UUIDs are texts, so two texts may be one
    value.
    """
    tables = {name: _table(name, table) for name, table in mapping.documents.items()}
    return SchemaFacts(DIALECT, tables, loosely_typed=True)


def _table(name: str, table: DocumentTable) -> TableFacts:
    columns = tuple(
        Column(path, path, kind_of_type(declared), path not in table.key, declared)
        for path, declared in table.columns.items()
    )
    return TableFacts(name, name, columns, tuple(key for key in table.key if key in table.columns))
