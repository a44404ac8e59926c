"""A mapping changes while capture is on: writers by the old one are told, stopped and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.stages.cutover.evidence import Unknown
from migrator.stages.session.evidence import gatherer_of
from migrator.stages.session.session import JobSession
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import change, clean, marks
from tests.journeys.small import MAPPING, small_shop
from tests.support_waiting import until
from tests.support_worlds import prepared

pytestmark = pytest.mark.slow

TUNING = "request_life_s: 0.5, silent_s: 20, lease_s: 1, attempts: 3, backoff_cap_s: 0.1"
BEFORE = MAPPING.replace("type: type", "type: type, ttl: expiresAt")
AFTER = BEFORE.replace("keep: [name]", "keep: [name, city]")
RENAME = "UPDATE customer SET name = 'changed' WHERE id = 1"


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Captured and filled by the mapping of before; a relay has worked. `old.yaml` is the job on another host, where
    the mapping does not change."""
    made = small_shop(tmp_path, dynamodb_url, create=False)
    text = made.job.read_text().replace("tuning: {}", f"tuning: {{{TUNING}}}\nname: shop")
    made.job.write_text(text)
    old_host(made).write_text(text.replace("mapping.yaml", "before.yaml"))
    for name in ("mapping.yaml", "before.yaml"):
        (tmp_path / name).write_text(BEFORE)
    prepared(made, "table create", "capture install", "backfill", "relay --once")
    change(made, "ALTER TABLE customer ADD COLUMN city TEXT DEFAULT 'Rome'")
    return made


def old_host(shop: Project) -> Path:
    return shop.job.with_name("old.yaml")


def cities(shop: Project) -> set[object]:
    return {one.get("city") for one in shop.items() if one["type"] == "Customer"}


def go_on(shop: Project) -> None:
    """What docs/schema-changes.md says of a column that comes, but for the relays."""
    (shop.folder / "mapping.yaml").write_text(AFTER)
    shop.done("capture", "install", str(shop.job))


def test_relay_of_the_old_mapping_is_refused_and_deletes_nothing(shop: Project) -> None:
    job, old = str(shop.job), str(old_host(shop))
    go_on(shop)
    shop.done("backfill", job)
    assert cities(shop) == {"Rome"}
    change(shop, RENAME)
    for words in (["relay", "--once"], ["backfill"], ["backfill", "--restart"], ["capture", "install"]):
        refused = shop.run(*words, old)
        assert (refused.code, pins.said(refused.err, old=old)) == (2, True), words
    assert (marks(shop), cities(shop)) == (1, {"Rome"})
    shop.done("relay", job, "--once")
    assert (marks(shop), cities(shop), clean(shop)) == (0, {"Rome"}, True)


def test_running_relay_ends_if_the_job_advances_and_marks_wait(shop: Project) -> None:
    job, relay = str(shop.job), shop.start("relay", str(old_host(shop)))
    change(shop, RENAME)
    until(lambda: marks(shop) == 0)
    go_on(shop)
    _, err = relay.communicate(timeout=120)
    assert (relay.returncode, pins.said(err)) == (2, True)
    change(shop, RENAME.replace("changed", "again"))
    assert marks(shop) == 1
    shop.done("backfill", job)
    shop.done("relay", job, "--once")
    assert (marks(shop), cities(shop), clean(shop)) == (0, {"Rome"}, True)


@pytest.mark.parametrize("words", [("backfill",), ("relay", "--once")])
def test_unused_mapping_becomes_the_newest_and_is_reported(shop: Project, words: tuple[str, ...]) -> None:
    """Where the column's table is captured already, no install is needed."""
    job, old = str(shop.job), str(old_host(shop))
    for name in ("mapping.yaml", "before.yaml"):
        (shop.folder / name).write_text(BEFORE.replace("keep: [total]", "keep: [total, customer_id]"))
    shop.done("capture", "install", job)
    shop.done("relay", job, "--once")
    (shop.folder / "mapping.yaml").write_text(BEFORE)
    assert "goes back" in shop.done("recover", job, "older-mapping").err
    newer = BEFORE.replace("{Customer:", "{Client:")
    (shop.folder / "mapping.yaml").write_text(newer)
    begun = shop.done(*words, job)
    assert pins.said(begun.err)
    assert shop.run("relay", "--once", old).code == 2


def test_going_back_needs_a_request_and_rewrites_everything(shop: Project) -> None:
    job = str(shop.job)
    go_on(shop)
    shop.done("backfill", job)
    shop.done("relay", job, "--once")
    (shop.folder / "mapping.yaml").write_text(BEFORE)
    assert shop.run("relay", job, "--once").code == 2
    assert pins.said(shop.done("recover", job, "older-mapping").err)
    copied = shop.done("backfill", job)
    assert "nothing left to do" not in copied.err
    assert (cities(shop), clean(shop)) == ({None}, True)
    change(shop, RENAME)
    shop.done("relay", job, "--once")
    assert clean(shop)


def test_every_status_command_names_the_mapping_in_use(shop: Project) -> None:
    job, old = str(shop.job), str(old_host(shop))

    def said(path: str) -> tuple[str, str]:
        status = shop.run("capture", "status", path, "--json").data["mapping"]
        checks = shop.run("doctor", path, "--json").data["checks"]
        return status, next(one["state"] for one in checks if one["name"] == "mapping at work")

    assert said(job) == ("newest", "ok")
    (shop.folder / "mapping.yaml").write_text(AFTER)
    assert said(job) == ("new", "warning")
    assert "is new to the job" not in shop.run("status", job).out
    go_on(shop)
    assert (said(job), said(old)) == (("newest", "ok"), ("old", "failed"))
    assert pins.said(shop.done("status", old).out, "work")
    assert "work by another mapping" not in shop.done("status", job).out
    assert pins.said(shop.run("verify", old).err, "work")
    assert "work by another mapping" not in shop.run("verify", job).err
    assert pins.said(shop.run("capture", "status", old).out, "gone")


def test_evidence_of_a_move_covers_every_living_relay(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in shop.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(shop.folder)
    with JobSession(shop.job, "cutover") as session:
        gatherer, writers = gatherer_of(session), session.writers
        session.revisions.register()
        one = writers.enter("relay")
        session.revisions.enter(one)
        assert gatherer.relays() == 1
        # As an older migrator does, which knows nothing of revisions.
        writers.enter("relay")
        found = gatherer.relays()
        assert isinstance(found, Unknown)
        assert pins.said(found.why)
