"""How an engine writes rows: values bound without loss, upserts, refusals, and counters of new rows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.items.values import decoder, json_text
from migrator.mapping.model.facts import Column, Kind, TableFacts
from migrator.mapping.model.rows import RefusalKind


class RowWriting(Struct, frozen=True):
    """How rows are written.

    `prepare`: what a new connection is set to. `begin`, `end`: what is done first and last in a transaction,
    so that triggers of ours which refuse others let it pass. `bound`: a decoded value as
    the driver takes it for a column; raises ValueError where the column would hold another value. `upserts`: there is ON
    CONFLICT of one key alone; without it a row is updated, and inserted where there is none, for MySQL's ON DUPLICATE KEY
    would change another row that has the same value in another unique index. `overriding`: words that let an identity
    column take a value. `locks`: SQL at the end of a SELECT that locks its rows. `refusal`: of an error of the driver's,
    None where it does not concern the row. `move_counters`: moves a table's counters of new rows past the rows that are
    there, where an INSERT with a number does not. `unchanging`: real names of columns that no UPDATE may name, of a table by
    its name in SQL. `changing_triggers`: SQL for the names of triggers that may change what is written to the table :name in
    :schema. `defer`: SQL that defers the foreign keys of a transaction that may be; '' if none may be.
    """

    prepare: Callable[[Any], None]
    begin: Callable[[Connection], None]
    end: Callable[[Connection], None]
    bound: Callable[[Column, Any], Any]
    upserts: bool
    overriding: str
    locks: str
    refusal: Callable[[BaseException], RefusalKind | None]
    move_counters: Callable[[Connection, TableFacts], None]
    unchanging: Callable[[Connection, str], frozenset[str]]
    changing_triggers: str
    defer: str


def refuse_inexact(column: Column, value: Any) -> None:
    """Raises: ValueError for a value that the column would round or cut."""
    kind = column.kind
    if isinstance(value, Decimal) and kind.name == "number":
        _refuse_rounded(value, kind)
    elif isinstance(value, Decimal) and kind.name == "float":
        if not (_of_single(value) if kind.single else decoder(kind)(float(value)) == value):
            raise ValueError("the number has more digits than the column holds")
    elif isinstance(value, (datetime, time)):
        digits = 6 if kind.precision is None else kind.precision
        if value.microsecond % 10 ** max(0, 6 - digits):
            raise ValueError("the time is finer than the column holds")


def refuse_longer(column: Column, value: Any) -> None:
    """Raises: ValueError for a text that is longer than the column; servers cut spaces without an error."""
    length = column.kind.length if column.kind.name == "text" else None
    if isinstance(value, str) and length is not None and len(value) > length:
        raise ValueError("the text is longer than the column")


def _refuse_rounded(value: Decimal, kind: Kind) -> None:
    decimals = value.normalize().as_tuple().exponent
    if kind.scale is not None and isinstance(decimals, int) and -decimals > kind.scale:
        raise ValueError("the number has more decimals than the column")


def single(value: Decimal) -> float:
    """The nearest number of 32 bits, all of whose digits are given. Raises: OverflowError."""
    return float(struct.unpack("f", struct.pack("f", float(value)))[0])


def _of_single(value: Decimal) -> bool:
    """Whether the number is the shortest one of its 32 bits."""
    try:
        return bool(decoder(Kind("float", single=True))(single(value)) == value)
    except OverflowError:
        return False


def as_text(kind: Kind, value: Any) -> str:
    """A scalar of the kind, or a JSON document, as the text that every engine reads it from."""
    if kind.name == "json":
        return json_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, (date, time)) else str(value)
