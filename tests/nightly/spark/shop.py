"""A shop of some eighty pages with a journal on a server, and a job that Spark works."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from migrator.runtime.values import replace
from tests.journeys.command import Project
from tests.journeys.small import small_shop
from tests.journeys.test_processes import ROWS, done_pages, in_journal

SLOTS = 2


def large_shop(folder: Path, endpoint: str, journal: str, environment: Mapping[str, str]) -> Project:
    made = small_shop(folder, endpoint)
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.execute("DELETE FROM invoice")
        connection.execute("DELETE FROM customer")
        connection.executemany("INSERT INTO customer VALUES (?, ?)", [(n, f"N{n}") for n in range(1, ROWS)])
        rows = [(n, n % 30 + 1) for n in range(1, ROWS)]
        connection.executemany("INSERT INTO invoice VALUES (?, ?, 5)", rows)
        connection.commit()
    text = made.job.read_text().replace("tuning: {}", "tuning: {page_rows: 20, workers: 2}")
    made.job.write_text(f"{text}\njournal: '{journal}'\n")
    made.environment.update(environment)
    return replace(made, own_process=True)


def by_spark(command: str, made: Project, *words: str, master: str = f"local[{SLOTS},4]") -> list[str]:
    return [command, str(made.job), "--spark", master, *words]


def await_pages(made: Project, pages: int) -> None:
    """Spark takes its time to start on a busy host."""
    ends_at = time.monotonic() + 600
    while done_pages(made) < pages:
        assert time.monotonic() < ends_at, "no page is done"
        time.sleep(0.05)


def await_processes(made: Project, processes: int) -> None:
    """As many as there are slots work at the run; executors start one after the other."""
    ends_at = time.monotonic() + 600
    spends = "SELECT id FROM migrator_record WHERE kind = 'process' AND value LIKE '%\"scope\":\"run %'"
    while len(in_journal(made, spends)) < processes:
        assert time.monotonic() < ends_at, "a process a slot"
        time.sleep(0.05)


def latest(made: Project, kind: str) -> int:
    (row,) = in_journal(made, f"SELECT max(id) FROM migrator_run WHERE kind = '{kind}'")
    return int(str(row[0]))


def pages_once(made: Project, kind: str) -> tuple[object, ...]:
    """Pages of entities of the latest run: all, done, and their rows."""
    (row,) = in_journal(
        made,
        f"SELECT count(*), count(done_at), sum(rows) FROM migrator_page"
        f" WHERE run_id = {latest(made, kind)} AND entity NOT LIKE '(%'",
    )
    return row
