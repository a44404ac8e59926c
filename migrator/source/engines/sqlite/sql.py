"""SQLite's SQL: how it is read, what is refused in it, how values stand in ours."""

from __future__ import annotations

from decimal import Decimal

from sqlglot.dialects.sqlite import SQLite

from migrator.source.engines.base import Sql
from migrator.source.engines.words import ANSI_STRING, AS_TEXT, BETWEEN, CLOCKS, COMMENTS, PARAMETER, lexer

_PARAMETERS = lexer(rf'{ANSI_STRING}|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|(?P<comment>{COMMENTS})|{PARAMETER}')
_REFUSED = (
    *("load_extension", "readfile", "writefile", "edit", "fsdir", "lsmode", "zipfile", "fts?_tokenizer"),
    "pragma_*",
)
_VOLATILE = CLOCKS | {"random", "randomblob", "changes", "total_changes", "last_insert_rowid"}


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


SQL = Sql(
    reader=SQLite,
    quote='"',
    parameters=_PARAMETERS,
    forms={**AS_TEXT, Decimal: _number},
    comparable=lambda value, _: value,
    integer_bits=64,
    between=BETWEEN,
    sets_variables=False,
    escapes_names=False,
    refused=_REFUSED,
    refused_columns=(),
    volatile=_VOLATILE,
    routines=None,
    folds_names=False,
    recurses_unasked=True,
    having_sees_aliases=False,
    traits=frozenset(),
)
