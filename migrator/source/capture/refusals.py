"""Why a table's changes cannot be captured, and what to do: kinds of tables, privileges, circles of foreign keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.errors import SettingsError
from migrator.mapping.changes import Captured
from migrator.source.capture import postgresql
from migrator.source.capture.cascades import cascades, circles
from migrator.source.capture.design import Ddl
from migrator.source.capture.installed import has_tables
from migrator.source.capture.mysql import MysqlDdl, quoted
from migrator.source.engines.postgresql_writers import NAMED, named

_POSTGRESQL_TABLES = sa.text(f"""
    SELECT n.nspname || '.' || c.relname AS name, c.relkind AS kind,
        pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
        EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid) AS has_heirs
    FROM {NAMED} WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
""")
_POSTGRESQL_VIEWS = sa.text("""
    SELECT n.nspname || '.' || c.relname AS name
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('v', 'm', 'f')
""")
_POSTGRESQL_RIGHTS = sa.text("""
    SELECT CASE WHEN pg_catalog.to_regnamespace(:schema) IS NULL
        THEN pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
        ELSE pg_catalog.has_schema_privilege(:schema, 'CREATE') END
""")
_WHERE_AND_WHO = "SELECT quote_ident(current_database()), quote_ident(current_user)"
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
# Table by table: only for names that it is given does the server not open all that there are.
_MYSQL_TABLE = sa.text("""
    SELECT TABLE_TYPE AS kind, ENGINE AS engine
    FROM information_schema.TABLES WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name
""")
_MYSQL_VIEWS = sa.text("""
    SELECT TABLE_SCHEMA AS `schema`, TABLE_NAME AS name FROM information_schema.TABLES WHERE TABLE_TYPE = 'VIEW'
""")
_MYSQL_RIGHTS = sa.text("""
    SELECT '' AS `schema`, '' AS name, PRIVILEGE_TYPE AS right_name FROM information_schema.USER_PRIVILEGES
    UNION ALL SELECT TABLE_SCHEMA, '', PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES
    UNION ALL SELECT TABLE_SCHEMA, TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
""")
_OWN = ("migrator_mark", "migrator_ticket")
_OWN_RIGHTS = ("INSERT", "UPDATE", "DELETE", "SELECT")
_VIEW = "say in the mapping what changes it: `changes: {orders: id}` beside `table:` of the entity"


def refusals(
    connection: Connection, ddl: Ddl, tables: Sequence[Captured], *, by_triggers: bool = True
) -> list[str]:
    """All of them at once. Not `by_triggers`: services leave the marks, and what only triggers need may be missing."""
    found = [what for one in tables if (what := _unseen(ddl, one))]
    looks: Mapping[str, Callable[[Connection, Any, Sequence[Captured]], Iterator[_Refusal]]] = {
        "postgresql": _of_postgresql,
        "mysql": _of_mysql,
        "sqlite": _of_sqlite,
    }
    told = looks[connection.dialect.name](connection, ddl, tables)
    return [*found, *(one.text for one in told if by_triggers or not one.triggers_only)]


class _Refusal(NamedTuple):
    """`triggers_only`: it stands against triggers, and not against marks that services leave."""

    text: str
    triggers_only: bool = False


def views(connection: Connection, ddl: Ddl) -> set[str]:
    """Names, as Captured has them, of what can be read like a table and has no triggers of its own."""
    if isinstance(ddl, MysqlDdl):
        rows = connection.execute(_MYSQL_VIEWS)
        return {row.name if row.schema == ddl.home else f"{row.schema}.{row.name}" for row in rows}
    if connection.dialect.name == "postgresql":
        return set(connection.scalars(_POSTGRESQL_VIEWS))
    return set(connection.scalars(sa.text("SELECT name FROM sqlite_master WHERE type = 'view'")))


def limits(connection: Connection) -> list[str]:
    """What leaves no mark and cannot be made to."""
    if connection.dialect.name == "mysql":
        return [
            "TRUNCATE and ALTER TABLE … DROP PARTITION fire no trigger here: use DELETE on captured tables"
        ]
    return []


def _unseen(ddl: Ddl, captured: Captured) -> str:
    try:
        ddl.triggers(captured)
    except SettingsError as error:
        return str(error)
    return ""


def _of_postgresql(connection: Connection, _: Ddl, tables: Sequence[Captured]) -> Iterator[_Refusal]:
    asked = named(connection, [one.name for one in tables])
    known = {row.name: row for row in connection.execute(_POSTGRESQL_TABLES, asked)}
    if not connection.execute(_POSTGRESQL_RIGHTS, {"schema": postgresql.SCHEMA}).scalar_one():
        what = f"this user may not make tables in a schema {postgresql.SCHEMA}"
        database, user = connection.exec_driver_sql(_WHERE_AND_WHO).one()
        yield _Refusal(
            f"{what}; GRANT CREATE ON DATABASE {database} TO {user},"
            f" or CREATE SCHEMA {postgresql.SCHEMA} AUTHORIZATION {user}"
        )
    for one in tables:
        row = known.get(one.name)
        if row is None:
            yield _Refusal(f"table {one.name} is gone; pull the schema again")
        elif row.kind in _KINDS:
            yield _Refusal(f"{one.name} is {_KINDS[row.kind]}, which has no triggers; {_VIEW}")
        elif row.kind == "r" and row.has_heirs:
            what = "has tables that inherit from it, whose changes leave no mark of it"
            yield _Refusal(
                f"table {one.name} {what}; partition it, or migrate the heirs as tables of their own"
            )
        elif not row.owned:
            yield _Refusal(
                f"table {one.name}: only its owner may make its triggers fire always; connect as the owner",
                triggers_only=True,
            )


def _of_mysql(connection: Connection, ddl: MysqlDdl, tables: Sequence[Captured]) -> Iterator[_Refusal]:
    may, user = _rights(connection), connection.exec_driver_sql("SELECT CURRENT_USER()").scalar_one()
    user = "@".join(f"'{part}'" for part in str(user).rsplit("@", 1))
    for own in _OWN:
        rights = _OWN_RIGHTS if has_tables(connection, ddl) else ("CREATE", *_OWN_RIGHTS)
        if missing := ", ".join(right for right in rights if not may(right, ddl.home, own)):
            # CREATE may be granted on a table that is not there yet.
            grant = f"GRANT {missing} ON {quoted(ddl.home)}.{own} TO {user}"
            yield _Refusal(f"this user lacks {missing} on our table {own} in database {ddl.home}; {grant}")
    log, trusted = connection.exec_driver_sql("SELECT @@log_bin, @@log_bin_trust_function_creators").one()
    if log and not trusted and not may("SUPER", ""):
        what = "the server keeps a binary log and takes triggers from users with SUPER only"
        yield _Refusal(
            f"{what}; SET GLOBAL log_bin_trust_function_creators = 1 (on RDS in the parameter group)",
            triggers_only=True,
        )
    for one in tables:
        schema = one.table.schema or ddl.home
        row = connection.execute(_MYSQL_TABLE, {"schema": schema, "name": one.table.real}).first()
        if row is None:
            yield _Refusal(f"table {one.name} is gone; pull the schema again")
        elif row.kind == "VIEW":
            yield _Refusal(f"{one.name} is a view, which has no triggers; {_VIEW}")
        elif row.engine != "InnoDB":
            what = f"is kept by {row.engine}, which knows no transactions: a change could be there without its mark"
            yield _Refusal(f"table {one.name} {what}; ALTER TABLE … ENGINE = InnoDB")
        elif not may("TRIGGER", schema, one.table.real):
            grant = f"GRANT TRIGGER ON {quoted(schema)}.{quoted(one.table.real)} TO {user}"
            yield _Refusal(f"table {one.name}: this user lacks TRIGGER; {grant}", triggers_only=True)
    for name, circle in circles(cascades(connection), tables, ddl.home):
        keys = ", ".join(f"{key.name} of {key.child[1]}" for key in reversed(circle))
        what = f"foreign keys reach it in a circle of ON DELETE CASCADE ({keys}), and fire no trigger here"
        yield _Refusal(
            f"table {name}: {what}; let one of them RESTRICT and the service delete the rows itself",
            triggers_only=True,
        )


def _rights(connection: Connection) -> Callable[..., bool]:
    """Whether the user has a right on a schema, or on a table of it. What roles give is not listed: it is believed."""
    rights = list(connection.execute(_MYSQL_RIGHTS))
    by_role = connection.exec_driver_sql("SELECT CURRENT_ROLE()").scalar() not in (None, "", "NONE")

    def may(right: str, schema: str, name: str = "") -> bool:
        return by_role or any(
            row.right_name == right
            and (row.name in ("", name) and (row.schema in ("", schema) or _is_like(schema, row.schema)))
            for row in rights
        )

    return may


def _is_like(name: str, pattern: str) -> bool:
    """Whether a database's name is one of a GRANT's, where % and _ stand for others unless a backslash is before them."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    signs = {"%": ".*", "_": "."}
    return bool(re.fullmatch("".join(signs.get(one) or re.escape(one[-1]) for one in parts), name, re.DOTALL))


_STRANGE = re.compile(r"^\s*CREATE\s+VIRTUAL", re.IGNORECASE)


def _of_sqlite(connection: Connection, _: Ddl, tables: Sequence[Captured]) -> Iterator[_Refusal]:
    known = {row[0]: row for row in connection.execute(sa.text("SELECT name, type, sql FROM sqlite_master"))}
    for one in tables:
        row = known.get(one.table.real)
        if row is None:
            yield _Refusal(f"table {one.name} is gone; pull the schema again")
        elif row[1] == "view":
            yield _Refusal(f"{one.name} is a view, which has no triggers for what it reads; {_VIEW}")
        elif _STRANGE.match(row[2] or ""):
            yield _Refusal(
                f"{one.name} is a virtual table, which has no triggers; migrate the table that it shows",
                triggers_only=True,
            )
