"""What a person at night sees of a job's processes, and how they are slowed, paused and let go while they are at work."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from migrator.cli.lag import lag_line
from migrator.mapping.model.live import MarksState
from tests import pins
from tests.forking import Python
from tests.journeys.command import Project
from tests.journeys.cutover import cutover_shop
from tests.support_prometheus import LIMIT_S, until
from tests.support_worlds import prepared


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return prepared(cutover_shop(tmp_path, dynamodb_url), "table create", "capture install", "backfill")


def rename(shop: Project, name: str) -> None:
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
        source.execute("UPDATE customer SET name = ? WHERE id < 5", (name,))
        source.commit()


def operations(shop: Project) -> dict[str, Any]:
    data: dict[str, Any] = shop.done("status", str(shop.job), "--json").data["operations"]
    return data


def standings(shop: Project) -> list[str]:
    return [process["standing"] for process in operations(shop)["processes"]]


def waiting(shop: Project) -> int:
    return int(shop.done("status", str(shop.job), "--json").data["live"]["marks"]["waiting"])


def test_marks_of_another_job_are_not_waited_for(tmp_path: Path, dynamodb_url: str) -> None:
    """No command advises a relay, which would be refused."""
    shop = cutover_shop(tmp_path, dynamodb_url)
    shop.job.write_text(f"{shop.job.read_text()}\njournal: sqlite:///{tmp_path}/both.db\n")
    other = tmp_path / "other.yaml"
    other.write_text(shop.job.read_text().replace(shop.table, f"{shop.table}2"))
    for job in (shop.job, other):
        shop.done("table", "create", str(job))
        shop.done("backfill", str(job))
    shop.done("capture", "install", str(other))
    rename(shop, "Ada")
    assert shop.done("status", str(shop.job), "--json").data["live"]["marks"] is None
    for command in (["status"], ["verify"], ["report"], ["capture", "status"]):
        ended = shop.run(*command, str(shop.job))
        assert ended.code in (0, 1), ended.err
        said = " ".join((ended.out + ended.err).split())
        assert "captured for job other" in said
        assert "`migrator relay" not in said


def test_an_idle_job_takes_six_lines(shop: Project) -> None:
    said = shop.done("status", str(shop.job)).out.splitlines()
    assert [line.split()[0] for line in said] == ["lag", "rate", "left", "failure", "pace", "alive"]
    assert said[5] == pins.text()


def test_a_backlog_is_shown_in_rows_and_in_changes(shop: Project) -> None:
    for name in ("Ada", "Bea", "Cid"):
        rename(shop, name)
    marks = shop.done("status", str(shop.job), "--json").data["live"]["marks"]
    assert (marks["waiting"], marks["rows"]) == (12, 4)
    assert shop.done("status", str(shop.job)).out.startswith("lag      12 changes of 4 rows wait")


def test_runs_and_the_journal_are_shown_with_runs(shop: Project) -> None:
    said = shop.done("status", str(shop.job), "--all").out
    assert "backfill" in said
    assert "\njournal: " in said


def test_status_never_claims_capture_while_marks_are_missing(shop: Project) -> None:
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
        (name,) = source.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' LIMIT 1").fetchone()
        source.execute(f"DROP TRIGGER {name}")
        source.commit()
    captured = lag_line(MarksState(), {})
    assert captured not in shop.done("status", str(shop.job), "--all").out
    watch = shop.start("status", str(shop.job), "--watch", "0.2s")
    assert watch.stdout is not None
    lines = [watch.stdout.readline() for _ in range(2)]
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=LIMIT_S)
    assert captured not in lines[1]


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process can grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_relay_that_is_at_work_is_paused_and_resumes(shop: Project) -> None:
    job = str(shop.job)
    with shop.beside("relay", job):
        until(lambda: standings(shop) == ["idle"], "the relay is idle")
        paused = shop.done("pace", job, "--pause", "--reason", "INC-7", "--who", "ops").out
        assert paused == pins.text("paused")
        assert pins.said(paused, "hear")
        until(lambda: standings(shop) == ["held"], "the relay is held")
        rename(shop, "Ada")
        assert waiting(shop) == 4
        said = shop.done("status", job).out
        assert "held; paused by ops (INC-7)" in said
        assert pins.said(said, "resume", job=job)
        shop.done("pace", job, "--resume")
        until(lambda: waiting(shop) == 0, "the marks are worked")
    assert operations(shop)["processes"] == []


def test_relay_paused_before_it_began_waits_and_stops(shop: Project) -> None:
    shop.done("pace", str(shop.job), "--pause", "--who", "ops")
    rename(shop, "Ada")
    relay = shop.start("relay", str(shop.job))
    until(lambda: standings(shop) == ["held"], "the relay is held")
    relay.send_signal(signal.SIGINT)
    _, err = relay.communicate(timeout=LIMIT_S)
    assert relay.returncode == 0, err
    once = shop.run("relay", str(shop.job), "--once")
    assert once.code == 3
    assert pins.said(once.err, "paused by ops")
    assert waiting(shop) == 4


def test_a_process_that_was_killed_is_dead_at_once(shop: Project) -> None:
    relay = shop.start("relay", str(shop.job))
    until(lambda: standings(shop) == ["idle"], "the relay is idle")
    relay.kill()
    relay.communicate(timeout=LIMIT_S)
    assert standings(shop) == ["dead"]
    assert shop.done("pace", str(shop.job), "--json").data["processes"] == 0
    assert pins.said(shop.done("status", str(shop.job)).out)


def test_wrong_or_missing_load_query_is_reported_at_the_start(shop: Project) -> None:
    there = shop.job.read_text()
    shop.job.write_text(
        there.replace("tuning: {", "tuning: {max_source_load: 1, source_load_query: SELECT x FROM nowhere, ")
    )
    ended = shop.run("relay", str(shop.job), "--once")
    assert ended.code == 3
    assert pins.said(ended.err, "load")
    shop.job.write_text(there.replace("tuning: {", "tuning: {max_source_load: 1, "))
    ended = shop.run("relay", str(shop.job), "--once")
    assert ended.code == 2
    assert pins.said(ended.err, "ours")
    assert "tuning.source_load_query" in ended.err


def test_a_strained_source_holds_the_relay_until_it_is_relieved(shop: Project) -> None:
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
        source.execute("CREATE TABLE strain (n INTEGER)")
        source.execute("INSERT INTO strain VALUES (31)")
        source.commit()
    question = "max_source_load: 25, source_load_query: SELECT n FROM strain"
    shop.job.write_text(shop.job.read_text().replace("tuning: {", f"tuning: {{{question}, "))
    with shop.beside("relay", str(shop.job)):
        until(lambda: standings(shop) == ["held"], "the relay is held")
        (process,) = operations(shop)["processes"]
        assert process["held"] == pins.text()
        rename(shop, "Ada")
        assert waiting(shop) == 4
        with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
            source.execute("UPDATE strain SET n = 25")
            source.commit()
        until(lambda: waiting(shop) == 0, "the marks are worked")


def test_wrong_use_is_reported(shop: Project) -> None:
    job = str(shop.job)
    assert "--off goes without" in shop.run("pace", job, "--off", "--max-write-units", "5").err
    assert shop.run("pace", job, "--max-write-units", "0").code == 2
    assert pins.said(shop.run("pace", job, "--pause", "--reason", "a\nb").err, "letters")
    assert pins.said(shop.run("pace", job, "--pause", "--reason", "x" * 201).err, "line")
    assert "--watch goes alone" in shop.run("status", job, "--watch", "--json").err
    assert shop.done("pace", job).out == pins.text("job")


# ── --watch ──


def test_status_watch_without_a_terminal_reprints_and_exits_0(shop: Project) -> None:
    watch = shop.start("status", str(shop.job), "--watch", "0.2s")
    assert watch.stdout is not None
    heads = 0
    while heads < 3:
        line = watch.stdout.readline()
        assert line
        heads += line.startswith("job shop, ")
    watch.send_signal(signal.SIGINT)
    _, err = watch.communicate(timeout=LIMIT_S)
    assert (watch.returncode, "Traceback" in err) == (0, False)


def test_a_watch_on_a_terminal_is_drawn_at_one_place(shop: Project) -> None:
    ours, theirs = pty.openpty()
    words = ["-m", "migrator", "status", shop.job, "--watch", "0.2s"]
    environment = shop.environment | {"TERM": "xterm", "COLUMNS": "100"}
    with Python(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=shop.folder) as watch:
        os.close(theirs)
        shown = b""
        while shown.count(b"job shop, ") < 3:
            shown += os.read(ours, 65536)
        watch.send_signal(signal.SIGINT)
        # To the end: a terminal that nobody reads lets no process end that still writes to it.
        with suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
        assert watch.wait(LIMIT_S) == 0
    os.close(ours)
    assert b"\x1b[1A" in shown  # the cursor goes up, and the lines are drawn anew
    assert b"Traceback" not in shown


def test_additions_leave_what_was_there(shop: Project) -> None:
    data = json.loads(shop.done("status", str(shop.job), "--json").out)
    assert {"job", "journal", "runs", "live"} < data.keys()
    assert {"marks", "reason", "writers", "mapping", "instances", "table_away"} <= data["live"].keys()
