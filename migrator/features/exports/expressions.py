"""Expressions of the mapping language as code: the one walk over templates, references, formats and filters.

A subclass for each language writes the pieces in the language's own way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from migrator.features.exports.model import PatternModel
from migrator.mapping.items.filters import FILTERS, FilterContext
from migrator.mapping.items.templates import format_width
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import (
    Expression,
    Filter,
    Operator,
    Ref,
    SortCondition,
    Template,
    paths_in,
)
from migrator.mapping.model.table import KeyAttribute
from migrator.mapping.patterns.requests import MOVED_UP

TEXT = Kind("text")


class UnsaidError(Exception):
    """What a mapping says and a language here cannot."""


class Piece(Struct, frozen=True):
    """Code of a value. `guards`: conditions of the language's under which it has none. `element`: of a list's values the
    code of one of them."""

    code: str
    kind: Kind
    guards: tuple[str, ...] = ()
    element: Piece | None = None


class RequestCode(Struct, frozen=True):
    """What a pattern asks, as code over its parameters. `keys`: by key attribute its value, for each of `elements`; `sort`,
    `filters`: of each condition the attribute, the operator and the values."""

    keys: Mapping[str, str]
    elements: str
    sort: Sequence[tuple[str, Operator, str]]
    filters: Sequence[tuple[str, Operator, str]]
    limit: str


class Expressions(ABC):
    """Code over values that have names. `star`: the name of a text that a `*` stands for."""

    around: FilterContext
    star: str

    @abstractmethod
    def given(self, ref: Ref) -> tuple[Piece, Sequence[Filter]]:
        """The reference's value, and the filters that it has not been through."""

    @abstractmethod
    def literal(self, value: object) -> str: ...

    @abstractmethod
    def text(self, piece: Piece) -> str:
        """A value's text in a template."""

    @abstractmethod
    def joined(self, texts: Sequence[str]) -> str: ...

    @abstractmethod
    def called(self, used: Filter, piece: Piece) -> Piece:
        """The filter's result; of a list's values `piece.element` is None, and `code` the list."""

    @abstractmethod
    def each(self, values: Piece, element: Piece) -> Piece:
        """The list of what `element` makes of each of the values."""

    @abstractmethod
    def call(self, name: str, *arguments: str) -> str:
        """A call of a function that the module carries."""

    @abstractmethod
    def param(self, name: str) -> str:
        """A pattern's parameter."""

    @abstractmethod
    def needed(self, name: str) -> str:
        """A parameter that must be set."""

    def listed(self, name: str) -> str:
        """A parameter that is a list."""
        return self.needed(name)

    @abstractmethod
    def unit(self, used: Filter) -> str:
        """The unit of time of a filter's buckets, as functions of the module take it."""

    @abstractmethod
    def key(self, template: Template, attribute: KeyAttribute, up: bool | None = None) -> str:
        """The value of a key attribute; `up`: of a bound, where its last number may move."""

    @abstractmethod
    def value(self, value: Expression) -> str:
        """The value of an attribute."""

    def template(self, template: Template, up: bool | None = None) -> Piece:
        """The template's text, none where a value of it has none."""
        if not template.refs:
            return Piece(self.literal("".join(map(str, template.parts))), TEXT)
        texts: list[str] = []
        guards: list[str] = []
        for part in template.parts:
            if isinstance(part, str):
                texts.append(self.literal(part))
            else:
                piece = self.ref(part, up if part is template.refs[-1] and not part.filters else None)
                texts.append(self.text(piece))
                guards += piece.guards
        return Piece(self.joined(texts), TEXT, tuple(dict.fromkeys(guards)))

    def ref(self, ref: Ref, up: bool | None = None) -> Piece:
        if ref.every:
            return Piece(self.star, TEXT)
        piece, filters = self.given(ref)
        if piece.element is None:
            return self._filtered(self._formatted(piece, ref.format, up), filters)
        cut = next((n for n, used in enumerate(filters) if FILTERS[used.name].of_list), None)
        if cut is None:
            raise UnsaidError("a list of values")
        element = self._filtered(self._formatted(piece.element, ref.format), filters[:cut])
        return self._filtered(self.each(piece, element), filters[cut:])

    def _formatted(self, piece: Piece, format_: str | None, up: bool | None = None) -> Piece:
        if format_ is None:
            return piece
        arguments = [piece.code, *map(str, format_width(format_))]
        padded = (
            self.call("padded", *arguments)
            if up is None
            else self.call("bound", *arguments, self.literal(up))
        )
        return Piece(padded, TEXT, piece.guards)

    def _filtered(self, piece: Piece, filters: Sequence[Filter]) -> Piece:
        for used in filters:
            piece = self.called(used, piece)
        return piece

    # ── a pattern's request ──

    def request(self, asked: PatternModel) -> RequestCode:
        """Raises: UnsaidError."""
        pattern, limit = asked.pattern, asked.pattern.limit
        sort = [
            (key.name, one.operator, self._bounds(key.name, one.values, self._sort(key, one)))
            for key, one in zip(asked.index.sort, pattern.sort, strict=False)
        ]
        filters = [
            (
                one.attribute,
                one.operator,
                self._bounds(one.attribute, one.values, map(self.value, one.values)),
            )
            for one in pattern.filters
        ]
        return RequestCode(
            {attribute.name: self.key(template, attribute) for attribute, template in asked.keys},
            self.listed(asked.many) if asked.many else self._texts(pattern.star),
            sort if pattern.operation == "query" else [],
            filters,
            str(limit) if limit is None or limit.isdecimal() else self.call("limit", self.param(limit)),
        )

    def _sort(self, attribute: KeyAttribute, condition: SortCondition) -> Iterator[str]:
        directions = MOVED_UP.get(condition.operator, (None,))
        for value, up in zip(condition.values, directions, strict=True):
            yield self.key(value, attribute, up)

    def _bounds(self, name: str, written: Sequence[Expression], values: Iterable[str]) -> str:
        """The values of a condition; of two bounds with parameters none may be unset alone."""
        listed = f"[{', '.join(values)}]"
        is_pair = len(written) > 1 and all(any(paths_in([one])) for one in written)
        return self.call("both", self.literal(name), listed) if is_pair else listed

    def _texts(self, star: Ref | None) -> str:
        """The texts that the `*` of a partition key stands for; without a `*` a single unused text."""
        if star is None:
            return '[""]'
        (used,) = star.filters
        way = FILTERS[used.name].way
        assert way is not None, "checked with the mapping"
        argument = self.unit(used) if way.of == "time" else used.args[0]
        name = {"shard": "shards", "time": "buckets", "place": "cells"}[way.of]
        return self.call(name, *map(self.needed, star.paths), argument)
