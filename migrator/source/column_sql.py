"""SQL expressions that read a column without loss, and compare all of its value, for each dialect."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import NullType, TypeDecorator, UserDefinedType

from migrator.model.facts import Column, Kind
from migrator.source.engines.base import Trait
from migrator.source.engines.table import engine_of


class Where(ColumnElement[Any]):
    """`usual`, but `special` in a statement for an engine that has the trait."""

    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012  (SQLAlchemy's own word for what a cache key is made of)
        ("trait", InternalTraversal.dp_string),
        ("usual", InternalTraversal.dp_clauseelement),
        ("special", InternalTraversal.dp_clauseelement),
    ]

    def __init__(self, trait: Trait, usual: ColumnElement[Any], special: ColumnElement[Any]) -> None:
        self.trait = trait
        self.usual = usual
        self.special = special
        self.type = usual.type

    def self_group(self, against: Any = None) -> Any:
        return self  # else SQLAlchemy writes "= 1" after a comparison on databases without a boolean type


@compiles(Where)
def _compiled(element: Where, compiler: SQLCompiler, **words: Any) -> str:
    if element.trait not in engine_of(compiler.dialect.name).sql.traits:
        return compiler.process(element.usual, **words)
    # In brackets: nobody around it knows that it may be an OR.
    return f"({compiler.process(element.special, **words)})"


class ColumnType(TypeDecorator[Any]):
    """The type of a column in our statements: no cast, no word about results, only how it is compared with a value."""

    impl = NullType
    cache_ok = True

    def __init__(self, kind: Kind, declared: str = "") -> None:
        super().__init__()
        self.kind = kind
        self.declared = declared.lower()

    @classmethod
    def of(cls, column: Column) -> ColumnType:
        return cls(column.kind, column.declared)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """A value of a key or a condition, so that the server compares it as the column's own type."""
        return engine_of(dialect.name).sql.comparable(value, self.kind)


# ── columns ──


class _Named(UserDefinedType[Any]):
    """A type of the source's by its name, for a CAST."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


def exact(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column's whole value, to be compared and added up as well as read.

    MySQL shows six digits of a FLOAT, and compares with all that it holds; PostgreSQL writes money as its locale does.
    """
    kind = _kind(column)
    if kind is not None and kind.read_as:
        return Where("casts to read", column, sa.cast(column, _Named(kind.read_as)))
    return (
        Where("rounds floats", column, column + sa.literal_column("0e0")) if _is(column, "float") else column
    )


def read(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The same, to be read only: arrays and composites as JSON, which says what their own text leaves open."""
    kind = _kind(column)
    if kind is None or kind.name not in ("list", "map"):
        return exact(column)
    return Where("nested as JSON", column, sa.func.pg_catalog.to_json(exact(column)))


def text_of(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column's text, compared by its bytes."""
    plain = Where("collates", sa.func.quote(column), sa.cast(column, sa.Text()).collate("C"))
    kind = _kind(column)
    # MySQL's HEX rounds a number; and bytes that are no text would be cast to one of question marks.
    written = sa.cast(column, sa.CHAR()) if kind is None or kind.name in _WRITTEN else column
    return Where("compares in hex", plain, sa.func.hex(written))


_WRITTEN = frozenset({"integer", "number", "float", "boolean", "date", "time", "timestamp"})


def is_null(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the column holds NULL. MySQL's IS NULL takes a zero date of a column that is NOT NULL for it, too.

    Source: MySQL Reference Manual, "Comparison Functions and Operators", IS NULL.
    """
    return Where("zero date is NULL", column.is_(None), column.op("<=>", is_comparison=True)(sa.null()))


def _kind(column: ColumnElement[Any]) -> Kind | None:
    return column.type.kind if isinstance(column.type, ColumnType) else None


def in_key_order(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column as a key is ordered and compared; MySQL orders an ENUM by its place and compares its text.

    CONCAT keeps the column's collation. No index serves it, so pages by such a key are slow, yet whole.
    """
    return (
        Where("enums by place", column, sa.func.concat(column))
        if _is(column, "enum(", "set(")
        else exact(column)
    )


def _is(column: ColumnElement[Any], *beginnings: str) -> bool:
    return isinstance(column.type, ColumnType) and column.type.declared.startswith(beginnings)
