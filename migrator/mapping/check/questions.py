"""Warnings of access patterns whose SQL filters or orders by a column of which their key says nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from itertools import chain

from migrator.mapping.language.document import Document
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import Expression, Mapping, Pattern, uses_in
from migrator.mapping.model.questions import Path, Question
from migrator.mapping.model.table import Index
from migrator.mapping.patterns.param_sources import StoredKey, reachable_keys
from migrator.runtime.errors import Fault


def question_warnings(
    mapping: Mapping, document: Document, plans: Sequence[EntityPlan], questions: Dict[str, Question]
) -> Iterator[Fault]:
    """`questions`: by pattern, what its one statement asks, of those that could be read."""
    tables = {plan.entity.written: plan.table for plan in plans}
    for name, question in questions.items():
        pattern = mapping.patterns[name]
        index = mapping.table.asked(pattern.index)
        keys = list(reachable_keys(mapping, pattern, index)) if index is not None else []
        known = [tables.get(key.entity.written) for key in keys]
        # Columns of other tables have other names there, and are not looked at.
        if index is None or question.total or any(one is None or one.name != question.table for one in known):
            continue
        row_key = known[0].primary_key if known and known[0] else ()
        for what in chain(
            _filtered(pattern, question, index, keys), _ordered(pattern, question, index, keys, row_key)
        ):
            yield document.fault(("access_patterns", name, "sql"), what, warning=True)


def _filtered(pattern: Pattern, question: Question, index: Index, keys: Sequence[StoredKey]) -> Iterator[str]:
    for column in _own([condition.path for condition in question.conditions]):
        if any(column not in _told(pattern, index, key) for key in keys):
            what = f"its SQL filters by {column}, of which neither the key nor a filter nor a when: says anything"
            yield f"{what}; write it into the key or the filter, or leave it out of the SQL"


def _ordered(
    pattern: Pattern, question: Question, index: Index, keys: Sequence[StoredKey], row_key: Sequence[str]
) -> Iterator[str]:
    if pattern.operation != "query" or pattern.order != "exact" or pattern.near:
        return
    equal = {condition.path for condition in question.conditions if condition.bound == "="}
    ordered = _own([path for path, _ in question.order if path not in equal])
    # Behind other columns a key tells apart rows that are equal in those.
    for column in ordered[:1] + [name for name in ordered[1:] if name not in row_key]:
        if any(column not in _in_key(index, key) for key in keys):
            what = f"its SQL orders by {column}, which is not in the key, and items come in the key's order"
            yield f"{what}; write it into the sort key, or order: any"


def _own(paths: Iterable[Path]) -> list[str]:
    """Columns of the row itself, each once."""
    return list(dict.fromkeys(column for alias, column in paths if not alias))


def _told(pattern: Pattern, index: Index, key: StoredKey) -> set[str]:
    """Columns that decide whether the item is in the answer."""
    item, entity = key.item, key.entity
    entries = [entry for entry in item.entries if entry.index == index.name]
    conditions = [*entity.where, *item.when, *(one for entry in entries for one in entry.when)]
    columns = {condition.path for condition in conditions} | _in_key(index, key)
    for comparison in pattern.filters:
        made = {**entity.attributes, **item.attributes}.get(comparison.attribute)
        columns |= _named([made]) if made is not None else {comparison.attribute}
    return columns


def _in_key(index: Index, key: StoredKey) -> set[str]:
    """Columns of which the item's key in the index is made; an attribute that the item keeps is called as its column."""
    forms = zip(index.attributes, (*key.partition, *key.sort), strict=True)
    kept = {attribute.name for attribute, form in forms if form is None}
    named = kept | _named([form for form in (*key.partition, *key.sort) if form is not None])
    computed = [key.entity.computed[name].sql for name in named if name in key.entity.computed]
    return named | {word for sql in computed for word in re.findall(r"\w+", sql)}


def _named(expressions: Sequence[Expression]) -> set[str]:
    return {path for expression in expressions for use in uses_in(expression) for path in use.ref.paths}
