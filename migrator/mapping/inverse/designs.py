"""The items of one design read backwards: which columns of its rows they give, and which rows of lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from migrator.mapping.inverse.filters import undone
from migrator.mapping.inverse.given import Given, Lack, Where, given_by, given_by_each, lists_of
from migrator.mapping.inverse.scope import Scope, always, decided_by, linked
from migrator.mapping.inverse.values import Loss, attribute_reader
from migrator.mapping.items.filters import FilterContext
from migrator.mapping.items.program import base_key
from migrator.mapping.model.facts import EntityPlan, TableFacts
from migrator.mapping.model.mapping import ItemDesign, Mapping, Ref
from migrator.mapping.model.table import Item, TableDesign

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
