"""What capture puts into a source, as values: triggers with the statements that make and drop them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from migrator.model.capture import Captured
from migrator.model.errors import SettingsError
from migrator.model.facts import Column

VERSION = 1
"""Of our two tables and of the images in marks; raised with every change of either."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger of ours. `table`: as Captured.name says it. `digest`: of all that its table's triggers say.

    `undo`: the statements that take away what `create` makes.
    """

    table: str
    name: str
    digest: str
    create: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A trigger of ours that the source has. `drop`: the statements that take it away. `text`: what it says."""

    table: str
    name: str
    digest: str
    enabled: bool = True
    drop: tuple[str, ...] = ()
    text: str = ""


class Ddl(Protocol):
    """One dialect's statements. `tables` makes ours where they are not there, `no_tables` takes them away."""

    mark: str
    ticket: str
    now: str

    def tables(self) -> list[str]: ...

    def no_tables(self) -> list[str]: ...

    def triggers(self, captured: Captured) -> list[Trigger]: ...

    def quoted(self, name: str) -> str: ...

    def image(self, columns: Sequence[Column], row: str) -> str:
        """SQL that makes the image of a row of that alias: JSON of written name -> type, a colon and the value's text."""


_COLUMN = re.compile(r'\b(?:NEW|OLD)\.("(?:[^"]|"")+"|`(?:[^`]|``)+`|\w+)', re.IGNORECASE)


def columns_named(*texts: str) -> set[str]:
    """Columns of the changed row that triggers name, as the source has them."""
    return {_plain(found) for text in texts for found in _COLUMN.findall(text)}


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '"`' else name


def digest_of(*texts: str) -> str:
    """Eight hexadecimal digits: enough to tell a body from the one before it, short enough for a name."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def columns_of(captured: Captured, names: Sequence[str]) -> list[Column]:
    """The columns of those written names. Raises: SettingsError for one that SQL of the mapping makes."""
    found = [captured.table.column(name) for name in names]
    plain = [column for column in found if column is not None and column.sql is None]
    if len(plain) < len(names):
        wrong = ", ".join(name for name in names if name not in {column.name for column in plain})
        what = f"capture: table {captured.name}: a mark cannot hold {wrong}, which the mapping makes by SQL"
        raise SettingsError(f"{what}; take a column of the table for keys and joins")
    return plain


Side = Literal["OLD", "NEW"]
