"""Options and manners that commands share."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import click
from rich.console import Console

from migrator import logs, wiring
from migrator.errors import INTERRUPTED, SettingsError
from migrator.mapping.items import CompiledEntity
from migrator.report.progress import Bars, Lines
from migrator.settings import Job

JobPath = click.Path(path_type=Path, dir_okay=True)
job_argument = click.argument("job", type=JobPath, metavar="JOB")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def entity_option(command: Any) -> Any:
    return click.option("--entity", "entities", multiple=True, help="Only this entity; can be given again.")(
        command
    )


def read_job(path: Path) -> Job:
    return wiring.read_job(path)


def chosen(entities: tuple[CompiledEntity, ...], names: tuple[str, ...]) -> list[CompiledEntity]:
    """The named entities in the mapping's order; all where none is named."""
    known = {entity.name for entity in entities}
    unknown = sorted(set(names) - known)
    if unknown:
        raise SettingsError(f"the mapping has no entity '{unknown[0]}'; it has: {', '.join(sorted(known))}")
    return [entity for entity in entities if not names or entity.name in names]


def stdout() -> Console:
    """The console that results go to; as wide as needed where it is no terminal."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)


def progress() -> Bars | Lines:
    """Bars where a person looks at a terminal, JSON lines elsewhere."""
    if sys.stderr.isatty():
        return Bars(Console(file=sys.stderr))
    return Lines(logs.get_logger("migrator"))


@contextmanager
def stop_on_signals() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set, so that the stage ends at its next checkpoint; a second one ends at once."""
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)
        stop.set()
        click.echo("stopping at the next checkpoint; again to stop at once", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """A duration such as 30s, 30 or 2m, in seconds."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|)", text.strip())
    if found is None:
        raise click.BadParameter(f"'{text}' is no duration; write 30s or 2m")
    return float(found[1]) * (60 if found[2] == "m" else 1)
