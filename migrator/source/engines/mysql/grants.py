"""Rights on MariaDB and MySQL: what a user needs, whether it has it, and the GRANT that gives it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.settings.roles import WRITES, SqlRole
from migrator.source.engines.base import Grant, Granting, Place
from migrator.source.engines.mysql.row_writing import SEQUENCES
from migrator.source.engines.mysql.triggers import literal, quoted

_RIGHTS = sa.text("""
    SELECT '' AS `schema`, '' AS name, PRIVILEGE_TYPE AS right_name FROM information_schema.USER_PRIVILEGES
    UNION ALL SELECT TABLE_SCHEMA, '', PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES
    UNION ALL SELECT TABLE_SCHEMA, TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
""")
_SEQUENCE = re.compile(
    r"""nextval\((?P<quote>[`"])(?P<schema>.+)(?P=quote)\.(?P=quote)(?P<name>.+)(?P=quote)\)"""
)
"""The server quotes names as the session does."""
_MAKES = ("CREATE", "SELECT", "INSERT", "UPDATE", "DELETE", "DROP")


def _needed(
    connection: Connection,
    role: SqlRole,
    read: Collection[Place],
    captured: Collection[Place],
    written: Collection[Place],
) -> Iterator[Grant]:
    """A trigger acts with the rights of the user that made it, which reads the changed row's columns; and only who may
    make triggers is shown those that there are."""
    home = str(connection.exec_driver_sql("SELECT DATABASE()").scalar_one())
    for name, rights in (("migrator_ticket", role.ticket), ("migrator_mark", role.mark)):
        for right in _MAKES if role.installs else rights:
            yield Grant("table", home, name, right)
    for schema, name in captured:
        yield Grant("table", schema, name, "TRIGGER")
        if role.installs:
            yield Grant("table", schema, name, "SELECT")
    # MariaDB shows a table's triggers to a user who may write it, MySQL to one alone who may make some.
    rights = WRITES if getattr(connection.dialect, "is_mariadb", False) else (*WRITES, "TRIGGER")
    yield from (Grant("table", schema, name, right) for schema, name in written for right in rights)
    for place in written:
        # An INSERT needs both, though it says the number itself.
        for schema, name in _sequences(connection, place):
            yield from (Grant("table", schema, name, right) for right in ("SELECT", "INSERT"))
    yield from (Grant("table", schema, name, "SELECT") for schema, name in read)


def _sequences(connection: Connection, place: Place) -> Iterator[Place]:
    """Those that the defaults of the table's columns draw from."""
    schema, table = place
    for row in connection.execute(SEQUENCES, {"table": table, "schema": schema}):
        if found := _SEQUENCE.fullmatch(row.COLUMN_DEFAULT):
            quote = found["quote"]
            yield found["schema"].replace(quote * 2, quote), found["name"].replace(quote * 2, quote)


def _missing(connection: Connection, grants: Sequence[Grant]) -> list[Grant]:
    may = rights_of_user(connection)
    return [grant for grant in grants if not may(grant.right, grant.schema, grant.name)]


def _statement(grants: Sequence[Grant], user: str) -> str:
    """`user`: name@host, or a name for every host."""
    first = grants[0]
    name, _, host = user.rpartition("@") if "@" in user else (user, "", "%")
    on = f"{quoted(first.schema)}.{quoted(first.name)}"
    rights = ", ".join(grant.right for grant in grants)
    return f"GRANT {rights} ON {on} TO {literal(name)}@{literal(host)}"


def rights_of_user(connection: Connection) -> Callable[..., bool]:
    """A test whether the user has a right on a schema or a table. Rights of roles are not listed, so they are assumed."""
    rights = list(connection.execute(_RIGHTS))
    by_role = connection.exec_driver_sql("SELECT CURRENT_ROLE()").scalar() not in (None, "", "NONE")

    def may(right: str, schema: str, name: str = "") -> bool:
        return by_role or any(
            row.right_name == right
            and (row.name in ("", name) and (row.schema in ("", schema) or is_like(schema, row.schema)))
            for row in rights
        )

    return may


def is_like(name: str, pattern: str) -> bool:
    """Whether a database's name matches the pattern of a GRANT, in which % and _ are wildcards unless escaped."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    signs = {"%": ".*", "_": "."}
    return bool(
        re.fullmatch(
            "".join(signs.get(character) or re.escape(character[-1]) for character in parts), name, re.DOTALL
        )
    )


GRANTING = Granting(_needed, _missing, _statement)
