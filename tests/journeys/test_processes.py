"""Several processes on one backfill: equal items, killed ones, a driver that dies, one that joins, and what is refused."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from migrator.source.engines.connect import source_url
from tests import pins
from tests.journeys.command import STOPPED, Project, tuned
from tests.journeys.small import small_shop
from tests.journeys.test_cutover_clocks import OFF_S, with_clock
from tests.support_waiting import until

ROWS = 800
PAGES = 2 * (ROWS // 20)


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Rows enough for some hundred pages."""
    made = small_shop(tmp_path, dynamodb_url)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("DELETE FROM invoice")
        connection.execute("DELETE FROM customer")
        connection.executemany("INSERT INTO customer VALUES (?, ?)", [(n, f"N{n}") for n in range(1, ROWS)])
        rows = [(n, n % 30 + 1) for n in range(1, ROWS)]
        connection.executemany("INSERT INTO invoice VALUES (?, ?, 5)", rows)
        connection.commit()
    made.job.write_text(made.job.read_text().replace("tuning: {}", "tuning: {page_rows: 20, workers: 2}"))
    return made


def in_journal(made: Project, question: str) -> list[tuple[object, ...]]:
    named = re.search(r"^journal: '(.+)'$", made.job.read_text(), re.MULTILINE)
    url = source_url(named[1]) if named else f"sqlite:///{made.folder}/.migrator/shop.db"
    engine = sa.create_engine(url, connect_args={} if named else {"timeout": 30})
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(question))]
    finally:
        engine.dispose()


def done_pages(made: Project) -> int:
    with suppress(sa.exc.DBAPIError):  # the journal is being made
        return int(str(in_journal(made, "SELECT count(done_at) FROM migrator_page")[0][0]))
    return 0


def wait_for(made: Project, pages: int) -> None:
    until(lambda: done_pages(made) >= pages, "no page is done")


def children(pid: int) -> Iterator[psutil.Process]:
    for one in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):  # it ends while it is looked at
            if "--part" in " ".join(one.cmdline()):
                yield one


def waits_to_end(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=60)[1]


def slow(made: Project, *, units: int = 300) -> Project:
    """At a rate that lets a test look and kill in between, whatever the machine. `units`: write units a second."""
    made.job.write_text(made.job.read_text().replace("workers: 2", f"workers: 2, max_write_units: {units}"))
    return made


def need_pages(made: Project) -> None:
    """Each page of the last backfill was checkpointed once, and nothing is claimed any more."""
    (run,) = in_journal(made, "SELECT max(id) FROM migrator_run WHERE kind = 'backfill'")
    counts = in_journal(
        made, f"SELECT count(*), count(done_at), sum(rows) FROM migrator_page WHERE run_id = {run[0]}"
    )
    assert counts == [(PAGES, PAGES, 2 * (ROWS - 1))]
    assert in_journal(made, "SELECT * FROM migrator_page_claim") == []


def need_whole(made: Project) -> None:
    """The same, and rows and items say the same."""
    need_pages(made)
    assert made.done("verify", str(made.job), "--json").data["clean"]


def test_the_items_of_two_processes_are_those_of_one(shop: Project) -> None:
    tuned(shop, processes=1).done("backfill", str(shop.job))
    before = sorted(shop.items(), key=repr)
    ended = tuned(shop, processes=2).done("backfill", str(shop.job), "--restart", "--json")
    assert sorted(shop.items(), key=repr) == before
    assert ended.data["total"]["rows"] == 2 * (ROWS - 1)
    assert "process_ended" not in ended.err, ended.err
    need_whole(shop)


def test_killed_process_loses_nothing(shop: Project) -> None:
    process = tuned(slow(shop), processes=3).start("backfill", str(shop.job))
    wait_for(shop, 20)
    for child in list(children(process.pid))[:1]:
        child.kill()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "process_ended" in err
    need_whole(shop)


def test_children_end_with_a_killed_driver_and_a_rerun_continues(shop: Project) -> None:
    process = tuned(slow(shop), processes=2).start("backfill", str(shop.job))
    wait_for(shop, 10)
    started = list(children(process.pid))
    assert len(started) == 1
    process.kill()
    process.communicate()
    assert waits_to_end(started)
    done = done_pages(shop)
    assert done < PAGES
    ended = tuned(shop, processes=2).done("backfill", str(shop.job))
    assert "is resumed" in ended.err
    need_whole(shop)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_with_their_pages_kept(shop: Project, number: signal.Signals) -> None:
    process = tuned(slow(shop), processes=2).start("backfill", str(shop.job))
    wait_for(shop, 10)
    started = list(children(process.pid))
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, pins.said(err)) == (130, True), err
    assert waits_to_end(started)
    assert in_journal(shop, "SELECT * FROM migrator_page_claim") == []
    shop.done("backfill", str(shop.job))
    need_whole(shop)


def two_paused(made: Project, host: Project | None = None) -> tuple[subprocess.Popen[str], ...]:
    """A driver and one that has joined it (on another `host`), both of which wait until the job is resumed."""
    made.done("pace", str(made.job), "--pause")
    driver = made.start("backfill", str(made.job))
    until(lambda: len(at_work(made)) == 1)
    joined = (host or made).start("backfill", str(made.job), "--join")
    until(lambda: len(at_work(made)) == 2)
    return driver, joined


def at_work(made: Project) -> list[dict[str, object]]:
    found: list[dict[str, object]] = made.done("status", str(made.job), "--json").data["operations"][
        "processes"
    ]
    return found


def test_joined_process_has_its_own_line_in_the_status(shop: Project) -> None:
    processes = two_paused(shop)
    assert {one["kind"] for one in at_work(shop)} == {"backfill"}
    shop.done("pace", str(shop.job), "--resume")
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    assert "is done" in err
    need_whole(shop)


def test_hosts_with_clocks_minutes_apart_share_one_run(shop: Project) -> None:
    """The driver's host is ten minutes behind, the other one ten minutes ahead."""
    for process in two_paused(with_clock(shop, -OFF_S), with_clock(shop, OFF_S)):
        if process.poll() is None:
            shop.done("pace", str(shop.job), "--resume")
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    assert "is done" in err
    need_whole(shop)


def test_joined_process_stops_after_the_driver_is_killed(shop: Project) -> None:
    driver, joined = two_paused(shop)
    driver.kill()
    driver.communicate()
    shop.done("pace", str(shop.job), "--resume")
    _, err = joined.communicate(timeout=120)
    assert (joined.returncode, pins.said(err)) == (STOPPED, True), err
    shop.done("backfill", str(shop.job))
    need_whole(shop)


def test_unfit_settings_are_refused_before_anything_starts(shop: Project) -> None:
    job = str(shop.job)
    ended = shop.run("backfill", job, "--join")
    assert (ended.code, pins.said(ended.err, "shop")) == (2, True), ended.err
    assert pins.said(ended.err, "serves")
    for number in ("0", "1000", "two"):
        assert tuned(shop, processes=number).run("backfill", job).code == 2
    assert tuned(shop, processes=2).run("backfill", job, "--dry-run").code == 0
    assert shop.run("backfill", job, "--join", "--restart").code == 2
    shop.job.write_text(
        shop.job.read_text().replace(
            "'${MIGRATOR_SOURCE_URL}'}", "'${MIGRATOR_SOURCE_URL}', max_connections: 5}"
        )
    )
    ended = tuned(shop, processes=3).run("backfill", job)
    assert (ended.code, "source.max_connections is 5" in ended.err, "2 at most" in ended.err) == (
        2,
        True,
        True,
    )
    assert done_pages(shop) == 0
    tuned(shop, processes=2).done("backfill", job)
    need_whole(shop)


@pytest.mark.parametrize("command", ["backfill", "verify"])
def test_host_without_the_runs_journal_is_refused_and_makes_none(shop: Project, command: str) -> None:
    """A second journal would be a trap for the next command."""
    host = shop.folder / "host"
    host.mkdir()
    (host / "far.yaml").write_text(shop.job.read_text())
    shutil.copy(shop.folder / "mapping.yaml", host)
    ended = shop.run(command, str(host / "far.yaml"), "--join")
    assert (ended.code, pins.said(ended.err, "journal")) == (2, True), ended.err
    assert pins.said(ended.err, "several")
    assert not (host / ".migrator").exists()


# ── verify ──


def spoilt(made: Project) -> None:
    """One item less, one other, one too many: what each direction finds."""
    store = made.store()
    client, table = store.client, made.table
    one = {"PK": {"S": "C#7"}, "SK": {"S": "META"}}
    client.delete_item(TableName=table, Key=one)
    client.update_item(
        TableName=table,
        Key={"PK": {"S": "C#8"}, "SK": {"S": "META"}},
        UpdateExpression="SET #n = :n",
        ExpressionAttributeNames={"#n": "name"},
        ExpressionAttributeValues={":n": {"S": "other"}},
    )
    stray = {"PK": {"S": "C#x"}, "SK": {"S": "META"}, "_src": {"S": "customer:[99999]"}}
    client.put_item(TableName=table, Item=stray | {"type": {"S": "Customer"}})


def verified(made: Project, *words: str) -> dict[str, object]:
    ended = made.run("verify", str(made.job), "--restart", "--json", *words)
    assert ended.code in (0, 1), ended.err
    assert "process_ended" not in ended.err, ended.err
    return {name: ended.data[name] for name in ("entities", "findings", "scanned_items", "total", "clean")}


def test_verify_of_several_processes_reports_as_that_of_one(shop: Project) -> None:
    shop.done("backfill", str(shop.job))
    assert verified(tuned(shop, processes=3)) == verified(tuned(shop, processes=None))
    spoilt(shop)
    one, three = verified(shop), verified(tuned(shop, processes=3))
    assert one == three
    assert {"missing", "different", "unexpected"} <= set(three["findings"])  # type: ignore[call-overload]
    assert in_journal(shop, "SELECT * FROM migrator_page_claim") == []
    assert in_journal(shop, "SELECT run_id FROM migrator_page_part") == []
    sample = ("--sample", "10%", "--seed", "4")
    several = verified(tuned(shop, processes=2), *sample)
    assert several == verified(tuned(shop, processes=None), *sample)


def test_each_process_of_a_verify_reads_the_rows_of_source(shop: Project) -> None:
    shop.done("backfill", str(shop.job), "--json")
    words = ["--source", shop.environment["MIGRATOR_SOURCE_URL"]]
    assert verified(tuned(shop, processes=2), *words) == verified(tuned(shop, processes=1), *words)


def slow_rows(made: Project) -> Project:
    """Rows are read at a rate that lets a test look and kill in between: some at once, the others in half a minute."""
    url = "'${MIGRATOR_SOURCE_URL}'"
    made.job.write_text(made.job.read_text().replace(url + "}", url + ", max_rows_per_s: 40}"))
    return made


def quick_rows(made: Project) -> Project:
    made.job.write_text(made.job.read_text().replace(", max_rows_per_s: 40", ""))
    return made


def compared(made: Project) -> int:
    query = "SELECT count(done_at) FROM migrator_page WHERE entity IN ('customer', 'invoice') AND run_id ="
    return int(str(in_journal(made, f"{query} (SELECT id FROM migrator_run WHERE state = 'running')")[0][0]))


def need_compared(made: Project) -> None:
    """Each page of the last run was checkpointed once, and nothing is claimed any more."""
    (run,) = in_journal(made, "SELECT max(id) FROM migrator_run WHERE kind = 'verify'")
    query = "SELECT count(*), count(done_at), sum(rows) FROM migrator_page WHERE entity IN ('customer', 'invoice')"
    assert in_journal(made, f"{query} AND run_id = {run[0]}") == [(PAGES, PAGES, 2 * (ROWS - 1))]
    assert in_journal(made, "SELECT * FROM migrator_page_claim") == []


def test_verify_continues_after_a_killed_process_or_driver(shop: Project) -> None:
    shop.done("backfill", str(shop.job))
    spoilt(shop)
    wanted = verified(shop)
    process = tuned(slow_rows(shop), processes=3).start("verify", str(shop.job), "--restart", "--json")
    until(lambda: compared(shop) >= 20)
    next(children(process.pid)).kill()
    until(lambda: compared(shop) >= 24)
    started = list(children(process.pid))
    process.kill()
    process.communicate()
    assert waits_to_end(started)
    done = compared(shop)
    assert done < PAGES
    ended = tuned(quick_rows(shop), processes=2).run("verify", str(shop.job), "--json")
    assert "is resumed" in ended.err, ended.err
    assert {name: ended.data[name] for name in wanted} == wanted
    need_compared(shop)


def test_another_process_joins_a_verify(shop: Project) -> None:
    shop.done("backfill", str(shop.job))
    ended = shop.run("verify", str(shop.job), "--join")
    assert (ended.code, pins.said(ended.err, "shop")) == (2, True), ended.err
    driver = tuned(slow_rows(shop), processes=1).start("verify", str(shop.job), "--json")
    until(lambda: compared(shop) >= 5)
    joined = shop.start("verify", str(shop.job), "--join")
    until(lambda: len(in_journal(shop, "SELECT DISTINCT who FROM migrator_page_claim")) == 2)
    other = shop.run("backfill", str(shop.job), "--join")
    assert (other.code, pins.said(other.err, "backfill")) == (2, True), other.err
    for process in (driver, joined):
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    assert "is done" in err
    need_compared(shop)
