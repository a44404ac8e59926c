"""Ctrl-C in commands at work: what they say is true, and the same command goes on as they say."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import click
import pytest

from migrator.main import cli, run
from migrator.settings import job as job_settings
from migrator.stages.session import job as job_wiring
from tests import pins
from tests.forking import Python
from tests.journeys.command import Project
from tests.journeys.cutover import change, cutover_shop, filled
from tests.journeys.small import small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """With pages of one row, so that a command is at work long enough to be stopped."""
    made = small_shop(tmp_path, dynamodb_url)
    made.job.write_text(made.job.read_text().replace("tuning: {}", "tuning: {page_rows: 1, workers: 1}"))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as service:
        service.executemany("INSERT INTO customer VALUES (?, 'x')", [(n,) for n in range(1000, 2000)])
        service.commit()
    return made


def stopped(shop: Project, *words: str) -> str:
    """What the command says that was stopped after its first page."""
    process = shop.start(*words, "--verbose")
    while "page_done" not in (line := process.stderr.readline()):  # type: ignore[union-attr]
        assert line, "the command ended before its first page"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert (process.returncode, "Traceback" in err) == (130, False), err[-2000:]
    return next(line for line in err.splitlines() if line.startswith("error: "))


def test_stopped_backfill_reports_its_writes_and_continues(shop: Project) -> None:
    said = stopped(shop, "backfill", str(shop.job), "--workers", "1")
    found = re.search(
        r"stopped; (?P<rows>[\d,]+) rows? of (?P<pages>[\d,]+) pages? written, which stay", said
    )
    assert found, said
    assert pins.said(said, job=shop.job)
    (run,) = shop.done("status", str(shop.job), "--json").data["runs"]
    assert int(found["rows"].replace(",", "")) == run["tally"]["rows"] == run["pages_done"]


def test_a_dry_run_reports_that_it_keeps_nothing(shop: Project) -> None:
    assert pins.said(stopped(shop, "backfill", str(shop.job), "--dry-run"))
    assert shop.items() == []


def test_stopped_verify_reports_its_progress_and_continues(shop: Project) -> None:
    said = stopped(shop, "verify", str(shop.job))
    assert re.search(r"nothing was changed, and [\d,]+ of 1,0\d\d planned pages compared", said), said
    assert pins.said(said, "hour")
    assert pins.said(stopped(shop, "verify", str(shop.job), "--restart"), "within")
    drawn = stopped(shop, "verify", str(shop.job), "--sample", "99%")
    assert re.search(r"with --seed \d+ it resumes within the hour", drawn), drawn


def test_a_relay_that_runs_once_has_not_looked_at_every_mark(tmp_path: Path, dynamodb_url: str) -> None:
    shop = filled(cutover_shop(tmp_path, dynamodb_url))
    shop.job.write_text(shop.job.read_text().replace("lease_s: 1", "lease_s: 3600"))
    change(shop, "UPDATE customer SET name = 'x' WHERE id = 2")
    with job_wiring.open_live(job_settings.load_job(shop.job, shop.environment), "test") as live:
        assert len(live.marks.take(10, 3600)) == 1
    process = shop.start("relay", str(shop.job), "--once", "--log-format", "json")
    while "relay_lag" not in (line := process.stderr.readline()):  # type: ignore[union-attr]
        assert line, "the relay ended before it looked"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, pins.said(out, "worked")) == (130, True), err[-2000:]
    assert pins.said(err, "goes", job=shop.job)


def test_ctrl_c_at_a_question_changes_nothing(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url)
    shop.done("backfill", str(shop.job))
    keyboard, typed = pty.openpty()
    process = Python(
        ["-m", "migrator", "clean", "--all-items", shop.job],
        cwd=shop.folder,
        env=shop.environment,
        stdin=typed,
        stderr=subprocess.PIPE,
    )
    try:
        said = ""
        while "from table" not in said or "?" not in said:
            letter = process.stderr.read(1)  # type: ignore[union-attr]
            assert letter, said
            said += letter
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
    finally:
        process.kill()
        os.close(keyboard)
        os.close(typed)
    assert (process.returncode, pins.said(err)) == (130, True), err
    assert len(shop.items()) == 150


def test_ctrl_c_outside_a_command_claims_nothing_unchanged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a command has begun to take it, or after its end, when something may have been written."""

    def cut_off(**_: object) -> None:
        raise click.Abort

    monkeypatch.setattr(cli, "main", cut_off)
    assert run(["backfill", "shop.yaml"]) == 130
    assert pins.said(capsys.readouterr().err)
