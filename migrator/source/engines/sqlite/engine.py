"""SQLite as a source: the engine object, how its SQL is read and written, and its errors."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from functools import partial
from itertools import accumulate, islice, repeat, tee
from pathlib import Path
from sys import getsizeof
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.facts import Column, Kind
from migrator.mapping.model.live import RefusalKind
from migrator.runtime.errors import LongAnswerError, SettingsError
from migrator.source.engines import base, shared
from migrator.source.engines.catalogue import ACTS, Below, Links, Place
from migrator.source.engines.sqlite import facts
from migrator.source.engines.sqlite.capture import CAPTURING
from migrator.source.engines.sqlite.facts import QUERIES


def _autocommits(_: Any, driver: Any) -> bool:
    # Since Python 3.12 a connection has a second attribute for it, which then is the one that counts.
    by_itself = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
    return by_itself and not driver.in_transaction


# ── values ──


def _typed(column: Column, value: Any) -> base.Typed:
    return "", _by_affinity(column, value), ""


def _by_affinity(column: Column, value: Any) -> Any:
    """The value as the column's affinity stores it. Source: SQLite, "Datatypes In SQLite", 3.1 and 3."""
    declared = column.declared.upper()
    if isinstance(value, bool):
        value = int(value)
    if "INT" in declared:
        return _integer(value)
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT")):
        return value if isinstance(value, (str, bytes)) or value is None else str(value)
    if "BLOB" in declared or not declared:
        return value
    if any(word in declared for word in ("REAL", "FLOA", "DOUB")):
        return float(value) if isinstance(value, (int, Decimal)) else value
    return _integer(float(value) if isinstance(value, Decimal) else value)


def _integer(value: Any) -> Any:
    """A number without decimals, or a text of one, as an integer."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value):
        return int(value)
    if isinstance(value, Decimal):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


# ── tables ──


def _acting(connection: Connection) -> list[tuple[Place, Below]]:
    inspector = sa.inspect(connection)
    # A key may spell its table in another case.
    spelled = {name.lower(): name for name in inspector.get_table_names()}
    keys: dict[tuple[str, int], list[sa.Row[Any]]] = {}
    for row in connection.execute(QUERIES["foreign_keys"]):
        if row.parent.lower() in spelled and not ACTS.isdisjoint((row.on_delete, row.on_update)):
            keys.setdefault((row.child, row.id), []).append(row)
    links = []
    for (child, _), rows in keys.items():
        parent, first = spelled[rows[0].parent.lower()], rows[0]
        theirs = [row.theirs for row in rows if row.theirs is not None]
        referred = theirs or inspector.get_pk_constraint(parent)["constrained_columns"]
        pairs = tuple(zip((row.own for row in rows), referred, strict=True))
        acts = (first.on_delete in ACTS, first.on_update in ACTS)
        links.append((Place(None, parent), Below(Place(None, child), pairs, *acts)))
    return links


STATEMENTS = base.Statements(
    reader="sqlite",
    bound=re.compile(r"\?(?P<place>\d*)|[:@$](?P<name>\w+)"),
    quotes=re.compile(r"(?s)`(?:[^`]|``)*`|\[[^\]]*\]|" + shared.COMMON_QUOTES),
    nests_comments=False,
    runs_comments=False,
    modifiers=None,
    overriding=None,
    deletes_by_using=False,
    tables_keep_case=False,
    # SQLite stores all decimals as floats, and its driver takes no Decimal.
    decimals_are_floats=True,
    quotes_by_session=False,
    key_names=("rowid", "_rowid_", "oid"),
    skips_generated=True,
)
SESSIONS = base.Sessions(
    drivers=("pysqlite", "aiosqlite"),
    modules={"sqlite3": "qmark"},
    reads_through=("sqlite3", "aiosqlite"),
    settings="session",
    autocommits=_autocommits,
    counts_found=lambda _: True,
    # Of undone changes it counts only those of triggers.
    changes_so_far=lambda driver: int(driver.total_changes),
    cursor=lambda connection, _: connection.cursor(),
    # sqlite3 begins no transaction before a SELECT, so what it reads might change.
    begins="BEGIN IMMEDIATE",
    charset="",
    home="",
    has_search_path=False,
    keeps_last_id=False,
)
OUTCOMES = base.Outcomes(
    locks=dict.fromkeys(("key", "row", "own", "met", "upserted", "none"), ""),
    locks_gaps=False,
    met=lambda *_: [],
    compares_types=False,
    typed=_typed,
    marks_at_once=False,
    returns_keys=False,
    rereads_returned=False,
    last_key="SELECT last_insert_rowid()",
    # Generated keys follow the highest existing key, and nothing comes between the rows of one statement.
    counts_keys_on=True,
    zero_makes_key=False,
    keeps_refused="counted",
    counts_twice=False,
    counts_late=True,
    locks_all=True,
    folds_tables=lambda _: True,
    links=lambda connection, _: Links(_acting(connection)),
    hidden=lambda *_: (),
    knows_heirs=False,
    has_conflict_rules=True,
)


# ── Rows written into SQLite: values as the column's affinity keeps them ──


def _prepare(connection: Any) -> None:
    """Without it SQLite would let children be written whose parents never come."""
    connection.execute("PRAGMA foreign_keys = ON")


def _bound(column: Column, value: Any) -> Any:
    if value is None or isinstance(value, (bytes, int)):
        return int(value) if isinstance(value, bool) else value
    base.refuse_inexact(column, value)
    if isinstance(value, Decimal):
        return _sqlite_number(value)
    return base.as_text(column.kind, value)


def _sqlite_number(value: Decimal) -> int | float:
    """As SQLite keeps it. Raises: ValueError where its 64 bits hold another number."""
    whole = value == value.to_integral_value()
    number = int(value) if whole and abs(value) < 2**63 else float(value)
    if Decimal(repr(number)) != value:
        raise ValueError("the number has more digits than SQLite keeps")
    return number


_BY_NAME: dict[str, RefusalKind] = {
    "SQLITE_CONSTRAINT_FOREIGNKEY": "foreign key",
    "SQLITE_CONSTRAINT_UNIQUE": "unique",
    "SQLITE_CONSTRAINT_PRIMARYKEY": "unique",
    "SQLITE_CONSTRAINT_ROWID": "unique",
    "SQLITE_CONSTRAINT_NOTNULL": "not null",
    "SQLITE_CONSTRAINT_CHECK": "value",
    "SQLITE_CONSTRAINT_DATATYPE": "value",
    "SQLITE_MISMATCH": "value",
    "SQLITE_TOOBIG": "value",
    "SQLITE_CONSTRAINT_TRIGGER": "trigger",
}
"""Source: SQLite, "Result and Error Codes"."""


def _refusal(error: BaseException) -> RefusalKind | None:
    return _BY_NAME.get(str(getattr(error, "sqlite_errorname", "")))


_HAS_MARKS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrator_mark'"


def _begin_row(connection: Connection) -> None:
    """A session has no settings here that a trigger could ask for; nobody else sees a row that goes before the commit."""
    if connection.exec_driver_sql(_HAS_MARKS).first():
        connection.exec_driver_sql("INSERT INTO migrator_mark (id) VALUES (0)")


def _end(connection: Connection) -> None:
    if connection.exec_driver_sql(_HAS_MARKS).first():
        connection.exec_driver_sql("DELETE FROM migrator_mark WHERE id = 0")


ROWS = base.RowWriting(
    prepare=_prepare,
    begin=_begin_row,
    end=_end,
    bound=_bound,
    upserts=True,
    overriding="",
    # A transaction that writes is alone.
    locks="",
    refusal=_refusal,
    # A number that is inserted moves the rowid, and AUTOINCREMENT's own counter.
    move_counters=lambda *_: None,
    unchanging=lambda *_: frozenset(),
    defer="PRAGMA defer_foreign_keys = ON",
)


# ── Explanations of SQLite's errors ──

_BY_SQLITE_NAME = {
    "SQLITE_BUSY": shared.LOCKED,
    "SQLITE_LOCKED": shared.LOCKED,
    "SQLITE_NOTADB": "the file is no SQLite database, or an encrypted one; name another",
    "SQLITE_CORRUPT": "the file is damaged; run PRAGMA integrity_check on it",
    "SQLITE_CANTOPEN": "it cannot be opened; let this user read it (and, in WAL mode, write its folder)",
    "SQLITE_READONLY": shared.WOULD_WRITE,
    **dict.fromkeys(
        ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY"),
        "a killed process left an unfinished write, which this user may not roll back; let the service open the file, "
        f"then {shared.RESUME}",
    ),
    "SQLITE_IOERR": "the file cannot be read; look at the disk",
    "SQLITE_PERM": "no permission; let this user read the file",
    "SQLITE_AUTH": "no permission; let this user read the file",
    "SQLITE_INTERRUPT": shared.TOOK_TOO_LONG,
}


def _reasons(cause: BaseException) -> Iterator[str]:
    name = getattr(cause, "sqlite_errorname", None) or ""
    for known in (name, "_".join(name.split("_")[:2])):
        if known in _BY_SQLITE_NAME:
            yield _BY_SQLITE_NAME[known]


ERRORS = base.Errors(_reasons, lambda _: False, lambda _: None)


# ── SQLite's SQL: parsing, refused functions, and the forms of values in our statements ──

_PARAMETERS = shared.lexer(
    rf'{shared.ANSI_STRING}|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|(?P<comment>{shared.COMMENTS})|{shared.PARAMETER}'
)
_REFUSED = (
    *("load_extension", "readfile", "writefile", "edit", "fsdir", "lsmode", "zipfile", "fts?_tokenizer"),
    "pragma_*",
)
_VOLATILE = shared.CLOCKS | {"random", "randomblob", "changes", "total_changes", "last_insert_rowid"}


def _number(value: Decimal) -> int | float:
    """As SQLite reads it in a statement: a whole number beyond 64 bits is a float."""
    is_whole = value == value.to_integral_value() and -(2**63) <= value < 2**63
    return int(value) if is_whole else float(value)


def _comparable(value: Any, kind: Kind) -> Any:
    """A text as its bytes: the driver binds none that is not UTF-8."""
    if kind.name != "text" or not isinstance(value, str) or value.isascii():
        return value
    return value.encode(errors="surrogateescape")


SQL = base.Sql(
    reader="sqlite",
    quote='"',
    parameters=_PARAMETERS,
    forms={**shared.AS_TEXT, Decimal: _number},
    comparable=_comparable,
    integer_bits=64,
    between=shared.BETWEEN,
    sets_variables=False,
    escapes_names=False,
    refused=_REFUSED,
    refused_columns=(),
    sized={},
    volatile=_VOLATILE,
    folds_names=False,
    recurses_unasked=True,
    traits=frozenset({"binds bytes as text"}),
)


# ── SQLite as a source: one file, read through the standard library's driver ──

_NAME = "sqlite"

# ── connections ──


class _TimedConnection(sqlite3.Connection):
    """A connection with a deadline for its present statement."""

    ends_at: float = math.inf
    answer_bytes: int = sys.maxsize

    def cursor(self, *_: Any) -> Any:
        return super().cursor(_BoundedCursor)


class _BoundedCursor(sqlite3.Cursor):
    """Raises LongAnswerError where an answer has more bytes than `answer_bytes`."""

    connection: _TimedConnection

    def execute(self, *words: Any) -> _BoundedCursor:
        self._left = self.connection.answer_bytes
        return super().execute(*words)

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        return self._counted(islice(self, size))

    def fetchall(self) -> list[Any]:
        return self._counted(self)

    def _counted(self, found: Iterable[Any]) -> list[Any]:
        rows, sized = tee(found)
        # In C, row by row: a function of ours for each would cost more than reading it.
        totals, used = accumulate(map(sum, map(map, repeat(getsizeof), sized))), 0
        taken = [
            row
            for row, total in zip(rows, totals, strict=True)
            if (used := total) <= self._left or self._end()
        ]
        self._left -= used
        return taken

    def _end(self) -> NoReturn:
        self.close()
        raise LongAnswerError


def _opened(address: base.Address, connection_options: base.ConnectionOptions) -> sa.Engine:
    # as_uri() escapes special characters of the file name; mode=rw never creates a file. Reads use it also: with mode=ro
    # SQLite refuses to roll back what a killed process left unfinished. A protected file is opened for reading only.
    uri = f"{Path(address.url().database or '').resolve().as_uri()}?mode=rw"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=connection_options.lock_wait_s,
            isolation_level=None,
            check_same_thread=False,
            factory=_TimedConnection,
        )
        connection.text_factory = _TOLERANT
        # An ATTACH in a query could create a file.
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        if not connection_options.writes:
            connection.answer_bytes = connection_options.answer_bytes
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, base.LONGEST_ANSWER_BYTES)
        connection.execute(
            "PRAGMA synchronous = FULL" if connection_options.writes else "PRAGMA query_only = ON"
        )
        return connection

    engine = sa.create_engine(f"{_NAME}://", creator=connect, **connection_options.pool())
    sa.event.listen(engine, "begin", _begin_writing if connection_options.writes else _begin)
    if limit_s := connection_options.limit_s(0):
        _limit_sqlite(engine, limit_s)
    return engine


# One text that is not UTF-8 then refuses its row; sqlite3's own way, which is sooner, would end the whole page.
_TOLERANT = partial(str, encoding="utf-8", errors="surrogateescape")


def _fetched(connection: Connection, statement: sa.Executable, _: frozenset[int]) -> RawPage:
    """The rows with texts as sqlite3 itself decodes them, and once more where one of them is not UTF-8."""
    driver: Any = connection.connection.driver_connection
    driver.text_factory = str
    try:
        rows = _all(connection, statement)
    except sqlite3.OperationalError as error:
        if not str(error).startswith("Could not decode to UTF-8"):
            raise
        driver.text_factory = _TOLERANT
        rows = _all(connection, statement)
    finally:
        driver.text_factory = _TOLERANT
    return RawPage(rows)


def _all(connection: Connection, statement: sa.Executable) -> list[tuple[Any, ...]]:
    with connection.execute(statement) as result:
        return list(result.cursor.fetchall())


def _begin(connection: Connection) -> None:
    # sqlite3 begins no transaction before a SELECT, so each SELECT of a page would see another snapshot.
    connection.exec_driver_sql("BEGIN")


def _begin_writing(connection: Connection) -> None:
    # A transaction that reads first and then writes is refused if another one wrote in between.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _limit_sqlite(engine: sa.Engine, limit_s: float) -> None:
    """SQLite has no statement time-out; its progress handler asks us regularly whether to go on."""

    def watch(connection: _TimedConnection, _: object) -> None:
        connection.set_progress_handler(lambda: time.monotonic() > connection.ends_at, _STEPS_A_LOOK)

    def start(_: object, cursor: sqlite3.Cursor, *__: object) -> None:
        connection = cursor.connection
        assert isinstance(connection, _TimedConnection)
        connection.ends_at = time.monotonic() + limit_s

    sa.event.listen(engine, "connect", watch)
    sa.event.listen(engine, "before_cursor_execute", start)


_STEPS_A_LOOK = 10_000
"""Instructions of SQLite's virtual machine between two checks of the clock: well below a millisecond."""


def _checked_url(url: URL, supported: str) -> URL:
    if url.host or url.username or url.password or url.query:
        raise SettingsError(
            "source: an SQLite URL is sqlite:///path (three slashes, four before an absolute path)"
        )
    if not url.database or url.database == ":memory:":
        raise SettingsError(
            "source: an SQLite database in memory holds nothing to migrate; write sqlite:///path"
        )
    return sqlite_file(url.database, supported)


def sqlite_file(text: str, supported: str) -> URL:
    """The URL of the file, which must exist: SQLite itself would create a missing one."""
    named = f"'{text}'" if text and not set("@:") & set(text) else "the path"
    path = Path(text)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise SettingsError(f"source: {named} is no regular file; name a file that SQLite can open")
        if path.is_dir():
            raise IsADirectoryError
        what = "is empty" if not path.stat().st_size else _not_of_sqlite(path)
    except FileNotFoundError:
        raise SettingsError(f"source: {named} does not exist; write {supported}") from None
    except (OSError, ValueError) as error:
        what = f"source: {named} cannot be read ({type(error).__name__}); write {supported}"
        raise SettingsError(what) from None
    if what:
        raise SettingsError(f"source: {named} {what}; name a file that SQLite can open")
    return URL.create(_NAME, database=text)


def _not_of_sqlite(path: Path) -> str:
    """What the file is where it is no database. SQLite reads it: whoever opens and closes it plainly takes all locks of the
    process on it away, those of a service's connections included.

    Source: sqlite.org/howtocorrupt.html, "POSIX advisory locks canceled by a separate thread doing close()".
    """
    if not os.access(path, os.R_OK):
        raise PermissionError
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as file:
            file.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as error:
        # Whatever else it is (locked, or a log that cannot be made), opening it to work with says so.
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            return "is no SQLite database, or an encrypted one"
    return ""


# ── plans ──

_SCAN = re.compile(r"^(?:SCAN (?:TABLE )?(?P<table>[^\s(]+)|SEARCH (?P<indexed>\S+) USING AUTOMATIC)")
"""An automatic index is built for one statement from the whole table."""


def _plan(names: Sequence[str], rows: Sequence[base.Row], page_rows: int) -> base.Plan:
    lines = [str(row[3]) for row in rows]
    scanned = [match["table"] or match["indexed"] for line in lines if (match := _SCAN.match(line))]
    tables = [table for table in scanned if table not in ("CONSTANT", "SUBQUERY")]
    return lines, tables if page_rows < sys.maxsize else []


_SERVER = base.Server(
    health="SELECT 'SQLite ' || sqlite_version(), NULL, 0, ''",
    product=str,
    session=None,
    sends_to_the_end=False,
    rows_at_least=lambda *_: None,
    explain=lambda _: "EXPLAIN QUERY PLAN",
    plan=_plan,
    expected=None,
    replication=lambda _: None,
    hides_rows=False,
    recorded=None,
    strains={},
    strains_need="",
)

# ── writers ──


def _read_only(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    yield "-- SQLite has no users: take the right to write from the file (chmod a-w), once nothing of ours writes"


_WRITERS = base.Writers(
    changes=lambda *_: ({}, "marks", "SQLite counts no changes by table"),
    # This check runs in a writing transaction, and SQLite allows no other one meanwhile.
    open=lambda _: ({}, ""),
    marks_ever="SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = '{mark}'), 0)",
    may_write=lambda *_: {},
    read_only=_read_only,
    drops=shared.drops_unchecked("PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys = ON"),
)


SQLITE = base.Engine(
    name=_NAME,
    also=(),
    title="SQLite",
    is_file=True,
    queries=QUERIES,
    connecting=base.Connecting(
        form="sqlite:///path, the path of an SQLite file",
        schemes=(_NAME,),
        driver="",
        port=0,
        rds=(),
        extra=None,
        checked_url=_checked_url,
        open=_opened,
        raw=frozenset(),
        fetched=_fetched,
    ),
    sql=SQL,
    schema=base.Schema(
        reflected=facts.reflected,
        kinds=facts.KINDS,
        has_schemas=False,
        has_materialized_views=False,
        loosely_typed=True,
        has_blocks=lambda *_: False,
    ),
    server=_SERVER,
    errors=ERRORS,
    writers=_WRITERS,
    capturing=CAPTURING,
    granting=None,
    statements=STATEMENTS,
    sessions=SESSIONS,
    outcomes=OUTCOMES,
    rows=ROWS,
)
