"""Access patterns between two revisions: what they ask, which answers can change, and which items they no longer reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from migrator.mapping.check.keys import types_read
from migrator.mapping.difference.meaning import (
    AS_WRITTEN,
    ATTRIBUTE,
    BASE_KEY,
    ENTRY,
    TTL,
    Writing,
    filter_form,
)
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Pattern, Statement
from migrator.runtime.values import replace

ItemType = tuple[str, str]
"""(entity as written, item type)."""
ChangedParts = Mapping[ItemType, frozenset[str] | None]
"""By item type the names of what changed; None where every item may have changed."""
JUDGED = ("p99_ms", "calls_per_s", "redact")
"""What decides how a pattern is judged and shown, and nothing of its answer."""


class PatternDifference(Struct, frozen=True):
    """`parts`: names of what changed in the pattern itself. `answer_changes`: whether what it answers may be another one, so
    that evidence starts anew. `loses`: item types that it reached and reaches no more. `old_loses`: the same of the request
    that services of the old revision send, asked of items of the new one."""

    name: str
    effect: str
    parts: tuple[str, ...]
    answer_changes: bool
    loses: tuple[str, ...] = ()
    old_loses: tuple[str, ...] = ()


def pattern_differences(
    old: MappingModel, new: MappingModel, changed: ChangedParts, indexes: frozenset[str]
) -> Iterator[PatternDifference]:
    """Of each pattern that something changes about. `indexes`: names of those that change."""
    for name in dict.fromkeys([*new.patterns, *old.patterns]):
        before, after = old.patterns.get(name), new.patterns.get(name)
        if before is None:
            yield PatternDifference(name, "new", (), answer_changes=True)
        elif after is None:
            lost = _lost(old, before, new, before)
            yield PatternDifference(name, "gone", (), answer_changes=False, old_loses=lost)
        else:
            found = _both(old, before, new, after, changed, indexes)
            if found.parts or found.answer_changes or found.loses or found.old_loses:
                yield found


def _both(
    old: MappingModel,
    before: Pattern,
    new: MappingModel,
    after: Pattern,
    changed: ChangedParts,
    indexes: frozenset[str],
) -> PatternDifference:
    forms = [pattern_form(mapping, pattern) for mapping, pattern in ((old, before), (new, after))]
    parts = tuple(name for name in forms[1] if forms[0][name] != forms[1][name])
    types = reached(old, before) | reached(new, after)
    items = any(_concerns(after, changed.get(key, frozenset())) for key in types)
    answers = items or after.index in indexes or bool(set(parts) - set(JUDGED))
    return PatternDifference(
        after.name,
        "changed" if parts else "same",
        parts,
        answers,
        _lost(old, before, new, after),
        _lost(old, before, new, before),
    )


def reached(mapping: MappingModel, pattern: Pattern) -> set[ItemType]:
    """The item types that the pattern's key can give; of those that it names, where it names some."""
    read = types_read(mapping, pattern).items()
    return {(entity, type_) for entity, types in read for type_ in types}


def _lost(old: MappingModel, before: Pattern, new: MappingModel, after: Pattern) -> tuple[str, ...]:
    """Types that `before` reaches in `old` and `after` does not in `new`, in one word each."""
    return tuple(sorted(f"{entity}.{type_}" for entity, type_ in reached(old, before) - reached(new, after)))


def _concerns(pattern: Pattern, names: frozenset[str] | None) -> bool:
    """Whether what changed of an item type is part of the pattern's answer. `names`: None for all of it."""
    return names is None or any(asks_for(pattern, names))


def asks_for(pattern: Pattern, names: Iterable[str]) -> Iterator[bool]:
    """Of each part of an item type, whether the pattern's answer is made of it."""
    attributes = {name for part in pattern.parts for name in part.attributes}
    attributes |= {condition.attribute for condition in pattern.filters}
    attributes |= set(pattern.near.at) if pattern.near else set()
    wanted = {BASE_KEY, TTL, f"{ENTRY}{pattern.index}", *(f"{ATTRIBUTE}{name}" for name in attributes)}
    named_all = all(part.attributes for part in pattern.parts) and pattern.parts
    for name in names:
        yield name in wanted or (not named_all and name.startswith(ATTRIBUTE))


# ── what a pattern asks, in one form ──


def pattern_form(mapping: MappingModel, pattern: Pattern) -> dict[str, object]:
    """By part of the pattern what it means; equal where it asks the same, in whatever order it is written."""
    writing = Writing(AS_WRITTEN.naming, lambda used: filter_form(mapping, used))
    star = pattern.star
    return {
        "params": sorted((one.name, one.type, one.optional, one.many) for one in pattern.params),
        "request": (pattern.operation, pattern.index, pattern.descending, pattern.limit, pattern.consistent),
        "key": [writing.inside(one) for one in pattern.key] + ([] if star is None else ["*"]),
        "sort": [(one.operator, [writing.inside(value) for value in one.values]) for one in pattern.sort],
        "filter": sorted(
            (one.attribute, one.operator, [writing.text(value) for value in one.values])
            for one in pattern.filters
        ),
        "near": pattern.near,
        "atomic": pattern.atomic,
        "schema": pattern.schema,
        "returns": sorted((one.name, one.type, sorted(one.attributes), one.one) for one in pattern.parts),
        "order": pattern.order,
        "sql": {name: _statement_form(mapping, one) for name, one in pattern.statements.items()},
        "compare": pattern.compare,
        "redact": sorted(pattern.redact),
        "p99_ms": pattern.p99_ms,
        "calls_per_s": pattern.calls_per_s,
    }


def _statement_form(mapping: MappingModel, statement: Statement) -> object:
    if isinstance(statement, str):
        return statement.strip()
    asked = pattern_form(replace(mapping, table=statement.design), statement.asked)
    return {**asked, "table": statement.design, "join": statement.entity.joins, "columns": statement.returns}
