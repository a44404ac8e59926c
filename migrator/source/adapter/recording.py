"""Records row-changing statements instead of marking them, for a service's tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection, Engine

Action: TypeAlias = Literal["insert", "update", "delete"]
_WRITTEN = re.compile(
    r"\s*(?:/\*.*?\*/\s*)?(?P<action>INSERT|REPLACE|UPDATE|DELETE)\b(?:\s+(?:INTO|FROM|OR\s+\w+|IGNORE|ONLY))*\s+"
    r"(?P<table>[\w.\"`\[\]]+)",
    re.IGNORECASE | re.DOTALL,
)


class Write(Struct, frozen=True):
    """One row that a service changed, or a statement that changed rows.

    `values`: a statement's parameters, by name; for a change by hand the row's columns after it, or its key if only that is
    known.
    """

    table: str
    action: Action
    values: Mapping[str, Any] = {}


class Recording:
    """Replaces the adapter's event hooks: calls `write` with each written row, including rolled back ones."""

    def __init__(self, write: Callable[[Write], object]) -> None:
        self._write = write
        self._engines: list[Engine] = []

    def attach(self, engine: Engine) -> None:
        if engine not in self._engines:
            self._engines.append(engine)
            sa.event.listen(engine, "after_cursor_execute", self._executed)

    def attach_begun(self, connection: Connection) -> None:
        """Attach the engine of a connection with which a session began, if its maker was not attached."""
        self.attach(connection.engine)

    def detach(self) -> None:
        for engine in self._engines:
            sa.event.remove(engine, "after_cursor_execute", self._executed)
        self._engines.clear()

    def _executed(
        self, connection: Connection, cursor: Any, statement: str, given: Any, context: Any, many: bool
    ) -> None:
        found = _WRITTEN.match(statement)
        if found is None:
            return
        action = found["action"].lower()
        table = found["table"].rpartition(".")[2].strip('"`[]')
        for values in _rows(context, given, many):
            self._write(Write(table, "insert" if action == "replace" else action, values))  # type: ignore[arg-type]


def _rows(context: Any, given: Any, many: bool) -> Iterator[dict[str, Any]]:
    """The parameters of each row: by name if SQLAlchemy compiled the statement, or its text names them."""
    compiled = getattr(context, "compiled_parameters", None)
    rows = compiled or (given if many else [given])
    for row in rows:
        yield dict(row) if isinstance(row, Mapping) else {str(n): value for n, value in enumerate(row or ())}
