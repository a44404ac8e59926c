"""Processes of a run that are killed at a step of a page: the run ends whole, by a journal in a file and on PostgreSQL."""

from __future__ import annotations

from tests import pins
from tests.journeys.command import ROOT, Project, tuned
from tests.journeys.test_processes import (
    compared,
    in_journal,
    need_compared,
    need_whole,
    slow_rows,
)
from tests.journeys.test_processes import shop as shop
from tests.support_waiting import until

STEPS = {
    "claim": "SqlJournal.claim_pages:1",
    "read": "SqlSource.read_raw:1",
    "write": "DynamoStore.put:1",
    "checkpoint": "SqlJournal.finish_page:1",
    "release": "SqlJournal.release_pages:1",
}
"""Of a page, and after which of its calls a process is killed."""
STEPS_OF_VERIFY = {
    "claim": "SqlJournal.claim_pages:1",
    "scan": "DynamoStore.scan_text:1",
    "read": "SqlSource.read_raw:1",
    "checkpoint": "SqlJournal.finish_page:1",
}


def killing(made: Project, step: str, waits: str = "") -> None:
    """From now on each process that another one starts is killed at this step. `waits`: see tests/faults/killing."""
    path = f"{ROOT / 'tests' / 'faults' / 'killing'}:{ROOT}"
    made.environment.update(
        {"PYTHONPATH": path, "MIGRATOR_TEST_KILL": step, "MIGRATOR_TEST_KILL_WAITS": waits}
    )


def need_backfill_survives(made: Project, step: str) -> None:
    """Both processes are there before a page is written."""
    killing(made, STEPS[step])
    made.done("pace", str(made.job), "--pause")
    driver = tuned(made, processes=2).start("backfill", str(made.job), "--restart")
    listed = "SELECT count(*) FROM migrator_record WHERE kind = 'process' AND value LIKE '%\"state\":{%'"
    until(lambda: in_journal(made, listed) == [(2,)])
    made.done("pace", str(made.job), "--resume")
    _, err = driver.communicate(timeout=300)
    assert driver.returncode == 0, err
    assert ("process_ended" in err) == (step != "release"), err
    need_whole(made)


def need_verify_survives(made: Project, step: str) -> None:
    """The first process leaves something to the other one, however late that one comes."""
    killing(made, STEPS_OF_VERIFY[step], str(made.folder / "killed"))
    driver = tuned(made, processes=2).start("verify", str(made.job), "--restart", "--json")
    _, err = driver.communicate(timeout=300)
    assert driver.returncode == 0, err
    assert "process_ended" in err
    need_compared(made)


def test_so_it_is_with_a_journal_on_postgresql_and_a_new_driver(
    shop: Project, postgres_database: str
) -> None:
    shop.job.write_text(f"{shop.job.read_text()}\njournal: '{postgres_database}'\n")
    need_backfill_survives(shop, "write")
    shop.environment["MIGRATOR_TEST_KILL"] = ""
    wanted = shop.done("verify", str(shop.job), "--json").data["total"]
    driver = tuned(slow_rows(shop), processes=1).start("verify", str(shop.job), "--restart")
    until(lambda: compared(shop) >= 3)
    joined = shop.start("verify", str(shop.job), "--join")
    until(lambda: len(in_journal(shop, "SELECT DISTINCT who FROM migrator_page_claim")) == 2)
    driver.kill()
    driver.communicate()
    _, err = joined.communicate(timeout=120)
    assert (joined.returncode, pins.said(err)) == (3, True), err
    ended = tuned(shop, processes=2).done("verify", str(shop.job), "--json")
    assert "is resumed" in ended.err
    assert ended.data["total"] == wanted
    need_compared(shop)
