"""Kills a process that another one has started, or that makes rows of items, by SIGKILL at a step of its work. Python imports this by itself where the
folder is on its path; MIGRATOR_TEST_KILL says at which methods, after how many calls: `SqlJournal.claim_pages:3`, or with which
chance: `SqlJournal.finish_page%8`. Where MIGRATOR_TEST_KILLS names a folder, twice at each of them, of all processes. Where MIGRATOR_TEST_KILL_WAITS
names a file, the process that starts the others waits at its own second call of such a method until one of them was killed."""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = os.environ.get("MIGRATOR_TEST_KILL", "")
KILLS = os.environ.get("MIGRATOR_TEST_KILLS", "")
WAITS = os.environ.get("MIGRATOR_TEST_KILL_WAITS", "")
_AT_MOST = 2
_WAITS_S = 120.0


def _killing(method: Callable[..., Any], step: str, is_due: Callable[[int], bool]) -> Callable[..., Any]:
    calls = 0

    @functools.wraps(method)
    def called(*args: Any, **named: Any) -> Any:
        nonlocal calls
        result = method(*args, **named)
        calls += 1
        if is_due(calls) and _is_wanted(step):
            if WAITS:
                Path(WAITS).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return called


def _waiting(method: Callable[..., Any], *_: object) -> Callable[..., Any]:
    calls = 0

    @functools.wraps(method)
    def called(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        ends_at = time.monotonic() + _WAITS_S
        while calls > 1 and not Path(WAITS).exists() and time.monotonic() < ends_at:
            time.sleep(0.05)
        return method(*args, **named)

    return called


def _is_wanted(step: str) -> bool:
    if not KILLS:
        return True
    file = Path(KILLS, step)
    if file.exists() and file.stat().st_size >= _AT_MOST:
        return False
    with file.open("a") as kills:
        kills.write(".")
    return True


def _set(step: str, changed: Callable[..., Callable[..., Any]]) -> None:
    from migrator.dynamodb.store import DynamoStore
    from migrator.journal.reverse import SqlReverseJournal, SqlStreamJournal
    from migrator.journal.runs import SqlJournal
    from migrator.source.reader import SqlSource
    from migrator.source.sql.row_writing import SqlRowWriter, _RowSql

    where, kind, number = re.fullmatch(r"([\w.]+)(?:([:%])(\d+))?", step).groups()  # type: ignore[union-attr]
    after = int(number or 1)
    owner, _, name = where.partition(".")
    of_reverse = (SqlReverseJournal, SqlStreamJournal, SqlRowWriter, _RowSql)
    kept = {known.__name__: known for known in (SqlJournal, SqlSource, DynamoStore, *of_reverse)}[owner]

    def is_due(calls: int) -> bool:
        return random.randrange(after) == 0 if kind == "%" else calls >= after

    setattr(kept, name, changed(getattr(kept, name), step, is_due))


_is_started = not {"--part", "pyspark.daemon", "reverse"}.isdisjoint(sys.orig_argv)
if STEPS and (_is_started or WAITS):
    for each in STEPS.split(","):
        _set(each, _killing if _is_started else _waiting)
