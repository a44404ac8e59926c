"""Triggers installed and inspected: their statements, what the catalogue has, why a table is refused."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.heart.changes import captured_tables
from migrator.model.capture import Captured, CaptureState, Installation, MarkedBy, Step, TableCapture
from migrator.model.errors import SettingsError
from migrator.model.facts import EntityPlan
from migrator.source.capture.marks import FIRST_EPOCH, counter
from migrator.source.capture.writing import Writing
from migrator.source.engines.ddl import VERSION, Ddl, Found, Trigger, columns_named
from migrator.source.engines.postgresql.capture import PARTS
from migrator.source.engines.table import engine_at

# ── Triggers and tables of ours that a source has, by its own catalogue ──


def found_triggers(connection: Connection, ddl: Ddl) -> list[Found]:
    """In the order of their tables."""
    return list(engine_at(connection).capturing.found(connection, ddl))


def has_tables(connection: Connection, ddl: Ddl) -> bool:
    """Whether capture was installed: its counter is there."""
    return _has(connection, "ticket")


def has_marks(connection: Connection, ddl: Ddl) -> bool:
    """Whether the marks' table is there; somebody may have dropped it alone."""
    return _has(connection, "mark")


def _has(connection: Connection, name: str) -> bool:
    capturing = engine_at(connection).capturing
    return sa.inspect(connection).has_table(f"{capturing.prefix}{name}", schema=capturing.schema)


# ──
# Why a table's changes cannot be captured, and what to do: kinds of tables, privileges, circles of foreign
# keys.


def refusals(
    connection: Connection, ddl: Ddl, tables: Sequence[Captured], *, by_triggers: bool = True
) -> list[str]:
    """All of them at once. Not `by_triggers`: services leave the marks, and what only triggers need may be missing."""
    found = [what for one in tables if (what := _unseen(ddl, one))]
    told = engine_at(connection).capturing.refusals(connection, ddl, tables)
    return [*found, *(one.text for one in told if by_triggers or not one.triggers_only)]


def views(connection: Connection, ddl: Ddl) -> set[str]:
    """Names, as Captured has them, of what can be read like a table and has no triggers of its own."""
    return engine_at(connection).capturing.views(connection, ddl)


def _unseen(ddl: Ddl, captured: Captured) -> str:
    try:
        ddl.triggers(captured)
    except SettingsError as error:
        return str(error)
    return ""


# ── Capture put into a source and taken out again: `model.capture.Capture` by SQL ──

_UNMARKED = (
    "only services that use the adapter leave marks: what anybody else writes (a script, a person, a service without it,"
    " a trigger of the database) reaches the table by `migrator verify --repair` alone"
)


class SqlCapture:
    """Its `writing` waits for locks for seconds only: a table that waits for us would make the service wait."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def at_once(self) -> SqlCapture:
        """The same for looks that must be short: it tries nothing twice."""
        return SqlCapture(self._writing.at_once())

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        told = {plan.entity.name for plan in plans if plan.changes}
        seen = self._writing.look("looking for views", views)
        return [
            table
            for name, table in sorted(captured_tables(plans).items())
            if name not in seen or not {lookup.entity for lookup in table.lookups} <= told
        ]

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        def work(connection: Connection, ddl: Ddl) -> list[str]:
            found = refusals(connection, ddl, tables, by_triggers=marked_by == "triggers")
            return [*_triggers_in_the_way(connection, ddl), *found] if marked_by == "services" else found

        return self._writing.look("looking for what cannot be captured", work)

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by == "services":
            return [_UNMARKED]

        def work(connection: Connection, _: Ddl) -> list[str]:
            return list(engine_at(connection).capturing.limits)

        return self._writing.look("looking for what cannot be captured", work)

    def installation(self) -> Installation | None:
        return self._writing.look("looking for capture", _installation)

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            before = _installation(connection, ddl)
            own = _own_steps(connection, ddl, job, marked_by)
            if marked_by == "services":
                return own
            steps = [*own, *_trigger_steps(connection, ddl, tables)]
            return [*steps, _switch_step(ddl)] if before and before.marked_by == "services" else steps

        return self._writing.look("comparing triggers", work)

    def uninstall_steps(self) -> list[Step]:
        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            steps = _drop_steps(found_triggers(connection, ddl))
            left = engine_at(connection).capturing.leftovers(connection)
            last = (*left, *(ddl.no_tables() if has_tables(connection, ddl) else ()))
            return [*steps, Step("", last)] if last else steps

        return self._writing.look("looking for triggers", work)

    def do(self, step: Step) -> None:
        def work(connection: Connection, _: Ddl) -> None:
            plain = connection.execution_options(no_parameters=True)
            for statement in step.statements:
                plain.exec_driver_sql(statement)

        self._writing.write(f"changing triggers of {step.table}" if step.table else "our tables", work)

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]:
        def work(connection: Connection, ddl: Ddl) -> list[TableCapture]:
            found, here = found_triggers(connection, ddl), _installation(connection, ddl)
            by_services = here is not None and here.marked_by == "services"
            if by_services and not found:
                return [TableCapture(one.name, "services") for one in tables]
            wanted = _wanted(connection, ddl, tables)
            extra = dict.fromkeys(one.table for one in found if one.table not in wanted)
            known = [_compared(name, own, _of(found, name)) for name, own in wanted.items()]
            states = [*known, *(TableCapture(name, "extra") for name in extra)]
            return [_by_services(one) for one in states] if by_services else states

        return self._writing.look("comparing triggers", work)

    def close(self) -> None:
        self._writing.close()


def _installation(connection: Connection, ddl: Ddl) -> Installation | None:
    found = counter(connection, ddl) if has_tables(connection, ddl) else None
    if found is None:
        return None
    return Installation(
        found.installation, found.job, found.version, found.epoch, found.ticket, found.marked_by
    )


def _triggers_in_the_way(connection: Connection, ddl: Ddl) -> list[str]:
    """What stands against marks of services: triggers would leave each mark for the second time, or left them so far."""
    here = _installation(connection, ddl)
    if not found_triggers(connection, ddl) and (here is None or here.marked_by == "services"):
        return []
    what = "triggers leave the marks here, and services would not know when they go"
    return [f"{what}; run `migrator capture uninstall` first, or install without --by-services"]


def _own_steps(connection: Connection, ddl: Ddl, job: str, marked_by: MarkedBy) -> list[Step]:
    """Our two tables, or the one that is gone."""
    if not has_tables(connection, ddl):
        return [_first_step(ddl, job, marked_by)]
    return [] if has_marks(connection, ddl) else [_marks_step(ddl)]


def _trigger_steps(connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> list[Step]:
    found, wanted = found_triggers(connection, ddl), _wanted(connection, ddl, tables)
    steps = [_table_step(triggers, _of(found, name), name) for name, triggers in wanted.items()]
    steps += [step for step in _drop_steps(found) if step.table not in wanted]
    return [*(step for step in steps if step.statements), *_cleanup(connection, wanted)]


def _switch_step(ddl: Ddl) -> Step:
    """The last one: until every trigger is there, services go on to leave their marks, and some are there twice."""

    def marked_by(who: MarkedBy) -> tuple[str, ...]:
        return (f"UPDATE {ddl.ticket} SET marked_by = '{who}' WHERE id = 1",)

    return Step("", marked_by("triggers"), marked_by("services"))


def _first_step(ddl: Ddl, job: str, marked_by: MarkedBy) -> Step:
    """Our tables, and the one row of the counter."""
    name = "'" + job.replace("'", "''") + "'"
    row = f"VALUES (1, {FIRST_EPOCH}, 0, '{uuid.uuid4().hex}', {VERSION}, {name}, '{marked_by}')"
    begin = f"INSERT INTO {ddl.ticket} (id, epoch, number, installation, version, job, marked_by) {row}"
    return Step("", (*ddl.tables(), begin), tuple(ddl.no_tables()))


def _marks_step(ddl: Ddl) -> Step:
    """The marks' table anew, and a name that tells: marks were lost with it, so what was filled before may be old."""
    renamed = f"UPDATE {ddl.ticket} SET installation = '{uuid.uuid4().hex}' WHERE id = 1"
    return Step("", (*ddl.tables(), renamed))


def _wanted(connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> dict[str, list[Trigger]]:
    """By table, the triggers that it should have.

    Among them parents whose foreign keys reach captured tables (MySQL), and partitions (PostgreSQL).
    """
    found = {one.name: ddl.triggers(one) for one in tables}
    for trigger in engine_at(connection).capturing.more_triggers(connection, tables, ddl):
        found.setdefault(trigger.table, []).append(trigger)
    return found


def _of(found: Sequence[Found], table: str) -> list[Found]:
    return [one for one in found if one.table == table]


def _is_there(trigger: Trigger, found: Sequence[Found]) -> bool:
    return any(one.name == trigger.name and one.digest == trigger.digest and one.enabled for one in found)


def _compared(table: str, wanted: Sequence[Trigger], found: Sequence[Found]) -> TableCapture:
    state = _state(wanted, found)
    if state == "missing" and all(one.name == PARTS["truncate"] for one in wanted):
        # Rows are marked by the parent's triggers, which PostgreSQL clones to every partition that comes.
        return TableCapture(table, "partition")
    if state != "stale":
        return TableCapture(table, state)
    new = columns_named(*(statement for one in wanted for statement in one.create))
    old = columns_named(*(one.text for one in found))
    return TableCapture(table, state, tuple(sorted(new - old)), tuple(sorted(old - new)))


def _by_services(one: TableCapture) -> TableCapture:
    """While triggers are still being made: services go on to mark what has none yet."""
    return replace(one, state="services") if one.state in ("missing", "partition") else one


def _state(wanted: Sequence[Trigger], found: Sequence[Found]) -> CaptureState:
    digests = {one.digest for one in wanted}
    if any(one.digest not in digests for one in found):
        return "stale"
    if any(not one.enabled for one in found):
        return "disabled"
    return "captured" if all(_is_there(trigger, found) for trigger in wanted) else "missing"


def _table_step(wanted: Sequence[Trigger], found: Sequence[Found], table: str) -> Step:
    """New triggers before old ones go, so that no change falls between (MySQL commits each statement)."""
    create = [statement for one in wanted if not _is_there(one, found) for statement in one.create]
    names = {one.name for one in wanted}
    drop = [statement for one in found if one.name not in names for statement in one.drop]
    undo = [statement for one in wanted for statement in one.undo]
    return Step(table, (*create, *drop), tuple(undo))


def _drop_steps(found: Sequence[Found]) -> list[Step]:
    tables = dict.fromkeys(one.table for one in found)
    return [
        Step(table, tuple(statement for one in _of(found, table) for statement in one.drop))
        for table in tables
    ]


def _cleanup(connection: Connection, wanted: Mapping[str, Sequence[Trigger]]) -> list[Step]:
    """Functions that no trigger calls once the steps before are done."""
    kept = {statement for triggers in wanted.values() for one in triggers for statement in one.undo}
    unused = tuple(
        statement
        for statement in engine_at(connection).capturing.leftovers(connection)
        if statement not in kept
    )
    return [Step("", unused)] if unused else []
