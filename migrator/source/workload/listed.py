"""Questions as a team lists them: a table in CSV or Markdown with a name, SQL or words, how often, and how fast."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from migrator.mapping.model.questions import Statement, Unserved
from migrator.runtime.errors import Fault, MappingError
from migrator.source.workload.files import statements_of
from migrator.source.workload.statements import merged

_TITLES = {
    "name": ("name", "pattern"),
    "words": ("question", "words", "access pattern", "description"),
    "sql": ("sql", "statement", "query"),
    "rate": ("rate", "calls", "frequency", "calls per second", "calls/s", "how often"),
    "p99": ("latency", "latency budget", "p99", "budget"),
    "who": ("who asks", "who", "asked by", "service"),
}
"""What the head of a column may say, in any case; other columns are left alone."""
_COLUMNS = {title: column for column, titles in _TITLES.items() for title in titles}
_KNOWN = "; ".join(f"{titles[0]} (or {', '.join(titles[1:])})" for titles in _TITLES.values())
_UNITS_S = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "min": 60,
    "m": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86_400,
    "day": 86_400,
}
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?:(?:/|per|a)\s*(?P<unit>[a-z]+))?", re.IGNORECASE)
_WORDS_OF_RATES = {"very high": 1000.0, "high": 100.0, "medium": 10.0, "low": 1.0}
"""Where no number is told: how they weigh against each other."""
_LATENCY = re.compile(r"(?:<=?|≤)?\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s)?", re.IGNORECASE)
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"[\s|:-]+")


class Listed(Struct, frozen=True):
    """`statements`: those told in SQL; `in_words`: those that are not."""

    statements: list[Statement]
    in_words: list[Unserved]


class _Line(Struct, frozen=True):
    """One question: the number of its line, and its cells by column."""

    number: int
    cells: dict[str, str]


@dataclass
class _List:
    """A list as it is read, with what is wrong in it."""

    file: str
    dialect: str
    faults: list[Fault] = field(default_factory=list)

    def fault(self, line: int, where: str, what: str) -> None:
        self.faults.append(Fault(self.file, line, where, what))


def listed_questions(text: str, file: Path, dialect: str) -> Listed:
    """The questions of the file, Markdown where it is called .md, else CSV.

    Raises: MappingError with every fault of it.
    """
    reading = _List(str(file), dialect)
    lines = list(_lines(reading, _markdown(text) if file.suffix.lower() == ".md" else _csv(text)))
    statements, in_words = list[Statement](), list[Unserved]()
    names: dict[str, int] = {}
    for line in lines:
        statement = _statement(reading, line)
        if statement.name and names.setdefault(statement.name, line.number) != line.number:
            reading.fault(
                line.number, "name", f"line {names[statement.name]} has it, too; give each a name of its own"
            )
        if line.cells.get("sql"):
            statements.append(statement)
        else:
            in_words.append(Unserved(statement, "words"))
    if not lines and not reading.faults:
        reading.fault(0, "", "there is no question in it; write one a line, below the heads of the columns")
    if reading.faults:
        raise MappingError(sorted(reading.faults, key=lambda fault: fault.line))
    return Listed(merged(statements, dialect), in_words)


def _lines(reading: _List, rows: Sequence[tuple[int, list[str]]]) -> Iterator[_Line]:
    if not rows:
        return
    (number, head), *rest = rows
    columns = [_COLUMNS.get(" ".join(title.lower().split()), "") for title in head]
    if not {"sql", "words"} & set(columns):
        reading.fault(number, "", f"no column is called sql or question; known are {_KNOWN}")
        return
    for name in {column for column in columns if column and columns.count(column) > 1}:
        reading.fault(number, name, "two columns say it; keep one")
    for number, cells in rest:
        if len(cells) > len(head):
            reading.fault(
                number,
                "",
                f"{len(cells)} cells below {len(head)} heads; put text with the separator in it in quotes",
            )
        known = {column: cell.strip() for column, cell in zip(columns, cells, strict=False) if column}
        if any(cell.strip() for cell in cells):
            yield _Line(number, known)


def _csv(text: str) -> list[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row; cells stand between commas, semicolons or tabs, as the head says."""
    text = text.removeprefix("\ufeff")
    head = text.split("\n", 1)[0]
    rows, begun = list[tuple[int, list[str]]](), 1
    # A field may be as long as the file: of a quote that is not closed it holds the rest. The limit is the process's.
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, len(text)))
    try:
        reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=head.count))
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((begun, row))
            begun = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)
    return rows


def _markdown(text: str) -> list[tuple[int, list[str]]]:
    """The same of the first table that has a column of ours; SQL may stand in backquotes."""
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if not bare.startswith("|"):
            if rows and _has_columns(rows[0][1]):
                break
            rows = []
        elif not (rows and _RULE.fullmatch(bare)):
            cells = [cell.replace("\\|", "|").strip() for cell in _CELL.split(bare.strip("|"))]
            rows.append((number, [_unquoted(cell) for cell in cells]))
    return rows


def _has_columns(head: Sequence[str]) -> bool:
    return any(title.lower() in _COLUMNS for title in head)


def _unquoted(cell: str) -> str:
    return cell[1:-1].strip() if len(cell) > 1 and cell[0] == cell[-1] == "`" else cell


def _statement(reading: _List, line: _Line) -> Statement:
    sql, words = line.cells.get("sql", ""), line.cells.get("words", "")
    if not sql and not words:
        reading.fault(line.number, "", "neither SQL nor words; write what is asked")
    # A list may hold examples with values: those of the SQL go, as they go from a log.
    if sql and len(statements_of(sql, reading.dialect)) > 1:
        reading.fault(line.number, "sql", "more than one statement; give each a line")
    calls, per_s = _rate(reading, line)
    name, who = line.cells.get("name", ""), line.cells.get("who", "")
    return Statement(sql, calls, name, per_s=per_s, words=words, who=who, p99_ms=_p99_ms(reading, line))


def _rate(reading: _List, line: _Line) -> tuple[float, float | None]:
    """(calls, calls a second where they are told so)."""
    text = line.cells.get("rate", "")
    match = _RATE.fullmatch(text)
    if not text or text.lower() in _WORDS_OF_RATES:
        return _WORDS_OF_RATES.get(text.lower(), 1.0), None
    unit = (match["unit"] or "s").lower() if match is not None else ""
    seconds = _UNITS_S.get(unit) or _UNITS_S.get(unit.removesuffix("s"))
    if match is None or seconds is None:
        known = ", ".join(_WORDS_OF_RATES)
        reading.fault(
            line.number, "rate", f"no rate; write 12.5/s, 300/min, 20/h or 5/day, or one of: {known}"
        )
        return 1.0, None
    per_s = float(match["number"]) / seconds
    return per_s, per_s


def _p99_ms(reading: _List, line: _Line) -> float | None:
    text = line.cells.get("p99", "")
    match = _LATENCY.fullmatch(text)
    if not text:
        return None
    if match is None or not float(match["number"]):
        reading.fault(line.number, "latency", "no time; write 10 ms, < 30 ms or 1 s")
        return None
    return float(match["number"]) * (1000 if (match["unit"] or "ms").lower() == "s" else 1)
