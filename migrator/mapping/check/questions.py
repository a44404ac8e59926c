"""Warnings of access patterns with SQL that filters, orders or cuts rows in a way that their key does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from itertools import chain

from migrator.mapping.items.filters import FILTERS
from migrator.mapping.language.document import Document
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import Expression, Mapping, Part, Pattern, Ref, uses_in
from migrator.mapping.model.questions import Clauses, OrderTerm, TableColumn
from migrator.mapping.model.table import Index
from migrator.mapping.patterns.param_sources import StoredKey, reachable_keys
from migrator.runtime.errors import Fault


def question_warnings(
    mapping: Mapping,
    document: Document,
    plans: Sequence[EntityPlan],
    clauses: Dict[tuple[str, str], Clauses],
) -> Iterator[Fault]:
    """`clauses`: by pattern and part, those of its statement, of statements that could be read."""
    tables = {plan.entity.written: plan.table for plan in plans}
    for (name, part_name), said in clauses.items():
        pattern = mapping.patterns[name]
        index = mapping.table.asked(pattern.index)
        part = next((one for one in pattern.parts if one.name == part_name), None)
        if index is None or part is None:
            continue
        reachable = reachable_keys(mapping, pattern, index)
        keys = [key for key in reachable if part.type in ("", key.item.type)]
        known = [tables.get(key.entity.written) for key in keys]
        # Columns of other tables have other names there, and are not looked at.
        table = known[0] if known and all(one is not None and one is known[0] for one in known) else None
        own = _Own(table.name, index, keys, table.primary_key) if table is not None else None
        at = ("access_patterns", name, "sql", *([part_name] if part_name else []))
        warnings = [] if own is None else chain(_filtered(pattern, said, own), _ordered(pattern, said, own))
        for what in chain(warnings, _cut(pattern, part, said)):
            yield document.fault(at, what, warning=True)


class _Own:
    """The keys of one table's rows, against which columns of a statement are held."""

    def __init__(self, table: str, index: Index, keys: Sequence[StoredKey], row_key: Sequence[str]) -> None:
        self.table = table
        self.index = index
        self.keys = keys
        self.row_key = row_key

    def columns(self, places: Sequence[TableColumn]) -> list[str]:
        return list(dict.fromkeys(column for table, column in places if table == self.table))


def _filtered(pattern: Pattern, said: Clauses, own: _Own) -> Iterator[str]:
    for column in own.columns(said.filters):
        if any(column not in _decides(pattern, own.index, key) for key in own.keys):
            what = f"its SQL filters by {column}, which is not in the key, in a filter or in a when:"
            yield f"{what}; write it into the key or the filter, or leave it out of the SQL"
    if said.groups:
        what = f"its SQL filters groups by {said.groups}, and a key does not"
        yield f"{what}; keep the number as a column that the key has, or leave HAVING out of the SQL"


def _ordered(pattern: Pattern, said: Clauses, own: _Own) -> Iterator[str]:
    if pattern.operation != "query" or pattern.order != "exact" or pattern.near:
        return
    terms = [term for term in said.order if not _is_of_others(term, said, own)]
    for place, term in enumerate(terms):
        column = next(iter(own.columns(term.columns)), "")
        uses = [_in_order(own.index, key, term, column) for key in own.keys]
        # Behind other columns a key tells apart rows that are equal in those.
        if None in uses and not (place and term.is_column and column in own.row_key):
            what = f"its SQL orders by {term.sql}, which is not in the key, and items come in the key's order"
            yield f"{what}; write it into the sort key, or order: any"
        elif any(falls is not None and term.descends == (falls == pattern.descending) for falls in uses):
            way = "descending" if term.descends else "ascending"
            what = f"its SQL orders by {term.sql} {way}, and items come the other way round"
            yield f"{what}; write descending: {str(not pattern.descending).lower()}, |desc in the key, or order: any"


def _is_of_others(term: OrderTerm, said: Clauses, own: _Own) -> bool:
    """Whether the term has columns of other tables, or one value in all rows."""
    others = bool(term.columns) and not own.columns(term.columns)
    return others or (term.is_column and not said.equal.isdisjoint(term.columns))


def _cut(pattern: Pattern, part: Part, said: Clauses) -> Iterator[str]:
    if said.offset:
        what = "its SQL leaves out rows by OFFSET, and an answer of the table begins with its first item"
        yield f"{what}; leave OFFSET out, and ask for what follows the last key of the page before"
    if pattern.operation != "query" or part.one:
        return
    limit = pattern.limit if pattern.limit is None or pattern.limit.isdecimal() else f":{pattern.limit}"
    if said.limit and limit is None:
        yield f"its SQL gives at most {said.limit} rows, and the query all items; write limit: {said.limit.lstrip(':')}"
    elif limit not in (None, said.limit) and not part.name and (said.limit or limit != "1"):
        what = f"its query gives at most {limit} items, and its SQL {said.limit or 'all'} rows"
        yield f"{what}; write one limit into both"


def _decides(pattern: Pattern, index: Index, key: StoredKey) -> set[str]:
    """Columns that decide whether the item is in the answer."""
    item, entity = key.item, key.entity
    entries = [entry for entry in item.entries if entry.index == index.name]
    conditions = [*entity.where, *item.when, *(one for entry in entries for one in entry.when)]
    columns = {condition.path for condition in conditions} | _in_key(index, key)
    columns |= {item.expiry.path} if item.expiry else set()
    columns |= {name for one in entity.collections if one.kind == "climb" for name in one.by}
    for comparison in pattern.filters:
        made = {**entity.attributes, **item.attributes}.get(comparison.attribute)
        columns |= _named([made]) if made is not None else {comparison.attribute}
    # A climb's columns are the table's own.
    climbs = {one.alias for one in entity.collections if one.kind == "climb"}
    columns |= {path.partition(".")[2] for path in columns if path.partition(".")[0] in climbs}
    return columns | _computed_of(key, columns)


def _in_key(index: Index, key: StoredKey) -> set[str]:
    """Columns of which the item's key in the index is made; an attribute that the item keeps is called as its column."""
    forms = zip(index.attributes, (*key.partition, *key.sort), strict=True)
    kept = {attribute.name for attribute, form in forms if form is None}
    return kept | _named([form for form in (*key.partition, *key.sort) if form is not None])


def _computed_of(key: StoredKey, names: set[str]) -> set[str]:
    """Words of the SQL of those names that are computed columns."""
    computed = [key.entity.computed[name].sql for name in names if name in key.entity.computed]
    return {word for sql in computed for word in re.findall(r"\w+", sql)}


def _in_order(index: Index, key: StoredKey, term: OrderTerm, column: str) -> bool | None:
    """Whether the key has the term in reversed order; None if the term is not in the key."""
    forms = list(zip(index.attributes, (*key.partition, *key.sort), strict=True))
    refs = [ref for attribute, form in forms for ref in (Ref((attribute.name,)),) if form is None] + [
        ref for _, form in forms if form is not None for ref in form.refs
    ]
    for ref in refs:
        filters = [used.name for used in ref.filters]
        sql = [key.entity.computed[path].sql for path in ref.paths if path in key.entity.computed]
        is_written = term.is_column and column in ref.paths and all(name in filters for name in term.filters)
        if is_written or any(_is_one(text, term, column) for text in sql):
            return any(FILTERS[name].order == "reversed" for name in filters)
    return None


def _is_one(sql: str, term: OrderTerm, column: str) -> bool:
    """Whether a computed column is the term, as far as its text shows."""
    words = re.findall(r"\w+", sql.lower())
    return words == re.findall(r"\w+", term.sql.lower()) or (term.is_column and column.lower() in words)


def _named(expressions: Sequence[Expression]) -> set[str]:
    return {path for expression in expressions for use in uses_in(expression) for path in use.ref.paths}
