"""MariaDB and MySQL as sources, by PyMySQL: the engine object, and how its SQL is read and written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache, partial
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.facts import Column, Kind
from migrator.runtime.errors import SettingsError
from migrator.source.engines import base, shared
from migrator.source.engines.catalogue import ACTS, Below, Functions, Links, Place
from migrator.source.engines.mysql import facts
from migrator.source.engines.mysql.capture import CAPTURING, declared_word
from migrator.source.engines.mysql.facts import QUERIES
from migrator.source.engines.mysql.server import ERRORS, GRANTING, ROWS, SERVER, WRITERS

_FOUND_ROWS = 2
"""CLIENT_FOUND_ROWS of the protocol. Source: MySQL Internals, "Capabilities Flags"."""
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def _counts_found(driver: Any) -> bool:
    flags = getattr(driver, "client_flag", getattr(driver, "_client_flag", _FOUND_ROWS))
    return not isinstance(flags, int) or bool(flags & _FOUND_ROWS)


# ── values ──


def _typed(column: Column, value: Any) -> base.Typed:
    word, declared = declared_word(column), column.declared.lower()
    sized = "".join(re.findall(r"\([\d, ]+\)", declared)[:1])
    casts = {
        **dict.fromkeys(_INTEGERS, "UNSIGNED" if "unsigned" in declared else "SIGNED"),
        **dict.fromkeys(_BYTES, "BINARY"),
        "decimal": f"DECIMAL{sized}",
        "date": "DATE",
        "time": f"TIME{sized}",
        "datetime": f"DATETIME{sized}",
        "timestamp": f"DATETIME{sized}",
    }
    if word == "float":
        return "(CAST(", value, " AS FLOAT) + 0e0)"
    if word == "double":
        return "(", value, " + 0e0)"
    if word == "bit":
        return "(", value, " + 0)"
    return "CAST(", value, f" AS {casts.get(word, 'CHAR CHARACTER SET utf8mb4')})"


def _met(alias: str, columns: Sequence[str]) -> list[str]:
    texts = ", ".join(f"QUOTE(CAST({alias}.{name} AS BINARY))" for name in columns)
    return ["0", f"SHA2(CONCAT_WS(',', {texts}), 256)"]


# ── tables ──


def _hidden(connection: Connection, schema: str | None, name: str) -> Sequence[str]:
    return connection.execute(QUERIES["hidden_columns"], {"schema": schema, "name": name}).scalars().all()


def _acting(inspector: sa.Inspector, schemas: Iterable[str | None]) -> list[tuple[Place, Below]]:
    """Database by database: a parent may be in another one, and have parents there."""
    schemas_left, seen = list(schemas), set[str | None]()
    links: list[tuple[Place, Below]] = []
    while schemas_left:
        if (schema := schemas_left.pop()) not in seen:
            seen.add(schema)
            new = _acting_in(inspector, schema)
            schemas_left += [parent.schema for parent, _ in new]
            links += new
    return links


def _acting_in(inspector: sa.Inspector, schema: str | None) -> list[tuple[Place, Below]]:
    links = []
    for (_, child), keys in inspector.get_multi_foreign_keys(schema=schema).items():
        for key in keys:
            options = key.get("options", {})
            acts = [str(options.get(name, "")).upper() in ACTS for name in ("ondelete", "onupdate")]
            if any(acts):
                parent = Place(key["referred_schema"] or schema, key["referred_table"])
                pairs = tuple(zip(key["constrained_columns"], key["referred_columns"], strict=True))
                links.append((parent, Below(Place(schema, child), pairs, *acts)))
    return links


STATEMENTS = base.Statements(
    reader="mysql",
    bound=re.compile(r"\?"),
    quotes=re.compile(
        r"(?s)'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`|#[^\n]*|" + shared.COMMON_QUOTES
    ),
    nests_comments=False,
    runs_comments=True,
    modifiers=re.compile(
        r"(?i)(INSERT|REPLACE|UPDATE|DELETE)"
        r"((?:\s+(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|QUICK|IGNORE))+)(?=\s)"
    ),
    # sqlglot takes VALUES after a parenthesis for a query.
    reworded=(re.compile(r"(?i)\(\s*VALUES(?=\s*\()"), "(VALUE"),
    deletes_by_using=True,
    # Whether the case of table names matters depends on the server.
    tables_keep_case=True,
    decimals_are_floats=False,
    quotes_by_session=True,
)
SESSIONS = base.Sessions(
    drivers=("pymysql", "mysqldb", "aiomysql", "asyncmy"),
    modules={"pymysql": "format", "MySQLdb": "format"},
    reads_through=("pymysql", "aiomysql"),
    settings="session",
    autocommits=lambda _, driver: bool(driver.get_autocommit()),
    counts_found=_counts_found,
    changes_so_far=lambda _: 0,
    cursor=lambda connection, _: connection.cursor(),
    begins="",
    charset="SELECT @@character_set_connection, @@character_set_results",
    home="SELECT DATABASE()",
    has_search_path=False,
    keeps_last_id=True,
)
OUTCOMES = base.Outcomes(
    # A SELECT without a lock would read the snapshot, not what the statement worked on.
    locks={
        "key": " FOR UPDATE",
        "row": " FOR UPDATE",
        "own": " FOR UPDATE",
        "met": " FOR UPDATE",
        "upserted": " FOR UPDATE",
        "none": "",
    },
    # Two services would each lock the gap that the other one inserts into.
    locks_gaps=True,
    met=_met,
    compares_types=False,
    typed=_typed,
    marks_at_once=False,
    returns_keys=False,
    rereads_returned=True,
    last_key="",
    counts_keys_on=False,
    zero_makes_key=True,
    keeps_refused="earlier",
    counts_twice=True,
    counts_late=False,
    locks_all=False,
    folds_tables=lambda connection: bool(
        connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar_one()
    ),
    links=lambda connection, schemas: Links(_acting(sa.inspect(connection), schemas)),
    hidden=_hidden,
    knows_heirs=False,
    has_conflict_rules=False,
)


# ── SQL of MariaDB and MySQL: parsing, refused functions, and the forms of values and columns in our statements ──


@cache
def _ansi_mysql() -> object:
    """sqlglot's MySQL with our connections' ANSI_QUOTES: "name" is a name, as on the other engines."""
    from sqlglot.dialects.mysql import MySQL  # only commands that parse SQL need it

    class AnsiMySQL(MySQL):
        class Tokenizer(MySQL.Tokenizer):
            QUOTES: ClassVar = ["'"]
            IDENTIFIERS: ClassVar = ["`", '"']

    return AnsiMySQL()


_PARAMETERS = re.compile(
    rf'{shared.BACKSLASHED}|"(?:[^"]|"")*"|`[^`]*`'
    rf"|(?P<comment>/\*.*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*)|{shared.PARAMETER}",
    re.DOTALL,
)
_BETWEEN = re.compile(rf"(?:{shared.BLANK}|{shared.BLOCK}|--(?=[ \t\r\n]|\Z)[^\r\n]*|#[^\r\n]*)*", re.DOTALL)
_UTC = "+00:00"


def _without_zone(moment: datetime) -> str:
    return (moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment).isoformat(" ")


_FIRST_OF_HALF = "\udced"
"""The first byte of half a surrogate pair, as our connections return it."""


def _comparable(value: Any, kind: Kind) -> Any:
    """Convert numbers, bits and times in texts, and the short form of a FLOAT, to their exact value."""
    if kind.name == "float" and kind.single:
        return base.single(Decimal(value))
    if not isinstance(value, str):
        return value
    if _FIRST_OF_HALF in value:
        return facts.HalfPairs.of(value) or value
    if kind.name == "bits":
        return int(value, 2)
    if kind.name == "number":
        # MySQL compares a DECIMAL with text as binary floats: neighbours of 16 digits would be equal.
        try:
            return Decimal(value)
        except InvalidOperation:
            return value
    # MariaDB accepts no offset in a moment; the session's zone is UTC.
    return value.removesuffix(_UTC) if kind.name == "timestamp" and kind.zone else value


SQL = base.Sql(
    reader=_ansi_mysql,
    quote="`",
    parameters=_PARAMETERS,
    # Its columns have no time zone; the session's is UTC.
    forms={**shared.AS_TEXT, datetime: _without_zone},
    comparable=_comparable,
    integer_bits=None,
    between=_BETWEEN,
    sets_variables=True,
    escapes_names=False,
    folds_names=False,
    recurses_unasked=False,
    traits=frozenset(
        {
            "rounds floats",
            "compares in hex",
            "zero date is NULL",
            "enums by place",
            "rows compared as a whole",
        }
    ),
)


# ── MariaDB and MySQL as sources, by PyMySQL: one engine, since SQLAlchemy has one dialect for both ──

_NAME = "mysql"
_MARIADB = "mariadb"
_SCHEME = "mysql+pymysql"

# ── connections ──


def _checked_url(url: URL, _: str) -> URL:
    shared.refuse_stray_at(url)
    if not url.database:
        raise SettingsError("source: the URL names no database; write mysql://user@host:3306/database")
    shared.need_driver("pymysql", "MySQL and MariaDB need their driver, PyMySQL", "mysql")
    return url.set(drivername=_SCHEME)


def _opened(address: base.Address, connection_options: base.ConnectionOptions) -> sa.Engine:
    from migrator.source.engines.mysql import connect  # needs PyMySQL, an extra that SQLite does without

    defaults: dict[str, Any] = {
        "program_name": connection_options.name,
        "connect_timeout": shared.CONNECT_TIMEOUT_S,
    }
    if connection_options.statement_timeout_s:
        defaults["read_timeout"] = math.ceil(
            connection_options.statement_timeout_s + connection_options.silence_s
        )
    engine = shared.server_engine(
        address,
        connection_options,
        lambda url: shared.unless_in(url, defaults) | connect.arguments(url.password),
    )
    sa.event.listen(engine, "connect", partial(connect.prepare, connection_options=connection_options))
    return engine


def _begins(connection_options: base.ConnectionOptions, _: object) -> str:
    # A snapshot at the first SELECT would do; READ ONLY is repeated here, since a query may change the default.
    return "" if connection_options.writes else "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


def _fetched(connection: Connection, statement: sa.Executable, raw: frozenset[int]) -> RawPage:
    from migrator.source.engines.mysql import connect

    return connect.fetched(connection, statement, raw)


MYSQL = base.Engine(
    name=_NAME,
    also=(_MARIADB,),
    title="MySQL or MariaDB",
    is_file=False,
    queries=QUERIES,
    functions=Functions(QUERIES.engine),
    connecting=base.Connecting(
        form="mysql://user@host:3306/database (MariaDB too)",
        schemes=(_NAME, _MARIADB, _SCHEME, "mariadb+pymysql"),
        driver="MySQL and MariaDB are read with PyMySQL; write mysql:// without another driver's name",
        port=3306,
        rds=("mysql", "mariadb", "aurora", "aurora-mysql"),
        extra=("mysql", "pymysql"),
        checked_url=_checked_url,
        open=_opened,
        begins=_begins,
        raw=frozenset({"integer", "number", "date", "time", "timestamp"}),
        fetched=_fetched,
    ),
    sql=SQL,
    schema=base.Schema(
        reflected=facts.reflected,
        kinds=facts.KINDS,
        has_schemas=True,
        has_materialized_views=False,
        loosely_typed=False,
        has_blocks=lambda *_: False,
    ),
    server=SERVER,
    errors=ERRORS,
    writers=WRITERS,
    capturing=CAPTURING,
    granting=GRANTING,
    statements=STATEMENTS,
    sessions=SESSIONS,
    outcomes=OUTCOMES,
    rows=ROWS,
)
