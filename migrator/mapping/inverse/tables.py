"""Whether the items of a mapping tell all of a table's rows: the columns that are lost, why, and what would keep them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from msgspec import Struct

from migrator.mapping.check.values import meeting_items
from migrator.mapping.inverse.designs import ChildList, DesignInverse
from migrator.mapping.inverse.given import Lack
from migrator.mapping.inverse.values import Cause, Loss
from migrator.mapping.items.templates import name_in_template
from migrator.mapping.language.document import text_of
from migrator.mapping.model.facts import Column, EntityPlan, TableFacts
from migrator.mapping.model.table import TableDesign


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
