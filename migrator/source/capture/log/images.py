"""Marks of changes in the log: images in the form that triggers write. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from migrator.mapping.model.live import KeptMark
from migrator.source.capture.log.decoder import Change, Relation, Row, Unchanged, Value
from migrator.source.capture.log.place import MarkedTable


def whole_table(table: MarkedTable, at: float) -> KeptMark:
    """A mark that says: any row of the table may have changed."""
    return KeptMark(table.name, None, None, at)


@dataclass(frozen=True)
class RelationMarks:
    """Makes marks of the changes of one relation as the log describes it, which is `table` or a partition of it."""

    table: MarkedTable
    relation: Relation

    def kept(self, change: Change, at: float) -> KeptMark | None:
        """None if no watched column changed."""
        if self._is_unwatched(change):
            return None
        # In the image of a key all other columns are NULL, even if they hold values.
        full_old = None if change.old_is_key else change.old
        after = self._image(self._places, change.new, full_old, change.old)
        # If an UPDATE has no image before, the columns of the identity are as they were.
        old = change.old or (change.new if change.kind == "update" else None)
        before = self._image(self._identity, old, change.new, change.new)
        if after is UNKNOWN or before is UNKNOWN:
            return whole_table(self.table, at)
        return KeptMark(self.table.name, _text(before), _text(after), at)

    @cached_property
    def _places(self) -> dict[str, int]:
        """By real name."""
        return {column.name: place for place, column in enumerate(self.relation.columns)}

    @cached_property
    def _identity(self) -> dict[str, int]:
        return {column.name: place for place, column in enumerate(self.relation.columns) if column.is_key}

    def _image(
        self, places: Mapping[str, int], row: Row | None, other: Row | None, other_key: Row | None
    ) -> _Image | None:
        """Columns that the log does not hold are left out; a mark without them becomes a finding. `other`,
        `other_key`: where a value that the row leaves out may stand, of any column and of one of the identity."""
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
            image[name] = self._written(place, value)
        return image

    def _written(self, place: int, value: bytes | None) -> str | None:
        if value is None:
            return None
        return f"{self.relation.columns[place].type_oid}:{value.decode(errors='surrogateescape')}"

    def _is_unwatched(self, change: Change) -> bool:
        watched, places = self.table.watched, self._places
        if watched is None or change.old is None or change.new is None or change.old_is_key:
            return False
        # A column that the log leaves out, as a generated one, is made of others.
        if not watched <= places.keys():
            return False
        return all(_is_same(change.old[places[name]], change.new[places[name]]) for name in watched)


_Image = dict[str, "str | None"]
UNKNOWN: _Image = {"": None}
"""Of a row whose value the log left out, and does not hold elsewhere."""


def _is_same(old: Value, new: Value) -> bool:
    return isinstance(new, Unchanged) or old == new


def _text(image: _Image | None) -> str | None:
    return None if image is None else json.dumps(image)
