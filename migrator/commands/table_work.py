"""`migrator table` and `migrator doctor`: the DynamoDB table of a mapping, and whether a job could run."""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from migrator.cli import options as cli
from migrator.cli.command_line import DEFINITIONS, PROBES, print_json, whole
from migrator.cli.cutover_text import instance_label
from migrator.cli.runs import known_revision
from migrator.cli.text import FittedTable
from migrator.commands.mapping_source import null_doubts
from migrator.mapping.check.check import check_form
from migrator.mapping.items.native import IS_NATIVE, PYTHON_ADVICE
from migrator.mapping.model.edges import ActionProbe
from migrator.mapping.model.evidence import ROUTES, PatternPhase
from migrator.mapping.model.instances import Instance, Newest
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.results import Check, CheckState
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import CLEAN, DIFFERENT, MappingError, SettingsError, TargetError, amount
from migrator.runtime.retry import Backoff
from migrator.runtime.values import asdict, replace
from migrator.settings.definition import (
    IndexChanges,
    addition,
    creation_request,
    definition,
    later_requests,
    removal,
)
from migrator.settings.job import Job, TableOptions
from migrator.settings.roles import ROLES, SQL_ROLES, Rights, SqlRole, rights_of, with_old_rights
from migrator.settings.transforms import read_mapping, sound_mapping
from migrator.stages import doctor as health
from migrator.stages.process import need_bucket
from migrator.stages.session.adoption import try_table, try_tickets
from migrator.stages.session.job import (
    ONCE,
    Target,
    answered_by_table,
    design_for,
    extras_of,
    jobs_of,
    open_target,
    read_job,
)
from migrator.stages.session.reverse import grants_of
from migrator.stages.session.session import JobSession

# ── `migrator table`: the DynamoDB table that a mapping describes ──


def create(job: Path, dry_run: bool, as_json: bool) -> int:
    read = read_job(job, asks_source=False)
    if dry_run:
        _print_requests(design_for(read, _design(read)), read.target.options, as_json=as_json)
        return 0
    target = open_target(read, _design(read))
    name, state = target.design.name, target.admin.state(target.design)
    is_there = state is not None and not state.differences
    if state is None and (answered := answered_by_table(read)):
        what = f"table {name} is missing, and DynamoDB answers {', '.join(answered)}: a new table would answer nothing"
        raise SettingsError(
            f"{what}; restore the table from its backup, or first `migrator cutover rollback {job} {answered[0]}`"
        )
    if not is_there:
        state = target.admin.create(target.design, read.target.options)
        for sentence in state.unlike:
            cli.say(f"warning: this endpoint is not AWS: {sentence}")
    if as_json:
        print_json({"table": name, "created": not is_there, "indexes": len(target.design.indexes)})
    elif is_there or state is None:
        cli.print_folded(f"table {name} exists already, as in the mapping")
    else:
        cli.print_folded(f"table {name} is {state.status} ({amount(len(target.design.indexes), 'index')})")
    return 0


def _print_requests(design: TableDesign, options: TableOptions, *, as_json: bool) -> None:
    first, later = creation_request(design, options), later_requests(design, options)
    if as_json:
        named = [("CreateTable", first), *later]
        print_json({"requests": [{"operation": name, "request": body} for name, body in named]})
        return
    click.echo(json.dumps(first, indent=2))
    for operation, request in later:
        cli.say(f"then {operation}: {json.dumps(request)}")


def check(job: Path, form: str | None, as_json: bool) -> int:
    read = read_job(job, asks_source=False)
    target = open_target(read, _design(read))
    state = target.admin.state(target.design)
    if state is None:
        raise TargetError(f"table {target.design.name} not found; run `migrator table create`")
    unlike = target.admin.unlike(target.design, read.target.options)
    differences = [*state.differences, *unlike.values()]
    designed = definition(target.design, read.target.options)
    edits = [] if form is None else list(edits_of(form, [*state.parts, *unlike], designed))
    verdict = amount(len(differences), "difference") if differences else "as in the mapping"
    cli.print_result(
        {"table": target.design.name, "differences": differences, "edits": edits},
        [*differences, *edits, f"table {target.design.name}: {verdict}"],
        as_json=as_json,
    )
    return DIFFERENT if differences else CLEAN


def edits_of(form: str, parts: list[str], designed: dict[str, Any]) -> Iterator[str]:
    for part in dict.fromkeys(parts):
        lines = DEFINITIONS[form](part, designed)
        yield f"# {part}" if lines else f"# {part}: take it out"
        yield from lines


def _design(job: Job) -> TableDesign:
    parsed = read_mapping(job.mapping)
    if faults := [fault for fault in check_form(parsed) if not fault.warning]:
        raise MappingError(faults)
    return parsed.mapping.table


# ── The packages that a job needs, with their versions ──


def packages_for(job: Job | None) -> dict[str, str | None]:
    """Versions of Python and of relevant packages; None under the name of a missing extra."""
    versions: dict[str, str | None] = {"Python": platform.python_version()}
    versions |= {"migrator": version("single-table-migrator")}
    versions |= {name: version(name) for name in ("boto3", "sqlalchemy")}
    extras = extras_of(job) if job is not None else ()
    return versions | dict.fromkeys(extra for extra, module in extras if find_spec(module) is None)


# ── `migrator doctor`: everything that a run needs, checked one by one before it starts ──

_COLOURS: dict[CheckState, str] = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(
    job: Path, write: bool, role: str | None, probe: bool, bucket: str | None, yes: bool, as_json: bool
) -> int:
    if bucket is not None and not probe:
        raise click.UsageError("--to goes with --probe")
    if probe:
        if write or role is not None:
            raise click.UsageError("--probe goes without --write and --role")
        return PROBES["dynamodb"](job, bucket=bucket, yes=yes, as_json=as_json)
    checkup, journal = health.Checkup(), None
    with ExitStack() as stack:
        session = stack.enter_context(JobSession(job, patience=Backoff(attempts=1), live_patience=ONCE))
        read = checkup.ask("job", lambda: session.job, "the job file is right")
        health.check_packages(checkup, packages_for(read))
        if IS_NATIVE:
            checkup.tell("item programs", "run by the native executor")
        else:
            checkup.tell("item programs", "run by Python", PYTHON_ADVICE, "warning")
        if read is not None:
            parsed = checkup.ask("mapping file", lambda: sound_mapping(read.mapping), "its form is valid")
            if role not in _WITHOUT_SOURCE:
                _source(checkup, stack, session, role)
            if parsed is not None and role not in _WITHOUT_TABLE:
                _target(checkup, read, parsed.mapping, write=write, role=role)
            journal = checkup.ask("journal", session.try_journal, "it can be written")
            if journal is not None:
                checkup.ask(
                    "journal's job", lambda: cli.refuse_strange(session, older=True, warns=False, begins=True)
                )
    if as_json:
        checks = [asdict(check) for check in checkup.checks]
        print_json({"job": str(job), "journal": journal, "checks": checks})
    else:
        if journal is not None:
            cli.print_folded(f"journal: {cli.shown_path(journal)}")
        _print(checkup.checks)
    return DIFFERENT if any(check.state == "failed" for check in checkup.checks) else CLEAN


def _source(checkup: health.Checkup, stack: ExitStack, outer: JobSession, role: str | None) -> None:
    session = checkup.ask(
        "source and mapping",
        lambda: stack.enter_context(outer.another("doctor", live_patience=ONCE)),
        "the mapping matches the source",
    )
    if session is None:
        return
    rights = SQL_ROLES.get(role or "", _EVERYTHING)
    is_database = not session.checked.mapping.documents
    if is_database:
        health.check_server(checkup, session.health)
    if role is not None and is_database and not session.is_file:
        grants = grants_of(session)
        health.check_grants(checkup, lambda: grants.lacking(role))
    if rights.rows:
        checkup.ask("bucket", lambda: need_bucket(session.job, session.checked.entities))
        health.check_entities(checkup, session.source, session.checked.entities)
        if session.source.hides_rows:
            health.check_hidden_rows(checkup, session.checked.entities, session.sql.hidden_faults)
    if rights.asks and session.checked.mapping.patterns:
        health.check_statements(checkup, session.source, session.checked.mapping)
        for name, what in (
            checkup.ask("NULLs", lambda: list(null_doubts(session.source, session.checked))) or ()
        ):
            fault, _, advice = what.partition("; ")
            checkup.tell(f"index of {name}", fault, advice, "warning")
    if not is_database and role not in _WITHOUT_TABLE:
        _old_tables(checkup, session, role)
    if role is None or "UPDATE" in rights.mark:
        _marks(checkup, session)


def _old_tables(checkup: health.Checkup, session: JobSession, role: str | None) -> None:
    """Check the rights on the old tables and their streams; without a role those to copy, follow and compare."""
    needed = replace(ROLES["relay"], asks=True) if role is None else ROLES[role]
    rights = with_old_rights(Rights(()), needed, session.checked.mapping)
    source = session.documents
    for table, probes in checkup.ask("old tables", lambda: list(source.probe(session.plans, rights))) or ():
        health.check_actions(checkup, probes, {}, table)
    if not rights.old_streams:
        return
    capture = session.live.stream_capture
    streams = checkup.ask("old streams", lambda: list(capture.probe(capture.captured(session.plans)))) or ()
    needed_by = {} if role or capture.installation() else health.UNTIL_CAPTURE
    for table, probes in streams:
        asked = [probe for probe in probes if f"dynamodb:{probe.action}" in rights.old_streams]
        if role or any(probe.tried for probe in asked):
            health.check_actions(checkup, asked, needed_by, table)


def _marks(checkup: health.Checkup, session: JobSession) -> None:
    file = str(session.path)
    captured = health.check_capture(
        checkup,
        session.capture_status,
        lambda: session.capture.refusals(session.plans),
        lambda: len(session.service_registry().marking),
        file,
    )
    health.check_revision(checkup, lambda: session.revisions.standing(), file)
    health.check_verified(checkup, lambda: session.unverified(session.capture_status().installation))
    if captured:
        health.check_slot(checkup, checkup.ask("replication slot", lambda: session.live.slot_lag()))
        checkup.ask("marks", lambda: session.live.marks.probe(), "they can be taken and finished")
        fine = "they can be drawn, and are not behind those that the journal and the table know"
        checkup.ask("tickets", lambda: try_tickets(session), fine)
        health.check_on_record(checkup, lambda: try_table(session))


_EVERYTHING = SqlRole("", rows=True, asks=True)


def _target(
    checkup: health.Checkup, job: Job, mapping: MappingModel, *, write: bool, role: str | None
) -> None:
    target = checkup.ask(
        "target", lambda: open_target(job, mapping.table), "region and credentials are there"
    )
    if target is None:
        return
    rights = None if role is None else rights_of(ROLES[role], mapping.patterns.values(), keeps=bool(job.keep))
    if rights is None or "DescribeTable" in rights.table:
        if not health.check_table(checkup, target.admin.state, target.design, str(job.path)):
            return
        health.check_jobs(checkup, lambda: jobs_of(target), job.name)
        health.check_clock(checkup, "clock of DynamoDB", lambda: target.admin.clock(target.design))
    probes = target.admin.probe(target.design, write=write, only=rights)
    health.check_permissions(checkup, probes, str(job.path), written=write, role=role)
    if target.objects is not None and (role is None or ROLES[role].objects):
        objects = target.objects
        # The object of a try is deleted again, which only a person's role may do.
        tried = checkup.ask("bucket", lambda: objects.probe(write=write and role is None)) or []
        untried = role is not None and "s3:PutObject" in ROLES[role].objects
        health.check_bucket(checkup, [*tried, *([_PUT_UNTRIED] if untried else [])])
    if role is not None:
        health.check_untried(checkup, ROLES[role].files, "exported items", _NO_PLACE)
        health.check_untried(checkup, ROLES[role].logs, "", _NO_LOG)
        health.check_untried(checkup, ROLES[role].stream, "", _NO_STREAM)


_WITHOUT_SOURCE = ROLES.keys() - SQL_ROLES.keys()
_WITHOUT_TABLE = SQL_ROLES.keys() - ROLES.keys()
_NO_PLACE = (
    "the job does not name their place; `migrator table export --to s3://…` tries each before it writes a row"
)
_NO_LOG = (
    "the log of imports exists from the first import on, and AWS writes it with the rights of the caller"
)
_NO_STREAM = "`migrator reverse check` and `migrator reverse start` require each before they write a row"
_PUT_UNTRIED = ActionProbe("PutObject", "not tried: without DeleteObject the object would stay", tried=False)


def _print(checks: list[Check]) -> None:
    # One column for both: few checks need a fix, and a column of fixes would leave the others no width.
    table = FittedTable("check", "state", "what, and how to fix it", box=None, pad_edge=False)
    for check in checks:
        said = "\n→ ".join(whole(text).replace("[", "\\[") for text in (check.what, check.mend) if text)
        table.add_row(check.name, f"[{_COLOURS[check.state]}]{check.state}[/]", said)
    cli.stdout().print(table)
    counts = Counter(check.state for check in checks)
    states = ", ".join(f"{counts[state]} {state}" for state in _COLOURS if counts[state])
    cli.print_folded(f"{len(checks)} checks: {states}")


def refuse_readers(
    names: Sequence[str],
    revision: str,
    newest: Newest | None,
    instances: Sequence[Instance],
    phases: Mapping[str, PatternPhase],
    patterns: Mapping[str, Pattern],
) -> None:
    """Raises: SettingsError with each known user of the indexes, and what to do about it.

    `revision`, `patterns`: of the current mapping, which no longer has the indexes.
    `instances`: those that have not deregistered.
    """
    reasons = [
        *_older_file(revision, newest),
        *_patterns(phases, patterns, names),
        *_services(revision, instances),
    ]
    if reasons:
        indexes = f"index {', '.join(names)}"
        raise SettingsError(
            "\n".join([f"{indexes} cannot be removed yet:", *(f"  {reason}" for reason in reasons)])
        )


def _older_file(revision: str, newest: Newest | None) -> Iterator[str]:
    if newest is not None and newest.revision.mapping != revision:
        what = f"the job works by mapping {newest.revision.mapping}, and this file is {revision}"
        yield f"{what}; make it the newest first: `migrator capture install JOB` (or `migrator recover JOB older-mapping`)"


def _patterns(
    phases: Mapping[str, PatternPhase], patterns: Mapping[str, Pattern], names: Collection[str]
) -> Iterator[str]:
    for name, phase in sorted(phases.items()):
        route = ROUTES[phase.state.phase]
        if "table" not in (route.answers, route.in_share):
            continue
        if name not in patterns:
            what = f"pattern {name} is in phase {phase.state.phase}, and the mapping no longer has it"
            yield f"{what}, so its index is unknown; move it back first: `migrator cutover rollback JOB {name}`"
        elif patterns[name].index in names:
            yield f"pattern {name} is in phase {phase.state.phase} and uses index {patterns[name].index}"


def _services(revision: str, instances: Sequence[Instance]) -> Iterator[str]:
    for instance in instances:
        if instance.reads and instance.revision != revision:
            what = (
                f"{instance_label(instance)} reads by mapping {instance.revision}, whose patterns may use it"
            )
            yield f"{what}; restart it with this file; one that timed out without deregistering counts for a day"


def change(job: Path, form: str | None, dry_run: bool, yes: bool, as_json: bool) -> int:
    with JobSession(job) as session, cli.stop_on_signals(session.stop):
        read = read_job(job, asks_source=False)
        parsed = sound_mapping(read.mapping)
        target = open_target(read, parsed.mapping.table, session.stop.is_set)
        planned = target.admin.index_changes(target.design)
        if form is not None:
            return _print_edits(form, target, read, planned, as_json=as_json)
        if dry_run:
            return _print_index_requests(target, read, planned, as_json=as_json)
        removed = _changed(session, read, parsed.mapping, target, planned, yes=yes)
    return _print_changed(target.design.name, planned, removed, as_json=as_json)


def _changed(
    session: JobSession, job: Job, mapping: MappingModel, target: Target, planned: IndexChanges, *, yes: bool
) -> tuple[str, ...]:
    """Add missing indexes, then remove and return the others; an interrupted command continues when repeated."""
    admin, design = target.admin, target.design
    revision = (planned.remove and known_revision(job)) or mapping.revision
    if planned.remove:
        refuse_asked(session, mapping, revision, planned.remove)
    admin.settle(design, _tell)
    for index in planned.add:
        _tell(f"adding index {index.name}")
        admin.add_index(design, index, job.target.options, _tell)
    removed = planned.remove if planned.remove and may_remove(planned.remove, yes=yes) else ()
    for name in removed:
        # Somebody may have come while the others were filled.
        refuse_asked(session, mapping, revision, [name])
        _tell(f"removing index {name}")
        admin.remove_index(design, name, _tell)
    return removed


def _print_changed(table: str, planned: IndexChanges, removed: Sequence[str], *, as_json: bool) -> int:
    added = [index.name for index in planned.add]
    left = [name for name in planned.remove if name not in removed]
    lines = [f"index {name}: {why}" for name, why in planned.cannot.items()]
    lines += [f"index {name} is in the table and not in the mapping; --yes removes it" for name in left]
    changed = f"{amount(len(added), 'index')} added, {len(removed)} removed"
    lines += [f"table {table}: {changed if added or removed else 'its indexes are as they were'}"]
    data = {"table": table, "added": added, "removed": removed, "left": left}
    cli.print_result(data | {"cannot": _reasons(planned.cannot)}, lines, as_json=as_json)
    return DIFFERENT if left or planned.cannot else CLEAN


def refuse_asked(session: JobSession, mapping: MappingModel, revision: str, names: Sequence[str]) -> None:
    if away := cli.refuse_strange(session, older=True, warns=False, begins=True):
        raise TargetError(f"no index is removed if the table does not name its journal: {away}")
    refuse_readers(
        names,
        revision,
        session.newest(),
        session.service_registry().known,
        session.phases.all(),
        mapping.patterns,
    )


def may_remove(names: tuple[str, ...], *, yes: bool) -> bool:
    if not yes and sys.stdin.isatty():
        cli.need_yes(f"Remove index {', '.join(names)}? What is in it is gone; the table's items stay.")
        return True
    return yes


def _reasons(cannot: dict[str, str]) -> list[dict[str, str]]:
    return [{"index": name, "why": why} for name, why in cannot.items()]


def _tell(what: str) -> None:
    click.echo(what, err=True)


# ── printing ──


def _print_edits(form: str, target: Target, job: Job, planned: IndexChanges, *, as_json: bool) -> int:
    names = [*(index.name for index in planned.add), *planned.remove, *planned.cannot]
    designed = definition(target.design, job.target.options)
    edits = list(edits_of(form, [f"index {name}" for name in names], designed))
    data = {"table": target.design.name, "edits": edits, "cannot": _reasons(planned.cannot)}
    lines = [*edits, *(f"# index {name}: {why}" for name, why in planned.cannot.items())]
    cli.print_result(data, lines, as_json=as_json)
    return DIFFERENT if names else CLEAN


def _print_index_requests(target: Target, job: Job, planned: IndexChanges, *, as_json: bool) -> int:
    design = target.design
    requests = [addition(design, index, job.target.options) for index in planned.add]
    requests += [removal(design, name) for name in planned.remove]
    if as_json:
        listed = [{"operation": "UpdateTable", "request": one} for one in requests]
        print_json({"table": design.name, "requests": listed, "cannot": _reasons(planned.cannot)})
    else:
        for one in requests:
            click.echo(f"UpdateTable: {json.dumps(one)}")
        lines = [f"index {name}: {why}" for name, why in planned.cannot.items()]
        nothing = [] if requests else [f"table {design.name}: nothing to change"]
        for line in lines or nothing:
            cli.print_folded(line)
    return DIFFERENT if requests or planned.cannot else CLEAN
