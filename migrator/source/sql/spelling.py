"""Identifiers in SQL: how each dialect quotes and folds names, and edits of a statement."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache
from typing import TypeAlias

from msgspec import Struct
from sqlalchemy.engine import URL
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from migrator.runtime.errors import SettingsError
from migrator.source.engines.catalogue import quoted
from migrator.source.engines.connect import engine_of

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_ESCAPED = re.compile(r"(?<![\w$])U&([\"'])", re.IGNORECASE)
_NAME_BYTES = 63
"""PostgreSQL cuts longer names."""


Edit: TypeAlias = tuple[int, int, str]
"""Start and end of characters, and the text that replaces them."""


def edited(sql: str, edits: Iterable[Edit]) -> str:
    """The edited SQL. Equal edits are made once: sqlglot copies parts of some expressions."""
    pieces, done = [], 0
    for start, end, text in sorted(set(edits)):
        pieces += [sql[done:start], text]
        done = end
    return "".join([*pieces, sql[done:]])


class Speller(Struct, frozen=True):
    sql: str
    dialect: str

    def prefixed(self, identifier: exp.Identifier, before: str) -> list[Edit]:
        start, _ = self._place(identifier)
        return [(start, start, before)] if before else []

    def name(self, name: str) -> str:
        return name if self.is_plain(name) else self.quoted(name)

    def is_plain(self, name: str) -> bool:
        return bool(_PLAIN.fullmatch(name)) and name not in _reserved(self.dialect)

    def quoted(self, name: str) -> str:
        return quoted(name, engine_of(self.dialect).sql.quote)

    def _place(self, identifier: exp.Identifier) -> tuple[int, int]:
        """Start and end, checked against the text: a wrong place would change the statement."""
        start, end = identifier.meta.get("start", 0), identifier.meta.get("end", -1) + 1
        text = self.sql[start:end]
        if text != identifier.name and text[1:-1].replace(text[-1:] * 2, text[-1:]) != identifier.name:
            raise SettingsError("the SQL cannot be read here: a name in it stands at no certain place")
        return start, end


def sqlglot_dialect(dialect: str) -> Dialect:
    reader = engine_of(dialect).sql.reader
    return Dialect.get_or_raise(reader() if callable(reader) else reader)


def fold(name: str, dialect: str, *, quoted: bool = True) -> str:
    """The name as a database compares it: PostgreSQL truncates long names and folds unquoted A to Z, the others
    ignore case.
    """
    if not engine_of(dialect).sql.folds_names:
        return name.lower()
    cut = name.encode()[:_NAME_BYTES].decode(errors="ignore")
    return cut if quoted else "".join(letter.lower() if letter.isascii() else letter for letter in cut)


def escapes(sql: str, dialect: str) -> set[str]:
    """Quotes after U&, which starts a name or a text with escapes."""
    return set(_ESCAPED.findall(sql)) if engine_of(dialect).sql.escapes_names else set()


def folded(names: Collection[str], identifier: exp.Identifier) -> str | None:
    """The matching name: exact, or unquoted in another case."""
    if identifier.name in names:
        return identifier.name
    if identifier.quoted:
        return None
    wanted = identifier.name.lower()
    return next((name for name in names if name.lower() == wanted), None)


@cache
def _reserved(dialect: str) -> frozenset[str]:
    sqlalchemy_dialect = URL.create(dialect).get_dialect()()
    return frozenset(sqlalchemy_dialect.identifier_preparer.reserved_words)
