"""The phases of a job's access patterns and the audit of their moves, by the journal database's own clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, exists, func, insert, select, update

from migrator.journal.database import Database, insert_or_ignore, once_only, repeatable, seconds
from migrator.journal.schema import confirmed_phase as confirmed
from migrator.journal.schema import move as moves
from migrator.journal.schema import phase as phases
from migrator.model.durations import moment
from migrator.model.edges import KeptPhase
from migrator.model.errors import SettingsError
from migrator.model.evidence import Move, MovedError, PatternPhase
from migrator.model.phase import OFF, state_named

_WHO_LETTERS = 255


class SqlPhases:
    """model.evidence.Phases of one job."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    @repeatable
    def all(self) -> dict[str, PatternPhase]:
        with self.database.begin() as connection:
            return self._read(connection)

    @once_only
    def move(self, move: Move, version: int) -> PatternPhase:
        here = and_(phases.c.job == self.job, phases.c.pattern == move.pattern)
        with self.database.begin() as connection:
            known = self._read(connection).get(move.pattern, PatternPhase(move.pattern))
            if known.fault:
                raise SettingsError(known.fault)
            if known.version != version or known.state != move.before:
                raise MovedError(self._who_was_first(connection, known))
            now = seconds(connection)
            # Two that both find no row wait for each other here; the loser finds the winner's version below.
            begun = {"phase": OFF.phase, "percent": 0, "version": 0, "since": now}
            connection.execute(
                insert_or_ignore(connection, phases), {"job": self.job, "pattern": move.pattern, **begun}
            )
            made = PatternPhase(move.pattern, move.after, version + 1, now)
            won = update(phases).where(here, phases.c.version == version)
            if not connection.execute(won.values(**_columns(made))).rowcount:
                raise MovedError(self._who_was_first(connection, self._read(connection)[move.pattern]))
            connection.execute(insert(moves).values(job=self.job, **_line(move, made)))
        return made

    @repeatable
    def mend(self, pattern: str) -> PatternPhase:
        here = and_(phases.c.job == self.job, phases.c.pattern == pattern)
        with self.database.begin() as connection:
            known = self._read(connection).get(pattern, PatternPhase(pattern))
            if known.fault:
                audited = and_(moves.c.job == self.job, moves.c.pattern == pattern)
                last = select(moves.c.after).where(audited, moves.c.version == known.version)
                after = connection.execute(last).scalar()
                if after is not None and state_named(after) is None:
                    raise SettingsError(known.fault)
                known = replace(known, fault="")
                connection.execute(delete(phases).where(here))
                if known.version:
                    row = {"job": self.job, "pattern": pattern, **_columns(known)}
                    connection.execute(insert_or_ignore(connection, phases), row)
        return known

    @once_only
    def take_over(self, pattern: str, kept: KeptPhase, who: str, reason: str) -> PatternPhase:
        state = state_named(kept.phase)
        if state is None:
            raise SettingsError(f"the table keeps of pattern {pattern} what is no phase")
        here = and_(phases.c.job == self.job, phases.c.pattern == pattern)
        with self.database.begin() as connection:
            known = self._read(connection).get(pattern, PatternPhase(pattern))
            made = PatternPhase(pattern, state, max(kept.version, known.version + 1), seconds(connection))
            connection.execute(delete(phases).where(here))
            row = {"job": self.job, "pattern": pattern, **_columns(made)}
            connection.execute(insert(phases).values(row))
            move = Move(pattern, known.state, state, who, reason)
            connection.execute(insert(moves).values(job=self.job, **_line(move, made)))
        return made

    @repeatable
    def history(self, pattern: str | None = None) -> list[Move]:
        query = select(moves).where(moves.c.job == self.job)
        if pattern is not None:
            query = query.where(moves.c.pattern == pattern)
        ordered = query.order_by(moves.c.at, moves.c.pattern, moves.c.version)
        with self.database.begin() as connection:
            return [_move(row) for row in connection.execute(ordered)]

    @repeatable
    def confirm(self, instance: str, versions: Mapping[str, int]) -> None:
        rows = [
            {"instance": instance, "pattern": pattern, "job": self.job, "version": version}
            for pattern, version in versions.items()
        ]
        with self.database.begin() as connection:
            connection.execute(delete(confirmed).where(confirmed.c.instance == instance))
            if rows:
                connection.execute(insert(confirmed), rows)

    @repeatable
    def confirmed(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = defaultdict(dict)
        with self.database.begin() as connection:
            for row in connection.execute(select(confirmed).where(confirmed.c.job == self.job)):
                found[row.instance][row.pattern] = row.version
        return dict(found)

    # ── what is there ──

    def _read(self, connection: Connection) -> dict[str, PatternPhase]:
        """Every phase with the last line of its audit, one statement: a move between two would look like a forgery."""
        last = (
            select(moves.c.pattern, func.max(moves.c.version).label("version"))
            .where(moves.c.job == self.job)
            .group_by(moves.c.pattern)
            .subquery()
        )
        own = and_(
            moves.c.job == self.job, moves.c.pattern == last.c.pattern, moves.c.version == last.c.version
        )
        kept = and_(phases.c.job == self.job, phases.c.pattern == last.c.pattern)
        columns = (moves.c.pattern, moves.c.after, moves.c.at, moves.c.version.label("audited"))
        query = select(*columns, phases.c.phase, phases.c.percent, phases.c.version, phases.c.since)
        found = connection.execute(query.select_from(last.join(moves, own).outerjoin(phases, kept)))
        return {row.pattern: _checked(row) for row in found} | self._unaudited(connection)

    def _unaudited(self, connection: Connection) -> dict[str, PatternPhase]:
        audited = exists().where(moves.c.job == phases.c.job, moves.c.pattern == phases.c.pattern)
        query = select(phases.c.pattern).where(phases.c.job == self.job, ~audited)
        return {
            pattern: PatternPhase(
                pattern,
                fault=f"the journal's phase of pattern {pattern} has no line in the audit, so nobody moved it here; "
                f"`migrator cutover rollback JOB {pattern}` takes it out, then move it with `migrator cutover`",
            )
            for pattern in connection.execute(query).scalars()
        }

    def _who_was_first(self, connection: Connection, known: PatternPhase) -> str:
        """What a mover is told who comes too late."""
        now = f"pattern {known.pattern} is in {known.state} by now"
        query = select(moves).where(moves.c.job == self.job, moves.c.pattern == known.pattern)
        row = connection.execute(query.where(moves.c.version == known.version)).first()
        if row is not None:
            at = moment(row.at)
            now = f"{now}: {row.who} moved it from {row.before} at {at}"
        return f"{now}; look at `migrator cutover status` again, nothing was changed"


def _checked(row: Any) -> PatternPhase:
    """The phase, with a fault where somebody wrote another one into the journal by hand than the audit ends with."""
    audited = state_named(row.after)
    if audited is None:
        what = f"the audit of pattern {row.pattern} ends with what is no phase"
        fault = f"{what}; restore migrator_move from a backup of the journal"
        return PatternPhase(row.pattern, OFF, row.audited, row.at, fault)
    if (row.phase, row.percent, row.version) == (audited.phase, audited.percent, row.audited):
        return PatternPhase(row.pattern, audited, row.version, row.since)
    what = (
        f"the journal's phase of pattern {row.pattern} is not what its audit ends with: it was edited by hand"
    )
    right = f"phase '{audited.phase}', percent {audited.percent}, version {row.audited}"
    way_out = f"`migrator cutover rollback JOB {row.pattern}` writes it anew and moves it back"
    fault = f"{what}; its audit says {right} (see `migrator cutover history`), and {way_out}"
    return PatternPhase(row.pattern, audited, row.audited, row.at, fault)


def _columns(made: PatternPhase) -> dict[str, Any]:
    state = made.state
    return {"phase": state.phase, "percent": state.percent, "version": made.version, "since": made.since}


def _line(move: Move, made: PatternPhase) -> dict[str, Any]:
    return {
        "pattern": move.pattern,
        "version": made.version,
        "at": made.since,
        "who": move.who[:_WHO_LETTERS],
        "before": str(move.before),
        "after": str(move.after),
        "reason": move.reason,
        "evidence": move.evidence,
        "override": int(move.override),
        "revision": move.revision,
    }


def _move(row: Row[Any]) -> Move:
    before, after = state_named(row.before), state_named(row.after)
    if before is None or after is None:
        what = f"line {row.version} of the audit of pattern {row.pattern} holds what is no phase"
        raise SettingsError(f"{what}; restore migrator_move from a backup of the journal")
    said = {name: getattr(row, name) for name in ("who", "reason", "evidence", "revision", "version", "at")}
    return Move(row.pattern, before, after, override=bool(row.override), **said)
