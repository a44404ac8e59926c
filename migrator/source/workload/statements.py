"""Statements that a source is asked, without values and each form of them once; and those that a server recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from migrator.mapping.model.questions import CUT, Statement
from migrator.runtime.errors import MissingNameError, SettingsError, SourceError
from migrator.runtime.values import replace
from migrator.source.engines.connect import engine_of
from migrator.source.workload.reading import asks_nothing

Ask = Callable[[str, Mapping[str, Any]], Sequence[tuple[Any, ...]]]
"""Runs one SELECT."""

_NUMBER = r"-?\d+(?:\.\d+)?(?![\w.])"
_COMPARED = rf"(?:[=<>]|\bBETWEEN\b|\bAND\b)\s*{_NUMBER}"
_VALUE = rf"(?:{_NUMBER}|\?|\$\d+|%s|(?<![:\w]):\w+|%\(\w+\)s)"
_LIST = re.compile(rf"\bIN\s*\(\s*(?:{_VALUE}(?:\s*,\s*{_VALUE})*|\.\.\.)\s*\)", re.IGNORECASE)
_ONE = re.compile(r"\(\s*(?::\w+|%\(\w+\)s)\s*\)$")
_BLANKS = re.compile(r"\s+")
_OPEN = r"(?:'|\"|`|\$(?:[^\W\d]\w*)?\$|/\*)(?s:.*)\Z"
"""A text, a name or a comment that does not end."""
_ANY_NUMBER = r"(?<![\w.$:@?%])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b"
_ROWS_OF_VALUES = re.compile(r"(?<=\))(?:\s*,\s*\([^()]*\))+")


def merged(statements: Iterable[Statement], dialect: str) -> list[Statement]:
    """Each form of a statement once, with all its calls: constants and lists are parameters, so that no value is left.

    Blanks and the case of keywords make no difference.
    """
    forms: dict[str, Statement] = {}
    for statement in statements:
        sql = spelled(without_values(statement.sql, dialect), dialect)
        form = _outside_names(sql, dialect, str.lower)
        alike = replace(statement, sql=sql)
        forms[form] = _together(forms[form], alike) if form in forms else alike
    return sorted(forms.values(), key=lambda statement: (-statement.calls, statement.sql))


def _together(one: Statement, other: Statement) -> Statement:
    """Two of one form as one, the same whichever comes first."""
    rates = [statement.per_s for statement in (one, other) if statement.per_s is not None]
    budgets = [statement.p99_ms for statement in (one, other) if statement.p99_ms is not None]
    asking = {who for statement in (one, other) for who in statement.who.split("; ") if who}
    return Statement(
        min(one.sql, other.sql),
        one.calls + other.calls,
        min(filter(None, (one.name, other.name)), default=""),
        one.times + other.times,
        sum(rates) if len(rates) == 2 else None,
        min(filter(None, (one.words, other.words)), default=""),
        "; ".join(sorted(asking)),
        min(budgets, default=None),
    )


def without_values(sql: str, dialect: str) -> str:
    """The statement without comments, with ? for its texts and for numbers that something is compared with, and one for each
    list; of one that writes or sets something ? for every number. From a text that does not end on, it is CUT."""
    engine = engine_of(dialect)
    texts = ("'", "E'", "e'", "$", *(['"'] if engine.sql.quote == "`" else []))

    def replaced(match: re.Match[str]) -> str:
        whole = match[0]
        if match["open"]:
            return CUT
        if whole.startswith("/*!"):
            # MySQL runs what is in such a comment.
            return without_values(re.sub(r"/\*!\d*|\*/", " ", whole), dialect)
        if whole.startswith(("--", "/*")) or (whole[0] == "#" and engine.sql.quote == "`"):
            return " "
        if whole.startswith(texts):
            return "?"
        return re.sub(rf"{_NUMBER}$", "?", whole) if whole[0] in "=<>BbAa" else whole

    pattern = rf"{engine.statements.quotes.pattern}|(?P<open>{_OPEN})|{_COMPARED}"
    bare = re.sub(pattern, replaced, sql, flags=re.IGNORECASE)
    if asks_nothing(bare):
        bare = _ROWS_OF_VALUES.sub("", _outside_names(bare, dialect, partial(re.sub, _ANY_NUMBER, "?")))
    return _LIST.sub(lambda match: match[0] if _ONE.search(match[0]) else "IN (?)", bare)


_KEYWORDS = re.compile(
    r"(?<![\w.$:@])(?:select|from|where|and|or|not|in|is|null|between|like|order|group|by|having|limit|offset|join|left|right"
    r"|inner|outer|cross|on|using|as|asc|desc|distinct|union|all|exists|case|when|then|else|end|true|false)(?![\w(.]|\s+\.)|"
    r"(?<![\w.$:@])(?:and|or|not|in|exists|using|on|where|by|count|sum|min|max|avg|lower|upper|coalesce)(?=\()",
    re.IGNORECASE,
)
_OPERATOR = re.compile(r"\s*(?<![-+*/<>=~!@#%^&|?])(<=|>=|<>|!=|=|<|>)(?![-+*/<>=~!@#^&|])\s*")


def spelled(sql: str, dialect: str) -> str:
    """The statement with its keywords in upper case and one blank where some are: the same for each way to write it."""
    return _outside_names(sql, dialect, _spelled).strip()


def _spelled(part: str) -> str:
    part = _OPERATOR.sub(r" \1 ", part)
    part = re.sub(r"\s*,\s*", ", ", part)
    part = re.sub(r"(?<=\()\s+|\s+(?=\))", "", part)
    return _KEYWORDS.sub(lambda match: match[0].upper(), _BLANKS.sub(" ", part))


def _outside_names(sql: str, dialect: str, change: Callable[[str], str]) -> str:
    """The statement with all that stands in no quotes changed."""
    pieces, done = list[str](), 0
    for match in engine_of(dialect).statements.quotes.finditer(sql):
        pieces += [change(sql[done : match.start()]), match[0]]
        done = match.end()
    return "".join([*pieces, change(sql[done:])])


_FUNCTION = re.compile(r"\b(avg|coalesce|count|date|ifnull|lower|max|min|sum|upper) \(", re.IGNORECASE)
_OURS = re.compile(r"migrator_|\bFROM\s+\S+(?:\s*\.\s*\S+)?\s+AS\s+[`\"]?root\b", re.IGNORECASE)
"""What our own statements have in them: an alias of figures, or that of a row tree's own table (source/sql/selects.py)."""


def is_ours(sql: str) -> bool:
    """Whether the statement is one of this toolkit's own; those of patterns are the application's."""
    return _OURS.search(sql) is not None


_OTHERWISE = "give a file of the service's questions with --statements FILE, or --statements none (from the schema alone)"


def recorded_statements(ask: Ask, dialect: str) -> list[Statement]:
    """The statements that the source's server recorded since its figures were last reset.

    Raises: SettingsError where it records none, or this user may not read them, with what to do.
    """
    engine = engine_of(dialect)
    recorded = engine.server.recorded
    if recorded is None:
        what = f"source: {engine.title} records no statements"
        raise SettingsError(f"{what}; {_OTHERWISE}")
    try:
        rows = ask(recorded.select, {})
    except MissingNameError:
        raise SettingsError(
            f"source: the server records no statements; {_OTHERWISE}; or {recorded.advice}"
        ) from None
    except SourceError as error:
        what = f"the statements that the server records cannot be read ({error})"
        raise SettingsError(
            f"source: {what}; {_OTHERWISE}; or {recorded.advice}, and {recorded.grant}"
        ) from None
    if recorded.hidden and any(text == recorded.hidden for text, _ in rows):
        what = "source: statements of other users are hidden from this one"
        raise SettingsError(f"{what}; {recorded.grant}; or {_OTHERWISE}")
    # A server that spells names of functions apart from their parentheses would refuse them so.
    texts = ((_FUNCTION.sub(r"\1(", str(text)), float(calls)) for text, calls in rows)
    made = merged((Statement(text, calls) for text, calls in texts if not is_ours(text)), dialect)
    if not made:
        what = "source: the server has recorded no statement of this database"
        raise SettingsError(f"{what}; {_OTHERWISE}; or {recorded.advice}")
    return made
