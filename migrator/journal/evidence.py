"""Evidence of comparisons and verifications, kept by minute and by run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from hashlib import blake2b
from threading import Lock
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select

from migrator.journal.database import Database, insert_or_ignore, insert_or_replace, repeatable, seconds
from migrator.journal.schema import page, run, run_capture, verified_look
from migrator.journal.schema import sample as samples
from migrator.journal.schema import window as windows
from migrator.model.durations import moment
from migrator.model.errors import SettingsError
from migrator.model.evidence import SAMPLES_KEPT, WINDOWS_KEPT_S, DiffKey, Sample, Window
from migrator.model.journal import Run
from migrator.model.live import ActivityCounts

# ── What was compared, minute by minute, with samples of what differed ──

_SWEEP_S = 3600.0
"""How often one process looks for windows that are too old."""
_IN_COLUMNS = ("pattern", "begun_at", "writer", "service", "revision", "origin")
_NUMBERS = ("compared", "same", "transient", "different")
_COUNTED = [one.name for one in fields(Window) if one.name not in (*_IN_COLUMNS, "found")]


class SqlEvidence:
    """model.evidence.Evidence of one job. Safe to share between threads."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job
        self._swept_at = 0.0
        self._sweeping = Lock()

    @repeatable
    def keep(self, windows: Sequence[Window], samples: Sequence[Sample]) -> None:
        # In one order: two who keep the same windows wait for each other, and do not lock each other out.
        rows = [self._window_row(one) for one in sorted(windows, key=_place)]
        with self.database.begin() as connection:
            self._sweep(connection)
            _keep_windows(connection, rows)
            self._keep_samples(connection, samples)

    @repeatable
    def windows(self, since: float, pattern: str | None = None) -> list[Window]:
        here = [windows.c.job == self.job, windows.c.begun_at >= since]
        if pattern is not None:
            here.append(windows.c.pattern == pattern)
        order = (windows.c.begun_at, windows.c.pattern, windows.c.writer)
        with self.database.begin() as connection:
            return [_window(row) for row in connection.execute(select(windows).where(*here).order_by(*order))]

    @repeatable
    def samples(self, pattern: str | None = None) -> list[Sample]:
        here = [samples.c.job == self.job]
        if pattern is not None:
            here.append(samples.c.pattern == pattern)
        query = select(samples).where(*here).order_by(samples.c.at.desc(), samples.c.id.desc())
        with self.database.begin() as connection:
            return [_sample(row) for row in connection.execute(query)]

    @repeatable
    def now_s(self) -> float:
        with self.database.begin() as connection:
            return seconds(connection)

    # ── windows ──

    def _sweep(self, connection: Connection) -> None:
        """Drops windows that are too old, now and then: nobody would notice it sooner."""
        with self._sweeping:
            now = seconds(connection)
            if now - self._swept_at < _SWEEP_S:
                return
            self._swept_at = now
        self._drop(connection, now - WINDOWS_KEPT_S)

    def _drop(self, connection: Connection, before: float) -> int:
        old = delete(windows).where(windows.c.job == self.job, windows.c.begun_at < before)
        return connection.execute(old).rowcount

    def _window_row(self, one: Window) -> dict[str, Any]:
        return {"job": self.job, "counts": _counts_text(one)} | {
            name: getattr(one, name) for name in _IN_COLUMNS
        }

    # ── samples ──

    def _keep_samples(self, connection: Connection, found: Sequence[Sample]) -> None:
        if not found:
            return
        rows = [
            {
                "job": self.job,
                "pattern": one.pattern,
                "kind": _digest(one.key),
                "at": one.at,
                "content": json.dumps(asdict(one)),
            }
            for one in found
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


def _keep_windows(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(insert_or_replace(connection, windows), list(rows))


def _place(one: Window) -> tuple[str, int, str]:
    return one.pattern, one.begun_at, one.writer


# ── as JSON ──


def _counts_text(window: Window) -> str:
    counts = {name: getattr(window, name) for name in _COUNTED}
    counts["found"] = [[key.kind, key.part, key.attribute, number] for key, number in window.found.items()]
    return json.dumps(counts, sort_keys=True)


def _window(row: Row[Any]) -> Window:
    """Raises: SettingsError where the text is none of ours. What a newer migrator counts beside is left out."""
    try:
        counts = json.loads(row.counts)
        found = {DiffKey(kind, part, attribute): number for kind, part, attribute, number in counts["found"]}
        known = {name: _as_kept(name, counts[name]) for name in _COUNTED if name in counts}
    except (ValueError, TypeError, KeyError, AttributeError):
        at = moment(row.begun_at)
        what = f"the journal's window of pattern {row.pattern} of {at} by {row.writer} cannot be read"
        raise SettingsError(f"{what}; was it edited? Delete its row of migrator_window") from None
    return Window(**{name: getattr(row, name) for name in _IN_COLUMNS}, found=found, **known)


def _as_kept(name: str, value: Any) -> Any:
    """Raises: TypeError, ValueError where it is nothing that a window holds under this name."""
    if name in _NUMBERS:
        return int(value)
    return {str(key): str(one) if name == "latency" else int(one) for key, one in value.items()}


def _sample(row: Row[Any]) -> Sample:
    """Raises: SettingsError where the text is none of ours. What a newer migrator keeps beside is left out."""
    known = {one.name for one in fields(Sample)}
    try:
        content: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(row.content).items()
            if name in known
        }
        content |= {"key": DiffKey(**content["key"]), "at": float(content["at"])}
        found = Sample(**content | {"params": {**content.get("params", {})}})
        for side in (found.row, found.item):
            dict(zip(found.attributes, found.attributes if side is None else side, strict=True))
    except (ValueError, TypeError, KeyError, AttributeError):
        what = f"the journal's sample of pattern {row.pattern} of {moment(row.at)} cannot be read"
        raise SettingsError(
            f"{what}; was it edited? Delete its row (id {row.id}) of migrator_sample"
        ) from None
    return found


def _digest(key: DiffKey) -> bytes:
    return blake2b(json.dumps([key.kind, key.part, key.attribute]).encode(), digest_size=16).digest()


# ──
# What is known of runs that began before: what the source counted then, which capture was there, how long
# ago.

_KEPT = ("tables", "whole", "source", "blind")


def keep_look(database: Database, run_id: int, look: ActivityCounts) -> None:
    """Keeps the first look of a run; one that goes on after a stop has read rows since then."""
    row = {"run_id": run_id, "look": json.dumps({name: getattr(look, name) for name in _KEPT})}

    def keep() -> None:
        with database.begin() as connection:
            connection.execute(insert_or_ignore(connection, verified_look), row)

    database.tried(keep, twice=True)


def look_before(database: Database, run_id: int) -> ActivityCounts | None:
    """The look that the run began with; None where nobody looked."""
    query = select(verified_look.c.look).where(verified_look.c.run_id == run_id)

    def read() -> str | None:
        with database.begin() as connection:
            return connection.execute(query).scalar()

    text = database.tried(read, twice=True)
    return None if text is None else ActivityCounts(**{name: json.loads(text)[name] for name in _KEPT})


def idle_s(database: Database, of: Run) -> float:
    """Seconds since a run was last seen at work, by the journal's clock."""
    query = select(func.max(page.c.done_at)).where(page.c.run_id == of.id)

    def read() -> float:
        with database.begin() as connection:
            last_page = connection.execute(query).scalar()
            seen = max(of.started_at, of.ended_at or "", last_page or "")
            return seconds(connection) - datetime.fromisoformat(seen).timestamp()

    return database.tried(read, twice=True)


def keep_installation(database: Database, run_id: int, installation: str) -> None:
    """Keeps which installation of capture ('' for none) a run began with; one that goes on has read rows since then."""
    row = {"run_id": run_id, "installation": installation}

    def keep() -> None:
        with database.begin() as connection:
            connection.execute(insert_or_ignore(connection, run_capture), row)

    database.tried(keep, twice=True)


def installation_of(database: Database, run_id: int) -> str | None:
    """What keep_installation kept; None where an older version began the run."""
    query = select(run_capture.c.installation).where(run_capture.c.run_id == run_id)

    def read() -> str | None:
        with database.begin() as connection:
            found: str | None = connection.execute(query).scalar()
        return found

    return database.tried(read, twice=True)


def unverified_run(database: Database, job: str, installation: str) -> int | None:
    """The last backfill into the job's table that began without this installation of capture, and that no full verify
    beside it has looked at since; None where there is none, or where nothing of it is left."""
    return database.tried(lambda: _unverified_run(database, job, installation), twice=True)


def _unverified_run(database: Database, job: str, installation: str) -> int | None:
    begun = select(run.c.id, run.c.kind, run.c.table_id, run.c.state, run.c.scope, run_capture.c.installation)
    query = begun.join(run_capture, run_capture.c.run_id == run.c.id).where(run.c.job == job)
    with database.begin() as connection:
        rows = connection.execute(query.order_by(run.c.id.desc())).all()
        backfills = [one for one in rows if one.kind == "backfill"]
        before = [
            one
            for one in backfills
            if one.table_id == backfills[0].table_id and one.installation != installation
        ]
        done = select(page.c.run_id).where(page.c.done_at.is_not(None)).distinct()
        written = set(connection.execute(done.where(page.c.run_id.in_([one.id for one in before]))).scalars())
    last = next((one for one in before if one.id in written), None)
    if last is None:
        return None
    looked = [
        one.id
        for one in rows
        if (one.kind, one.state, one.scope) == ("verify", "done", "")
        and (one.table_id, one.installation) == (last.table_id, installation)
    ]
    return None if looked and looked[0] > last.id else int(last.id)
