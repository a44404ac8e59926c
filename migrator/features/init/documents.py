"""A mapping proposed for old tables of DynamoDB: what a sample of their documents has, as declarations, and what varies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from migrator.mapping.items.templates import name_in_template
from migrator.mapping.language.document import quoted
from migrator.mapping.language.documents import TYPE_NAMES
from migrator.runtime.errors import amount

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_TYPES = {
    "S": "text",
    "BOOL": "boolean",
    "B": "binary",
    "L": "list",
    "M": "map",
    "SS": "set(text)",
    "NS": "set(number)",
    "BS": "set(binary)",
}
_OF_KEYS = {"S": "text", "N": "number", "B": "binary"}
_LEVELS = 3
_PLACES = 30
"""Places in one map that are told; one with more is no record but a table of its own."""
_KEYS = (("PK", "SK"), ("pk", "sk"), ("_pk", "_sk"))


@dataclass
class Seen:
    """What a sample has at one path. `whole`: all numbers are; `moments`: all texts are moments in ISO 8601."""

    types: Counter[str] = field(default_factory=Counter)
    whole: bool = True
    moments: bool = True

    def see(self, wire: Mapping[str, Any]) -> None:
        ((type_, value),) = wire.items()
        self.types[type_] += 1
        if type_ == "N":
            self.whole &= "." not in value and "E" not in value.upper()
        if type_ == "S":
            self.moments &= bool(_MOMENT.fullmatch(value))

    @property
    def declared(self) -> str:
        types = [type_ for type_ in self.types if type_ != "NULL"]
        if len(types) != 1:
            return "any"
        return ("integer" if self.whole else "number") if types[0] == "N" else _TYPES[types[0]]


class SampledTable(Struct, frozen=True):
    """`key`: its attributes by name, each with its type (S, N or B), the partition's first. `items`: in DynamoDB's form."""

    name: str
    key: Mapping[str, str]
    items: Sequence[Mapping[str, Any]]


def mapping_text(table: str, tables: Sequence[SampledTable]) -> str:
    """A mapping with every table declared, and an entity for each that keeps its documents as they are."""
    partition, sort = _key_names(tables)
    lines = [
        "# What a sample of each table has: look through the types, above all at what varies.",
        "mapping: 1",
        "source:",
        "  timezone: UTC",
        "  tables:",
        *(line for one in tables for line in _table_lines(one)),
        f"table: {{name: {table}, key: [{partition}, {sort}], type: EntityType, ttl: expiresAtOfItem}}",
        "# Each document becomes one item with its own key: design the keys by what is asked (docs/documents.md).",
        "entities:",
        *(line for one in tables for line in _entity_lines(one)),
    ]
    return "\n".join(lines) + "\n"


def _key_names(tables: Sequence[SampledTable]) -> tuple[str, str]:
    """Names that no document has already."""
    taken = {name for table in tables for item in table.items for name in item}
    return next((names for names in _KEYS if not taken & set(names)), _KEYS[-1])


def seen_in(table: SampledTable) -> dict[str, Seen]:
    """By path, key attributes first, then as they come; places in maps behind the map."""
    seen: dict[str, Seen] = {name: Seen() for name in table.key}
    for item in table.items:
        for name, wire in item.items():
            _see(seen, name, wire, 1)
    return seen


def _see(seen: dict[str, Seen], path: str, wire: Mapping[str, Any], level: int) -> None:
    seen.setdefault(path, Seen()).see(wire)
    inner = wire.get("M", {})
    if level < _LEVELS and len(inner) <= _PLACES:
        for name, value in inner.items():
            _see(seen, f"{path}.{name}", value, level + 1)


def _table_lines(table: SampledTable) -> Iterator[str]:
    seen, count = seen_in(table), len(table.items)
    # A name with a dot of its own stands at the top of a document; all others lead into maps.
    own = {name for item in table.items for name in item} | set(table.key)
    yield f"    {_word(table.name)}:"
    yield f"      key: [{', '.join(map(_word, table.key))}]"
    yield f"      columns:  # of {amount(count, 'document')} looked at"
    for path, one in seen.items():
        declared = one.declared if one.types else _OF_KEYS[table.key[path]]
        remark = _remark(one, count)
        is_place = path not in own
        # A place in a map is for those who want it apart; with keep: all it would stand in items a second time.
        begin = "        # " if is_place else "        "
        yield f"{begin}{_word(path)}: {declared}{'  # ' + remark if remark else ''}"


def _remark(seen: Seen, of: int) -> str:
    told = []
    types = [type_ for type_ in seen.types if type_ != "NULL"]
    if len(types) > 1:
        told.append(
            "varies: " + ", ".join(f"{seen.types[type_]:,} have {TYPE_NAMES[type_]}" for type_ in types)
        )
    there = sum(seen.types[type_] for type_ in types)
    if there < of:
        told.append(f"in {there:,} of {of:,}")
    if types == ["S"] and seen.moments:
        told.append("moments: declare timestamp to use |iso")
    return "; ".join(told)


def _entity_lines(table: SampledTable) -> Iterator[str]:
    name = re.sub(r"[^A-Za-z0-9_]", "_", table.name)
    parts = [
        f"{name}#{{{name_in_template(part)}{'|hash' if type_ == 'B' else ''}}}"
        for part, type_ in table.key.items()
    ]
    key = parts if len(parts) > 1 else [*parts, name]
    yield f"  {_word(name)}:"
    yield f"    table: {_word(table.name)}"
    if "B" in table.key.values():
        yield "    # Bytes have no text in a key: |hash does not keep their order. A key attribute of type binary does."
    yield f"    items: {{{name}: {{key: {quoted(key)}, keep: all}}}}"


def _word(text: str) -> str:
    """The text as YAML has it."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_OF_YAML else quoted(text)
