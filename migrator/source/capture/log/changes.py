"""Changes in a log as marks, with images in the form that triggers write. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from migrator.mapping.model.facts import Captured, columns_of
from migrator.mapping.model.live import KeptMark
from migrator.source.engines.ddl import spelling_of

# ── Columns of marks, stored at the install: the reader has no mapping ──


class MarkedTable(Struct, frozen=True):
    """`columns`: written and real names of those in images.
    `watched`: real names; None: any update is marked.
    `words`: as from spelling_of().
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    watched: frozenset[str] | None
    words: Mapping[str, Sequence[str]]

    @property
    def reals(self) -> set[str]:
        return {real for _, real in self.columns}


def marked_table(captured: Captured) -> MarkedTable:
    columns = tuple((column.name, column.real) for column in columns_of(captured, captured.columns))
    watched = None
    if captured.watched is not None:
        watched = frozenset(column.real for column in columns_of(captured, captured.watched))
    return MarkedTable(captured.name, columns, watched, spelling_of(captured))


def tables_text(tables: Sequence[Captured]) -> str:
    made = {}
    for table in map(marked_table, tables):
        made[table.name] = {
            "columns": dict(table.columns),
            "watched": None if table.watched is None else sorted(table.watched),
            "words": {name: list(words) for name, words in table.words.items()},
        }
    return json.dumps(made, sort_keys=True)


def tables_of(text: str) -> dict[str, MarkedTable]:
    return {
        name: MarkedTable(
            name,
            tuple(table["columns"].items()),
            None if table["watched"] is None else frozenset(table["watched"]),
            table["words"],
        )
        for name, table in json.loads(text).items()
    }


# ── A change of a row in a log ──


class Unchanged:
    """An unchanged value, which the log omits."""


UNCHANGED = Unchanged()
Value: TypeAlias = bytes | None | Unchanged
"""The value as the log writes it, NULL, or UNCHANGED."""
Row: TypeAlias = tuple[Value, ...]


class RowChange(Struct, frozen=True):
    """`old`: None if not in the log.
    `old_is_key`: `old` has only the identity's columns, and NULL in all others.
    """

    kind: Literal["insert", "update", "delete"]
    relation: int
    old: Row | None
    new: Row | None
    old_is_key: bool = False


class MarkColumn(Protocol):
    """A column in the log. `is_key`: the old image contains it."""

    @property
    def name(self) -> str: ...

    @property
    def is_key(self) -> bool: ...

    def written(self, value: bytes) -> str: ...


class MarkRelation(Protocol):
    @property
    def columns(self) -> Sequence[MarkColumn]: ...


# ── Marks of changes ──


def whole_table(table: MarkedTable, at: float) -> KeptMark:
    return KeptMark(table.name, None, None, at)


class RelationMarks(Struct, frozen=True, dict=True):
    """Makes marks from the log's changes of `table` or one of its partitions."""

    table: MarkedTable
    relation: MarkRelation

    def kept(self, change: RowChange, at: float) -> KeptMark | None:
        if self._is_unwatched(change):
            return None
        # In the image of a key all other columns are NULL, even if they have values.
        full_old = None if change.old_is_key else change.old
        after = self._image(self._places, change.new, full_old, change.old)
        # Without an old image in an UPDATE, the columns of the identity are unchanged.
        old = change.old or (change.new if change.kind == "update" else None)
        before = self._image(self._identity, old, change.new, change.new)
        if after is UNKNOWN or before is UNKNOWN:
            return whole_table(self.table, at)
        return KeptMark(self.table.name, _text(before), _text(after), at)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {column.name: place for place, column in enumerate(self.relation.columns)}

    @cached_property
    def _identity(self) -> dict[str, int]:
        return {column.name: place for place, column in enumerate(self.relation.columns) if column.is_key}

    def _image(
        self, places: Mapping[str, int], row: Row | None, other: Row | None, other_key: Row | None
    ) -> _Image | None:
        """Omits columns that are not in the log; a mark without them becomes a finding.

        `other`, `other_key`: rows with values that this row may omit, for any column and for one of the
        identity.
        """
        if row is None:
            return None
        image: _Image = {}
        for name, real in self.table.columns:
            place = places.get(real)
            if place is None:
                continue
            value = row[place]
            if isinstance(value, Unchanged):
                found = other_key if self.relation.columns[place].is_key else other
                value = value if found is None else found[place]
            if isinstance(value, Unchanged):
                return UNKNOWN
            image[name] = None if value is None else self.relation.columns[place].written(value)
        return image

    def _is_unwatched(self, change: RowChange) -> bool:
        watched, places = self.table.watched, self._places
        if watched is None or change.old is None or change.new is None or change.old_is_key:
            return False
        # A column that the log omits, such as a generated one, depends on others.
        if not watched <= places.keys():
            return False
        return all(_is_same(change.old[places[name]], change.new[places[name]]) for name in watched)


_Image = dict[str, "str | None"]
UNKNOWN: _Image = {"": None}
"""Of a row with a value that the log omits everywhere."""


def _is_same(old: Value, new: Value) -> bool:
    return isinstance(new, Unchanged) or old == new


def _text(image: _Image | None) -> str | None:
    return None if image is None else json.dumps(image)
