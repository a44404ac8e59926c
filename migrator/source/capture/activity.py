"""Counters of changes and open transactions, as PostgreSQL, MariaDB, MySQL and SQLite tell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.model.live import ActivityCounts
from migrator.source.capture.writing import Writing
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.table import engine_at


class SqlActivity:
    """`writing`: connections to the source itself, never to a replica."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def look(self, tables: Sequence[str]) -> ActivityCounts:
        def work(connection: Connection) -> ActivityCounts:
            writers = engine_at(connection).writers
            found, source, blind = writers.changes(connection, tables)
            whole = _marks_ever(connection, self._writing.ddl(connection))
            opened, unseen = writers.open(connection)
            ours = {id_: one for id_, one in (opened or {}).items() if not one[0] or one[0] in tables}
            counted = {name: found[name] for name in tables if name in found}
            return ActivityCounts(
                counted,
                whole,
                source,
                blind,
                None if opened is None else {id_: table for id_, (table, _) in ours.items()},
                unseen,
                who={id_: who for id_, (_, who) in ours.items() if who},
                may_write=writers.may_write(connection, tables),
            )

        return self._writing.read("looking at changes", work)

    def views(self) -> set[str]:
        def work(connection: Connection) -> set[str]:
            inspector = sa.inspect(connection)
            has_both = engine_at(connection).schema.has_materialized_views
            return {
                *inspector.get_view_names(),
                *(inspector.get_materialized_view_names() if has_both else ()),
            }

        return self._writing.read("listing views", work)

    def waiting(self) -> Mapping[str, int]:
        def work(connection: Connection, ddl: Ddl) -> dict[str, int]:
            query = f"SELECT table_name, COUNT(*) FROM {ddl.mark} GROUP BY table_name"
            return {str(name or ""): int(count) for name, count in connection.exec_driver_sql(query)}

        return self._writing.write("counting marks", work)

    def read_only_sql(self, tables: Sequence[str]) -> list[str]:
        def work(connection: Connection) -> list[str]:
            return list(engine_at(connection).writers.read_only(connection, tables))

        return self._writing.read("reading grants", work)

    def drop_sql(self, tables: Sequence[str]) -> list[str]:
        def work(connection: Connection) -> list[str]:
            return engine_at(connection).writers.drops([_quoted(connection, name) for name in tables])

        return self._writing.read("naming tables", work)


def _marks_ever(connection: Connection, ddl: Ddl) -> int | None:
    """A number that grows with every mark that is left; None where nothing is captured."""
    inspector, query = sa.inspect(connection), engine_at(connection).writers.marks_ever
    schema, _, name = ddl.mark.replace('"', "").replace("`", "").rpartition(".")
    if not query or not inspector.has_table(name, schema or None):
        return None
    return int(connection.exec_driver_sql(query.format(mark=ddl.mark)).scalar_one() or 0)


def _quoted(connection: Connection, name: str) -> str:
    schema, _, table = name.rpartition(".")
    quote = connection.dialect.identifier_preparer.quote
    return f"{quote(schema)}.{quote(table)}" if schema else quote(table)
