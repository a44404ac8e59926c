"""Capture put into a source and taken out again: `ports.capture.Capture` by SQL."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.facts import EntityPlan
from migrator.mapping.changes import Captured, captured_tables
from migrator.ports.capture import CaptureState, Installation, Step, TableCapture
from migrator.source.capture.design import VERSION, Ddl, Found, Trigger
from migrator.source.capture.installed import found_triggers, has_tables, leftovers
from migrator.source.capture.tickets import FIRST_EPOCH, counter
from migrator.source.capture.writing import Writing


class SqlCapture:
    """Its `writing` waits for locks for seconds only: a table that waits for us would make the service wait."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def refusals(self, plans: Sequence[EntityPlan]) -> list[str]:
        return []

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        return [table for _, table in sorted(captured_tables(plans).items())]

    def installation(self) -> Installation | None:
        return self._writing.write("looking for capture", _installation)

    def install_steps(self, tables: Sequence[Captured]) -> list[Step]:
        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            found = found_triggers(connection, ddl)
            ours = () if has_tables(connection, ddl) else tuple(ddl.tables())
            steps = [Step("", ours, tuple(ddl.no_tables()))] if ours else []
            steps += [_table_step(ddl.triggers(one), _of(found, one.name), one.name) for one in tables]
            wanted = {one.name for one in tables}
            steps += [step for step in _drop_steps(found) if step.table not in wanted]
            steps = [step for step in steps if step.statements]
            return [*steps, *_cleanup(connection, ddl, tables)]

        return self._writing.write("comparing triggers", work)

    def uninstall_steps(self) -> list[Step]:
        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            steps = _drop_steps(found_triggers(connection, ddl))
            last = (*leftovers(connection), *(ddl.no_tables() if has_tables(connection, ddl) else ()))
            return [*steps, Step("", last)] if last else steps

        return self._writing.write("looking for triggers", work)

    def do(self, step: Step) -> None:
        def work(connection: Connection, _: Ddl) -> None:
            plain = connection.execution_options(no_parameters=True)
            for statement in step.statements:
                plain.exec_driver_sql(statement)

        self._writing.write(f"changing triggers of {step.table}" if step.table else "our tables", work)

    def begin(self, job: str) -> Installation:
        def work(connection: Connection, ddl: Ddl) -> Installation:
            if (found := _installation(connection, ddl)) is not None:
                return found
            values = {"epoch": FIRST_EPOCH, "id": uuid.uuid4().hex, "version": VERSION, "job": job}
            columns = "(id, epoch, number, installation, version, job)"
            statement = f"INSERT INTO {ddl.ticket} {columns} VALUES (1, :epoch, 0, :id, :version, :job)"
            connection.execute(sa.text(statement), values)
            made = _installation(connection, ddl)
            assert made is not None
            return made

        return self._writing.write("beginning capture", work)

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]:
        def work(connection: Connection, ddl: Ddl) -> list[TableCapture]:
            found = found_triggers(connection, ddl)
            wanted = {one.name for one in tables}
            extra = dict.fromkeys(one.table for one in found if one.table not in wanted)
            known = [
                TableCapture(one.name, _state(ddl.triggers(one), _of(found, one.name))) for one in tables
            ]
            return [*known, *(TableCapture(name, "extra") for name in extra)]

        return self._writing.write("comparing triggers", work)

    def close(self) -> None:
        self._writing.close()


def _installation(connection: Connection, ddl: Ddl) -> Installation | None:
    found = counter(connection, ddl) if has_tables(connection, ddl) else None
    if found is None:
        return None
    return Installation(found.installation, found.job, found.version, found.epoch, found.ticket)


def _of(found: Sequence[Found], table: str) -> list[Found]:
    return [one for one in found if one.table == table]


def _is_there(trigger: Trigger, found: Sequence[Found]) -> bool:
    return any(one.name == trigger.name and one.digest == trigger.digest and one.enabled for one in found)


def _state(wanted: Sequence[Trigger], found: Sequence[Found]) -> CaptureState:
    digest = wanted[0].digest
    if any(one.digest != digest for one in found):
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


def _cleanup(connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> list[Step]:
    """Functions that no trigger calls once the steps before are done."""
    kept = {statement for one in tables for trigger in ddl.triggers(one) for statement in trigger.undo}
    unused = tuple(statement for statement in leftovers(connection) if statement not in kept)
    return [Step("", unused)] if unused else []
