"""What the SQL of most engines shares: texts, comments, parameters, functions that look at the clock, values as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any
from uuid import UUID

BACKSLASHED = r"'(?:[^'\\]|''|\\.)*'"
ANSI_STRING = r"'(?:[^']|'')*'"
COMMENTS = r"/\*.*?\*/|--[^\n]*"
PARAMETER = r"(?<![\w:$]):(?P<name>[A-Za-z_]\w*)"
BLANK = r"[ \t\r\n\f\v]"
BLOCK = r"/\*(?:(?!\*/|/\*).)*\*/"
BETWEEN = re.compile(rf"(?:{BLANK}|{BLOCK}|--[^\r\n]*)*", re.DOTALL)
"""Blanks and comments, as standard SQL has them."""


def lexer(pattern: str) -> re.Pattern[str]:
    """Finds parameters (`name`) and comments (`comment`), and passes by texts and quoted names."""
    return re.compile(pattern, re.DOTALL)


CLOCKS = frozenset(
    {
        "current_timestamp",
        "current_date",
        "current_time",
        "localtime",
        "localtimestamp",
        "utc_timestamp",
        "utc_date",
    }
    | {"utc_time", "current_user", "session_user", "current_role"}
)
"""Words that are functions without parentheses, too."""
OF_SEQUENCES = ("nextval", "setval")
"""Functions that write."""
AS_TEXT: Mapping[type, Callable[[Any], Any]] = {
    # PostgreSQL takes text for whatever type stands on the other side; SQLite stores such values as text by custom.
    datetime: lambda moment: moment.isoformat(" "),
    date: date.isoformat,
    time: time.isoformat,
    UUID: str,
}
"""The forms of values that drivers bind."""
COMMON_QUOTES = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
"""Texts, names and comments of a service's statement, as standard SQL has them."""
