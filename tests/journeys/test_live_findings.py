"""What relays refuse, and keys that two rows claim, stay on record until their rows were worked well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import change
from tests.journeys.small import MAPPING, small_shop
from tests.support_worlds import prepared

BY_NAME = 'CustomerByName: {key: ["N#{name}", META]}'
LIVE = MAPPING.replace("type: type", "type: type, ttl: expiresAt").replace(
    "keep: [name]}}}", f"keep: [name]}}, {BY_NAME}}}}}"
)


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Captured and filled; then customer 1 loses its name, and customer 2 takes that of customer 3."""
    made = small_shop(tmp_path, dynamodb_url, create=False)
    (tmp_path / "mapping.yaml").write_text(LIVE)
    prepared(made, "table create", "capture install", "backfill", "relay --once")
    change(
        made,
        "UPDATE customer SET name = NULL WHERE id = 1",
        "UPDATE customer SET name = 'Name 3' WHERE id = 2",
    )
    return made


def opened(shop: Project) -> dict[str, int]:
    found: dict[str, int] = shop.done("status", str(shop.job), "--json").data["live"]["open_findings"]
    return found


def listed(shop: Project) -> list[tuple[str, str]]:
    found = shop.done("status", "--findings", str(shop.job), "--json").data["findings"]
    return sorted((one["kind"], one["source_key"]) for one in found)


def test_relay_and_every_later_command_report_the_refused_row(shop: Project) -> None:
    job = str(shop.job)
    first = shop.run("relay", job, "--once")
    assert (first.code, pins.said(first.out, "finding"), "findings_made" in first.err) == (1, True, True)
    assert "Name 3" not in first.out + first.err
    again = shop.run("relay", job, "--once")
    assert (again.code, pins.said(again.out, "collision")) == (0, True)
    status = shop.done("status", job).out
    assert pins.said(status, "finding-collision")
    assert "every captured change" not in status
    assert pins.said(shop.done("relay", job, "--dry-run").out, "finding-open-collision")
    assert listed(shop) == [("collision", "[2]"), ("refused", "[1]")]
    assert pins.said(shop.done("status", "--findings", job).err, "open")
    report = shop.done("report", job, "--json").data
    assert [(one["entity"], one["count"]) for one in report["refused"]] == [("customer", 1)]
    assert [(one["kind"], one["count"]) for one in report["groups"]] == [("collision", 1)]
    assert report["verdict"]["standing"] == "different"


def test_finding_closes_once_a_relay_has_refreshed_its_row(shop: Project) -> None:
    job = str(shop.job)
    shop.run("relay", job, "--once")
    change(shop, "UPDATE customer SET name = 'Ann' WHERE id = 1")
    assert shop.run("relay", job, "--once").code == 0
    assert opened(shop) == {"collision": 1}
    # A row that gives a key up leaves it to the row that wants it.
    change(shop, "UPDATE customer SET name = 'Bob' WHERE id = 3")
    ended = shop.run("relay", job, "--once")
    assert (ended.code, "open" in ended.out) == (0, False)
    assert (opened(shop), listed(shop)) == ({}, [])
    assert pins.said(shop.done("status", job).out)


def test_backfill_and_repair_close_findings_without_a_mark(shop: Project) -> None:
    job = str(shop.job)
    shop.run("relay", job, "--once")
    change(
        shop,
        "UPDATE customer SET name = 'Ann' WHERE id = 1",
        "DELETE FROM customer WHERE id = 2",
        "DELETE FROM migrator_mark",
    )
    assert shop.run("backfill", job, "--restart").code == 0
    assert opened(shop) == {"collision": 1}
    repaired = shop.run("verify", job, "--repair", "--settle", "0")
    assert pins.said(repaired.err)
    assert shop.run("relay", job, "--once").code == 0
    assert opened(shop) == {}


def test_a_row_that_is_refused_at_every_change_is_one_finding(shop: Project) -> None:
    for _ in range(4):
        assert shop.run("relay", str(shop.job), "--once").code == 1
        change(
            shop,
            "UPDATE customer SET name = 'Ann' WHERE id = 1",
            "UPDATE customer SET name = NULL WHERE id = 1",
        )
    assert opened(shop) == {"refused": 1, "collision": 1}
