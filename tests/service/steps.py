"""The steps of a service: all that it has its database, its journal and DynamoDB do, and one of them is its last.

Who is killed before a step was killed after the one before it, since nothing outside of the process lies between. Who is
killed before a reading might as well have been killed after it, and a rollback is what the server does for the dead. So
steps are what changes something, counted before it happens.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import sqlalchemy as sa
from botocore import handlers
from sqlalchemy.engine import Engine

_BACKGROUND = ("instance", "heartbeat")
"""Threads whose beats come by the clock, so that counting them would make each run another one."""
_CHANGES_NOTHING = re.compile(
    r"\s*(?:;|SELECT|SHOW|PRAGMA|SET|BEGIN|START TRANSACTION|Composed\(\[SQL\('SELECT)", re.IGNORECASE
)
_STATEMENTS = {
    psycopg.Cursor: ("execute", "executemany"),
    psycopg.Connection: ("commit",),
    # Cursors of PyMySQL's go through `query`, each execution of many by itself.
    pymysql.connections.Connection: ("query", "commit"),
}


class Steps:
    """Counted while armed. The `last` one kills; 0 for none."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.last = 0
        self.tell: Callable[[str], object] = lambda name: None
        self._is_armed = False
        self._lock = threading.Lock()

    def arm(self, last: int, tell: Callable[[str], object]) -> None:
        """`tell` is told the name of the last step."""
        self.names, self.last, self.tell, self._is_armed = [], last, tell, True

    def disarm(self) -> None:
        self._is_armed = False

    def step(self, name: str) -> None:
        if not self._is_armed or threading.current_thread().name in _BACKGROUND:
            return
        with self._lock:
            self.names.append(name)
            if len(self.names) == self.last:
                self.tell(name)
                os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()

    # ── where steps are ──

    def listen(self) -> None:
        """To all engines, drivers and clients that this process makes from now on.

        The adapter's own statements go by the driver's cursors, past the events of engines; so servers' statements are
        met at their drivers. SQLite's driver cannot be changed: its statements, the journal's, are met at its engines.
        """
        for kind, names in _STATEMENTS.items():
            for name in names:
                setattr(kind, name, self._stepped(getattr(kind, name), name))
        for event in ("before_cursor_execute", "commit"):
            sa.event.listen(Engine, event, self._of_sqlite(event))
        # The handlers that every session of botocore's begins with.
        handlers.BUILTIN_HANDLERS.append(("before-send.dynamodb", self._requests))

    def _stepped(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def stepped(one: Any, *words: Any, **named: Any) -> Any:
            self._statement(name, words[0] if words else "")
            return call(one, *words, **named)

        return stepped

    def _of_sqlite(self, event: str) -> Callable[..., None]:
        def heard(connection: sa.Connection, *words: Any) -> None:
            if connection.dialect.name == "sqlite":
                self._statement(f"journal {event}", words[1] if len(words) > 1 else "")

        return heard

    def _statement(self, name: str, statement: Any) -> None:
        text = statement.decode(errors="replace") if isinstance(statement, bytes) else str(statement)
        if not _CHANGES_NOTHING.match(text):
            self.step(f"{name} {text[:60]}".strip())

    def _requests(self, request: Any, **_: Any) -> None:
        target = request.headers.get("X-Amz-Target", "")
        self.step((target.decode() if isinstance(target, bytes) else target).rpartition(".")[2])
