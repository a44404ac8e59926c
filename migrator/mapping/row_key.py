"""Which attributes of an answer name the row or the item that it came from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.facts import EntityPlan
from migrator.mapping.items import kept_columns
from migrator.model import ItemDesign, Mapping, Part, Pattern, Ref


def row_key(
    mapping: Mapping, plans: Sequence[EntityPlan], pattern: Pattern, part: Part
) -> tuple[str, ...] | None:
    """Attributes of the part that no two rows of its answer have alike; none of them where it has one row at most.

    None where the pattern does not return them, or item types that can be in the answer have others.
    """
    if part.one or pattern.operation == "get":
        return ()
    stored = tuple(one.name for one in mapping.table.key)
    if set(stored) <= set(part.attributes):
        return stored
    keys = {_of_design(plan, design, part) for plan, design in _designs(plans, part)}
    return keys.pop() if len(keys) == 1 else None


def _designs(plans: Sequence[EntityPlan], part: Part) -> Iterator[tuple[EntityPlan, ItemDesign]]:
    """Item types whose items may be in the part: of its type, or of any that has all of its attributes."""
    for plan in plans:
        for design in plan.entity.items:
            if part.type == design.type or (not part.type and set(part.attributes) <= _names(plan, design)):
                yield plan, design


def _names(plan: EntityPlan, design: ItemDesign) -> set[str]:
    return {*plan.entity.attributes, *design.attributes, *kept_columns(plan, design)}


def _of_design(plan: EntityPlan, design: ItemDesign, part: Part) -> tuple[str, ...] | None:
    """For each column of the row's key an attribute that holds it as it is."""
    written = {**plan.entity.attributes, **design.attributes}
    kept = kept_columns(plan, design)
    found = []
    for column in plan.key:
        plain = Ref((column.name,))
        name = next(
            (
                one
                for one in part.attributes
                if written.get(one, Ref((one,)) if one in kept else None) == plain
            ),
            None,
        )
        if name is None:
            return None
        found.append(name)
    return tuple(found)
