"""`migrator init`: a mapping, a job and a worksheet for a database, from its schema and the statements that it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from migrator.cli.command_line import print_json
from migrator.mapping.check.check import check_mapping
from migrator.mapping.design.proposal import Asked, Proposal, default_statements, proposal_of, wanted_of
from migrator.mapping.design.questions import Question, Statement, Unserved
from migrator.mapping.language.parse import examine_mapping
from migrator.model.edges import Questions
from migrator.model.errors import CLEAN, DIFFERENT, Fault, MappingError, SettingsError
from migrator.model.facts import SchemaFacts
from migrator.model.mapping import NameRule
from migrator.output.worksheet import Sheet, summary, summary_text, worksheet
from migrator.settings.source import SourceSettings
from migrator.source.connect import engine_of
from migrator.source.workload.reading import question_of
from migrator.source.workload.statements import recorded_statements, statements_of
from migrator.source.workload.statistics import figures_of
from migrator.stages.patterns.question import statement_faults
from migrator.wiring.job import open_named_source

LARGEST_FILE = 200_000_000
"""Bytes of a file of statements."""

_JOB = """\
# Moves what {mapping} says; MIGRATOR_SOURCE_URL says where the database is.
job: 1
mapping: {mapping}
source: {{url: "${{MIGRATOR_SOURCE_URL}}"}}
target: {{endpoint: "${{MIGRATOR_ENDPOINT_URL:-embedded}}", region: "${{AWS_REGION:-eu-central-1}}"}}
"""


@dataclass(frozen=True)
class Files:
    """The three files that are written."""

    mapping: Path
    job: Path
    worksheet: Path

    @classmethod
    def of(cls, out: Path, *, force: bool) -> Files:
        """Raises: SettingsError where `out` is no name of a mapping, or one of the files is there (but with `force`)."""
        if out.suffix not in (".yaml", ".yml"):
            raise SettingsError(f"{out}: a mapping is a YAML file; write --out shop.yaml")
        if not out.parent.is_dir():
            raise SettingsError(f"{out.parent}: there is no such folder; make it, or name another --out")
        files = cls(out, out.with_name(f"{out.stem}.job.yaml"), out.with_name(f"{out.stem}.patterns.md"))
        there = [str(path) for path in files.all if path.exists() and not force]
        if there:
            what = f"{', '.join(there)}: there already"
            raise SettingsError(f"{what}; name another file with --out, or add --force to replace them")
        return files

    @property
    def all(self) -> tuple[Path, Path, Path]:
        return self.mapping, self.job, self.worksheet

    def write(self, proposal: Proposal, sheet: str) -> None:
        """Raises: SettingsError where one cannot be written."""
        texts = proposal.text, _JOB.format(mapping=self.mapping.name), sheet
        for path, text in zip(self.all, texts, strict=True):
            try:
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise SettingsError(f"{path}: cannot be written ({error.strerror})") from None


def init(
    source: str,
    statements: str,
    out: Path,
    table: str | None,
    max_indexes: int,
    rows_exact: int,
    force: bool,
    as_json: bool,
) -> int:
    """The exit code of `migrator init`."""
    files = Files.of(out, force=force)
    with ExitStack() as until:
        asking = _Asking.of(source, until, files.mapping.name, table or _table_name(out.stem))
        sheet = asking.sheet(statements, max_indexes=max_indexes, rows_exact=rows_exact)
    files.write(sheet.proposal, worksheet(sheet))
    names = [str(path) for path in files.all]
    if as_json:
        print_json({**summary(sheet), "files": names})
    else:
        click.echo(f"{', '.join(names)}: written")
        click.echo(summary_text(sheet))
    return DIFFERENT if sheet.not_served else CLEAN


def _table_name(stem: str) -> str:
    """A name that DynamoDB takes for a table."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in stem)
    return "".join(word.capitalize() for word in plain.split()).ljust(3, "_")[:255]


@dataclass(frozen=True)
class _Asking:
    """What one source is asked for a proposal. `file`: the mapping's name in messages; `table`: what it calls its table."""

    source: Questions
    facts: SchemaFacts
    rule: NameRule
    file: str
    table: str

    @classmethod
    def of(cls, url: str, until: ExitStack, file: str, table: str) -> _Asking:
        """With names in snake case, where they are otherwise and none become one."""
        settings = SourceSettings.model_construct(url=url)
        try:
            source = until.enter_context(open_named_source(settings, "snake_case"))
            facts = source.facts()
        except SettingsError:
            source = until.enter_context(open_named_source(settings, "exact"))
            return cls(source, source.facts(), "exact", file, table)
        names = [(known.name, known.real) for known in facts.tables.values()]
        names += [(column.name, column.real) for known in facts.tables.values() for column in known.columns]
        rule: NameRule = "exact" if all(written == real for written, real in names) else "snake_case"
        return cls(source, facts, rule, file, table)

    def sheet(self, statements: str, *, max_indexes: int, rows_exact: int) -> Sheet:
        """The proposal with all that the worksheet says."""
        if not self.facts.tables:
            raise SettingsError("source: there is no table in it; name a database or a schema that has some")
        read = [question_of(statement, self.facts) for statement in self._statements(statements)]
        questions = [question for question in read if isinstance(question, Question)]
        figures = figures_of(self.source.query, self.facts, wanted_of(questions, self.facts), rows_exact)
        asked = Asked(questions, self.facts, figures, self.rule, self.table, max_indexes, self._faults)
        proposal = proposal_of(asked)
        unread = [statement for statement in read if isinstance(statement, Unserved)]
        return Sheet(self.file, proposal, (*unread, *proposal.unserved), figures)

    def _statements(self, where: str) -> list[Statement]:
        if where == "none":
            quote = engine_of(self.facts.dialect).sql.quote
            return default_statements(self.facts, lambda name: quote + name.replace(quote, quote * 2) + quote)
        if where == "auto":
            return recorded_statements(self.source.query, self.facts.dialect)
        return statements_of(file_text(Path(where)), self.facts.dialect)

    def _faults(self, text: str) -> Sequence[Fault]:
        """Faults of a mapping's text, by its form, by the schema, and of its SQL by the source."""
        parsed = examine_mapping(text, self.file)
        try:
            checked = check_mapping(parsed, self.facts)
        except MappingError as error:
            return error.faults
        return [
            parsed.document.fault(("access_patterns", refusal.pattern, "sql"), refusal.what)
            for refusal in statement_faults(self.source, checked.mapping)
        ]


def file_text(path: Path) -> str:
    """Raises: SettingsError where there is no such file, or no text in it."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > LARGEST_FILE:
            raise SettingsError(
                f"{path}: {size_bytes:,} bytes; a file of statements has at most {LARGEST_FILE:,}"
            )
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        what = f"{path}: cannot be read ({error.strerror})"
        raise SettingsError(f"{what}; --statements takes a file of SQL, auto or none") from None
