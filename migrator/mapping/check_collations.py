"""Keys that tell apart texts which the source takes for one: 'ANN' and 'ann', or 'ann' and 'ann '."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.errors import Fault
from migrator.facts import Alike, Column, EntityPlan
from migrator.mapping.check_keys import key_places, plain_keys
from migrator.mapping.check_pattern_values import key_templates
from migrator.mapping.document import Document, Path
from migrator.mapping.origins import origins_of
from migrator.mapping.uniqueness import column_of
from migrator.model import Expression, Filter, Mapping, Pattern, Ref, Template

_MENDS: dict[Alike, tuple[str, ...]] = {"case": ("lower", "upper"), "trailing spaces": ("trim",)}
"""Filters of which one makes one text of those; the first is the one that we advise."""
_TEXTS = frozenset({"text", "plain"})


def collation_warnings(mapping: Mapping, plans: Sequence[EntityPlan], document: Document) -> Iterator[Fault]:
    """A warning for each key of an item, and each parameter in a pattern's key, that goes by more than the source does.

    Of a mapping without faults.
    """
    for plan in plans:
        yield from _of_items(mapping, plan, document)
    for pattern in mapping.patterns.values():
        yield from _of_params(mapping, pattern, plans, document)


def _of_items(mapping: Mapping, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    for item in plan.entity.items:
        at: Path = ("entities", plan.entity.written, "items", item.type)
        made: list[tuple[Path, Expression]] = [
            (where, template) for where, _, template, _ in key_places(mapping, item, at)
        ]
        made += [(where, value) for where, _, _, value in plain_keys(mapping, plan, item, at)]
        for where, value in made:
            for ref in _refs(value):
                if missing := _missing(ref, column_of(ref.paths[0], plan)):
                    what = f"the source takes texts of {ref.paths[0]} that differ in {' or '.join(missing)} for one"
                    mend = f"write {_mended(ref, missing)} here and in what asks for it"
                    yield document.fault(
                        where, f"{what}, and this key tells them apart; {mend}", warning=True
                    )


def _of_params(
    mapping: Mapping, pattern: Pattern, plans: Sequence[EntityPlan], document: Document
) -> Iterator[Fault]:
    asked = mapping.table.asked(pattern.index)
    if asked is None:  # the parser has said so
        return
    origins = [(one.plan, one.of) for one in origins_of(mapping, pattern, plans)]
    asking = [
        (where, ref) for where, _, template, _ in key_templates(pattern, asked) for ref in template.refs
    ]
    for where, ref in asking:
        for plan, of in origins:
            # A `*` stands for a parameter, or for none.
            origin = of.get(ref.paths[0]) if ref.paths else None
            if origin and (missing := _missing(ref, column_of(origin.path, plan))):
                what = f"SQL takes values of '{ref.paths[0]}' that differ in {' or '.join(missing)} for one"
                mend = f"write {_mended(ref, missing)} here and in the items"
                what = f"{what} (it is compared with {origin.path}), and this key tells them apart; {mend}"
                yield document.fault(where, what, warning=True)


def _refs(value: Expression) -> Sequence[Ref]:
    if isinstance(value, Template):
        return value.refs
    return (value,) if isinstance(value, Ref) else ()


def _missing(ref: Ref, column: Column | None) -> list[Alike]:
    """In what texts differ that are one in the column and two in the key. A map refuses what it does not list."""
    used = {one.name for one in ref.filters}
    if column is None or column.kind.name not in _TEXTS or "map" in used:
        return []
    return [alike for alike in column.alike if used.isdisjoint(_MENDS[alike])]


def _mended(ref: Ref, missing: Sequence[Alike]) -> str:
    filters = [*(Filter(_MENDS[alike][0]) for alike in missing), *ref.filters]
    return "{" + "|".join([",".join(ref.paths), *map(_filter_text, filters)]) + "}"


def _filter_text(used: Filter) -> str:
    args = ",".join(arg or "''" for arg in used.args)
    return f"{used.name}:{args}" if used.args else used.name
