"""rows_for(): the rows that items were made of, by the mapping read backwards; and the columns that items lose."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import Struct

from migrator.mapping.check.values import meeting_items
from migrator.mapping.inverse.given import (
    Contents,
    Given,
    Lack,
    Scope,
    Where,
    always,
    decided_by,
    filled_by,
    given_by,
    given_by_each,
    linked,
    lists_of,
)
from migrator.mapping.inverse.values import Cause, Loss, attribute_reader, undone
from migrator.mapping.items.filters import FilterContext
from migrator.mapping.items.program import base_key
from migrator.mapping.items.templates import name_in_template
from migrator.mapping.language.document import text_of
from migrator.mapping.model.facts import Column, EntityPlan, TableFacts
from migrator.mapping.model.mapping import ItemDesign, Mapping, Ref
from migrator.mapping.model.table import Item, TableDesign
from migrator.runtime.errors import RowError

Row = dict[str, Any]
"""A row by written column names, each value in the decoded form of the heart."""


class ChildList(Struct, frozen=True):
    """The children in a list of an item: the child table, what each map gives, and the root's columns that they link to."""

    where: Where
    table: TableFacts
    given: tuple[Given, ...]
    lacks: tuple[Lack, ...]
    link: dict[str, str]


class DesignInverse(Struct, frozen=True, dict=True):
    """An item design read backwards. `present`: every row has such an item. `of`: the column whose value decides it alone,
    and `otherwise` what that is where there is no such item."""

    plan: EntityPlan
    design: ItemDesign
    keys: tuple[tuple[str, re.Pattern[str]], ...]
    given: tuple[Given, ...]
    lacks: tuple[Lack, ...]
    lists: tuple[ChildList, ...]
    present: bool
    of: str
    otherwise: bool | None
    constants: Row

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(one.column for one in self.given) | self.constants.keys()

    @property
    def is_keyed(self) -> bool:
        """Whether its items say of which row they are."""
        return {column.name for column in self.plan.key} <= self.columns

    def takes(self, item: Item, table: TableDesign) -> bool:
        return item.get(table.type_attribute) == self.design.type and all(
            not isinstance(item.get(name), str) or pattern.fullmatch(str(item[name]))
            for name, pattern in self.keys
        )

    def told(self, whose: frozenset[str]) -> frozenset[str]:
        """Of the columns that the items of this design give, those that are known of every row."""
        if self.present:
            return whose & self.columns
        return whose & {self.of} if self.of in self.columns else frozenset()


def read_backwards(mapping: Mapping, scope: Scope, design: ItemDesign) -> DesignInverse:
    plan = scope.plan
    found = list(given_by(mapping, scope, design))
    of, value = decided_by(design.when, scope) or ("", None)
    return DesignInverse(
        plan,
        design,
        tuple((key.name, _literals(key.template.parts)) for key in base_key(mapping.table, design)),
        tuple(one for one in found if isinstance(one, Given)),
        tuple(one for one in found if isinstance(one, Lack)),
        tuple(_lists(scope, design)),
        design.expiry is None and always(design.when, plan),
        of if design.expiry is None else "",
        None if value is None else not value,
        _constants(plan) | ({of: value} if value is not None else {}),
    )


def _literals(parts: Sequence[str | Ref]) -> re.Pattern[str]:
    texts = (re.escape(part) if isinstance(part, str) else ".*" for part in parts)
    return re.compile("".join(texts), re.DOTALL)


def _lists(scope: Scope, design: ItemDesign) -> Iterator[ChildList]:
    plans = {one.collection.alias: one for one in scope.plan.collections}
    for where, each in lists_of(scope.plan, design):
        plan = plans[each.collection]
        link = linked(scope.plan.table, plan) if plan.collection.kind == "list" else None
        if link is not None and plan.collection.first is None:
            found = list(given_by_each(Scope(scope.plan, scope.around, plan), each))
            given = tuple(one for one in found if isinstance(one, Given))
            yield ChildList(
                where, plan.table, given, tuple(one for one in found if isinstance(one, Lack)), link
            )


def _constants(plan: EntityPlan) -> Row:
    """Columns of which `where` allows one value alone."""
    row: Row = {}
    for column, allowed in plan.where:
        if allowed is None or len(allowed) != 1 or column.alike or column.sql:
            continue
        if allowed[0] is None:
            row[column.name] = None
            continue
        of_text = undone(
            Ref((column.name,)),
            column.kind,
            FilterContext(),
            nullable=False,
            loosely_typed=plan.loosely_typed,
        ).of_text
        readings = [attribute_reader(column.kind), *([] if isinstance(of_text, Loss) else [of_text])]
        for read in readings:
            try:
                row[column.name] = read(allowed[0])
                break
            except (ValueError, TypeError):
                continue
    return row


class LostColumn(Struct, frozen=True):
    """A column of which items do not tell the value. `needed`: it is NOT NULL and has no default."""

    column: str
    cause: Cause
    why: str
    needed: bool


class TableInverse(Struct, frozen=True):
    """What the items tell of the rows of one table.

    `entities`: those that hold its rows, or the list with them. `rows_lost`: why some rows have none ('' where each has).
    `mend`: the line of the mapping that would keep what is lost, and `at` where it belongs.
    `left_out`: there are rows that the entity's `where` leaves out, of which no item tells anything.
    """

    table: str
    entities: tuple[str, ...]
    lost: tuple[LostColumn, ...]
    rows_lost: str = ""
    mend: str = ""
    at: tuple[str | int, ...] = ()
    left_out: bool = False

    @property
    def invertible(self) -> bool:
        return not self.lost and not self.rows_lost


def types_of_two_tables(plans: Sequence[EntityPlan], table: TableDesign) -> set[str]:
    """Types that items of two tables have, and whose keys do not tell which."""
    return {
        one.type
        for (plan, one), (other_plan, other) in meeting_items(plans, table)
        if one.type == other.type and plan.table != other_plan.table
    }


# ── What is lost of a table ──


def stored_columns(table: TableFacts) -> list[Column]:
    """The columns that are written: none that the mapping or the source computes, but for those of its key."""
    return [
        column
        for column in table.columns
        if not column.sql and (not column.generated or column.name in table.primary_key)
    ]


class _Carrier(Struct, frozen=True):
    """Where rows of a table stand: the designs of one entity's items, or a list in one of them (`child`)."""

    entity: str
    told: frozenset[str]
    lacks: tuple[Lack, ...]
    kept_elsewhere: frozenset[str]
    whole: bool
    rows_lost: str
    at: tuple[str | int, ...]
    mend_of: Any


def table_inverse(
    name: str, designs: Sequence[DesignInverse], mixed: Collection[str], views: Collection[str]
) -> TableInverse:
    facts = next(
        table
        for one in designs
        for table in (one.plan.table, *(child.table for child in one.lists))
        if table.name == name
    )
    carriers = [*_root_carriers(facts, designs), *_list_carriers(facts, designs)]
    entities = tuple(dict.fromkeys(one.entity for one in carriers))
    if facts.real in views:
        return TableInverse(name, entities, (), "it is a view, which cannot be written to", "")
    whole = [one for one in carriers if one.whole and not one.rows_lost]
    counted = _keyed(whole or [one for one in carriers if not one.rows_lost] or carriers, facts.primary_key)
    # What all of them have comes together by the row's key; without one, and where not each row is in each, nothing does.
    together = whole and facts.primary_key and counted[0].told.issuperset(facts.primary_key)
    told = (
        frozenset.union(*(one.told for one in counted))
        if together
        else frozenset.intersection(*(one.told for one in counted))
    )
    lost = tuple(_lost(column, carriers) for column in stored_columns(facts) if column.name not in told)
    types = sorted({one.design.type for one in designs if one.plan.table.name == name} & set(mixed))
    rows_lost = counted[0].rows_lost
    if types:
        rows_lost = f"items of type {types[0]} may belong to another table: their keys are the same"
    # What has no form in an item cannot be kept, whatever the mapping says.
    kept = [
        one.column for one in lost if (column := facts.column(one.column)) and column.kind.name != "unknown"
    ]
    mend = _mend(counted[0], kept) if kept and not rows_lost else ""
    if rows_lost and not types:
        mend = "an item without when: and ttl:, so that every row has one"
    return TableInverse(
        name, entities, lost, rows_lost, mend, counted[0].at, left_out=not whole and not rows_lost
    )


def _keyed(carriers: Sequence[_Carrier], key: Sequence[str]) -> Sequence[_Carrier]:
    """Those that say of which row what they tell is; all, where none does."""
    return [one for one in carriers if key and one.told.issuperset(key)] or carriers


def _root_carriers(table: TableFacts, designs: Sequence[DesignInverse]) -> Iterator[_Carrier]:
    for entity in dict.fromkeys(one.plan.entity.name for one in designs if one.plan.table.name == table.name):
        yield _root_carrier([one for one in designs if one.plan.entity.name == entity])


def _root_carrier(designs: Sequence[DesignInverse]) -> _Carrier:
    plan = designs[0].plan
    present = sorted((one for one in designs if one.present), key=lambda one: not one.is_keyed)
    keyed = [one for one in designs if one.is_keyed]
    told = frozenset(designs[0].constants)
    for one in [*present[:1], *keyed] if present else keyed or designs[:1]:
        told |= one.told(one.columns) if present else one.columns
    at = present[0] if present else designs[0]
    return _Carrier(
        plan.entity.name,
        told,
        tuple(lack for one in designs for lack in one.lacks),
        frozenset(column for one in designs for column in one.columns),
        not plan.where,
        "" if present else _why_no_item(designs),
        ("entities", plan.entity.written, "items", at.design.type),
        at.design,
    )


def _why_no_item(designs: Sequence[DesignInverse]) -> str:
    if any(one.design.expiry is not None for one in designs):
        return "a row whose ttl has passed has no item"
    return "a row for which no when: holds has no item"


def _list_carriers(table: TableFacts, designs: Sequence[DesignInverse]) -> Iterator[_Carrier]:
    for one in designs:
        for child in one.lists:
            if child.table.name == table.name:
                links = {ours for ours, theirs in child.link.items() if theirs in one.columns}
                told = frozenset(given.column for given in child.given) | links
                whole = one.present and not one.plan.where
                at = (
                    "entities",
                    one.plan.entity.written,
                    "items",
                    one.design.type,
                    "attributes",
                    *child.where,
                )
                why = "" if one.present else _why_no_item([one])
                yield _Carrier(one.plan.entity.name, told, child.lacks, told, whole, why, at, child)


def _lost(column: Column, carriers: Sequence[_Carrier]) -> LostColumn:
    losses = [lack.loss for one in carriers for lack in one.lacks if lack.column == column.name]
    elsewhere = any(column.name in one.kept_elsewhere for one in carriers)
    # Where one item has the whole value beside another's, that is the reason: what another item makes of it is none.
    absent = Loss("absent", "no item has it")
    loss = min(losses, key=lambda one: one.cause != "mixed", default=absent)
    if elsewhere and (not losses or loss.cause == "sparse"):
        loss = Loss("keyless", "it is in items that not every row has, or that do not identify their row")
    return LostColumn(column.name, loss.cause, loss.why, not column.nullable and not column.default)


def _mend(carrier: _Carrier, columns: Sequence[str]) -> str:
    design = carrier.mend_of
    # A value with braces is a template, so only keep: takes a column with braces in its name.
    taken_by_keep = (
        () if isinstance(design, ChildList) else [n for n in columns if n not in design.attributes]
    )
    lost = [name for name in columns if not {"{", "}"} & {*name} or name in taken_by_keep]
    if isinstance(design, ChildList):
        return ", ".join(f"{text_of(name)}: {text_of(name_in_template(name))}" for name in lost)
    taken = [name for name in lost if name in design.attributes]
    kept = [name for name in lost if name not in taken]
    pairs = ", ".join(f"{text_of(f'{name}_of_row')}: {text_of(name_in_template(name))}" for name in taken)
    words = [f"attributes: {{{pairs}}}"] if taken else []
    if kept and design.keep == "all":
        left = [name for name in design.keep_except if name not in kept]
        words.insert(0, f"keep: {{except: {text_of(left)}}}" if left else "keep: all")
    elif kept:
        before = design.keep if isinstance(design.keep, tuple) else ()
        words.insert(0, f"keep: {text_of([*before, *kept])}")
    return " and ".join(words)


@dataclass(frozen=True)
class Inverse:
    """A mapping read backwards over its plans. Made once by `compile_inverse`."""

    table: TableDesign
    tables: tuple[TableInverse, ...]
    designs: tuple[DesignInverse, ...] = field(repr=False)

    @cached_property
    def recovered(self) -> dict[str, frozenset[str]]:
        """By table the columns that come back, of tables whose rows items name."""
        facts = {plan.table.name: plan.table for plan in (one.plan for one in self.designs)}
        facts |= {one.table.name: one.table for design in self.designs for one in design.lists}
        lost = {one.table: {column.column for column in one.lost} for one in self.tables}
        return {
            name: frozenset(
                column.name for column in stored_columns(facts[name]) if column.name not in lost[name]
            )
            for name in lost
        }

    @cached_property
    def sparse(self) -> dict[str, Row]:
        """By table, and column that one item alone has, its value in a row without that item."""
        return {
            name: {
                one.of: one.otherwise
                for one in self.designs
                if one.plan.table.name == name and one.of and not one.present
            }
            for name in self.recovered
        }

    @cached_property
    def with_lost_rows(self) -> frozenset[str]:
        return frozenset(one.table for one in self.tables if one.rows_lost)


def compile_inverse(mapping: Mapping, plans: Sequence[EntityPlan], views: Collection[str] = ()) -> Inverse:
    """What items of the mapping say of the source's rows. `views`: real names of what is no table. Pure."""
    around = FilterContext(mapping.table.separator, mapping.maps, mapping.timezone)
    designs = tuple(
        read_backwards(mapping, Scope(plan, around, filled=filled_by(plan, item)), item)
        for plan in plans
        for item in plan.entity.items
    )
    mixed = types_of_two_tables(plans, mapping.table)
    names = dict.fromkeys(
        name for one in designs for name in (one.plan.table.name, *(child.table.name for child in one.lists))
    )
    tables = tuple(table_inverse(name, designs, mixed, views) for name in names)
    return Inverse(mapping.table, tables, designs)


# ── Items → rows ──


def _no_contents(_: str) -> bytes:
    raise KeyError


@dataclass
class Told:
    """What one item says of a row. `types`: of the items that said it; `is_whole`: one of those that every row has."""

    row: Row = field(default_factory=dict)
    types: tuple[str, ...] = ()
    is_whole: bool = False


RowKey = tuple[str, tuple[Any, ...]]
"""A row: its table by written name, and the values of its key."""


def rows_for(
    inverse: Inverse, items: Iterable[Item], contents: Contents = _no_contents
) -> dict[str, list[Row]]:
    """The rows that the items were made of, by table, with the columns that come back (`inverse.recovered`).

    `items`: all items of each row that has one among them, of any number of rows, in any order; `contents`: objects in S3.
    Raises: RowError for an item that no row makes, and where two items say different things of one row.
    """
    told: dict[str, dict[tuple[Any, ...], list[Told]]] = {}
    for item in items:
        for (table, key), one in told_by(inverse, item, contents).items():
            told.setdefault(table, {}).setdefault(key, []).append(one)
    return {table: [row_of(inverse, table, of) for of in rows.values()] for table, rows in told.items()}


def row_of(inverse: Inverse, table: str, told: Iterable[Told]) -> Row:
    """The row of which all its items say this. Raises: RowError where they differ, or one that every row has is missing."""
    row: Row = {}
    types: list[str] = []
    is_whole = table in inverse.with_lost_rows
    for one in told:
        try:
            _merge(row, one.row)
        except ValueError as error:
            raise RowError(f"an item of type {', '.join(one.types)}: {error}") from None
        types += one.types
        is_whole |= one.is_whole
    sparse = inverse.sparse[table]
    if not is_whole or not inverse.recovered[table] <= row.keys() | sparse.keys():
        what = f"a row of {table} has only items of type {', '.join(sorted(set(types)))}"
        raise RowError(f"{what}; an item that every row has is missing")
    return {column: row.get(column, sparse.get(column)) for column in inverse.recovered[table]}


def told_by(inverse: Inverse, item: Item, contents: Contents = _no_contents) -> dict[RowKey, Told]:
    """What the item says of each row of which it says something. Raises: RowError for an item that no row makes."""
    told: dict[RowKey, Told] = {}
    if inverse.table.is_hidden(item):
        return told
    type_ = inverse.table.type_of(item)
    taking = [one for one in inverse.designs if one.takes(item, inverse.table)]
    if not taking:
        raise RowError(f"an item of type {type_} that no entity makes, or with a key of another form")
    for design in taking:
        try:
            row = {one.column: one.read(item, contents) for one in design.given} | design.constants
            if design.is_keyed:
                key = [column.name for column in design.plan.key]
                _tell(inverse, told, design.plan.table, key, row, type_, whole=design.present)
            for child in design.lists:
                for fields in _children(child, item, row, contents):
                    _tell(inverse, told, child.table, child.table.primary_key, fields, type_, whole=True)
        except ValueError as error:
            raise RowError(f"an item of type {type_}: {error}") from None
    return told


def _children(child: ChildList, item: Item, root: Row, contents: Contents) -> Iterator[Row]:
    value: Any = item
    for step in child.where:
        value = value.get(step) if isinstance(value, dict) else None
    if not isinstance(value, list) or not set(child.link.values()) <= root.keys():
        return
    for fields in value:
        row = {one.column: one.read(fields, contents) for one in child.given}
        row |= {ours: root[theirs] for ours, theirs in child.link.items()}
        if child.table.primary_key and set(child.table.primary_key) <= row.keys():
            yield row


def _tell(
    inverse: Inverse,
    told: dict[RowKey, Told],
    table: TableFacts,
    key: Sequence[str],
    row: Row,
    type_: str,
    *,
    whole: bool,
) -> None:
    try:
        one = told.setdefault((table.name, tuple(row[name] for name in key)), Told(types=(type_,)))
    except TypeError:
        raise ValueError("its row's key is not a single value") from None
    recovered = inverse.recovered[table.name]
    _merge(one.row, row, recovered)
    one.is_whole |= whole


def _merge(row: Row, more: Row, recovered: Collection[str] | None = None) -> None:
    for column, value in more.items():
        if column in row and not is_same(row[column], value):
            raise ValueError(f"column {column} has a value that differs from another item of its row")
        if recovered is None or column in recovered:
            row[column] = value


def is_same(one: Any, other: Any) -> bool:
    """Whether two decoded values are one: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
