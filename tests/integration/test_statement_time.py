"""A statement that never ends: there is a limit where none is set, and a stricter one of the server's stays."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from migrator.runtime.errors import MappingError
from migrator.settings.job import load_job
from migrator.source.engines.base import LONGEST_STATEMENT_S, Address, ConnectionOptions
from migrator.source.engines.connect import source_url, write_engine
from migrator.source.reader import SqlSource
from tests.support_mysql import settings_of

SECONDS = {None: LONGEST_STATEMENT_S, 0.0: 0.0, 2.5: 2.5}


def job(folder: Path, line: str) -> float | None:
    path = folder / "shop.yaml"
    path.write_text(f"job: 1\nmapping: m.yaml\nsource:\n  url: sqlite:///shop.db\n{line}")
    return load_job(path, {}).source.statement_timeout_s


def test_job_sets_a_time_limit_or_none_or_uses_the_default(tmp_path: Path) -> None:
    assert job(tmp_path, "") is None
    assert job(tmp_path, "  statement_timeout_s: 0\n") == 0.0
    assert job(tmp_path, "  statement_timeout_s: null\n") == 0.0
    assert job(tmp_path, "  statement_timeout_s: 30\n") == 30.0
    for wrong in ("-1", "0.0001", "86401", ".inf", ".nan"):
        with pytest.raises(MappingError, match="statement_timeout_s"):
            job(tmp_path, f"  statement_timeout_s: {wrong}\n")


@pytest.mark.parametrize("limit_s", SECONDS)
def test_postgresql_has_a_limit(postgres_database: str, limit_s: float | None) -> None:
    shown = {600.0: "10min", 0.0: "0", 2.5: "2500ms"}
    url, connection_options = source_url(postgres_database), ConnectionOptions(statement_timeout_s=limit_s)
    asked = "SELECT current_setting('statement_timeout')"
    with closing(SqlSource(url, connection_options=connection_options)) as source:
        assert source.query(asked, {}) == [(shown[SECONDS[limit_s]],)]
    writing = write_engine(Address.of(url), connection_options)
    with writing.connect() as connection:
        assert connection.exec_driver_sql(asked).scalar() == shown[SECONDS[limit_s]]
    writing.dispose()


def test_server_time_limit_stays_if_the_job_sets_none(postgres_database: str, mysql_database: str) -> None:
    with closing(SqlSource(source_url(f"{postgres_database}?options=-c%20statement_timeout%3D7s"))) as source:
        assert source.query("SELECT current_setting('statement_timeout')", {}) == [("7s",)]
    named = settings_of(mysql_database)
    command = f"SET%20{named.time_limit}%3D{7 * named.second}"
    with closing(SqlSource(source_url(f"{mysql_database}?init_command={command}"))) as source:
        assert source.query(f"SELECT @@{named.time_limit}", {}) == [(7.0 * named.second,)]


@pytest.mark.parametrize("limit_s", SECONDS)
def test_mariadb_has_a_limit(mysql_database: str, limit_s: float | None) -> None:
    with closing(
        SqlSource(
            source_url(mysql_database), connection_options=ConnectionOptions(statement_timeout_s=limit_s)
        )
    ) as source:
        named = settings_of(mysql_database)
        assert source.query(f"SELECT @@{named.time_limit}", {}) == [((SECONDS[limit_s] or 0) * named.second,)]
