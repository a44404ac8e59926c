"""Options that several commands share: jobs, durations, row keys, and how keys are shown."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Context, Decimal
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, TextIO

import click
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.segment import Segment
from rich.text import Text

from migrator.mapping.check.check import Checked
from migrator.mapping.heart.items import CompiledEntity
from migrator.mapping.show.redaction import key_templates
from migrator.model.entities import Mapping
from migrator.model.errors import (
    INTERRUPTED,
    Interrupted,
    MigratorError,
    RefusedError,
    SettingsError,
    did_you_mean,
)
from migrator.model.expressions import Template
from migrator.model.facts import Column, EntityPlan
from migrator.model.journal import Finding
from migrator.model.keys import decode_key, encode_key
from migrator.model.table import SourceKey
from migrator.output.inert import plain
from migrator.output.runs import Bars, Lines, live_line
from migrator.output.text import masked
from migrator.runtime import logs
from migrator.settings.job import Job
from migrator.settings.transforms import read_mapping
from migrator.wiring import job as job_wiring

# ── Options that commands share ──


def need_yes(question: str) -> None:
    """Returns where the person at the terminal says yes. Raises: RefusedError. Standard output is for results alone."""
    _asking.set()
    try:
        is_meant = click.confirm(question, err=True)
    finally:
        _asking.clear()
    if not is_meant:
        raise RefusedError("you said no; nothing was changed")


_asking = Event()


@contextmanager
def stopped_says(what: Callable[[], str]) -> Iterator[None]:
    """When it is stopped inside, the error says what was done and what was not, which the stages below do not know."""
    try:
        yield
    except Interrupted:
        raise Interrupted(what()) from None


def read_job(path: Path) -> Job:
    return job_wiring.read_job(path)


def shown_path(path: str) -> str:
    """A file as people see it from the working directory; anything else as it is."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


def chosen(entities: tuple[CompiledEntity, ...], names: tuple[str, ...]) -> list[CompiledEntity]:
    """The named entities in the mapping's order; all where none is named."""
    known = {entity.name for entity in entities}
    unknown = sorted(set(names) - known)
    if unknown:
        raise SettingsError(f"the mapping has no entity '{unknown[0]}'; it has: {', '.join(sorted(known))}")
    return [entity for entity in entities if not names or entity.name in names]


def stdout() -> Console:
    """The console that results go to; as wide as needed where it is no terminal."""
    return console_on(sys.stdout, None if sys.stdout.isatty() else 160)


def progress() -> Bars | Lines:
    """Bars where a person looks at a terminal, JSON lines elsewhere."""
    if sys.stderr.isatty():
        return Bars(console_on(sys.stderr))
    return Lines(logs.get_logger("migrator"))


def shown_live(text: Callable[[], str]) -> AbstractContextManager[object]:
    """While it lasts, the text on one line of standard error, where a person looks at a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return nullcontext()
    return live_line(console_on(sys.stderr), text, redirect_stdout=sys.stdout.isatty())


class _Inert:
    """What a renderable draws, its own text made plain; colours and moves of the cursor are the console's."""

    def __init__(self, drawn: ConsoleRenderable) -> None:
        self._drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._drawn, options):
            text = segment.text if segment.control else plain(segment.text, lines=True)
            yield segment._replace(text=text)


class _AllInert(RenderHook):
    """`said`: what is made of each text, as of one that is printed without a console."""

    def __init__(self, said: Callable[[str], str]) -> None:
        self._said = said

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [one if isinstance(one, Control) else _Inert(self._whole(one)) for one in renderables]

    def _whole(self, drawn: ConsoleRenderable) -> ConsoleRenderable:
        if not isinstance(drawn, Text) or (said := self._said(drawn.plain)) == drawn.plain:
            return drawn
        return Text(said, drawn.style, no_wrap=drawn.no_wrap, overflow=drawn.overflow, end=drawn.end)


def console_on(stream: TextIO, width: int | None = None) -> Console:
    """A console that draws in colours where the stream is a terminal; text that no terminal should obey is shown."""
    # The colours are drawn beneath the stream that would show them as text (cli/main.py).
    made = Console(file=getattr(stream, "beneath", stream), width=width)
    made.push_render_hook(_AllInert(getattr(stream, "said", str)))
    return made


@contextmanager
def stop_on_signals() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set, so that the stage ends at its next checkpoint; a second one ends at once.

    While somebody is asked something, Ctrl-C is the answer.
    """
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if _asking.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if stop.is_set():
            os.write(
                2, b"stopped at once; what was under way may be written or not, the same command goes on\n"
            )
            os._exit(INTERRUPTED)
        stop.set()
        click.echo("stopping when what is under way has ended; again to stop at once", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ── The keys that findings are printed with: masked, or whole with --show-keys ──


def as_asked(found: Sequence[Finding], mapping: Mapping | None, *, whole_keys: bool) -> list[Finding]:
    """The findings as they may be printed. Without a mapping no text of a key is known to name nobody."""
    templates: Sequence[Template] = () if mapping is None else key_templates(mapping)
    return list(found) if whole_keys else [masked(one, templates) for one in found]


def mapping_of(job: Job) -> Mapping | None:
    """The job's mapping as far as it can be read: findings are shown even where it cannot be any more."""
    try:
        return read_mapping(job.mapping).mapping
    except MigratorError:
        return None


def tell_masked(printed: Sequence[Finding], found: Sequence[Finding]) -> None:
    """One line on standard error where a key was masked."""
    if list(printed) != list(found)[: len(printed)]:
        click.echo("…: a part of a key that may name somebody; --show-keys prints keys whole", err=True)


# ──
# A row's key as a person writes it on the command line: --key 42, --key a=1 --key b=2, or as findings show
# it.

_EXACT = Context(prec=400)


def entity_named(checked: Checked, name: str) -> CompiledEntity:
    """Raises: SettingsError where the mapping has no such entity."""
    known = {entity.name: entity for entity in checked.entities}
    if name not in known:
        raise SettingsError(f"the mapping has no entity '{name}'{did_you_mean(name, known)}")
    return known[name]


def row_key(entity: CompiledEntity, keys: tuple[str, ...]) -> SourceKey:
    """The key as findings and `_src` hold it, from the texts of --key. Raises: SettingsError; it quotes no value."""
    columns = entity.plan.key
    names = [column.name for column in columns]
    if any(not _is_text(key) for key in keys):
        raise SettingsError("--key is no UTF-8 text")
    if len(keys) == 1 and keys[0].startswith("["):
        return _as_found(entity, keys[0])
    if len(columns) == 1 and len(keys) == 1 and not keys[0].startswith(f"{names[0]}="):
        given = {names[0]: keys[0]}
    else:
        given = dict(_pair(key) for key in keys)
    if set(given) != set(names) or len(keys) != len(names):
        wanted = " ".join(f"--key {name}=…" for name in names)
        raise SettingsError(f"the key of {entity.name} is {', '.join(names)}; write {wanted}")
    return encode_key([_value(given[column.name], column, entity.plan) for column in columns])


def _as_found(entity: CompiledEntity, text: str) -> SourceKey:
    """The key out of the JSON array that a finding shows with --show-keys."""
    try:
        values = decode_key(text)
        made = encode_key(values)
    except (ValueError, TypeError, KeyError, RecursionError):
        values, made = (), ""
    if len(values) != len(entity.plan.key):
        what = f"--key […] is no key of {entity.name}"
        raise SettingsError(f"{what}; write it as `migrator findings --show-keys` shows it, such as '[42]'")
    for column, value in zip(entity.plan.key, values, strict=True):
        if column.kind.name == "integer" and (type(value) is not int or not _is_held(value)):
            raise SettingsError(f"the key column {column.name} is an integer of 64 bits")
        if column.kind.name == "text" and not isinstance(value, str):
            raise SettingsError(f"the key column {column.name} is text")
    return made


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError("a composite key is written --key name=value, once for each column")
    return name, value


def _value(text: str, column: Column, plan: EntityPlan) -> Any:
    """The value as the source's driver gives it, so that its text is that of the row's key."""
    kind = column.kind
    try:
        if kind.name == "integer":
            return _held(int(text))
        if kind.name == "float":
            return float(text)
        if kind.name == "number" and plan.loosely_typed:
            # SQLite keeps a number without decimals as an integer.
            return int(float(text)) if float(text).is_integer() else float(text)
        if kind.name == "number" and kind.scale is not None:
            return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    except (ValueError, ArithmeticError):
        what = "an integer of 64 bits" if kind.name == "integer" else "a number"
        raise SettingsError(f"the key column {column.name} is {what}") from None
    return text


def _held(number: int) -> int:
    if not _is_held(number):
        raise ValueError("no source holds it")
    return number


def _is_held(number: int) -> bool:
    """Whether any source has such a number in an integer column."""
    return -(2**63) <= number < 2**64


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
