"""What `--spark` refuses before anything starts, with what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import small_shop
from tests.journeys.test_processes import in_journal
from tests.nightly.spark.shop import by_spark

SPARK = ("--spark", "local[2]")


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return small_shop(tmp_path, dynamodb_url)


@pytest.fixture
def with_server_journal(shop: Project, postgres_database: str) -> Project:
    shop.job.write_text(f"{shop.job.read_text()}\njournal: '{postgres_database}'\n")
    return shop


def java(folder: Path, line: str) -> str:
    """A home of a Java that says this of itself."""
    program = folder / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    program.chmod(0o755)
    return str(folder / "java")


@pytest.mark.parametrize("command", ["backfill", "verify"])
def test_a_journal_in_a_file_is_refused_before_a_run_begins(shop: Project, command: str) -> None:
    ended = shop.run(*by_spark(command, shop))
    assert ended.code == 2
    assert pins.said(ended.err)
    assert "`journal:`" in ended.err
    assert in_journal(shop, "SELECT count(*) FROM migrator_run") == [(0,)]


def need_refused(made: Project, *said: str) -> None:
    ended = made.run(*by_spark("backfill", made))
    assert ended.code == 2, ended.err
    for text in said:
        assert text in ended.err
    assert in_journal(made, "SELECT count(*) FROM migrator_run") == [(0,)]


def test_java_that_is_missing_is_reported(with_server_journal: Project, tmp_path: Path) -> None:
    with_server_journal.environment["JAVA_HOME"] = str(tmp_path / "nothing")
    need_refused(with_server_journal, "which has no Java", "install Java 17", "tuning.processes")
    with_server_journal.environment.update({"JAVA_HOME": "", "PATH": ""})
    need_refused(with_server_journal, "no java on the PATH")


@pytest.mark.parametrize(
    ("line", "number"), [('openjdk version "11.0.2"', 11), ('java version "1.8.0_9"', 8)]
)
def test_java_that_is_too_old_is_reported(
    with_server_journal: Project, tmp_path: Path, line: str, number: int
) -> None:
    with_server_journal.environment["JAVA_HOME"] = java(tmp_path, line)
    need_refused(with_server_journal, f"is Java {number}, and Spark needs 17")


def test_missing_pyspark_is_reported_with_its_extra(
    with_server_journal: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with_server_journal.environment["JAVA_HOME"] = java(tmp_path, 'openjdk version "17.0.1"')
    need_refused(with_server_journal, "which the extra spark is, cannot be imported", "run: pip install")


@pytest.mark.parametrize("command", ["backfill", "verify"])
def test_options_of_one_host_do_not_go_with_spark(shop: Project, command: str) -> None:
    for unfit in (("--workers", "3"), ("--join",)):
        ended = shop.run(command, str(shop.job), *SPARK, *unfit)
        assert (ended.code, pins.said(ended.err, "goes", unfit=unfit[0])) == (2, True), ended.err


def test_a_session_without_a_master_is_refused(with_server_journal: Project) -> None:
    ended = with_server_journal.run("backfill", str(with_server_journal.job), "--spark", "submit")
    assert (ended.code, pins.said(ended.err)) == (2, True), ended.err
