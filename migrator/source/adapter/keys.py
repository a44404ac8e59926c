"""Keys of the rows that a service's statement writes, taken from the statement and its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from msgspec import Struct

from migrator.runtime.errors import UnmarkedError
from migrator.source.adapter.driver import Row, key_of
from migrator.source.adapter.statement import Given, Write
from migrator.source.adapter.tables import CapturedTable
from migrator.source.sql.spelling import fold

Key: TypeAlias = Row
"""Values of a primary key."""
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


class StatementKeys(Struct, frozen=True):
    """One statement with its parameters; several sets of them, where it runs several times."""

    write: Write
    table: CapturedTable
    parameters: Sequence[Parameters]
    dialect: str

    # ── INSERT ──

    @property
    def inserted(self) -> list[Key]:
        """The key of each row, with None for values that only the database knows."""
        return [self._inserted(row, parameters) for parameters in self.parameters for row in self.write.rows]

    def _inserted(self, row: Sequence[Given | None], parameters: Parameters) -> Key:
        places = {name: at for at, name in enumerate(self._columns())}
        values = []
        for name in self.table.key:
            at = places.get(self.fold(name))
            given = row[at] if at is not None and at < len(row) else None
            values.append(None if given is None else given.of(parameters))
        return key_of(values)

    @property
    def says_inserted(self) -> bool:
        """Whether each row gives its whole key."""
        names = {self.fold(name) for name in self.table.key}
        at = [place for place, name in enumerate(self._columns()) if name in names]
        whole = len(at) == len(names)
        return whole and all(
            place < len(row) and row[place] is not None for row in self.write.rows for place in at
        )

    @property
    def returned(self) -> list[int]:
        """The positions of the key's columns among the returned columns; empty if not all are returned."""
        returned = self.write.returned
        if returned == ("*",):
            returned = tuple(self.fold(name) for name in self.table.columns if name not in self.table.hidden)
        if "*" in returned or not all(self.fold(name) in returned for name in self.table.key):
            return []
        return [returned.index(self.fold(name)) for name in self.table.key]

    def met(self) -> Iterator[tuple[tuple[str, ...], list[Key]]]:
        """Keys of rows that an upsert may conflict with: for each unique key of which it gives all columns.

        Raises: UnmarkedError where there is none.
        """
        places = {name: at for at, name in enumerate(self._columns())}
        met = False
        for columns in dict.fromkeys([self.table.key, *self.table.unique]):
            at = [places.get(self.fold(name)) for name in columns]
            cells = [
                [row[place] for place in at if place is not None and place < len(row)]
                for row in self.write.rows
            ]
            if any(None in row or len(row) < len(columns) for row in cells):
                continue
            met = True
            yield columns, [_values(row, parameters) for parameters in self.parameters for row in cells]
        if not met:
            raise refused(self.table.name, "it says no whole key of the rows that it may replace")

    # ── UPDATE and DELETE ──

    def wanted(self) -> list[Key] | None:
        """The keys that WHERE names; None where it does not."""
        if any(self.fold(name) not in self.write.wanted for name in self.table.key):
            return None
        all_keys: list[Key] = []
        for parameters in self.parameters:
            keys = self._wanted(parameters)
            if keys is None:
                return None
            all_keys += keys
        return all_keys

    def _wanted(self, parameters: Parameters) -> list[Key] | None:
        columns_given = [
            [given.each_of(parameters) for given in self.write.wanted[self.fold(name)]]
            for name in self.table.key
        ]
        if any(values is None for column_given in columns_given for values in column_given):
            return None
        each = (
            [value for values in column_given for value in values or ()] for column_given in columns_given
        )
        return [key_of(key) for key in product(*each)]

    @property
    def moves(self) -> list[str]:
        """Columns of the primary key that an update sets, or that an upsert sets in rows that it meets."""
        set_anew = self.write.assigned.keys() - self.write.kept
        return [name for name in self.table.key if self.fold(name) in set_anew]

    def moved(self, keys: Sequence[Key]) -> dict[Key, Key]:
        """New keys of rows by their old ones. Raises: UnmarkedError where the statement computes them."""
        if not (columns := self.moves):
            return {}
        assigned = [(name, self.write.assigned[self.fold(name)]) for name in columns]
        given = [(name, given_value) for name, given_value in assigned if given_value is not None]
        if len(given) < len(assigned):
            raise refused(self.table.name, "it computes new primary keys")
        moved = {key: key for key in keys}
        for parameters in self.parameters:
            new = {name: given_value.of(parameters) for name, given_value in given}
            chosen = None if len(self.parameters) == 1 else self._wanted(parameters)
            for key, now in moved.items():
                if chosen is None or now in chosen:
                    moved[key] = self._with(now, new)
        return moved

    def _with(self, key: Key, new: Mapping[str, Any]) -> Key:
        return key_of([new.get(name, value) for name, value in zip(self.table.key, key, strict=True)])

    @property
    def moves_keys(self) -> bool:
        """Whether an update sets a column of a unique key, by which other rows may refer to its rows."""
        names = {self.fold(name) for key in (self.table.key, *self.table.unique) for name in key}
        return not names.isdisjoint(self.write.assigned)

    @property
    def times(self) -> int:
        """How many rows an INSERT gives."""
        return len(self.parameters) * len(self.write.rows)

    @property
    def repeats(self) -> int:
        """How many keys are repeated in the statement: a row that is written twice counts twice."""
        keys = self.inserted if self.write.action == "insert" else (self.wanted() or [])
        complete = [key for key in keys if None not in key]
        return len(complete) - len(set(complete)) if self.times > 1 or len(self.parameters) > 1 else 0

    @property
    def moves_children(self) -> bool:
        """Whether an update sets a column that a foreign key follows."""
        columns = {self.fold(name) for tie in self.table.below if tie.on_update for _, name in tie.columns}
        return not columns.isdisjoint(self.write.assigned)

    def fold(self, name: str) -> str:
        return fold(name, self.dialect)

    def _columns(self) -> Sequence[str]:
        """The columns that an INSERT fills, in its order."""
        if self.write.columns is not None:
            return self.write.columns
        return [self.fold(name) for name in self.table.columns if name not in self.table.unfilled]


def _values(row: Sequence[Given | None], parameters: Parameters) -> Key:
    return key_of([given.of(parameters) for given in row if given is not None])


def refused(name: str, why: str) -> UnmarkedError:
    what = f"dual write: this statement may write {name}, and {why}"
    advice = "write it with the keys of its rows, or leave its marks with mark_changed and say migrator_marked=True"
    return UnmarkedError(f"{what}; {advice}")
