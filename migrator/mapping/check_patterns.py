"""Access patterns laid over the items: whether the keys that they ask for are keys that items have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from itertools import pairwise

from migrator.errors import Fault
from migrator.facts import EntityPlan
from migrator.mapping.check_pattern_values import value_faults
from migrator.mapping.document import Document, Path
from migrator.mapping.stored_keys import Form, StoredKey, asked_keys, same_forms, shown, stored_keys
from migrator.mapping.uniqueness import is_closed
from migrator.model import Index, Mapping, Pattern, Ref, SortCondition, Template


def pattern_faults(mapping: Mapping, document: Document, plans: Sequence[EntityPlan] = ()) -> Iterator[Fault]:
    """Faults and warnings of all access patterns. `plans`: where the source is known, so that types of columns are too."""
    by_entity = {plan.entity.written: plan for plan in plans}
    for pattern in mapping.patterns.values():
        asked = mapping.table.asked(pattern.index)
        if asked is not None:  # else the parser has said so
            check = _PatternCheck(mapping, pattern, asked, document, by_entity)
            yield from check.faults()
            yield from value_faults(pattern, asked, document)


class _PatternCheck:
    """Checks one access pattern against the keys of the items."""

    def __init__(
        self,
        mapping: Mapping,
        pattern: Pattern,
        asked: Index,
        document: Document,
        plans: Dict[str, EntityPlan],
    ) -> None:
        self.plans = plans
        self.mapping = mapping
        self.pattern = pattern
        self.asked = asked
        self.document = document
        self.at: Path = ("access_patterns", pattern.name)
        self.request_at: Path = (*self.at, pattern.operation)
        self.key_at: Path = (*self.request_at, "key")

    def faults(self) -> Iterator[Fault]:
        keys = list(stored_keys(self.mapping, self.asked))
        matching = [key for key in keys if same_forms(self.pattern.key, key.partition)]
        if not matching:
            known = shown([key.partition for key in keys])
            where = self.asked.name or self.mapping.table.name
            what = f"no item has a partition key of this form in {where}; there are: {known}"
            yield self._fault((*self.key_at, 0), what)
            return
        yield from self._sort_faults(matching)
        yield from self._type_faults()
        yield from self._prefix_warnings()
        yield from self._order_warnings()
        yield from self._request_faults()

    def _fault(self, at: Path, what: str, *, warning: bool = False) -> Fault:
        return self.document.fault(at, what, warning=warning)

    def _sort_faults(self, matching: Sequence[StoredKey]) -> Iterator[Fault]:
        for number, condition in enumerate(self.pattern.sort):
            stored = [key.sort[number] for key in matching if len(key.sort) > number]
            several = len(self.pattern.sort) > 1
            at = (*self.key_at, 1, number) if several else (*self.key_at, 1)
            what = _sort_fault(condition, stored)
            if what:
                yield self._fault(at, f"{what}; there are: {shown([(one,) for one in stored])}")

    def _type_faults(self) -> Iterator[Fault]:
        types = {item.type for entity in self.mapping.entities.values() for item in entity.items}
        for part in self.pattern.parts:
            if part.type and part.type not in types:
                what = f"there is no item type '{part.type}'; there are: {', '.join(sorted(types))}"
                yield self._fault((*self.at, "returns", part.name, "type"), what)

    def _prefix_warnings(self) -> Iterator[Fault]:
        for condition in self.pattern.sort:
            separator = self.mapping.table.separator
            if condition.operator == "begins_with" and not _closed(condition.values[0], separator):
                what = f"a prefix that does not end in '{separator}' also matches longer names (eng, engineering)"
                yield self._fault((*self.key_at, 1), what, warning=True)

    def _order_warnings(self) -> Iterator[Fault]:
        separator = self.mapping.table.separator
        pattern = self.pattern
        if pattern.order != "exact" or pattern.operation != "query" or pattern.near or separator == "\u0001":
            return
        for key in asked_keys(self.mapping, pattern, self.asked):
            plan = self.plans.get(key.entity.written)
            for template in key.sort[-1:] or key.partition:
                if template is not None and _text_before(template.parts, separator, plan):
                    what = (
                        f"order: exact, but in the sort key {template.source} a text before '{separator}' sorts otherwise "
                        'than in SQL (space and ! come before #); write order: any, or separator: "\\u0001"'
                    )
                    yield self._fault((*self.at, "order"), what, warning=True)
                    return

    def _request_faults(self) -> Iterator[Fault]:
        pattern = self.pattern
        if pattern.consistent and not self.asked.local:
            what = f"{self.asked.name} is a global index, which is never read consistently; ask the table or a local index"
            yield self._fault((*self.request_at, "consistent"), what)
        keys = {attribute.name for attribute in self.asked.attributes}
        for name in sorted(keys & {one.attribute for one in pattern.filters}):
            what = f"'{name}' is a key attribute, which DynamoDB does not filter by; write the condition into key"
            yield self._fault((*self.request_at, "filter", name), what)
        if pattern.filters:
            what = (
                "a filter is paid for before it filters: every item that the key asks for is read and charged"
            )
            yield self._fault((*self.request_at, "filter"), what, warning=True)
        if pattern.near and pattern.descending:
            yield self._fault(
                (*self.request_at, "descending"), "near gives the nearest first; leave descending out"
            )
        yield from self._projection_faults()

    def _projection_faults(self) -> Iterator[Fault]:
        """Attributes that are asked of an index which does not hold them."""
        if self.asked.projection == "all":
            return
        table = self.mapping.table
        held = {attribute.name for attribute in (*table.key, *self.asked.attributes)}
        held |= set(self.asked.projection) if isinstance(self.asked.projection, tuple) else set()
        for at, name in self._needed():
            if name not in held:
                what = f"the index {self.asked.name} does not hold '{name}'; add it to its project"
                yield self._fault(at, what)

    def _needed(self) -> Iterator[tuple[Path, str]]:
        """Attributes that the answer is made of, each with the place that names it."""
        pattern = self.pattern
        yield from (((*self.request_at, "filter", one.attribute), one.attribute) for one in pattern.filters)
        yield from (((*self.at, "near", "at"), name) for name in (pattern.near.at if pattern.near else ()))
        for part in pattern.parts:
            at = (*self.at, "returns", part.name) if part.name else (*self.at, "returns")
            yield from ((at, name) for name in part.attributes)
            if part.type:
                yield at, self.mapping.table.type_attribute


_FIXED = frozenset({"iso", "date", "month", "year", "bucket", "geohash", "hash", "shard"})
"""Filters whose texts are of one width: none of them is the beginning of another."""


def _closed(prefix: Template, separator: str) -> bool:
    """Whether a prefix ends where a value ends, so that it matches no longer name."""
    last = prefix.parts[-1] if prefix.parts else ""
    if isinstance(last, str):
        return last.endswith(separator)
    return last.filters[-1].name in _FIXED if last.filters else last.format is not None


_UPPER = frozenset({"between", "le", "lt"})
"""Conditions whose last value bounds from above."""


def _sort_fault(condition: SortCondition, stored: Sequence[Form]) -> str:
    if None in stored:
        return ""
    if condition.operator == "equal":
        fits = any(same_forms(condition.values, (one,)) for one in stored)
        return "" if fits else "no item of this partition has such a sort key"
    for value in condition.values:
        begin = value.parts[0] if value.parts and isinstance(value.parts[0], str) else ""
        upper = condition.operator in _UPPER and value is condition.values[-1]
        if not any(_compatible(begin, one) or (upper and _closes(begin, one)) for one in stored):
            return f"no sort key of this partition begins with '{begin}'"
    return ""


def _compatible(begin: str, stored: Form) -> bool:
    first = _literal(stored)
    shorter = min(len(first), len(begin))
    return first[:shorter].rstrip("#") == begin[:shorter].rstrip("#") or not first


def _closes(bound: str, stored: Form) -> bool:
    """Whether the bound lies right behind all keys of the stored beginning, as 'ADDR$' lies behind 'ADDR#'."""
    first, last = _literal(stored), len(bound) - 1
    return 0 <= last < len(first) and bound[:last] == first[:last] and bound[last] > first[last]


def _literal(stored: Form) -> str:
    parts = stored.parts if stored else ()
    return parts[0] if parts and isinstance(parts[0], str) else ""


def _text_before(parts: Sequence[object], separator: str, plan: EntityPlan | None) -> bool:
    """Whether a text of varying length stands right before the separator, as far as the column's type is known."""
    return any(
        isinstance(one, Ref)
        and one.format is None
        and not one.filters
        and (plan is None or not is_closed(one, plan, separator))
        and isinstance(following, str)
        and following.startswith(separator)
        for one, following in pairwise(parts)
    )
