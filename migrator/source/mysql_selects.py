"""What MySQL and MariaDB must be told otherwise than the rest, so that pages and values are exact."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import NullType, TypeDecorator

from migrator.facts import Column, Kind

Compare = Callable[[Any, Any], ColumnElement[bool]]

_DIALECT = "mysql"
_UTC = "+00:00"


class ForMysql(ColumnElement[Any]):
    """`usual`, but `mysql` in a statement for MySQL or MariaDB."""

    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012  (SQLAlchemy's own word for what a cache key is made of)
        ("usual", InternalTraversal.dp_clauseelement),
        ("mysql", InternalTraversal.dp_clauseelement),
    ]

    def __init__(self, usual: ColumnElement[Any], mysql: ColumnElement[Any]) -> None:
        self.usual = usual
        self.mysql = mysql
        self.type = usual.type

    def self_group(self, against: Any = None) -> Any:
        return self  # else SQLAlchemy writes "= 1" after a comparison on databases without a boolean type


@compiles(ForMysql)
def _usual(element: ForMysql, compiler: SQLCompiler, **words: Any) -> str:
    return compiler.process(element.usual, **words)


@compiles(ForMysql, _DIALECT)
def _mysql(element: ForMysql, compiler: SQLCompiler, **words: Any) -> str:
    # In brackets: nobody around it knows that it may be an OR.
    return f"({compiler.process(element.mysql, **words)})"


class Held(TypeDecorator[Any]):
    """The type of a column in our statements: no cast, no word about results, only how MySQL compares it."""

    impl = NullType
    cache_ok = True

    def __init__(self, kind: Kind, declared: str = "") -> None:
        super().__init__()
        self.kind = kind
        self.declared = declared.lower()

    @classmethod
    def of(cls, column: Column) -> Held:
        return cls(column.kind, column.declared)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """A value of a key or a condition; text that stands for a number or a moment becomes one for MySQL."""
        return _comparable(value, self.kind) if dialect.name == _DIALECT else value


def _comparable(value: Any, kind: Kind) -> Any:
    if not isinstance(value, str):
        return value
    if kind.name == "number":
        # MySQL compares a DECIMAL with text as binary floats: neighbours of 16 digits would be equal.
        try:
            return Decimal(value)
        except InvalidOperation:
            return value
    # MariaDB knows no offset in a moment; the session's zone is UTC.
    return value.removesuffix(_UTC) if kind.name == "timestamp" and kind.zone else value


# ── columns ──


def exact(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column's whole value: MySQL shows six digits of a FLOAT, and compares with all that it holds."""
    return ForMysql(column, column + sa.literal_column("0e0")) if _is(column, "float") else column


def in_key_order(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column as a key is ordered and compared; MySQL orders an ENUM by its place and compares its text.

    CONCAT keeps the column's collation. No index serves it, so pages by such a key are slow, yet whole.
    """
    return ForMysql(column, sa.func.concat(column)) if _is(column, "enum(", "set(") else exact(column)


def _is(column: ColumnElement[Any], *beginnings: str) -> bool:
    return isinstance(column.type, Held) and column.type.declared.startswith(beginnings)


# ── keys ──

Columns = Sequence[ColumnElement[Any]]


def row_after(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    """columns > bounds, compared as rows."""
    usual = _row(columns) > _row(bounds)
    return (
        usual if len(columns) == 1 else ForMysql(usual, _stepwise(columns, bounds, operator.gt, operator.gt))
    )


def row_upto(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    """columns <= bounds, compared as rows."""
    usual = _row(columns) <= _row(bounds)
    return (
        usual if len(columns) == 1 else ForMysql(usual, _stepwise(columns, bounds, operator.lt, operator.le))
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
