"""Which root rows a change of a captured table affects, and which columns its mark must hold. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from migrator.mapping.items.filters import FilterContext, takes_null
from migrator.mapping.items.rows import RowPlaces
from migrator.mapping.model.facts import (
    Captured,
    CollectionPlan,
    EntityPlan,
    JoinPlan,
    Lookup,
    SchemaFacts,
    TableFacts,
)
from migrator.mapping.model.instances import MarkedColumns
from migrator.mapping.model.mapping import ItemDesign, Mapping, paths_in, uses_in
from migrator.runtime.values import replace


def captured_name(table: TableFacts) -> str:
    return table.real if table.schema is None else f"{table.schema}.{table.real}"


def unread_tables(facts: SchemaFacts, plans: Sequence[EntityPlan], views: Container[str] = ()) -> list[str]:
    read = captured_tables(plans).keys()
    tables = {captured_name(table): table.real for table in facts.tables.values()}
    return sorted(name for name, real in tables.items() if name not in read and real not in views)


def captured_tables(plans: Sequence[EntityPlan]) -> dict[str, Captured]:
    tables: dict[str, Captured] = {}
    for plan in plans:
        for use in _uses(plan):
            name = captured_name(use.table)
            tables[name] = use if name not in tables else _merged(tables[name], use)
    return tables


def marked_columns(plans: Sequence[EntityPlan]) -> dict[str, MarkedColumns]:
    return {name: _marked(captured) for name, captured in captured_tables(plans).items()}


def _marked(captured: Captured) -> MarkedColumns:
    watched = captured.watched
    return MarkedColumns(
        _real(captured.table, captured.columns), None if watched is None else _real(captured.table, watched)
    )


def _real(table: TableFacts, names: Sequence[str]) -> tuple[str, ...]:
    found = (table.column(name) for name in names)
    return tuple(sorted({column.real for column in found if column is not None}))


def needs_memory(plan: EntityPlan) -> bool:
    """Whether a base key needs more than the root row's own columns (rule 7). Tables behind a view leave images
    of other rows than the view's.
    """
    return bool(plan.changes) or not set(key_paths(plan)) <= set(_own_columns(plan))


def decided_elsewhere(plan: EntityPlan, design: ItemDesign) -> bool:
    paths = {condition.path for condition in design.when}
    paths |= {design.expiry.path} if design.expiry else set()
    return not paths <= set(_own_columns(plan))


def key_paths(plan: EntityPlan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths_in(template for item in plan.entity.items for template in item.key)))


def needed_columns(plan: EntityPlan) -> set[str]:
    """Columns of the root row without which it has no items: a NULL excludes each of them, or refuses the row."""
    needed = {column.name for column, allowed in plan.where if allowed is None or None not in allowed}
    return needed | _own_columns(plan).intersection(*map(_needed_by, plan.entity.items))


def _needed_by(item: ItemDesign) -> set[str]:
    conditions = {one.path for one in item.when if one.allowed is None or None not in one.allowed}
    refs = [use.ref for template in item.key for use in uses_in(template)]
    return conditions | {path for ref in refs if not takes_null(ref) for path in ref.paths}


def image_places(mapping: Mapping, plan: EntityPlan) -> RowPlaces:
    own = _own_columns(plan)
    wanted = [path for path in key_paths(plan) if path in own]
    return RowPlaces({path: number for number, path in enumerate(wanted)}, around=FilterContext.of(mapping))


def _own_columns(plan: EntityPlan) -> set[str]:
    slots = (slot for slot in plan.slots if slot.alias == "" and slot.column.sql is None)
    return {slot.path for slot in slots} - set(plan.transformed)


# ── uses of one plan ──


def _uses(plan: EntityPlan) -> Iterator[Captured]:
    if not plan.is_single:
        yield _root_use(plan)
    yield from _join_uses(plan, plan.joins, None)
    for collection in plan.collections:
        if collection.collection.kind == "climb":
            yield _climb_use(plan, collection)
        else:
            yield _child_use(plan, collection)
            yield from _join_uses(plan, collection.joins, collection)
    tables = [plan.table, *(join.table for join in plan.joins), *(one.table for one in plan.collections)]
    for table, columns in plan.changes:
        use = _captured(table, columns, None, Lookup(plan.entity.name, columns))
        yield replace(use, texts=tuple(dict.fromkeys(one.real for one in tables)))


def _root_use(plan: EntityPlan) -> Captured:
    key = tuple(column.name for column in plan.key)
    columns = (*key, *(path for path in key_paths(plan) if path in _own_columns(plan)))
    slots = [slot.column.name for slot in plan.slots if slot.alias == ""]
    links = [real for joined in plan.joins if joined.parent == "" for real, _ in joined.on]
    links += [real for joined in plan.collections for _, real in joined.link]
    watched = [*slots, *_written(plan.table, links), *(column.name for column, _ in plan.where)]
    return _captured(
        plan.table,
        columns,
        None if _is_computed(plan.table) or plan.transformed else watched,
        Lookup(plan.entity.name, key),
    )


def _is_computed(table: TableFacts) -> bool:
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
        onward = [
            real for child_join in joins if child_join.parent == join.alias for real, _ in child_join.on
        ]
        used = [slot.column.name for slot in slots if slot.alias == join.alias]
        ordered = () if collection is None else _ordering(collection, join.alias)
        watched = [*used, *ordered, *_written(join.table, onward)]
        yield _captured(join.table, values, None if _is_computed(join.table) else watched, lookup)


def _child_use(plan: EntityPlan, child: CollectionPlan) -> Captured:
    values = _written(child.table, [own for own, _ in child.link]) or child.table.primary_key
    lookup = Lookup(
        plan.entity.name, values, tuple(theirs for _, theirs in child.link), of_single=plan.is_single
    )
    used = [slot.column.name for slot in child.slots if slot.alias == ""]
    used += [] if child.column is None else [child.column.name]
    links = [real for join in child.joins if join.parent == "" for real, _ in join.on]
    # Its key too: it decides the order of children that are equal otherwise.
    watched = [*used, *_ordering(child, ""), *child.table.primary_key, *_written(child.table, links)]
    return _captured(child.table, values, watched, lookup)


def _climb_use(plan: EntityPlan, climb: CollectionPlan) -> Captured:
    values = _written(climb.table, [theirs for _, theirs in climb.link])
    lookup = Lookup(plan.entity.name, values, tuple(own for own, _ in climb.link), climb=climb)
    used = [slot.column.name for slot in climb.slots if slot.alias == ""]
    watched = [*used, *_written(climb.table, [own for own, _ in climb.link])]
    return _captured(climb.table, values, watched, lookup)


def _ordering(collection: CollectionPlan, alias: str) -> tuple[str, ...]:
    columns = []
    for path in collection.order_by:
        head, dot, name = path.partition(".")
        if alias == (head if dot else ""):
            columns.append(name if dot else path)
    return tuple(columns)


def _captured(
    table: TableFacts, columns: Sequence[str], watched: Sequence[str] | None, lookup: Lookup
) -> Captured:
    held = tuple(dict.fromkeys(columns))
    seen = None if watched is None else tuple(dict.fromkeys([*held, *watched]))
    texts = tuple(column.sql for column in table.columns if column.sql is not None)
    return Captured(captured_name(table), table, held, seen, (lookup,), texts)


def _merged(first: Captured, second: Captured) -> Captured:
    columns = tuple(dict.fromkeys([*first.columns, *second.columns]))
    watched = None
    if first.watched is not None and second.watched is not None:
        watched = tuple(dict.fromkeys([*first.watched, *second.watched]))
    lookups, texts = (
        tuple(dict.fromkeys([*first.lookups, *second.lookups])),
        tuple(dict.fromkeys([*first.texts, *second.texts])),
    )
    return Captured(first.name, first.table, columns, watched, lookups, texts)


def _written(table: TableFacts, reals: Sequence[str]) -> tuple[str, ...]:
    names = {column.real: column.name for column in table.columns}
    return tuple(names[real] for real in reals)


def direct_tables(direct_plans: Sequence[EntityPlan], plans: Sequence[EntityPlan]) -> list[str]:
    return sorted(set(captured_tables(direct_plans)) - set(captured_tables(plans)))
