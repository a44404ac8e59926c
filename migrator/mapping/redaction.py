"""Which attributes must not be shown: those that a pattern redacts, and all others made of the same columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from migrator.facts import CollectionPlan, EntityPlan, JoinPlan, Slot, TableFacts
from migrator.mapping.items import kept_columns
from migrator.mapping.origins import origins_of, redacted_params
from migrator.model import Const, Each, Expression, ItemDesign, MapOf, Pattern, Ref, Stored, Template
from migrator.model import Mapping as MappingModel

_WORD = re.compile(r"\w+")
_Column: TypeAlias = tuple[str | None, str, str]
"""Schema, table, column, by their real names."""


@dataclass(frozen=True)
class Redaction:
    """`names`: written in some `redact:`. `columns`: behind them, wherever they are read."""

    names: frozenset[str]
    columns: frozenset[_Column]

    def hidden(self, plan: EntityPlan, design: ItemDesign) -> frozenset[str]:
        """The attributes of this item type whose values are not to be shown, key attributes of indexes aside."""
        hides = _Hiding(self, plan)
        written = {**plan.entity.attributes, **design.attributes}
        kept = [name for name in kept_columns(plan, design) if hides.path(name)]
        return self.names | {name for name, value in written.items() if hides.value(value)} | set(kept)

    def hides_path(self, plan: EntityPlan, path: str) -> bool:
        return _Hiding(self, plan).path(path)

    def hides_key(self, plan: EntityPlan, template: Template) -> bool:
        """Whether the template is made of a column that is not to be shown."""
        return _Hiding(self, plan).value(template)


def redaction_of(mapping: MappingModel, plans: Sequence[EntityPlan]) -> Redaction:
    """What the mapping's patterns redact, seen over all of its entities."""
    names = frozenset(name for pattern in mapping.patterns.values() for name in pattern.redact)
    columns = {column for plan in plans for column in _behind(plan, names)}
    for pattern in mapping.patterns.values():
        for found in origins_of(mapping, pattern, plans) if pattern.redact and plans else ():
            places = _places(found.plan)
            paths = [origin.path for name, origin in found.of.items() if name in pattern.redact]
            columns |= {places[path] for path in paths if path in places}
    return Redaction(names, frozenset(columns))


@dataclass(frozen=True)
class Hidden:
    """What is not to be shown of one pattern: `attributes` of its answers, and `params`."""

    attributes: frozenset[str] = frozenset()
    params: frozenset[str] = frozenset()


def hidden_by_pattern(mapping: MappingModel, plans: Sequence[EntityPlan]) -> dict[str, Hidden]:
    """By pattern what it redacts itself, and what any other redacts of the same columns."""
    redaction = redaction_of(mapping, plans)
    by_type: dict[str, frozenset[str]] = {}
    for plan in plans:
        for design in plan.entity.items:
            by_type[design.type] = by_type.get(design.type, frozenset()) | redaction.hidden(plan, design)
    return {
        name: Hidden(_of_answers(redaction, pattern, by_type), _of_params(redaction, mapping, pattern, plans))
        for name, pattern in mapping.patterns.items()
    }


def _of_answers(
    redaction: Redaction, pattern: Pattern, by_type: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    types = {part.type for part in pattern.parts}
    return redaction.names.union(*(names for type_, names in by_type.items() if types & {"", type_}))


def _of_params(
    redaction: Redaction, mapping: MappingModel, pattern: Pattern, plans: Sequence[EntityPlan]
) -> frozenset[str]:
    if not redaction.names:
        return frozenset()
    found = origins_of(mapping, pattern, plans) if plans else []
    hidden = {
        name
        for one in found
        for name, origin in one.of.items()
        if redaction.hides_path(one.plan, origin.path)
    }
    named = redaction.names & {param.name for param in pattern.params}
    return named | hidden | redacted_params(pattern, found)


def _behind(plan: EntityPlan, names: frozenset[str]) -> Iterator[_Column]:
    """Columns of those names, and those that attributes of those names are made of."""
    places = _places(plan)
    yield from (column for path, column in places.items() if path.rpartition(".")[2] in names)
    yield from (_column(plan.table, one.real) for one in plan.table.columns if one.name in names)
    for design in plan.entity.items:
        for name, value in {**plan.entity.attributes, **design.attributes}.items():
            if name in names:
                yield from (places[path] for path in _paths(value) if path in places)


class _Hiding:
    """The redaction as one entity meets it. What a transform made of a row of hidden columns is hidden, too."""

    def __init__(self, redaction: Redaction, plan: EntityPlan) -> None:
        places = _places(plan)
        self.hidden = {path for path, column in places.items() if column in redaction.columns}
        if self.hidden:
            self.hidden |= set(plan.transformed)
        self.hidden |= redaction.names
        # SQL of the source's own may be made of anything that it names.
        for one in plan.computed:
            words = _WORD.findall(one.column.sql or "")
            if not self.hidden.isdisjoint([*words, *(f"{one.alias}.{word}" for word in words)]):
                self.hidden.add(one.path)

    def path(self, path: str) -> bool:
        return path in self.hidden

    def value(self, value: Expression) -> bool:
        return any(path in self.hidden for path in _paths(value))


def _paths(value: Expression, within: str = "") -> Iterator[str]:
    """Every path in the expression; of a child row with its collection's name before it."""
    if isinstance(value, Ref):
        yield from (f"{within}{path}" for path in value.paths)
    elif isinstance(value, Template):
        yield from (f"{within}{path}" for ref in value.refs for path in ref.paths)
    elif isinstance(value, MapOf):
        for one in value.entries.values():
            yield from _paths(one, within)
    elif isinstance(value, Each):
        for one in value.attributes.values():
            yield from _paths(one, f"{within}{value.collection}.")
    elif isinstance(value, Stored):
        yield from _paths(value.value, within)
    else:
        assert isinstance(value, Const)


def _places(plan: EntityPlan) -> dict[str, _Column]:
    found = dict(_slots(plan.table, plan.joins, plan.slots))
    for one in plan.collections:
        found |= _children(one)
    return found


def _children(one: CollectionPlan) -> dict[str, _Column]:
    alias = one.collection.alias
    found = {f"{alias}.{path}": column for path, column in _slots(one.table, one.joins, one.slots)}
    if one.column is not None:
        found[alias] = _column(one.table, one.column.real)
    return found


def _slots(
    table: TableFacts, joins: Sequence[JoinPlan], slots: Sequence[Slot]
) -> Iterator[tuple[str, _Column]]:
    tables = {"": table} | {join.alias: join.table for join in joins}
    for slot in slots:
        if slot.alias in tables:
            yield slot.path, _column(tables[slot.alias], slot.column.real)


def _column(table: TableFacts, column: str) -> _Column:
    return table.schema, table.real, column
