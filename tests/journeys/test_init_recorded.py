"""`migrator init --statements auto`: the statements that a server recorded, and what is said where it did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import support_mysql
from tests import support_services as services
from tests.journeys.command import Project
from tests.journeys.in_process import Ended
from tests.journeys.proposals import here, proposed
from tests.journeys.test_init import statements_of
from tests.support_own_server import OwnServer

SAMPLES = "25"
__all__ = ["here"]


@contextmanager
def recording_postgres() -> Iterator[OwnServer]:
    with services.own_postgres("shared_preload_libraries=pg_stat_statements") as server:
        yield server


@contextmanager
def chinook_on_postgres(server: OwnServer, chinook: Path) -> Iterator[str]:
    with services.postgres_database(server.url) as url:
        services.run_script(url, services.chinook_postgres_script(chinook))
        yield url


def asked_of_postgres(url: str) -> None:
    """Asks each statement some times, its parameters by the server's own numbers."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION pg_stat_statements")
        connection.execute("SELECT pg_stat_statements_reset()")
        cursor = psycopg.RawCursor(connection)
        for text, values in questions("postgresql"):
            for number in range(len(values)):
                text = text.replace(f":{list(values)[number]}", f"${number + 1}")
            cursor.execute(text.encode(), list(values.values()))
        # Read as SQL, $1,$2 would begin a text.
        cursor.execute(b"SELECT name FROM artist WHERE artist_id IN ($1,$2)", [1, 2])


VALUES = {
    **dict.fromkeys(
        ("artist_id", "album_id", "track_id", "genre_id", "playlist_id", "customer_id", "invoice_id"), 3
    ),
    **{"employee_id": 2, "n": 5, "email": "ann@example.com", "from": "2026-01-01", "to": "2027-01-01"},
}


def questions(engine: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The statements of Chinook's patterns without comments, each with the values of its parameters by their length."""
    for line in statements_of(engine).splitlines():
        if not line.startswith("--"):
            names = [name for name in sorted(VALUES, key=len, reverse=True) if f":{name}" in line]
            yield line.rstrip(";"), {name: VALUES[name] for name in names}


def replayed(project: Project) -> Ended:
    job = str(project.job)
    project.done("table", "create", job)
    assert project.done("backfill", job, "--json").data["total"]["refused"] == 0
    return project.done("shadow", "replay", job, "--sample", SAMPLES, "--seed", "19", "--json")


def test_statements_recorded_by_postgresql_are_served(
    here: Callable[[str], Project], chinook_dir: Path
) -> None:
    with recording_postgres() as server, chinook_on_postgres(server, chinook_dir) as url:
        asked_of_postgres(url)
        project = here(url)
        ended = proposed(project, "--json")
        assert ended.code == 0, (ended.data["not_served"], ended.err)
        assert (ended.data["served"], ended.data["indexes"]) == (18, 3)
        again = proposed(project, "--json", "--force").data
        assert (again["served"], again["not_served"]) == (18, [])
        patterns = replayed(project).data["patterns"]
    assert all(pattern["same"] == pattern["samples"] > 0 for pattern in patterns)


@contextmanager
def chinook_on_recording_mariadb(chinook: Path, *more: str) -> Iterator[str]:
    """A server that keeps its statements, and was asked each statement once."""
    with (
        support_mysql.own_mariadb("--performance-schema=ON", *more) as server,
        support_mysql.mysql_database(server.url) as url,
    ):
        support_mysql.run_script(url, support_mysql.chinook_mysql_script(chinook))
        with support_mysql.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("TRUNCATE performance_schema.events_statements_summary_by_digest")
            for text, values in questions("mariadb"):
                for name in values:
                    text = text.replace(f":{name}", f"%({name})s")
                cursor.execute(text, values)
        yield url


def test_statements_recorded_by_mariadb_are_served(here: Callable[[str], Project], chinook_dir: Path) -> None:
    with chinook_on_recording_mariadb(chinook_dir) as url:
        project = here(url)
        ended = proposed(project, "--statements", "auto", "--json")
        assert ended.code == 0, (ended.data["not_served"], ended.err)
        assert (ended.data["served"], ended.data["indexes"]) == (17, 3)
        patterns = replayed(project).data["patterns"]
    assert all(pattern["same"] == pattern["samples"] > 0 for pattern in patterns)


def test_mariadb_cut_digests_and_the_needed_right_are_reported(
    here: Callable[[str], Project], chinook_dir: Path
) -> None:
    shorter = ("--max-digest-length=200", "--performance-schema-max-digest-length=200")
    with chinook_on_recording_mariadb(chinook_dir, *shorter) as url:
        ended = proposed(here(url), "--json")
        assert ended.code == 1, ended.err
        # None of them is taken for another question: what may be cut is told so.
        assert {other["reason"] for other in ended.data["not_served"]} == {"cut"}
        assert ended.data["served"] >= 5
        parts = urlsplit(url)
        with support_mysql.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE USER reader@'%'")
            cursor.execute(f"GRANT SELECT ON `{parts.path.lstrip('/')}`.* TO reader@'%'")
        reader = parts._replace(netloc=f"reader@{parts.hostname}:{parts.port}").geturl()
        ended = proposed(here(reader), "--force")
    assert ended.code == 2, ended.err
    assert "GRANT SELECT ON performance_schema.*" in ended.err


@pytest.mark.mariadb  # MySQL records statements unless told not to.
def test_server_that_records_nothing_is_reported_with_the_fix(
    here: Callable[[str], Project], chinook_postgres: str, chinook_mysql: str
) -> None:
    for url, setting in (
        (chinook_postgres, "shared_preload_libraries"),
        (chinook_mysql, "performance_schema=ON"),
    ):
        ended = proposed(here(url))
        assert ended.code == 2, ended.err
        easy = ended.err.index("--statements FILE, or --statements none")
        assert easy < ended.err.index(setting)
        assert "mapping" not in ended.err
        assert "renamed" not in ended.err


def test_missing_rights_are_listed_together_with_their_grants(
    here: Callable[[str], Project], chinook_dir: Path
) -> None:
    with recording_postgres() as server, chinook_on_postgres(server, chinook_dir) as url:
        asked_of_postgres(url)
        parts = urlsplit(url)
        project = here(parts._replace(netloc=f"reader@{parts.hostname}:{parts.port}").geturl())
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE ROLE reader LOGIN")
            ended = proposed(project, "--statements", "none")
            assert ended.code == 2, ended.out
            unread = [line for line in ended.err.splitlines() if "SELECT" in line]
            assert {line.split()[0].rstrip(":") for line in unread} >= {"album", "artist", "track"}
            connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        ended = proposed(project, "--force")
    assert ended.code == 2, ended.err
    assert "GRANT pg_read_all_stats" in ended.err
