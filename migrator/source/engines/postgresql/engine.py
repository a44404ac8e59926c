"""PostgreSQL as a source, by psycopg: the engine object, and how its SQL is read and written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.facts import Column, Kind
from migrator.runtime.errors import SettingsError
from migrator.runtime.server_errors import ALIVE
from migrator.settings.roles import WRITES, SqlRole
from migrator.source.engines import base, shared
from migrator.source.engines.catalogue import Below, Functions, Links, Place, qualified, quoted
from migrator.source.engines.postgresql import facts
from migrator.source.engines.postgresql.capture import CAPTURING, SCHEMA
from migrator.source.engines.postgresql.facts import QUERIES
from migrator.source.engines.postgresql.server import ERRORS, ROWS, SERVER, WRITERS, has_blocks

# ── connections ──


def _cursor(connection: Any, driver: Any) -> Any:
    if not hasattr(driver, "row_factory") and hasattr(driver, "cursor_factory"):
        return connection.cursor(cursor_factory=import_module("psycopg2.extensions").cursor)
    cursor = connection.cursor()
    # For an async connection SQLAlchemy returns a cursor that wraps the driver's.
    own = getattr(cursor, "_cursor", cursor)
    if hasattr(own, "row_factory"):
        own.row_factory = import_module("psycopg.rows").tuple_row
    return cursor


# ── values ──


def _typed(column: Column, value: Any) -> base.Typed:
    """Casts a domain over an enum to the enum: no operator compares the domain."""
    enum = column.kind.read_as if column.kind.name == "text" else ""
    return "CAST(", value, f" AS {enum or column.declared})"


# ── tables ──

_ACTIONS = {"2": "update", "3": "insert", "4": "delete"}
_WRITES = r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+(?:ONLY\s+)?(?:\S+\.)?{}(?![\w$\"])"


def _pair(row: sa.Row[Any]) -> tuple[Place, Place]:
    return Place(row.parent_schema, row.parent), Place(row.child_schema, row.child)


def _pairs(connection: Connection, query: str) -> list[tuple[Place, Place]]:
    return [_pair(row) for row in connection.execute(QUERIES[query])]


def _acting(connection: Connection) -> Iterator[tuple[Place, Below]]:
    for row in connection.execute(QUERIES["acting"]):
        parent, child = _pair(row)
        yield parent, Below(child, tuple(zip(row.own, row.theirs, strict=True)), row.on_delete, row.on_update)


def _rules(connection: Connection) -> list[tuple[Place, Place, str]]:
    """A rule also depends on tables that it only reads: its text shows which ones it writes."""
    return [
        (*_pair(row), _ACTIONS[row.event])
        for row in connection.execute(QUERIES["rules"])
        if re.search(_WRITES.format(re.escape(row.written)), row.text.partition(" DO ")[2])
    ]


def _links(connection: Connection, _: Iterable[str | None]) -> Links:
    heirs, views = _pairs(connection, "heirs"), _pairs(connection, "view_tables")
    emptied = [*heirs, *_pairs(connection, "referring")]
    return Links(list(_acting(connection)), heirs, views, emptied, _rules(connection))


STATEMENTS = base.Statements(
    reader="postgres",
    # A name may also contain a $.
    bound=re.compile(r"(?<![\w$])\$(?P<place>\d+)"),
    quotes=re.compile(
        r"(?is)(?<!\w)E'(?:[^'\\]|\\.|'')*'|\$((?:[^\W\d]\w*)?)\$.*?\$\1\$|" + shared.COMMON_QUOTES
    ),
    nests_comments=True,
    runs_comments=False,
    modifiers=None,
    reworded=(re.compile(r"(?i)\bOVERRIDING\s+SYSTEM\s+VALUE(?=\s+(?:VALUES|SELECT)\b)"), ""),
    deletes_by_using=False,
    tables_keep_case=False,
    decimals_are_floats=False,
    quotes_by_session=False,
)
SESSIONS = base.Sessions(
    drivers=("psycopg", "psycopg_async", "psycopg2", "asyncpg"),
    modules={"psycopg": "format", "psycopg2": "format"},
    reads_through=("psycopg",),
    settings="transaction",
    # asyncpg's own connection has no such attribute, SQLAlchemy's wrapper of it has.
    autocommits=lambda connection, _: bool(connection.autocommit),
    counts_found=lambda _: True,
    changes_so_far=lambda _: 0,
    cursor=_cursor,
    begins="",
    charset="",
    home="SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.oid = pg_catalog.to_regclass({name})",
    has_search_path=True,
    keeps_last_id=False,
)
OUTCOMES = base.Outcomes(
    # Inserting a child does not wait for a parent whose key does not change.
    locks={
        "key": " FOR UPDATE",
        "met": " FOR UPDATE",
        "row": " FOR NO KEY UPDATE",
        "own": "",
        "upserted": "",
        "none": "",
    },
    locks_gaps=False,
    # ON CONFLICT DO UPDATE locks the row that it meets, so its new version has an xmax; a new row has none.
    met=lambda alias, _: [f"{alias}.xmax <> 0"],
    compares_types=True,
    typed=_typed,
    marks_at_once=True,
    returns_keys=True,
    rereads_returned=True,
    last_key=None,
    counts_keys_on=False,
    zero_makes_key=False,
    keeps_refused="nothing",
    counts_twice=False,
    counts_late=False,
    locks_all=False,
    folds_tables=lambda _: False,
    links=_links,
    hidden=lambda *_: (),
    knows_heirs=True,
    has_conflict_rules=False,
)


# ── Rights on PostgreSQL: needed ones, missing ones, and their GRANT ──


_MOVES = ("SELECT", "UPDATE")
"""Rights on the sequence of a table that gets rows, which is moved past their keys."""
OWN = {"mark": (SCHEMA, "mark"), "ticket": (SCHEMA, "ticket")}


def _needed(
    connection: Connection,
    role: SqlRole,
    read: Collection[base.Place],
    captured: Collection[base.Place],
    written: Collection[base.Place],
) -> Iterator[base.Grant]:
    database = str(connection.exec_driver_sql("SELECT current_database()").scalar_one())
    yield base.Grant("database", "", database, "CONNECT")
    if role.installs:
        yield base.Grant("database", "", database, "CREATE")
        owners = {
            owner
            for schema, name in captured
            for owner in connection.scalars(QUERIES["owners"], {"schema": schema, "name": name})
        }
        yield from (base.Grant("owner", "", str(owner), "MEMBER") for owner in owners)
    rights = [(*place, "SELECT") for place in read]
    for own, listed in ((OWN["ticket"], role.ticket), (OWN["mark"], role.mark)):
        rights += [(*own, right) for right in listed]
    if connection.execute(QUERIES["has_log"]).scalar_one():
        rights += [(SCHEMA, "log", right) for right in (_MOVES if "DELETE" in role.mark else role.ticket[:1])]
        if role.installs or "DELETE" in role.mark:
            yield base.Grant("attribute", "", "", "REPLICATION")
    rights += [(*place, right) for place in written for right in WRITES]
    schemas = {schema for schema, _, _ in rights}
    if role.installs:
        schemas |= {schema for schema, _ in captured}
    for schema in schemas:
        yield base.Grant("schema", "", schema, "USAGE")
    if role.counts:
        yield base.Grant("sequence", SCHEMA, "mark_id_seq", "USAGE")
    for schema, name in written:
        for row in connection.execute(QUERIES["sequences"], {"table": name, "schema": schema}):
            yield from (base.Grant("sequence", row.schema, row.name, right) for right in _MOVES)
    yield from (base.Grant("table", schema, name, right) for schema, name, right in rights)


def _missing(connection: Connection, grants: Sequence[base.Grant]) -> list[base.Grant]:
    return [
        grant
        for grant in grants
        if not connection.execute(QUERIES[f"has_{grant.kind}"], _asked(grant)).scalar()
    ]


def _asked(grant: base.Grant) -> dict[str, str]:
    if grant.kind == "attribute":
        return {}
    named = {"name": grant.name, "right": grant.right}
    return {**named, "schema": grant.schema} if grant.schema else named


def _statement(grants: Sequence[base.Grant], user: str) -> str:
    first, to = grants[0], quoted(user)
    if first.kind == "attribute":
        return f"ALTER ROLE {to} REPLICATION"
    if first.kind == "owner":
        return f"GRANT {quoted(first.name)} TO {to}"
    on = qualified(first.schema or None, first.name)
    return f"GRANT {', '.join(grant.right for grant in grants)} ON {first.kind.upper()} {on} TO {to}"


GRANTING = base.Granting(_needed, _missing, _statement)


# ── PostgreSQL's SQL: parsing, refused functions, and the forms of values and columns in our statements ──

_PARAMETERS = re.compile(
    rf"(?<!\w)[eE]{shared.BACKSLASHED}|{shared.ANSI_STRING}"
    r'|"(?:[^"]|"")*"|(?<![\w$])\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$'
    rf"|(?P<comment>{shared.COMMENTS})|{shared.PARAMETER}",
    re.DOTALL,
)


def _comparable(value: Any, _: Kind) -> Any:
    """A float as text: PostgreSQL would widen a real to compare it with the driver's number, and rarely find
    them equal.
    """
    return repr(value) if isinstance(value, float) else value


def _text(value: str) -> str:
    if "\0" in value:
        raise SettingsError(
            "a parameter has a NUL character, which no text of PostgreSQL holds; leave it out"
        )
    return value


SQL = base.Sql(
    reader="postgres",
    quote='"',
    parameters=_PARAMETERS,
    forms={**shared.AS_TEXT, str: _text},
    comparable=_comparable,
    integer_bits=None,
    between=shared.BETWEEN,
    sets_variables=False,
    escapes_names=True,
    folds_names=True,
    recurses_unasked=False,
    traits=frozenset(
        {
            "casts to read",
            "nested as JSON",
            "numbers as an array",
            "collates",
            "partitions by the first column",
        }
    ),
)


# ── PostgreSQL as a source, by psycopg 3 ──

_NAME = "postgresql"
_SCHEME = "postgresql+psycopg"

# ── connections ──


def _checked_url(url: URL, _: str) -> URL:
    shared.refuse_stray_at(url)
    shared.need_driver("psycopg", "PostgreSQL needs its driver, psycopg", "postgres")
    return url.set(drivername=_SCHEME)


def _opened(address: base.Address, connection_options: base.ConnectionOptions) -> sa.Engine:
    from migrator.source.engines.postgresql import connect  # needs psycopg, an extra that SQLite does without

    defaults = {
        "application_name": connection_options.name,
        "connect_timeout": shared.CONNECT_TIMEOUT_S,
        **ALIVE,
    }
    # For any encoding of the database: with SQL_ASCII the driver would otherwise return bytes for texts.
    engine = shared.server_engine(
        address, connection_options, lambda url: shared.unless_in(url, defaults) | {"client_encoding": "utf8"}
    )
    sa.event.listen(engine, "connect", partial(connect.prepare, connection_options=connection_options))
    return engine


def _begins(connection_options: base.ConnectionOptions, info: Mapping[Any, Any]) -> str:
    from migrator.source.engines.postgresql import connect

    return connect.begins(connection_options, info)


def _fetched(connection: Connection, statement: sa.Executable, raw: frozenset[int]) -> RawPage:
    from migrator.source.engines.postgresql import connect

    return connect.fetched(connection, statement, raw)


POSTGRESQL = base.Engine(
    name=_NAME,
    also=(),
    title="PostgreSQL",
    is_file=False,
    queries=QUERIES,
    functions=Functions(QUERIES.engine),
    connecting=base.Connecting(
        form="postgresql://user@host:5432/database",
        schemes=(_NAME, "postgres", _SCHEME),
        driver="PostgreSQL is read with psycopg 3; write postgresql:// without another driver's name",
        port=5432,
        rds=("postgres", "postgresql", "aurora-postgresql"),
        extra=("postgres", "psycopg"),
        checked_url=_checked_url,
        open=_opened,
        begins=_begins,
        raw=frozenset({"integer", "number", "date", "time", "timestamp", "uuid"}),
        fetched=_fetched,
    ),
    sql=SQL,
    schema=base.Schema(
        reflected=facts.reflected,
        kinds=facts.KINDS,
        has_schemas=True,
        has_materialized_views=True,
        loosely_typed=False,
        has_blocks=has_blocks,
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
