"""A source's statements, each form once and without values; and those that a server recorded."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sqlglot import exp

from migrator.mapping.items.changes import captured_name
from migrator.mapping.model.capacity import WriteRates
from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.questions import CUT, Statement, Unserved
from migrator.runtime.errors import Fault, MappingError, MissingNameError, SettingsError, SourceError
from migrator.runtime.values import replace
from migrator.source.engines.connect import engine_of
from migrator.source.workload.reading import (
    LONGEST,
    asks_nothing,
    column_named,
    first_word,
    marked,
    table_named,
    tree_of,
)

Ask = Callable[[str, Mapping[str, Any]], Sequence[tuple[Any, ...]]]

_NUMBER = r"-?\d+(?:\.\d+)?(?![\w.])"
_COMPARED = rf"(?:[=<>]|\bBETWEEN\b|\bAND\b)\s*{_NUMBER}"
_VALUE = rf"(?:{_NUMBER}|\?|\$\d+|%s|(?<![:\w]):\w+|%\(\w+\)s)"
_CAST = r"(?:::\w+(?:\[\])?)?"
_LIST = re.compile(rf"\bIN\s*\(\s*(?:{_VALUE}{_CAST}(?:\s*,\s*{_VALUE}{_CAST})*|\.\.\.)\s*\)", re.IGNORECASE)
_ANY = re.compile(
    rf"=\s*ANY\s*\(\s*(?:ARRAY\[)?(?P<values>{_VALUE}(?:\s*,\s*{_VALUE})*)\]?{_CAST}\s*\)", re.IGNORECASE
)
_KEPT = r"(?P<kept>(?:\bAND\s+)?\b1\s*=\s*1\b(?!\.)|\bCOUNT\s*\([^()]*\)\s*>\s*0\b(?!\.))"
_ROW = re.compile(r"[<>]=?\s*\([^()]*\)")
_LIKE = re.compile(r"\bLIKE\s*$", re.IGNORECASE)
_PREFIX = re.compile(r"'[^%_\\]*%'")
_ONE = re.compile(r"\(\s*(?::\w+|%\(\w+\)s)\s*\)$")
_OPEN_END = re.compile(r"'9999-\d\d-\d\d(?:[ T][\d:.]+)?'")
"""The day of rows without an end stays in a statement: many rows have it, so it identifies none."""
_EQUAL = re.compile(r"(?<![<>!])=\s*(?:DATE\s*|TIMESTAMP\s*)?\Z", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
_OPEN = r"(?:'|\"|`|\$(?:[^\W\d]\w*)?\$|/\*)(?s:.*)\Z"
"""A text, a name or a comment without an end."""
_ANY_NUMBER = r"(?<![\w.$:@?%])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b"
_ROWS_OF_VALUES = re.compile(r"(?<=\))(?:\s*,\s*\([^()]*\))+")


def merged(statements: Iterable[Statement], dialect: str) -> list[Statement]:
    """Each form once, with all its calls. Constants and lists become parameters, so only the day of an open end
    remains.

    Ignores white space and the case of keywords.
    """
    forms: dict[str, Statement] = {}
    for statement in statements:
        sql = spelled(without_values(statement.sql, dialect), dialect)
        form = _outside_names(sql, dialect, str.lower)
        alike = replace(statement, sql=sql)
        forms[form] = _together(forms[form], alike) if form in forms else alike
    return sorted(forms.values(), key=lambda statement: (-statement.calls, statement.sql))


def _together(one: Statement, other: Statement) -> Statement:
    """Merge two of one form, independent of their order."""
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
        min(filter(None, (one.line, other.line)), default=0),
    )


def without_values(sql: str, dialect: str) -> str:
    """The statement without comments, with ? for texts and compared numbers, and one per list; ? for every
    number in a write. A text without an end, and everything after it, becomes CUT.
    """
    engine = engine_of(dialect)
    texts = ("'", "E'", "e'", "$", *(['"'] if engine.sql.quote == "`" else []))

    def replaced(match: re.Match[str]) -> str:
        whole = match[0]
        if match["open"]:
            return CUT
        if whole.startswith("/*!"):
            # MySQL executes the content of such a comment.
            return without_values(re.sub(r"/\*!\d*|\*/", " ", whole), dialect)
        if whole.startswith(("--", "/*")) or (whole[0] == "#" and engine.sql.quote == "`"):
            return " "
        if match["kept"] or whole in ("'%'", "'%%'"):
            return whole
        if _PREFIX.fullmatch(whole) and _LIKE.search(sql, max(0, match.start() - 20), match.start()):
            return "CONCAT(?, '%')" if engine.sql.quote == "`" else "? || '%'"
        if whole.startswith(texts):
            is_open = _OPEN_END.fullmatch(whole) and _EQUAL.search(sql[: match.start()], match.start() - 20)
            return whole if is_open else "?"
        return re.sub(rf"{_NUMBER}$", "?", whole) if whole[0] in "=<>BbAa" else whole

    pattern = rf"{engine.statements.quotes.pattern}|{_KEPT}|(?P<open>{_OPEN})|{_COMPARED}"
    bare = re.sub(pattern, replaced, sql, flags=re.IGNORECASE)
    if asks_nothing(bare):
        bare = _ROWS_OF_VALUES.sub("", _outside_names(bare, dialect, partial(re.sub, _ANY_NUMBER, "?")))
    bare = _ROW.sub(lambda match: re.sub(_ANY_NUMBER, "?", match[0]), bare)
    bare = _ANY.sub(r"IN (\g<values>)", bare)
    return _LIST.sub(lambda match: match[0] if _ONE.search(match[0]) else "IN (?)", bare)


_KEYWORDS = re.compile(
    r"(?<![\w.$:@])(?:select|from|where|and|or|not|in|is|null|between|like|order|group|by|having|limit|offset|join|left|right"
    r"|inner|outer|cross|on|using|as|asc|desc|distinct|union|all|exists|case|when|then|else|end|true|false)(?![\w(.]|\s+\.)|"
    r"(?<![\w.$:@])(?:and|or|not|in|exists|using|on|where|by|count|sum|min|max|avg|lower|upper|coalesce)(?=\()",
    re.IGNORECASE,
)
_OPERATOR = re.compile(r"\s*(?<![-+*/<>=~!@#%^&|?])(<=|>=|<>|!=|=|<|>)(?![-+*/<>=~!@#^&|])\s*")


def spelled(sql: str, dialect: str) -> str:
    return _outside_names(sql, dialect, _spelled).strip()


def _spelled(part: str) -> str:
    part = _OPERATOR.sub(r" \1 ", part)
    part = re.sub(r"\s*,\s*", ", ", part)
    part = re.sub(r"(?<=\()\s+|\s+(?=\))", "", part)
    return _KEYWORDS.sub(lambda match: match[0].upper(), _BLANKS.sub(" ", part))


def _outside_names(sql: str, dialect: str, change: Callable[[str], str]) -> str:
    pieces, done = list[str](), 0
    for match in engine_of(dialect).statements.quotes.finditer(sql):
        pieces += [change(sql[done : match.start()]), match[0]]
        done = match.end()
    return "".join([*pieces, change(sql[done:])])


_FUNCTION = re.compile(r"\b(avg|coalesce|count|date|ifnull|lower|max|min|sum|upper) \(", re.IGNORECASE)
_OURS = re.compile(r"migrator_|\bFROM\s+\S+(?:\s*\.\s*\S+)?\s+AS\s+[`\"]?root\b", re.IGNORECASE)
"""Marks of our own statements: an alias of figures, or that of a row tree's own table (source/sql/selects.py)."""


def is_ours(sql: str) -> bool:
    """Whether it is migrator's own; statements of patterns are the application's."""
    return _OURS.search(sql) is not None


_OTHERWISE = "give a file of the service's questions with --statements FILE, or --statements none (from the schema alone)"


def recorded_statements(ask: Ask, dialect: str) -> list[Statement]:
    """Since the server's figures were last reset.

    Raises: SettingsError with the fix if it records none, or this user may not read them.
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
    # A space between a function's name and its parenthesis would make servers reject the statement.
    texts = ((_FUNCTION.sub(r"\1(", str(text)), float(calls)) for text, calls in rows)
    made = merged((Statement(text, calls) for text, calls in texts if not is_ours(text)), dialect)
    if not made:
        what = "source: the server has recorded no statement of this database"
        raise SettingsError(f"{what}; {_OTHERWISE}; or {recorded.advice}")
    return made


# ── Statements of a file of SQL, with rates in comments ──

LARGEST_FILE = 200_000_000
STATEMENTS_TAKE = "--statements takes a file of SQL, auto or none"


def statements_of(text: str, dialect: str) -> list[Statement]:
    """Each form once.

    The rate comes from a preceding comment such as `-- 12.5/s` or `-- 300/min`, else one call; a word before
    the rate, or alone in the comment, is the statement's name.
    """
    return merged(_written(text, dialect), dialect)


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
_RATE_TEXT = r"(?<![\w./-])(?P<number>\d+(?:\.\d+)?)\s*/\s*(?P<unit>[A-Za-z]+)\b"
_RATE = re.compile(_RATE_TEXT)
_RATES = "12.5/s, 300/min, 20/h or 5/day"
_NAME = re.compile(rf"^[-#/*\s]*(?:name:\s*)?(?P<name>[A-Za-z_]\w*)?[\s:,(*/]*(?:{_RATE_TEXT}|$)")


def _written(text: str, dialect: str) -> Iterator[Statement]:
    rate: float | None = None
    name, pieces, done, line, begun = "", list[str](), 0, 1, 0
    for match in re.finditer(rf"{engine_of(dialect).statements.quotes.pattern}|;|\Z", text):
        pieces.append(piece := text[done : match.start()])
        if bare := piece.lstrip():
            begun = begun or line + text.count("\n", done, match.start() - len(bare))
        if match[0] in (";", ""):
            if sql := "".join(pieces).strip():
                yield Statement(sql, 1.0 if rate is None else rate, name, per_s=rate, line=begun)
            rate, name, pieces, begun = None, "", [], 0
        elif match[0].startswith(("--", "/*", "#")):
            rate, name = _rate_and_name(match[0], rate, name, line + text.count("\n", done, match.start()))
            pieces.append(" ")
        else:
            pieces.append(match[0])
        line += text.count("\n", done, match.end())
        done = match.end()


def _rate_and_name(comment: str, rate: float | None, name: str, line: int) -> tuple[float | None, str]:
    comment = comment.strip("-#/* \n")
    said, named = _RATE.search(comment), _NAME.match(comment)
    new = named["name"] if named is not None and named["name"] else ""
    if said is not None and (per_s := _per_s(said["number"], said["unit"])) is None:
        raise SettingsError(f"line {line}: '{said[0]}' is not a rate: write {_RATES}")
    return per_s if said else rate, new or name


def _per_s(number: str, unit: str) -> float | None:
    unit = unit.lower()
    seconds = _UNITS_S.get(unit) or _UNITS_S.get(unit.removesuffix("s"))
    return None if seconds is None else float(number) / seconds


def file_text(path: Path, taken: str = STATEMENTS_TAKE) -> str:
    """Raises: SettingsError if the file cannot be read, or is too large. `taken`: for the message."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > LARGEST_FILE:
            raise SettingsError(
                f"{path}: {size_bytes:,} bytes; a file of statements has at most {LARGEST_FILE:,}"
            )
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        what = f"{path}: cannot be read ({error.strerror})"
        raise SettingsError(f"{what}; {taken}") from None


# ── Change rates of a source's rows, and the columns that updates set, from statements with rates ──

_WRITING = frozenset({"insert", "update", "delete", "replace"})


def told_writes(statements: Iterable[Statement], facts: SchemaFacts) -> WriteRates:
    per_s, updates = defaultdict[str, float](float), defaultdict[tuple[str, str], float](float)
    for statement in statements:
        if (change := _change(statement, facts)) is not None:
            table, columns = change
            per_s[table] += statement.calls
            for column in columns:
                updates[table, column] += statement.calls
    if not per_s:
        return WriteRates(why="no statement of the file writes")
    return WriteRates(dict(per_s), dict(updates), "the file of statements")


def _change(statement: Statement, facts: SchemaFacts) -> tuple[str, list[str]] | None:
    """The table that a statement writes, and the columns that an update sets, by real name."""
    if first_word(statement.sql) not in _WRITING or len(statement.sql) > LONGEST:
        return None
    text, _ = marked(statement.sql.strip().rstrip(";"), facts.dialect)
    tree = tree_of(text, facts.dialect)
    if not isinstance(tree, (exp.Insert, exp.Update, exp.Delete)):
        return None
    named = tree.find(exp.Table)
    table = None if named is None else table_named(facts, named)
    if table is None:
        return None
    return captured_name(table), _set_columns(tree, table)


def _set_columns(tree: exp.Expression, table: TableFacts) -> list[str]:
    if not isinstance(tree, exp.Update):
        return []
    sides = (part.this.this for part in tree.expressions if isinstance(part, exp.EQ))
    names = (side for side in sides if isinstance(side, exp.Identifier))
    return [column.real for name in names if (column := column_named(table, name)) is not None]


# ── Questions listed by a team: a table in CSV or Markdown with a name, SQL or words, rate, and latency ──

_TITLES = {
    "name": ("name", "pattern"),
    "words": ("question", "words", "access pattern", "description"),
    "sql": ("sql", "statement", "query"),
    "rate": ("rate", "calls", "frequency", "calls per second", "calls/s", "how often"),
    "p99": ("latency", "latency budget", "p99", "budget"),
    "who": ("who asks", "who", "asked by", "service"),
}
"""Titles of columns, in any case; other columns are ignored."""
_COLUMNS = {title: column for column, titles in _TITLES.items() for title in titles}
_KNOWN = "; ".join(f"{titles[0]} (or {', '.join(titles[1:])})" for titles in _TITLES.values())
_FREQUENCY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?:(?:/|per|a)\s*(?P<unit>[a-z]+))?", re.IGNORECASE)
_WORDS_OF_RATES = {"very high": 1000.0, "high": 100.0, "medium": 10.0, "low": 1.0}
"""Relative weights, used if no number is given."""
_LATENCY = re.compile(r"(?:<=?|≤)?\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s)?", re.IGNORECASE)
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"[\s|:-]+")


@dataclass
class _List:
    """A list while it is read, with its faults."""

    file: str
    dialect: str
    faults: list[Fault] = field(default_factory=list)

    def fault(self, line: int, where: str, what: str) -> None:
        self.faults.append(Fault(self.file, line, where, what))


def listed_questions(text: str, file: Path, dialect: str) -> tuple[list[Statement], list[Unserved]]:
    """Questions given as SQL, and the others, in words. Markdown if the file is called .md, else CSV.

    Raises: MappingError with all its faults.
    """
    reading = _List(str(file), dialect)
    lines = list(_lines(reading, _markdown(text) if file.suffix.lower() == ".md" else _csv(text)))
    statements, in_words = list[Statement](), list[Unserved]()
    names: dict[str, int] = {}
    for number, cells in lines:
        statement = _statement(reading, number, cells)
        if statement.name and names.setdefault(statement.name, number) != number:
            reading.fault(
                number, "name", f"line {names[statement.name]} has the same name; give each its own"
            )
        if cells.get("sql"):
            statements.append(statement)
        else:
            in_words.append(Unserved(statement, "words"))
    if not lines and not reading.faults:
        reading.fault(0, "", "no question in it; write one per line, below the heads of the columns")
    if reading.faults:
        raise MappingError(sorted(reading.faults, key=lambda fault: fault.line))
    return merged(statements, dialect), in_words


def _lines(reading: _List, rows: Sequence[tuple[int, list[str]]]) -> Iterator[tuple[int, dict[str, str]]]:
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
            yield number, known


def _csv(text: str) -> list[tuple[int, list[str]]]:
    text = text.removeprefix("\ufeff")
    head = text.split("\n", 1)[0]
    rows, begun = list[tuple[int, list[str]]](), 1
    # A field may be as long as the file: an unclosed quote extends it to the end. The limit is per process.
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
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if not bare.startswith("|"):
            if rows and any(title.lower() in _COLUMNS for title in rows[0][1]):
                break
            rows = []
        elif not (rows and _RULE.fullmatch(bare)):
            cells = [cell.replace("\\|", "|").strip() for cell in _CELL.split(bare.strip("|"))]
            rows.append((number, [_unquoted(cell) for cell in cells]))
    return rows


def _unquoted(cell: str) -> str:
    return cell[1:-1].strip() if len(cell) > 1 and cell[0] == cell[-1] == "`" else cell


def _statement(reading: _List, number: int, cells: Mapping[str, str]) -> Statement:
    sql, words = cells.get("sql", ""), cells.get("words", "")
    if not sql and not words:
        reading.fault(number, "", "neither SQL nor words; write the question")
    # A list may contain examples with values: those in SQL are removed, as from a log.
    try:
        if sql and len(statements_of(sql, reading.dialect)) > 1:
            reading.fault(number, "sql", "more than one statement; give each a line")
    except SettingsError as error:
        reading.fault(number, "sql", str(error))
    calls, per_s = _rate(reading, number, cells)
    name, who = cells.get("name", ""), cells.get("who", "")
    return Statement(
        sql, calls, name, per_s=per_s, words=words, who=who, p99_ms=_p99_ms(reading, number, cells)
    )


def _rate(reading: _List, number: int, cells: Mapping[str, str]) -> tuple[float, float | None]:
    text = cells.get("rate", "")
    match = _FREQUENCY.fullmatch(text)
    if not text or text.lower() in _WORDS_OF_RATES:
        return _WORDS_OF_RATES.get(text.lower(), 1.0), None
    per_s = None if match is None else _per_s(match["number"], match["unit"] or "s")
    if per_s is None:
        known = ", ".join(_WORDS_OF_RATES)
        reading.fault(number, "rate", f"no rate; write {_RATES}, or one of: {known}")
        return 1.0, None
    return per_s, per_s


def _p99_ms(reading: _List, number: int, cells: Mapping[str, str]) -> float | None:
    text = cells.get("p99", "")
    match = _LATENCY.fullmatch(text)
    if not text:
        return None
    if match is None or not float(match["number"]):
        reading.fault(number, "latency", "no time; write 10 ms, < 30 ms or 1 s")
        return None
    return float(match["number"]) * (1000 if (match["unit"] or "ms").lower() == "s" else 1)
