"""Live change when something is wrong around it: each a clear line and the right exit code, and nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.stages.live import refresh
from migrator.stages.session import session
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.journeys.command import Project
from tests.journeys.cutover import change, clean, marks
from tests.journeys.small import MAPPING, small_shop
from tests.support_services import free_port
from tests.support_waiting import until
from tests.support_worlds import prepared

ATTEMPTS = 3
TUNING = f"request_life_s: 0.5, silent_s: 20, lease_s: 1, attempts: {ATTEMPTS}, backoff_cap_s: 0.1"
LIVE = MAPPING.replace("type: type", "type: type, ttl: expiresAt")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str, faults: Faults) -> Iterator[Project]:
    """Captured and filled; DynamoDB stands behind the faults."""
    with FaultProxy(dynamodb_url, faults) as proxy:
        made = small_shop(tmp_path, proxy.url, create=False)
        made.job.write_text(made.job.read_text().replace("tuning: {}", f"tuning: {{{TUNING}}}"))
        (tmp_path / "mapping.yaml").write_text(LIVE)
        prepared(made, "table create", "capture install", "backfill")
        yield made


def ended(relay: subprocess.Popen[str], sign: int = signal.SIGTERM) -> tuple[int, str, str]:
    relay.send_signal(sign)
    out, err = relay.communicate(timeout=120)
    assert "Traceback" not in err, err
    return relay.returncode, out, err


RENAME = "UPDATE customer SET name = 'other' WHERE id = 1"


def test_dynamodb_is_down_for_a_while(shop: Project, faults: Faults) -> None:
    job, relay = str(shop.job), shop.start("relay", str(shop.job))
    change(shop, "UPDATE customer SET name = 'before' WHERE id = 2")
    until(lambda: marks(shop) == 0)
    faults.unavailable = 1.0
    change(shop, RENAME, "DELETE FROM invoice WHERE id = 7")
    once = shop.run("relay", job, "--once")
    assert once.code == 3
    assert pins.said(once.err, "gave")
    asked = faults.counts["unavailable"]
    until(lambda: relay.poll() is not None or faults.counts["unavailable"] > asked + 2 * ATTEMPTS)
    assert (relay.poll(), marks(shop)) == (None, 2)
    faults.unavailable = 0.0
    until(lambda: marks(shop) == 0)
    code, out, err = ended(relay)
    assert (code, pins.said(out, "worked"), "relay_failed" in err) == (0, True, True)
    assert clean(shop)


def test_relay_notifies_hooks_of_pending_marks(shop: Project) -> None:
    out = shop.folder / "events"
    hooks = f"\ncutover: {{lag_max_s: 0.1}}\nhooks: [{{on: [lag_high], command: 'cat > {out}'}}]\n"
    shop.job.write_text(shop.job.read_text() + hooks)
    numbers = "WITH RECURSIVE n (id) AS (SELECT 1000 UNION ALL SELECT id + 1 FROM n WHERE id < 1300)"
    change(shop, f"INSERT INTO customer (id, name) {numbers} SELECT id, 'new' FROM n")
    change(shop, "UPDATE migrator_mark SET changed_at = changed_at - 1")
    shop.done("relay", str(shop.job), "--once")
    assert {"event": "lag_high", "limit_s": 0.1}.items() <= json.loads(out.read_text()).items()


def test_status_shows_how_far_items_are_behind(shop: Project) -> None:
    job = str(shop.job)
    assert "no change is pending" in shop.done("status", job).out
    change(shop, RENAME, "UPDATE migrator_mark SET changed_at = changed_at - 1")
    live = shop.done("status", job, "--json").data["live"]
    assert (live["marks"]["waiting"], live["marks"]["failed"], live["writers"]) == (1, 0, [])
    assert 1 <= live["marks"]["oldest_age_s"] < 60
    relay = shop.start("relay", job)
    until(lambda: marks(shop) == 0)
    until(lambda: "writers with a recent heartbeat: 1 relay\n" in shop.done("status", job, "--all").out)
    assert ended(relay)[0] == 0
    data = shop.done("status", job, "--json").data
    (run,) = [one for one in data["runs"] if one["kind"] == "relay"]
    assert run["tally"]["rows"] >= 1
    assert run["tally"]["items"] >= 1
    assert (run["pages_done"], run["pages_planned"]) == (0, 0)
    (shop.folder / "shop.db").rename(shop.folder / "away.db")
    gone = shop.done("status", job)
    assert "backfill" in gone.out
    assert pins.said(gone.out, "asked")


def test_status_reports_dynamodb_outage_and_shows_the_journal(shop: Project) -> None:
    job = str(shop.job)
    assert "DynamoDB cannot be asked" not in shop.done("status", job).out
    assert shop.done("status", job, "--json").data["live"]["table_away"] == ""
    shop.job.write_text(shop.job.read_text().replace(shop.endpoint, f"http://127.0.0.1:{free_port()}"))
    away = shop.done("status", job)
    assert len([line for line in away.out.splitlines() if "DynamoDB cannot be asked: " in line]) == 1
    assert "backfill" in away.out
    assert pins.said(away.out)
    assert shop.done("status", job, "--json").data["live"]["table_away"]


def test_a_relay_needs_capture(shop: Project) -> None:
    job = str(shop.job)
    change(shop, "DROP TABLE migrator_mark")
    no_marks = shop.run("relay", job, "--once")
    assert (no_marks.code, pins.said(no_marks.err, "install", job=job)) == (3, True)
    again = shop.done("capture", "install", job)
    assert (pins.said(again.err, "marks"), "captured, from now on" in again.out) == (True, True)
    change(shop, RENAME, "UPDATE migrator_ticket SET version = 99")
    other = shop.run("relay", job, "--once")
    assert other.code == 3
    assert pins.said(other.err, "needs", job=job)
    assert marks(shop) == 1
    change(shop, "UPDATE migrator_ticket SET version = 1")
    shop.done("capture", "uninstall", job, "--discard-marks")
    none = shop.run("relay", job, "--once")
    assert (none.code, pins.said(none.err, "installed")) == (2, True)
    assert shop.run("relay", job, "--dry-run").code == 2


def test_a_relay_needs_its_table(shop: Project) -> None:
    change(shop, RENAME)
    away = shop.job.with_name("away.yaml")
    away.write_text("name: shop\n" + shop.job.read_text().replace(shop.table, "Nowhere"))
    shop.done("recover", str(away), "renamed")
    none = shop.run("relay", str(away), "--once")
    assert (none.code, pins.said(none.err, away=away)) == (
        2,
        True,
    )
    assert marks(shop) == 1


def test_the_marks_of_one_job_are_not_anothers(shop: Project) -> None:
    change(shop, RENAME)
    other = shop.job.with_name("other.yaml")
    other.write_text(shop.job.read_text().replace(shop.table, "Other" + shop.table))
    shop.done("table", "create", str(other))
    for words in (["relay", "--once"], ["capture", "install"], ["verify", "--repair"]):
        refused = shop.run(words[0], *words[1:], str(other))
        assert (refused.code, pins.said(refused.err)) == (2, True), words
    assert marks(shop) == 1


def test_a_mapping_changes_while_marks_wait(shop: Project) -> None:
    job = str(shop.job)
    change(shop, RENAME, "UPDATE invoice SET total = 6 WHERE id = 1", "DELETE FROM invoice WHERE id = 2")
    (shop.folder / "mapping.yaml").write_text(LIVE.partition("  invoice:")[0])
    ended = shop.run("relay", job, "--once")
    assert ended.code == 1
    assert pins.said(ended.out, "worked")
    assert pins.said(ended.out, "failed")
    assert pins.said(shop.done("status", "--findings", job).out, "reads")
    assert shop.done("status", job, "--json").data["live"]["marks"]["failed"] == 2
    (shop.folder / "mapping.yaml").write_text(LIVE)
    assert pins.said(shop.run("relay", job, "--once").err, "gone")
    shop.done("recover", job, "older-mapping")
    until(lambda: "0 changes left" in shop.run("relay", job, "--once").out)
    assert clean(shop)


def test_a_captured_table_is_dropped_under_a_relay(shop: Project) -> None:
    job, relay = str(shop.job), shop.start("relay", str(shop.job))
    change(shop, RENAME)
    until(lambda: marks(shop) == 0)
    change(
        shop,
        "UPDATE invoice SET total = 6 WHERE id = 1",
        "DROP TABLE invoice",
        "UPDATE customer SET name = 'x'",
    )
    until(lambda: marks(shop) <= 1)
    assert ended(relay)[0] == 0
    again = shop.run("relay", job, "--once")
    assert (again.code, "invoice" in again.err) == (2, True)
    (shop.folder / "mapping.yaml").write_text(LIVE.partition("  invoice:")[0])
    change(shop, RENAME)
    assert shop.run("relay", job, "--once").code == 1
    names = {item["name"] for item in shop.items() if item["type"] == "Customer"}
    assert names == {"x", "other"}


def test_a_relay_may_be_there_before_the_first_backfill(shop: Project) -> None:
    job, name = str(shop.job), shop.table
    shop.job.write_text(shop.job.read_text().replace(name, f"{name}B"))
    shop.done("recover", job, "renamed")
    shop.done("table", "create", job)
    change(shop, RENAME)
    shop.done("relay", job, "--once")
    assert "path: conditional" in shop.done("backfill", job).err
    assert clean(shop)


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_clock_that_jumps_loses_nothing(shop: Project, hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the machine that a relay is on: it makes the times of tombstones, and nothing else."""
    job = str(shop.job)
    change(shop, "UPDATE invoice SET customer_id = 30 WHERE id = 1", "DELETE FROM customer WHERE id = 3")
    ahead = refresh.Refresh
    monkeypatch.setattr(
        session,
        "Refresh",
        lambda **words: ahead(**{**words, "clock": lambda: time.time() + 3600 * hours}),
    )
    shop.done("relay", job, "--once")
    monkeypatch.undo()
    change(
        shop, "UPDATE invoice SET customer_id = 2 WHERE id = 1", "INSERT INTO customer VALUES (3, 'again')"
    )
    shop.done("relay", job, "--once")
    shop.done("clean", "--tombstones", job)
    assert (marks(shop), clean(shop)) == (0, True)
