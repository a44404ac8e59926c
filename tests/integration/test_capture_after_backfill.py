"""A backfill before capture is there: what was deleted in between stays in the table, and every command asks for a verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import change
from tests.journeys.small import MAPPING, small_shop

pytestmark = pytest.mark.slow

TUNING = "request_life_s: 0.5, silent_s: 20, lease_s: 1, attempts: 3, backoff_cap_s: 0.1"
ASKED = "rows that were changed or deleted in between were not captured"


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Filled, a row deleted, and only then captured."""
    made = small_shop(tmp_path, dynamodb_url, create=False)
    made.job.write_text(made.job.read_text().replace("tuning: {}", f"tuning: {{{TUNING}}}"))
    (tmp_path / "mapping.yaml").write_text(MAPPING.replace("type: type", "type: type, ttl: expiresAt"))
    made.done("table", "create", str(made.job))
    assert pins.said(made.done("backfill", str(made.job)).err, "installed")
    change(made, "DELETE FROM customer WHERE id = 7")
    return made


def is_said(shop: Project, *words: str) -> bool:
    ended = shop.run(*words, str(shop.job))
    return ASKED in " ".join((ended.out + ended.err).split())


ASKING = (
    ("capture", "status"),
    ("status",),
    ("doctor", "--json"),
    ("relay", "--once"),
    ("backfill", "--restart"),
)


def test_verify_is_requested_until_one_has_run(shop: Project) -> None:
    job = str(shop.job)
    assert is_said(shop, "capture", "install")
    assert [words for words in ASKING if not is_said(shop, *words)] == []
    # A verify of a part, or of before, is none.
    shop.run("verify", job, "--settle", "0", "--sample", "50%")
    assert is_said(shop, "status")
    found = shop.run("verify", job, "--settle", "0", "--repair")
    assert (found.code, pins.said(found.err)) == (1, True)
    shop.done("relay", job, "--once")
    assert [words for words in (("capture", "install"), *ASKING) if is_said(shop, *words)] == []
    assert shop.done("verify", job, "--settle", "0", "--json").data["clean"]


def test_reinstalled_capture_asks_for_a_verify_again(shop: Project) -> None:
    job = str(shop.job)
    shop.done("capture", "install", job)
    shop.run("verify", job, "--settle", "0", "--repair")
    shop.done("relay", job, "--once")
    assert not is_said(shop, "status")
    shop.done("capture", "uninstall", job)
    change(shop, "DELETE FROM customer WHERE id = 8")
    assert is_said(shop, "capture", "install")


def test_a_backfill_after_the_install_asks_for_nothing(shop: Project) -> None:
    job = str(shop.job)
    shop.done("clean", "--all-items", job, "--yes")
    shop.done("capture", "install", job)
    assert not is_said(shop, "backfill")
    assert not is_said(shop, "status")
