"""A mapping's item types as a JSON Schema (draft 2020-12) of plain JSON items."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migrator.features.exports.model import ItemAttribute, ItemType, Model, RowModel
from migrator.mapping.items.filters import MOMENT, sample_of, specs_of
from migrator.mapping.items.program import Key
from migrator.mapping.items.templates import format_width
from migrator.mapping.model.facts import Kind, KindName
from migrator.mapping.model.mapping import Const, Ref
from migrator.mapping.model.table import TableDesign

_DATE = r"\d{4}-\d{2}-\d{2}"
_MOMENT = r"^\d{4}-?\d{2}-?\d{2}T\d{2}:?\d{2}:?\d{2}(\.\d{3,6})?Z?$"
"""A time as any form of the filter `iso` writes it."""
_BASE64 = {"type": "string", "contentEncoding": "base64"}
_KINDS: dict[KindName, Mapping[str, Any]] = {
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "float": {"type": "number"},
    "text": {"type": "string"},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "pattern": f"^{_DATE}$"},
    "time": {"type": "string", "pattern": r"^\d{2}:\d{2}:\d{2}(\.\d{1,6})?([+-]\d{2}:\d{2}(:\d{2})?)?$"},
    "uuid": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
    "bits": {"type": "string", "pattern": "^[01]*$"},
    "binary": _BASE64,
    "set": {"type": "array", "items": {"type": "string"}},
}
_TEXTS: dict[KindName, str] = {
    "integer": r"-?\d+",
    "number": r"-?\d+(\.\d+)?",
    "date": _DATE,
    "uuid": "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "boolean": "(true|false)",
}
"""Patterns of texts in templates, by kind of value."""


def json_schema(model: Model, head: Sequence[str]) -> str:
    definitions: dict[str, Any] = {}
    for name, row, item in _named(model):
        definitions[name] = _item(f"#/$defs/{_pointer(name)}/properties", model.table, row, item)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": " ".join(head),
        "title": f"Items of the table {model.table.name}",
        "description": (
            "Items as plain JSON, as the SDKs' document clients give them: numbers as numbers, bytes as Base64, times as "
            "ISO 8601, no value as no attribute. Migrator's own items (tombstones, _control) are not described."
        ),
        "oneOf": [{"$ref": f"#/$defs/{_pointer(name)}"} for name in definitions],
        "$defs": definitions,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _named(model: Model) -> Iterator[tuple[str, RowModel, ItemType]]:
    """Item types with distinct names; those of several schemas share one."""
    taken: set[str] = set()
    for row in model.rows:
        for item in row.items:
            names = (item.called, *(f"{item.name} {number}" for number in range(2, 10_000)))
            name = next(name for name in names if name not in taken)
            taken.add(name)
            yield name, row, item


def _pointer(name: str) -> str:
    escaped = name.replace("~", "~0").replace("/", "~1").encode()
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in escaped)


def _item(at: str, table: TableDesign, row: RowModel, item: ItemType) -> dict[str, Any]:
    properties: dict[str, Any] = {key.name: _key(row, key) for key in item.key}
    properties[table.type_attribute] = {"const": item.name}
    together: dict[str, list[str]] = {}
    for entry in item.entries:
        names = [key.name for key in entry.keys]
        properties |= {key.name: _key(row, key) for key in entry.keys}
        together |= {name: [other for other in names if other != name] for name in names if len(names) > 1}
    properties |= {
        attribute.name: _attribute(f"{at}/{_pointer(attribute.name)}", attribute)
        for attribute in item.attributes
    }
    if item.expiry and table.ttl:
        properties[table.ttl] = {
            "type": "integer",
            "description": "When the item expires, in seconds since 1970.",
        }
    properties |= _own(table)
    required = [key.name for key in item.key] + [table.type_attribute]
    required += [attribute.name for attribute in item.attributes if attribute.required]
    described = {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))}
    if together:
        described["dependentRequired"] = together
    return described | {"additionalProperties": False}


def _own(table: TableDesign) -> dict[str, Any]:
    return {
        table.source_attribute: {
            "type": "string",
            "description": "Migrator's own: the row that made the item.",
        },
        table.ticket_attribute: {"type": "integer", "description": "Migrator's own: when the row was read."},
        table.revision_attribute: {
            "type": "string",
            "description": "Migrator's own: the mapping's revision.",
        },
    }


def _attribute(at: str, attribute: ItemAttribute) -> Mapping[str, Any]:
    if attribute.stored:
        pointer = {"type": "object", "description": "Where the value is in S3."}
        return {"anyOf": [_kind(f"{at}/anyOf/0", attribute.kind), pointer]}
    value = attribute.expression
    if isinstance(value, Const):
        return {"const": json.loads(json.dumps(value.value, default=float))}
    return _kind(at, attribute.kind)


def _kind(at: str, kind: Kind | None) -> Mapping[str, Any]:
    """The schema of a value. `at`: the pointer to it, for arrays that contain arrays of their kind."""
    if kind is None:
        return {}
    if kind.name == "timestamp":
        return {"type": "string", "pattern": _MOMENT}
    if kind.distinct:
        return {"type": "array", "items": _kind(f"{at}/items", kind.element), "uniqueItems": True}
    if kind.name == "list":
        return {"type": "array", "items": _element(f"{at}/items", kind.element, {"$ref": at})}
    if kind.name == "map" and kind.fields:
        fields = {name: _kind(f"{at}/properties/{_pointer(name)}", of) for name, of in kind.fields}
        return {"type": "object", "properties": fields, "additionalProperties": False}
    if kind.name == "map":
        additional = _element(f"{at}/additionalProperties", kind.element)
        return {"type": "object", "additionalProperties": additional}
    return _KINDS.get(kind.name, {})


def _element(at: str, kind: Kind | None, *more: Mapping[str, Any]) -> Mapping[str, Any]:
    if kind is None:
        return {}
    return {"anyOf": [_kind(f"{at}/anyOf/0", kind), {"type": "null"}, *more]}


# ── keys ──


def _key(row: RowModel, key: Key) -> Mapping[str, Any]:
    template = key.template
    if key.attribute.type != "text":
        return {"type": "number"} if key.attribute.type == "number" else _BASE64
    if not template.refs:
        return {"const": "".join(part for part in template.parts if isinstance(part, str))}
    pieces = (_literal(part) if isinstance(part, str) else _looks(row, part) for part in template.parts)
    return {"type": "string", "pattern": f"^{''.join(pieces)}$"}


def _literal(text: str) -> str:
    """Escape a text for ECMA 262, which has fewer escapes than Python."""
    return re.sub(r"[\\^$.*+?()\[\]{}|/]", lambda found: f"\\{found[0]}", text)


def _looks(row: RowModel, ref: Ref) -> str:
    if ref.format is not None and not ref.filters:
        width, decimals = format_width(ref.format)
        return rf"\d{{{width - decimals - 1}}}\.\d{{{decimals}}}" if decimals else rf"\d{{{width}}}"
    spec = specs_of(ref)[-1] if ref.filters else None
    if spec is not None and spec.width == "fixed" and set(spec.alphabet) <= set(MOMENT):
        digits = re.sub(r"\d+", lambda run: rf"\d{{{len(run[0])}}}", _literal(sample_of(ref.filters[-1])))
        return digits + "Z?" * spec.moment
    kinds = {value.path: value.kind.name for value in row.values}
    plain = not ref.filters and len(ref.paths) == 1
    # A text may be empty between other parts of a key.
    return _TEXTS.get(kinds.get(ref.paths[0], "plain"), r"[\s\S]*") if plain else r"[\s\S]*"
