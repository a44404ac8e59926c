"""What a statement in the binary log does to rows without an event for each of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from migrator.source.capture.log.changes import MarkedTable

Effect = Literal["emptied", "unknown"]
"""Of a table: its rows only went away, or any may have come or changed."""

_COMMENTS = re.compile(
    r"/\*(?![!+]).*?\*/|(?<!\S)(?:--(?=\s)|#).*?$|/\*[!+]\d*|\*/", re.DOTALL | re.MULTILINE
)
_NAMES = re.compile(r"`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([\w$\x80-\U0010ffff]+)")
_WRITES = r"INSERT|REPLACE|UPDATE|DELETE|LOAD|WITH|CALL|EXECUTE"
_EMPTIES = re.compile(r"TRUNCATE\b|ALTER\b.*?\b(?:DROP|TRUNCATE)\s+PARTITION\b", re.DOTALL)
_UNKNOWN = re.compile(
    rf"(?:{_WRITES})\b|RENAME\s+TABLE\b"
    r"|ALTER\b.*?\b(?:EXCHANGE\s+PARTITION|IMPORT|DISCARD|RENAME(?!\s+(?:COLUMN|INDEX|KEY)\b))",
    re.DOTALL,
)


def effect_of(text: str, schema: str, tables: Iterable[MarkedTable], home: str) -> dict[str, Effect]:
    """By captured table what the statement of a session in that schema did to its rows; too much rather than too little.

    `home`: the schema of tables without one in their name.
    """
    plain = _COMMENTS.sub(" ", text).strip()
    words = plain.upper()
    effect: Effect | None = None
    if _EMPTIES.match(words):
        effect = "emptied"
    elif _UNKNOWN.match(words):
        effect = "unknown"
    if effect is None:
        return {}
    named = {_plain(found).casefold() for found in _NAMES.finditer(plain)}
    return {table.name: effect for table in tables if _is_named(table, schema, named, home)}


def _plain(found: re.Match[str]) -> str:
    return str(next(filter(None, found.groups()))).replace("``", "`").replace('""', '"')


def _is_named(table: MarkedTable, schema: str, named: set[str], home: str) -> bool:
    """Whether the text has the table's name, and its schema's where the session was in another one."""
    own, _, name = table.name.rpartition(".")
    own = own or home
    if "\ufffd" in "".join(named):
        # A name that is not in UTF-8 may be the table's.
        return True
    return name.casefold() in named and (own == schema or own.casefold() in named)
