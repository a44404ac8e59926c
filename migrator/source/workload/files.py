"""Statements of a file of SQL, with rates in comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from migrator.mapping.model.questions import Statement
from migrator.runtime.errors import SettingsError
from migrator.source.engines.connect import engine_of
from migrator.source.workload.statements import merged

LARGEST_FILE = 200_000_000
"""Bytes of a file of statements."""
STATEMENTS_TAKE = "--statements takes a file of SQL, auto or none"


def statements_of(text: str, dialect: str) -> list[Statement]:
    """The statements of a file of SQL, each form of them once.

    Each has the rate of a comment such as `-- 12.5/s` before it, else one call; a word before the rate, or alone in the
    comment, is the statement's name.
    """
    return merged(_written(text, dialect), dialect)


_RATE = re.compile(r"(?P<rate>\d+(?:\.\d+)?)\s*/\s*s\b")
_NAME = re.compile(r"^[-#/*\s]*(?:name:\s*)?(?P<name>[A-Za-z_]\w*)?[\s:,(*/]*(?:\d[\d.]*\s*/\s*s\b|$)")


def _written(text: str, dialect: str) -> Iterator[Statement]:
    """Statements between semicolons, without their comments."""
    rate: float | None = None
    name, pieces, done = "", list[str](), 0
    for match in re.finditer(rf"{engine_of(dialect).statements.quotes.pattern}|;", text):
        pieces.append(text[done : match.start()])
        done = match.end()
        if match[0] == ";":
            if sql := "".join(pieces).strip():
                yield _rated(sql, rate, name)
            rate, name, pieces = None, "", []
        elif match[0].startswith(("--", "/*", "#")):
            rate, name = _told(match[0], rate, name)
            pieces.append(" ")
        else:
            pieces.append(match[0])
    pieces.append(text[done:])
    if sql := "".join(pieces).strip():
        yield _rated(sql, rate, name)


def _rated(sql: str, rate: float | None, name: str) -> Statement:
    return Statement(sql, 1.0 if rate is None else rate, name, per_s=rate)


def _told(comment: str, rate: float | None, name: str) -> tuple[float | None, str]:
    """The rate and the name that a comment says, or those before."""
    said, named = _RATE.search(comment), _NAME.match(comment.rstrip(" */\n"))
    new = named["name"] if named is not None and named["name"] else ""
    return float(said["rate"]) if said else rate, new or name


def file_text(path: Path, taken: str = STATEMENTS_TAKE) -> str:
    """Raises: SettingsError where there is no such file, or no text in it; `taken`: what the option takes."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > LARGEST_FILE:
            raise SettingsError(
                f"{path}: {size_bytes:,} bytes; a file of statements has at most {LARGEST_FILE:,}"
            )
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        what = f"{path}: cannot be read ({error.strerror})"
        raise SettingsError(f"{what}; {taken}") from None
