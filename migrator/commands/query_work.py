"""`migrator look --pattern` and `migrator shadow replay`: access patterns answered by both sides."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from migrator.cli.inert import plain
from migrator.cli.options import belonging, console_on, pair_of, say, stdout, stop_on_signals
from migrator.cli.runs_text import SampleBars, SampleLines
from migrator.cli.text import table_of
from migrator.commands.mapping_source import null_doubts
from migrator.mapping.difference.difference import answer_digests
from migrator.mapping.language.redaction import json_ready, json_text, mask, value_texts
from migrator.mapping.model import mapping as mappings
from migrator.mapping.model.edges import AT_ONCE
from migrator.mapping.model.evidence import SIDES
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.report import Curve
from migrator.mapping.model.results import Answer, Example, PartAnswer, PatternReplay, ReplayResult, Request
from migrator.mapping.patterns.params import read_params
from migrator.runtime import logs
from migrator.runtime.errors import DIFFERENT, Interrupted, SettingsError, amount
from migrator.runtime.values import picked
from migrator.settings.job import Job
from migrator.stages.live.daemon import RelayLag
from migrator.stages.patterns.question import ask
from migrator.stages.patterns.replay import Replay, ReplayOptions, ReplayRecord
from migrator.stages.reads.reads import question_named
from migrator.stages.session.job import ONCE
from migrator.stages.session.session import JobSession

# ── Answers of access patterns and results of replays, as text and JSON ──


# ── Answers of access patterns, and their requests: for people, and as plain data for programs ──

_ROWS_SHOWN = 10
_CALLS = {"query": "Query", "get": "GetItem", "batch_get": "BatchGetItem"}


def answer_data(answer: Answer) -> dict[str, Any]:
    return {
        "pattern": answer.pattern.name,
        "same": answer.same,
        "parts": [
            {
                "part": part.part.name,
                "attributes": list(part.part.attributes),
                "items": json_ready(part.items),
                "rows": json_ready(part.rows),
                "same": part.same,
            }
            for part in answer.parts
        ],
        "operation": _CALLS[answer.table.request.operation],
        "requests": json_ready(answer.table.request.sent),
        "round_trips": answer.table.round_trips,
        "read_units": answer.read_units,
        "reported_read_units": answer.table.reported_units or None,
        "took_ms": answer.table.ms,
        "sql_round_trips": answer.sql.round_trips,
        "sql_took_ms": answer.sql.ms,
    }


def print_answer(console: Console, answer: Answer) -> None:
    for part in answer.parts:
        console.print(_answer_table(answer, part))
        if max(len(part.items), len(part.rows)) > _ROWS_SHOWN:
            console.print(f"… {len(part.items):,} items, {len(part.rows):,} rows in all")
        if part.several:
            console.print("more than one, although the part has one: true", markup=False)
    verdict = "[bold green]the same[/]" if answer.same else "[bold red]not the same[/]"
    order = "" if answer.pattern.order == "exact" else " (compared as sets)"
    console.print(f"{answer.pattern.name}: {verdict}{order}; {amount(answer.table.round_trips, 'request')}")


def print_explanation(console: Console, answer: Answer) -> None:
    for line in explanation(answer):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def explanation(answer: Answer) -> Iterator[str]:
    if not answer.table.request.sent:
        yield "no request: no item can match these parameters"
    for sent in answer.table.request.sent:
        yield from _EXPLAINED[answer.table.request.operation](sent)
    yield from _afterwards(answer.table.request)
    table, sql = answer.table, answer.sql
    yield f"DynamoDB: {amount(table.round_trips, 'round trip')}, {_units(answer)}, {table.ms:,.1f} ms"
    yield f"SQL: {amount(sql.round_trips, 'round trip')}, {sql.ms:,.1f} ms"


def _units(answer: Answer) -> str:
    """Both numbers: an emulator may count differently than DynamoDB bills."""
    about = "about " if answer.dropped else ""
    dropped = f", with {answer.dropped:,} that the filter dropped" if answer.dropped else ""
    # Each read costs at least half a unit: zero means that the endpoint did not report it.
    reported = f"{answer.table.reported_units:,g}" if answer.table.reported_units else "none"
    return f"{about}{answer.read_units:,g} read units by item sizes{dropped} ({reported} reported by the endpoint)"


def _query(sent: Mapping[str, Any]) -> Iterator[str]:
    condition = _filled(sent["KeyConditionExpression"], sent)
    words = [f"Query on {sent.get('IndexName', 'the table')}: {condition}"]
    if "FilterExpression" in sent:
        words.append(f"filter {_filled(sent['FilterExpression'], sent)}")
    if not sent["ScanIndexForward"]:
        words.append("descending")
    yield "; ".join([*words, *_consistent(sent)])


def _get(sent: Mapping[str, Any]) -> Iterator[str]:
    yield "; ".join([f"GetItem: {_key(sent['Key'])}", *_consistent(sent)])


def _batch_get(sent: Mapping[str, Any]) -> Iterator[str]:
    yield "; ".join([f"BatchGetItem: {amount(len(sent['Keys']), 'key')}", *_consistent(sent)])
    for key in sent["Keys"]:
        yield f"  {_key(key)}"


_EXPLAINED = {"query": _query, "get": _get, "batch_get": _batch_get}


def _afterwards(request: Request) -> Iterator[str]:
    if len(request.sent) > request.calls:
        yield "any one of these copies is read"
    if len(request.sent) > 1 and request.operation == "query" and request.near is None:
        yield f"merged by {', '.join(request.sort) or 'nothing (no sort key)'}"
    if request.near is not None:
        yield f"then cut to {request.near.within_m:g} m and sorted by distance"
    if request.limit is not None:
        yield f"limit {request.limit}"


def _consistent(sent: Mapping[str, Any]) -> list[str]:
    return ["consistent"] if sent.get("ConsistentRead") else []


def _key(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {json_text(value)}" for name, value in key.items())


def _filled(expression: str, sent: Mapping[str, Any]) -> str:
    names, bound = sent["ExpressionAttributeNames"], sent["ExpressionAttributeValues"]
    pieces = {**names, **{name: json_text(value) for name, value in bound.items()}}
    return re.sub(r"[#:]\w+", lambda match: pieces[match[0]], expression)


def _answer_table(answer: Answer, part: PartAnswer) -> Table:
    title = f"{answer.pattern.name} {part.part.name}".strip()
    table = Table(title=title, title_justify="left")
    names = " | ".join(part.part.attributes)
    table.add_column(f"DynamoDB: {names}", overflow="fold")
    table.add_column(f"SQL: {names}", overflow="fold")
    for number in range(min(_ROWS_SHOWN, max(len(part.items), len(part.rows)))):
        table.add_row(_cell(part.items, number), _cell(part.rows, number))
    return table


def _cell(rows: Sequence[tuple[Any, ...]], number: int) -> str:
    if number >= len(rows):
        return ""
    shown = ("–" if value is None else value for value in rows[number])
    texts = (value if isinstance(value, str) else json_text(value) for value in shown)
    return plain(" | ".join(texts)).replace("[", r"\[")


# ── Results of a replay: tables and examples side by side for people, plain data for programs ──

LAG_SHOWN_S = 1.0
"""Seconds; a change is always some moments on its way."""
_EXAMPLES_SHOWN = 3
"""Examples of each kind of difference."""


def replay_data(result: ReplayResult) -> dict[str, Any]:
    """`clean` decides the exit code; `not_proven` are patterns without calls. Redacted values are masked."""
    return {
        **picked(result, "clean", "not_proven", "control", "seed"),
        "took_s": round(result.took_s, 3),
        "lag_s": round(result.lag_s, 1),
        "patterns": [_pattern_data(replay) for replay in result.patterns],
    }


def print_replay(console: Console, result: ReplayResult) -> None:
    console.print(_counts(result))
    for replay in result.patterns:
        console.print(
            f"{replay.pattern.name}: {_drawn(replay)}", markup=False, highlight=False, soft_wrap=True
        )
    for replay in result.patterns:
        _print_differences(console, replay, result)
    if result.lag_s >= LAG_SHOWN_S:
        behind = (
            f"the table lacks changes of the last {result.lag_s:.0f} s, and differs where they would show"
        )
        mend = "is `migrator relay` running? see `migrator status`, and run it again with a longer --settle"
        console.print(f"[bold yellow]{behind}: {mend}[/]", highlight=False, soft_wrap=True)
    console.print(_verdict(result), soft_wrap=True)


# ── plain data ──────────────────────────────────────────────────────────────────────────────────


def _pattern_data(replay: PatternReplay) -> dict[str, Any]:
    return {
        "pattern": replay.pattern.name,
        "parameters": dict(replay.origins),
        "kinds": [{"set": list(kind), "samples": count} for kind, count in sorted(replay.kinds.items())],
        **picked(replay, "samples", "absent", "same", "empty", "transient", "different", "missing_why"),
        "differences": [
            {"class": kind.kind, "part": kind.part, "attribute": kind.attribute, "count": count}
            | {"examples": [_example(replay, e) for e in replay.examples[kind][:_EXAMPLES_SHOWN]]}
            for kind, count in sorted(replay.found.items())
        ],
        "latency_ms": {side: _latency_data(latency) for side, latency in replay.latency.items()},
    }


def _latency_data(curve: Curve) -> dict[str, Any]:
    shares = {f"p{share:.0f}": curve.at(share) for share in (50.0, 90.0, 99.0)}
    return {"answers": curve.answers, **shares, "max": curve.max_ms}


def _example(replay: PatternReplay, example: Example) -> dict[str, Any]:
    """Values are JSON texts: 9.90 and "9.90" differ, and numbers keep every digit."""
    data: dict[str, Any] = {"params": _params(replay, example.params)}
    if example.why:
        data["why"] = example.why
    for side in ("row", "item") if example.diff else ():
        values = getattr(example.diff, side)
        if values is not None:
            texts = value_texts(example.compared, values, replay.hidden.attributes)
            data[side] = dict(zip(example.compared, texts, strict=True))
    return data


def _params(replay: PatternReplay, texts: Mapping[str, str]) -> dict[str, str]:
    return {name: mask(text) if name in replay.hidden.params else text for name, text in texts.items()}


# ── for people ──────────────────────────────────────────────────────────────────────────────────


def _counts(result: ReplayResult) -> Table:
    latencies = (f"{side} {share} " for side in _names(result) for share in ("p50", "p99"))
    columns = ("pattern", "samples ", "same ", "empty ", "transient ", "different ", *latencies)
    return table_of(columns, map(_replay_cells, result.patterns))


def _replay_cells(replay: PatternReplay) -> tuple[str, ...]:
    counts = (replay.samples, replay.same, replay.empty, replay.transient, replay.different)
    return replay.pattern.name, *(f"{count:,}" for count in counts), *_milliseconds(replay)


def _verdict(result: ReplayResult) -> str:
    samples = sum(replay.samples for replay in result.patterns)
    word = "[bold green]clean[/]" if result.clean else "[bold yellow]not proven[/]"
    if result.different:
        word = "[bold red]not clean[/]"
    text = f"{word}: {amount(samples, 'question')}, seed {result.seed}; took {result.took_s:.1f} s"
    if result.not_proven:
        why = "see the reason above; run it again when the source has rows with a value"
        text += f"; no question could be drawn for {escape(', '.join(result.not_proven))} ({why})"
    return text


def _names(result: ReplayResult) -> tuple[str, str]:
    return ("SQL (first)", "SQL (again)") if result.control else ("DynamoDB", "SQL")


def _milliseconds(replay: PatternReplay) -> Iterator[str]:
    for side in SIDES:
        curve = replay.latency.get(side)
        yield from (f"{curve.at(share):,.1f} ms" for share in (50.0, 99.0)) if curve else ("–", "–")


def _drawn(replay: PatternReplay) -> str:
    words = [", ".join(f"{name} ← {origin}" for name, origin in replay.origins.items()) or "no parameters"]
    if any(param.optional for param in replay.pattern.params):
        kinds = (f"{' + '.join(kind) or 'none'} {count:,}" for kind, count in sorted(replay.kinds.items()))
        words.append(f"optional ones set: {', '.join(kinds)}")
    if replay.absent:
        words.append(f"{replay.absent:,} for missing rows")
    if replay.missing_why:
        words.append(f"fewer samples than wanted: {replay.missing_why}")
    return "; ".join(words)


def _print_differences(console: Console, replay: PatternReplay, result: ReplayResult) -> None:
    for kind, count in sorted(replay.found.items()):
        where = " ".join(word for word in (kind.part, kind.attribute) if word)
        title = f"{replay.pattern.name}: {count:,} {kind.kind} {where}".rstrip()
        console.print(f"[bold red]{escape(title)}[/]")
        _print_example(console, replay, replay.examples[kind][0], result)


def _print_example(console: Console, replay: PatternReplay, example: Example, result: ReplayResult) -> None:
    params = _params(replay, example.params)
    arguments = " ".join(f"-p {_word(f'{name}={text}')}" for name, text in params.items())
    console.print(f"  asked {arguments}".rstrip(), markup=False, highlight=False, soft_wrap=True)
    if example.why:
        console.print(f"  {plain(example.why)}", markup=False, highlight=False, soft_wrap=True)
    if example.diff is None or (example.diff.row is None and example.diff.item is None):
        return
    first, second = _names(result)
    table = Table(box=None, pad_edge=False)
    for column in ("  attribute", second, first):
        table.add_column(column, overflow="fold")
    data = _example(replay, example)
    for name in example.compared:
        cells = [_replay_cell(data.get(side), name) for side in ("row", "item")]
        differs = example.diff.attribute == name
        table.add_row(escape(f"{'»' if differs else ' '} {name}"), *cells, style="bold" if differs else "")
    console.print(table)


def _word(text: str) -> str:
    return shlex.quote(text) if text.isprintable() else json.dumps(text)


def _replay_cell(values: Mapping[str, Any] | None, name: str) -> str:
    if values is None:
        return "(not there)"
    return escape(plain(values[name]))


# ── `migrator look --pattern`: one access pattern, answered by both sides ──


def query(job: Path, pattern: str, params: tuple[str, ...], explain: bool, as_json: bool) -> int:
    texts = _param_texts(params)
    with JobSession(job, "query") as session:
        mapping = session.checked.mapping
        chosen = question_named(mapping.patterns, pattern)
        values = read_params(chosen, texts)
        plans, store = session.checked.read_plans, session.target.store
        answer = ask(mapping, chosen, values, session.source, store, plans=plans)
    if as_json:
        click.echo(json_text(answer_data(answer)))
    else:
        print_answer(stdout(), answer)
        if explain:
            print_explanation(stdout(), answer)
    return 0 if answer.same else DIFFERENT


def _param_texts(params: tuple[str, ...]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in (pair_of(param, otherwise="a parameter is written -p name=value") for param in params):
        if name in texts:
            raise SettingsError(f"-p {name}= is given twice; keep one (a list is one value: -p {name}=1,2,3)")
        texts[name] = value
    return texts


DEFAULT_SETTLE_S = 3.0
_PATIENCE_S = 10.0
"""How long one question is tried again: a caller of the service would not have waited longer, and thousands follow."""


@belonging(applies=lambda asked: not (asked["control"] or asked["dry_run"]))
def replay(session: JobSession, names: tuple[str, ...], questions: int, workers: int, **flags: Any) -> int:
    read = _tuned(session.job, workers)
    seed = secrets.randbelow(1_000_000) if flags["seed"] is None else flags["seed"]
    settle_s = DEFAULT_SETTLE_S if flags["settle_s"] is None else flags["settle_s"]
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals(session.stop))
        opened = session.another("shadow", job=read, workers=workers, live_patience=ONCE)
        session = stack.enter_context(opened)
        patterns = _chosen(session.checked.mapping, names)
        store, record, lag_s = None, None, lambda: 0.0
        if not flags["control"]:
            if not flags["dry_run"]:
                record = _record(session)
            _ = session.table_id
            store = session.target.store
            lag_s = RelayLag(session.live.marks.state)
        progress = replay_progress()
        stack.enter_context(progress)
        options = ReplayOptions(questions, seed, settle_s, workers)
        mapping, entities = session.checked.mapping, session.checked.read
        stage = Replay(
            mapping, entities, session.source, store, options, progress=progress, stop=stop, lag_s=lag_s
        )
        begun_at = 0 if record is None else record.begin(stop.is_set)
        result = _run(stage, patterns)
        different = {replay.pattern.name for replay in result.patterns if replay.different}
        for name, what in null_doubts(session.source, session.checked) if different else ():
            if name in different:
                say(f"{name}: {what}")
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


def _record(session: JobSession) -> ReplayRecord:
    """Opened before the first call, so that an unusable journal is an error at once."""
    evidence, mapping = session.evidence, session.checked.mapping
    return ReplayRecord(evidence, mapping.revision, answer_digests(mapping, ()))


def _run(stage: Replay, patterns: list[Pattern]) -> ReplayResult:
    try:
        return stage.run(patterns)
    except Interrupted:
        what = f"stopped; nothing was written, and --seed {stage.options.seed} repeats the same questions"
        raise Interrupted(what) from None


def _chosen(mapping: mappings.Mapping, names: tuple[str, ...]) -> list[Pattern]:
    if not mapping.patterns:
        raise SettingsError("the mapping has no access patterns; write them under access_patterns:")
    return [question_named(mapping.patterns, name) for name in dict.fromkeys(names or mapping.patterns)]


def _tuned(job: Job, workers: int) -> Job:
    """The job with less patience, and a connection for each concurrent request of a question."""
    return job.with_patience(_PATIENCE_S).tuned(workers=workers * AT_ONCE)


def replay_progress() -> SampleBars | SampleLines:
    if sys.stderr.isatty():
        return SampleBars(console_on(sys.stderr))
    return SampleLines(logs.get_logger("migrator"))
