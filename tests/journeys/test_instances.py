"""Capture by services and instances, as a person sees them: installed, listed, refused, and relayed without a trigger."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from migrator.runtime.errors import MigratorError, SettingsError
from migrator.stages.live.instances import ServiceRole
from migrator.stages.session import service as service_wiring
from migrator.stages.session.service import Service
from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import MAPPING, small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Its services are of this process, so what its job says is in this process's environment, too."""
    made = small_shop(tmp_path, dynamodb_url, create=False)
    tuning = "request_life_s: 0.2, silent_s: 5, lease_s: 1"
    made.job.write_text(made.job.read_text().replace("tuning: {}", f"tuning: {{{tuning}}}"))
    (tmp_path / "mapping.yaml").write_text(MAPPING.replace("type: type", "type: type, ttl: expiresAt"))
    made.done("table", "create", str(made.job))
    monkeypatch.setenv("MIGRATOR_SOURCE_URL", made.environment["MIGRATOR_SOURCE_URL"])
    monkeypatch.setenv("MIGRATOR_HOME", str(tmp_path / ".migrator"))
    return made


@dataclass(frozen=True)
class Running:
    service: Service
    role: ServiceRole

    def check(self) -> None:
        self.service.heartbeat.check(self.role)


@contextmanager
def running(shop: Project, name: Literal["dual_write", "read"] = "dual_write") -> Iterator[Running]:
    with service_wiring.open_service(shop.job, "shop-api", "1.4.2") as service:
        known = service.session.need_installation()
        role = (
            ServiceRole("read", lambda: None)
            if name == "read"
            else service_wiring.marking_role(service.session, known, "outbox")
        )
        with service.heartbeat.playing(role):
            yield Running(service, role)


def changed(shop: Project) -> None:
    """A change as a service's adapter makes it: with its mark, in one transaction."""
    with closing(sqlite3.connect(shop.folder / "shop.db")) as service:
        service.execute("UPDATE customer SET name = 'other' WHERE id = 1")
        image = '{"id": "integer:1"}'
        values = ("customer", image, image)
        service.execute(
            "INSERT INTO migrator_mark (table_name, image_before, image_after) VALUES (?, ?, ?)", values
        )
        service.commit()


def fault_of(beating: Running) -> str:
    """What a service's next write fails with, within seconds."""
    ends_at = time.monotonic() + 120
    while time.monotonic() < ends_at:
        try:
            beating.check()
        except MigratorError as error:
            return str(error)
        time.sleep(0.05)
    return ""


def test_changes_marked_by_services_reach_the_table(shop: Project) -> None:
    job = str(shop.job)
    printed = shop.done("capture", "install", job, "--by", "services", "--dry-run").out
    assert "CREATE TABLE IF NOT EXISTS migrator_mark" in printed
    assert "TRIGGER" not in printed
    installed = shop.done("capture", "install", job, "--by", "services")
    assert pins.said(installed.out, "customer")
    assert pins.said(installed.err, "adapter")
    status = shop.run("capture", "status", job)
    assert status.code == 1
    assert pins.said(status.out, "marked")
    assert pins.said(shop.done("backfill", job).err, "alive")
    with running(shop):
        assert "no instance of one is alive" not in shop.done("backfill", job, "--restart").err
        assert "1 instance running" in shop.done("capture", "status", job).out
        assert shop.done("capture", "status", job, "--json").data["marking"] == 1
        changed(shop)
        shop.done("relay", job, "--once")
    assert shop.done("verify", job, "--settle", "0", "--json").data["clean"]
    assert "other" in {item.get("name") for item in shop.items()}


def test_status_lists_instances_while_they_live(shop: Project) -> None:
    job = str(shop.job)
    shop.done("capture", "install", job)
    with running(shop), running(shop, "read"):
        told = shop.done("status", job, "--all")
        assert told.out.count("shop-api 1.4.2") == 2
        found = shop.done("status", job, "--json").data["live"]["instances"]
        assert [(one["role"], one["fits"], one["alive"]) for one in found] == [
            ("dual_write", True, True),
            ("read", True, True),
        ]
        mapping = shop.folder / "mapping.yaml"
        mapping.write_text(mapping.read_text().replace("keep: [total]", "keep: []"))
        assert "mapping differs (2)" in shop.done("status", job, "--all").out
        mapping.write_text("mapping: 1\nentities: 7\n")
        assert shop.done("status", job, "--json").data["live"]["instances"][0]["fits"] is None
    assert shop.done("status", job, "--json").data["live"]["instances"] == []


def test_uninstall_waits_for_services_unless_overridden(shop: Project) -> None:
    job = str(shop.job)
    shop.done("capture", "install", job, "--by", "services")
    with running(shop, "read"):
        shop.done("capture", "uninstall", job)
    shop.done("capture", "install", job, "--by", "services")
    with running(shop) as beating:
        refused = shop.run("capture", "uninstall", job)
        assert refused.code == 2
        assert pins.said(refused.err, "still")
        assert "shop-api 1.4.2 on " in refused.err
        assert pins.said(shop.done("capture", "status", job).out, "marked")
        shop.done("capture", "uninstall", job, "--force")
        assert pins.said(fault_of(beating), "installed")


def test_the_doctor_knows_what_marks(shop: Project) -> None:
    job = str(shop.job)

    def capture() -> tuple[str, str]:
        checks = shop.run("doctor", job, "--json").data["checks"]
        return next((one["state"], one["what"]) for one in checks if one["name"] == "capture")

    assert capture() == ("ok", pins.text("still"))
    shop.done("capture", "install", job, "--by", "services")
    assert capture() == ("warning", pins.text("alive"))
    with running(shop):
        assert capture() == ("ok", pins.text("instance"))
    shop.done("capture", "install", job)
    assert capture() == ("ok", pins.text("triggers"))
    with closing(sqlite3.connect(shop.folder / "shop.db")) as service:
        name = service.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchone()[0]
        service.execute(f"DROP TRIGGER {name}")
    assert capture()[0] == "failed"


def test_service_with_a_wrong_journal_or_mapping_does_not_start(shop: Project) -> None:
    with pins.refused(SettingsError, "such"):
        service_wiring.open_service(shop.folder / "none.yaml").__enter__()
    with pins.refused(SettingsError, "installed"), running(shop):
        pass
    shop.done("capture", "install", str(shop.job), "--by", "services")
    (shop.folder / "file").write_text("no folder")
    shop.job.write_text(f"{shop.job.read_text()}\njournal: sqlite:///{shop.folder}/file/j.db\n")
    with pins.refused(SettingsError, "journal"), running(shop):
        pass
