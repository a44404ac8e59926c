"""Changes between two revisions of a mapping, conflicts between them as faults of their files, and digests of a mapping's
meaning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from migrator.mapping.check.values import Design, is_one_row, keys_may_meet
from migrator.mapping.difference.meaning import (
    BASE_KEY,
    ENTRY,
    JUDGED,
    KEPT,
    ROW_KEY,
    TABLE,
    WHEN,
    EntityMeaning,
    Meant,
    Parts,
    PatternDifference,
    asks_for,
    meanings,
    pattern_differences,
    pattern_form,
    reached,
)
from migrator.mapping.items.changes import captured_tables
from migrator.mapping.language.document import Document, Path
from migrator.mapping.language.plan import entities_of
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import Entity, Pattern
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.runtime.errors import Fault

Effect = Literal["new", "gone", "moved", "changed"]
Way = Literal["add", "remove", "replace", "alter", "never"]
"""The change of a part of the table: `replace`, by an index of another name; `never`, impossible in an existing table."""


class PlannedRevision(Struct, frozen=True):
    mapping: MappingModel
    plans: Sequence[EntityPlan] = ()


class ChangedPart(Struct, frozen=True):
    """`before`: '' for a new part.
    `after`: '' for a removed one.
    """

    name: str
    before: str
    after: str


class TypeDifference(Struct, frozen=True):
    """`moved`: items get other base keys, and tombstones stay at the old ones.
    `some`: a condition changed for some rows.
    """

    type: str
    effect: Effect
    parts: tuple[ChangedPart, ...] = ()

    @property
    def some(self) -> bool:
        return any(part.name == WHEN for part in self.parts)

    @property
    def entries(self) -> frozenset[str]:
        named = (part.name.removeprefix(ENTRY) for part in self.parts if part.name.startswith(ENTRY))
        return frozenset(named)


class EntityDifference(Struct, frozen=True):
    """`rows`: changes of its set of rows.
    `name`: with @schema, if the mapping reads several.
    """

    name: str
    written: str
    effect: Effect
    rows: tuple[ChangedPart, ...]
    types: tuple[TypeDifference, ...]


class CapturedDifference(Struct, frozen=True):
    """A table with changed triggers. `effect`: capture starts, stops or changes."""

    table: str
    effect: Effect
    columns: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class SchemaDifference(Struct, frozen=True):
    """Columns by entity that items now use, or no longer use (`dropped`). `captured`: None without a source."""

    columns: Mapping[str, tuple[str, ...]]
    dropped: Mapping[str, tuple[str, ...]]
    captured: tuple[CapturedDifference, ...] | None

    @property
    def needs_install(self) -> bool | None:
        if self.captured is None:
            return None if self.columns or self.dropped else False
        return bool(self.captured)


class TableDifference(Struct, frozen=True):
    """`index`: '' for the table itself."""

    part: str
    before: str
    after: str
    way: Way
    index: str = ""


class MappingDifference(Struct, frozen=True):
    """Empty if both revisions make the same items and ask the same questions of them.

    `renamed`: new entities, by the old name for the same rows with the same base keys.
    """

    entities: tuple[EntityDifference, ...]
    patterns: tuple[PatternDifference, ...]
    schema: SchemaDifference
    table: tuple[TableDifference, ...]
    renamed: Mapping[str, str] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.entities or self.patterns or self.table or self.schema.captured)


def difference(old: PlannedRevision, new: PlannedRevision) -> MappingDifference:
    before, after = meanings(old.mapping, old.plans), meanings(new.mapping, new.plans)
    table = tuple(_table(old.mapping.table, new.mapping.table))
    entities = tuple(
        found
        for name in dict.fromkeys([*after, *before])
        if (found := _entity(before.get(name), after.get(name))) is not None
    )
    indexes = frozenset(part.index for part in table if part.index)
    return MappingDifference(
        entities,
        tuple(pattern_differences(old.mapping, new.mapping, _changed_parts(entities), indexes)),
        _schema(before, after, old.plans, new.plans),
        table,
        dict(_renamed(before, after)),
    )


# ── entities and their items ──


def _renamed(
    before: Mapping[str, EntityMeaning], after: Mapping[str, EntityMeaning]
) -> Iterator[tuple[str, str]]:
    gone = {_identity(entity): name for name, entity in before.items() if name not in after}
    for name, entity in after.items():
        if name not in before and (former := gone.get(_identity(entity))):
            yield name, former


def _identity(entity: EntityMeaning) -> tuple[frozenset[tuple[str, Meant]], frozenset[Meant]]:
    return frozenset(entity.rows.items()), frozenset(parts[BASE_KEY] for parts in entity.types.values())


def _entity(before: EntityMeaning | None, after: EntityMeaning | None) -> EntityDifference | None:
    there = after or before
    assert there is not None
    if before is None or after is None:
        effect: Effect = "new" if before is None else "gone"
        types = tuple(TypeDifference(type_, effect) for type_ in there.types)
        return EntityDifference(there.name, there.written, effect, (), types)
    rows = tuple(_parts(before.rows, after.rows))
    types = tuple(
        found
        for type_ in dict.fromkeys([*after.types, *before.types])
        if (found := _type(type_, before.types.get(type_), after.types.get(type_), rows)) is not None
    )
    return EntityDifference(there.name, there.written, "changed", rows, types) if types else None


def _type(
    type_: str, before: Parts | None, after: Parts | None, rows: tuple[ChangedPart, ...]
) -> TypeDifference | None:
    if before is None or after is None:
        return TypeDifference(type_, "new" if before is None else "gone")
    parts = tuple(_parts(*_without_renamed(before, after)))
    if not parts and not rows:
        return None
    moved = any(part.name == BASE_KEY for part in parts)
    return TypeDifference(type_, "moved" if moved else "changed", parts)


def _without_renamed(before: Parts, after: Parts) -> tuple[Parts, Parts]:
    sides = [
        {name: meant for name, meant in parts.items() if name.startswith(ENTRY) and name not in others}
        for parts, others in ((before, after), (after, before))
    ]
    same = set(sides[0].values()) & set(sides[1].values())
    renamed = {name for side in sides for name, meant in side.items() if meant in same}
    first, second = ({n: m for n, m in parts.items() if n not in renamed} for parts in (before, after))
    return first, second


def _parts(before: Parts, after: Parts) -> Iterator[ChangedPart]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old != new:
            shown = old is not None and new is not None and old.shown == new.shown
            yield ChangedPart(name, _shown(old, whole=shown), _shown(new, whole=shown))


def _shown(meant: Meant | None, *, whole: bool) -> str:
    return "" if meant is None else meant.form if whole else meant.shown


def _changed_parts(entities: Sequence[EntityDifference]) -> dict[tuple[str, str], frozenset[str] | None]:
    changed: dict[tuple[str, str], frozenset[str] | None] = {}
    for entity in entities:
        for one in entity.types:
            whole = entity.rows or one.effect in ("new", "gone") or one.some
            key, names = (entity.written, one.type), frozenset(part.name for part in one.parts)
            before = changed.get(key, frozenset())
            changed[key] = None if whole or before is None or KEPT in names else before | names
    return changed


# ── columns that are read, and tables that are captured ──


def _schema(
    before: Mapping[str, EntityMeaning],
    after: Mapping[str, EntityMeaning],
    old_plans: Sequence[EntityPlan],
    new_plans: Sequence[EntityPlan],
) -> SchemaDifference:
    captured = tuple(_captured(old_plans, new_plans)) if old_plans or new_plans else None
    return SchemaDifference(_columns(before, after), _columns(after, before), captured)


def _columns(
    before: Mapping[str, EntityMeaning], after: Mapping[str, EntityMeaning]
) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, entity in after.items():
        known = before[name].reads if name in before else frozenset()
        columns = tuple(sorted({meant.shown for meant in entity.reads - known}))
        if columns:
            found[name] = columns
    return found


def _captured(old: Sequence[EntityPlan], new: Sequence[EntityPlan]) -> Iterator[CapturedDifference]:
    before, after = captured_tables(old), captured_tables(new)
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            yield CapturedDifference(name, "new" if name in after else "gone")
            continue
        columns = [
            {*one.columns, *(one.watched if one.watched is not None else (_EVERY,))}
            for one in (before[name], after[name])
        ]
        if columns[0] != columns[1] or set(before[name].columns) != set(after[name].columns):
            came, went = sorted(columns[1] - columns[0]), sorted(columns[0] - columns[1])
            yield CapturedDifference(name, "changed", tuple(came), tuple(went))


_EVERY = "every column"


# ── the table and its indexes ──


def _table(old: TableDesign, new: TableDesign) -> Iterator[TableDifference]:
    whole: tuple[tuple[str, str, str, Way], ...] = (
        ("key", _key(old.key), _key(new.key), "never"),
        ("type attribute", old.type_attribute, new.type_attribute, "never"),
        ("own attributes", " ".join(old.own_attributes), " ".join(new.own_attributes), "never"),
        ("name", old.name, new.name, "never"),
        ("ttl", old.ttl or "", new.ttl or "", "alter"),
    )
    yield from (TableDifference(*part) for part in whole if part[1] != part[2])
    indexes = [{index.name: index for index in table.indexes} for table in (old, new)]
    for name in dict.fromkeys([*indexes[1], *indexes[0]]):
        yield from _index(name, indexes[0].get(name), indexes[1].get(name))


def _index(name: str, old: Index | None, new: Index | None) -> Iterator[TableDifference]:
    before, after = ("" if index is None else index_text(index) for index in (old, new))
    if before == after:
        return
    local = any(index is not None and index.local for index in (old, new))
    way: Way = "never" if local else "add" if old is None else "remove" if new is None else "replace"
    yield TableDifference(f"index {name}", before, after, way, name)


def index_text(index: Index) -> str:
    shown = index.projection
    projected = (
        ", ".join(sorted(shown)) if isinstance(shown, tuple) else {"all": "all", "keys": "keys only"}[shown]
    )
    local = "local, " if index.local else ""
    return f"{local}{_key(index.partition)} + {_key(index.sort) or 'no sort key'}, projects {projected}"


def _key(attributes: Sequence[KeyAttribute]) -> str:
    return ", ".join(
        attribute.name if attribute.type == "text" else f"{attribute.name} ({attribute.type})"
        for attribute in attributes
    )


def refusals(
    old: PlannedRevision, new: PlannedRevision, found: MappingDifference, document: Document
) -> list[Fault]:
    """Why writers of both revisions cannot share a table; warnings if only a source, or a person, can decide.

    `document`: of the new mapping's file.
    """
    keys = _of_keys(old, new, found, document)
    faults = [*_of_table(found, document), *_of_rows(found, document), *keys]
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.warning, fault.line, fault.where))


# ── the table, and the identity of rows ──

_NEVER = {
    "name": "another table needs another job: keep the name, or start with a new job",
    "key": "the key of a table cannot be altered; start again with another table",
    "type attribute": "items of both revisions could not be distinguished from migrator's own; keep its name",
    "own attributes": "each revision would overwrite the other's metadata of an item; keep their names",
}
_LOCAL = (
    "a local index can only be created with its table; create a global one, or start again with another table"
)
_REPLACE = "neither the key nor the projection of an index can be altered; give the new index another name"


def _of_table(found: MappingDifference, document: Document) -> Iterator[Fault]:
    for part in found.table:
        before, after = part.before or "not there", part.after or "not there"
        what = f"{part.part} is {before} in the old revision and {after} in the new one"
        at = ("indexes", part.index) if part.index else (_WORDS.get(part.part, part.part),)
        if part.way == "never":
            why = _LOCAL if part.index else _NEVER[part.part]
            yield document.fault(("table", *at), f"{what}: {why}", warning=part.part == "name")
        elif part.way == "replace":
            yield document.fault(("table", *at), f"{what}: {_REPLACE}")


_WORDS = {"type attribute": "type", "own attributes": "own"}


def _of_rows(found: MappingDifference, document: Document) -> Iterator[Fault]:
    for entity in found.entities:
        at = ("entities", entity.written)
        for part in entity.rows:
            if part.name == ROW_KEY:
                what = f"its rows are identified by {part.before} in the old revision and by {part.after} in the new one"
                yield document.fault(
                    (*at, "key"), f"{what}: _src would identify other rows; give the entity another name"
                )
            elif part.name == TABLE:
                what = f"its rows are of {part.before} in the old revision and of {part.after} in the new one"
                yield document.fault(
                    (*at, "table"),
                    f"{what}: both must have the same rows while both are in use",
                    warning=True,
                )
        if former := found.renamed.get(entity.name):
            what = f"it has the rows and keys of {former} in the old revision"
            why = f"only `migrator migrate-mapping JOB` gives the items of {former} the new name"
            yield document.fault(at, f"{what}: {why}", warning=True)


# ── keys that both revisions could claim, for different rows ──


def _of_keys(
    old: PlannedRevision, new: PlannedRevision, found: MappingDifference, document: Document
) -> Iterator[Fault]:
    table = new.mapping.table
    planned = bool(old.plans or new.plans)
    for old_entity, former in _of_one_alone(old, new):
        for entity, design in _of_one_alone(new, old):
            if not keys_may_meet(former, design, table):
                continue
            if old_entity.name == entity.name and is_one_row(former, design, table):
                continue
            if old_entity.name == found.renamed.get(entity.name):
                continue
            where: Path = ("entities", entity.written, "items", design[1].type, "key")
            other = f"{old_entity.written}.{former[1].type}"
            what = f"its key can be equal to one that {other} has in the old revision, of another row"
            mend = (
                "begin it with a unique word"
                if planned
                else "pass --source, which may prove that they are never equal"
            )
            yield document.fault(where, f"{what}; {mend}", warning=not planned)


def _of_one_alone(revision: PlannedRevision, other: PlannedRevision) -> Iterator[tuple[Entity, Design]]:
    known = meanings(other.mapping, other.plans)
    here = meanings(revision.mapping, revision.plans)
    plans = {plan.entity.name: plan for plan in revision.plans}
    for entity in entities_of(revision.mapping):
        there = known.get(entity.name)
        keys = set() if there is None else {parts[BASE_KEY] for parts in there.types.values()}
        for design in entity.items:
            if here[entity.name].types[design.type][BASE_KEY] not in keys:
                yield entity, (plans.get(entity.name), design)


# ── Digests of a mapping's meaning: of each pattern's answer, and of all its items ──


_WHOLE = (WHEN, KEPT)
"""Parts of an item type with which any of its items, or any attribute, may change."""


def answer_digests(mapping: MappingModel, plans: Sequence[EntityPlan]) -> dict[str, str]:
    """A digest per pattern (32 hex digits), which differs if `mapping diff` finds that its answer can change.

    `plans`: of all entities, to include the source's columns; none: by the mapping alone.
    """
    meant = meanings(mapping, plans)
    return {name: _digest(mapping, meant, pattern) for name, pattern in mapping.patterns.items()}


def items_digest(mapping: MappingModel, plans: Sequence[EntityPlan]) -> str:
    """Equal if `mapping diff` finds no difference except in patterns."""
    table, meant = mapping.table, meanings(mapping, plans)
    design = [
        [table.name, table.type_attribute, table.ttl, table.own_attributes],
        [[attribute.name, attribute.type] for attribute in table.key],
        sorted([index.name, index_text(index)] for index in table.indexes),
    ]
    items = sorted(
        [entity.name, type_, _forms(entity.rows), _forms(parts)]
        for entity in meant.values()
        for type_, parts in entity.types.items()
    )
    # The code of a transform is part of the mapping's revision, and of nothing else.
    code = mapping.revision if any(entity.transform for entity in mapping.entities.values()) else ""
    return _digest_of([design, items, code])


def _digest(mapping: MappingModel, meant: dict[str, EntityMeaning], pattern: Pattern) -> str:
    form = {name: value for name, value in pattern_form(mapping, pattern).items() if name not in JUDGED}
    indexes = [index_text(index) for index in mapping.table.indexes if index.name == pattern.index]
    return _digest_of([form, indexes, sorted(_items(mapping, meant, pattern))])


def _digest_of(values: object) -> str:
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _items(
    mapping: MappingModel, meant: dict[str, EntityMeaning], pattern: Pattern
) -> Iterator[list[object]]:
    types = reached(mapping, pattern)
    for entity in meant.values():
        for type_, parts in entity.types.items():
            if (entity.written, type_) in types:
                yield [entity.name, type_, _forms(entity.rows), _forms(_asked(pattern, parts))]


def _asked(pattern: Pattern, parts: Parts) -> Parts:
    return {
        name: meant
        for (name, meant), asks in zip(parts.items(), asks_for(pattern, parts), strict=True)
        if asks or name in _WHOLE
    }


def _forms(parts: Parts) -> list[tuple[str, str]]:
    return sorted((name, meant.form) for name, meant in parts.items())
