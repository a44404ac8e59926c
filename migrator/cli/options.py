"""Options and manners that commands share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TextIO

import click
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.segment import Segment
from rich.text import Text

from migrator import logs, wiring
from migrator.errors import INTERRUPTED, Interrupted, RefusedError, SettingsError
from migrator.mapping.items import CompiledEntity
from migrator.report.inert import plain
from migrator.report.progress import Bars, Lines, live_line
from migrator.settings import Job


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
    return wiring.read_job(path)


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
