"""What a server's administrator sees of capture's connections: the limits of the job hold for them, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from migrator.settings.job import Job, SourceSettings, load_job
from migrator.source.capture.marks import SqlMarks
from migrator.source.reader import SqlSource
from migrator.stages.session.job import Live
from migrator.stages.session.session import JobSession
from tests import support_services as services
from tests.support_mysql import run_script, settings_of
from tests.support_source_databases import past_the_gate

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities: {slow: {items: {Slow: {key: ["SLOW#{id}", SLOW]}}}}
"""
TABLE = "CREATE TABLE slow (id int PRIMARY KEY)"


def job(folder: Path, url: str, limits: str) -> Job:
    (folder / "m.yaml").write_text(MAPPING)
    path = folder / "shop.yaml"
    path.write_text(f"job: 1\nmapping: m.yaml\nsource: {{url: '{url}', {limits}}}\ntuning: {{workers: 8}}\n")
    return load_job(path, {})


@contextmanager
def context(made: Job) -> Iterator[tuple[Live, JobSession]]:
    with JobSession(made, "test") as session:
        yield session.live, session


@pytest.mark.parametrize(
    ("limit", "apart", "reads", "others"),
    [(None, 1, 9, 9), (1, 1, 1, 1), (2, 1, 1, 1), (3, 1, 2, 1), (3, 2, 1, 1), (8, 2, 4, 2), (100, 1, 9, 9)],
)
def test_the_limit_is_shared(limit: int | None, apart: int, reads: int, others: int) -> None:
    settings = SourceSettings(url="x", max_connections=limit)
    assert settings.connections(9, apart=apart) == reads
    assert settings.connections_apart(9) == others
    assert limit is None or limit <= apart or reads + apart * others <= limit


def test_capture_status_needs_no_extra_connection(postgres_database: str, tmp_path: Path) -> None:
    services.run_script(postgres_database, TABLE)
    with context(job(tmp_path, postgres_database, "max_connections: 1")) as (live, found):
        assert live.capture.installation() is None
        assert live.capture.states([]) == []
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        assert found.source.query(count, {}) == [(1,)]


def test_postgresql_never_sees_more_than_allowed_with_marks(postgres_database: str, tmp_path: Path) -> None:
    services.run_script(postgres_database, TABLE)
    seen: list[int] = []
    with context(job(tmp_path, postgres_database, "max_connections: 4, statement_timeout_s: 2.5")) as both:
        live, found = both
        plans = [one.plan for one in found.checked.entities]
        for step in live.capture.install_steps(live.capture.captured(plans), "shop"):
            live.capture.do(step)
        count = "SELECT count(*), pg_sleep(0.02) FROM pg_stat_activity WHERE datname = current_database()"

        source = found.source
        assert isinstance(source, SqlSource)

        def work() -> None:
            live.tickets.draw()
            seen.append(past_the_gate(source, count)[0][0])

        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        timeout = "SELECT current_setting('statement_timeout')"
        assert isinstance(live.marks, SqlMarks)
        writing = live.marks.writing
        assert writing.write("asking", lambda one, _: one.exec_driver_sql(timeout).scalar()) == "2500ms"
    assert len(seen) == 12
    assert max(seen) <= 4


def test_mariadb_keeps_the_limits_when_writing_marks(mysql_database: str, tmp_path: Path) -> None:
    run_script(mysql_database, TABLE)
    with context(job(tmp_path, mysql_database, "max_connections: 2, statement_timeout_s: 2.5")) as (live, _):
        named = settings_of(mysql_database)
        asked = f"SELECT @@SESSION.{named.time_limit} / {named.second}, @@SESSION.{named.read_only}"
        assert isinstance(live.marks, SqlMarks)
        writing = live.marks.writing
        written = writing.write("asking", lambda one, _: one.exec_driver_sql(asked).one())
        looked = writing.look("asking", lambda one, _: one.exec_driver_sql(asked).one())
    assert (tuple(written), tuple(looked)) == ((2.5, 0), (2.5, 1))
