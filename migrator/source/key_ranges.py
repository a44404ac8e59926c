"""Ranges of keys as each database must be told them, so that a page is read by the key's index, of its partitions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from migrator.source.held import Where

Compare = Callable[[Any, Any], ColumnElement[bool]]

Columns = Sequence[ColumnElement[Any]]


def row_after(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    """columns > bounds, compared as rows."""
    usual = _row(columns) > _row(bounds)
    if len(columns) == 1:
        return usual
    stepwise = _stepwise(columns, bounds, operator.gt, operator.gt)
    return _for_each(usual, stepwise, columns[0] >= bounds[0])


def row_upto(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    """columns <= bounds, compared as rows."""
    usual = _row(columns) <= _row(bounds)
    if len(columns) == 1:
        return usual
    stepwise = _stepwise(columns, bounds, operator.lt, operator.le)
    return _for_each(usual, stepwise, columns[0] <= bounds[0])


def _for_each(
    usual: ColumnElement[bool], stepwise: ColumnElement[bool], of_first: ColumnElement[bool]
) -> ColumnElement[bool]:
    """The comparison in the words of each database.

    PostgreSQL finds a page's partitions by single columns alone, never by a comparison of rows, and is told the
    bound of the first column beside it. SQLite has no partitions, and would read by that bound: all rows that have
    it, for every page.
    """
    by_steps = Where("rows compared as a whole", usual, stepwise)
    return Where("partitions by the first column", by_steps, sa.and_(usual, of_first))


def _row(columns: Columns) -> ColumnElement[Any]:
    return columns[0] if len(columns) == 1 else sa.tuple_(*columns)


def _stepwise(columns: Columns, bounds: Columns, before: Compare, last: Compare) -> ColumnElement[bool]:
    """a > x OR a = x AND b > y: MySQL compares rows as a whole, but then reads the whole table for every page."""
    steps = []
    for place, (column, bound) in enumerate(zip(columns, bounds, strict=True)):
        equal = (own == other for own, other in zip(columns[:place], bounds[:place], strict=True))
        compare = last if place == len(columns) - 1 else before
        steps.append(sa.and_(*equal, compare(column, bound)))
    return sa.or_(*steps)
