"""All faults and warnings of a mapping against a schema, DynamoDB's limits and its reserved words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Mapping as Dict
from functools import cached_property

from msgspec import Struct

from migrator.mapping.check.keys import atomic_faults, collation_warnings, key_faults
from migrator.mapping.check.patterns import asked_faults, attribute_names, pattern_faults
from migrator.mapping.check.values import (
    equalled,
    key_doubt,
    meeting_items,
    refused,
    row_key_fault,
    too_precise,
    unproved_items,
    value_faults,
)
from migrator.mapping.items.items import CompiledEntity, compile_entity
from migrator.mapping.items.program import keys_of, parts_of
from migrator.mapping.items.transforms import Transform
from migrator.mapping.language.document import Document, Path, where_of
from migrator.mapping.language.documents import TYPE_NAMES, facts_of, held_as, key_type
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.language.plan import entities_of, plan_entity
from migrator.mapping.model.facts import (
    CollectionPlan,
    Column,
    EntityPlan,
    SchemaFacts,
    TableFacts,
    column_of,
    kept_columns,
    kind_of,
    tables_of,
)
from migrator.mapping.model.mapping import DocumentTable, Entity, Mapping, Pattern, Statement
from migrator.mapping.model.table import (
    GLOBAL_INDEXES,
    INDEX_NAME,
    LOCAL_INDEXES,
    OWN_TYPES,
    PROJECTED_ATTRIBUTES,
    Index,
    TableDesign,
)
from migrator.runtime.errors import Fault, MappingError, did_you_mean

# ── What of a mapping only a source that speaks SQL can do ──


_TABLES: Path = ("source", "tables")


def document_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    if mapping.schemas:
        what = "DynamoDB does not have schemas; leave it out, and write a mapping for each tenant's tables"
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
        what = "sql: needs a database, but the source is DynamoDB tables"
        mend = "write old: {query: {table: …, key: {…}}}, or get:, or batch_get:"
        yield document.fault(("access_patterns", pattern.name, "sql"), f"{what}; {mend}")
        return
    at: Path = ("access_patterns", pattern.name, "old", *([part] if part else []))
    if statement.asked.star is not None or (statement.asked.operation == "query" and statement.asked.listed):
        what = "a * or a list reads many keys; an old table is queried by one key"
        yield document.fault((*at, "query", "key"), what)
    index = statement.design.asked(statement.asked.index)
    if index is not None:
        yield from asked_faults(statement.asked, index, document, at)
    plan, faults = plan_entity(mapping, statement.entity, facts, document, at)
    for fault in faults:
        # The columns of the answer are attributes of its entity, listed in `returns`.
        is_answer = fault.where.startswith("entities.")
        yield document.fault((*at, "returns"), fault.what) if is_answer else fault
    if plan is not None:
        yield from _join_faults(plan, document, (*at, "join"))


def _table_faults(name: str, table: DocumentTable, document: Document) -> Iterator[Fault]:
    at: Path = (*_TABLES, name)
    for number, key in enumerate(table.key):
        if key not in table.columns:
            what = f"'{key}' is not among columns{did_you_mean(key, table.columns)}"
            yield document.fault((*at, "key", number), f"{what}; declare its type there")
        elif not key_type(table.columns[key]):
            what = f"'{key}' is declared {table.columns[key]}; a key is a text, a number or binary"
            yield document.fault((*at, "columns", key), what)
    for path in table.columns:
        for holder in _holders(path):
            declared = table.columns.get(holder, "map")
            if "M" not in held_as(declared):
                what = f"it leads into '{holder}', which is declared {declared}; declare that a map, or leave it out"
                yield document.fault((*at, "columns", path), what)


def _holders(path: str) -> Iterator[str]:
    names = path.split(".")
    yield from (".".join(names[:count]) for count in range(1, len(names)))


def _entity_faults(entity: Entity, mapping: Mapping, document: Document) -> Iterator[Fault]:
    at: Path = ("entities", entity.written)
    for name in entity.computed:
        what = "columns: need SQL in the source, which documents do not have"
        mend = "name the attribute itself (address.city leads into a map), use a template or a filter, or transform:"
        yield document.fault((*at, "columns", name), f"{what}; {mend}")
    if entity.changes:
        what = "changes: is for views, which DynamoDB does not have; name its tables by table:, join: and collect:"
        yield document.fault((*at, "changes"), what)
    if not entity.table:
        what = "single: reads whole tables in one snapshot, which DynamoDB does not have"
        yield document.fault((*at, "single"), f"{what}; make an item of each document, by table:")
    table = mapping.documents.get(entity.table)
    if table is not None and entity.key and entity.key != table.key:
        named = ", ".join(table.key)
        what = f"a document is identified by its table's key ({named}); leave key: out, or write these"
        yield document.fault((*at, "key"), what)


# ── faults that need the plans ──


def document_plan_faults(plan: EntityPlan, document: Document) -> Iterator[Fault]:
    at: Path = ("entities", plan.entity.written)
    yield from _join_faults(plan, document, (*at, "join"))
    for collection in plan.collections:
        design = collection.collection
        word = "climb" if design.kind == "climb" else "collect"
        here: Path = (*at, word, design.alias)
        yield from _link_faults(collection.table, plan.table, collection.link, document, here)
        yield from _join_faults(collection, document, (*here, "join"))
        key = set(collection.table.primary_key)
        if word == "climb" and {theirs for _, theirs in collection.link} != key:
            what = f"ancestors are read by the key of {plan.table.name}, one after the other"
            yield document.fault(here, f"{what}; name the columns that hold {', '.join(sorted(key))}")


def _join_faults(plan: EntityPlan | CollectionPlan, document: Document, at: Path) -> Iterator[Fault]:
    tables = tables_of(plan)
    for join in plan.joins:
        yield from _link_faults(tables[join.parent], join.table, join.on, document, (*at, join.alias))


def _link_faults(
    here: TableFacts, there: TableFacts, link: Sequence[tuple[str, str]], document: Document, at: Path
) -> Iterator[Fault]:
    for ours, theirs in link:
        own, other = here.column(ours), there.column(theirs)
        if own is None or other is None or key_type(own.declared) == key_type(other.declared) != "":
            continue
        sides = [
            f"{table.name}.{column.name} is {' or '.join(map(TYPE_NAMES.__getitem__, held_as(column.declared)))}"
            for table, column in ((here, own), (there, other))
        ]
        yield document.fault(at, f"{', and '.join(sides)}: a link needs one type on both sides; correct them")


# ──
# Words that DynamoDB's expressions keep for themselves; an attribute of that name is written #name there.
# Source: AWS Developer Guide, "Reserved words in DynamoDB".

RESERVED_WORDS = frozenset(
    """
    ABORT ABSOLUTE ACTION ADD AFTER AGENT AGGREGATE ALL ALLOCATE ALTER ANALYZE AND ANY ARCHIVE ARE ARRAY AS
    ASC ASCII ASENSITIVE ASSERTION ASYMMETRIC AT ATOMIC ATTACH ATTRIBUTE AUTH AUTHORIZATION AUTHORIZE AUTO AVG
    BACK BACKUP BASE BATCH BEFORE BEGIN BETWEEN BIGINT BINARY BIT BLOB BLOCK BOOLEAN BOTH BREADTH BUCKET BULK
    BY BYTE CALL CALLED CALLING CAPACITY CASCADE CASCADED CASE CAST CATALOG CHAR CHARACTER CHECK CLASS CLOB
    CLOSE CLUSTER CLUSTERED CLUSTERING CLUSTERS COALESCE COLLATE COLLATION COLLECTION COLUMN COLUMNS COMBINE
    COMMENT COMMIT COMPACT COMPILE COMPRESS CONDITION CONFLICT CONNECT CONNECTION CONSISTENCY CONSISTENT
    CONSTRAINT CONSTRAINTS CONSTRUCTOR CONSUMED CONTINUE CONVERT COPY CORRESPONDING COUNT COUNTER CREATE CROSS
    CUBE CURRENT CURSOR CYCLE DATA DATABASE DATE DATETIME DAY DEALLOCATE DEC DECIMAL DECLARE DEFAULT
    DEFERRABLE DEFERRED DEFINE DEFINED DEFINITION DELETE DELIMITED DEPTH DEREF DESC DESCRIBE DESCRIPTOR DETACH
    DETERMINISTIC DIAGNOSTICS DIRECTORIES DISABLE DISCONNECT DISTINCT DISTRIBUTE DO DOMAIN DOUBLE DROP DUMP
    DURATION DYNAMIC EACH ELEMENT ELSE ELSEIF EMPTY ENABLE END EQUAL EQUALS ERROR ESCAPE ESCAPED EVAL EVALUATE
    EXCEEDED EXCEPT EXCEPTION EXCEPTIONS EXCLUSIVE EXEC EXECUTE EXISTS EXIT EXPLAIN EXPLODE EXPORT EXPRESSION
    EXTENDED EXTERNAL EXTRACT FAIL FALSE FAMILY FETCH FIELDS FILE FILTER FILTERING FINAL FINISH FIRST FIXED
    FLATTERN FLOAT FOR FORCE FOREIGN FORMAT FORWARD FOUND FREE FROM FULL FUNCTION FUNCTIONS GENERAL GENERATE
    GET GLOB GLOBAL GO GOTO GRANT GREATER GROUP GROUPING HANDLER HASH HAVE HAVING HEAP HIDDEN HOLD HOUR
    IDENTIFIED IDENTITY IF IGNORE IMMEDIATE IMPORT IN INCLUDING INCLUSIVE INCREMENT INCREMENTAL INDEX INDEXED
    INDEXES INDICATOR INFINITE INITIALLY INLINE INNER INNTER INOUT INPUT INSENSITIVE INSERT INSTEAD INT
    INTEGER INTERSECT INTERVAL INTO INVALIDATE IS ISOLATION ITEM ITEMS ITERATE JOIN KEY KEYS LAG LANGUAGE
    LARGE LAST LATERAL LEAD LEADING LEAVE LEFT LENGTH LESS LEVEL LIKE LIMIT LIMITED LINES LIST LOAD LOCAL
    LOCALTIME LOCALTIMESTAMP LOCATION LOCATOR LOCK LOCKS LOG LOGED LONG LOOP LOWER MAP MATCH MATERIALIZED MAX
    MAXLEN MEMBER MERGE METHOD METRICS MIN MINUS MINUTE MISSING MOD MODE MODIFIES MODIFY MODULE MONTH MULTI
    MULTISET NAME NAMES NATIONAL NATURAL NCHAR NCLOB NEW NEXT NO NONE NOT NULL NULLIF NUMBER NUMERIC OBJECT OF
    OFFLINE OFFSET OLD ON ONLINE ONLY OPAQUE OPEN OPERATOR OPTION OR ORDER ORDINALITY OTHER OTHERS OUT OUTER
    OUTPUT OVER OVERLAPS OVERRIDE OWNER PAD PARALLEL PARAMETER PARAMETERS PARTIAL PARTITION PARTITIONED
    PARTITIONS PATH PERCENT PERCENTILE PERMISSION PERMISSIONS PIPE PIPELINED PLAN POOL POSITION PRECISION
    PREPARE PRESERVE PRIMARY PRIOR PRIVATE PRIVILEGES PROCEDURE PROCESSED PROJECT PROJECTION PROPERTY
    PROVISIONING PUBLIC PUT QUERY QUIT QUORUM RAISE RANDOM RANGE RANK RAW READ READS REAL REBUILD RECORD
    RECURSIVE REDUCE REF REFERENCE REFERENCES REFERENCING REGEXP REGION REINDEX RELATIVE RELEASE REMAINDER
    RENAME REPEAT REPLACE REQUEST RESET RESIGNAL RESOURCE RESPONSE RESTORE RESTRICT RESULT RETURN RETURNING
    RETURNS REVERSE REVOKE RIGHT ROLE ROLES ROLLBACK ROLLUP ROUTINE ROW ROWS RULE RULES SAMPLE SATISFIES SAVE
    SAVEPOINT SCAN SCHEMA SCOPE SCROLL SEARCH SECOND SECTION SEGMENT SEGMENTS SELECT SELF SEMI SENSITIVE
    SEPARATE SEQUENCE SERIALIZABLE SESSION SET SETS SHARD SHARE SHARED SHORT SHOW SIGNAL SIMILAR SIZE SKEWED
    SMALLINT SNAPSHOT SOME SOURCE SPACE SPACES SPARSE SPECIFIC SPECIFICTYPE SPLIT SQL SQLCODE SQLERROR
    SQLEXCEPTION SQLSTATE SQLWARNING START STATE STATIC STATUS STORAGE STORE STORED STREAM STRING STRUCT STYLE
    SUB SUBMULTISET SUBPARTITION SUBSTRING SUBTYPE SUM SUPER SYMMETRIC SYNONYM SYSTEM TABLE TABLESAMPLE TEMP
    TEMPORARY TERMINATED TEXT THAN THEN THROUGHPUT TIME TIMESTAMP TIMEZONE TINYINT TO TOKEN TOTAL TOUCH
    TRAILING TRANSACTION TRANSFORM TRANSLATE TRANSLATION TREAT TRIGGER TRIM TRUE TRUNCATE TTL TUPLE TYPE UNDER
    UNDO UNION UNIQUE UNIT UNKNOWN UNLOGGED UNNEST UNPROCESSED UNSIGNED UNTIL UPDATE UPPER URL USAGE USE USER
    USERS USING UUID VACUUM VALUE VALUED VALUES VARCHAR VARIABLE VARIANCE VARINT VARYING VIEW VIEWS VIRTUAL
    VOID WAIT WHEN WHENEVER WHERE WHILE WINDOW WITH WITHIN WITHOUT WORK WRAPPED WRITE YEAR ZONE
    """.split()
)


# ── Faults of a mapping's table and indexes by DynamoDB's own rules ──

_TABLE: Path = ("table",)


def table_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    table = mapping.table
    yield from _key_faults(table, document)
    yield from _type_faults(mapping, document)
    yield from _counts(table, document)
    for index in table.indexes:
        at = (*_TABLE, "indexes", index.name)
        if not INDEX_NAME.fullmatch(index.name):
            what = "the name of an index has 3 to 255 of A-Z a-z 0-9 _ . -"
            yield document.fault(at, what)
        if index.local:
            yield from _local_faults(table, index, document, at)
        yield from _projection_faults(mapping, index, document, at)
        yield from _tombstone_faults(table, index, document, at)


def _key_faults(table: TableDesign, document: Document) -> Iterator[Fault]:
    types: dict[str, str] = {}
    places = [((*_TABLE, "key"), table.key)]
    places += [((*_TABLE, "indexes", index.name, "key"), index.attributes) for index in table.indexes]
    for at, attributes in places:
        for attribute in attributes:
            if attribute.name in table.reserved:
                yield document.fault(
                    at, f"'{attribute.name}' is written by migrator itself; choose another name"
                )
            if types.setdefault(attribute.name, attribute.type) != attribute.type:
                what = (
                    f"'{attribute.name}' is {types[attribute.name]} in another key but {attribute.type} here"
                )
                yield document.fault(at, f"{what}; an attribute has one type")
            if attribute.name.upper() in RESERVED_WORDS:
                what = f"'{attribute.name}' is a reserved word of DynamoDB; conditions must write it as #{attribute.name}"
                yield document.fault(at, what, warning=True)
        twice = [name for name, count in Counter(part.name for part in attributes).items() if count > 1]
        for name in twice:
            yield document.fault(at, f"'{name}' appears twice in one key")


def _type_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    for name, entity in mapping.entities.items():
        for item in entity.items:
            if item.type in OWN_TYPES:
                what = f"the type {item.type} is reserved for migrator; choose another name"
                yield document.fault(("entities", name, "items", item.type), what)


def _tombstone_faults(table: TableDesign, index: Index, document: Document, at: Path) -> Iterator[Fault]:
    """A tombstone only has the table's keys, so it is only in indexes without other keys."""
    if index.own_attributes(table) or index.projection == "all" or table.type_attribute in index.projection:
        return
    what = (
        f"deletes leave tombstones in this index, which only {table.type_attribute} distinguishes from items"
    )
    yield document.fault((*at, "project"), f"{what}; project it also", warning=True)


def _counts(table: TableDesign, document: Document) -> Iterator[Fault]:
    local = [index for index in table.indexes if index.local]
    others = len(table.indexes) - len(local)
    at = (*_TABLE, "indexes")
    if others > GLOBAL_INDEXES:
        what = f"{others} global indexes; a table has {GLOBAL_INDEXES} unless AWS raises the quota; overload some"
        yield document.fault(at, what)
    if len(local) > LOCAL_INDEXES:
        yield document.fault(at, f"{len(local)} local indexes; a table has {LOCAL_INDEXES} at most")
    projected = sum(len(index.projection) for index in table.indexes if isinstance(index.projection, tuple))
    if projected > PROJECTED_ATTRIBUTES:
        what = f"{projected} projected attributes over all indexes; DynamoDB allows {PROJECTED_ATTRIBUTES}; project all"
        yield document.fault(at, what)


def _local_faults(table: TableDesign, index: Index, document: Document, at: Path) -> Iterator[Fault]:
    if len(table.key) < 2:
        yield document.fault(
            at, "a table without a sort key cannot have a local index; write it without local"
        )
    elif tuple(index.partition) != table.key[:1] or len(index.sort) != 1 or index.sort[0] in table.key:
        what = f"the key of a local index is {table.key[0].name} and one attribute that is not a key of the table"
        yield document.fault((*at, "key"), what)


def _projection_faults(mapping: Mapping, index: Index, document: Document, at: Path) -> Iterator[Fault]:
    if not isinstance(index.projection, tuple):
        return
    names = _attributes(mapping)
    always = {attribute.name for attribute in (*mapping.table.key, *index.attributes)}
    for name in index.projection:
        if name in always:
            yield document.fault(
                (*at, "project"), f"'{name}' is a key, so it is always projected", warning=True
            )
        elif names is not None and name not in names:
            what = f"no item has an attribute '{name}'{did_you_mean(name, names)}"
            yield document.fault((*at, "project"), what, warning=True)


def _attributes(mapping: Mapping) -> set[str] | None:
    table = mapping.table
    of_indexes = {attribute.name for index in table.indexes for attribute in index.attributes}
    designs = ((entity, item) for entity in mapping.entities.values() for item in entity.items)
    of_items = [attribute_names(table, entity, item) for entity, item in designs]
    known = [names for names in of_items if names is not None]
    return set().union(table.reserved, of_indexes, *known) if len(known) == len(of_items) else None


# ──
# Whether the column named by an entity's `version` counts changes the way optimistic locking expects.


def version_faults(plan: EntityPlan, document: Document) -> Iterator[Fault]:
    """A fault if the version is not an integer column of the row itself, a warning if it can be missing."""
    version = plan.entity.version
    if version is None:
        return
    at = ("entities", plan.entity.written, "version")
    column = plan.table.column(version.column)
    if column is None or column.sql is not None or version.column in plan.transformed:
        what = f"'{version.column}' is not a column of {plan.table.name}; name the one that the application counts up"
        yield document.fault(at, what)
    elif not _is_whole(column):
        declared = f" ({column.declared})" if column.declared else ""
        what = f"'{version.column}' is {column.kind.name}{declared}; optimistic locking needs whole numbers"
        yield document.fault(at, f"{what}; name an integer column")
    elif column.nullable:
        what = f"'{version.column}' may be NULL, and an item without a version is treated as new"
        yield document.fault(at, f"{what}; declare the column NOT NULL", warning=True)


def _is_whole(column: Column) -> bool:
    return column.kind.name == "integer" or (column.kind.name == "number" and column.kind.scale == 0)


# ── All faults and warnings of a mapping against the schema of a source ──


class Checked(Struct, frozen=True, dict=True):
    """A mapping that fits its source, with plans in the file's order.

    `unproved`: item types per entity with keys that two rows might share; keys are claimed before writes.
    `transforms`: functions by module:function.
    `direct_plans`: of entities that the service writes past SQL; not among `plans`.
    """

    mapping: Mapping
    plans: tuple[EntityPlan, ...]
    unproved: dict[str, frozenset[str]]
    warnings: tuple[Fault, ...]
    transforms: Dict[str, Transform]
    direct_plans: tuple[EntityPlan, ...] = ()

    @cached_property
    def entities(self) -> tuple[CompiledEntity, ...]:
        """Entities compiled at first use: commands on tables and phases make no items."""
        return self._compiled(self.plans)

    @cached_property
    def direct(self) -> tuple[CompiledEntity, ...]:
        return self._compiled(self.direct_plans)

    @property
    def attributes(self) -> frozenset[str]:
        table = self.mapping.table
        designs = [(plan, design) for plan in self.read_plans for design in plan.entity.items]
        names = frozenset(
            name for plan, design in designs for name in parts_of(self.mapping, plan, design).names
        )
        return names | table.reserved

    @property
    def read_plans(self) -> tuple[EntityPlan, ...]:
        return (*self.plans, *self.direct_plans)

    @property
    def read(self) -> tuple[CompiledEntity, ...]:
        return (*self.entities, *self.direct)

    def named(self, names: Collection[str]) -> tuple[CompiledEntity, ...]:
        return self._compiled([plan for plan in self.read_plans if plan.entity.written in names])

    def besides(self, names: Collection[str]) -> list[EntityPlan]:
        return [plan for plan in self.read_plans if plan.entity.written not in names]

    def _compiled(self, plans: Sequence[EntityPlan]) -> tuple[CompiledEntity, ...]:
        transforms = self.transforms
        return tuple(
            compile_entity(self.mapping, plan, transforms.get(plan.entity.transform or "")) for plan in plans
        )


def check_mapping(
    parsed: ParsedMapping, facts: SchemaFacts, transforms: Dict[str, Transform] | None = None
) -> Checked:
    """Plan the mapping for the source. `transforms`: functions by module:function.

    Raises: MappingError with every fault of form and fit (warnings are in the result, or with the faults).
    """
    plans, faults = _plans(parsed, facts)
    all_faults = [*check_form(parsed, plans), *faults]
    for plan in plans:
        all_faults += _EntityCheck(parsed.mapping, plan, parsed.document).faults()
    if all(fault.warning for fault in all_faults):
        all_faults += collation_warnings(parsed.mapping, plans, parsed.document)
    unproved = unproved_items(plans, parsed.mapping.table)
    all_faults += _unproved_warnings(parsed, plans, unproved)
    ordered = sorted(dict.fromkeys(all_faults), key=lambda fault: (fault.line, fault.where))
    if any(not fault.warning for fault in ordered):
        raise MappingError(ordered)
    return Checked(parsed.mapping, tuple(plans), unproved, tuple(ordered), transforms or {})


def check_form(parsed: ParsedMapping, plans: Sequence[EntityPlan] = ()) -> tuple[Fault, ...]:
    mapping, document = parsed.mapping, parsed.document
    all_faults = [
        *parsed.faults,
        *table_faults(mapping, document),
        *(document_faults(mapping, document) if mapping.documents else ()),
        *pattern_faults(mapping, document, plans),
        *atomic_faults(mapping, document),
    ]
    return tuple(sorted(dict.fromkeys(all_faults), key=lambda fault: (fault.line, fault.where)))


def _plans(parsed: ParsedMapping, facts: SchemaFacts) -> tuple[list[EntityPlan], list[Fault]]:
    plans: list[EntityPlan] = []
    faults = [
        parsed.document.fault(
            ("source", "schemas", number),
            f"the source has no schema '{name}'{did_you_mean(name, facts.schemas)}",
        )
        for number, name in enumerate(parsed.mapping.schemas)
        if name not in facts.schemas
    ]
    if faults:
        return [], faults
    for entity in entities_of(parsed.mapping):
        plan, plan_faults = plan_entity(parsed.mapping, entity, facts, parsed.document)
        faults += plan_faults
        if plan is not None:
            plans.append(plan)
    return plans, faults


def _unproved_warnings(
    parsed: ParsedMapping, plans: list[EntityPlan], unproved: dict[str, frozenset[str]]
) -> Iterator[Fault]:
    named: set[tuple[str, str]] = set()
    faulty = tuple(fault.where for fault in parsed.faults)
    for (plan, item), (other_plan, other) in meeting_items(plans, parsed.mapping.table):
        other_key = f"{other_plan.entity.written}.{other.type}"
        what = f"its key can be equal to that of {other_key}; begin one of the two with a word of its own"
        yield parsed.document.fault(_key_at(plan.entity.written, item.type), what, warning=True)
        named |= {(plan.entity.name, item.type), (other_plan.entity.name, other.type)}
    for name, types in unproved.items():
        for type_ in sorted(types):
            at = _key_at(name.partition("@")[0], type_)
            is_faulty = any(f"{where}.".startswith(f"{where_of(at)}.") for where in faulty)
            if (name, type_) not in named and not is_faulty:
                what = "no constraint proves that this key is unique"
                why = next(
                    (why for plan in plans if plan.entity.name == name for why in equalled(plan, type_)), ""
                )
                claims = "backfill claims each key and detects a second row"
                yield parsed.document.fault(at, f"{what}{why}; {claims}", warning=True)


def _key_at(entity: str, type_: str) -> Path:
    return ("entities", entity, "items", type_, "key")


class _EntityCheck:
    def __init__(self, mapping: Mapping, plan: EntityPlan, document: Document) -> None:
        self.mapping = mapping
        self.plan = plan
        self.document = document
        self.at: Path = ("entities", plan.entity.written)

    def faults(self) -> Iterator[Fault]:
        yield from value_faults(self.plan, self.document)
        yield from self._kept()
        yield from key_faults(self.mapping, self.plan, self.document)
        yield from self._expiries()
        yield from self._unread_joins()
        if self.mapping.documents:
            yield from document_plan_faults(self.plan, self.document)
        yield from version_faults(self.plan, self.document)
        for column in self.plan.key:
            if what := row_key_fault(column):
                yield self.document.fault((*self.at, "key"), f"{what}; name other columns in key:")
        if why := key_doubt(self.plan):
            names = ", ".join(column.name for column in self.plan.key)
            what = f"no constraint proves that {names} identifies one row: {why}"
            ends = "two rows with one key stop a backfill, which checks for them before it starts"
            yield self.document.fault((*self.at, "key"), f"{what}; {ends}", warning=True)

    def _unread_joins(self) -> Iterator[Fault]:
        plan = self.plan
        lists = [
            ((*self.at, "collect", collection.collection.alias), collection.joins, collection.slots)
            for collection in plan.collections
        ]
        for at, joins, slots in ((self.at, plan.joins, plan.slots), *lists):
            read = {slot.alias for slot in slots} | {join.parent for join in joins}
            for join in joins:
                if join.alias not in read:
                    what = "no item uses this join, and each page pays for it; remove it"
                    yield self.document.fault((*at, "join", join.alias), what, warning=True)

    def _kept(self) -> Iterator[Fault]:
        table = self.mapping.table
        for item in self.plan.entity.items:
            at = (*self.at, "items", item.type, "keep")
            written = {**self.plan.entity.attributes, **item.attributes}
            taken = table.reserved | {key.name for key in keys_of(table, item)}
            for name in kept_columns(self.plan, item):
                mend = f"leave it out with keep: {{except: [{name}]}}"
                if name in taken and name not in item.attributes:
                    what = f"the column '{name}' has the name of an attribute written by migrator"
                    yield self.document.fault(at, f"{what}; {mend}, or rename the attribute in table")
                column = column_of(name, self.plan)
                if column is not None and name not in written:
                    if column.kind.name == "unknown":
                        yield self.document.fault(at, refused(name, column, kept=True))
                    elif warning := too_precise(name, column.kind, None):
                        yield self.document.fault(at, warning, warning=True)

    def _expiries(self) -> Iterator[Fault]:
        for item in self.plan.entity.items:
            if item.expiry is None:
                continue
            kind, at = kind_of(item.expiry.path, self.plan), (*self.at, "items", item.type, "ttl")
            what = "" if kind is None else f"'{item.expiry.path}' is {kind.name}"
            if kind is not None and kind.name != "integer" and (item.expiry.per_s > 1 or item.expiry.zero):
                yield self.document.fault(at, f"{what}; unit: and zero: need whole numbers")
            if kind is not None and kind.name not in ("timestamp", "date", "integer"):
                yield self.document.fault(
                    at, f"{what}; a TTL comes from a timestamp, a date or epoch seconds"
                )
