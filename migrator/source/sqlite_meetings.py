"""In which rows of SQLite's a new one meets another: unique indexes with a collation, an expression or a condition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.facts import Meeting

_INDEXES = sa.text(
    "SELECT i.name, i.partial, c.name AS column_name, c.coll, s.sql, t.sql AS table_sql"
    " FROM pragma_index_list(:table) i JOIN pragma_index_xinfo(i.name) c ON c.key = 1"
    " LEFT JOIN sqlite_master s ON s.type = 'index' AND s.name = i.name"
    " JOIN sqlite_master t ON t.type = 'table' AND t.name = :table"
    ' WHERE i."unique" = 1 ORDER BY i.seq DESC, c.seqno'
)
_COLUMNS = sa.text("SELECT name FROM pragma_table_xinfo(:table)")
_WORD = r"[^\W\d][\w$]*"
_TOKEN = re.compile(
    rf"""[xX]?'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|{_WORD}|\d[\w.]*|--[^\n]*|/\*.*?\*/|\s+|.""",
    re.DOTALL,
)
_ORDER = re.compile(r"(?i)\s+(?:ASC|DESC)\s*$")
_COLLATED = re.compile(r"(?i)\b(?:UNIQUE|KEY)\s*\([^()]*\bCOLLATE\b")
_NO_COLUMN_AFTER = frozenset({".", "AS", "COLLATE"})

_Parts: TypeAlias = Sequence[sa.Row[tuple[str, int, str, str, str, str]]]
"""One index: what it says of each of its parts."""


def meetings(connection: Connection, table: str) -> tuple[Meeting, ...]:
    """Of each unique index of the table that is not of plain columns, compared as they are elsewhere, and of every row."""
    rows = connection.execute(_INDEXES, {"table": table}).all()
    names = {name.lower(): name for name in connection.scalars(_COLUMNS, {"table": table})}
    found = []
    for _, group in groupby(rows, lambda row: row.name):
        parts = list(group)
        is_whole = not parts[0].partial and all(one.column_name for one in parts)
        if not is_whole or _is_collated(parts):
            found.append(_meeting(parts, _Speech(names), is_whole=is_whole))
    return tuple(found)


def _is_collated(parts: _Parts) -> bool:
    """Whether the index, or the constraint that made it, says a collation that its columns need not have."""
    own, made_by = parts[0].sql, parts[0].table_sql
    is_said = bool(re.search(r"(?i)\bCOLLATE\b", own) if own else _COLLATED.search(made_by))
    return is_said and any(one.coll.upper() != "BINARY" for one in parts)


def _meeting(parts: _Parts, speech: _Speech, *, is_whole: bool) -> Meeting:
    said, condition = _split(parts[0].sql) if parts[0].sql else ([], "")
    sides = []
    for number, one in enumerate(parts):
        text = _quoted(one.column_name) if one.column_name else _ORDER.sub("", said[number])
        gone, new = (speech.of(text, side) for side in ("gone", "NEW"))
        sides.append(f"({gone}) = ({new}) COLLATE {_quoted(one.coll)}")
    if condition:
        sides += [f"({speech.of(condition, side)})" for side in ("gone", "NEW")]
    return Meeting(" AND ".join(sides), tuple(dict.fromkeys(speech.seen)), is_whole)


@dataclass
class _Speech:
    """Expressions of an index, said of a row by its name. `names`: real ones of columns by those in lower case."""

    names: Mapping[str, str]

    def __post_init__(self) -> None:
        self.seen: list[str] = []

    def of(self, text: str, row: str) -> str:
        tokens = _tokens(text)
        words = [at for at, token in enumerate(tokens) if not token.isspace()]
        for place, at in enumerate(words):
            before = tokens[words[place - 1]].upper() if place else ""
            after = tokens[words[place + 1]] if place + 1 < len(words) else ""
            name = self.names.get(_plain(tokens[at]).lower())
            if name is not None and before not in _NO_COLUMN_AFTER and after != "(":
                self.seen.append(name)
                tokens[at] = f"{row}.{_quoted(name)}"
        return "".join(tokens).strip()


def _split(sql: str) -> tuple[list[str], str]:
    """What CREATE INDEX says in its parentheses, one text for each part, and behind WHERE."""
    tokens = iter(_tokens(sql))
    for token in tokens:
        if token == "(":
            break
    parts, depth = [""], 1
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if not depth:
            break
        if token == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += token
    return parts, "".join(tokens).strip()[len("WHERE") :]


def _tokens(text: str) -> list[str]:
    return [" " if one.startswith(("--", "/*")) else one for one in _TOKEN.findall(text)]


def _plain(token: str) -> str:
    if token[0] == "[":
        return token[1:-1]
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote) if quote in '"`' else token


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
