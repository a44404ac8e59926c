"""Phases of access patterns with every move, and counts of compared answers, which decide moves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any, Literal

from msgspec import ValidationError, convert
from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, func, insert, select, update

from migrator.journal.database import (
    Database,
    OfJob,
    insert_or_ignore,
    insert_or_replace,
    once_only,
    reading,
    repeatable,
    seconds,
)
from migrator.journal.records import KeptRecords
from migrator.journal.schema import move as moves
from migrator.journal.schema import phase as phases
from migrator.journal.schema import sample as samples
from migrator.journal.schema import window as windows
from migrator.mapping.model.durations import moment
from migrator.mapping.model.edges import KeptPhase
from migrator.mapping.model.evidence import (
    OFF,
    SAMPLES_KEPT,
    WINDOWS_KEPT_S,
    DiffKey,
    Move,
    MovedError,
    PatternPhase,
    Sample,
    State,
    Window,
    share_fits,
    state_named,
)
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import asdict, replace

_WHO_LETTERS = 255
CONFIRMED = KeptRecords[dict[str, int]]("confirmed_phase", dict[str, int])
"""By instance, the versions of the patterns' phases that it uses."""


class SqlPhases(OfJob):
    @reading
    def all(self, connection: Connection) -> dict[str, PatternPhase]:
        return self._read(connection)

    @once_only
    def move(self, connection: Connection, move: Move, version: int) -> PatternPhase:
        here = and_(phases.c.job == self.job, phases.c.pattern == move.pattern)
        phase = self._read(connection).get(move.pattern, PatternPhase(move.pattern))
        if phase.fault:
            raise SettingsError(phase.fault)
        if phase.version != version or phase.state != move.before:
            raise MovedError(self._who_was_first(connection, phase))
        now = seconds(connection)
        # Two that both find no row wait for each other here; the loser finds the winner's version below.
        begun = {"phase": OFF.phase, "percent": 0, "version": 0, "since": now}
        connection.execute(
            insert_or_ignore(connection, phases), {"job": self.job, "pattern": move.pattern, **begun}
        )
        moved = PatternPhase(move.pattern, move.after, version + 1, now)
        won = update(phases).where(here, phases.c.version == version)
        if not connection.execute(won.values(**_columns(moved))).rowcount:
            raise MovedError(self._who_was_first(connection, self._read(connection)[move.pattern]))
        connection.execute(insert(moves).values(job=self.job, **_line(move, moved)))
        return moved

    @repeatable
    def mend(self, connection: Connection, pattern: str) -> PatternPhase:
        here = and_(phases.c.job == self.job, phases.c.pattern == pattern)
        phase = self._read(connection).get(pattern, PatternPhase(pattern))
        if phase.fault:
            audited = and_(moves.c.job == self.job, moves.c.pattern == pattern)
            last = select(moves).where(audited, moves.c.version == phase.version)
            line = connection.execute(last).first()
            if line is not None and _state(line, "after") is None:
                raise SettingsError(phase.fault)
            phase = replace(phase, fault="")
            connection.execute(delete(phases).where(here))
            if phase.version:
                row = {"job": self.job, "pattern": pattern, **_columns(phase)}
                connection.execute(insert_or_ignore(connection, phases), row)
        return phase

    @once_only
    def take_over(
        self, connection: Connection, pattern: str, kept: KeptPhase, who: str, reason: str
    ) -> PatternPhase:
        state = state_named(kept.phase)
        if state is None:
            raise SettingsError(f"the table stores an invalid phase of pattern {pattern}")
        here = and_(phases.c.job == self.job, phases.c.pattern == pattern)
        phase = self._read(connection).get(pattern, PatternPhase(pattern))
        # The table stores a ramp's share, but not its audience.
        state = state if share_fits(state) else State("shadow")
        moved = PatternPhase(pattern, state, max(kept.version, phase.version + 1), seconds(connection))
        connection.execute(delete(phases).where(here))
        row = {"job": self.job, "pattern": pattern, **_columns(moved)}
        connection.execute(insert(phases).values(row))
        move = Move(pattern, phase.state, state, who, reason)
        connection.execute(insert(moves).values(job=self.job, **_line(move, moved)))
        return moved

    @reading
    def history(self, connection: Connection, pattern: str | None = None) -> list[Move]:
        query = select(moves).where(moves.c.job == self.job)
        if pattern is not None:
            query = query.where(moves.c.pattern == pattern)
        ordered = query.order_by(moves.c.at, moves.c.pattern, moves.c.version)
        return [_move(row) for row in connection.execute(ordered)]

    @repeatable
    def confirm(self, connection: Connection, instance: str, versions: Mapping[str, int]) -> None:
        CONFIRMED.put(connection, self.job, dict(versions), instance)

    def confirmed(self) -> dict[str, dict[str, int]]:
        confirmed = CONFIRMED.read_all(self.database, self.job)
        return {instance: versions for instance, versions in confirmed.items() if versions}

    # ── reads ──

    def _read(self, connection: Connection) -> dict[str, PatternPhase]:
        """One statement for phases and last audit lines: a move between two statements would look like a forgery."""
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
        columns = (
            moves.c.pattern,
            moves.c.after,
            moves.c.audience,
            moves.c.at,
            moves.c.version.label("audited"),
        )
        query = select(*columns, phases.c.phase, phases.c.percent, phases.c.version, phases.c.since)
        rows = connection.execute(query.select_from(last.join(moves, own).outerjoin(phases, kept)))
        return {row.pattern: _checked(row) for row in rows} | self._unaudited(connection)

    def _unaudited(self, connection: Connection) -> dict[str, PatternPhase]:
        audited = exists().where(moves.c.job == phases.c.job, moves.c.pattern == phases.c.pattern)
        query = select(phases.c.pattern).where(phases.c.job == self.job, ~audited)
        return {
            pattern: PatternPhase(
                pattern,
                fault=f"the journal's phase of pattern {pattern} has no line in the audit, so no move put it there; "
                f"`migrator cutover rollback JOB {pattern}` takes it out, then move it with `migrator cutover`",
            )
            for pattern in connection.execute(query).scalars()
        }

    def _who_was_first(self, connection: Connection, phase: PatternPhase) -> str:
        now = f"pattern {phase.pattern} is now in {phase.state}"
        query = select(moves).where(moves.c.job == self.job, moves.c.pattern == phase.pattern)
        row = connection.execute(query.where(moves.c.version == phase.version)).first()
        if row is not None:
            at = moment(row.at)
            now = f"{now}: {row.who} moved it from {row.before} at {at}"
        return f"{now}; look at `migrator cutover status` again, nothing was changed"


def _checked(row: Any) -> PatternPhase:
    """The phase, with a fault if it differs from its last audit line: the journal was edited by hand."""
    audited = _state(row, "after")
    if audited is None:
        what = f"the audit of pattern {row.pattern} ends with an invalid phase"
        fault = f"{what}; restore migrator_move from a backup of the journal"
        return PatternPhase(row.pattern, OFF, row.audited, row.at, fault)
    if (row.phase, row.percent, row.version) == (audited.phase, audited.percent, row.audited):
        return PatternPhase(row.pattern, audited, row.version, row.since)
    what = (
        f"the journal's phase of pattern {row.pattern} is not what its audit ends with: it was edited by hand"
    )
    right = f"phase '{audited.phase}', percent {audited.percent}, version {row.audited}"
    way_out = f"`migrator cutover rollback JOB {row.pattern}` restores it and moves it back"
    fault = f"{what}; its audit has {right} (see `migrator cutover status --history`), and {way_out}"
    return PatternPhase(row.pattern, audited, row.audited, row.at, fault)


def _state(row: Row[Any], when: Literal["before", "after"]) -> State | None:
    state = state_named(getattr(row, when))
    if state is None or not row.audience:
        return state if state is None or share_fits(state) else None
    try:
        audience = tuple((str(param), str(text)) for param, text in json.loads(row.audience)[when])
    except (ValueError, TypeError, KeyError):
        return None
    return aimed if share_fits(aimed := replace(state, audience=audience)) else None


def _audience_text(move: Move) -> str | None:
    if not (move.before.audience or move.after.audience):
        return None
    return json.dumps({"before": move.before.audience, "after": move.after.audience}, ensure_ascii=False)


def _columns(pattern_phase: PatternPhase) -> dict[str, Any]:
    state = pattern_phase.state
    return {
        "phase": state.phase,
        "percent": state.percent,
        "version": pattern_phase.version,
        "since": pattern_phase.since,
    }


def _line(move: Move, pattern_phase: PatternPhase) -> dict[str, Any]:
    return {
        "pattern": move.pattern,
        "version": pattern_phase.version,
        "at": pattern_phase.since,
        "who": move.who[:_WHO_LETTERS],
        "before": move.before.word,
        "after": move.after.word,
        "audience": _audience_text(move),
        "reason": move.reason,
        "evidence": move.evidence,
        "override": int(move.override),
        "revision": move.revision,
    }


def _move(row: Row[Any]) -> Move:
    before, after = _state(row, "before"), _state(row, "after")
    if before is None or after is None:
        what = f"line {row.version} of the audit of pattern {row.pattern} contains an invalid phase"
        raise SettingsError(f"{what}; restore migrator_move from a backup of the journal")
    recorded = {
        name: getattr(row, name) for name in ("who", "reason", "evidence", "revision", "version", "at")
    }
    return Move(row.pattern, before, after, override=bool(row.override), **recorded)


# ── Comparisons by minute, with samples of differences ──

_SWEEP_S = 3600.0
"""How often one process deletes expired windows."""
_IN_COLUMNS = ("pattern", "begun_at", "writer", "service", "revision", "origin", "answer")
_NO_COLUMNS = {**dict.fromkeys(_IN_COLUMNS, ""), "begun_at": 0, "origin": "service"}
_COUNTED = [name for name in Window.__struct_fields__ if name not in (*_IN_COLUMNS, "found")]


class SqlEvidence(OfJob):
    """Thread-safe."""

    def __init__(self, database: Database, job: str) -> None:
        super().__init__(database, job)
        self._swept_at = 0.0
        self._sweeping = Lock()

    @repeatable
    def keep(
        self, connection: Connection, new_windows: Sequence[Window], new_samples: Sequence[Sample]
    ) -> None:
        # In one order: two processes that store the same windows wait for each other, without a deadlock.
        ordered = sorted(new_windows, key=lambda window: (window.pattern, window.begun_at, window.writer))
        self._sweep(connection)
        if rows := [self._window_row(window) for window in ordered]:
            connection.execute(insert_or_replace(connection, windows), rows)
        self._keep_samples(connection, new_samples)

    @reading
    def windows(self, connection: Connection, since: float, pattern: str | None = None) -> list[Window]:
        here = [windows.c.job == self.job, windows.c.begun_at >= since]
        if pattern is not None:
            here.append(windows.c.pattern == pattern)
        order = (windows.c.begun_at, windows.c.pattern, windows.c.writer)
        return [_window(row) for row in connection.execute(select(windows).where(*here).order_by(*order))]

    @reading
    def samples(self, connection: Connection, pattern: str | None = None) -> list[Sample]:
        here = [samples.c.job == self.job]
        if pattern is not None:
            here.append(samples.c.pattern == pattern)
        query = select(samples).where(*here).order_by(samples.c.at.desc(), samples.c.id.desc())
        return [_sample(row) for row in connection.execute(query)]

    @reading
    def now_s(self, connection: Connection) -> float:
        return seconds(connection)

    # ── windows ──

    def _sweep(self, connection: Connection) -> None:
        with self._sweeping:
            now = seconds(connection)
            if now - self._swept_at < _SWEEP_S:
                return
            self._swept_at = now
        old = windows.c.begun_at < now - WINDOWS_KEPT_S
        connection.execute(delete(windows).where(windows.c.job == self.job, old))

    def _window_row(self, window: Window) -> dict[str, Any]:
        counts = {name: getattr(window, name) for name in _COUNTED}
        counts["found"] = [
            [key.kind, key.part, key.attribute, number] for key, number in window.found.items()
        ]
        in_columns = {name: getattr(window, name) for name in _IN_COLUMNS}
        return {"job": self.job, "counts": json.dumps(counts, sort_keys=True), **in_columns}

    # ── samples ──

    def _keep_samples(self, connection: Connection, new_samples: Sequence[Sample]) -> None:
        if not new_samples:
            return
        rows = [
            {
                "job": self.job,
                "pattern": entry.pattern,
                "kind": _digest(entry.key),
                "at": entry.at,
                "content": json.dumps(asdict(entry)),
            }
            for entry in new_samples
        ]
        connection.execute(insert(samples), rows)
        for pattern, kind in sorted({(row["pattern"], row["kind"]) for row in rows}):
            here = (samples.c.job == self.job, samples.c.pattern == pattern, samples.c.kind == kind)
            self._drop_older(connection, here)

    def _drop_older(self, connection: Connection, here: Sequence[ColumnElement[bool]]) -> None:
        newest = select(samples.c.id).where(*here).order_by(samples.c.at.desc(), samples.c.id.desc())
        old = connection.execute(newest.offset(SAMPLES_KEPT).limit(1_000_000)).scalars().all()
        if old:
            connection.execute(delete(samples).where(samples.c.id.in_(old)))


# ── as JSON ──


def _window(row: Row[Any]) -> Window:
    """Raises: SettingsError for invalid content. Ignores counts of a newer migrator."""
    in_columns = {name: getattr(row, name) for name in _IN_COLUMNS}
    try:
        counts = json.loads(row.counts)
        found = {
            DiffKey(kind, part, attribute): number for kind, part, attribute, number in counts.pop("found")
        }
        # Only the counts are checked: the columns have the database's types.
        return replace(convert({**counts, **_NO_COLUMNS}, Window), found=found, **in_columns)
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError):
        at = moment(row.begun_at)
        what = f"the journal's window of pattern {row.pattern} of {at} by {row.writer} cannot be read"
        raise SettingsError(f"{what}; was it edited? Delete its row of migrator_window") from None


def _sample(row: Row[Any]) -> Sample:
    """Raises: SettingsError for invalid content. Ignores fields of a newer migrator."""
    try:
        kept = convert(json.loads(row.content), Sample)
        for side in (kept.row, kept.item):
            dict(zip(kept.attributes, kept.attributes if side is None else side, strict=True))
    except (ValidationError, ValueError):
        what = f"the journal's sample of pattern {row.pattern} of {moment(row.at)} cannot be read"
        raise SettingsError(
            f"{what}; was it edited? Delete its row (id {row.id}) of migrator_sample"
        ) from None
    return kept


def _digest(key: DiffKey) -> bytes:
    return blake2b(json.dumps([key.kind, key.part, key.attribute]).encode(), digest_size=16).digest()
