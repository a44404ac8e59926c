"""How columns stand in keys: templates of partitions and sort keys whose texts sort as SQL sorts the values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrator.mapping.items.templates import name_in_template
from migrator.mapping.model.facts import Column, SchemaFacts
from migrator.mapping.model.questions import Figures, Path, Span, free_name, plain_name
from migrator.mapping.model.table import OWN_TYPES

_SPARE_DIGITS = 2
"""A number that grows by so many digits still fits its width; then rows are refused, not sorted wrongly."""
_LEAST_DIGITS = 6
_MOST_DIGITS = 20

PLAIN = frozenset({"integer", "boolean", "date", "time", "uuid"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A value of a key: where it stands, and what follows its name within the braces (a format, filters)."""

    path: Path
    form: str

    def of(self, name: str) -> str:
        """The template of the value under another name, such as a parameter's."""
        return "{" + name_in_template(name) + self.form + "}"

    @property
    def stored(self) -> str:
        return self.of(".".join(filter(None, self.path)))


def equal_form(column: Column, span: Span | None, *, several: bool, lowered: bool = False) -> str | None:
    """The form of a value that is asked by equality; None for a type without one. `several`: others stand beside it."""
    kind = column.kind.name
    if kind == "text":
        alike = ("case", *column.alike) if lowered else column.alike
        filters = ["|lower"] if "case" in alike else []
        filters += ["|trim"] if "trailing spaces" in column.alike else []
        return "".join([*filters, *(["|escape"] if several else [])])
    if lowered:
        return None
    if kind == "timestamp":
        return "|iso"
    if kind == "number" and column.kind.scale is not None:
        return "" if column.kind.scale == 0 else _padded(column.kind.scale, span)
    return "" if kind in PLAIN else None


def sort_form(column: Column, span: Span | None, *, reverse: bool = False) -> str | None:
    """The form of a value whose texts sort as the values do, or (`reverse`) backwards; None where there is none."""
    kind = column.kind.name
    backwards = "|desc" if reverse else ""
    if kind == "timestamp":
        return f"|iso{backwards}"
    if kind == "date":
        return backwards
    if kind == "integer" or (kind == "number" and column.kind.scale is not None):
        padded = _padded(column.kind.scale or 0, span)
        return None if padded is None else padded + backwards
    return None


def key_form(column: Column, span: Span | None) -> str:
    """The form of a part of a row's key at the end of a sort key: sorted where it can be, else plain."""
    form = sort_form(column, span)
    if form is None:
        form = equal_form(column, span, several=True)
    return "|escape" if form is None else form


def _padded(scale: int, span: Span | None) -> str | None:
    """None where a number is negative: its text would sort wrongly, and its row would be refused."""
    if span is None or (span.least or 0) < 0:
        return None
    digits = min(max(len(str(span.most or 0)) + _SPARE_DIGITS, _LEAST_DIGITS), _MOST_DIGITS)
    return f":0{digits + 1 + scale}.{scale}f" if scale else f":0{digits}"


@dataclass(frozen=True)
class Names:
    """What tables are called in keys (`words`) and as items (`types`), and the attributes that no column has a name of."""

    words: dict[str, str]
    types: dict[str, str]
    entities: dict[str, str]
    partition: str
    sort: str
    type: str
    ttl: str

    @classmethod
    def of(cls, facts: SchemaFacts) -> Names:
        words: dict[str, str] = {}
        types: dict[str, str] = {}
        entities: dict[str, str] = {}
        for table in sorted(facts.tables):
            plain = plain_name(table)
            entities[table] = free_name(plain, entities.values())
            words[table] = free_name(plain.upper(), words.values())
            camel = "".join(word.capitalize() for word in plain.split("_"))
            types[table] = free_name(camel, (*types.values(), *OWN_TYPES))
        taken = {column.name for table in facts.tables.values() for column in table.columns}
        own = (_untaken(name, taken) for name in ("PK", "SK", "entity_type", "expires_at"))
        return cls(words, types, entities, *own)


def _untaken(name: str, taken: Iterable[str]) -> str:
    lower = {other.lower() for other in taken}
    while name.lower() in lower:
        name = f"_{name}"
    return name


def joined_key(word: str, pieces: Sequence[str]) -> str:
    """A key attribute: a word, and the values behind it."""
    return "#".join([word, *pieces])


def span_of(figures: Figures, table: str, column: str) -> Span | None:
    return figures.spans.get((table, column))
