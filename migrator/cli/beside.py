"""On which path a backfill writes: alone, alone while changes leave marks (fast), or beside other writers (conditional)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event

import click

from migrator import live_wiring
from migrator.cli.runs import Session
from migrator.errors import SettingsError
from migrator.journal.writers import SqlWriters
from migrator.live_wiring import Beside
from migrator.stages.capture import own_installation
from migrator.stages.claims import Claims
from migrator.stages.lifetimes import Presence
from migrator.stages.paths import BesidePath, FastPath, PagePath
from migrator.wiring import Laid

_SAID = {
    "fast": "path: fast; nobody else writes items yet, and every change since leaves a mark for the relay",
    "conditional": "path: conditional; a relay (or a strict service) writes too, so nothing newer is replaced",
}


@dataclass
class Surroundings:
    """What a backfill finds around it. `installation`: of capture; '' where changes leave no marks."""

    installation: str = ""
    beside: Beside | None = None
    presence: Presence | None = None

    def path(self, session: Session, claims: Claims) -> PagePath | None:
        """None: the plain path of a backfill that nobody captures beside."""
        if self.beside is None or self.presence is None:
            return None
        check = both(session.check, self.presence.check)
        if self.presence.writer.kind == "conditional":
            self.beside.target.store.check = check
            return BesidePath(self.beside.refresh(check))
        session.store.check = check  # type: ignore[attr-defined]
        remembered = frozenset(name for name, one in self.beside.entities.items() if one.remembered)
        claims.memory = self.beside.memory
        stage = self.beside
        return FastPath(
            session.store, claims, live_wiring.now_s, check, session.objects, stage.memory, remembered
        )


def look_around(stack: ExitStack, laid: Laid, session: Session, stop: Event) -> Surroundings:
    """Enters the run among the writers, if changes are captured; leaves when the stack unwinds.

    Raises: SettingsError where others write and nothing captures what changes.
    """
    if session.target is None:
        return Surroundings()
    with live_wiring.open_live(laid.job, "backfill", stop=stop.is_set) as live:
        installation = live.capture.installation()
        if installation is not None:
            own_installation(live.capture, laid.job.name)
    if installation is None:
        if SqlWriters(session.journal.database, session.table_id).is_closed():
            what = (
                "a relay or a strict service has written to this table, and capture is not installed any more"
            )
            raise SettingsError(f"{what}: what changes would be missed; run `migrator capture install` first")
        return Surroundings()
    opened = live_wiring.open_beside(laid, session.target, session.journal, session.table_id, stop.is_set)
    beside = stack.enter_context(opened)
    tell_lost_journal(beside)
    presence = beside.presences.enter("fast")
    stack.push(lambda kind, *_: beside.presences.leave(presence, clean=kind is None))
    click.echo(_SAID[presence.writer.kind], err=True)
    return Surroundings(installation.id, beside, presence)


def tell_lost_journal(beside: Beside) -> None:
    """Guards the tickets, and says it where the table knows of writers that the journal knows nothing of."""
    if beside.guard_tickets():
        what = "warning: a relay has written to this table with another journal than this one, which knows nothing of it"
        advice = "name that journal in the job; if it is lost, run `migrator verify --repair`, then `migrator relay`"
        click.echo(f"{what}: item keys that it remembered are missed; {advice}", err=True)


def both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    """A check that is made of two."""

    def check() -> None:
        one()
        other()

    return check
