"""Hooks: the operators' own programs, run on events, bounded in time; their failure fails nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from migrator.runtime.logs import get_logger
from migrator.settings.cutover import EventKind, Hook

_log = get_logger("hooks")


def tell(hooks: Sequence[Hook], kind: EventKind, job: str, /, **fields: Any) -> None:
    """Runs every hook of this kind, one after the other, with the event as JSON on its standard input.

    `fields`: plain values, never one of a row. A hook that fails or takes too long is logged; it is killed then, with
    all that it began.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    event = json.dumps({"event": kind, "job": job, "at": at, **fields}, ensure_ascii=False)
    for number, hook in enumerate(hooks):
        if kind in hook.on and (why := _run(hook, event)):
            _log.warning("hook_failed", hook=number, hooked=kind, reason=why)


def _run(hook: Hook, event: str) -> str:
    """Why the hook failed, '' where it did not. Its words are not quoted: they may hold a secret."""
    try:
        process = subprocess.Popen(
            hook.command if isinstance(hook.command, str) else list(hook.command),
            # A text is for the shell by its very form; the words of a list never meet one.
            shell=isinstance(hook.command, str),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"it cannot be started ({error.strerror})"
    except ValueError:
        return "it cannot be started (a word holds a character that no program takes)"
    try:
        process.communicate(event.encode(), timeout=hook.wait_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"it took longer than {hook.wait_s:g} s and was killed"
    return f"it ended with exit code {process.returncode}" if process.returncode else ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:  # Windows knows no groups of processes: what the hook began goes on.
        process.kill()
    # Not communicate(): what the hook began may have left the group, and hold the pipe open for ever.
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
