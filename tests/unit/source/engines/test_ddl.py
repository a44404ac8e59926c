"""Statements of the triggers, as far as they are decided without a database."""

from __future__ import annotations

import pytest

from migrator.mapping.model.facts import Captured, Column, Kind, TableFacts
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.mysql.capture import MysqlDdl
from migrator.source.engines.postgresql.capture import PostgresqlDdl
from migrator.source.engines.sqlite.engine import SqliteDdl
from tests import pins

TEXT = Kind("text")
TABLE = TableFacts(
    "t", "t", (Column("id", "Id", Kind("integer"), declared="int(11)"), Column("w", "W", TEXT)), ("id",)
)
DDLS: list[Ddl] = [PostgresqlDdl(), MysqlDdl("shop"), SqliteDdl()]


def captured(watched: tuple[str, ...] | None = ("id", "w"), name: str = "t") -> Captured:
    return Captured(name, TABLE, ("id",), watched, ())


def digests(ddl: Ddl, one: Captured) -> set[str]:
    return {trigger.digest for trigger in ddl.triggers(one)}


@pytest.mark.parametrize("ddl", DDLS)
def test_watched_and_stored_columns_are_in_the_digest(ddl: Ddl) -> None:
    found = [digests(ddl, one) for one in (captured(), captured(("id",)), captured(None))]
    held = digests(ddl, replace(captured(), columns=("id", "w")))
    assert len(set.union(*found, held)) == 4
    assert digests(ddl, captured()) == digests(ddl, captured())


@pytest.mark.parametrize("ddl", DDLS)
def test_names_fit_every_server(ddl: Ddl) -> None:
    for trigger in ddl.triggers(captured(name="x" * 200)):
        assert len(trigger.name) <= 63
        assert trigger.create
        assert trigger.undo


@pytest.mark.parametrize("ddl", DDLS)
def test_a_column_made_by_sql_cannot_be_held(ddl: Ddl) -> None:
    table = replace(TABLE, columns=(*TABLE.columns, Column("due", "due", TEXT, sql="a - b")))
    with pins.refused(SettingsError):
        ddl.triggers(replace(captured(), table=table, columns=("id", "due")))
