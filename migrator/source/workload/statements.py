"""Statements that a source is asked: of a file of SQL, or of what its server recorded; alike ones are one statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from migrator.mapping.design.questions import Statement
from migrator.model.errors import SettingsError, SourceError
from migrator.source.connect import engine_of

Ask = Callable[[str, Mapping[str, Any]], Sequence[tuple[Any, ...]]]
"""Runs one SELECT."""

_RATE = re.compile(r"(?P<rate>\d+(?:\.\d+)?)\s*/\s*s\b")
_NAME = re.compile(r"^[-#/*\s]*(?:name:\s*)?(?P<name>[A-Za-z_]\w*)?[\s:,(*/]*(?:\d[\d.]*\s*/\s*s\b|$)")
_NUMBER = r"-?\d+(?:\.\d+)?(?![\w.])"
_COMPARED = rf"(?:[=<>]|\bBETWEEN\b|\bAND\b)\s*{_NUMBER}"
_VALUE = rf"(?:{_NUMBER}|\?|\$\d+|%s|(?<![:\w]):\w+|%\(\w+\)s)"
_LIST = re.compile(rf"\bIN\s*\(\s*(?:{_VALUE}(?:\s*,\s*{_VALUE})*|\.\.\.)\s*\)", re.IGNORECASE)
_ONE = re.compile(r"\(\s*(?::\w+|%\(\w+\)s)\s*\)$")
_BLANKS = re.compile(r"\s+")


def statements_of(text: str, dialect: str) -> list[Statement]:
    """The statements of a file of SQL, each with the rate of a comment such as `-- 12.5/s` before it, else with one call.

    A word before the rate, or alone in the comment, is the statement's name.
    """
    return merged(_written(text, dialect), dialect)


def merged(statements: Iterable[Statement], dialect: str) -> list[Statement]:
    """Each form of a statement once, with all its calls: constants and lists are parameters, so that no value is left."""
    forms: dict[str, Statement] = {}
    for statement in statements:
        sql = without_values(statement.sql, dialect)
        form = _BLANKS.sub(" ", sql).strip().lower()
        alike = forms.get(form, Statement(sql, 0.0, statement.name, 0))
        forms[form] = Statement(
            # The same whichever comes first.
            min(alike.sql, sql),
            alike.calls + statement.calls,
            min(filter(None, (alike.name, statement.name)), default=""),
            alike.times + statement.times,
        )
    return sorted(forms.values(), key=lambda statement: (-statement.calls, statement.sql))


def without_values(sql: str, dialect: str) -> str:
    """The statement with ? for its texts and for numbers that something is compared with, and one for each list."""
    engine = engine_of(dialect)
    texts = ("'", "E'", "e'", "$", *(['"'] if engine.sql.quote == "`" else []))

    def replaced(match: re.Match[str]) -> str:
        whole = match[0]
        if whole.startswith(texts):
            return "?"
        return re.sub(rf"{_NUMBER}$", "?", whole) if whole[0] in "=<>BbAa" else whole

    pattern = rf"{engine.statements.quotes.pattern}|{_COMPARED}"
    bare = re.sub(pattern, replaced, sql, flags=re.IGNORECASE)
    return _LIST.sub(lambda match: match[0] if _ONE.search(match[0]) else "IN (?)", bare)


_FUNCTION = re.compile(r"\b(avg|coalesce|count|date|ifnull|lower|max|min|sum|upper) \(", re.IGNORECASE)
_OURS = "migrator_"


def recorded_statements(ask: Ask, dialect: str) -> list[Statement]:
    """The statements that the source's server recorded since its figures were last reset.

    Raises: SettingsError where it records none, or this user may not read them, with what to do.
    """
    engine = engine_of(dialect)
    recorded = engine.server.recorded
    if recorded is None:
        what = f"source: {engine.title} records no statements"
        raise SettingsError(f"{what}; give a file of SQL with --statements, or --statements none")
    try:
        rows = ask(recorded.select, {})
    except SourceError as error:
        what = "source: the statements that the server records cannot be read"
        raise SettingsError(f"{what} ({error}); {recorded.advice}, and {recorded.grant}") from None
    if recorded.hidden and any(text == recorded.hidden for text, _ in rows):
        what = "source: statements of other users are hidden from this one"
        raise SettingsError(f"{what}; {recorded.grant}")
    # A server that spells names of functions apart from their parentheses would refuse them so.
    texts = ((_FUNCTION.sub(r"\1(", str(text)), float(calls)) for text, calls in rows)
    made = merged((Statement(text, calls) for text, calls in texts if _OURS not in text), dialect)
    if not made:
        raise SettingsError(
            f"source: the server has recorded no statement of this database; {recorded.advice}"
        )
    return made


def _written(text: str, dialect: str) -> Iterator[Statement]:
    """Statements between semicolons, without their comments."""
    rate, name, pieces, done = 1.0, "", list[str](), 0
    for match in re.finditer(rf"{engine_of(dialect).statements.quotes.pattern}|;", text):
        pieces.append(text[done : match.start()])
        done = match.end()
        if match[0] == ";":
            if sql := "".join(pieces).strip():
                yield Statement(sql, rate, name)
            rate, name, pieces = 1.0, "", []
        elif match[0].startswith(("--", "/*", "#")):
            rate, name = _told(match[0], rate, name)
            pieces.append(" ")
        else:
            pieces.append(match[0])
    pieces.append(text[done:])
    if sql := "".join(pieces).strip():
        yield Statement(sql, rate, name)


def _told(comment: str, rate: float, name: str) -> tuple[float, str]:
    """The rate and the name that a comment says, or those before."""
    said, named = _RATE.search(comment), _NAME.match(comment.rstrip(" */\n"))
    new = named["name"] if named is not None and named["name"] else ""
    return float(said["rate"]) if said else rate, new or name
