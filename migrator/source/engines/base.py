"""The interface of an engine: everything that differs between relational databases, by capability."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from threading import Lock as ThreadLock
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeAlias

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import URL, Connection

from migrator.mapping.items.values import decoder, json_text
from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.facts import Captured, Column, Kind, KindName, TableFacts
from migrator.mapping.model.live import RefusalKind
from migrator.runtime.errors import SourceError
from migrator.runtime.values import replace
from migrator.settings.roles import SqlRole
from migrator.source.engines.catalogue import Functions, Kinds, Links, Queries, Recorded, Reflected
from migrator.source.engines.ddl import Ddl, ExistingTrigger, Trigger


class RowWriting(Struct, frozen=True):
    """How rows are written.

    `begin`, `end`: run first and last in a transaction, so that our triggers that refuse other writers let it
    pass.
    `bound`: a decoded value in the driver's form; raises ValueError if the column would store another value.
    `upserts`: ON CONFLICT takes a single key; else a row is updated or inserted, because MySQL's ON DUPLICATE
    KEY would change another row with the same value in another unique index.
    `overriding`: clause that lets an identity column take a value.
    `locks`: SQL at the end of a SELECT that locks its rows.
    `refusal`: of a driver error, None if it does not concern the row.
    `move_counters`: for new rows past the existing ones, if an INSERT with a number does not.
    `unchanging`: real names of columns that no UPDATE may name, by the table's name in SQL.
    `defer`: SQL that defers a transaction's deferrable foreign keys; '' if none can be deferred.
    """

    prepare: Callable[[Any], None]
    begin: Callable[[Connection], None]
    end: Callable[[Connection], None]
    bound: Callable[[Column, Any], Any]
    upserts: bool
    overriding: str
    locks: str
    refusal: Callable[[BaseException], RefusalKind | None]
    move_counters: Callable[[Connection, TableFacts], None]
    unchanging: Callable[[Connection, str], frozenset[str]]
    defer: str


def refuse_inexact(column: Column, value: Any) -> None:
    """Raises: ValueError for a value that the column would round or cut."""
    kind = column.kind
    if isinstance(value, Decimal) and kind.name == "number":
        decimals = value.normalize().as_tuple().exponent
        if kind.scale is not None and isinstance(decimals, int) and -decimals > kind.scale:
            raise ValueError("the number has more decimals than the column")
    elif isinstance(value, Decimal) and kind.name == "float":
        if not (_of_single(value) if kind.single else decoder(kind)(float(value)) == value):
            raise ValueError("the number has more digits than the column holds")
    elif isinstance(value, (datetime, time)):
        digits = 6 if kind.precision is None else kind.precision
        if value.microsecond % 10 ** max(0, 6 - digits):
            raise ValueError("the time is finer than the column holds")


def refuse_longer(column: Column, value: Any) -> None:
    """Raises: ValueError: servers cut spaces without an error."""
    length = column.kind.length if column.kind.name == "text" else None
    if isinstance(value, str) and length is not None and len(value) > length:
        raise ValueError("the text is longer than the column")


def single(value: Decimal) -> float:
    """The nearest 32-bit float, with all its digits. Raises: OverflowError."""
    return float(struct.unpack("f", struct.pack("f", float(value)))[0])


def _of_single(value: Decimal) -> bool:
    try:
        return bool(decoder(Kind("float", single=True))(single(value)) == value)
    except OverflowError:
        return False


def as_text(kind: Kind, value: Any) -> str:
    """The text from which every engine reads the scalar or JSON document."""
    if kind.name == "json":
        return json_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


GrantObject = Literal["table", "sequence", "schema", "database", "owner", "attribute"]


class Grant(Struct, frozen=True, order=True):
    """One right on one object. For an `owner` of tables it is membership in that role; an `attribute` is one of
    the role itself.
    """

    kind: GrantObject
    schema: str
    name: str
    right: str


Place = tuple[str, str]
"""Schema and name of a table."""


class Granting(Struct, frozen=True):
    needed: Callable[
        [Connection, SqlRole, Collection[Place], Collection[Place], Collection[Place]], Iterator[Grant]
    ]
    missing: Callable[[Connection, Sequence[Grant]], list[Grant]]
    statement: Callable[[Sequence[Grant], str], str]


# ── Replication: whether a server is a replica, and how far it has replayed ──

Row: TypeAlias = tuple[Any, ...]
Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Row]
"""Runs a statement with parameters that returns one row."""


class Mark(Struct, frozen=True):
    """The primary's identity and log position when the run began.

    `system`: an id shared with its replicas ('' if there is none).
    `server`: the id of this server only.
    """

    system: str
    server: str
    database: str
    position: str


def mark_by(query: str) -> Callable[[Ask], Mark]:
    return lambda ask: Mark(*(str(part or "") for part in ask(query, {})))


Verdict = Literal["ready", "behind"]
"""The state of a replica; a server that does not replicate from ours raises an error instead."""


class Replication(Struct, frozen=True):
    """`mark`: reads the primary's; raises SourceError if a replica cannot be compared with it.
    `server`: SQL for an id of the server and its start.
    `verdict`: raises SourceError if the server is neither a replica of the mark's primary nor the primary
    itself.
    """

    mark: Callable[[Ask], Mark]
    server: str
    verdict: Callable[[Mark, Ask], Verdict]


def no_replica(why: str) -> SourceError:
    return SourceError(f"read_url: {why}; name a replica of url's server, or leave read_url out")


# ── Options of connections: names, limits and waits ──

APPLICATION_NAME = "migrator"
LONGEST_ANSWER_BYTES = 2**28
"""Maximum bytes of one answer as the database sends it, so also of one value. SQLite's own limit is 10⁹ bytes of this
process's memory.
"""
LONGEST_STATEMENT_S = 600.0
"""A page takes milliseconds; a statement of ten minutes is a mistake, or too much for a busy server."""
LONGEST_NAME = 63
"""Bytes of an application_name. Source: PostgreSQL's documentation, NAMEDATALEN."""


class ConnectionOptions(Struct, frozen=True):
    """Options of every connection. Times in seconds.

    `statement_timeout_s`: None for the server's own limit, or LONGEST_STATEMENT_S if it has none; 0 for the
    server's own or none.
    `lock_wait_s`: how long SQLite waits for another writer, and a server for a change of a table.
    `pool_wait_s`: wait for a connection of the pool, which may have fewer connections than workers.
    `idle_s`: the server may end an idle transaction after that.
    `writes`: transactions are not snapshots, and every commit reaches the disk.
    `silence_s`: a MySQL server without an answer for this long after a statement's limit counts as lost.
    `answer_bytes`: maximum answer of a statement that reads.
    """

    name: str = APPLICATION_NAME
    pool_size: int = 4
    lock_wait_s: float = 30.0
    pool_wait_s: float = 600.0
    statement_timeout_s: float | None = None
    idle_s: float = 120.0
    writes: bool = False
    silence_s: float = 60.0
    answer_bytes: int = LONGEST_ANSWER_BYTES

    def limit_s(self, own_s: float) -> float | None:
        """The limit to set, given the server's own (0: none); None to set nothing."""
        if self.statement_timeout_s is None:
            return None if own_s else LONGEST_STATEMENT_S
        return self.statement_timeout_s or None

    def answering_within(self, answer_s: float | None) -> ConnectionOptions:
        if answer_s is None:
            return self
        limit_s = min(self.statement_timeout_s or answer_s, answer_s)
        return replace(self, statement_timeout_s=limit_s, silence_s=answer_s)

    def pool(self) -> dict[str, Any]:
        return {
            "poolclass": sa.QueuePool,
            "pool_size": self.pool_size,
            "max_overflow": 0,
            "pool_timeout": self.pool_wait_s,
            "hide_parameters": True,
        }


def name_of(*words: str) -> str:
    """Cut to the length that servers take; characters outside ASCII become '?'."""
    text = " ".join([APPLICATION_NAME, *(word for word in words if word)])
    return text.encode("ascii", "replace").decode()[:LONGEST_NAME]


# ── The engine: everything that differs between relational databases, by capability ──
# Every field is required: a new engine that leaves one out does not type-check.

Plan: TypeAlias = tuple[list[str], list[str]]
"""Lines of a statement's plan, and the tables that it reads as a whole, by the names that the plan has."""
Changes: TypeAlias = tuple[dict[str, str], str, str]
"""(per table, a value that grows with its changes; where it was read; why it cannot be read)."""
Open: TypeAlias = tuple[dict[str, tuple[str, str]] | None, str]
"""(table and user of each open transaction; why they cannot be seen)."""


LIFE_S = 60.0
"""How long an answer is cached; a token of AWS IAM lives for 15 minutes."""


class Address:
    """A database's URL, from `ask` at most once in LIFE_S. Thread-safe; never shown."""

    def __init__(self, ask: Callable[[], URL], clock: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = ThreadLock()
        self._known: URL | None = None
        self._asked_at = 0.0

    @classmethod
    def of(cls, url: URL | Address) -> Address:
        return url if isinstance(url, Address) else cls(lambda: url)

    def url(self) -> URL:
        """No older than LIFE_S. Raises: SettingsError, without anything of the answer."""
        with self._lock:
            if self._known is None or self._clock() - self._asked_at > LIFE_S:
                self._known, self._asked_at = self._ask(), self._clock()
            return self._known

    def forget(self) -> None:
        """Drop a wrong cached URL, so that the next call asks again."""
        with self._lock:
            self._known = None


class Connecting(Struct, frozen=True):
    """The engine's URLs, and how connections are made.

    `driver`: a message that names the only supported driver, '' if others work.
    `port`: the default, 0 for a file.
    `rds`: the engine's names in secrets of AWS RDS.
    `extra`: our package's extra that installs the driver, and the driver's module.
    `checked_url`: with our driver's name, from the URL and the allowed forms as text; raises SettingsError if
    it is not one of this engine's.
    `open`: the SQLAlchemy engine, not connected yet.
    `begins`: the statement that begins each of its transactions, from a connection's `info`; '' for none.
    `raw`: kinds that can be read as the server's own text.
    `fetched`: the rows of a SELECT, with the columns at these places read so.
    """

    form: str
    schemes: tuple[str, ...]
    driver: str
    port: int
    rds: tuple[str, ...]
    extra: tuple[str, str] | None
    checked_url: Callable[[URL, str], URL]
    open: Callable[[Address, ConnectionOptions], sa.Engine]
    begins: Callable[[ConnectionOptions, Mapping[Any, Any]], str]
    raw: frozenset[KindName]
    fetched: Callable[[Connection, sa.Executable, frozenset[int]], RawPage]


class Schema(Struct, frozen=True):
    """`reflected`: tables and views, without ours, the system's and partitions.
    `has_schemas`: tables may be in several named schemas.
    `loosely_typed`: times and UUIDs are texts, so one value may have several texts.
    `has_blocks`: whether blocks of a table can be sampled (TABLESAMPLE).
    """

    reflected: Callable[[Connection, str | None], Reflected]
    kinds: Kinds
    has_schemas: bool
    has_materialized_views: bool
    loosely_typed: bool
    has_blocks: Callable[[Connection, TableFacts], bool]


Trait: TypeAlias = Literal[
    "binds bytes as text",
    "casts to read",
    "collates",
    "compares in hex",
    "enums by place",
    "nested as JSON",
    "numbers as an array",
    "partitions by the first column",
    "rounds floats",
    "rows compared as a whole",
    "zero date is NULL",
]
"""Differences from standard SQL in our statements on a column; used in source/sql/selects.py."""


class Sql(Struct, frozen=True):
    """The dialect of SQL, for parsing statements and for writing ours.

    `reader`: sqlglot's dialect by name, or its factory.
    `parameters`: finds `:name` and comments, skipping texts and names.
    `forms`: conversions of values for the driver, by type.
    `comparable`: a value in the form in which a column of the kind is compared with it.
    `integer_bits`: the driver's maximum, with the sign; None: unlimited.
    `between`: blanks and comments.
    `sets_variables`: `:=` sets one.
    `escapes_names`: U&"…" is a name.
    `folds_names`: unquoted names are lower case.
    `recurses_unasked`: WITH needs no RECURSIVE.
    """

    reader: str | Callable[[], Any]
    quote: str
    parameters: re.Pattern[str]
    forms: Mapping[type, Callable[[Any], Any]]
    comparable: Callable[[Any, Kind], Any]
    integer_bits: int | None
    between: re.Pattern[str]
    sets_variables: bool
    escapes_names: bool
    folds_names: bool
    recurses_unasked: bool
    traits: frozenset[Trait]


class Server(Struct, frozen=True):
    """`health`: SQL for version, clock (seconds since 1970, or NULL), read-only or not, timeout.
    `product`: the version with the product's name.
    `session`: SQL for the id of our session.
    `sends_to_the_end`: a result is always sent completely, so reading only its first rows costs the
    connection.
    `rows_at_least`: a number of rows that a table very probably has; None without usable statistics.
    `explain`: prefix of a statement that returns its plan, by the server's product.
    `plan`: parses a plan's column names and rows; up to the page size a table may be read as a whole.
    `expected`: the estimated rows of a statement.
    `hides_rows`: policies may hide rows from a user.
    `recorded`: None if the server records no statements.
    `strains`: SELECTs of 'load' and 'replica lag'.
    `strains_need`: the right they need.
    """

    health: str
    product: Callable[[str], str]
    session: sa.TextClause | None
    sends_to_the_end: bool
    rows_at_least: Callable[[Connection, TableFacts], int | None]
    explain: Callable[[sa.Dialect], str]
    plan: Callable[[Sequence[str], Sequence[Row], int], Plan]
    expected: Callable[[Sequence[str], Sequence[Row]], int | None] | None
    replication: Callable[[sa.Dialect], Replication | None]
    hides_rows: bool
    recorded: Recorded | None
    strains: Mapping[str, str]
    strains_need: str


class Writers(Struct, frozen=True):
    """`open`: transactions that have written and not ended.
    `marks_ever`: SQL for a number that grows with every mark in {mark}; '' for none.
    `may_write`: roles by table; empty for an engine that does not show them to every user.
    `read_only`: statements that revoke the right to write from all roles; unknown parts are comments.
    `drops`: statements that drop the tables with these quoted names.
    """

    changes: Callable[[Connection, Sequence[str]], Changes]
    open: Callable[[Connection], Open]
    marks_ever: str
    may_write: Callable[[Connection, Sequence[str]], Mapping[str, Sequence[str]]]
    read_only: Callable[[Connection, Sequence[str]], Iterator[str]]
    drops: Callable[[Sequence[str]], list[str]]


class Refusal(NamedTuple):
    """Why a table's changes cannot be captured. `triggers_only`: not for marks that services leave."""

    text: str
    triggers_only: bool = False


VIEW_ADVICE = "name in the mapping what changes it: `changes: {orders: id}` next to `table:` of the entity"
Decode: TypeAlias = Callable[[str, str], Any]
"""For a part of a mark's image: (the word before the colon, the text after it) -> the value."""


class Capturing(Struct, frozen=True):
    """`schema`, `prefix`: the schema of our tables, and the prefix of their names.
    `more_triggers`: in addition to those of each captured table (on parents, on partitions).
    `hidden`: whether the server does not show this user the triggers of one.
    `leftovers`: statements that drop the remains of dropped triggers.
    `refusals`: why tables cannot be captured.
    `views`: names, as in Captured, of relations without triggers.
    `limits`: changes that can leave no mark.
    `decode`: of images, on one connection; the dict caches types.
    `locks_rows`: end of a SELECT that locks its rows and skips rows locked by others.
    `updates_listed`, `deletes_listed`: statements on the marks with certain ids, which lock no other marks.
    `log`: the kind of the server's log, which can also be captured (source/capture/log/); '' for none.
    """

    ddl: Callable[[Connection], Ddl]
    schema: str | None
    prefix: str
    triggers: Callable[[Connection, Any], Iterator[ExistingTrigger]]
    more_triggers: Callable[[Connection, Sequence[Captured], Any], Iterator[Trigger]]
    hidden: Callable[[Connection, Any, Captured], bool]
    leftovers: Callable[[Connection], list[str]]
    refusals: Callable[[Connection, Any, Sequence[Captured]], Iterator[Refusal]]
    views: Callable[[Connection, Any], set[str]]
    limits: tuple[str, ...]
    decode: Callable[[Connection, dict[int, int]], Decode]
    locks_rows: str
    updates_listed: str
    deletes_listed: str
    log: Literal["", "slot", "binlog"]


Typed: TypeAlias = tuple[str, Any, str]
"""(SQL before the placeholder, its value, SQL after it)."""


class Statements(Struct, frozen=True):
    """Parsing of a service's statements.

    `reader`: sqlglot's dialect for the server's default settings.
    `bound`: placeholders of drivers that do not format by %.
    `quotes`: quoted text and comments.
    `runs_comments`: some comments are executed.
    `modifiers`: words after the first one that sqlglot cannot parse.
    `reworded`: such words further on, and equal ones that it can.
    `deletes_by_using`: DELETE … USING deletes rows of several tables.
    `decimals_are_floats`: numbers with a point are floats.
    `quotes_by_session`: the meaning of double quotes depends on the session.
    `key_names`: aliases of an INTEGER key.
    `skips_generated`: an INSERT without column names has no value for generated ones.
    """

    reader: str
    bound: re.Pattern[str]
    quotes: re.Pattern[str]
    nests_comments: bool
    runs_comments: bool
    modifiers: re.Pattern[str] | None
    reworded: tuple[re.Pattern[str], str] | None
    deletes_by_using: bool
    tables_keep_case: bool
    decimals_are_floats: bool
    quotes_by_session: bool
    key_names: tuple[str, ...] = ()
    skips_generated: bool = False


class Sessions(Struct, frozen=True):
    """A service's connections.

    `drivers`: SQLAlchemy's names of those that dual_write is tested with.
    `modules`: the modules, each with its paramstyle.
    `reads_through`: drivers that strict mode can read through, and `settings`: how long their settings last.
    `autocommits`: whether each statement is a transaction, from a connection and the driver's own.
    `counts_found`: whether an unchanged row of an upsert counts as one.
    `changes_so_far`: rows changed on the connection, 0 if they are not counted.
    `cursor`: returns rows as sequences, from a connection and the driver's own.
    `begins`: the statement that takes a lock before a SELECT, '' for none.
    `charset`: SQL for the character sets that must be utf8mb4, '' for none.
    `home`: SQL for the schema that a name without a schema (at {name}) resolves to.
    `has_search_path`: that schema may differ by name.
    `keeps_last_id`: LAST_INSERT_ID() must stay the service's.
    `own_schema`: before the names of tables that have no schema, since a temporary table may hide them.
    """

    drivers: tuple[str, ...]
    modules: Mapping[str, str]
    reads_through: tuple[str, ...]
    settings: Literal["transaction", "session"]
    autocommits: Callable[[Any, Any], bool]
    counts_found: Callable[[Any], bool]
    changes_so_far: Callable[[Any], int]
    cursor: Callable[[Any, Any], Any]
    begins: str
    charset: str
    home: str
    has_search_path: bool
    keeps_last_id: bool
    own_schema: str = ""


Lock = Literal["key", "row", "own", "met", "upserted", "none"]
"""`key`: the row may be deleted, or its key change; `row`: only other columns change; `own`: it was written in this
transaction; `met`: an upsert will write it; `upserted`: an upsert just did, and whether it met the row is also read;
`none`: only its existence is read.
"""


class Outcomes(Struct, frozen=True):
    """How a service's statements change rows, and how the changes can be observed.

    `locks`: SQL at the end of a SELECT of rows.
    `locks_gaps`: a missing key is also locked.
    `met`: columns that show whether an upsert met a row, from an alias and the row's quoted columns.
    `compares_types`: values must be cast to the type of their column, and images depend on settings of the
    session.
    `typed`: SQL around a value that gives it the column's type.
    `marks_at_once`: one statement can make the marks.
    `returns_keys`: any INSERT can return its keys.
    `rereads_returned`: returned rows can be read again.
    `last_key`: SQL for the last generated key; '' if the cursor has it, None if unknown.
    `counts_keys_on`: keys of one statement are consecutive.
    `zero_makes_key`: a key 0 generates a new one.
    `keeps_refused`: what remains of a rejected statement: "nothing", "earlier" parameters, or what was
    "counted".
    `counts_twice`: a row that an upsert changes counts as two.
    `counts_late`: rows are counted only after returned rows were fetched.
    `locks_all`: other writers are excluded.
    `links`: between tables, of these schemas.
    `hidden`: columns of a table (schema and name) that `*` does not return.
    `knows_heirs`: with views and partitions.
    `has_conflict_rules`: tables may declare how conflicts are resolved.
    """

    locks: Mapping[Lock, str]
    locks_gaps: bool
    met: Callable[[str, Sequence[str]], list[str]]
    compares_types: bool
    typed: Callable[[Column, Any], Typed]
    marks_at_once: bool
    returns_keys: bool
    rereads_returned: bool
    last_key: str | None
    counts_keys_on: bool
    zero_makes_key: bool
    keeps_refused: Literal["nothing", "earlier", "counted"]
    counts_twice: bool
    counts_late: bool
    locks_all: bool
    folds_tables: Callable[[Connection], bool]
    links: Callable[[Connection, Iterable[str | None]], Links]
    hidden: Callable[[Connection, str | None, str], Iterable[str]]
    knows_heirs: bool
    has_conflict_rules: bool


class Errors(Struct, frozen=True):
    """Errors of the driver, explained.

    `reasons`: the most certain first; none for other drivers' errors.
    `hidden_rows`: the explanation if a policy would hide rows.
    """

    reasons: Callable[[BaseException], Iterator[str]]
    is_connecting: Callable[[BaseException], bool]
    hidden_rows: Callable[[BaseException], str | None]


class Engine(Struct, frozen=True):
    """One kind of database.

    `name`: of SQLAlchemy's dialect.
    `also`: other names for it.
    `title`: for messages.
    `is_file`: a file, not a server: one writer at a time, without schemas, replica, login and `granting`.
    `queries`: of its catalogue, by these names and others:
    - definitions: (name, text) of functions and views
    - changing_triggers: names of triggers that may change what is written to the table :name in :schema
    - routines (with user-defined functions): why the value of :name in :schema may change over time
    `functions`: those of its SQL that a mapping may not call, or whose value depends on more than the row.
    """

    name: str
    also: tuple[str, ...]
    title: str
    is_file: bool
    queries: Queries
    functions: Functions
    connecting: Connecting
    sql: Sql
    schema: Schema
    server: Server
    errors: Errors
    writers: Writers
    capturing: Capturing
    statements: Statements
    sessions: Sessions
    outcomes: Outcomes
    rows: RowWriting
    granting: Granting | None
