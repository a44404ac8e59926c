"""Which root rows a change of a captured table affects, and which columns its mark must hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.mapping.heart.expressions import Places
from migrator.model.capture import Captured, Lookup
from migrator.model.entities import ItemDesign
from migrator.model.expressions import Template
from migrator.model.facts import CollectionPlan, EntityPlan, JoinPlan, TableFacts


def captured_name(table: TableFacts) -> str:
    return table.real if table.schema is None else f"{table.schema}.{table.real}"


def captured_tables(plans: Sequence[EntityPlan]) -> dict[str, Captured]:
    """Every table that the plans read, by name: roots, joined, collected and climbed ones."""
    found: dict[str, Captured] = {}
    for plan in plans:
        for use in _uses(plan):
            name = captured_name(use.table)
            found[name] = use if name not in found else _merged(found[name], use)
    return found


def needs_memory(plan: EntityPlan) -> bool:
    """Whether a base key is made of anything but columns of the root row itself (rule 7).

    What stands behind a view leaves images of other rows than the view's.
    """
    return bool(plan.changes) or not set(key_paths(plan)) <= set(_own_columns(plan))


def decided_elsewhere(plan: EntityPlan, design: ItemDesign) -> bool:
    """Whether more than the root row's own columns say if the item is there: its `when`, its TTL."""
    paths = {condition.path for condition in design.when}
    paths |= {design.expiry.path} if design.expiry else set()
    return not paths <= set(_own_columns(plan))


def key_paths(plan: EntityPlan) -> tuple[str, ...]:
    """Paths that the base keys of the entity's items name."""
    templates = (template for item in plan.entity.items for template in item.key)
    return tuple(dict.fromkeys(path for template in templates for path in _paths(template)))


def template_paths(templates: Sequence[Template]) -> frozenset[str]:
    """Paths that the templates name."""
    return frozenset(path for template in templates for path in _paths(template))


def image_places(plan: EntityPlan) -> Places:
    """Where the columns of base keys stand in an image that is made a row (see items.py)."""
    own = _own_columns(plan)
    wanted = [path for path in key_paths(plan) if path in own]
    return Places({path: number for number, path in enumerate(wanted)}, {})


def _paths(template: Template) -> Iterator[str]:
    return (path for ref in template.refs for path in ref.paths)


def _own_columns(plan: EntityPlan) -> set[str]:
    """Paths of the root's columns that its own row holds; what SQL or a transform makes is none of them."""
    slots = (slot for slot in plan.slots if slot.alias == "" and slot.column.sql is None)
    return {slot.path for slot in slots} - set(plan.transformed)


# ── uses of one plan ──


def _uses(plan: EntityPlan) -> Iterator[Captured]:
    yield _root_use(plan)
    yield from _join_uses(plan, plan.joins, None)
    for one in plan.collections:
        if one.collection.kind == "climb":
            yield _climb_use(plan, one)
        else:
            yield _child_use(plan, one)
            yield from _join_uses(plan, one.joins, one)
    for table, columns in plan.changes:
        yield _captured(table, columns, None, Lookup(plan.entity.name, columns))


def _root_use(plan: EntityPlan) -> Captured:
    key = tuple(column.name for column in plan.key)
    columns = (*key, *(path for path in key_paths(plan) if path in _own_columns(plan)))
    slots = [slot.column.name for slot in plan.slots if slot.alias == ""]
    links = [real for one in plan.joins if one.parent == "" for real, _ in one.on]
    links += [real for one in plan.collections for _, real in one.link]
    watched = [*slots, *_written(plan.table, links), *(column.name for column, _ in plan.where)]
    return _captured(
        plan.table,
        columns,
        None if _is_computed(plan.table) or plan.transformed else watched,
        Lookup(plan.entity.name, key),
    )


def _is_computed(table: TableFacts) -> bool:
    """Whether SQL makes columns of it, of whichever others."""
    return any(column.sql is not None for column in table.columns)


def _join_uses(
    plan: EntityPlan, joins: Sequence[JoinPlan], collection: CollectionPlan | None
) -> Iterator[Captured]:
    slots = plan.slots if collection is None else collection.slots
    for join in joins:
        values = _written(join.table, [own for _, own in join.on])
        lookup = Lookup(
            plan.entity.name, values, tuple(theirs for theirs, _ in join.on), join.parent, collection
        )
        onward = [real for one in joins if one.parent == join.alias for real, _ in one.on]
        used = [slot.column.name for slot in slots if slot.alias == join.alias]
        ordered = () if collection is None else _ordering(collection, join.alias)
        watched = [*used, *ordered, *_written(join.table, onward)]
        yield _captured(join.table, values, None if _is_computed(join.table) else watched, lookup)


def _child_use(plan: EntityPlan, one: CollectionPlan) -> Captured:
    values = _written(one.table, [own for own, _ in one.link])
    lookup = Lookup(plan.entity.name, values, tuple(theirs for _, theirs in one.link))
    used = [slot.column.name for slot in one.slots if slot.alias == ""]
    used += [] if one.column is None else [one.column.name]
    links = [real for join in one.joins if join.parent == "" for real, _ in join.on]
    # Its key too: it decides the order of children that are equal otherwise.
    watched = [*used, *_ordering(one, ""), *one.table.primary_key, *_written(one.table, links)]
    return _captured(one.table, values, watched, lookup)


def _climb_use(plan: EntityPlan, one: CollectionPlan) -> Captured:
    values = _written(one.table, [theirs for _, theirs in one.link])
    lookup = Lookup(plan.entity.name, values, tuple(own for own, _ in one.link), climb=one)
    used = [slot.column.name for slot in one.slots if slot.alias == ""]
    watched = [*used, *_written(one.table, [own for own, _ in one.link])]
    return _captured(one.table, values, watched, lookup)


def _ordering(one: CollectionPlan, alias: str) -> tuple[str, ...]:
    """Columns of the alias that the list is ordered by."""
    found = []
    for path in one.order_by:
        head, dot, name = path.partition(".")
        if alias == (head if dot else ""):
            found.append(name if dot else path)
    return tuple(found)


def _captured(
    table: TableFacts, columns: Sequence[str], watched: Sequence[str] | None, lookup: Lookup
) -> Captured:
    held = tuple(dict.fromkeys(columns))
    seen = None if watched is None else tuple(dict.fromkeys([*held, *watched]))
    return Captured(captured_name(table), table, held, seen, (lookup,))


def _merged(one: Captured, other: Captured) -> Captured:
    columns = tuple(dict.fromkeys([*one.columns, *other.columns]))
    watched = None
    if one.watched is not None and other.watched is not None:
        watched = tuple(dict.fromkeys([*one.watched, *other.watched]))
    return Captured(
        one.name, one.table, columns, watched, tuple(dict.fromkeys([*one.lookups, *other.lookups]))
    )


def _written(table: TableFacts, reals: Sequence[str]) -> tuple[str, ...]:
    names = {column.real: column.name for column in table.columns}
    return tuple(names[real] for real in reals)
