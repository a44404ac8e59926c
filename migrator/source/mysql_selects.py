"""Ranges of keys as MySQL and MariaDB must be told them, so that a page is read from the key's index."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from migrator.source.held import ForDialect

Compare = Callable[[Any, Any], ColumnElement[bool]]

Columns = Sequence[ColumnElement[Any]]


def row_after(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    """columns > bounds, compared as rows."""
    usual = _row(columns) > _row(bounds)
    return (
        usual
        if len(columns) == 1
        else ForDialect("mysql", usual, _stepwise(columns, bounds, operator.gt, operator.gt))
    )


def row_upto(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    """columns <= bounds, compared as rows."""
    usual = _row(columns) <= _row(bounds)
    return (
        usual
        if len(columns) == 1
        else ForDialect("mysql", usual, _stepwise(columns, bounds, operator.lt, operator.le))
    )


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
