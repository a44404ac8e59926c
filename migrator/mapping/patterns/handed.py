"""Answers as a service's callers are given them: the side that answered, and values as Python's own types. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from migrator.mapping.items.filters import specs_of
from migrator.mapping.model.evidence import Side
from migrator.mapping.model.facts import Kind, KindName
from migrator.mapping.model.mapping import Part
from migrator.mapping.model.table import Value
from migrator.mapping.patterns.designs import Behind, Designs

Kinds: TypeAlias = "Mapping[str, Kind]"
"""By attribute what its column holds; without those that are no column's own value."""


class Records(list[dict[str, Value]]):
    """Dicts by attribute. `origin`: the side that gave them, 'sql' or 'table' (DynamoDB)."""

    def __init__(self, rows: Iterable[dict[str, Value]], origin: Side, kinds: Kinds | None = None) -> None:
        super().__init__(rows)
        self.origin: Side = origin
        self._kinds = kinds or {}

    def typed(self) -> list[dict[str, Any]]:
        """The same with values of Python's own types, alike from both sides.

        Of an attribute that is a column as it stands: datetime (aware where the column's type has a zone), date, time, UUID,
        Decimal, float. All else is as it was, and so is a value that its type has no form for.
        """
        return [_typed_record(record, self._kinds) for record in self]


class Parts(dict[str, "Records | dict[str, Value] | None"]):
    """The answer of a pattern with parts: by part its records, or one dict or None where it says `one: true`. `origin`:
    the side that gave all of them, 'sql' or 'table' (DynamoDB)."""

    def __init__(
        self,
        parts: Mapping[str, Records | dict[str, Value] | None],
        origin: Side,
        kinds: Mapping[str, Kinds] | None = None,
    ) -> None:
        super().__init__(parts)
        self.origin: Side = origin
        self._kinds = kinds or {}

    def typed(self) -> dict[str, Any]:
        """The same with values of Python's own types: see `Records.typed`."""
        return {name: self._typed_part(name, part) for name, part in self.items()}

    def _typed_part(self, name: str, part: Records | dict[str, Value] | None) -> Any:
        if isinstance(part, dict):
            return _typed_record(part, self._kinds.get(name, {}))
        return part if part is None else part.typed()


Answer: TypeAlias = "Records | Parts"
"""What a caller is given."""


def kinds_for(designs: Designs, part: Part) -> dict[str, Kind]:
    """By attribute of the part what its column holds, where its value is that of a column, of one type."""
    found = {name: _kind(designs, part, name) for name in part.attributes}
    return {name: kind for name, kind in found.items() if kind is not None}


def _kind(designs: Designs, part: Part, name: str) -> Kind | None:
    kinds = {_own_kind(column) for column in designs.columns(part.type, name)}
    return kinds.pop() if len(kinds) == 1 else None


def _own_kind(column: Behind) -> Kind | None:
    if column is None or not all(spec.moment for spec in specs_of(column[1])):
        return None
    return Kind(column[0].name, element=column[0].element, fields=column[0].fields)


_PYTHON: dict[KindName, Callable[[Any], Any]] = {
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "uuid": UUID,
    "number": Decimal,
    "float": float,
}


def _typed_record(record: Mapping[str, Value], kinds: Kinds) -> dict[str, Any]:
    return {name: _typed(value, kinds.get(name)) for name, value in record.items()}


def _typed(value: Any, kind: Kind | None) -> Any:
    if kind is None or value is None:
        return value
    if kind.element is not None and isinstance(value, list):
        # Of arrays in arrays the kind is that of the innermost values.
        return [_typed(inner, kind if isinstance(inner, list) else kind.element) for inner in value]
    if isinstance(value, dict):
        fields = dict(kind.fields)
        return {name: _typed(inner, fields.get(name, kind.element)) for name, inner in value.items()}
    return _converted(value, kind.name)


def _converted(value: Any, name: KindName) -> Any:
    convert = _PYTHON.get(name)
    # `|text` keeps, as a text, a number that has no form; infinity and zero dates are texts that are no times.
    if convert is None or isinstance(value, str) is (name in ("number", "float")):
        return value
    try:
        return convert(value)
    except ValueError:
        return value


# ── values that a test gives a fake, in the types that it likes ──

_KIND_OF: tuple[tuple[type, KindName], ...] = (
    (datetime, "timestamp"),
    (date, "date"),
    (time, "time"),
    (UUID, "uuid"),
    (Decimal, "number"),
    (float, "float"),
)


def kinds_of(records: Iterable[Mapping[str, Any]]) -> dict[str, Kind]:
    """By attribute the kind that values of Python's own types are of."""
    found: dict[str, Kind] = {}
    for record in records:
        for name, value in record.items():
            kind = next((Kind(kind) for type_, kind in _KIND_OF if isinstance(value, type_)), None)
            if kind is not None:
                found[name] = kind
    return found
