"""What a statement changed: the rows as they were beside the rows as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migrator.errors import UnmarkedError
from migrator.source.adapter.driver import Driver, Row
from migrator.source.adapter.images import Images, Lock, Shown, State
from migrator.source.adapter.keys import Key, Said
from migrator.source.adapter.made import made_keys
from migrator.source.adapter.meant import is_meant
from migrator.source.adapter.pending import Changed, Pending
from migrator.source.adapter.watched import Place, Watched


@dataclass(frozen=True)
class Outcome:
    """Of a statement that just ran."""

    images: Images
    driver: Driver
    pending: Pending

    @property
    def said(self) -> Said:
        return self.pending.said

    def changed(self, cursor: Any) -> list[Changed]:
        """The rows that the statement changed. Raises: UnmarkedError where they cannot be known after all."""
        said = self.said
        if said.write.action == "insert" and not said.write.is_upsert:
            return self._inserted(cursor)
        count = rows_changed(self.driver, said, cursor)
        moved = {} if said.write.is_upsert else said.moved(self.pending.meant)
        before: State = self.pending.states[said.table.place]
        after: State = {}
        # Where 0 rows are counted, a trigger of the service's own may have done something else instead.
        if said.write.action != "delete" or count != len(before):
            after = self._now([moved.get(key, key) for key in before])
        if not self._is_known(count, len({*before, *after})):
            return []
        self._refuse_unseen(before, after)
        changed = list(compared(said.table, before, after, moved))
        return [*changed, *self._reached(list(after))]

    def _reached(self, keys: Sequence[Key]) -> Iterator[Changed]:
        """Rows of other tables that foreign keys changed. `keys`: of the statement's own rows, as they are now."""
        said = self.said
        moved: dict[Place, State] = {}
        if said.moves_children and len(self.pending.states) > 1:
            # A foreign key may be a part of the child's own key.
            self.images.reach(self.driver, moved, said.table, keys, is_delete=False)
        for place, before in self.pending.states.items():
            if place != said.table.place:
                table = self.images.tables.tables[place]
                after = self.images.by_keys(self.driver, table, before, lock="own") | moved.get(place, {})
                yield from compared(table, before, after, {})

    def _now(self, keys: Sequence[Key]) -> State:
        """The statement's own rows of those keys after it, and those that an upsert may have met."""
        said = self.said
        found: State = {}
        if said.write.is_upsert:
            # What is set of rows that it meets. Of others it matters not whether they were there.
            lock: Lock = "upserted" if said.write.assigned else "own"
            for columns, met in said.met():
                found |= self.images.by_keys(self.driver, said.table, met, columns, lock)
        return found | self.images.by_keys(self.driver, said.table, keys, lock="own")

    def _refuse_unseen(self, before: State, after: State) -> None:
        """Raises: UnmarkedError where an upsert met a row that was not there when it was looked for.

        PostgreSQL counts it like a new one, and nobody knows any more what it was.
        """
        unseen = {key for key, row in after.items() if row.is_locked and key not in before}
        if unseen and unseen - self._written_twice():
            what = (
                f"dual write: a row of {self.said.table.name} came while those that an upsert meets were read"
            )
            advice = "roll the transaction back and run it again"
            why = "a trigger, or a foreign key to its own table, has locked the new row"
            raise UnmarkedError(f"{what}; {advice} (where that never helps, {why}: say INSERT alone)")

    def _written_twice(self) -> set[Key]:
        """Rows that an upsert with many parameters may have made first, and met then."""
        said, found = self.said, set[Key]()
        if len(said.parameters) > 1:
            for columns, met in said.met():
                twice = [key for key, times in Counter(met).items() if times > 1]
                found |= self.images.by_keys(self.driver, said.table, twice, columns, "own").keys()
        return found

    def _is_known(self, count: int | None, found: int) -> bool:
        """Whether each row that the statement changed is among those found; False where it meant another table.

        Raises: UnmarkedError.
        """
        said = self.said
        if count is None or count <= self._at_most(found):
            return True
        if not is_meant(self.driver, self.images, said):
            return False
        if self.pending.read_by_where or said.write.is_upsert:
            what = (
                f"dual write: rows of {said.table.name} came while those that the statement meant were read"
            )
        else:
            what = f"dual write: this statement changed more rows of {said.table.name} than its keys name"
        raise UnmarkedError(f"{what}; roll the transaction back and run it again")

    def _at_most(self, found: int) -> int:
        """How many rows the statement can have changed where all are known."""
        said = self.said
        if said.write.is_upsert and self.driver.dialect == "mysql":
            # It counts a row that it changed as two, and one that stayed as one.
            return said.times + len(self.pending.states[said.table.place]) + said.repeats if found else 0
        known = found if said.write.is_upsert else len(self.pending.meant)
        return known + said.repeats

    def _inserted(self, cursor: Any) -> list[Changed]:
        said = self.said
        keys = made_keys(self.driver, self.pending, cursor)
        after = self.images.by_keys(self.driver, said.table, keys, lock="own")
        count = None if self.pending.made else rows_changed(self.driver, said, cursor)
        missing = (len(keys) if count is None else min(count, len(keys))) - len(after)
        if missing > 0:
            if not is_meant(self.driver, self.images, said):
                return []
            what = f"dual write: {missing} row(s) inserted into {said.table.name} are not found again"
            raise UnmarkedError(
                f"{what} by their keys; name other keys, or install triggers (`migrator capture install`)"
            )
        return list(compared(said.table, {}, after, {}))


def rows_changed(driver: Driver, said: Said, cursor: Any) -> int | None:
    """What the driver counts; None where it does not know (SQLite before all that is given back was fetched)."""
    if cursor.rowcount < 0 or (driver.dialect == "sqlite" and said.write.returned):
        return None
    return int(cursor.rowcount)


def compared(table: Watched, before: State, after: State, moved: Mapping[Key, Key]) -> Iterator[Changed]:
    if table.captured is None:
        return
    gone = Shown()
    always = table.captured.watched is None
    if moved and len(before) == len(after) == 1:
        # A key that is said in another type than the database's is the same row all the same.
        moved = {key: new for key in before for new in after}
    seen: set[Row] = set()
    for key, old in before.items():
        new_key = moved.get(key, key)
        seen.add(new_key)
        new = after.get(new_key, gone)
        if old != new or (always and new is not gone):
            yield Changed(table, old.image, new.image)
    yield from (Changed(table, None, new.image) for key, new in after.items() if key not in seen)
