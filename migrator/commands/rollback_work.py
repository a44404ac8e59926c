"""`migrator cutover rollback`: SQL answers again; from complete once rows are the truth again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import click
from msgspec import Struct

from migrator.cli import options as cli
from migrator.cli.runs import known_revision
from migrator.commands.capture_work import register
from migrator.commands.cutover_work import (
    fit_reason,
    known_patterns,
    need_pattern,
    pattern_names,
    print_moves,
    refuse_moved,
)
from migrator.mapping.model.evidence import Line, PatternPhase, State
from migrator.mapping.model.live import ReverseJournal, RowsVerified, StreamJournal
from migrator.runtime.errors import CLEAN, Interrupted, RefusedError, SettingsError, amount, verb
from migrator.runtime.retry import running_s
from migrator.runtime.values import replace
from migrator.stages.cutover.moves import Cutover
from migrator.stages.cutover.rollback import (
    REVERSE_ENDED,
    WAY_BACK,
    GoingBack,
    Owning,
    dropped_attributes,
    named,
    quiet,
)
from migrator.stages.reverse.daemon import ReverseDaemon, ReverseStatus, WhileDirect, status_of
from migrator.stages.session.evidence import EvidenceGatherer, gatherer_of
from migrator.stages.session.job import ONCE
from migrator.stages.session.reverse import ReverseEdges, keep_direct, remembered_of, shards_of
from migrator.stages.session.session import JobSession

_LOOK_S = 0.5
_ENDS_WITHIN_S = 120.0
"""In addition to their lease: how long to wait for processes of reverse that were asked to stop."""

# ── SQL answers again: by the journal alone, but from complete ──


@cli.belonging(keeps=True)
def rollback(session: JobSession, pattern: str | None, every: bool, to: str | None, **options: Any) -> int:
    if every == (pattern is not None):
        raise click.UsageError("name one pattern, or pass --all")
    if every and (options["shown"] is not None or options["unwritten"] or options["drop_attributes"]):
        raise click.UsageError("--from, --unwritten and --drop-attributes go with one pattern")
    fit_reason(options["reason"])
    read = session.job
    after = None if to is None else State("shadow") if to == "shadow" else State("off")
    phases = session.phases.all()
    if pattern is not None:
        need_pattern(pattern, [*known_patterns(read), *phases])
    stage = Cutover(session.phases, options["who_"], known_revision(read) or "")
    if pattern is not None:
        phase = stage.phase(pattern)
        refuse_moved(phase, options["shown"])
        if phase.state.phase == "complete" and not phase.fault:
            need_pattern(pattern, pattern_names(read))
            back = BackOptions(
                *(after, options["reason"], options["settle_s"], options["yes"], options["as_json"]),
                frozenset(options["unwritten"]),
                options["drop_attributes"],
            )
            moved, code = [_moved_pattern(phase, back_from_complete(session, stage, phase, back))], CLEAN
        elif options["unwritten"] or options["drop_attributes"]:
            raise click.UsageError("--unwritten and --drop-attributes go with a pattern that is complete")
        else:
            moved, code = [_back(stage, phase, after, options["reason"])], CLEAN
    else:
        moved, code = _all_back(stage, phases, after, options["reason"])
    # All of them are moved before any reader is waited for: one that hangs must not delay the rollback of
    # others.
    late = print_moves(session, moved, as_json=options["as_json"], wait=options["wait"], as_list=every)
    if not moved and not code and not options["as_json"]:
        cli.print_folded("nothing to roll back: SQL answers every pattern, or it is complete")
    return max(code, late)


def _all_back(
    stage: Cutover, phases: Mapping[str, PatternPhase], after: State | None, reason: str
) -> tuple[list[tuple[dict[str, Any], PatternPhase]], int]:
    """The moves, and the exit code of the others, which a pattern moved elsewhere meanwhile does not stop."""
    moved, code = [], CLEAN
    # Those that the table answers, and those that are compared if all go to off.
    moved_back = {"ramp", "live"} | ({"shadow"} if after == State("off") else set())
    for _, phase in sorted(phases.items()):
        if not (phase.fault or phase.state.phase in moved_back):
            continue
        try:
            moved.append(_back(stage, phase, after or State("shadow"), reason))
        except SettingsError as error:
            cli.say(f"error: {error}")
            code = max(code, error.exit_code)
    return moved, code


def _back(
    stage: Cutover, phase: PatternPhase, after: State | None, reason: str
) -> tuple[dict[str, Any], PatternPhase]:
    if phase.fault:
        cli.say(f"warning: {phase.fault}")
    return _moved_pattern(phase, stage.roll_back(phase, after, reason))


def _moved_pattern(phase: PatternPhase, moved: PatternPhase) -> tuple[dict[str, Any], PatternPhase]:
    data = {"pattern": phase.pattern, "from": str(phase.state), "to": str(moved.state)}
    return data | {"moved": moved.version != phase.version}, moved


# ── from complete ──


class BackOptions(Struct, frozen=True):
    """`settle_s`: as in `migrator reverse start`.
    `yes`: the stop of services is already confirmed.
    `unwritten`: entities that no service wrote itself, by the operator's word.
    `drops`: attributes that no row keeps may be lost, likewise.
    """

    to: State | None
    reason: str
    settle_s: float
    yes: bool
    as_json: bool
    unwritten: frozenset[str]
    drops: bool

    def need_stopped(self, names: Collection[str]) -> None:
        """Confirm that services have stopped, which the journal cannot know of those that write only DynamoDB.

        Raises: RefusedError; SettingsError without a terminal.
        """
        of = ", ".join(sorted(names))
        what = f"every service that writes {of} has stopped, and none writes to SQL before this command has ended"
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise SettingsError(f"confirm that {what}, or pass --yes")
        cli.need_yes(f"{what}. Is it so?")


def back_from_complete(
    session: JobSession, stage: Cutover, phase: PatternPhase, options: BackOptions
) -> PatternPhase:
    """Make SQL the source of answers again. After any failure the same command continues.

    Raises: RefusedError if the evidence is against it; the error of an edge that gave up.
    """
    job = session.job
    with ExitStack() as stack:
        stack.enter_context(cli.stop_on_signals(session.stop))
        lease = stack.enter_context(session.lease(WAY_BACK))
        session = stack.enter_context(session.another("cutover", live_patience=ONCE))
        gatherer, ownership = gatherer_of(session), session.ownership
        recorded, reads = session.on_record().direct, gatherer.entities_of(phase.pattern)
        handed = recorded - set(job.direct)
        if stays := sorted((reads & recorded) - handed):
            what = f"pattern {phase.pattern} reads {', '.join(stays)}, which the service writes itself"
            raise SettingsError(f"{what}; take it out of writes.direct of the job first (see docs/after.md)")
        # Where every pattern is complete a service may have written any item, and after this move rows count again for all.
        doubted = set(ownership.mapping.entities) - set(job.direct) if ownership.is_service() else set(handed)
        _refuse_strange(options.unwritten, doubted - handed)
        lines: Sequence[Line] = ()
        if doubted:
            names = frozenset(doubted - options.unwritten)
            lines = _proven(gatherer, names, options, is_drained=bool(handed))
            options.need_stopped(doubted)
            back = _Back(session, gatherer.table_id, recorded, handed, names, options)
            owned = back.steps(lease.check).run()
            lines = [*lines, *back.dropped]
            cli.say(f"{amount(owned, 'item')} that services wrote {verb(owned, 'follow')} the rows again")
        lease.check()
        return stage.go_back(phase, options.to, options.reason, lines)


def _refuse_strange(unwritten: Collection[str], may_be: Collection[str]) -> None:
    if strange := sorted(set(unwritten) - set(may_be)):
        known = f"it may be {', '.join(sorted(may_be))}" if may_be else "here it goes with no entity"
        raise SettingsError(f"--unwritten {', '.join(strange)}: {known}")


def _proven(
    gatherer: EvidenceGatherer, names: Collection[str], options: BackOptions, *, is_drained: bool
) -> Sequence[Line]:
    lines = gatherer.back_lines(names, options.unwritten, is_drained=is_drained)
    cli.print_evidence(lines, every=False, console=cli.console_on(sys.stderr) if options.as_json else None)
    if unproven := [line.name for line in lines if line.verdict != "ok"]:
        raise RefusedError(f"refused: not proven: {', '.join(unproven)}. Nothing was changed")
    return lines


class _Back(Struct, frozen=True):
    """`recorded`: entities that are direct by the journal.
    `handed`: those no longer direct by the job.
    `names`: those whose rows and items must be equal.
    """

    session: JobSession
    table_id: str
    recorded: frozenset[str]
    handed: frozenset[str]
    names: Collection[str]
    options: BackOptions
    dropped: list[Line] = []
    """Attributes that no row keeps, for the audit."""

    def steps(self, check: Callable[[], None]) -> GoingBack:
        drain, look = (self.drain, self.look) if self.handed else (None, None)
        compare, move_counters = (self.compare, self.move_counters) if self.names else (None, None)
        steps = (drain, compare, move_counters, self.capture, self.own, look, self.keep)
        return GoingBack(self.options.drops, check, *steps)

    def edges(self, names: Collection[str]) -> ReverseEdges:
        return ReverseEdges(self.session, names)

    # ── writes of services ──

    def drain(self) -> ReverseStatus:
        """Make rows of everything written; for `quiet`, nothing else may be written."""
        self._end_others()
        self._work_once()
        self._pause(self.session.job.cutover.quiet_s)
        self._work_once(f"Nothing was changed. {REVERSE_ENDED}")
        status = self._status()
        tables = self.edges(self.names).tables
        return replace(status, waiting=[one for one in status.waiting if one.row[0] in ("", *tables)])

    def look(self) -> None:
        """Check that no one wrote since: the last moment at which running the command again repairs that."""
        self._work_once(f"The record and the pattern were not changed. {REVERSE_ENDED}")

    def _end_others(self) -> None:
        began_at, is_told = running_s(), False
        limit_s = self.session.job.tuning.lease_s + _ENDS_WITHIN_S
        _, remembered = self._journals()
        remembered.ask_to_stop()
        while count := self._status().processes:
            if running_s() - began_at > limit_s:
                what = f"refused: {amount(count, 'process')} of `migrator reverse` did not end within {limit_s:.0f} s"
                raise RefusedError(
                    f"{what}; stop what restarts them, and run the command again. No row, item or record was changed"
                )
            if not is_told:
                cli.say(f"{amount(count, 'process')} of `migrator reverse` asked to stop; waiting")
                is_told = True
            self._pause(_LOOK_S)
            remembered.ask_to_stop()

    def _work_once(self, quiet_or: str = "") -> None:
        """`quiet_or`: refuse what services still write, with this advice."""
        (shards, remembered), tables = self._journals(), self.edges(self.names).tables.keys()
        edges, stop = self.edges(self.recorded), self.session.stop
        with edges.stage(self.options.settle_s) as stage:
            work = WhileDirect(stage, self.recorded, lambda: self.session.on_record().direct)
            types = {design.design.type for design in self.edges(self.names).inverse.designs}
            design = self.session.target.design
            reader = edges.reader(quiet(work, design, types, quiet_or) if quiet_or else work, shards)
            ReverseDaemon(reader, work, shards, stop, True, stop.wait, remembered.now(), tables).run()

    def _journals(self) -> tuple[StreamJournal, ReverseJournal]:
        return shards_of(self.session), remembered_of(self.session)

    def _status(self) -> ReverseStatus:
        return status_of(*self._journals())

    # ── rows are the truth ──

    def compare(self) -> RowsVerified:
        edges = self.edges(self.names)
        with edges.stage(self.options.settle_s) as stage, cli.progress() as shown:
            compared = edges.verify(stage, shown, self.options.settle_s).run()
        if names := dropped_attributes(compared.unkept):
            what = f"no row keeps {', '.join(names)}: --drop-attributes"
            self.dropped.append(Line("attributes", "rows keep all that items have", what, "ok"))
        return compared

    def move_counters(self) -> None:
        self.edges(self.names).move_counters()

    def capture(self) -> None:
        session = self.session
        with session.open_live("cutover") as live:
            capture = session.capture_by(live)
            capture.refuse(session.plans)
            register(session, go_back=False, take_back=True)
            capture.install(session.plans)

    def own(self) -> int:
        with self.session.open_concurrent() as edges:
            edges.guard()
            lease = edges.heartbeats.enter("conditional")
            owning = edges.under(lease.check)
            entities = named(owning.entities, self.names)
            with owning.target.stripping() as owner:
                owned = Owning(
                    owning.refresh(lease.check),
                    self.session.source.at_primary().read_page,
                    owning.target.store.get,
                    owner.own,
                    entities,
                ).run()
            edges.heartbeats.leave(lease, clean=True)
        return owned

    def keep(self) -> None:
        keep_direct(self.session, self.table_id)

    def _pause(self, wait_s: float) -> None:
        if self.session.stop.wait(wait_s):
            raise Interrupted("stopped; nothing was moved, and the same command resumes")
