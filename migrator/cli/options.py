"""Shared by commands: consoles, signals, how keys are given and shown, the refusal of another table's journal."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, TextIO

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.segment import Segment
from rich.text import Text

from migrator.cli.command_line import print_json, whole
from migrator.cli.cutover_text import evidence_shown
from migrator.cli.inert import plain
from migrator.cli.runs_text import Bars, Lines, live_line
from migrator.cli.text import masked
from migrator.mapping.check.check import Checked
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.redaction import key_templates
from migrator.mapping.model import mapping as mappings
from migrator.mapping.model.evidence import Line
from migrator.mapping.model.facts import Column, EntityPlan
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.mapping import Template
from migrator.mapping.model.table import SourceKey, decode_key, encode_key
from migrator.mapping.patterns.param_sources import bindable, is_held
from migrator.runtime import logs
from migrator.runtime.errors import (
    INTERRUPTED,
    Interrupted,
    MappingError,
    MigratorError,
    RefusedError,
    SettingsError,
    amount,
    did_you_mean,
)
from migrator.runtime.values import replace
from migrator.settings.job import Job
from migrator.settings.transforms import read_mapping
from migrator.stages.core.ownership import (
    AnotherJobError,
    AnotherJournalError,
    OlderError,
    UnaskedSourceError,
)
from migrator.stages.session.adoption import adoption_of, guard
from migrator.stages.session.job import refuse_absent_journal
from migrator.stages.session.session import JobSession

# ── Questions, consoles, signals ──


def say(line: str) -> None:
    """Print a line on standard error: standard output is for results."""
    console_on(sys.stderr).print(Text(line), soft_wrap=True)


def need_yes(question: str, unasked: str = "") -> None:
    """Ask for confirmation on the terminal, not on standard output.

    `unasked`: why it is needed, for the refusal without a terminal.
    Raises: RefusedError, Interrupted; SettingsError without a terminal, if `unasked` is given.
    """
    if unasked and not sys.stdin.isatty():
        raise SettingsError(f"{unasked}: no terminal to ask on; pass --yes")
    _asking.set()
    try:
        is_confirmed = click.confirm(question, err=True)
    except click.Abort:
        raise Interrupted("stopped at the question; nothing was done") from None
    finally:
        _asking.clear()
    if not is_confirmed:
        raise RefusedError("you answered no; nothing was done")


_asking = Event()


@contextmanager
def stopped_says(what: Callable[[], str]) -> Iterator[None]:
    """If stopped inside, raise Interrupted with the done and missing work, which the stages do not know."""
    try:
        yield
    except Interrupted:
        raise Interrupted(what()) from None


def shown_path(path: str) -> str:
    """A file's path from the working directory; any other text unchanged."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


def stdout() -> Console:
    return console_on(sys.stdout)


def print_folded(line: str) -> None:
    """Print a result's line, folded between words on a terminal or at COLUMNS; unfolded in a file or pipe."""
    stdout().print(Text(line), soft_wrap=True)


def print_result(data: Any, lines: str | Iterable[str], *, as_json: bool) -> None:
    if as_json:
        print_json(data)
        return
    for line in [lines] if isinstance(lines, str) else lines:
        print_folded(line)


def progress() -> Bars | Lines:
    if sys.stderr.isatty():
        return Bars(console_on(sys.stderr))
    return Lines(logs.get_logger("migrator"))


def print_evidence(lines: Sequence[Line], *, every: bool, console: Console | None = None) -> None:
    (console or stdout()).print(
        evidence_shown([replace(line, mend=whole(line.mend)) for line in lines], every=every)
    )


def shown_live(text: Callable[[], str]) -> AbstractContextManager[object]:
    """Show the text on one line of standard error during the block, on a terminal only."""
    if not sys.stderr.isatty():
        return nullcontext()
    return live_line(console_on(sys.stderr), text, redirect_stdout=sys.stdout.isatty())


class _Inert:
    """A renderable whose own text is escaped; colours and cursor moves are the console's."""

    def __init__(self, drawn: ConsoleRenderable) -> None:
        self._drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._drawn, options):
            text = segment.text if segment.control else plain(segment.text, lines=True)
            yield segment._replace(text=text)


class _AllInert(RenderHook):
    """`transform`: as for text printed without a console. `width`: of folded texts; None: not folded."""

    def __init__(self, transform: Callable[[str], str], width: int | None) -> None:
        self._transform, self._width = transform, width

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [
            renderable if isinstance(renderable, Control) else _Inert(self._whole(renderable))
            for renderable in renderables
        ]

    def _whole(self, drawn: ConsoleRenderable) -> ConsoleRenderable:
        if not isinstance(drawn, Text):
            return drawn
        text = self._transform(drawn.plain)
        if self._width is not None:
            text = "\n".join(_folded(line, self._width) for line in text.split("\n"))
        if text == drawn.plain:
            return drawn
        return Text(text, drawn.style, no_wrap=drawn.no_wrap, overflow=drawn.overflow, end=drawn.end)


_IN_COMMAND = "\0"


def _folded(line: str, width: int) -> str:
    """Fold the line at blanks, never within a `command`: people copy commands whole."""
    lines: list[str] = []
    for word in re.sub("`[^`]*`", lambda command: command[0].replace(" ", _IN_COMMAND), line).split(" "):
        if lines and (not lines[-1].strip() or cell_len(lines[-1]) + 1 + cell_len(word) <= width):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines).replace(_IN_COMMAND, " ")


_IN_A_PIPE = 160
"""Columns of tables in a file and in a pipe, where grep wants a row on one line."""


def console_on(stream: TextIO) -> Console:
    # The colours are drawn beneath the stream that would show them as text (main.py).
    is_fitted = stream.isatty() or "COLUMNS" in os.environ
    console = Console(file=getattr(stream, "beneath", stream), width=None if is_fitted else _IN_A_PIPE)
    console.push_render_hook(
        _AllInert(getattr(stream, "transform", str), console.width if is_fitted else None)
    )
    return console


@contextmanager
def stop_on_signals(stop: Event | None = None) -> Iterator[Event]:
    """An event (`stop`, if given) set by Ctrl-C and SIGTERM, which ends the stage at its next checkpoint.

    A second signal ends at once. While a question waits for its answer, Ctrl-C is the answer.
    """
    stop = stop or Event()

    def tell(line: bytes) -> None:
        # Not by the stream: the signal may have come in the middle of a line that is written to it.
        with suppress(OSError):
            os.write(2, line)

    def ask(number: int, frame: FrameType | None) -> None:
        if _asking.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if stop.is_set():
            tell(b"stopped at once; what was under way may be written or not, the same command resumes\n")
            os._exit(INTERRUPTED)
        stop.set()
        tell(b"stopping after the work in progress; press again to stop now\n")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ── The keys that findings are printed with: masked, or whole with --show-keys ──


def findings_to_print(
    findings: Sequence[Finding], mapping: mappings.Mapping | None, *, whole_keys: bool
) -> list[Finding]:
    """Findings in printable form. Without a mapping every text of a key may name a person."""
    templates: Sequence[Template] = () if mapping is None else key_templates(mapping)
    return list(findings) if whole_keys else [masked(finding, templates) for finding in findings]


def mapping_of(job: Job) -> mappings.Mapping | None:
    """The job's mapping; None if unreadable: findings are shown even with a broken mapping."""
    try:
        return read_mapping(job.mapping).mapping
    except MigratorError:
        return None


def tell_masked(printed: Sequence[Finding], unmasked: Sequence[Finding]) -> None:
    if list(printed) != list(unmasked)[: len(printed)]:
        click.echo("…: a part of a key that may name a person; --show-keys prints keys whole", err=True)


# ── A journal that does not belong to the table is refused before a command writes items or reports phases ──

_REASON = "taken from the table's control item: the journal was lost, or restored from a backup"
_TABLE_NOT_UPDATED = (
    "the phases could not be written to the table, which keeps them for the day on which this journal is lost"
)


def belonging(
    *,
    applies: Callable[[Mapping[str, Any]], bool] = lambda options: True,
    older: bool = True,
    keeps: bool = False,
    tells: bool = False,
    begins: bool = False,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Refuse a command if its journal does not belong to the table; else it receives the job with the journal.

    `applies`: whether the passed options need the check.
    `older`: also refuse a journal that went back.
    `keeps`: the command may change what the table keeps of the journal.
    `tells`: the command receives `table_away`, why the table is unreachable ('' if it answered).
    `begins`: the command may be the journal's first for a job whose source is captured (by a migration file),
      as long as the table is empty.
    """

    def decorated(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def guarded(job: Path, **options: Any) -> int:
            is_dry = bool(options.get("dry_run"))
            with JobSession(job) as session:
                # The command itself refuses options of --spark.
                if options.get("join") and not options.get("spark"):
                    refuse_absent_journal(session.job)
                # Commands that report or move phases need the right journal even for reads.
                if not applies(options) or (is_dry and not keeps):
                    return command(session, **options)
                away = refuse_strange(session, older=older, warns=keeps, begins=begins)
                code = command(session, **options, **({"table_away": away} if tells else {}))
                if keeps and not is_dry:
                    _keep(session)
                return code

        return guarded

    return decorated


def refuse_strange(session: JobSession, *, older: bool, warns: bool, begins: bool) -> str:
    """Why the table could not be checked. A command that needs the table finds that out itself.

    Raises: AnotherJobError, AnotherJournalError, OlderError, UnaskedSourceError.
    """
    _ = session.job  # Raises: the file's fault, which ends the command.
    failures: list[str] = []
    with _noting_failures(warns=warns):
        _ = session.journal
        with _noting_failures(warns=warns) as failures:
            session.refuse_strange(session.target_with_short_wait, older=older)
        # Also if the table does not answer: this asks the source.
        try:
            session.refuse_unknown(
                begins=begins, unless=lambda: begins and not any(session.target_with_short_wait.pages())
            )
        except UnaskedSourceError:
            if not begins:  # these read the source themselves, and report the obstacle in more detail
                raise
    return "".join(failures)


@contextmanager
def _noting_failures(*, warns: bool) -> Iterator[list[str]]:
    failures: list[str] = []
    try:
        yield failures
    except (AnotherJobError, AnotherJournalError, OlderError, UnaskedSourceError):
        raise
    except MigratorError as error:
        if warns:
            _warn(error, "whether this journal is the table's could not be asked")
        failures.append(str(error))


def _keep(session: JobSession) -> None:
    try:
        session.keep_on_record()
    except MigratorError as error:
        _warn(error, f"{_TABLE_NOT_UPDATED}; `migrator cutover status` stores it later")


def _warn(error: MigratorError, what: str) -> None:
    # The command itself lists all faults of a mapping.
    if not isinstance(error, MappingError):
        click.echo(f"warning: {what}: {error}", err=True)


# ── Adoption ──


def adopt_repaired(session: JobSession) -> None:
    try:
        guard(session)
    except OlderError:
        adopt(session)
        click.echo("what was restored continues from here; run `migrator relay`", err=True)


def adopt(session: JobSession) -> None:
    count = adoption_of(session).run(_REASON)
    click.echo(f"{amount(count, 'item key')} remembered again", err=True)


def entity_named(checked: Checked, name: str) -> CompiledEntity:
    entities = {entity.name: entity for entity in checked.entities}
    if name not in entities:
        raise SettingsError(f"the mapping has no entity '{name}'{did_you_mean(name, entities)}")
    return entities[name]


def row_key(entity: CompiledEntity, keys: tuple[str, ...]) -> SourceKey:
    """The key as in findings and `_src`, from --key's texts. Raises: SettingsError, which quotes no value."""
    columns = entity.plan.key
    names = [column.name for column in columns]
    if any(not _is_text(key) for key in keys):
        raise SettingsError("--key is not UTF-8 text")
    if len(keys) == 1 and keys[0].startswith("["):
        return _key_of_finding(entity, keys[0])
    if len(columns) == 1 and len(keys) == 1 and not keys[0].startswith(f"{names[0]}="):
        texts = {names[0]: keys[0]}
    else:
        otherwise = "a composite key is written --key name=value, once for each column"
        texts = dict(pair_of(key, otherwise=otherwise) for key in keys)
    if set(texts) != set(names) or len(keys) != len(names):
        usage = " ".join(f"--key {name}=…" for name in names)
        raise SettingsError(f"the key of {entity.name} is {', '.join(names)}; write {usage}")
    return encode_key([_value(texts[column.name], column, entity.plan) for column in columns])


def _key_of_finding(entity: CompiledEntity, text: str) -> SourceKey:
    try:
        values = decode_key(text)
        key = encode_key(values)
    except (ValueError, TypeError, KeyError, RecursionError):
        values, key = (), ""
    if len(values) != len(entity.plan.key):
        what = f"--key […] is not a key of {entity.name}"
        raise SettingsError(
            f"{what}; write it as `migrator status --findings --show-keys` shows it, such as '[42]'"
        )
    for column, value in zip(entity.plan.key, values, strict=True):
        if column.kind.name == "integer" and (type(value) is not int or not is_held(value)):
            raise SettingsError(f"the key column {column.name} is an integer of 64 bits")
        if column.kind.name == "text" and not isinstance(value, str):
            raise SettingsError(f"the key column {column.name} is text")
        if column.kind.name == "binary" and not (isinstance(value, bytes) or entity.plan.loosely_typed):
            raise _not_binary(column, entity.plan)
    return key


def pair_of(text: str, *, otherwise: str) -> tuple[str, str]:
    """Name and value of name=value. Raises: SettingsError with the text `otherwise`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(otherwise)
    return name, value


def _not_binary(column: Column, plan: EntityPlan) -> SettingsError:
    parts = ('{"b64":"…"}' if key.kind.name == "binary" else "…" for key in plan.key)
    form = f"--key '[{','.join(parts)}]'"
    return SettingsError(f"the key column {column.name} is binary; write {form}, with its bytes in base64")


def _value(text: str, column: Column, plan: EntityPlan) -> Any:
    if column.kind.name == "binary":
        raise _not_binary(column, plan)
    try:
        return bindable(text, column, plan)
    except (ValueError, ArithmeticError):
        what = "an integer of 64 bits" if column.kind.name == "integer" else "a number"
        raise SettingsError(f"the key column {column.name} is {what}") from None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
