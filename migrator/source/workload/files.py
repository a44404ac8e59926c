"""Statements of files: SQL with rates in comments, MariaDB's and MySQL's slow and general log, and SQLAlchemy's own log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from migrator.mapping.design.questions import CUT, Statement
from migrator.source.connect import engine_of
from migrator.source.workload.statements import is_ours, merged


def statements_of(text: str, dialect: str, database: str = "") -> list[Statement]:
    """The statements of a log (see sent_statements), or of a file of SQL.

    There each has the rate of a comment such as `-- 12.5/s` before it, else one call; a word before the rate, or alone in
    the comment, is the statement's name. `database`: the source's; what a log says was sent to another one is told so.
    """
    sent = sent_statements(text)
    if sent is None:
        return merged(_written(text, dialect), dialect)
    logged = [statement for statement in sent if not is_ours(statement.sql)]
    seconds = span_s(logged)
    return merged((_logged(statement, database, seconds) for statement in logged), dialect)


def _logged(sent: Sent, database: str, seconds: float | None) -> Statement:
    elsewhere = sent.database if sent.database.lower() != database.lower() else ""
    return Statement(sent.sql, per_s=None if seconds is None else 1 / seconds, elsewhere=elsewhere)


@dataclass(frozen=True, slots=True)
class Sent:
    """One statement of a log; of one that is there in part, what is there, and CUT where the rest is missing.

    `database`: that it was sent to, '' where the log does not say; `at_s`: when, in seconds, as far as the log says.
    """

    sql: str
    database: str = ""
    at_s: float | None = None


def sent_statements(text: str) -> Iterator[Sent] | None:
    """The statements of a log in the order of the file; None where the text is no log that is known.

    A log is known by its content. Parameters that stand on lines of their own are not read.
    """
    return next((read(text) for form, read in _FORMS if form.search(text)), None)


def span_s(sent: list[Sent]) -> float | None:
    """Seconds from the first statement to the last; None where the log does not say, or they are less than one."""
    times = [statement.at_s for statement in sent if statement.at_s is not None]
    span = max(times) - min(times) if times else 0.0
    return span if span >= 1 else None


def _seconds(text: str | None) -> float | None:
    """Of the time at the head of a line; only differences of them mean anything."""
    if not text:
        return None
    plain = re.sub(r"(?:Z|[+-]\d\d:\d\d)$", "", text.replace(",", ".").replace("T", " "))
    if re.match(r"\d{6} ", plain):
        plain = f"20{plain[:2]}-{plain[2:4]}-{plain[4:6]} {plain[7:].strip():0>8}"
    try:
        return datetime.fromisoformat(plain).timestamp()
    except (ValueError, OverflowError):
        return None


# ── The slow log: each statement behind lines that begin with #, ended by a semicolon ──

_START = re.compile(r"^.*, Version: .*started with:\n.*\nTime\s+Id Command\s+Argument\n", re.MULTILINE)
"""What a server writes when it opens a log."""
_ENTRY = re.compile(r"^(?=# (?:Time|User@Host): )", re.MULTILINE)
_HEAD = re.compile(r"(?:#[^\n]*(?:\n|\Z))*")
_SCHEMA = re.compile(r"\bSchema: (\S+)")
_BEFORE = re.compile(
    r"(?:use `?(?P<database>[^\n;`]+)`?|SET timestamp=(?P<at>\d+)(?:\.\d+)?);(?:\n|\Z)", re.IGNORECASE
)
_ADMINISTRATION = "# administrator command"


def _slow(text: str) -> Iterator[Sent]:
    before, *entries = _ENTRY.split(_START.sub("", text.replace("\r\n", "\n")))
    if before.strip():
        yield Sent(CUT)
    database = ""
    for place, entry in enumerate(entries, 1):
        head = _HEAD.match(entry)
        assert head is not None
        named, sql, at_s = _SCHEMA.search(head[0]), entry[head.end() :], None
        while before_it := _BEFORE.match(sql):
            database = before_it["database"] or database
            at_s = float(before_it["at"]) if before_it["at"] else at_s
            sql = sql[before_it.end() :]
        database = named[1] if named is not None else database
        sql = sql.rstrip()
        if sql:
            yield Sent(sql.removesuffix(";") if sql.endswith(";") else f"{sql}{CUT}", database, at_s)
        elif place == len(entries) and "# User@Host" in head[0] and _ADMINISTRATION not in head[0]:
            yield Sent(CUT, database)


# ── The general log: a line for each command of each connection, statements in whole ──

_COMMAND = re.compile(
    r"^(?P<at>\d{6} [ \d]\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]*(?:Z|[+-]\d\d:\d\d))?\t+ *(?P<of>\d+)"
    r" (?P<command>[A-Z]\w*(?: [A-Za-z]+)*)(?:\t|$)",
    re.MULTILINE,
)
_ENTERED = {
    "Connect": re.compile(r"\S+ on (?P<database>\S+) using "),
    "Init DB": re.compile(r"(?P<database>\S+)"),
    "Query": re.compile(r"use\s+`?(?P<database>[^\s;`]+)", re.IGNORECASE),
}
"""By command, what says the database that the connection is in from then on."""


def _general(text: str) -> Iterator[Sent]:
    text = _START.sub("", text.replace("\r\n", "\n"))
    commands = list(_COMMAND.finditer(text))
    if text[: commands[0].start()].strip():
        yield Sent(CUT)
    databases: dict[str, str] = {}
    at_s = None
    for place, command in enumerate(commands):
        end = commands[place + 1].start() if place + 1 < len(commands) else len(text)
        argument, connection = text[command.end() : end], command["of"]
        at_s = _seconds(command["at"]) or at_s
        entered = _ENTERED.get(command["command"])
        if entered is not None and (match := entered.match(argument)) is not None:
            databases[connection] = match["database"]
        if command["command"] in ("Query", "Execute"):
            whole = argument.endswith("\n")
            yield Sent(argument.strip() + ("" if whole else CUT), databases.get(connection, ""), at_s)


# ── SQLAlchemy's own log: a message with the statement, and one with its parameters ──

_MESSAGE = re.compile(
    r"^(?P<at>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)?[^\n]*?\bsqlalchemy\.engine(?:\.[\w.]+)?[\]\s:|>-]+",
    re.MULTILINE,
)
_OTHER = re.compile(
    r"^(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b)", re.MULTILINE
)
"""A line of another logger."""
_PARAMETERS = re.compile(r"[\[{]|\((?!\s*(?:select|with|values)\b)|(?:Row|Col) \(", re.IGNORECASE)
_ALONE = re.compile(r"(?:BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|PRAGMA)\b", re.IGNORECASE)
"""Messages that no parameters follow."""


def _echo(text: str) -> Iterator[Sent]:
    messages = list(_MESSAGE.finditer(text.replace("\r\n", "\n")))
    text = text.replace("\r\n", "\n")
    waiting: Sent | None = None
    for place, message in enumerate(messages):
        end = messages[place + 1].start() if place + 1 < len(messages) else len(text)
        said = text[message.end() : end]
        if _PARAMETERS.match(said):
            if place == 0 and not said.startswith(("Row", "Col")):
                yield Sent(CUT)
            if waiting is not None:
                yield waiting
            waiting = None
            continue
        if waiting is not None:
            yield waiting
        other = _OTHER.search(said)
        sql = (said[: other.start()] if other is not None else said).strip()
        waiting = Sent(sql, at_s=_seconds(message["at"])) if sql else None
    if waiting is not None:
        cut = "" if _ALONE.match(waiting.sql) else CUT
        yield Sent(waiting.sql + cut, at_s=waiting.at_s)


_FORMS: tuple[tuple[re.Pattern[str], Callable[[str], Iterator[Sent]]], ...] = (
    (re.compile(r"^# Query_time: ", re.MULTILINE), _slow),
    (_COMMAND, _general),
    (re.compile(r"^[^\n]*\bsqlalchemy\.engine\b", re.MULTILINE), _echo),
    # A server has opened a log, and written nothing into it.
    (_START, lambda _: iter(())),
)


# ── A file of SQL ──

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
