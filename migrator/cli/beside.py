"""On which path a backfill writes: alone, alone while changes leave marks (fast), or beside other writers (conditional)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Event

import click

from migrator import live_wiring
from migrator.cli.instances import tell_unmarked
from migrator.cli.runs import Session
from migrator.errors import SettingsError
from migrator.live_wiring import Beside
from migrator.ports import Source
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
        """None: a dry run's."""
        if self.beside is None or self.presence is None:
            return None
        check = both(session.check, self.presence.check)
        if self.presence.writer.kind == "conditional":
            return BesidePath(self.beside.refresh(check))
        path = partial(FastPath, session.store, claims, live_wiring.now_s, check, session.objects)
        if not self.installation:
            return path()
        claims.memory = self.beside.memory
        remembered = frozenset(name for name, one in self.beside.entities.items() if one.remembered)
        return path(self.beside.memory, remembered)

    def source(self, laid: Laid) -> Source:
        """Where pages are read: beside others only where every ticket is already known."""
        conditional = self.presence is not None and self.presence.writer.kind == "conditional"
        return laid.source.at_primary() if conditional else laid.source


def look_around(stack: ExitStack, laid: Laid, session: Session, stop: Event) -> Surroundings:
    """Enters the run among the writers, so that a relay that starts waits for it; it leaves when the stack unwinds.

    Raises: SettingsError where others write and nothing captures what changes.
    """
    if session.target is None:
        return Surroundings()
    opened = live_wiring.open_beside(laid, session.target, session.journal, session.table_id, stop.is_set)
    beside = stack.enter_context(opened)
    installation = live_wiring.found_installation(beside.live, laid)
    if installation is not None:
        tell_lost_journal(beside)
        tell_unmarked(laid.job, session.journal, installation)
    presence = beside.presences.enter("fast")
    stack.push(lambda kind, *_: beside.presences.leave(presence, clean=kind is None))
    if installation is not None:
        click.echo(_SAID[presence.writer.kind], err=True)
    elif presence.writer.kind != "fast":
        what = "a relay or a strict service has written to this table, and capture is not installed any more"
        raise SettingsError(f"{what}: what changes would be missed; run `migrator capture install` first")
    return Surroundings("" if installation is None else installation.id, beside, presence)


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
