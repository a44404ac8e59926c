"""Item designs of a mapping's entities by type and attribute; made once, so that a pattern does not walk all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from migrator.mapping.model.facts import EntityPlan, Kind, attributes_of, kind_of
from migrator.mapping.model.mapping import Expression, Part, Ref
from migrator.runtime.values import replace

Behind = tuple[Kind, Ref] | None
"""The column behind an attribute, with its filters; None for an attribute of several columns."""

Written = Mapping[str, Expression]
"""What an item's attributes are made of, those included that keep their column's name."""

_TIMES = frozenset({"timestamp", "date"})


class Designs:
    def __init__(self, plans: Sequence[EntityPlan] = ()) -> None:
        self._of_type: dict[str, list[tuple[EntityPlan, Written]]] = defaultdict(list)
        self._having: dict[str, list[tuple[EntityPlan, Written]]] = defaultdict(list)
        self._columns: dict[tuple[str, str], set[Behind]] = defaultdict(set)
        for plan in plans:
            for item in plan.entity.items:
                written = attributes_of(plan, item)
                for name in written:
                    self._having[name].append((plan, written))
                for type_ in ("", item.type):
                    self._of_type[type_].append((plan, written))
                    for name, expression in written.items():
                        self._columns[type_, name].add(_column(plan, expression))

    def columns(self, type_: str, name: str) -> set[Behind]:
        """Columns behind the attribute in items of the type; '': of any type."""
        return set(self._columns.get((type_, name), ()))

    def of_part(self, part: Part) -> Iterator[tuple[EntityPlan, Written]]:
        """Items that may be in the part: of its type, or of any that has all of its attributes."""
        if part.type:
            yield from self._of_type.get(part.type, ())
            return
        wanted = set(part.attributes)
        # Of many tables few have the rarest of the attributes.
        candidates = (self._having.get(name, []) for name in wanted)
        for plan, written in min(candidates, key=len, default=self._of_type[""]):
            if written.keys() >= wanted:
                yield plan, written


def _column(plan: EntityPlan, expression: Expression) -> Behind:
    if not isinstance(expression, Ref) or len(expression.paths) != 1:
        return None
    kind = kind_of(expression.paths[0], plan)
    # A statement may already give the text that a filter makes; only for times can the two be told apart.
    if kind is None or not (expression.column or kind.name in _TIMES):
        return None
    return kind, replace(expression, paths=("",))
