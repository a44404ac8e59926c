"""`migrator verify`, `migrator query` and `migrator shadow replay`: rows against items, SQL against the table."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import click

from migrator.cli.options import (
    adopt_repaired,
    belonging,
    console_on,
    findings_to_print,
    progress,
    read_job,
    stdout,
    stop_on_signals,
    stopped_says,
    tell_masked,
)
from migrator.cli.runs import RunEnd, identity_of, need_bucket, pages_of
from migrator.journal import run_starts
from migrator.journal.lease import RunLease
from migrator.journal.phases import SqlEvidence
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import newest_of
from migrator.mapping.patterns.answers import read_params
from migrator.mapping.show.redaction import json_text
from migrator.model import mapping as mappings
from migrator.model.capture import Installation
from migrator.model.errors import DIFFERENT, Interrupted, SettingsError, did_you_mean
from migrator.model.journal import Run, RunIdentity
from migrator.model.live import Root
from migrator.model.mapping import Pattern
from migrator.model.results import ReplayResult, Sample, VerifyResult
from migrator.model.table import ItemKey
from migrator.output.patterns import answer_data, print_answer, print_explanation, print_replay, replay_data
from migrator.output.runs import SampleBars, SampleLines, print_verify, verify_data
from migrator.output.text import SHOWN, print_findings
from migrator.runtime import logs
from migrator.runtime.retry import nap
from migrator.settings.job import Job
from migrator.settings.source import place
from migrator.stages.live.daemon import RelayLag
from migrator.stages.patterns import question
from migrator.stages.patterns.question import ask
from migrator.stages.patterns.replay import Replay, ReplayOptions, ReplayRecord
from migrator.stages.verify.recheck import LOOKED_AT, Recheck
from migrator.stages.verify.scan import direct_items
from migrator.stages.verify.stage import Confirm, Verify, VerifyOptions, begin, keep_look
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring.job import CommandJob, JobContext, Target, write_ownership
from migrator.wiring.live import ONCE, Live, open_live

# ── `migrator verify`: rows against items, both ways ──

DEFAULT_SETTLE_S = 10.0


@belonging(applies=lambda options: options["repair"], older=False, begins=True)
def verify(
    command_job: CommandJob, workers: int | None, part: str | None, seed: int | None, **options: Any
) -> int:
    """The exit code of `migrator verify`."""
    if options["dry_run"] and not options["repair"]:
        raise SettingsError("--dry-run goes with --repair; without it verify writes nothing anyway")
    read, sample = command_job.job, _sample(part, seed)
    rows_of = _read_by(read, options["source_url"])
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        context = stack.enter_context(
            job_wiring.open_job(rows_of, "verify", workers=workers, stop=stop.is_set)
        )
        need_bucket(read, context.checked.entities)
        target = job_wiring.open_target(read, context.checked.mapping.table, stop.is_set)
        table_id = target.table_id()
        journal = command_job.journal(stop.is_set)
        lease = stack.enter_context(RunLease(journal, read.name))
        if options["repair"] and not options["force"]:
            write_ownership(read, context.checked.mapping, journal).refuse_complete()
        entities, again = context.checked.entities, options["restart"]
        identity = identity_of("verify", context, table_id, entities, _scope(sample, options["source_url"]))
        # Before the run begins: where capture cannot be looked at, or an option does not fit, there is none.
        live, captured = _live(stack, context, stop, options | {"job": read})
        recheck = _recheck(live, context, target, journal, stop, options["settle_s"]) if captured else _STILL
        stage = _stage(context, target, journal, lease, recheck, _options(context, sample, workers), stop)
        run = _begin(journal, identity, captured, again=again)
        stack.enter_context(stopped_says(lambda: _stopped(journal, run, sample, seed, again=again)))
        with RunEnd(journal, run, read.hooks), stage.progress:
            if sample is None:
                keep = partial(run_starts.keep_look, journal.database, run.id)
                keep_look(partial(live_wiring.changes_counted, live, context), keep)
            result = stage.run(run, entities)
        _print(result, journal, context, as_json=options["as_json"], whole_keys=options["whole_keys"])
        if captured and _marked(live, context, journal, result, options) and sample is None:
            adopt_repaired(replace(context, job=read), live, target, journal, table_id)
    return DIFFERENT if result.findings else 0


def _stopped(journal: SqlJournal, run: Run, sample: Sample | None, seed: int | None, *, again: bool) -> str:
    """What a verify that is stopped has done; one that would look at other rows, or at all of them, goes on otherwise."""
    compared, planned = pages_of(journal, run)
    message = (
        f"stopped; nothing was changed, and {compared:,} of {planned:,} page(s) planned by now were compared"
    )
    drawn = f"--seed {sample.seed}" if sample is not None and seed is None else ""
    if drawn or again:
        how = " and ".join(
            filter(None, (f"with {drawn}" if drawn else "", "without --restart" if again else ""))
        )
        return f"{message}; given {how}, it goes on within the hour"
    return f"{message}; within the hour the same command goes on from there"


def _read_by(job: Job, source_url: str | None) -> Job:
    """The job, its rows read from another URL; with the same limits, and never from a replica of the job's own."""
    if not source_url:
        return job
    try:
        url = place(source_url)
    except ValueError as error:
        raise SettingsError(f"--source-url: {error}") from None
    return replace(job, source=job.source.model_copy(update={"url": url, "command": (), "read_url": ""}))


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
    database = journal.database
    newest, idle_s = newest_of(database, identity.job), partial(run_starts.idle_s, database)
    begun = begin(journal, identity, newest, idle_s, again=again)
    if begun.told:
        click.echo(begun.told, err=True)
    run_starts.keep_installation(database, begun.run.id, "" if installation is None else installation.id)
    return begun.run


def _marked(
    live: Live, context: JobContext, journal: SqlJournal, result: VerifyResult, options: Mapping[str, Any]
) -> bool:
    """Whether rows were marked, as --repair asks: those that differ, and those of findings of live change that are open."""
    if not options["repair"]:
        return False
    names = {entity.name for entity in context.checked.entities}
    open_roots = live_wiring.open_findings_of(context.job, journal).roots()
    doubtful = {root: set[ItemKey]() for root in open_roots if root[0] in names} | dict(result.confirmed)
    rows = f"{len(doubtful):,} row(s)"
    if options["dry_run"]:
        click.echo(f"{rows} would be marked; --repair without --dry-run marks them", err=True)
        return False
    live.marks.add({root: sorted(keys, key=repr) for root, keys in doubtful.items()})
    click.echo(f"{rows} marked; run `migrator relay`, then verify again", err=True)
    return True


@dataclass(frozen=True)
class _Recheck:
    """What a verify knows of rows that change meanwhile: how differences are confirmed, and whether anything changed."""

    confirm: Confirm | None
    is_quiet: Callable[[], bool]


_STILL = _Recheck(None, lambda: True)
"""Of a source whose changes leave no marks: it is taken to stand still."""


def _live(
    stack: ExitStack, context: JobContext, stop: Event, options: Mapping[str, Any]
) -> tuple[Live, Installation | None]:
    """Capture's edges, and what is installed of it; where it is, the verify knows that rows change meanwhile."""
    source = None if options["source_url"] else context.source
    live = stack.enter_context(
        live_wiring.open_live(options["job"], "verify", stop=stop.is_set, source=source)
    )
    if options["repair"]:
        return live, live_wiring.need_installation(live, context)
    installation = live.capture.installation()
    if installation is None and options["settle_s"] is not None:
        raise SettingsError(
            "--settle is for a source whose changes are captured; see `migrator capture install`"
        )
    return live, installation


def _recheck(
    live: Live, context: JobContext, target: Target, journal: SqlJournal, stop: Event, settle_s: float | None
) -> _Recheck:
    entities = {entity.name: entity for entity in context.checked.entities}
    recheck = Recheck(
        *(context.source, target.store, journal, entities, target.design, time.time, target.objects)
    )

    def confirm(run: Run) -> Mapping[Root, set[ItemKey]]:
        if any(kind in LOOKED_AT for kind in journal.finding_counts(run)):
            nap(DEFAULT_SETTLE_S if settle_s is None else settle_s, stop.is_set, time.sleep)
        return recheck.confirm(run)

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
    unmasked = journal.findings(result.run, SHOWN)
    printed = findings_to_print(unmasked, context.checked.mapping, whole_keys=whole_keys)
    print_findings(stdout(), printed, result.findings)
    tell_masked(printed, unmasked)


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
    """The sample that was asked for; without a seed one is drawn and printed, so that the same rows can be asked again."""
    if part is None:
        if seed is not None:
            raise SettingsError("--seed goes with --sample")
        return None
    match = re.fullmatch(r"(?P<share>\d+(?:\.\d+)?) ?%|(?P<rows>[1-9]\d*)(?: rows)?", part.strip())
    share = Fraction(match["share"]) / 100 if match and match["share"] else None
    if match is None or (share is not None and not 0 < share <= 1):
        raise SettingsError(
            f"--sample {part}: write a share such as 1% or 0.5%, or a number such as '1000 rows'"
        )
    drawn = secrets.randbelow(1_000_000) if seed is None else seed
    if seed is None:
        click.echo(f"the sample's seed is {drawn}; --seed {drawn} looks at the same rows again", err=True)
    return Sample(drawn, share, None if share is not None else int(match["rows"]))


# ── `migrator query`: one access pattern, asked of both sides ──


def query(job: Path, pattern: str, params: tuple[str, ...], explain: bool, as_json: bool) -> int:
    """The exit code of `migrator query`."""
    read = read_job(job)
    texts = _param_texts(params)
    with job_wiring.open_job(read, "query") as context:
        mapping = context.checked.mapping
        if pattern not in mapping.patterns:
            advice = did_you_mean(pattern, mapping.patterns)
            raise SettingsError(f"the mapping has no access pattern '{pattern}'{advice}")
        chosen = mapping.patterns[pattern]
        values = read_params(chosen, texts)
        target = job_wiring.open_target(read, mapping.table, lambda: False)
        plans = context.checked.read_plans
        answer = ask(mapping, chosen, values, context.source, target.store, plans=plans)
    if as_json:
        click.echo(json_text(answer_data(answer)))
    else:
        print_answer(stdout(), answer)
        if explain:
            print_explanation(stdout(), answer)
    return 0 if answer.same else DIFFERENT


def _param_texts(params: tuple[str, ...]) -> dict[str, str]:
    """Raises: SettingsError where a parameter is no name=value, or has two values."""
    texts: dict[str, str] = {}
    for name, value in map(_pair, params):
        if name in texts:
            raise SettingsError(f"-p {name}= is given twice; keep one (a list is one value: -p {name}=1,2,3)")
        texts[name] = value
    return texts


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError("a parameter is written -p name=value")
    return name, value


DEFAULT_SETTLE_S = 3.0
_PATIENCE_S = 10.0
"""How long one question is tried again: a caller of the service would not have waited longer, and thousands follow."""


@belonging(applies=lambda asked: not (asked["control"] or asked["no_record"]))
def replay(
    command_job: CommandJob, names: tuple[str, ...], questions: int, workers: int, **flags: Any
) -> int:
    """The exit code of `migrator shadow replay`."""
    read = _tuned(command_job.job, workers)
    seed = _seed(flags["seed"])
    settle_s = DEFAULT_SETTLE_S if flags["settle_s"] is None else flags["settle_s"]
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        context = stack.enter_context(job_wiring.open_job(read, "shadow", workers=workers, stop=stop.is_set))
        patterns = _chosen(context.checked.mapping, names)
        store, record, lag_s = None, None, _no_lag
        if not flags["control"]:
            if not flags["no_record"]:
                record = _record(command_job, context.checked.mapping, stop)
            target = job_wiring.open_target(read, context.checked.mapping.table, stop.is_set)
            target.table_id()
            store = target.store
            live = stack.enter_context(open_live(read, "shadow", patience=ONCE, source=context.source))
            lag_s = RelayLag(live.marks.state)
        progress = replay_progress()
        stack.enter_context(progress)
        options = ReplayOptions(questions, seed, settle_s, workers)
        mapping, entities = context.checked.mapping, context.checked.read
        stage = Replay(
            mapping, entities, context.source, store, options, progress=progress, stop=stop, lag_s=lag_s
        )
        result = _run(stage, patterns)
        # Before it is kept: a journal that is gone by now takes nothing of it away.
        _show(result, as_json=flags["as_json"])
        if record is not None:
            record.keep(result)
    return 0 if result.clean else DIFFERENT


def _show(result: ReplayResult, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(replay_data(result), sort_keys=True, ensure_ascii=True))
    else:
        print_replay(stdout(), result)


def _no_lag() -> float:
    """Between SQL and SQL nothing is on its way."""
    return 0.0


def _record(command_job: CommandJob, mapping: mappings.Mapping, stop: Event) -> ReplayRecord:
    """Opened before anything is asked, so that a journal that cannot keep the findings is an error at once."""
    evidence = SqlEvidence(command_job.journal(stop.is_set).database, command_job.job.name)
    return ReplayRecord(evidence, mapping.revision)


def _run(stage: Replay, patterns: list[Pattern]) -> ReplayResult:
    try:
        return stage.run(patterns)
    except Interrupted:
        what = f"stopped; nothing was written, and --seed {stage.options.seed} asks the same questions again"
        raise Interrupted(what) from None


def _chosen(mapping: mappings.Mapping, names: tuple[str, ...]) -> list[Pattern]:
    """The named patterns, each once; all where none is named."""
    if not mapping.patterns:
        raise SettingsError("the mapping has no access patterns; write them under access_patterns:")
    unknown = [name for name in names if name not in mapping.patterns]
    if unknown:
        advice = did_you_mean(unknown[0], mapping.patterns)
        raise SettingsError(f"the mapping has no access pattern '{unknown[0]}'{advice}")
    return [mapping.patterns[name] for name in dict.fromkeys(names or mapping.patterns)]


def _seed(option: int | None) -> int:
    return secrets.randbelow(1_000_000) if option is None else option


def _tuned(job: Job, workers: int) -> Job:
    """The job less patient, and with a connection for each request that a question of many partitions asks at once."""
    patience_s = min(job.tuning.give_up_after_s, _PATIENCE_S)
    less = {"give_up_after_s": patience_s, "workers": workers * question.AT_ONCE}
    return replace(job, tuning=job.tuning.model_copy(update=less))


def replay_progress() -> SampleBars | SampleLines:
    if sys.stderr.isatty():
        return SampleBars(console_on(sys.stderr))
    return SampleLines(logs.get_logger("migrator"))
