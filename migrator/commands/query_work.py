"""`migrator query` and `migrator shadow replay`: access patterns asked of both sides."""

from __future__ import annotations

import json
import secrets
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import click

from migrator.cli.options import (
    belonging,
    console_on,
    stdout,
    stop_on_signals,
)
from migrator.cli.runs_text import SampleBars, SampleLines
from migrator.commands.query_text import (
    answer_data,
    print_answer,
    print_explanation,
    print_replay,
    replay_data,
)
from migrator.journal.phases import SqlEvidence
from migrator.mapping.difference.answers import answer_digests
from migrator.mapping.language.redaction import json_text
from migrator.mapping.model import mapping as mappings
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.results import ReplayResult
from migrator.mapping.patterns.answers import read_params
from migrator.runtime import logs
from migrator.runtime.errors import DIFFERENT, Interrupted, SettingsError, did_you_mean
from migrator.settings.job import Job
from migrator.stages.live.daemon import RelayLag
from migrator.stages.patterns import question
from migrator.stages.patterns.question import ask
from migrator.stages.patterns.replay import Replay, ReplayOptions, ReplayRecord
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import CommandJob
from migrator.stages.session.live import ONCE, open_live

# ── `migrator query`: one access pattern, asked of both sides ──


def query(job: Path, pattern: str, params: tuple[str, ...], explain: bool, as_json: bool) -> int:
    """The exit code of `migrator query`."""
    read = job_wiring.read_job(job)
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
        begun_at = 0 if record is None else record.begin(stop.is_set)
        result = _run(stage, patterns)
        # Before it is kept: a journal that is gone by now takes nothing of it away.
        _show(result, as_json=flags["as_json"])
        if record is not None:
            record.keep(result, begun_at)
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
    return ReplayRecord(evidence, mapping.revision, answer_digests(mapping, ()))


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
