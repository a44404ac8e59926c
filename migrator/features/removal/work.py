"""`migrator clean` and `decommission check`: delete items, tombstones, attributes, or one row's traces."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any

import click

from migrator.cli import options as cli
from migrator.cli import text as texts
from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import direct_line, instance_label
from migrator.cli.runs import RunEnd, known_revision
from migrator.mapping.check.check import Checked
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.plan import entities_of
from migrator.mapping.model.evidence import Line, PatternPhase
from migrator.mapping.model.journal import RunIdentity
from migrator.mapping.model.live import Root
from migrator.mapping.model.mapping import Mapping
from migrator.mapping.model.results import Forgotten, RowTraces, UndoCounts
from migrator.mapping.model.table import SourceKey
from migrator.runtime.errors import (
    CLEAN,
    DIFFERENT,
    Interrupted,
    SettingsError,
    StoppedError,
    amount,
    did_you_mean,
    verb,
)
from migrator.runtime.values import asdict
from migrator.stages.core.removal import STRIP_COUNTS, AnyRevision, Strip, Undo
from migrator.stages.cutover.dependence import before_the_end
from migrator.stages.process import begin
from migrator.stages.session.evidence import gatherer_of
from migrator.stages.session.forget import Forget
from migrator.stages.session.job import ONCE, Target
from migrator.stages.session.session import JobSession

# ── `migrator decommission`: what still depends on SQL, the steps that end it ──


@cli.belonging()
def check(session: JobSession, explain: bool, as_json: bool) -> int:
    read = session.job
    with cli.stop_on_signals(session.stop), session.another("decommission", live_patience=ONCE) as session:
        _, gatherer = session.table_id, gatherer_of(session)
        dependence = gatherer.dependence(with_tombstones=True)
        lines = before_the_end(dependence, read.cutover)
        unfinished = [name for name, view in dependence.phases.items() if view.state.phase != "complete"]
        ending = _steps(session, gatherer.old_tables, unfinished)
    is_green = all(line.verdict == "ok" for line in lines)
    if as_json:
        data = {
            "ok": is_green,
            "lines": [asdict(line) for line in lines],
            "steps": [asdict(step) for step in ending],
            "direct": read.direct,
        }
        print_json(data)
    else:
        cli.print_evidence(lines, every=True)
        if read.direct:
            cli.print_folded(direct_line(read.direct))
        if explain:
            for text in texts.step_lines(ending):
                cli.print_folded(text)
        advice = "" if explain else "; --explain prints how to end it"
        cli.print_folded(f"nothing depends on SQL{advice}" if is_green else f"not yet: {_first_fix(lines)}")
    return CLEAN if is_green else DIFFERENT


def _first_fix(lines: Sequence[Line]) -> str:
    failing = [line for line in lines if line.verdict != "ok"]
    fixes = [line.mend for line in failing]
    commands = (re.search(r"`migrator [^`]+`", fix) for fix in fixes)
    return next((command[0] for command in commands if command), "fix what is not ok")


def _steps(session: JobSession, tables: Sequence[str], unfinished: list[str]) -> list[texts.EndStep]:
    activity = session.live.activity
    uninstall = [text for step in session.live.capture.uninstall_steps() for text in step.statements]
    return texts.end_steps(
        str(session.path),
        unfinished,
        one_way=not session.source.takes_rows,
        read_only=activity.read_only(tables),
        uninstall=uninstall,
        drop=activity.drops(tables),
    )


def _need_answer(what: str, is_given: bool) -> None:
    if not (is_given or sys.stdin.isatty()):
        raise SettingsError(f"{what}: no terminal to ask on; pass --yes, or --dry-run to count")


@cli.belonging()
def strip(session: JobSession, dry_run: bool, yes: bool, as_json: bool) -> int:
    read, mapping = session.job, session.mapping
    _need_answer("--attributes changes every item", yes or dry_run)
    with ExitStack() as stack:
        stack.enter_context(cli.stop_on_signals(session.stop))
        target, table_id, journal = session.target, session.table_id, session.journal
        _refuse_early(session)
        names = _names(mapping)
        if dry_run:
            counts = _strip_stage(stack, session, target, names, target.store.check).count()
            return _tell(counts, as_json=as_json, dry_run=True)
        lease = stack.enter_context(session.lease())
        stage = _strip_stage(stack, session, target.fenced(lease.check), names, lease.check)
        if not yes:
            _need_yes_to_strip(stage.count(), target.design.name)
        identity = RunIdentity("strip", read.name, table_id, mapping.revision, f"segments={stage.segments}")
        run = begin(journal, identity, again=True, after=0)
        with RunEnd(journal.end_run, run, read.hooks):
            counts = stage.run(journal, run)
        return _tell(counts, as_json=as_json, dry_run=False)


def _strip_stage(
    stack: ExitStack, session: JobSession, target: Target, names: frozenset[str], check: Callable[[], None]
) -> Strip:
    stripping, tuning = stack.enter_context(target.stripping()), session.job.tuning
    segments, workers = tuning.scan_segments, tuning.workers
    return Strip(
        target.store, target.design, names, check, segments, workers, session.stop, stripping=stripping
    )


def _refuse_early(session: JobSession) -> None:
    """Raises: SettingsError while a pattern can roll back, or any writer of migrator may still write."""
    phases, service_registry = session.phases.all(), session.service_registry()
    moved = [phases.get(name, PatternPhase(name)) for name in session.mapping.patterns]
    if faults := [phase.fault for phase in moved if phase.fault]:
        raise SettingsError("; ".join(faults))
    early = [phase.pattern for phase in moved if phase.state.phase != "complete"]
    if early:
        raise SettingsError(
            f"this comes last, and not yet complete: {', '.join(early)}; see `migrator cutover status`"
        )
    gone_s = session.lifetimes.gone_s
    writers = session.writers.living(gone_s)
    named = [
        *(f"a {writer.kind}" for writer in writers),
        *(instance_label(writer) for writer in service_registry.marking),
    ]
    if named:
        what = f"this comes last, and these may still write: {', '.join(named)}"
        raise SettingsError(f"{what}; stop them, and wait {gone_s:g} s for those that were killed")


def _need_yes_to_strip(counts: Counter[str], table: str) -> None:
    items = amount(counts["items"], "item")
    what = f"Take our attributes out of {items} of table {table}, and delete {counts['own']:,} of our own?"
    cli.need_yes(f"{what} `migrator verify` and `migrator clean` will no longer know them.")


def _tell(counts: Counter[str], *, as_json: bool, dry_run: bool) -> int:
    items, stripped, own, removed, others = (counts[kind] for kind in STRIP_COUNTS)
    done, deleted = (items, own) if dry_run else (stripped, removed)
    would = "would be " if dry_run else ""
    cli.print_result(
        {kind: counts[kind] for kind in STRIP_COUNTS},
        f"{amount(done, 'item')} {would}stripped, {amount(deleted, 'tombstone or control item')} {would}deleted;"
        f" {amount(others, 'item')} of others {verb(others, 'are')} left alone",
        as_json=as_json,
    )
    return CLEAN


# ── `migrator clean --all-items`: a job's items, deleted from the table ──


@cli.belonging()
def undo(session: JobSession, entities: tuple[str, ...], yes: bool, as_json: bool, **how: bool) -> int:
    read, dry_run, mapping = session.job, how["dry_run"], session.mapping
    _need_answer("--all-items deletes items", yes or dry_run)
    with ExitStack() as stack:
        stack.enter_context(cli.stop_on_signals(session.stop))
        target, table_id, journal = session.target, session.table_id, session.journal
        chosen = _chosen(mapping, entities, read.direct, journal.writers(table_id).get(read.name, set()))
        _refuse_older_file(session, chosen - _names(mapping))
        _refuse_late(session, chosen, how)
        names = _own(session, chosen, named=bool(entities), force=how["force"])
        if dry_run:
            _print(
                _counted(_stage(session, target, names, target.store.check)), dry_run=True, as_json=as_json
            )
            return 0
        lease = stack.enter_context(session.lease())
        alone = target.fenced(_enter_alone(stack, session))
        stage = _stage(session, alone, names, lease.check)
        if not yes:
            _need_yes(_counted(stage), target)
        # Before the deletes: a crash between them leaves items with pages that are processed again; the other
        # order would leave pages that count as done without their items.
        journal.reopen_pages(read.name, table_id, sorted(names))
        _print(_deleted(stage), dry_run=False, as_json=as_json)
    return 0


def _counted(stage: Undo) -> UndoCounts:
    with cli.stopped_says(lambda: "stopped while it counted; nothing was deleted"):
        return stage.count()


def _deleted(stage: Undo) -> UndoCounts:
    def done() -> str:
        return f"{amount(stage.gone, 'item', 'are')} deleted; the others are still in the table"

    try:
        with cli.stopped_says(lambda: f"stopped; {done()}, and the same command deletes them"):
            return stage.delete()
    except StoppedError as error:
        raise StoppedError(f"{error}; {done()}") from None


def _refuse_late(session: JobSession, chosen: frozenset[str], how: dict[str, bool]) -> None:
    """Raises: SettingsError if the service may have written the items to delete, or callers read them.

    A dry run only warns.
    """
    try:
        ownership = session.ownership
        ownership.refuse_taken_out()
        if not how["force"]:
            ownership.refuse_complete()
            ownership.refuse_answering(chosen)
    except SettingsError as error:
        if not how["dry_run"]:
            raise
        cli.say(f"warning: undo itself would be refused: {error}")


def _enter_alone(stack: ExitStack, session: JobSession) -> Callable[[], None]:
    """The check of a writer's registration, kept until the stack unwinds.

    Raises: SettingsError if any other writer of the table is active.
    """
    heartbeats = stack.enter_context(session.heartbeats(AnyRevision()))
    writer_lease = heartbeats.enter("undo")
    stack.push(lambda kind, *_: heartbeats.leave(writer_lease, clean=kind is None))
    return heartbeats.check


def _own(session: JobSession, chosen: frozenset[str], *, named: bool, force: bool) -> frozenset[str]:
    """The wanted entities that this job, and no other one in the journal, wrote into the table.

    With `force` also those of another job; unrecorded ones only if `named`, or if the journal has no record:
    consent to one thing is not consent to another.
    Raises: SettingsError if none is left, if one that was `named` is not among them, or if another job also
    wrote one.
    """
    job, writers = session.job, session.journal.writers(session.table_id)
    own = chosen & writers.get(job.name, set())
    if force:
        return chosen if named or not own else own
    if not own or (named and own != chosen):
        missing = f" of {', '.join(sorted(chosen - own))}" if named else ""
        what = f"the journal has no backfill{missing} by job {job.name} into this table"
        raise SettingsError(f"{what}; name the journal that it used (journal:), or pass --force")
    for other, entities in sorted(writers.items()):
        if other != job.name and entities & own:
            what = f"job {other} wrote {', '.join(sorted(entities & own))} into this table also"
            advice = "undo other entities with --entity, or pass --force to delete the items of both"
            raise SettingsError(f"{what}, and _src does not name an item's job; {advice}")
    return own


def _names(mapping: Mapping) -> frozenset[str]:
    return frozenset(entity.name for entity in entities_of(mapping))


def _chosen(
    mapping: Mapping, names: tuple[str, ...], direct: Sequence[str], written: Collection[str]
) -> frozenset[str]:
    """The named entities; by default all of the mapping's that the service does not write itself.

    `written`: those that the job wrote, by its journal; the mapping may no longer have some.
    """
    all_names = [entity.name for entity in entities_of(mapping) if entity.written not in direct]
    for name in names:
        if name.partition("@")[0] in direct:
            raise SettingsError(
                f"the service writes {name} itself (writes.direct of the job): its items are not to be undone"
            )
        if name not in all_names and name not in written:
            what = f"the mapping has no entity '{name}', nor did this job write one into the table"
            raise SettingsError(f"{what}{did_you_mean(name, [*all_names, *written])}")
    return frozenset(names or all_names)


def _refuse_older_file(session: JobSession, gone: Collection[str]) -> None:
    """`gone`: entities missing in this mapping. Raises: SettingsError if the job's newest one may have them."""
    newest, job = session.newest(), session.job
    if gone and newest is not None and newest.revision.mapping != known_revision(job):
        what = (
            f"the mapping has no entity {', '.join(sorted(gone))}, and is not the one that the job works by"
        )
        raise SettingsError(f"{what}; make it the newest first: `migrator capture install {job.path}`")


def _stage(session: JobSession, target: Target, names: frozenset[str], check: Callable[[], None]) -> Undo:
    tuning, stop = session.job.tuning, session.stop
    return Undo(target.store, target.design, names, check, tuning.scan_segments, tuning.workers, stop)


def _need_yes(counts: UndoCounts, target: Target) -> None:
    texts.print_undo(cli.console_on(sys.stderr), counts, dry_run=True)
    cli.need_yes(f"Delete {amount(counts.items, 'item')} from table {target.design.name}?")


def _print(counts: UndoCounts, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(texts.undo_data(counts))
    else:
        texts.print_undo(cli.stdout(), counts, dry_run=dry_run)


# ── `migrator clean --row`: the traces of one row, deleted for good ──


@cli.belonging()
def forget(session: JobSession, entity: str, keys: tuple[str, ...], as_json: bool, **how: bool) -> int:
    _need_answer("--row removes traces for good", how["yes"] or how["dry_run"])
    with ExitStack() as stack:
        stack.enter_context(cli.stop_on_signals(session.stop))
        session = stack.enter_context(session.another("forget"))
        compiled = cli.entity_named(session.checked, entity)
        roots = _roots(session.checked, compiled, cli.row_key(compiled, keys))
        stage = _forget_stage(stack, session, roots, alone=not how["dry_run"])
        traces = stage.look()
        remaining = texts.what_remains(traces, in_s3=bool(compiled.contents))
        if how["dry_run"]:
            _print_forgotten(traces, None, remaining, as_json=as_json)
            return 0
        _refuse(traces, force=how["force"])
        if not how["yes"]:
            cli.say("\n".join(texts.traces_lines(traces)))
            cli.need_yes("Take these traces away for good?")
        done = stage.forget(traces)
        _print_forgotten(traces, done, remaining, as_json=as_json)
    return 0 if done.is_all else DIFFERENT


def _forget_stage(stack: ExitStack, session: JobSession, roots: Sequence[Root], *, alone: bool) -> Forget:
    is_captured = session.installation() is not None
    check = stack.enter_context(session.lease()).check if alone else session.target.store.check
    return Forget(session, roots, check, session.live if is_captured else None)


def _roots(checked: Checked, compiled: CompiledEntity, key: SourceKey) -> list[Root]:
    plan = compiled.plan
    others = [
        other.name
        for other in checked.entities
        if other.plan.table == plan.table
        and other.name != compiled.name
        and other.plan.key == plan.key
        and not plan.is_single
    ]
    return [(name, key) for name in (compiled.name, *others)]


def _refuse(traces: RowTraces, *, force: bool) -> None:
    if traces.waiting:
        what = f"{amount(traces.waiting, 'change')} of this row not applied yet; without them its items would stay"
        raise SettingsError(f"{what}; run `migrator relay JOB --once` first, then forget it")
    if traces.is_there and not force:
        what = "the row is still in the source, and the relay would write it again"
        raise SettingsError(f"{what}; delete it there, run `migrator relay JOB --once`, or pass --force")
    if traces.items and not force:
        what = f"the table still has {amount(traces.items, 'item')} of this row, which is gone"
        advice = "run `migrator verify JOB --repair` and `migrator relay JOB --once` first, or pass --force"
        raise SettingsError(f"{what}; {advice}")


def _print_forgotten(
    traces: RowTraces, done: Forgotten | None, remaining: Sequence[str], *, as_json: bool
) -> None:
    lines = texts.traces_lines(traces) if done is None else texts.forgotten_lines(done)
    data = texts.forget_data(traces, done, remaining)
    cli.print_result(
        data, [*lines, *texts.hint_lines(traces), *texts.remaining_lines(remaining)], as_json=as_json
    )


# ── `migrator clean --tombstones` ──


@cli.belonging()
def purge(session: JobSession, dry_run: bool, as_json: bool) -> int:
    with cli.stop_on_signals(session.stop) as stop:
        target, writers, removed = session.target, session.writers, 0

        def check() -> None:
            if stop.is_set():
                progress_text = f"{amount(removed, 'tombstone')} {'counted' if dry_run else 'removed'}"
                raise Interrupted(f"stopped; {progress_text} so far, and the same command resumes")

        stage = session.purge(check, dry_run=dry_run)
        for count in stage.run(target.pages(), writers.now_s()):
            removed += count
            check()
    cli.print_result(
        {"tombstones": removed, "dry_run": dry_run},
        f"{amount(removed, 'tombstone')} {'would be removed' if dry_run else 'removed'}",
        as_json=as_json,
    )
    return 0


# ── `migrator clean` ──


def clean(
    all_items: bool,
    row: bool,
    tombstones: bool,
    attributes: bool,
    entities: tuple[str, ...],
    keys: tuple[str, ...],
    yes: bool,
    force: bool,
    **given: Any,
) -> int:
    if all_items + row + tombstones + attributes != 1:
        raise click.UsageError("give one of --all-items, --row, --tombstones and --attributes")
    if row and (len(entities) != 1 or not keys):
        raise click.UsageError("--row goes with one --entity and with the row's --key")
    kinds = {"--all-items": all_items, "--row": row, "--tombstones": tombstones, "--attributes": attributes}
    (kind,) = [option for option, is_given in kinds.items() if is_given]
    taken = {"--all-items": ("--entity", "--force"), "--row": ("--entity", "--key", "--force")}.get(kind, ())
    named = [
        option for option, value in (("--entity", entities), ("--key", keys), ("--force", force)) if value
    ]
    if unfit := [option for option in named if option not in taken]:
        raise click.UsageError(f"{unfit[0]} does not go with {kind}")
    if tombstones:
        return purge(**given)
    if attributes:
        return strip(yes=yes, **given)
    if row:
        return forget(entity=entities[0], keys=keys, yes=yes, force=force, **given)
    return undo(entities=entities, yes=yes, force=force, **given)
