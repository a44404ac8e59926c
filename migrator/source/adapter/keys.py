"""Keys of the rows that a service's statement writes, taken from the statement and its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from migrator.model.errors import UnmarkedError
from migrator.source.adapter.driver import Row, key_of
from migrator.source.adapter.statement import Given, Write, fold
from migrator.source.adapter.tables import CapturedTable

Key: TypeAlias = Row
"""Values of a primary key."""
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class StatementKeys:
    """One statement with its parameters; many of them, where it runs many times."""

    write: Write
    table: CapturedTable
    parameters: Sequence[Parameters]
    dialect: str

    # ── INSERT ──

    @property
    def inserted(self) -> list[Key]:
        """The key of each row, with None for what only the database knows."""
        return [self._inserted(row, one) for one in self.parameters for row in self.write.rows]

    def _inserted(self, row: Sequence[Given | None], parameters: Parameters) -> Key:
        places = {name: at for at, name in enumerate(self._columns())}
        found = []
        for name in self.table.key:
            at = places.get(self.fold(name))
            given = row[at] if at is not None and at < len(row) else None
            found.append(None if given is None else given.of(parameters))
        return key_of(found)

    @property
    def says_inserted(self) -> bool:
        """Whether each row says its whole key."""
        names = {self.fold(name) for name in self.table.key}
        at = [place for place, name in enumerate(self._columns()) if name in names]
        whole = len(at) == len(names)
        return whole and all(
            place < len(row) and row[place] is not None for row in self.write.rows for place in at
        )

    @property
    def returned(self) -> list[int]:
        """Where the columns of the key stand in what the statement gives back; empty where not all do."""
        returned = self.write.returned
        if returned == ("*",):
            returned = tuple(self.fold(name) for name in self.table.columns)
        if "*" in returned or not all(self.fold(name) in returned for name in self.table.key):
            return []
        return [returned.index(self.fold(name)) for name in self.table.key]

    def met(self) -> Iterator[tuple[tuple[str, ...], list[Key]]]:
        """Keys of rows that an upsert may meet: by each unique key of which it says all columns.

        Raises: UnmarkedError where there is none.
        """
        places = {name: at for at, name in enumerate(self._columns())}
        met = False
        for columns in dict.fromkeys([self.table.key, *self.table.unique]):
            at = [places.get(self.fold(name)) for name in columns]
            cells = [
                [row[one] for one in at if one is not None and one < len(row)] for row in self.write.rows
            ]
            if any(None in row or len(row) < len(columns) for row in cells):
                continue
            met = True
            yield columns, [_values(row, one) for one in self.parameters for row in cells]
        if not met:
            raise refused(self.table.name, "it says no whole key of the rows that it may replace")

    # ── UPDATE and DELETE ──

    def wanted(self) -> list[Key] | None:
        """The keys that WHERE names; None where it does not."""
        if any(self.fold(name) not in self.write.wanted for name in self.table.key):
            return None
        found: list[Key] = []
        for parameters in self.parameters:
            keys = self._wanted(parameters)
            if keys is None:
                return None
            found += keys
        return found

    def _wanted(self, parameters: Parameters) -> list[Key] | None:
        said = [
            [given.each_of(parameters) for given in self.write.wanted[self.fold(name)]]
            for name in self.table.key
        ]
        if any(values is None for one in said for values in one):
            return None
        each = ([value for values in one for value in values or ()] for one in said)
        return [key_of(key) for key in product(*each)]

    @property
    def moves(self) -> list[str]:
        """Columns of the primary key that an update sets, or an upsert of the rows that it meets."""
        set_anew = self.write.assigned.keys() - self.write.kept
        return [name for name in self.table.key if self.fold(name) in set_anew]

    def moved(self, keys: Sequence[Key]) -> dict[Key, Key]:
        """New keys of rows by their old ones. Raises: UnmarkedError where the statement computes them."""
        if not (columns := self.moves):
            return {}
        assigned = [(name, self.write.assigned[self.fold(name)]) for name in columns]
        given = [(name, one) for name, one in assigned if one is not None]
        if len(given) < len(assigned):
            raise refused(self.table.name, "it computes new primary keys")
        moved = {key: key for key in keys}
        for parameters in self.parameters:
            new = {name: one.of(parameters) for name, one in given}
            meant = None if len(self.parameters) == 1 else self._wanted(parameters)
            for key, now in moved.items():
                if meant is None or now in meant:
                    moved[key] = self._with(now, new)
        return moved

    def _with(self, key: Key, new: Mapping[str, Any]) -> Key:
        return key_of([new.get(name, value) for name, value in zip(self.table.key, key, strict=True)])

    @property
    def moves_keys(self) -> bool:
        """Whether an update sets a column that tells rows apart, by which others may refer to them."""
        names = {self.fold(name) for key in (self.table.key, *self.table.unique) for name in key}
        return not names.isdisjoint(self.write.assigned)

    @property
    def times(self) -> int:
        """How many rows an INSERT says."""
        return len(self.parameters) * len(self.write.rows)

    @property
    def repeats(self) -> int:
        """How many of the keys that it says are said already: a row that is written twice counts twice."""
        keys = self.inserted if self.write.action == "insert" else (self.wanted() or [])
        known = [key for key in keys if None not in key]
        return len(known) - len(set(known)) if self.times > 1 or len(self.parameters) > 1 else 0

    @property
    def moves_children(self) -> bool:
        """Whether an update sets a column that a foreign key follows."""
        columns = {self.fold(name) for one in self.table.below if one.on_update for _, name in one.columns}
        return not columns.isdisjoint(self.write.assigned)

    def fold(self, name: str) -> str:
        return fold(name, self.dialect)

    def _columns(self) -> Sequence[str]:
        """The columns that an INSERT fills, in its order."""
        if self.write.columns is not None:
            return self.write.columns
        return [self.fold(name) for name in self.table.columns]


def _values(row: Sequence[Given | None], parameters: Parameters) -> Key:
    return key_of([given.of(parameters) for given in row if given is not None])


def refused(name: str, why: str) -> UnmarkedError:
    what = f"dual write: this statement writes {name}, and {why}"
    advice = "write it with the keys of its rows, or leave its marks with mark_changed and say migrator_marked=True"
    return UnmarkedError(f"{what}; {advice}")
