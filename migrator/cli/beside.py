"""On which path a backfill writes: alone, alone while changes leave marks (fast), or beside other writers (conditional)."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event

import click

from migrator import live_wiring
from migrator.cli.instances import tell_unmarked
from migrator.cli.runs import Session
from migrator.errors import Interrupted, OldRevisionError, SettingsError
from migrator.journal.store import SqlJournal
from migrator.live_wiring import Beside, both
from migrator.ports import Rows
from migrator.ports.capture import Installation
from migrator.ports.live import Memory
from migrator.ports.revisions import Standing
from migrator.settings import Job
from migrator.stages.claims import Claims
from migrator.stages.lifetimes import Presence, outlive
from migrator.stages.paths import BesidePath, FastPath, PagePath, PutsAmongOthers
from migrator.wiring import Laid

_SAID = {
    "fast": "path: fast; nobody else writes items yet, and every change since leaves a mark for the relay",
    "conditional": "path: conditional; a relay (or a strict service) writes too, so nothing newer is replaced",
}


_UNCAPTURED = (
    "capture is not installed: right for a source that stands still. What changes from now on leaves no mark, and items of"
    " rows that are deleted stay; where services write, run `migrator capture install` first, or `migrator verify --repair`"
    " after it"
)


@dataclass
class Surroundings:
    """What a backfill finds around it. `installation`: of capture; '' where changes leave no marks."""

    installation: str = ""
    beside: Beside | None = None
    presence: Presence | None = None

    def path(self, laid: Laid, session: Session) -> PagePath:
        if self.beside is None or self.presence is None:
            claims = _claims(laid, session, None)
            return FastPath(
                session.store, claims, time.time, session.check, session.objects, None, frozenset()
            )
        check = both(session.check, self.presence.check)
        if self.presence.writer.kind == "conditional":
            return BesidePath(self.beside.refresh(check), self.beside.open_findings)
        target = self.beside.target
        store = PutsAmongOthers(self.beside.store, target.design) if session.is_shared else target.store
        memory = self.beside.memory if self.installation else None
        remembered = frozenset(name for name, one in self.beside.entities.items() if one.remembered)
        claims = _claims(laid, session, memory)
        return FastPath(store, claims, live_wiring.now_s, check, session.objects, memory, remembered)

    def source(self, laid: Laid) -> Rows:
        """Where pages are read: beside others only where every ticket is already known."""
        conditional = self.presence is not None and self.presence.writer.kind == "conditional"
        return laid.source.at_primary() if conditional else laid.source


def _claims(laid: Laid, session: Session, memory: Memory | None) -> Claims:
    entities = {entity.name: entity for entity in laid.checked.entities}
    unproved = laid.checked.unproved
    return Claims(session.journal, laid.source, entities, unproved, session.table_id, memory=memory)


def look_around(stack: ExitStack, laid: Laid, session: Session, stop: Event) -> Surroundings:
    """Enters the run among the writers, so that a relay that starts waits for it; it leaves when the stack unwinds.

    Raises: SettingsError where others write and nothing captures what changes.
    """
    if session.target is None:
        return Surroundings()
    opened = live_wiring.open_beside(laid, session.target, session.journal, session.table_id, stop.is_set)
    beside = stack.enter_context(opened)
    live_wiring.refuse_old(laid, session.journal)
    installation = live_wiring.found_installation(beside.live, laid)
    if installation is not None:
        beside.guard()
        tell_unmarked(laid.job, session.journal, installation)
    begin_revision(beside, stop)
    presence = beside.presences.enter("fast")
    # Whoever was told in place of a request that another mapping is the newest has none under way.
    stack.push(
        lambda kind, *_: beside.presences.leave(
            presence, clean=kind is None or issubclass(kind, OldRevisionError)
        )
    )
    if installation is not None:
        click.echo(_SAID[presence.writer.kind], err=True)
        tell_unverified(session.journal, laid.job, installation)
    elif presence.writer.kind != "fast":
        what = "a relay or a strict service has written to this table, and capture is not installed any more"
        raise SettingsError(f"{what}: what changes would be missed; run `migrator capture install` first")
    else:
        click.echo(_UNCAPTURED, err=True)
    return Surroundings("" if installation is None else installation.id, beside, presence)


def tell_unverified(journal: SqlJournal, job: Job, installation: Installation) -> None:
    """Says it where what changed between a backfill and the install of capture has not been looked for."""
    if what := live_wiring.unverified(journal, job, installation):
        click.echo(f"warning: {what}", err=True)


def begin_revision(beside: Beside, stop: Event) -> None:
    """Makes this mapping the one that the job's writers work by, where none has yet, and waits for those of another one.

    Raises: OldRevisionError where the job has gone on from it; Interrupted.
    """
    presences = beside.presences
    tell_registered(live_wiring.revisions_of(beside.laid, beside.journal).register())
    if presences.revisions.old(presences.writers.living(beside.lifetimes.gone_s)):
        what = f"writers by another mapping are waited for, {beside.lifetimes.gone_s:g} s at most"
        click.echo(what, err=True)

    def wait(wait_s: float) -> None:
        if stop.wait(wait_s):
            raise Interrupted("stopped before it began")

    outlive(presences.writers, presences.revisions, beside.lifetimes, wait)


def tell_registered(before: Standing) -> None:
    """Says that the job has gone on to this mapping, where it has."""
    if before in ("new", "old"):
        verb = "goes on" if before == "new" else "goes back"
        what = f"the job {verb} to this mapping (or to these columns): whoever writes by another one is told to stop"
        rest = "start relays and services anew; rows that do not change keep their items until `migrator backfill`"
        click.echo(f"{what}; {rest}", err=True)
