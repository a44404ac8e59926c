"""How many rows a table must have by the catalogue's own statistics, which no policy and no condition of a view touches."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from migrator.facts import TableFacts
from migrator.source.engines.table import engine_at


def rows_at_least(connection: Connection, table: TableFacts) -> int | None:
    """A number of rows that the table has in all likelihood; None where the database has no statistics to go by.

    Of PostgreSQL three quarters of what the last ANALYZE found, less all changes since; of MariaDB, which samples
    some pages, a quarter of what it expects. SQLite keeps none, MySQL none younger than a day, a view has none.
    """
    return engine_at(connection).server.rows_at_least(connection, table)
