"""The command inside of the test's process, which spares the second that a start takes; nothing of it is left behind."""

from __future__ import annotations

import faulthandler
import io
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from migrator.main import run

LIMIT_S = 600


@dataclass(frozen=True)
class Ended:
    """What a command has said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def run_here(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Ended:
    """The command's end: it works in `folder`, sees this environment alone, no terminal, and nothing to read."""
    out, err = _text(), _text()
    with (
        chdir(folder),
        _only(environment),
        _tools_as_new(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        _ends_in_time(),
    ):
        code = run(list(words))
    return Ended(code, _written(out), _written(err))


def _text() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _written(text: io.TextIOWrapper) -> str:
    text.seek(0)
    return text.read()


@contextmanager
def _only(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(environment)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _tools_as_new(folder: Path) -> Iterator[None]:
    """Log, module path, input and hooks as a new process has them; what was there comes back. Modules of `folder` go."""
    logged = structlog.get_config() if structlog.is_configured() else None
    known = set(sys.modules)
    path, read, unraisable, of_threads = sys.path[:], sys.stdin, sys.unraisablehook, threading.excepthook
    structlog.reset_defaults()
    sys.stdin = io.StringIO()
    # pytest's own hooks would keep what a thread dies of from standard error.
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    try:
        yield
    finally:
        sys.path[:], sys.stdin = path, read
        here = f"{folder}{os.sep}"
        for name in sys.modules.keys() - known:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(here):
                del sys.modules[name]
        sys.unraisablehook, threading.excepthook = unraisable, of_threads
        structlog.reset_defaults()
        if logged is not None:
            structlog.configure(**logged)


@contextmanager
def _ends_in_time() -> Iterator[None]:
    """A command that hangs ends the test's process, with a trace of every thread."""
    assert sys.__stderr__ is not None
    faulthandler.dump_traceback_later(LIMIT_S, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
