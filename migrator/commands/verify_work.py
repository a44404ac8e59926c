"""`migrator verify`: rows against items and items against rows, by one process or by several."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from functools import partial
from typing import Any

import click
from msgspec import Struct

from migrator.cli import options as cli
from migrator.cli.command_line import print_json
from migrator.cli.runs import RunEnd, print_found
from migrator.cli.runs_text import print_verify, print_verify_verdict, verify_data
from migrator.cli.text import OTHER_MAPPING
from migrator.commands.processes import (
    STILL,
    Joining,
    PageEngine,
    RunWork,
    join,
    open_engine,
    options_of,
    part_of,
    refuse_beside_engine,
    reserved,
    sharing,
    stage_of,
    started,
)
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.live import Installation, Root
from migrator.mapping.model.results import SampleSize, VerifyResult
from migrator.mapping.model.table import ItemKey
from migrator.runtime.errors import DIFFERENT, SettingsError, amount
from migrator.runtime.retry import nap
from migrator.runtime.values import replace
from migrator.settings.job import Job, place
from migrator.stages import process as runs
from migrator.stages.live.capture import of_another
from migrator.stages.process import need_known
from migrator.stages.session.job import Live
from migrator.stages.session.session import JobSession
from migrator.stages.verify.page_check import LOOKED_AT, Recheck
from migrator.stages.verify.stage import Confirm, Verify, VerifyOptions, begin, keep_look

# ── `migrator verify`: rows against items, both ways ──

DEFAULT_SETTLE_S = 10.0


class _VerifyRequest(Struct, frozen=True):
    rows_of: Job
    workers: int | None
    sample: SampleSize | None
    is_seed_drawn: bool
    options: Mapping[str, Any]

    @property
    def scope(self) -> str:
        """A run with another source does not continue it."""
        url, sample = self.options["source_url"], self.sample
        parts = [] if sample is None else [f"sample={sample};seed={sample.seed}"]
        parts += [f"source={hashlib.sha256(url.encode()).hexdigest()[:12]}"] if url else []
        return ";".join(parts)

    @property
    def work(self) -> RunWork:
        url = self.options["source_url"] or ""
        return RunWork(kind="verify", scope=self.scope, sample=self.sample, source_url=url)

    def words(self, sample: str | None) -> list[str]:
        seed = None if self.sample is None else self.sample.seed
        given = {"--sample": sample, "--seed": seed, "--source": self.options["source_url"]}
        return ["verify", str(self.rows_of.path), *options_of(given | {"--workers": self.workers})]


@cli.belonging(applies=lambda options: options["repair"], older=False, begins=True)
def verify(
    session: JobSession, workers: int | None, sample: str | None, seed: int | None, **options: Any
) -> int:
    _refuse_unfit(dict(options) | {"workers": workers})
    read = _read_by(session.job, options["source_url"])
    drawn = _sample(sample, seed)
    asked = _VerifyRequest(read, workers, drawn, drawn is not None and seed is None, options)
    if options["join"] or options["part"]:
        return _join(session, asked)
    with ExitStack() as stack:
        stack.enter_context(cli.stop_on_signals(session.stop))
        cluster = open_engine(options["spark"], stack, session, read, "verify", options["source_url"] or "")
        divided = partial(runs.divided, read, read.tuning.processes or 1, writes=False)
        asked = replace(asked, rows_of=cluster.driver_job(read) if cluster else divided())
        return _drive(stack, session, asked, asked.words(sample), cluster)


def _refuse_unfit(options: Mapping[str, Any]) -> None:
    if options["dry_run"] and not options["repair"]:
        raise SettingsError("--dry-run requires --repair (verify without --repair never writes)")
    unfit = ("repair", "restart", "settle_s", "as_json")
    by_host = {f"--{name}": bool(options[name]) for name in ("join", "workers")}
    refuse_beside_engine(options["spark"], by_host)
    named = [f"--{name.removesuffix('_s').removeprefix('as_')}" for name in unfit if options[name]]
    if options["join"] and named:
        raise click.UsageError(f"--join works on a run that was begun, and goes without {', '.join(named)}")


def _drive(
    stack: ExitStack,
    outer: JobSession,
    asked: _VerifyRequest,
    words: Sequence[str],
    cluster: PageEngine | None,
) -> int:
    read, options, sample, journal = outer.job, asked.options, asked.sample, outer.journal
    # Rows may be read elsewhere; changes are captured in the job's own source.
    own_live = bool(options["source_url"])
    session = stack.enter_context(
        outer.another("verify", job=asked.rows_of, workers=asked.workers, own_live=own_live)
    )
    runs.need_bucket(session.job, session.checked.entities)
    table_id = session.table_id
    lease = stack.enter_context(session.lease())
    ownership = session.ownership
    ownership.refuse_all_direct()
    if options["repair"] and not options["force"]:
        ownership.refuse_complete()
    if options["repair"]:
        need_known(session, cli.say)
    entities = session.checked.entities
    identity = runs.identity_of("verify", session, table_id, entities, asked.scope)
    # Before the run begins: an unreachable source or a bad option must not leave a run.
    captured = _captured(session, options)
    if captured and session.revisions.standing() in ("new", "old"):
        cli.say(OTHER_MAPPING)
    rechecked = recheck_of(session, session.live, options["settle_s"]) if captured else STILL
    stage = stage_of(session, lease, _options(session, asked), cli.progress(), *rechecked)
    run = begun_run(session, identity, captured, again=options["restart"])
    stack.enter_context(cli.stopped_says(lambda: _stopped(session, run, asked)))
    if cluster is not None:
        stage = replace(stage, is_shared=True, pages=cluster.pages(asked.work))
    else:
        stage = _with_others(stack, stage, session, run, asked, words)
    with RunEnd(journal.end_run, run, read.hooks), stage.progress:
        if sample is None:
            keep_look(session.changes_counted, partial(session.journal.keep_look, run))
        result = stage.run(run, entities)
    _print(result, session, as_json=options["as_json"], whole_keys=options["whole_keys"])
    if captured and _marked(session, result, captured, options) and sample is None:
        cli.adopt_repaired(session)
    if not options["as_json"]:
        print_verify_verdict(cli.stdout(), result)
    return DIFFERENT if result.findings else 0


# ── Several processes on one run ──


def _with_others(
    stack: ExitStack,
    stage: Verify,
    session: JobSession,
    run: Run,
    asked: _VerifyRequest,
    words: Sequence[str],
) -> Verify:
    source = session.source
    rows = 0 if asked.sample else sum(source.rows_expected(one.plan) for one in session.checked.entities)
    processes = runs.processes_of(session.job, rows, (session.job.source.max_rows_per_s,))
    if session.job.tuning.processes is None and processes == 1:
        return stage
    connections = runs.taken_by(session.job, stage.options.workers)
    parts = reserved(session, runs.scope_of_run(run), processes - 1, connections)
    stage = sharing(stack, stage, session, run, connections)
    started(stack, session, parts, words, stage.stop, partial(session.journal.release_pages, run))
    return stage


def _join(session: JobSession, asked: _VerifyRequest) -> int:
    part, job = asked.options["part"], asked.rows_of
    who, connections = part_of(part)
    joining = Joining(job, who, connections, asked.workers or job.tuning.workers, asked.work)
    return join(session, joining, has_parent=bool(part))


def _stopped(session: JobSession, run: Run, asked: _VerifyRequest) -> str:
    compared, planned = runs.pages_of(session.journal, run)
    message = f"stopped; nothing was changed, and {compared:,} of {amount(planned, 'planned page')} compared"
    how = [f"with --seed {asked.sample.seed}"] if asked.sample and asked.is_seed_drawn else []
    how += ["without --restart"] * asked.options["restart"]
    if how:
        return f"{message}; {' and '.join(how)} it resumes within the hour"
    return f"{message}; within the hour the same command resumes"


def _read_by(job: Job, source_url: str | None) -> Job:
    try:
        return job.read_from(place(source_url)) if source_url else job
    except ValueError as error:
        raise SettingsError(f"--source: {error}") from None


def begun_run(
    session: JobSession, identity: RunIdentity, installation: Installation | None, *, again: bool
) -> Run:
    run = begin(session.journal, identity, session.newest(), session.journal.idle_s, cli.say, again=again)
    session.journal.keep_installation(run, "" if installation is None else installation.id)
    return run


def _marked(
    session: JobSession, result: VerifyResult, captured: Installation, options: Mapping[str, Any]
) -> bool:
    """Return whether rows were marked by --repair: those that differ, and those of open findings of live change."""
    if not options["repair"]:
        _tell_next(session, result, of_another(captured, session.job.name))
        return False
    names = {entity.name for entity in session.checked.entities}
    open_roots = session.open_findings.roots()
    doubtful = {root: set[ItemKey]() for root in open_roots if root[0] in names} | dict(result.confirmed)
    rows = amount(len(doubtful), "row")
    if options["dry_run"]:
        cli.say(f"{rows} would be queued; --repair without --dry-run queues them")
        return False
    session.live.marks.add({root: sorted(keys, key=repr) for root, keys in doubtful.items()})
    cli.say(f"{rows} queued; run `migrator relay`, then verify again")
    return True


def _tell_next(session: JobSession, result: VerifyResult, another: str) -> None:
    """Advice on findings; while marks wait, differences may be changes in flight.

    `another`: why the marks are another job's.
    """
    refused = result.findings.get("refused")
    if refused and not another:
        cli.say(
            f"{amount(refused, 'row')} refused, without items; change the rows or the mapping, then run `migrator relay`"
        )
    if another and result.findings:
        cli.say(another)
        return
    if not any(result.findings.get(kind) for kind in LOOKED_AT):
        return
    state = session.live.marks.state()
    if state.waiting:
        what = f"{amount(state.waiting, 'change', 'wait')} for a relay, the oldest for {state.oldest_age_s:,.0f} s"
        cli.say(f"{what}: differences may be pending; run `migrator relay`, then verify again")
    elif result.confirmed:
        cli.say("next: `migrator verify --repair`, which queues these rows for the relay")


def _captured(session: JobSession, options: Mapping[str, Any]) -> Installation | None:
    """Capture's installation. With one, the verify knows that rows change meanwhile."""
    if options["repair"]:
        return session.need_installation()
    installation = session.live.capture.installation()
    if installation is None and options["settle_s"] is not None:
        what = "--settle is for a source whose changes are captured"
        raise SettingsError(f"{what}; see `migrator capture install`")
    return installation


def recheck_of(session: JobSession, live: Live, settle_s: float | None) -> tuple[Confirm, Callable[[], bool]]:
    """How a verify of changing rows confirms differences, and whether nothing has changed since."""
    before = (live.tickets.highest(), live.marks.state().waiting)
    return (
        confirm_of(session, settle_s),
        lambda: before == (live.tickets.highest(), live.marks.state().waiting) and not before[1],
    )


def confirm_of(session: JobSession, settle_s: float | None) -> Confirm:
    target, journal = session.target, session.journal
    entities = {entity.name: entity for entity in session.checked.entities}
    recheck = Recheck(
        *(session.source, target.store, journal, entities, target.design, time.time, target.objects)
    )

    def confirm(run: Run) -> Mapping[Root, set[ItemKey]]:
        if any(kind in LOOKED_AT for kind in journal.finding_counts(run)):
            nap(DEFAULT_SETTLE_S if settle_s is None else settle_s, session.stop.is_set, time.sleep)
        return recheck.confirm(run)

    return confirm


def _print(result: VerifyResult, session: JobSession, *, as_json: bool, whole_keys: bool) -> None:
    if as_json:
        print_json(verify_data(result))
        return
    print_verify(cli.stdout(), result)
    print_found(session.journal.findings, result, session.checked.mapping, whole_keys=whole_keys)


def _options(session: JobSession, asked: _VerifyRequest) -> VerifyOptions:
    tuning = session.job.tuning
    workers = asked.workers or tuning.workers
    return VerifyOptions(workers, tuning.page_rows, tuning.scan_segments, asked.sample)


def _sample(part: str | None, seed: int | None) -> SampleSize | None:
    """The requested sample. A drawn seed is printed, so that the same rows can be read again."""
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
        cli.say(f"the sample's seed is {drawn}; --seed {drawn} compares the same rows again")
    return SampleSize(drawn, share, None if share is not None else int(match["rows"]))
