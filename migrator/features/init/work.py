"""`migrator init`: a mapping, a job and a worksheet, from a database's schema and its statements."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from migrator.cli.command_line import print_json
from migrator.cli.inert import plain
from migrator.cli.options import print_result, progress, stop_on_signals
from migrator.cli.template import text_template
from migrator.commands.query_work import replay_progress
from migrator.features.init.documents import SampledTable, mapping_text, seen_in
from migrator.features.init.placing import Access, EntityNames, PlacedTables
from migrator.features.init.workbench import LONGEST_BYTES, head_of_model
from migrator.features.init.written import (
    Proposal,
    default_statements,
    frequency,
    names_in,
    proposal_of,
    wanted_of,
)
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.document import text_of
from migrator.mapping.language.documents import facts_of
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.capacity import PatternReads
from migrator.mapping.model.edges import Source
from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.questions import (
    NO_QUESTIONS,
    REASONS,
    Figures,
    Statement,
    StatementQuestion,
    Unserved,
)
from migrator.mapping.model.results import PatternReplay, Proof
from migrator.runtime.errors import (
    CLEAN,
    DIFFERENT,
    Fault,
    Interrupted,
    MappingError,
    SettingsError,
    SourceError,
    StoppedError,
    TooSlowError,
    amount,
    verb,
)
from migrator.runtime.system import how_to_install
from migrator.runtime.values import replace
from migrator.settings.job import Job, SourceSettings, Tuning, load_job
from migrator.stages.backfill.stage import Backfill, BackfillOptions, sends_nothing
from migrator.stages.design.sizing import SampleBounds, Sizing
from migrator.stages.patterns.question import statement_faults
from migrator.stages.patterns.replay import Replay, ReplayOptions
from migrator.stages.process import PathChoice, RunEdges, identity_of
from migrator.stages.session.job import sampled
from migrator.stages.session.session import JobSession, open_alone
from migrator.stages.session.source import open_database
from migrator.stages.session.workload import Workload

_UNTRIED = Proof(missing="--no-prove")
_LINES = 20
"""Questions that are not served, and tables that are left out, on a terminal."""
_TITLE = 60
"""Characters of a statement that has no name."""
_SHOWN = 300
"""Characters of a statement that is not served."""


class Sheet(Struct, frozen=True):
    """`unserved`: statements that no pattern answers, also those without a question.
    `reads`: of a call of each pattern, by name.
    `left_out`: tables without an entity, and why.
    """

    mapping: str
    proposal: Proposal
    unserved: Sequence[Unserved]
    figures: Figures
    proof: Proof = _UNTRIED
    reads: Mapping[str, PatternReads] = {}
    left_out: Mapping[str, str] = {}

    @property
    def served(self) -> tuple[Access, ...]:
        return self.proposal.design.accesses

    @property
    def not_served(self) -> list[Unserved]:
        """Unserved questions, the most frequent first."""
        questions = (statement for statement in self.unserved if statement.reason not in NO_QUESTIONS)
        return sorted(questions, key=_place)

    @property
    def no_questions(self) -> list[Unserved]:
        others = (statement for statement in self.unserved if statement.reason in NO_QUESTIONS)
        return sorted(others, key=_place)


def _place(other: Unserved) -> tuple[float, str, str]:
    return -other.statement.calls, other.statement.sql, other.statement.words


def worksheet(sheet: Sheet) -> str:
    calls = sum(access.question.statement.calls for access in sheet.served)
    calls += sum(other.statement.calls for other in sheet.not_served)
    template = text_template(
        "migrator.cli",
        "templates/worksheet.md",
        amount=amount,
        calls=frequency,
        indented=_indented,
        cell=_cell,
        request=request_text,
    )
    return template.render(
        sheet=sheet,
        reasons=REASONS,
        rows=_rows(sheet),
        proof=proof_text,
        sizes=_sizes,
        share=lambda statement: f"{100 * statement.calls / (calls or 1):.1f} %",
    )


def summary(sheet: Sheet) -> dict[str, Any]:
    return {
        "served": len(sheet.served),
        "not_served": [
            {
                "statement": _name(other),
                "reason": other.reason,
                "what": other.what,
                "calls": other.statement.calls,
            }
            for other in sheet.not_served
        ],
        "no_questions": len(sheet.no_questions),
        "indexes": sheet.proposal.design.indexes,
        "entities": len(sheet.proposal.design.homes),
        "decisions": list(sheet.proposal.decisions),
        "left_out": dict(sheet.left_out),
        "proof": _proof_data(sheet),
    }


def _proof_data(sheet: Sheet) -> dict[str, Any]:
    replays = sheet.proof.replays
    return {
        "missing": sheet.proof.missing,
        "patterns": {
            name: {"questions": replay.samples, "different": replay.different}
            for name, replay in replays.items()
        },
        "not_asked": dict(sheet.proof.apart),
        "refused": {name: count for name, (count, _) in sheet.proof.refused.items()},
    }


def proof_text(sheet: Sheet, name: str) -> str:
    if (replay := sheet.proof.replays.get(name)) is None:
        return f"no: {sheet.proof.missing or sheet.proof.apart.get(name, '')}"
    if replay.different:
        return f"no: {sheet.proof.difference(name)}"
    why = f"; {replay.missing_why}" if replay.missing_why else ""
    return f"{amount(replay.samples, 'question')} answered as SQL does{why}" if replay.samples else f"no{why}"


def summary_text(sheet: Sheet) -> str:
    design = sheet.proposal.design
    asked = len(sheet.served) + len(sheet.not_served)
    lines = [
        f"{len(sheet.served)} of {amount(asked, 'statement')} served, {amount(design.indexes, 'index')}, "
        + amount(len(design.homes), "entity")
    ]
    for other in sheet.not_served[:_LINES]:
        why, instead = REASONS[other.reason]
        what = f" ({plain(other.what)})" if other.what else ""
        lines.append(f"not served: {_title(other)} ({frequency(other.statement)}): {why}{what}; {instead}")
    if len(sheet.not_served) > _LINES:
        lines.append(f"not served: {len(sheet.not_served) - _LINES:,} more, which the worksheet has")
    left_out = [f"left out: {plain(name)} ({why})" for name, why in sheet.left_out.items()]
    lines += left_out[:_LINES]
    if len(left_out) > _LINES:
        lines.append(f"left out: {len(left_out) - _LINES:,} more, which the worksheet has")
    lines += _proof_lines(sheet)
    lines += (
        ["to decide:", *(f"- {decision}" for decision in sheet.proposal.decisions)]
        if sheet.proposal.decisions
        else []
    )
    return "\n".join(lines)


def _title(other: Unserved) -> str:
    text = _name(other)
    return plain(text if len(text) <= _TITLE else f"{text[:_TITLE]}…")


def _name(other: Unserved) -> str:
    return other.statement.name or other.statement.words or other.statement.sql


def ending(sheet: Sheet, mapping: str) -> str:
    """Why the exit code is not 0 although the files are written, and the next command; '' for code 0."""
    count, differing = len(sheet.not_served), [] if sheet.proof.clean else ["the proof found a difference"]
    unserved = [f"{count} statement{'s are' if count > 1 else ' is'} not served"] if count else []
    why = " and ".join(unserved + differing)
    following = f"the files are written all the same; next: migrator mapping check {mapping}"
    return f"exit code 1: {why}; {following}" if why else ""


def _proof_lines(sheet: Sheet) -> Iterator[str]:
    proof = sheet.proof
    if proof.missing:
        yield f"not proved: {proof.missing}"
        return
    asked = [replay for replay in proof.replays.values() if replay.samples]
    same, samples = sum(replay.same for replay in asked), sum(replay.samples for replay in asked)
    yield f"proved: {same:,} of {samples:,} questions on {amount(len(asked), 'pattern')} are answered as SQL does"
    yield from (f"not proved: {name}: {why}" for name, why in proof.apart.items())
    yield from (f"differs: {name}: {text}" for name in proof.replays if (text := proof.difference(name)))
    yield from (
        f"refused: {amount(count, 'row')} of {name} {verb(count, 'make')} no item: {why}"
        for name, (count, why) in proof.refused.items()
    )


def request_text(access: Access) -> str:
    operator, values = access.condition
    where = f"GSI{access.index}" if access.index else "the table"
    sort = " ".join(filter(None, (operator if operator != "equal" else "", " and ".join(values))))
    filtered = f", filter {text_of(access.filters)}" if access.filters else ""
    return f"{access.operation} {where}: {', '.join(filter(None, (access.key, sort)))}{filtered}"


def _sizes(sheet: Sheet, name: str) -> tuple[str, str, str]:
    """(rows, bytes, read units) of an average call, each marked exact or estimated."""
    reads = sheet.reads.get(name)
    if reads is None or not reads.calls:
        return ("not known",) * 3
    how = "" if reads.exact else " (estimated)"
    return f"{reads.items:,.4g}{how}", f"{reads.bytes:,.0f}{how}", f"{reads.units:,.4g}{how}"


def _rows(sheet: Sheet) -> list[tuple[str, str]]:
    figures = sheet.figures
    return [
        (name, f"{rows:,}" if name in figures.exact else f"{rows:,} or more")
        for name, rows in sorted(figures.rows.items())
    ]


def _indented(sql: str) -> str:
    text = plain(sql if len(sql) <= 10 * _SHOWN else f"{sql[:_SHOWN]} …", lines=True)
    return "\n".join(f"    {line}" for line in text.splitlines() if line.strip())


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


# ── `migrator init JOB`: a mapping for a job's old tables of DynamoDB's ──


SAMPLED = 1_000
"""Documents that are read from each table."""


def init_documents(job: Job, out: Path, table: str, *, force: bool, as_json: bool) -> int:
    if job.source.dynamodb is None:
        raise SettingsError(f"{job.path}: the job's source is a database: give its URL as --source")
    if out.suffix not in (".yaml", ".yml"):
        raise SettingsError(f"{out}: a mapping is a YAML file; write --out shop.yaml")
    if out.exists() and not force:
        raise SettingsError(
            f"{out}: there already; name another file with --out, or add --force to replace it"
        )
    tables = [SampledTable(*one) for one in sampled(job.source.dynamodb, SAMPLED)]
    text = mapping_text(table, tables)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written ({error.strerror})") from None
    faults = _faults(text, str(out))
    varying = {one.name: varies(one) for one in tables}
    lines = [f"{out}: written"]
    for one in tables:
        told = f"; varies: {', '.join(varying[one.name])}" if varying[one.name] else ""
        looked = f"{amount(len(one.items), 'document')} looked at, {len(seen_in(one)):,} places{told}"
        lines.append(f"{one.name}: {looked}")
    lines += faults or [f"next: look through {out}, then `migrator mapping check {out}`"]
    data = {"files": [str(out)], "tables": _figures(tables, varying), "faults": faults}
    print_result(data, lines, as_json=as_json)
    return CLEAN


def varies(table: SampledTable) -> list[str]:
    return [path for path, seen in seen_in(table).items() if len(set(seen.types) - {"NULL"}) > 1]


def _figures(tables: Sequence[SampledTable], varying: dict[str, list[str]]) -> list[dict[str, object]]:
    return [
        {
            "table": one.name,
            "documents": len(one.items),
            "places": len(seen_in(one)),
            "varies": varying[one.name],
        }
        for one in tables
    ]


def _faults(text: str, file: str) -> list[str]:
    try:
        parsed = examine_mapping(text, file)
        check_mapping(parsed, facts_of(parsed.mapping))
    except MappingError as error:
        return [str(fault) for fault in error.faults if not fault.warning]
    return []


_ROWS_SIZED = 20_000
"""Tables of more rows are sized by a sample."""
_ROWS_SAMPLED = 2_000
QUESTIONS = 25
"""Questions per pattern, for sizing and for the proof."""
_FEWEST, _ALL_QUESTIONS = 5, 20_000


def questions_each(patterns: int) -> int:
    """Fewer for many patterns: else a schema of thousands of tables takes hours."""
    return max(_FEWEST, min(QUESTIONS, _ALL_QUESTIONS // max(patterns, 1)))


_JOB = """\
# Moves what {mapping} says; MIGRATOR_SOURCE_URL says where the database is.
job: 1
mapping: {mapping}
source: {{url: "${{MIGRATOR_SOURCE_URL}}"}}
target: {{endpoint: "${{MIGRATOR_ENDPOINT_URL:-embedded}}"}}
"""


class WrittenFiles(Struct, frozen=True):
    mapping: Path
    job: Path
    worksheet: Path

    @classmethod
    def of(cls, out: Path, *, force: bool) -> WrittenFiles:
        """Raises: SettingsError if `out` is not a mapping's name, or one of the files exists (without
        `force`)."""
        if out.suffix not in (".yaml", ".yml"):
            raise SettingsError(f"{out}: a mapping is a YAML file; write --out shop.yaml")
        if not out.parent.is_dir():
            raise SettingsError(f"{out.parent}: folder not found; create it, or pass another --out")
        files = cls(out, out.with_name(f"{out.stem}.job.yaml"), out.with_name(f"{out.stem}.patterns.md"))
        there = [str(path) for path in files.all if path.exists() and not force]
        if there:
            what = f"{', '.join(there)}: there already"
            raise SettingsError(f"{what}; name another file with --out, or add --force to replace them")
        return files

    @property
    def all(self) -> tuple[Path, Path, Path]:
        return self.mapping, self.job, self.worksheet

    def names(self) -> dict[str, EntityNames]:
        try:
            return names_in(self.mapping.read_text(encoding="utf-8"), self.mapping.name)
        except (OSError, UnicodeDecodeError):
            return {}

    def write(self, proposal: Proposal, sheet: str) -> None:
        texts = proposal.text, _JOB.format(mapping=self.mapping.name), sheet
        for path, text in zip(self.all, texts, strict=True):
            try:
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise SettingsError(f"{path}: cannot be written ({error.strerror})") from None


def init(
    source: str,
    statements: tuple[str, ...],
    out: Path | None,
    table: str | None,
    max_indexes: int,
    rows_exact: int,
    only: tuple[str, ...],
    leave_out: tuple[str, ...],
    strict: bool,
    force: bool,
    prove: bool,
    as_json: bool,
) -> int:
    if (path := Path(source)).suffix == ".json":
        return init_from_model(path, table, out, force=force, as_json=as_json)
    if out is None:
        raise click.UsageError("Missing option '--out', such as --out shop.yaml")
    if path.suffix in (".yaml", ".yml") and path.is_file():
        job = load_job(path, os.environ)
        return init_documents(job, out, table or _table_name(out.stem), force=force, as_json=as_json)
    files = WrittenFiles.of(out, force=force)
    with ExitStack() as until:
        opened = until.enter_context(open_database(SourceSettings.model_construct(url=source)))
        workload, file = Workload(opened, opened.facts()), files.mapping.name
        named, limits = table or _table_name(opened.database or out.stem), (max_indexes, rows_exact)
        asked_of = _statements_and_list(statements)
        asking = _Asking(
            opened, workload, file, named, *asked_of, *limits, nulls=not strict, written=files.names()
        )
        sheet = asking.without(only, leave_out).sheet()
    files.write(sheet.proposal, worksheet(sheet))
    if prove:
        sheet = _proved(source, files, sheet)
        files.write(sheet.proposal, worksheet(sheet))
    names = [str(path) for path in files.all]
    lines = (f"{', '.join(names)}: written", summary_text(sheet), ending(sheet, names[0]))
    print_result({**summary(sheet), "files": names}, filter(None, lines), as_json=as_json)
    return DIFFERENT if sheet.not_served or not sheet.proof.clean else CLEAN


def _statements_and_list(named: Sequence[str]) -> tuple[str | None, Path | None]:
    lists = [name for name in named if Path(name).suffix.lower() in (".csv", ".md")]
    others = [name for name in named if name not in lists]
    if len(lists) > 1 or len(others) > 1:
        raise click.UsageError("--statements takes one list of questions and one file of SQL, auto or none")
    return next(iter(others), None), next(map(Path, lists), None)


def _proved(source: str, files: WrittenFiles, sheet: Sheet) -> Sheet:
    """The sheet with a proof's result; the mapping gets the differences in comments at its patterns."""
    if not sheet.served:
        return replace(sheet, proof=Proof(missing="no question is served"))
    try:
        proof = proof_of(source, files.mapping, sheet.proposal.design, sheet.figures)
    except (Interrupted, SourceError, StoppedError) as error:
        what = "stopped" if isinstance(error, Interrupted) else f"the proof stopped: {error}"
        advice = (
            "the files are written, and not proved: run the same command with --force, or with --no-prove"
        )
        kind = Interrupted if isinstance(error, Interrupted) else StoppedError
        raise kind(f"{what}; {advice}") from None
    remarks = {
        access.name: difference for access in sheet.served if (difference := proof.difference(access.name))
    }
    proposal = replace(sheet.proposal, text=sheet.proposal.remarked(remarks))
    return replace(sheet, proof=proof, proposal=proposal)


def _names(table: TableFacts) -> set[str]:
    return {table.name, table.real}


def _are_named(names: set[str], patterns: Sequence[str]) -> bool:
    return any(name == each or fnmatchcase(name, each) for name in names for each in patterns)


def _table_name(stem: str) -> str:
    plain = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in stem)
    return "".join(word.capitalize() for word in plain.split()).ljust(3, "_")[:255]


class _Asking(Struct, frozen=True):
    """`file`: the mapping's name.
    `table`: its own name for its table.
    `statements`: a file of SQL, auto or none.
    `nulls`: whether rows decide that a column has no NULL.
    `written`: names of the replaced mapping.
    """

    source: Source
    workload: Workload
    file: str
    table: str
    statements: str | None
    listed: Path | None
    max_indexes: int
    rows_exact: int
    nulls: bool
    written: Mapping[str, EntityNames]

    @property
    def facts(self) -> SchemaFacts:
        return self.workload.facts

    def without(self, only: Sequence[str], leave_out: Sequence[str]) -> _Asking:
        """Keep tables that a pattern of `only` matches, without those that `leave_out` matches.

        Raises: SettingsError for patterns without a match.
        """
        tables, options = self.facts.tables.values(), {"--only": only, "--leave-out": leave_out}
        known = {name for table in tables for name in _names(table)} | set(self.facts.left_out)
        unknown = {
            option: [repr(pattern) for pattern in patterns if not _are_named(known, [pattern])]
            for option, patterns in options.items()
        }
        if any(unknown.values()):
            faults = (
                f"{option}: the source has no table {', '.join(of)}" for option, of in unknown.items() if of
            )
            raise SettingsError("\n".join(faults))
        others = [table.name for table in tables if not _are_named(_names(table), only)] if only else []
        named = [table.name for table in tables if _are_named(_names(table), leave_out)]
        return self._without(others, "--only")._without(named)

    def _without(self, names: Sequence[str], *why: str) -> _Asking:
        return replace(self, workload=replace(self.workload, facts=self.facts.without(names, *why)))

    def sheet(self) -> Sheet:
        try:
            return self._sheet()
        except SourceError:
            if not (broken := self.workload.broken()):
                raise
            return self._without(broken, "reading it fails")._sheet()

    def _sheet(self) -> Sheet:
        if not self.facts.tables:
            lines = [f"  {name}: {why}" for name, why in sorted(self.facts.left_out.items())]
            what = "\n".join(["no table can be read:", *lines]) if lines else "it has no table"
            raise SettingsError(f"source: {what}; name a database or a schema that has some")
        sent, in_words = self._asked()
        read = list(map(self.workload.question, sent))
        questions = [question for question in read if isinstance(question, StatementQuestion)]
        wanted = wanted_of(questions, self.facts, nulls=self.nulls)
        figures = self.workload.figures(wanted, self.rows_exact, sent)
        proposal = proposal_of(
            *(questions, self.facts, figures, self.table, self.max_indexes, self._faults),
            written=self.written,
            quote=self.workload.spelled,
        )
        unread = [statement for statement in read if isinstance(statement, Unserved)]
        unserved = (*in_words, *unread, *proposal.unserved)
        reads, left_out = self._reads(proposal), self.facts.left_out
        return Sheet(self.file, proposal, unserved, figures, reads=reads, left_out=left_out)

    def _asked(self) -> tuple[list[Statement], list[Unserved]]:
        if self.listed is None:
            return self._statements(self.statements or "auto"), []
        listed, in_words = self.workload.listed(self.listed)
        others = self._statements(self.statements) if self.statements is not None else []
        return self.workload.merged([*listed, *others]), in_words

    def _statements(self, where: str) -> list[Statement]:
        if where == "none":
            return default_statements(self.facts, self.workload.spelled)
        return self.workload.recorded() if where == "auto" else self.workload.of_file(Path(where))

    def _reads(self, proposal: Proposal) -> dict[str, PatternReads]:
        if not proposal.design.accesses:
            return {}
        checked = check_mapping(examine_mapping(proposal.text, self.file), self.facts)
        calls = questions_each(len(proposal.design.accesses))
        bounds = SampleBounds(rows_exact=_ROWS_SIZED, sampled=_ROWS_SAMPLED, calls=calls)
        sizing = Sizing(self.source, checked.mapping, checked.entities, bounds, time.time())
        try:
            return {reads.pattern: reads for reads in sizing.sized().patterns}
        except TooSlowError:
            return {}

    def _faults(self, text: str) -> Sequence[Fault]:
        parsed = examine_mapping(text, self.file)
        try:
            checked = check_mapping(parsed, self.facts)
        except MappingError as error:
            return error.faults
        return [
            parsed.document.fault(("access_patterns", pattern, "sql"), what)
            for (pattern, _), what in statement_faults(self.source, checked.mapping).items()
        ]


# ── The proof: rows moved into an embedded DynamoDB of its own, and each pattern answered by both sides ──

ROWS = 100_000
"""The most rows of each entity that are moved."""
_SEED = 19
"""Fixed, so that each run draws the same questions."""
_WORKERS = 2
_CONNECTIONS = 4


def proof_of(url: str, mapping: Path, design: PlacedTables, figures: Figures) -> Proof:
    """Run the proof, which only reads the source and leaves nothing behind.

    Raises: StoppedError and SourceError if an edge gave up; Interrupted.
    """
    with ExitStack() as until:
        stop = until.enter_context(stop_on_signals())
        tuning = Tuning(workers=_CONNECTIONS, give_up_after_s=60)
        session = until.enter_context(open_alone("init", url, mapping, tuning, stop))
        if session is None:
            return Proof(missing=f"the embedded DynamoDB is not installed; {how_to_install('local')}")
        large = {
            name for name in design.homes if name not in figures.exact or figures.rows.get(name, 0) > ROWS
        }
        empty = {name for name in figures.exact if not figures.rows.get(name)}
        return _proof(_run_edges(until, session), session, design, large, empty)


def _run_edges(until: ExitStack, session: JobSession) -> RunEdges:
    _ = session.checked
    target = session.target.fenced(sends_nothing)
    state = target.admin.create(target.design)
    journal = SqlJournal.in_memory()
    until.callback(journal.close)
    return RunEdges(journal, target.store, state.table_id, sends_nothing, target.objects, target)


def _proof(
    run: RunEdges, session: JobSession, design: PlacedTables, large: set[str], empty: set[str]
) -> Proof:
    """`large`: tables of which only some rows are moved, so that answers would lack the others.

    `empty`: tables without rows; a pattern that reads no others has the same answer for all parameters.
    """
    entities, names = session.checked.entities, {design.names.entities[name] for name in large}
    refused = _moved(run, session, [entity for entity in entities if entity.name not in names], None)
    refused |= _moved(run, session, [entity for entity in entities if entity.name in names], ROWS)
    apart = {
        access.name: f"{access.question.table} has more than {ROWS:,} rows, of which a part was moved"
        for access in design.accesses
        if access.question.table in large
    }
    asked = {access.name: access.tables <= empty for access in design.accesses if access.name not in apart}
    once, often = ([name for name in asked if asked[name] is same] for same in (True, False))
    replays = _replayed(session, once, 1) | _replayed(session, often, questions_each(len(often)))
    return Proof({name: replays[name] for name in asked}, apart, refused)


def _moved(
    run: RunEdges, session: JobSession, entities: Sequence[CompiledEntity], limit: int | None
) -> dict[str, tuple[int, str]]:
    journal = run.journal
    identity = identity_of("backfill", session, run.table_id, entities, f"limit={limit}")
    path, options = PathChoice().path(session, run), BackfillOptions(_WORKERS, limit=limit)
    stage = Backfill(session.source, journal, path, progress(), options, session.stop)
    with stage.progress:
        result = stage.run(begun := journal.start_run(identity), entities)
    why = {finding.entity: finding.reason for finding in reversed(journal.findings(begun))}
    return {name: (tally.refused, why[name]) for name, tally in result.entities.items() if tally.refused}


def _replayed(session: JobSession, names: Sequence[str], each: int) -> dict[str, PatternReplay]:
    mapping, shown = session.checked.mapping, replay_progress()
    options = ReplayOptions(each, _SEED, settle_s=0, workers=_WORKERS)
    sides = (session.checked.read, session.sql, session.target.store)
    stage = Replay(mapping, *sides, options, progress=shown, stop=session.stop)
    with shown:
        result = stage.run([mapping.patterns[name] for name in names])
    return {replay.pattern.name: replay for replay in result.patterns}


# ── a model of NoSQL Workbench ──


def init_from_model(file: Path, table: str | None, out: Path | None, *, force: bool, as_json: bool) -> int:
    text = head_of_model(_model(file), file.name, table)
    if out is None:
        if as_json:
            print_json({"mapping": text})
        else:
            click.echo(text, nl=False)
        return CLEAN
    _write_new(out, text, force=force)
    if as_json:
        print_json({"file": str(out)})
    else:
        click.echo(f"{out}: written; fill in tables and columns, then `migrator mapping check {out}`")
    return CLEAN


def _model(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(LONGEST_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror})") from None
    if len(raw) > LONGEST_BYTES:
        raise SettingsError(f"{file}: larger than {LONGEST_BYTES // 2**20} MiB, which no model of a table is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{file}: byte {error.start} is not UTF-8, so it is not the JSON of a model"
        ) from None


def _write_new(out: Path, text: str, *, force: bool) -> None:
    try:
        with out.open("w" if force else "x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    except FileExistsError:
        raise SettingsError(
            f"{out} is there already; name another file, or add --force to replace it"
        ) from None
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written ({error.strerror}); name another file") from None
