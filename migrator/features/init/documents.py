"""A mapping proposed for old DynamoDB tables: declarations from a sample of their documents, with their variations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from migrator.cli.template import text_template
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
"""The most places of one map that are listed; a larger map is a table of its own, not a record."""
_KEYS = (("PK", "SK"), ("pk", "sk"), ("_pk", "_sk"))


@dataclass
class Seen:
    """A sample's values at one path. `whole`: all are integers. `moments`: all texts are ISO 8601 times."""

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
    """`key`: type (S, N or B) by attribute, the partition's first. `items`: in DynamoDB JSON."""

    name: str
    key: Mapping[str, str]
    items: Sequence[Mapping[str, Any]]

    @property
    def entity(self) -> str:
        return re.sub(r"[^A-Za-z0-9_]", "_", self.name)

    @property
    def top(self) -> set[str]:
        """Names at the top of documents, which may contain dots; all others lead into maps."""
        return {name for item in self.items for name in item} | set(self.key)


def mapping_text(table: str, tables: Sequence[SampledTable]) -> str:
    """A mapping that declares every table, with an entity for each that keeps its documents unchanged."""
    template = text_template(__package__, "documents.yaml.j2", word=_word, amount=amount, quoted=quoted)
    functions = {"seen_in": seen_in, "remark": _remark, "entity_key": _entity_key, "types_of_keys": _OF_KEYS}
    return template.render(functions, name=table, key=_key_names(tables), tables=tables)


def _key_names(tables: Sequence[SampledTable]) -> tuple[str, str]:
    taken = {name for table in tables for item in table.items for name in item}
    return next((names for names in _KEYS if not taken & set(names)), _KEYS[-1])


def seen_in(table: SampledTable) -> dict[str, Seen]:
    """Values by path, key attributes first; places in maps after the map."""
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


def _entity_key(table: SampledTable) -> list[str]:
    parts = [
        f"{table.entity}#{{{name_in_template(part)}{'|hash' if type_ == 'B' else ''}}}"
        for part, type_ in table.key.items()
    ]
    return parts if len(parts) > 1 else [*parts, table.entity]


def _word(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_OF_YAML else quoted(text)
