"""Faults of access patterns: keys that no item has, parameters that do not fit, missing attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from itertools import chain, pairwise

from migrator.mapping.check.values import is_closed
from migrator.mapping.items.filters import FILTERS, NUMBERS, kind_after, specs_of, takes_null
from migrator.mapping.items.program import keys_of
from migrator.mapping.items.wire import wire_type
from migrator.mapping.language.document import Document, Path
from migrator.mapping.model.facts import Column, EntityPlan, Kind, TableFacts
from migrator.mapping.model.mapping import (
    Const,
    Entity,
    Expression,
    FilterCondition,
    ItemDesign,
    Mapping,
    Part,
    Pattern,
    Ref,
    SortCondition,
    Template,
    paths_in,
    uses_in,
)
from migrator.mapping.model.questions import Clauses, OrderTerm, TableColumn
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.mapping.patterns.param_sources import (
    Form,
    StoredKey,
    key_forms,
    matching_keys,
    may_give,
    reachable_keys,
    same_forms,
    shown,
    stored_keys,
)
from migrator.runtime.errors import Fault, did_you_mean

TYPES_IN_KEY: dict[str, frozenset[str]] = {
    "text": frozenset({"text", "bits", "uuid", "date", "time", "timestamp", "plain"}),
    "number": frozenset({"integer", "number", "float", "plain"}),
    "binary": frozenset({"binary", "plain"}),
}
"""Kinds of values that a key attribute takes, by its type."""

# ── Whether the parameters of an access pattern are of types that its templates, filters and keys take ──


def value_faults(pattern: Pattern, index: Index, document: Document) -> Iterator[Fault]:
    yield from asked_faults(pattern, index, document, ("access_patterns", pattern.name))
    yield from _near_faults(pattern, document)


def asked_faults(pattern: Pattern, index: Index, document: Document, pattern_at: Path) -> Iterator[Fault]:
    types = {param.name: Kind(param.type) for param in pattern.params}
    request_at = (*pattern_at, pattern.operation)
    for at, expression in _expressions(pattern, request_at):
        for use in uses_in(expression):
            if what := _ref_fault(use.ref, types):
                yield document.fault(at, what)
    for at, attribute, template, operator in key_templates(pattern, index, request_at):
        what = _key_fault(attribute, template, operator, types)
        if what:
            yield document.fault(at, what)
    for comparison in pattern.filters:
        what = _filter_fault(comparison, [_wired_as(value, types) for value in comparison.values])
        if what:
            yield document.fault((*request_at, "filter", comparison.attribute), what)
    if pattern.limit is not None and pattern.limit in types and types[pattern.limit].name != "integer":
        yield document.fault((*request_at, "limit"), f"the parameter '{pattern.limit}' must be an integer")


def key_templates(
    pattern: Pattern, index: Index, request_at: Path = ()
) -> Iterator[tuple[Path, KeyAttribute, Template, str]]:
    at: Path = (*(request_at or ("access_patterns", pattern.name, pattern.operation)), "key")
    for attribute, template in zip(index.partition, pattern.key, strict=False):
        yield (*at, 0), attribute, template, "equal"
    for attribute, condition in zip(index.sort, pattern.sort, strict=False):
        for template in condition.values:
            yield (*at, 1), attribute, template, condition.operator


def _expressions(pattern: Pattern, at: Path) -> Iterator[tuple[Path, Expression]]:
    for template in pattern.key:
        yield (*at, "key", 0), template
    for condition in pattern.sort:
        for template in condition.values:
            yield (*at, "key", 1), template
    for comparison in pattern.filters:
        for value in comparison.values:
            yield (*at, "filter", comparison.attribute), value


def _ref_fault(ref: Ref, types: dict[str, Kind]) -> str:
    for path in ref.paths:
        if path not in types:
            continue  # the parser has reported it
        kind = types[path]
        if ref.format is not None and kind.name not in NUMBERS:
            return f"the format {ref.format} pads numbers; the parameter '{path}' is {kind.name}"
        given = Kind("text") if ref.format is not None else kind
        for used in ref.filters:
            spec = FILTERS[used.name]
            if spec.of_list:
                return f"the filter '{used.name}' takes values of a list's rows; '{path}' is a parameter"
            if spec.takes and given.name not in spec.takes:
                return f"the filter '{used.name}' takes {' or '.join(sorted(spec.takes))}; '{path}' is {given.name}"
            if given.name == "binary" and not spec.of_bytes:
                return f"the filter '{used.name}' takes text; '{path}' is binary"
            given = spec.after(given)
    return ""


def _wired_as(value: Expression, types: dict[str, Kind]) -> str:
    """DynamoDB's type of a filter's value, '' if unknown."""
    if isinstance(value, Template):
        return "S"
    if isinstance(value, Const):
        given = type(value.value).__name__
        return {"str": "S", "int": "N", "Decimal": "N", "bool": "BOOL", "bytes": "B"}.get(given, given)
    if not isinstance(value, Ref) or any(path not in types for path in value.paths):
        return ""
    return wire_type(kind_after(types[value.paths[0]], value))


def _filter_fault(comparison: FilterCondition, wired: Sequence[str]) -> str:
    """Source: AWS API reference, "Condition"."""
    if comparison.operator in ("equal", "exists", "absent") or not all(wired):
        return ""
    taken = ("S", "B") if comparison.operator == "begins_with" else ("S", "B", "N")
    if not all(type_ in taken for type_ in wired):
        return f"{comparison.operator} compares {' and '.join(taken)} in DynamoDB, and this is {', '.join(wired)}"
    return (
        "" if len(set(wired)) == 1 else f"both bounds must be of one type, but these are {', '.join(wired)}"
    )


def _key_fault(attribute: KeyAttribute, template: Template, operator: str, types: dict[str, Kind]) -> str:
    known = [ref for ref in template.refs if ref.paths and types.keys() >= set(ref.paths)]
    kinds = [kind_after(types[ref.paths[0]], ref) for ref in known]
    if attribute.type == "text":
        is_binary = any(kind.name == "binary" for kind in kinds)
        return "bytes cannot be written as text; use |hash, or a key of type binary" if is_binary else ""
    if template.sole is None:
        return f"{attribute.name} is a {attribute.type} key: it takes one value in braces"
    if operator == "begins_with" and attribute.type == "number":
        return f"{attribute.name} is a number key: begins_with is invalid; write ge, gt, le, lt or between"
    if kinds and kinds[0].name not in TYPES_IN_KEY[attribute.type]:
        return f"{attribute.name} is a {attribute.type} key; this value is {kinds[0].name}"
    return ""


def _near_faults(pattern: Pattern, document: Document) -> Iterator[Fault]:
    within = pattern.near.within_m if pattern.near else None
    types = {param.name: param.type for param in pattern.params}
    if isinstance(within, str) and types.get(within, "number") not in NUMBERS:
        at = ("access_patterns", pattern.name, "near", "within_m")
        yield document.fault(at, f"the parameter '{within}' must be a number of metres")


# ── Keys of access patterns: whether any item has a key of the form that the pattern queries ──


def pattern_faults(mapping: Mapping, document: Document, plans: Sequence[EntityPlan] = ()) -> Iterator[Fault]:
    by_entity = {plan.entity.written: plan for plan in plans}
    for pattern in mapping.patterns.values():
        if not mapping.documents and not all(isinstance(one, str) for one in pattern.statements.values()):
            what = "reads old tables of DynamoDB, but source: declares no tables"
            mend = "write sql: where the source is a database, or declare them"
            yield document.fault(("access_patterns", pattern.name, "old"), f"{what}; {mend}")
        index = mapping.table.asked(pattern.index)
        if index is not None:  # else the parser has reported it
            check = _PatternCheck(mapping, pattern, index, document, by_entity)
            yield from check.faults()
            yield from value_faults(pattern, index, document)
    yield from _unread(mapping, document)


class _PatternCheck:
    def __init__(
        self,
        mapping: Mapping,
        pattern: Pattern,
        index: Index,
        document: Document,
        plans: Dict[str, EntityPlan],
    ) -> None:
        self.plans = plans
        self.mapping = mapping
        self.pattern = pattern
        self.index = index
        self.document = document
        self.at: Path = ("access_patterns", pattern.name)
        self.request_at: Path = (*self.at, pattern.operation)
        self.key_at: Path = (*self.request_at, "key")
        self.returns_at: Path = (*self.at, "returns")
        self.keys = list(reachable_keys(mapping, pattern, index))

    def faults(self) -> Iterator[Fault]:
        matching = list(matching_keys(self.mapping, key_forms(self.pattern), self.index))
        if not matching:
            existing_keys = shown([key.partition for key in stored_keys(self.mapping, self.index)])
            where = self.index.name or self.mapping.table.name
            what = f"no item has a partition key of this form in {where}; existing: {existing_keys}"
            yield self.document.fault((*self.key_at, 0), what)
            return
        yield from self._copy_faults(matching)
        yield from self._sort_faults(matching)
        yield from self._type_faults()
        yield from self._prefix_warnings()
        yield from self._order_warnings()
        yield from self._request_faults()
        if self.keys:
            yield from self._returned()

    def _copy_faults(self, matching: Sequence[StoredKey]) -> Iterator[Fault]:
        star = self.pattern.star
        if star is None or self.pattern.operation == "query":
            return
        (read,) = star.filters[0].args
        for key in matching:
            written = key.entity.copies(key.item.type)
            if written != int(read):
                what = f"reads any of {read} copies of {key.item.type}, which has {written}"
                yield self.document.fault((*self.key_at, 0), f"{what}; write the same number in both")

    def _sort_faults(self, matching: Sequence[StoredKey]) -> Iterator[Fault]:
        for number, condition in enumerate(self.pattern.sort):
            stored = [key.sort[number] for key in matching if len(key.sort) > number]
            several = len(self.pattern.sort) > 1
            at = (*self.key_at, 1, number) if several else (*self.key_at, 1)
            what = _sort_fault(condition, stored)
            if what:
                yield self.document.fault(at, f"{what}; existing: {shown([(form,) for form in stored])}")

    def _type_faults(self) -> Iterator[Fault]:
        named = [part for part in self.pattern.parts if part.type]
        types = _item_types(self.mapping) if named else set()
        for part in named:
            if part.type not in types:
                what = f"item type '{part.type}' not found; known: {', '.join(sorted(types))}"
                yield self.document.fault((*self.returns_at, part.name, "type"), what)

    def _prefix_warnings(self) -> Iterator[Fault]:
        for condition in self.pattern.sort:
            separator = self.mapping.table.separator
            value = condition.values[0]
            is_open = condition.operator == "begins_with" and not _closed(value, separator)
            if is_open and not self._sql_has_prefix(value):
                what = f"a prefix that does not end in '{separator}' also matches longer names (eng, engineering)"
                yield self.document.fault((*self.key_at, 1), what, warning=True)

    def _sql_has_prefix(self, value: Template) -> bool:
        """Whether SQL also finds texts that begin with the last parameter: LIKE :name || '%'."""
        last, statements = value.parts[-1], self.pattern.statements.values()
        if not isinstance(last, Ref):
            return False
        prefix = re.compile(rf":{re.escape(last.paths[0])}(?:::\w+)?\s*(?:\|\||,)\s*'%%?'")
        return all(isinstance(statement, str) and prefix.search(statement) for statement in statements)

    def _order_warnings(self) -> Iterator[Fault]:
        separator = self.mapping.table.separator
        pattern = self.pattern
        if pattern.order != "exact" or pattern.operation != "query" or pattern.near or separator == "\u0001":
            return
        for key in self.keys:
            plan = self.plans.get(key.entity.written)
            for template in key.sort[-1:] or key.partition:
                if template is not None and _text_before(template.parts, separator, plan):
                    what = (
                        f"order: exact, but in the sort key {template.source} a text before '{separator}' sorts differently "
                        'than in SQL (space and ! come before #); write order: any, or separator: "\\u0001"'
                    )
                    yield self.document.fault((*self.at, "order"), what, warning=True)
                    return

    def _request_faults(self) -> Iterator[Fault]:
        pattern = self.pattern
        if pattern.consistent and not self.index.local:
            what = f"{self.index.name} is a global index, which has no consistent reads; query the table or a local index"
            yield self.document.fault((*self.request_at, "consistent"), what)
        keys = {attribute.name for attribute in self.index.attributes}
        for name in sorted(keys & {comparison.attribute for comparison in pattern.filters}):
            what = (
                f"'{name}' is a key attribute, which DynamoDB cannot filter by; write the condition into key"
            )
            yield self.document.fault((*self.request_at, "filter", name), what)
        if pattern.filters and not self._is_one_item():
            what = "a filter does not reduce the cost: every item under the key is read and charged"
            yield self.document.fault((*self.request_at, "filter"), what, warning=True)
        if pattern.near and pattern.descending:
            yield self.document.fault(
                (*self.request_at, "descending"), "near returns the nearest first; leave descending out"
            )
        yield from self._projection_faults()

    def _is_one_item(self) -> bool:
        given = [condition.operator for condition in self.pattern.sort]
        return not (self.pattern.index or self.pattern.star) and given == ["equal"] * len(self.index.sort)

    def _projection_faults(self) -> Iterator[Fault]:
        if self.index.projection == "all":
            return
        table = self.mapping.table
        held = {attribute.name for attribute in (*table.key, *self.index.attributes)}
        held |= set(self.index.projection) if isinstance(self.index.projection, tuple) else set()
        for at, name in self._needed():
            if name not in held:
                what = f"the index {self.index.name} does not contain '{name}'; add it to its project"
                yield self.document.fault(at, what)

    def _needed(self) -> Iterator[tuple[Path, str]]:
        pattern = self.pattern
        yield from (
            ((*self.request_at, "filter", comparison.attribute), comparison.attribute)
            for comparison in pattern.filters
        )
        yield from (((*self.at, "near", "at"), name) for name in (pattern.near.at if pattern.near else ()))
        for part in pattern.parts:
            at = (*self.returns_at, part.name) if part.name else self.returns_at
            yield from ((at, name) for name in part.attributes)
            if part.type:
                yield at, self.mapping.table.type_attribute

    # ── returned attributes ──

    def _returned(self) -> Iterator[Fault]:
        yield from self._returned_types()
        yield from self._expiry()
        for part in self.pattern.parts:
            at = (*self.returns_at, part.name, "attributes") if part.name else self.returns_at
            yield from (self.document.fault(at, what) for what in self._attribute_faults(part))

    def _returned_types(self) -> Iterator[Fault]:
        given = {key.item.type for key in self.keys}
        named = {part.type for part in self.pattern.parts if part.type}
        if not named and len(given) > 1:
            what = (
                f"the key returns items of several types ({', '.join(sorted(given))}); return parts by type"
            )
            yield self.document.fault(self.returns_at, f"{what}, or use a longer prefix", warning=True)
        unmet = [part for part in self.pattern.parts if part.type and part.type not in given]
        known = _item_types(self.mapping) if unmet else set()
        for part in unmet:
            if part.type in known:
                what = f"no {part.type} has such a key; the key returns {', '.join(sorted(given))}"
                yield self.document.fault((*self.returns_at, part.name, "type"), what)
        for type_ in sorted(given - named if named else ()):
            what = f"the key also gives items of type {type_}, which are read and charged, but not returned"
            yield self.document.fault(self.returns_at, what, warning=True)

    def _expiry(self) -> Iterator[Fault]:
        """DynamoDB deletes late, so readers hide expired items, which needs the TTL attribute in the index."""
        table, index = self.mapping.table, self.index
        held = table.ttl is None or index.projection == "all" or table.ttl in index.projection
        expiring = sorted({key.item.type for key in self.keys if key.item.expiry})
        if not held and expiring:
            what = f"{index.name} does not project '{table.ttl}', so {expiring[0]} items show until DynamoDB deletes them"
            yield self.document.fault(
                self.returns_at, f"{what}, up to days after they expired; add it", warning=True
            )

    def _attribute_faults(self, part: Part) -> Iterator[str]:
        keys = [key for key in self.keys if not part.type or key.item.type == part.type]
        attributes = [
            attribute_names(self.mapping.table, key.entity, key.item, self.plans.get(key.entity.name))
            for key in keys
        ]
        sure = [names for names in attributes if names is not None]
        if keys and len(sure) == len(attributes):
            known = set[str]().union(*sure)
            for name in (name for name in part.attributes if name not in known):
                yield f"no item under this key has '{name}'{did_you_mean(name, known)}"


def _item_types(mapping: Mapping) -> set[str]:
    return {item.type for entity in mapping.entities.values() for item in entity.items}


def _closed(prefix: Template, separator: str) -> bool:
    last = prefix.parts[-1] if prefix.parts else ""
    if isinstance(last, str):
        return last.endswith(separator)
    # A text of fixed width is never the beginning of another one.
    return specs_of(last)[-1].width == "fixed" if last.filters else last.format is not None


_UPPER = frozenset({"between", "le", "lt"})
"""Conditions with an upper bound as their last value."""


def _sort_fault(condition: SortCondition, stored: Sequence[Form]) -> str:
    if None in stored:
        return ""
    if condition.operator == "equal":
        fits = any(same_forms(condition.values, (form,)) for form in stored)
        return "" if fits else "no item of this partition has such a sort key"
    for value in condition.values:
        begin = value.beginning
        upper = condition.operator in _UPPER and value is condition.values[-1]
        if not any(_compatible(begin, form) or (upper and _closes(begin, form)) for form in stored):
            return f"no sort key of this partition begins with '{begin}'"
    if not any(may_give(condition, form) for form in stored):
        return "no sort key of this partition matches this condition"
    return ""


def _compatible(begin: str, stored: Form) -> bool:
    first = _literal(stored)
    shorter = min(len(first), len(begin))
    return first[:shorter].rstrip("#") == begin[:shorter].rstrip("#") or not first


def _closes(bound: str, stored: Form) -> bool:
    """Whether the bound is right after all keys of the stored beginning, as 'ADDR$' after 'ADDR#'."""
    first, last = _literal(stored), len(bound) - 1
    return 0 <= last < len(first) and bound[:last] == first[:last] and bound[last] > first[last]


def _literal(stored: Form) -> str:
    return stored.beginning if stored else ""


def _text_before(parts: Sequence[object], separator: str, plan: EntityPlan | None) -> bool:
    return any(
        isinstance(part, Ref)
        and part.format is None
        and not part.filters
        and (plan is None or not is_closed(part, plan, separator))
        and isinstance(following, str)
        and following.startswith(separator)
        for part, following in pairwise(parts)
    )


def attribute_names(
    table: TableDesign, entity: Entity, item: ItemDesign, plan: EntityPlan | None = None
) -> set[str] | None:
    names = {*table.own_attributes, table.type_attribute, *(key.name for key in keys_of(table, item))}
    names |= {table.ttl} if table.ttl and item.expiry else set()
    names |= entity.attributes.keys() | item.attributes.keys()
    if isinstance(item.keep, tuple):
        return names | set(item.keep)
    if item.keep == "all":
        columns = None if plan is None else {column.name for column in plan.table.columns}
        return None if columns is None else names | (columns - set(item.keep_except))
    return names


def _unread(mapping: Mapping, document: Document) -> Iterator[Fault]:
    if not mapping.patterns:
        return
    read: dict[str, set[str]] = {}
    for pattern in mapping.patterns.values():
        names = read.setdefault(pattern.index or "", set())
        names |= {name for part in pattern.parts for name in part.attributes}
        names |= {comparison.attribute for comparison in pattern.filters} | set(
            pattern.near.at if pattern.near else ()
        )
    for index in mapping.table.indexes:
        at: Path = ("table", "indexes", index.name)
        if index.name not in read:
            yield document.fault(
                at,
                "no access pattern queries this index; it costs a write for every item in it",
                warning=True,
            )
        elif isinstance(index.projection, tuple):
            for name in index.projection:
                if name not in read[index.name] | {mapping.table.type_attribute, mapping.table.ttl}:
                    what = f"no access pattern reads '{name}' from {index.name}; it costs storage and writes"
                    yield document.fault((*at, "project"), what, warning=True)


# ── The question of a statement ──


def question_warnings(
    mapping: Mapping, document: Document, plans: Sequence[EntityPlan], clauses: Dict[tuple[str, str], Clauses]
) -> Iterator[Fault]:
    tables = {plan.entity.written: plan.table for plan in plans}
    for pattern, part, index, keys, said in _asking(mapping, clauses):
        known = [tables.get(key.entity.written) for key in keys]
        # Columns of other tables have other names there, and are ignored.
        table = known[0] if known and all(one is not None and one is known[0] for one in known) else None
        own = _Own(table, index, keys) if table is not None else None
        at = ("access_patterns", pattern.name, "sql", *([part.name] if part.name else []))
        warnings = [] if own is None else chain(_filtered(pattern, said, own), _ordered(pattern, said, own))
        for what in chain(warnings, _cut(pattern, part, said)):
            yield document.fault(at, what, warning=True)


def sparse_keys(
    mapping: Mapping, plans: Sequence[EntityPlan], clauses: Dict[tuple[str, str], Clauses]
) -> Iterator[tuple[str, str, TableFacts, Column]]:
    """Return (pattern, index, table, column) of an index without rows with NULL in the column, which the
    statement returns.
    """
    by_entity = {plan.entity.written: plan for plan in plans}
    for pattern, _, index, keys, said in _asking(mapping, clauses):
        for key in keys if pattern.index else ():
            plan = by_entity.get(key.entity.written)
            if plan is None:
                continue
            refs = [ref for template in key.templates for ref in template.refs]
            needed = set(paths_in(refs)) - {path for ref in refs for path in ref.paths if takes_null(ref)}
            for column in plan.table.columns:
                asked = (plan.table.name, column.name) in said.filters
                if column.nullable and column.name in needed and not asked:
                    yield pattern.name, index.name, plan.table, column


def _asking(
    mapping: Mapping, clauses: Dict[tuple[str, str], Clauses]
) -> Iterator[tuple[Pattern, Part, Index, list[StoredKey], Clauses]]:
    for (name, part_name), said in clauses.items():
        pattern = mapping.patterns[name]
        index = mapping.table.asked(pattern.index)
        part = next((one for one in pattern.parts if one.name == part_name), None)
        if index is not None and part is not None:
            reachable = reachable_keys(mapping, pattern, index)
            yield pattern, part, index, [key for key in reachable if part.type in ("", key.item.type)], said


class _Own:
    """Keys of one table's rows."""

    def __init__(self, table: TableFacts, index: Index, keys: Sequence[StoredKey]) -> None:
        self.table = table.name
        self.index = index
        self.keys = keys
        self.row_key = table.primary_key
        self._proved = table.proved

    def has_one_row(self, said: Clauses) -> bool:
        equal = {column for table, column in said.equal if table == self.table}
        return self.table in said.once and any(equal.issuperset(key) for key in self._proved)

    def columns(self, places: Sequence[TableColumn]) -> list[str]:
        return list(dict.fromkeys(column for table, column in places if table == self.table))


def _filtered(pattern: Pattern, said: Clauses, own: _Own) -> Iterator[str]:
    for column in own.columns(said.filters):
        if any(column not in _decides(pattern, own.index, key) for key in own.keys):
            what = f"its SQL filters by {column}, which is not in the key, in a filter or in a when:"
            yield f"{what}; write it into the key or the filter, or leave it out of the SQL"
    if said.groups:
        what = f"its SQL filters groups by {said.groups}, which a key cannot do"
        yield f"{what}; store the count in a column used in the key, or leave HAVING out of the SQL"


def _ordered(pattern: Pattern, said: Clauses, own: _Own) -> Iterator[str]:
    if pattern.operation != "query" or pattern.order != "exact" or pattern.near or own.has_one_row(said):
        return
    terms = [term for term in said.order if not _is_of_others(term, said, own)]
    for place, term in enumerate(terms):
        column = next(iter(own.columns(term.columns)), "")
        uses = [_in_order(own.index, key, term, column) for key in own.keys]
        # After other columns, a key orders rows that are equal in those.
        if None in uses and not (place and term.is_column and column in own.row_key):
            what = f"its SQL orders by {term.sql}, which is not in the key; items are sorted by the key"
            yield f"{what}; write it into the sort key, or order: any"
        elif any(falls is not None and term.descends == (falls == pattern.descending) for falls in uses):
            way = "descending" if term.descends else "ascending"
            what = f"its SQL orders by {term.sql} {way}, but items come in the opposite order"
            yield f"{what}; write descending: {str(not pattern.descending).lower()}, |desc in the key, or order: any"


def _is_of_others(term: OrderTerm, said: Clauses, own: _Own) -> bool:
    others = bool(term.columns) and not own.columns(term.columns)
    return others or (term.is_column and not said.equal.isdisjoint(term.columns))


def _cut(pattern: Pattern, part: Part, said: Clauses) -> Iterator[str]:
    if said.offset:
        what = "its SQL skips rows with OFFSET, but a query of the table starts at its first item"
        yield f"{what}; leave OFFSET out, and start after the last key of the previous page"
    if pattern.operation != "query" or part.one:
        return
    limit = pattern.limit if pattern.limit is None or pattern.limit.isdecimal() else f":{pattern.limit}"
    if said.limit and limit is None:
        yield f"its SQL returns at most {said.limit} rows, but the query all items; write limit: {said.limit.lstrip(':')}"
    elif limit not in (None, said.limit) and not part.name and (said.limit or limit != "1"):
        what = f"its query returns at most {limit} items, but its SQL {said.limit or 'all'} rows"
        yield f"{what}; write the same limit in both"


def _decides(pattern: Pattern, index: Index, key: StoredKey) -> set[str]:
    item, entity = key.item, key.entity
    entries = [entry for entry in item.entries if entry.index == index.name]
    conditions = [*entity.where, *item.when, *(one for entry in entries for one in entry.when)]
    columns = {condition.path for condition in conditions} | _in_key(index, key)
    columns |= {item.expiry.path} if item.expiry else set()
    columns |= {name for one in entity.collections if one.kind == "climb" for name in one.by}
    for comparison in pattern.filters:
        made = {**entity.attributes, **item.attributes}.get(comparison.attribute)
        columns |= set(paths_in([made])) if made is not None else {comparison.attribute}
    # A climb's columns are the table's own.
    climbs = {one.alias for one in entity.collections if one.kind == "climb"}
    columns |= {path.partition(".")[2] for path in columns if path.partition(".")[0] in climbs}
    return columns | _computed_of(key, columns)


def _in_key(index: Index, key: StoredKey) -> set[str]:
    forms = zip(index.attributes, key.forms, strict=True)
    return {attribute.name for attribute, form in forms if form is None} | set(paths_in(key.templates))


def _computed_of(key: StoredKey, names: set[str]) -> set[str]:
    computed = [key.entity.computed[name].sql for name in names if name in key.entity.computed]
    return {word for sql in computed for word in re.findall(r"\w+", sql)}


def _in_order(index: Index, key: StoredKey, term: OrderTerm, column: str) -> bool | None:
    plain = [
        attribute.name for attribute, form in zip(index.attributes, key.forms, strict=True) if form is None
    ]
    for ref in (*(Ref((name,)) for name in plain), *(ref for form in key.templates for ref in form.refs)):
        filters = {used.name for used in ref.filters}
        sql = [key.entity.computed[path].sql for path in ref.paths if path in key.entity.computed]
        is_written = term.is_column and column in ref.paths and filters >= set(term.filters)
        if is_written or any(_is_one(text, term, column) for text in sql):
            return any(spec.order == "reversed" for spec in specs_of(ref))
    return None


def _is_one(sql: str, term: OrderTerm, column: str) -> bool:
    words = re.findall(r"\w+", sql.lower())
    return words == re.findall(r"\w+", term.sql.lower()) or (term.is_column and column.lower() in words)
