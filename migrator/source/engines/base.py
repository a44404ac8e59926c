"""The interface of an engine: all that one relational database says or does differently, by capability."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection
from sqlglot.dialects.dialect import Dialect as SqlglotDialect

from migrator.model.capture import Captured
from migrator.model.errors import SourceError
from migrator.model.facts import Column, Kind, TableFacts
from migrator.source.engines.catalogue import Links, Reflected
from migrator.source.engines.ddl import Ddl, Found, Trigger
from migrator.source.engines.kinds import Kinds

# ── What tells whether a server is a replica of another one, and how far it has replayed it ──

Row: TypeAlias = tuple[Any, ...]
Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Row]
"""The one row that a server answers to a statement with parameters."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The primary when the run began: its cluster, the very server, the database, and how far it had written.

    `system`: what a replica shares with its primary ('' where it shares nothing); `server`: what nobody shares.
    """

    system: str
    server: str
    database: str
    position: str


Verdict = Literal["ready", "behind"]
"""What a look at the other server says; what makes it no replica of ours is raised."""


@dataclass(frozen=True)
class Replication:
    """`mark`: the primary's; raises SourceError when it has none that a replica could be compared with. `server`: SQL that
    says which server this is, and since when it runs. `verdict`: raises SourceError when the server is no replica of the
    mark's primary, nor that primary itself.
    """

    mark: Callable[[Ask], Mark]
    server: str
    verdict: Callable[[Mark, Ask], Verdict]


def no_replica(why: str) -> SourceError:
    return SourceError(f"read_url: {why}; name a replica of url's server, or leave read_url out")


# ── How a connection behaves towards the server that it reads from ──

APPLICATION_NAME = "migrator"
LONGEST_STATEMENT_S = 600.0
"""A page takes milliseconds; a statement of ten minutes is a mistake, or more than a busy server should be asked for."""
LONGEST_NAME = 63
"""Bytes of an application_name. Source: PostgreSQL's documentation, NAMEDATALEN."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What every connection says and keeps to. Times in seconds.

    `statement_timeout_s`: None for the server's own limit, or LONGEST_STATEMENT_S where it has none; 0 for the server's own
    or none. `name`: what a connection calls itself. `lock_wait_s`: how long SQLite waits for a writer that holds its lock,
    a server for a change of a table. `pool_wait_s`: how long a connection is waited for that others have in use: there may
    be fewer connections than workers. `idle_s`: after that a server may end a transaction that we left open. `writes`:
    transactions are no snapshots then, and every commit reaches the disk. `silence_s`: a server of MySQL's that says nothing
    so long past a statement's limit is gone.
    """

    name: str = APPLICATION_NAME
    pool_size: int = 4
    lock_wait_s: float = 30.0
    pool_wait_s: float = 600.0
    statement_timeout_s: float | None = None
    idle_s: float = 120.0
    writes: bool = False
    silence_s: float = 60.0

    def limit_s(self, own_s: float) -> float | None:
        """The limit to be set, where the server's own is `own_s` (0: it has none); None for nothing to be set."""
        if self.statement_timeout_s is None:
            return None if own_s else LONGEST_STATEMENT_S
        return self.statement_timeout_s or None


def name_of(*words: str) -> str:
    """`migrator` and the words, as long as a server takes it; letters outside of ASCII become '?'."""
    text = " ".join([APPLICATION_NAME, *(word for word in words if word)])
    return text.encode("ascii", "replace").decode()[:LONGEST_NAME]


# ──
# What an engine is: all that one relational database says or does otherwise than the next, by capability.
# Every field is required: a new engine that leaves one out does not type-check.

Plan: TypeAlias = tuple[list[str], list[str]]
"""Lines of a statement's plan, and the tables that it reads as a whole, by the names that the plan has."""


Changes: TypeAlias = tuple[dict[str, str], str, str]
"""Per table, what grows with its changes; where that was read; why it cannot be."""
Open: TypeAlias = tuple[dict[str, tuple[str, str]] | None, str]
"""Table and user of each transaction; why they cannot be seen."""


class UrlKeeper(Protocol):
    """Where the URL of a database is asked for whenever a connection is made (source/connect.py)."""

    def url(self) -> URL:
        """Raises: SettingsError, without anything of the answer."""

    def forget(self) -> None:
        """The next look asks anew."""


@dataclass(frozen=True)
class Connecting:
    """How a URL of it looks, and how connections are made.

    `form`: of its URL, as a message says it. `schemes`: how a URL may begin. `driver`: a message that names the only driver,
    '' where there is no other.
    `port`: where its server listens by default, 0 for a file. `rds`: names that a secret of AWS RDS has for it. `extra`:
    of our package that brings the driver, and the module that it brings; None where none is needed.
    `checked_url`: the URL with our driver's name, given what a message says a URL may be; raises SettingsError where it
    cannot be one of this engine. `open`: what makes connections with these options; nothing is connected yet.
    """

    form: str
    schemes: tuple[str, ...]
    driver: str
    port: int
    rds: tuple[str, ...]
    extra: tuple[str, str] | None
    checked_url: Callable[[URL, str], URL]
    open: Callable[[UrlKeeper, ConnectionOptions], sa.Engine]


@dataclass(frozen=True)
class Schema:
    """What is in it. `reflected`: tables and views of a schema (None: the default), without ours, its own and partitions.

    `has_schemas`: tables may be in several, by names. `loosely_typed`: times and UUIDs are texts, of which two may be one
    value. `has_blocks`: whether blocks of a table can be sampled (TABLESAMPLE).
    """

    reflected: Callable[[Connection, str | None], Reflected]
    kinds: Kinds
    has_schemas: bool
    has_materialized_views: bool
    loosely_typed: bool
    has_blocks: Callable[[Connection, TableFacts], bool]


Trait: TypeAlias = Literal[
    "casts to read",
    "collates",
    "compares in hex",
    "enums by place",
    "nested as JSON",
    "partitions by the first column",
    "rounds floats",
    "rows compared as a whole",
    "zero date is NULL",
]
"""What columns need in our own statements that standard SQL does not; source/column_sql.py says how."""


@dataclass(frozen=True)
class Sql:
    """How SQL is read, and what stands in ours.

    `reader`: sqlglot's. `quote`: of names. `parameters`: finds `:name` and comments, past texts and names. `forms`: of
    values that the driver binds, by their types. `comparable`: a value as a column of the kind is compared with it.
    `integer_bits`: the most that the driver binds, with the sign; None for any. `between`: blanks and comments.
    `sets_variables`: `:=` does. `escapes_names`: U&"…" is a name. `refused`: patterns of functions that reach past the
    tables; `refused_columns`: of those that x.name calls, too. `volatile`: functions and words that give another value at
    another time; `routines`: SQL of what the catalogue says against one. `folds_names`: unquoted names are lower case.
    `tables_in_any_case`, `columns_in_any_case`: a name in any case is the same, also in quotes. `takes_unknown_for_text`:
    an unknown name in double quotes. `recurses_unasked`: WITH needs no word RECURSIVE.
    """

    reader: type[SqlglotDialect]
    quote: str
    parameters: re.Pattern[str]
    forms: Mapping[type, Callable[[Any], Any]]
    comparable: Callable[[Any, Kind], Any]
    integer_bits: int | None
    between: re.Pattern[str]
    sets_variables: bool
    escapes_names: bool
    refused: tuple[str, ...]
    refused_columns: tuple[str, ...]
    volatile: frozenset[str]
    routines: sa.TextClause | None
    folds_names: bool
    recurses_unasked: bool
    tables_in_any_case: bool
    columns_in_any_case: bool
    takes_unknown_for_text: bool
    traits: frozenset[Trait]


@dataclass(frozen=True)
class Explaining:
    """How its plans are asked for and read. `word`: in front of a statement; `partitions`: what else there, to have those
    named. `plan`: of names of columns, rows and the rows of a page, of which a table may be read as a whole.
    `expected`: rows that it expects of a statement; None where it does not say.
    """

    word: str
    partitions: Callable[[sa.Dialect], str]
    plan: Callable[[Sequence[str], Sequence[Row], int], Plan]
    expected: Callable[[Sequence[str], Sequence[Row]], int | None] | None


@dataclass(frozen=True)
class Server:
    """What it says of itself. `health`: SQL of version, clock (seconds since 1970, or NULL), read-only or not, time-out;
    `product`: the version with the product's name. `session`: SQL of its number of our session, None where there are none.
    `sends_to_the_end`: a result that was begun comes to its end, so that a connection must be given up for the first rows.
    `rows_at_least`: a number of rows that a table has in all likelihood; None where nothing says so. `replication`: by the
    product that answered, None where there are no replicas. `hides_rows`: policies may hide rows from a user.
    """

    health: str
    product: Callable[[str], str]
    session: sa.TextClause | None
    sends_to_the_end: bool
    rows_at_least: Callable[[Connection, TableFacts], int | None]
    explaining: Explaining
    replication: Callable[[sa.Dialect], Replication | None]
    hides_rows: bool


@dataclass(frozen=True)
class Writers:
    """Who writes to tables of it. `changes`: what it counts of them. `open`: transactions that have written and not ended.
    `marks_ever`: SQL of a number that grows with every mark in {mark}; '' where nothing tells. `may_write`: roles by table;
    nothing of an engine that does not tell it to everybody. `read_only`: statements that take the right to write away from
    all that have it; what cannot be told is a comment. `drops`: statements that drop tables of these quoted names.
    """

    changes: Callable[[Connection, Sequence[str]], Changes]
    open: Callable[[Connection], Open]
    marks_ever: str
    may_write: Callable[[Connection, Sequence[str]], Mapping[str, Sequence[str]]]
    read_only: Callable[[Connection, Sequence[str]], Iterator[str]]
    drops: Callable[[Sequence[str]], list[str]]


class Refusal(NamedTuple):
    """Why a table's changes cannot be captured. `triggers_only`: not against marks that services leave."""

    text: str
    triggers_only: bool = False


VIEW_ADVICE = "say in the mapping what changes it: `changes: {orders: id}` beside `table:` of the entity"
Decode: TypeAlias = Callable[[str, str], Any]
"""Of a part of a mark's image, (the word before the colon, the text behind it) -> the value."""


@dataclass(frozen=True)
class Capturing:
    """How its changes are captured. `ddl`: its statements. `schema`, `prefix`: where our tables are, and what their names
    begin with. `found`: triggers of ours. `more_triggers`: beside those of each captured table (of parents, of partitions).
    `leftovers`: statements that drop what triggers leave behind. `refusals`: why tables cannot be captured. `views`: names,
    as Captured has them, of what has no triggers of its own. `limits`: what leaves no mark and cannot be made to. `decode`:
    of images, on one connection; what it learns of types is kept in the dict. `locks_rows`: at the end of a SELECT whose
    rows are to be this reader's alone, those of others passed by.
    """

    ddl: Callable[[Connection], Ddl]
    schema: str | None
    prefix: str
    found: Callable[[Connection, Any], Iterator[Found]]
    more_triggers: Callable[[Connection, Sequence[Captured], Any], Iterator[Trigger]]
    leftovers: Callable[[Connection], list[str]]
    refusals: Callable[[Connection, Any, Sequence[Captured]], Iterator[Refusal]]
    views: Callable[[Connection, Any], set[str]]
    limits: tuple[str, ...]
    decode: Callable[[Connection, dict[int, int]], Decode]
    locks_rows: str


Typed: TypeAlias = tuple[str, Any, str]
"""SQL before the placeholder, the value for it, SQL behind it."""


@dataclass(frozen=True)
class Statements:
    """How a service's statements are read. `reader`: sqlglot's, as servers speak by default. `bound`: placeholders of
    drivers that do not format by %. `quotes`: quoted text and comments. `nests_comments`: they may be in each other;
    `runs_comments`: some are statements. `modifiers`: words behind the first one that sqlglot does not read,
    `overriding`: words further on. `deletes_by_using`: DELETE … USING takes rows of several tables. `names_as_said`:
    names of tables keep their case. `decimals_are_floats`: numbers with a point are. `quotes_by_session`: the session
    says what double quotes mean.
    """

    reader: Any
    bound: re.Pattern[str]
    quotes: re.Pattern[str]
    nests_comments: bool
    runs_comments: bool
    modifiers: re.Pattern[str] | None
    overriding: re.Pattern[str] | None
    deletes_by_using: bool
    names_as_said: bool
    decimals_are_floats: bool
    quotes_by_session: bool


@dataclass(frozen=True)
class Sessions:
    """A service's connections. `modules`: of its drivers, each with its paramstyle; `reads_through`: those that strict
    mode can read through, whose settings last as long as `settings` says. `autocommits`: whether each statement of a
    driver's connection is a transaction. `counts_found`: whether an upsert's row that stays as it is counts as one.
    `changes_so_far`: rows that were changed on the connection, 0 where nothing says. `cursor`: one that gives each
    row whole, of a connection and the driver's own. `begins`: what takes the lock before a SELECT, '' where nothing
    is needed. `charset`: SQL of the character sets that are to be utf8mb4, '' for none. `home`: SQL of the schema in
    which a name that stands alone (at {name}) is found. `has_search_path`: that schema may be another one for each
    name. `keeps_last_id`: LAST_INSERT_ID() is to stay the service's.
    """

    modules: Mapping[str, str]
    reads_through: tuple[str, ...]
    settings: Literal["transaction", "session"]
    autocommits: Callable[[Any], bool]
    counts_found: Callable[[Any], bool]
    changes_so_far: Callable[[Any], int]
    cursor: Callable[[Any, Any], Any]
    begins: str
    charset: str
    home: str
    has_search_path: bool
    keeps_last_id: bool


Lock = Literal["key", "row", "own", "met", "upserted", "none"]
"""`key`: the row may go, or its key change; `row`: only the rest of it; `own`: it was written in this transaction;
`met`: an upsert will write it; `upserted`: it just did, and what tells whether it met the row is read, too; `none`: only
whether it is there is asked."""


@dataclass(frozen=True)
class Outcomes:
    """What a service's statements do to rows, and leave to be known.

    `locks`: SQL at the end of a SELECT of rows. `locks_gaps`: a key that is not there is locked all the same. `met`:
    columns that tell whether an upsert met a row, of an alias and the row's quoted columns. `compares_types`: values
    are cast to what they are compared with, and images need settings of the session. `typed`: around a value, what
    makes it one of the column. `marks_at_once`: a statement can make the marks itself. `returns_keys`: of any INSERT.
    `rereads_returned`: rows that were given back can be read again. `last_key`: SQL of the last key that was made; ''
    where the cursor has it, None where nothing does. `counts_keys_on`: keys of one statement follow on each other.
    `zero_makes_key`: 0 as a key asks for a new one. `keeps_refused`: of a refused statement, "nothing",
    "earlier" parameters, or what was "counted". `counts_twice`: a row that an upsert changes. `counts_late`: only
    when what is given back was fetched. `locks_all`: nothing comes in between. `folds_tables`: whether names of
    tables in another case are the same. `links`: between tables, of these schemas. `knows_heirs`: views and
    partitions are among them. `has_conflict_rules`: tables may say what becomes of a conflict.
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
    knows_heirs: bool
    has_conflict_rules: bool


@dataclass(frozen=True)
class Errors:
    """What its driver raises, in our own words. `reasons`: that fit an error, the surest first; none of another driver's.
    `is_connecting`: whether no connection came about. `hidden_rows`: why a table was refused whose rows a policy would hide.
    """

    reasons: Callable[[BaseException], Iterator[str]]
    is_connecting: Callable[[BaseException], bool]
    hidden_rows: Callable[[BaseException], str | None]


@dataclass(frozen=True)
class Engine:
    """One kind of database. `name`: SQLAlchemy's for its dialect, `also`: others that mean it; `title`: as people write it.

    `is_file`: it is one file and no server: it has one writer at a time, no schemas, no replica and no log-in.
    """

    name: str
    also: tuple[str, ...]
    title: str
    is_file: bool
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


FEW = 100
"""Statistics of fewer rows say nothing: what they count is late by as many."""


def part_of(
    connection: Connection, statement: sa.TextClause, table: TableFacts, *, of: int, by: int
) -> int | None:
    rows = connection.execute(statement, {"schema": table.schema, "name": table.real}).scalar()
    return None if rows is None or int(rows) < FEW else int(rows) * of // by
