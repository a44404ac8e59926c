"""`migrator shadow replay`: access patterns asked of both sides with sampled parameters, and compared."""

from __future__ import annotations

import json
import secrets
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import click

from migrator.cli.options import console_on, stdout, stop_on_signals
from migrator.cli.ownership import belonging
from migrator.journal.evidence import SqlEvidence
from migrator.model.entities import Mapping
from migrator.model.errors import DIFFERENT, Interrupted, SettingsError, did_you_mean
from migrator.model.patterns import Pattern
from migrator.model.results import ReplayResult
from migrator.output.patterns import print_replay, replay_data
from migrator.output.runs import SampleBars, SampleLines
from migrator.runtime import logs
from migrator.settings.job import Job
from migrator.stages.live.daemon import RelayLag
from migrator.stages.patterns import question
from migrator.stages.patterns.replay import Replay, ReplayOptions, ReplayRecord
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring.job import CommandJob
from migrator.wiring.live import ONCE, open_live

DEFAULT_SETTLE_S = 3.0
_PATIENCE_S = 10.0
"""How long one question is tried again: a caller of the service would not have waited longer, and thousands follow."""


@belonging(applies=lambda asked: not (asked["control"] or asked["no_record"]))
def replay(
    command_job: CommandJob, names: tuple[str, ...], questions: int, workers: int, **asked: Any
) -> int:
    """The exit code of `migrator shadow replay`."""
    read = _tuned(command_job.job, workers)
    seed = _seed(asked["seed"])
    settle_s = DEFAULT_SETTLE_S if asked["settle_s"] is None else asked["settle_s"]
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        context = stack.enter_context(job_wiring.open_job(read, "shadow", workers=workers, stop=stop.is_set))
        patterns = _chosen(context.checked.mapping, names)
        store, record, lag_s = None, None, _no_lag
        if not asked["control"]:
            if not asked["no_record"]:
                record = _record(stack, read, context.checked.mapping)
            target = job_wiring.open_target(read, context.checked.mapping.table, stop.is_set)
            live_wiring.existing_table(read, target)
            store = target.store
            live = stack.enter_context(open_live(read, "shadow", patience=ONCE, source=context.source))
            lag_s = RelayLag(live.marks.state)
        progress = _progress()
        stack.enter_context(progress)
        options = ReplayOptions(questions, seed, settle_s, workers)
        mapping, entities = context.checked.mapping, context.checked.read
        stage = Replay(
            mapping, entities, context.source, store, options, progress=progress, stop=stop, lag_s=lag_s
        )
        result = _run(stage, patterns)
        # Before it is kept: a journal that is gone by now takes nothing of it away.
        _show(result, as_json=asked["as_json"])
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


def _record(stack: ExitStack, job: Job, mapping: Mapping) -> ReplayRecord:
    """Opened before anything is asked, so that a journal that cannot keep the findings is an error at once."""
    journal = stack.enter_context(job_wiring.open_journal(job))
    return ReplayRecord(SqlEvidence(journal.database, job.name), mapping.revision)


def _run(stage: Replay, patterns: list[Pattern]) -> ReplayResult:
    try:
        return stage.run(patterns)
    except Interrupted:
        what = f"stopped; nothing was written, and --seed {stage.options.seed} asks the same questions again"
        raise Interrupted(what) from None


def _chosen(mapping: Mapping, names: tuple[str, ...]) -> list[Pattern]:
    """The named patterns, each once; all where none is named."""
    if not mapping.patterns:
        raise SettingsError("the mapping has no access patterns; write them under access_patterns:")
    unknown = [name for name in names if name not in mapping.patterns]
    if unknown:
        known = did_you_mean(unknown[0], mapping.patterns)
        raise SettingsError(f"the mapping has no access pattern '{unknown[0]}'{known}")
    return [mapping.patterns[name] for name in dict.fromkeys(names or mapping.patterns)]


def _seed(given: int | None) -> int:
    return secrets.randbelow(1_000_000) if given is None else given


def _tuned(job: Job, workers: int) -> Job:
    """The job less patient, and with a connection for each request that a question of many partitions asks at once."""
    patience_s = min(job.tuning.give_up_after_s, _PATIENCE_S)
    return replace(
        job, tuning=replace(job.tuning, give_up_after_s=patience_s, workers=workers * question.AT_ONCE)
    )


def _progress() -> SampleBars | SampleLines:
    if sys.stderr.isatty():
        return SampleBars(console_on(sys.stderr))
    return SampleLines(logs.get_logger("migrator"))
