"""What of a mapping only a source that speaks SQL can do, and the word that does it on old tables of DynamoDB's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.mapping.check.patterns import asked_faults
from migrator.mapping.language.document import Document, Path
from migrator.mapping.language.documents import TYPE_NAMES, facts_of, held_as, key_type
from migrator.mapping.language.plan import plan_entity
from migrator.mapping.model.facts import EntityPlan, JoinPlan, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import DocumentTable, Entity, Mapping, Pattern, Statement
from migrator.runtime.errors import Fault, did_you_mean

_TABLES: Path = ("source", "tables")


def document_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    """Faults of the form of a mapping whose source is tables of DynamoDB's."""
    if mapping.schemas:
        what = "DynamoDB has no schemas; leave it out, and read each tenant's tables by a mapping of its own"
        yield document.fault(("source", "schemas"), what)
    for name, table in mapping.documents.items():
        yield from _table_faults(name, table, document)
    for entity in mapping.entities.values():
        yield from _entity_faults(entity, mapping, document)
    facts = facts_of(mapping)
    for pattern in mapping.patterns.values():
        for part, statement in pattern.statements.items():
            yield from _statement_faults(pattern, part, statement, mapping, facts, document)


def _statement_faults(
    pattern: Pattern,
    part: str,
    statement: Statement,
    mapping: Mapping,
    facts: SchemaFacts,
    document: Document,
) -> Iterator[Fault]:
    if isinstance(statement, str):
        what = "sql: asks a database, and the old side is tables of DynamoDB's"
        mend = "write old: {query: {table: …, key: {…}}}, or get:, or batch_get:"
        yield document.fault(("access_patterns", pattern.name, "sql"), f"{what}; {mend}")
        return
    at: Path = ("access_patterns", pattern.name, "old", *([part] if part else []))
    if statement.asked.star is not None:
        yield document.fault((*at, "query", "key"), "a * asks many keys; an old table is asked by one")
    index = statement.design.asked(statement.asked.index)
    if index is not None:
        yield from asked_faults(statement.asked, index, document, at)
    plan, faults = plan_entity(mapping, statement.entity, facts, document, at)
    for fault in faults:
        # The columns of the answer are attributes of its entity, and stand in `returns`.
        is_answer = fault.where.startswith("entities.")
        yield document.fault((*at, "returns"), fault.what) if is_answer else fault
    if plan is not None:
        yield from _join_faults(plan.table, plan.joins, document, (*at, "join"))


def _table_faults(name: str, table: DocumentTable, document: Document) -> Iterator[Fault]:
    at: Path = (*_TABLES, name)
    for number, key in enumerate(table.key):
        if key not in table.columns:
            what = f"'{key}' is not among columns{did_you_mean(key, table.columns)}"
            yield document.fault((*at, "key", number), f"{what}; declare its type there")
        elif not key_type(table.columns[key]):
            what = f"'{key}' is declared {table.columns[key]}, and a key is a text, a number or binary"
            yield document.fault((*at, "columns", key), what)
    for path in table.columns:
        for holder in _holders(path):
            declared = table.columns.get(holder, "map")
            if "M" not in held_as(declared):
                what = f"it leads into '{holder}', which is declared {declared}; declare that a map, or leave it out"
                yield document.fault((*at, "columns", path), what)


def _holders(path: str) -> Iterator[str]:
    """The maps that a path leads through, the outermost first."""
    names = path.split(".")
    yield from (".".join(names[:count]) for count in range(1, len(names)))


def _entity_faults(entity: Entity, mapping: Mapping, document: Document) -> Iterator[Fault]:
    at: Path = ("entities", entity.written)
    for name in entity.computed:
        what = "columns: are made by SQL of the source, and documents have none"
        mend = "name the attribute itself (address.city leads into a map), use a template or a filter, or transform:"
        yield document.fault((*at, "columns", name), f"{what}; {mend}")
    if entity.changes:
        what = "changes: is for views, and DynamoDB has none; name its tables by table:, join: and collect:"
        yield document.fault((*at, "changes"), what)
    table = mapping.documents.get(entity.table)
    if table is not None and entity.key and entity.key != table.key:
        named = ", ".join(table.key)
        what = f"a document is named by its table's key ({named}); leave key: out, or write these"
        yield document.fault((*at, "key"), what)


# ── what only the plans tell ──


def document_plan_faults(plan: EntityPlan, document: Document) -> Iterator[Fault]:
    """Links whose two sides can never be equal, and climbs that no key serves."""
    at: Path = ("entities", plan.entity.written)
    yield from _join_faults(plan.table, plan.joins, document, (*at, "join"))
    for collection in plan.collections:
        design = collection.collection
        word = "climb" if design.kind == "climb" else "collect"
        here: Path = (*at, word, design.alias)
        yield from _link_faults(collection.table, plan.table, collection.link, document, here)
        yield from _join_faults(collection.table, collection.joins, document, (*here, "join"))
        key = set(collection.table.primary_key)
        if word == "climb" and {theirs for _, theirs in collection.link} != key:
            what = f"ancestors are read by the key of {plan.table.name}, one after the other"
            yield document.fault(here, f"{what}; name the columns that hold {', '.join(sorted(key))}")


def _join_faults(
    root: TableFacts, joins: Sequence[JoinPlan], document: Document, at: Path
) -> Iterator[Fault]:
    tables = {"": root, **{join.alias: join.table for join in joins}}
    for join in joins:
        yield from _link_faults(tables[join.parent], join.table, join.on, document, (*at, join.alias))


def _link_faults(
    here: TableFacts, there: TableFacts, link: Sequence[tuple[str, str]], document: Document, at: Path
) -> Iterator[Fault]:
    for ours, theirs in link:
        own, other = here.column(ours), there.column(theirs)
        if own is None or other is None or key_type(own.declared) == key_type(other.declared) != "":
            continue
        sides = [
            f"{table.name}.{column.name} is {_shown(column.declared)}"
            for table, column in ((here, own), (there, other))
        ]
        yield document.fault(at, f"{', and '.join(sides)}: a link needs one type on both sides; correct them")


def _shown(declared: str) -> str:
    return " or ".join(TYPE_NAMES[type_] for type_ in held_as(declared))
