"""Capture on SQLite, by its catalogue: triggers of ours, tables that cannot be captured, images as values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.changes import Captured
from migrator.source.capture.design import Found
from migrator.source.capture.sqlite import SqliteDdl, quoted
from migrator.source.engines.base import VIEW_ADVICE, Capturing, Decode, Refusal
from migrator.source.engines.servers import OUR_TRIGGER

_TRIGGERS = sa.text(
    "SELECT tbl_name AS name, name AS trigger_name, sql AS text FROM sqlite_master WHERE type = 'trigger' ORDER BY 1, 2"
)
_VIEWS = sa.text("SELECT name FROM sqlite_master WHERE type = 'view'")
_STRANGE = re.compile(r"^\s*CREATE\s+VIRTUAL", re.IGNORECASE)


def _found(connection: Connection, _: SqliteDdl) -> Iterator[Found]:
    for row in connection.execute(_TRIGGERS):
        if ours := OUR_TRIGGER.fullmatch(row.trigger_name):
            drop = f"DROP TRIGGER {quoted(row.trigger_name)}"
            yield Found(row.name, row.trigger_name, ours[1], drop=(drop,), text=row.text)


def _refusals(connection: Connection, _: SqliteDdl, tables: Sequence[Captured]) -> Iterator[Refusal]:
    known = {row[0]: row for row in connection.execute(sa.text("SELECT name, type, sql FROM sqlite_master"))}
    for one in tables:
        row = known.get(one.table.real)
        if row is None:
            yield Refusal(f"table {one.name} is gone; pull the schema again")
        elif row[1] == "view":
            yield Refusal(f"{one.name} is a view, which has no triggers for what it reads; {VIEW_ADVICE}")
        elif _STRANGE.match(row[2] or ""):
            yield Refusal(
                f"{one.name} is a virtual table, which has no triggers; migrate the table that it shows",
                triggers_only=True,
            )


def _decode(_: Connection, __: dict[int, int]) -> Decode:
    """By the value's own type."""
    readers: dict[str, Callable[[str], Any]] = {
        "integer": int,
        "real": float,
        "text": str,
        "blob": bytes.fromhex,
    }
    return lambda word, text: readers[word](text)


CAPTURING = Capturing(
    ddl=lambda _: SqliteDdl(),
    schema=None,
    prefix="migrator_",
    found=_found,
    more_triggers=lambda *_: iter(()),
    leftovers=lambda _: [],
    refusals=_refusals,
    views=lambda connection, _: set(connection.scalars(_VIEWS)),
    limits=(),
    decode=_decode,
    # SQLite's transaction has the file to itself.
    locks_rows="",
)
