"""`migrator verify` and `migrator query`: rows against items, and one access pattern asked of both sides."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from threading import Event
from typing import Any

import click

from migrator.cli.options import (
    as_asked,
    progress,
    read_job,
    stdout,
    stop_on_signals,
    stopped_says,
    tell_masked,
)
from migrator.cli.ownership import adopt_repaired, belonging
from migrator.cli.runs import RunEnd, identity_of, need_bucket, pages_of
from migrator.journal.evidence import keep_installation
from migrator.journal.lease import RunLease
from migrator.journal.runs import SqlJournal
from migrator.mapping.live.direct import direct_items
from migrator.mapping.patterns.answers import read_params
from migrator.mapping.show.redaction import json_text
from migrator.model.capture import Installation
from migrator.model.errors import DIFFERENT, SettingsError, did_you_mean
from migrator.model.journal import Run, RunIdentity
from migrator.model.live import Root
from migrator.model.results import Sample, VerifyResult
from migrator.model.table import ItemKey
from migrator.output.patterns import answer_data, print_answer, print_explanation
from migrator.output.runs import print_verify, verify_data
from migrator.output.text import SHOWN, print_findings
from migrator.runtime.retry import nap
from migrator.settings.job import Job
from migrator.settings.source import place
from migrator.stages.patterns.question import ask
from migrator.stages.verify.recheck import LOOKED_AT, Recheck
from migrator.stages.verify.stage import Confirm, Verify, VerifyOptions
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring import moves
from migrator.wiring import verify as verify_wiring
from migrator.wiring.job import CommandJob, JobContext, Target
from migrator.wiring.live import Live

# ── `migrator verify`: rows against items, both ways ──

DEFAULT_SETTLE_S = 10.0


@belonging(applies=lambda asked: asked["repair"], older=False, begins=True)
def verify(
    command_job: CommandJob, workers: int | None, part: str | None, seed: int | None, **asked: Any
) -> int:
    """The exit code of `migrator verify`."""
    if asked["dry_run"] and not asked["repair"]:
        raise SettingsError("--dry-run goes with --repair; without it verify writes nothing anyway")
    read, sample = command_job.job, _sample(part, seed)
    rows_of = _read_by(read, asked["source_url"])
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        context = stack.enter_context(
            job_wiring.open_job(rows_of, "verify", workers=workers, stop=stop.is_set)
        )
        need_bucket(read, context.checked.entities)
        target = job_wiring.open_target(read, context.checked.mapping.table, stop.is_set)
        table_id = live_wiring.existing_table(read, target)
        journal = command_job.journal(stop.is_set)
        lease = stack.enter_context(RunLease(journal, read.name))
        if asked["repair"] and not asked["force"]:
            moves.refuse_complete(read, context.checked.mapping, journal)
        entities, again = context.checked.entities, asked["restart"]
        identity = identity_of("verify", context, table_id, entities, _scope(sample, asked["source_url"]))
        # Before the run begins: where capture cannot be looked at, or an option does not fit, there is none.
        live, captured = _live(stack, context, stop, asked | {"job": read})
        recheck = _recheck(live, context, target, journal, stop, asked["settle_s"]) if captured else _STILL
        stage = _stage(context, target, journal, lease, recheck, _options(context, sample, workers), stop)
        run = _begin(journal, identity, captured, again=again)
        stack.enter_context(stopped_says(lambda: _stopped(journal, run, sample, seed, again=again)))
        with RunEnd(journal, run, read.hooks), stage.progress:
            if sample is None:
                verify_wiring.keep_look(live, context, journal, run)
            result = stage.run(run, entities)
        _print(result, journal, context, as_json=asked["as_json"], whole_keys=asked["whole_keys"])
        if captured and _marked(live, context, journal, result, asked) and sample is None:
            adopt_repaired(replace(context, job=read), live, target, journal, table_id)
    return DIFFERENT if result.findings else 0


def _stopped(journal: SqlJournal, run: Run, sample: Sample | None, seed: int | None, *, again: bool) -> str:
    """What a verify that is stopped has done; one that would look at other rows, or at all of them, goes on otherwise."""
    compared, planned = pages_of(journal, run)
    said = (
        f"stopped; nothing was changed, and {compared:,} of {planned:,} page(s) planned by now were compared"
    )
    drawn = f"--seed {sample.seed}" if sample is not None and seed is None else ""
    if drawn or again:
        how = " and ".join(
            filter(None, (f"with {drawn}" if drawn else "", "without --restart" if again else ""))
        )
        return f"{said}; given {how}, it goes on within the hour"
    return f"{said}; within the hour the same command goes on from there"


def _read_by(job: Job, source_url: str | None) -> Job:
    """The job, its rows read from another URL; with the same limits, and never from a replica of the job's own."""
    if not source_url:
        return job
    try:
        url = place(source_url)
    except ValueError as error:
        raise SettingsError(f"--source-url: {error}") from None
    return replace(job, source=replace(job.source, url=url, command=(), read_url=""))


def _scope(sample: Sample | None, source_url: str | None) -> str:
    """What the run looks at, as text: one that reads from elsewhere does not go on with what another one has looked at."""
    parts = [] if sample is None else [f"sample={sample};seed={sample.seed}"]
    if source_url:
        parts.append(f"source={hashlib.sha256(source_url.encode()).hexdigest()[:12]}")
    return ";".join(parts)


def _begin(
    journal: SqlJournal, identity: RunIdentity, installation: Installation | None, *, again: bool
) -> Run:
    """The run, with the installation of capture that it began beside."""
    begun = verify_wiring.begin(journal, identity, again=again)
    if begun.told:
        click.echo(begun.told, err=True)
    keep_installation(journal.database, begun.run.id, "" if installation is None else installation.id)
    return begun.run


def _marked(
    live: Live, context: JobContext, journal: SqlJournal, result: VerifyResult, asked: Mapping[str, Any]
) -> bool:
    """Whether rows were marked, as --repair asks: those that differ, and those of findings of live change that are open."""
    if not asked["repair"]:
        return False
    names = {one.name for one in context.checked.entities}
    found = live_wiring.open_findings_of(context.job, journal).roots()
    doubtful = {root: set[ItemKey]() for root in found if root[0] in names} | dict(result.confirmed)
    rows = f"{len(doubtful):,} row(s)"
    if asked["dry_run"]:
        click.echo(f"{rows} would be marked; --repair without --dry-run marks them", err=True)
        return False
    live.marks.add({root: sorted(keys, key=repr) for root, keys in doubtful.items()})
    click.echo(f"{rows} marked; run `migrator relay`, then verify again", err=True)
    return True


@dataclass(frozen=True)
class _Recheck:
    """What a verify is told of rows that change meanwhile: how differences are confirmed, and whether anything changed."""

    confirm: Confirm | None
    is_quiet: Callable[[], bool]


_STILL = _Recheck(None, lambda: True)
"""Of a source whose changes leave no marks: it is taken to stand still."""


def _live(
    stack: ExitStack, context: JobContext, stop: Event, asked: Mapping[str, Any]
) -> tuple[Live, Installation | None]:
    """Capture's edges, and what is installed of it; where it is, the verify knows that rows change meanwhile."""
    source = None if asked["source_url"] else context.source
    live = stack.enter_context(live_wiring.open_live(asked["job"], "verify", stop=stop.is_set, source=source))
    if asked["repair"]:
        return live, live_wiring.need_installation(live, context)
    installation = live.capture.installation()
    if installation is None and asked["settle_s"] is not None:
        raise SettingsError(
            "--settle is for a source whose changes are captured; see `migrator capture install`"
        )
    return live, installation


def _recheck(
    live: Live, context: JobContext, target: Target, journal: SqlJournal, stop: Event, settle_s: float | None
) -> _Recheck:
    entities = {one.name: one for one in context.checked.entities}
    look = Recheck(
        *(context.source, target.store, journal, entities, target.design, time.time, target.objects)
    )

    def confirm(run: Run) -> Mapping[Root, set[ItemKey]]:
        if any(kind in LOOKED_AT for kind in journal.finding_counts(run)):
            nap(DEFAULT_SETTLE_S if settle_s is None else settle_s, stop.is_set, time.sleep)
        return look.confirm(run)

    before = (live.tickets.highest(), live.marks.state().waiting)
    return _Recheck(
        confirm,
        lambda: before == (live.tickets.highest(), live.marks.state().waiting) and not before[1],
    )


def _print(
    result: VerifyResult, journal: SqlJournal, context: JobContext, *, as_json: bool, whole_keys: bool
) -> None:
    if as_json:
        click.echo(json.dumps(verify_data(result), sort_keys=True))
        return
    print_verify(stdout(), result)
    found = journal.findings(result.run, SHOWN)
    printed = as_asked(found, context.checked.mapping, whole_keys=whole_keys)
    print_findings(stdout(), printed, result.findings)
    tell_masked(printed, found)


def _stage(
    context: JobContext,
    target: Target,
    journal: SqlJournal,
    lease: RunLease,
    recheck: _Recheck,
    options: VerifyOptions,
    stop: Event,
) -> Verify:
    return Verify(
        *(context.source, target.store, journal, progress()),
        check=lease.check,
        confirm=recheck.confirm,
        is_quiet=recheck.is_quiet,
        direct=direct_items(context.checked),
        options=options,
        stop=stop,
        objects=target.objects,
    )


def _options(context: JobContext, sample: Sample | None, workers: int | None) -> VerifyOptions:
    tuning = context.job.tuning
    return VerifyOptions(workers or tuning.workers, tuning.page_rows, tuning.scan_segments, sample)


def _sample(part: str | None, seed: int | None) -> Sample | None:
    """The sample that was asked for; without a seed one is drawn and told, so that the same rows can be asked again."""
    if part is None:
        if seed is not None:
            raise SettingsError("--seed goes with --sample")
        return None
    found = re.fullmatch(r"(?P<share>\d+(?:\.\d+)?) ?%|(?P<rows>[1-9]\d*)(?: rows)?", part.strip())
    share = Fraction(found["share"]) / 100 if found and found["share"] else None
    if found is None or (share is not None and not 0 < share <= 1):
        raise SettingsError(
            f"--sample {part}: write a share such as 1% or 0.5%, or a number such as '1000 rows'"
        )
    drawn = secrets.randbelow(1_000_000) if seed is None else seed
    if seed is None:
        click.echo(f"the sample's seed is {drawn}; --seed {drawn} looks at the same rows again", err=True)
    return Sample(drawn, share, None if share is not None else int(found["rows"]))


# ── `migrator query`: one access pattern, asked of both sides ──


def query(job: Path, pattern: str, params: tuple[str, ...], explain: bool, as_json: bool) -> int:
    """The exit code of `migrator query`."""
    read = read_job(job)
    given = _given(params)
    with job_wiring.open_job(read, "query") as context:
        mapping = context.checked.mapping
        if pattern not in mapping.patterns:
            known = did_you_mean(pattern, mapping.patterns)
            raise SettingsError(f"the mapping has no access pattern '{pattern}'{known}")
        found = mapping.patterns[pattern]
        values = read_params(found, given)
        target = job_wiring.open_target(read, mapping.table, lambda: False)
        plans = [entity.plan for entity in context.checked.read]
        answer = ask(mapping, found, values, context.source, target.store, plans=plans)
    if as_json:
        click.echo(json_text(answer_data(answer)))
    else:
        print_answer(stdout(), answer)
        if explain:
            print_explanation(stdout(), answer)
    return 0 if answer.same else DIFFERENT


def _given(params: tuple[str, ...]) -> dict[str, str]:
    """Raises: SettingsError where a parameter is no name=value, or has two values."""
    given: dict[str, str] = {}
    for name, value in map(_pair, params):
        if name in given:
            raise SettingsError(f"-p {name}= is given twice; keep one (a list is one value: -p {name}=1,2,3)")
        given[name] = value
    return given


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError("a parameter is written -p name=value")
    return name, value
