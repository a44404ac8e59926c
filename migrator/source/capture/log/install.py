"""Capture from a source's log instead of triggers, installed and inspected: the part that all engines share."""

from __future__ import annotations

import json
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured
from migrator.mapping.model.live import MarkedBy, Step, TableCapture
from migrator.runtime.values import replace
from migrator.source.capture.install import (
    SqlCapture,
    existing_triggers,
    has_log,
    has_table,
    own_steps,
    refusals,
    trigger_drop_steps,
)
from migrator.source.capture.log.changes import MarkedTable, marked_table, tables_of, tables_text
from migrator.source.capture.log.reader import LogMarks, LogPlace, log_table
from migrator.source.engines.ddl import Ddl, respelled
from migrator.source.sql.transactions import Writing


class LogCapture(SqlCapture):
    """SqlCapture of a source that also supports capture from its log."""

    means_of_log: str
    """The means of capture, for messages."""
    taken_words: str
    """What an uninstall removes, for messages."""
    literal: Callable[[str], str]
    """Quotes a text as an SQL literal."""
    log_limits: Callable[[Connection], Iterator[str]]
    """Costs and limits of capture from the log."""
    create_log: Callable[[Ddl], str]
    """The statement that creates our table with the position in the log."""

    def __init__(
        self, writing: Writing, job: str, marks: LogMarks, wait: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(writing)
        self._job = job
        self._marks = marks
        self._wait = wait

    def at_once(self) -> LogCapture:
        return type(self)(self._writing.at_once(), self._job, self._marks, self._wait)

    # ── per engine ──

    @abstractmethod
    def _faults(self, connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> Iterator[str]:
        """Reasons against capture from the log, each with the fix."""

    @abstractmethod
    def _begin_steps(
        self, connection: Connection, ddl: Ddl, tables: Sequence[Captured], place: LogPlace | None, lost: str
    ) -> Iterator[Step]:
        """Steps until all changes after the place can be read."""

    def _end_steps(self, connection: Connection) -> Iterator[Step]:
        return iter(())

    @abstractmethod
    def _unlogged(
        self, connection: Connection, ddl: Ddl, place: LogPlace, tables: Sequence[Captured]
    ) -> Mapping[str, TableCapture]:
        """State of tables whose changes are not fully in the log, by table."""

    # ── capture ──

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by != "log":
            return super().refusals(tables, marked_by)

        def work(connection: Connection, ddl: Ddl) -> list[str]:
            own = refusals(connection, ddl, tables, by_triggers=False)
            return [*own, *self._faults(connection, ddl, tables)]

        return self._writing.look("looking for what the log needs", work)

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by != "log":
            return super().limits(marked_by)
        return self._writing.look(
            "looking for what the log costs", lambda connection, _: list(self.log_limits(connection))
        )

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        place, lost = self._placed()
        if marked_by != "log":
            steps = super().install_steps(tables, job, marked_by)
            self.means = "triggers"
            return steps if place is None else [*steps, *self._to_triggers(lost)]
        self.means = self.means_of_log

        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            return [
                *self._own_steps(connection, ddl, job),
                *_kept_steps(ddl, self.literal, tables, place, lost),
                *_renaming(ddl, place, lost),
                *self._begin_steps(connection, ddl, tables, place, lost),
                *_from_others(connection, ddl, tables),
            ]

        return self._writing.look("comparing what captures the log", work)

    def uninstall_steps(self) -> list[Step]:
        return [*self._log_away(), *super().uninstall_steps()]

    def taken_away(self, tables: Sequence[str]) -> str:
        return self.taken_words if self.means == self.means_of_log else super().taken_away(tables)

    def do(self, step: Step) -> None:
        if _is_switch(step):
            # Triggers leave the marks by now; changes that are only in the log are lost with our place in it.
            self._marks.drain()
        super().do(step)

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]:
        installation = self.installation()
        if installation is None or installation.marked_by != "log":
            self.means = "triggers"
            return super().states(tables)
        self.means = self.means_of_log

        def work(connection: Connection, ddl: Ddl) -> list[TableCapture]:
            place = self._marks.reader.log.place(connection, ddl)
            refused = dict.fromkeys(one.table for one in existing_triggers(connection, ddl) if one.refuses)
            own = {table.name for table in tables}
            return [
                *self._states(connection, ddl, tables, place),
                *(TableCapture(name, "refused") for name in refused if name not in own),
            ]

        return self._writing.look("comparing what captures the log", work)

    def _states(
        self, connection: Connection, ddl: Ddl, tables: Sequence[Captured], place: LogPlace | None
    ) -> Iterator[TableCapture]:
        if place is None or self._marks.reader.log.loss(connection, place):
            yield from (TableCapture(table.name, "lost") for table in tables)
            return
        kept, unlogged = tables_of(place.tables), self._unlogged(connection, ddl, place, tables)
        for table in tables:
            is_kept = table.name in kept
            other = unlogged.get(table.name) if is_kept else TableCapture(table.name, "missing")
            yield other or _compared(table, kept[table.name])
        own = {table.name for table in tables}
        yield from (unlogged[name] for name in sorted(unlogged.keys() - own))

    # ── steps ──

    def _placed(self) -> tuple[LogPlace | None, str]:
        log = self._marks.reader.log

        def work(connection: Connection, ddl: Ddl) -> tuple[LogPlace | None, str]:
            place = log.place(connection, ddl)
            return place, "" if place is None else log.loss(connection, place)

        return self._writing.look("looking at the log's place", work)

    def _own_steps(self, connection: Connection, ddl: Ddl, job: str) -> list[Step]:
        table, drop = self.create_log(ddl), _drop_log(ddl)
        own = own_steps(connection, ddl, job, "log")
        if own:
            first = own[0]
            undo = (drop, *first.undo) if first.undo else ()
            return [Step("", (*first.statements, table), undo), *own[1:]]
        return [] if has_log(connection) else [Step("", (table,), (drop,))]

    def _to_triggers(self, lost: str) -> list[Step]:
        def switch(_: Connection, ddl: Ddl) -> Step:
            values = "marked_by = 'triggers'" + (f", installation = '{uuid.uuid4().hex}'" if lost else "")
            return Step("", (f"UPDATE {ddl.ticket} SET {values} WHERE id = 1", _forget(ddl)))

        step = self._writing.look("comparing triggers", switch)
        forget = step.statements[1]
        if lost:
            # Nothing can be copied, and the new installation id shows that changes may be missing.
            step = replace(step, statements=tuple(reversed(step.statements)))
        return [step, *(step for step in self._log_away() if step.statements != (forget,))]

    def _log_away(self) -> list[Step]:
        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            place = self._marks.reader.log.place(connection, ddl)
            steps = [Step("", (_forget(ddl),))] if place is not None else []
            steps += self._end_steps(connection)
            if has_log(connection):
                steps.append(Step("", (_drop_log(ddl),)))
            self.means = self.means_of_log if steps else self.means
            return steps

        return self._writing.look("looking for what captures the log", work)


def _forget(ddl: Ddl) -> str:
    return f"DELETE FROM {log_table(ddl)}"


def _drop_log(ddl: Ddl) -> str:
    return f"DROP TABLE IF EXISTS {log_table(ddl)}"


def _is_switch(step: Step) -> bool:
    """Whether the step switches from the log to triggers while the log can still be read."""
    return len(step.statements) == 2 and step.statements[1].startswith("DELETE FROM")


def _kept_steps(
    ddl: Ddl,
    literal: Callable[[str], str],
    tables: Sequence[Captured],
    place: LogPlace | None,
    lost: str,
) -> Iterator[Step]:
    """Steps that store the tables' columns, one table at a time. They come first: changes of an unlisted table
    are skipped.
    """
    if place is None or lost:
        return
    kept, wanted = json.loads(place.tables), json.loads(tables_text(tables))
    for name in sorted(kept.keys() | wanted.keys()):
        if kept.get(name) == wanted.get(name):
            continue
        kept = {other: table for other, table in kept.items() if other != name}
        kept |= {name: wanted[name]} if name in wanted else {}
        text = json.dumps(kept, sort_keys=True)
        yield Step(name, (f"UPDATE {log_table(ddl)} SET tables = {literal(text)} WHERE id = 1",))


def _renaming(ddl: Ddl, place: LogPlace | None, lost: str) -> Iterator[Step]:
    """A lost log starts over, with a new installation id: items may be stale."""
    if place is not None and lost:
        renamed = f"UPDATE {ddl.ticket} SET installation = '{uuid.uuid4().hex}' WHERE id = 1"
        yield Step("", (_forget(ddl), renamed))


def _from_others(connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> Iterator[Step]:
    """Triggers or services, and the log, both leave marks for a moment: an extra mark is harmless."""
    if not has_table(connection):
        return
    marked_by = connection.execute(sa.text(f"SELECT marked_by FROM {ddl.ticket} WHERE id = 1")).scalar()
    if marked_by != "log":
        yield Step("", (f"UPDATE {ddl.ticket} SET marked_by = 'log' WHERE id = 1",))
    yield from trigger_drop_steps(connection, ddl, tables)


# ── states ──


def _compared(table: Captured, before: MarkedTable) -> TableCapture:
    now = marked_table(table)
    old, new = _named(before), _named(now)
    if old != new or (before.watched is None) != (now.watched is None):
        return TableCapture(table.name, "stale", tuple(sorted(new - old)), tuple(sorted(old - new)))
    is_swapped, gone = respelled(table, before.words)
    if is_swapped or gone:
        return TableCapture(table.name, "stale", (), gone)
    return TableCapture(table.name, "captured")


def _named(table: MarkedTable) -> set[str]:
    return {real for _, real in table.columns} | (table.watched or set())
