"""The rows that a statement changed: before and after images, generated keys, resolved table names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.model.errors import UnmarkedError
from migrator.source.adapter.driver import Driver, Row, returned_rows
from migrator.source.adapter.images import Images, Shown, State
from migrator.source.adapter.keys import Key, StatementKeys
from migrator.source.adapter.statement import words_of
from migrator.source.adapter.tables import CapturedTable
from migrator.source.engines.base import Lock
from migrator.source.engines.catalogue import Place

# ── A statement under way: what it says, the rows as they were before it, and what it changed ──


@dataclass(frozen=True, slots=True)
class Changed:
    """One row that a transaction changed: images as marks hold them; None is no row."""

    table: CapturedTable
    before: str | None
    after: str | None


@dataclass
class Pending:
    """A statement that is about to run. `states`: the rows as they are before it, by table.

    `meant`: keys of those that the statement itself chooses, not a foreign key for it. `returning`: SQL to be added, so
    that it gives back keys that nobody knows; `made`: keys that it gave back. `done_before`: Driver.done before it.
    """

    said: StatementKeys
    states: dict[Place, State] = field(default_factory=dict)
    meant: list[Key] = field(default_factory=list)
    read_by_where: bool = False
    returning: str = ""
    made: list[Key] = field(default_factory=list)
    done_before: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether each of its many parameters is to run by itself, so that its keys are known."""
        return bool(self.returning) and len(self.said.parameters) > 1

    def may_be_kept(self, driver: Driver, text: str, *, is_refused: bool) -> bool:
        """Whether the transaction may keep changes of the statement, which failed.

        `is_refused`: the database said no; else its caller failed, perhaps when it was done. Of a statement that it
        refuses PostgreSQL keeps nothing, the others what was done for earlier parameters, SQLite also that of OR FAIL.
        """
        is_many = len(self.said.parameters) > 1
        rule = driver.engine.outcomes.keeps_refused
        if rule == "counted":
            in_parts = is_many or self.said.table.keeps_parts or "fail" in words_of(text)
            return driver.done != self.done_before and (in_parts or not is_refused)
        return not is_refused or (is_many and rule == "earlier")


# ── The keys of rows that an INSERT made ──


def made_keys(driver: Driver, pending: Pending, cursor: Any) -> list[Key]:
    """The keys of rows that an INSERT made: said by it, given back, or the last one that the database made."""
    table, rules = pending.said.table, driver.engine.outcomes
    if pending.made:
        return pending.made
    known = pending.said.inserted
    if rules.zero_makes_key and known == [(0,)] and (last := driver.last_key(cursor)):
        return [(last,)]
    if all(None not in key for key in known):
        return known
    if pending.returning and rules.returns_keys:
        return returned_rows(cursor)
    places = pending.said.returned
    if places and rules.rereads_returned:
        return [tuple(row[at] for at in places) for row in returned_rows(cursor)]
    last = driver.last_key(cursor) if len(table.key) == 1 and rules.last_key is not None else None
    if last and (len(known) == 1 or (rules.counts_keys_on and set(known) == {(None,)})):
        return [(last - number,) for number in range(len(known))]
    what = f"dual write: this INSERT into {table.name} does not say the keys that the database makes"
    raise UnmarkedError(f"{what}; give them with the rows, or let it give them back (RETURNING, or the ORM)")


def made_alone(driver: Driver, cursor: Any) -> list[Key]:
    """The keys that one of many executions of an INSERT made, to which `returning` was added."""
    if driver.has_returning:
        return [tuple(row) for row in cursor.fetchall()]
    return [(cursor.lastrowid,)]


# ── Which table a session means by a name that stands alone ──


def home_of(driver: Driver, images: Images, name: str) -> str:
    """The schema in which the session finds a name that stands alone; MySQL: its database."""
    before, _, after = driver.engine.sessions.home.partition("{name}")
    asked = driver.sql(before)
    if after:
        asked.value(images.ddl.quoted(name)).text(after)
    found = driver.rows(asked)
    return str(found[0][0]) if found else ""


def is_meant(driver: Driver, images: Images, said: StatementKeys) -> bool:
    """Whether the session really takes the statement's name for this table; asked only where something is odd."""
    if said.write.schema is not None or not driver.engine.sessions.home:
        return True
    home = home_of(driver, images, said.write.table)
    return images.tables.found(None, said.write.table, home) is said.table


# ── What a statement changed: the rows as they were beside the rows as they are ──


@dataclass(frozen=True)
class Outcome:
    """Of a statement that just ran."""

    images: Images
    driver: Driver
    pending: Pending

    @property
    def said(self) -> StatementKeys:
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
        if said.write.action != "delete" or count != len(before) or self._may_meet_others(before):
            after = self._now([moved.get(key, key) for key in before])
        if not self._is_known(count, before, after):
            return []
        self._refuse_unseen(before, after)
        if count and self._may_meet_others(before) and self._met_others(count, before, after, moved):
            raise self._came_between()
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
            lock: Lock = "upserted" if said.write.assigned or said.write.replaces else "own"
            for columns, met in said.met():
                found |= self.images.by_keys(self.driver, said.table, met, columns, lock)
            return found | self.images.by_keys(self.driver, said.table, keys, lock=lock)
        return self.images.by_keys(self.driver, said.table, keys, lock="own")

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

    def _is_known(self, count: int | None, before: State, after: State) -> bool:
        """Whether each row that the statement changed is among those found; False where it meant another table.

        Raises: UnmarkedError.
        """
        said = self.said
        if count is None or count <= self._at_most(before, after):
            return True
        if not is_meant(self.driver, self.images, said):
            return False
        if self.pending.read_by_where or said.write.is_upsert:
            raise self._came_between()
        what = f"dual write: this statement changed more rows of {said.table.name} than its keys name"
        raise UnmarkedError(f"{what}; roll the transaction back and run it again")

    def _at_most(self, before: State, after: State) -> int:
        """How many rows the statement can have changed where all are known."""
        said, found = self.said, len({*before, *after})
        if said.write.is_upsert and self.driver.engine.outcomes.counts_twice:
            return self._counted(before, after) if found else 0
        known = found if said.write.is_upsert else len(self.pending.meant)
        return known + said.repeats

    def _counted(self, before: State, after: State) -> int:
        """What MySQL counts of an upsert at most where all rows that it met are known.

        A row that it makes, or leaves as it is, counts as one and one that it changes as two, each time that it is said; a
        REPLACE may count one that stays as two. What is not certain is allowed only where no row is new: one that came in
        between would hide behind it.
        """
        said = self.said
        changed = sum(key not in after or row.whole != after[key].whole for key, row in before.items())
        if after.keys() - before.keys():
            return said.times + changed
        return said.times + (len(before) if said.write.replaces else changed) + said.repeats

    def _came_between(self) -> UnmarkedError:
        said = self.said
        what = f"dual write: rows of {said.table.name} came while those that the statement meant were read"
        advice = "roll the transaction back and run it again"
        if said.write.is_upsert and said.times > 1 and self.driver.engine.outcomes.counts_twice:
            advice += " (where that never helps, it says a row twice, or as it is: say one row a statement)"
        return UnmarkedError(f"{what}; {advice}")

    # ── rows that took the place of others ──

    def _may_meet_others(self, before: State) -> bool:
        """Whether an UPDATE or DELETE may change rows that were not there when its rows were read.

        As many as were read, perhaps: where WHERE says more than keys, a row that was read may be left out.
        """
        if self.said.write.is_upsert or self.driver.engine.outcomes.locks_all:
            return False
        return self.pending.read_by_where or bool(self._absent(before))

    def _absent(self, before: State) -> list[Key]:
        """Keys that WHERE names and of which no row was there, or that are said in another type than the database's."""
        return [key for key in self.said.wanted() or () if key not in before]

    def _met_others(self, count: int, before: State, after: State, moved: Mapping[Key, Key]) -> bool:
        if self.said.write.action == "delete":
            return count > len(before.keys() - after.keys())
        now = self.images.by_keys(self.driver, self.said.table, self._absent(before), lock="own")
        return bool(now.keys() - before.keys() - set(moved.values()))

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


def rows_changed(driver: Driver, said: StatementKeys, cursor: Any) -> int | None:
    """What the driver counts; None where it does not know (SQLite before all that is given back was fetched)."""
    if cursor.rowcount < 0 or (driver.engine.outcomes.counts_late and said.write.returned):
        return None
    return int(cursor.rowcount)


def compared(
    table: CapturedTable, before: State, after: State, moved: Mapping[Key, Key]
) -> Iterator[Changed]:
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
