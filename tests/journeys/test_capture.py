"""`migrator capture` as a person walks it, on a small shop and on Chinook from each engine."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests import pins, support_mysql
from tests import support_services as services
from tests.journeys.command import ROOT, Project, project
from tests.journeys.small import MAPPING, small_shop
from tests.support_capture import connect


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """No table is made: of the target only `epoch --raise` asks, and only what it knows."""
    made = small_shop(tmp_path, dynamodb_url, create=False)
    (tmp_path / "mapping.yaml").write_text(MAPPING.replace("type: type", "type: type, ttl: expiresAt"))
    return made


def test_capture_is_put_in_shown_and_taken_out(shop: Project) -> None:
    job = str(shop.job)
    assert shop.run("capture", "status", job).code == 1
    printed = shop.done("capture", "install", job, "--dry-run").out
    assert "CREATE TABLE IF NOT EXISTS migrator_mark" in printed
    assert "def upgrade()" in shop.done("capture", "install", job, "--as", "alembic").out
    assert pins.said(shop.run("capture", "status", job).out, "installed")
    assert pins.said(shop.done("capture", "install", job).out, "captured")
    assert pins.said(shop.done("capture", "install", job).out, "change")
    assert shop.done("capture", "install", job, "--as", "sql").out == ""
    status = shop.done("capture", "status", job, "--json").data
    assert [one["state"] for one in status["tables"]] == ["captured", "captured"]
    shop.done("table", "create", job)
    raised = shop.done("recover", job, "source-restored", "--from", "7000000000001", "--settle", "0s").out
    assert pins.said(raised, "ticket")
    with sqlite3.connect(shop.folder / "shop.db") as service:
        service.execute("UPDATE customer SET name = 'x' WHERE id = 1")
    service.close()
    refused = shop.run("capture", "uninstall", job)
    assert (refused.code, pins.said(refused.err, "wait")) == (2, True)
    assert pins.said(shop.done("capture", "uninstall", job, "--discard-marks").out, "away")
    assert "not installed" in shop.done("capture", "uninstall", job).out


def test_a_mapping_without_a_ttl_is_refused(shop: Project) -> None:
    (shop.folder / "mapping.yaml").write_text(MAPPING)
    ended = shop.run("capture", "install", str(shop.job))
    assert ended.code == 2
    assert pins.said(ended.err)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql", "mariadb"])
def test_every_table_of_chinook_is_captured(
    engine: str, request: pytest.FixtureRequest, chinook_dir: Path, tmp_path: Path
) -> None:
    url = _chinook(engine, request, chinook_dir, tmp_path)
    shipped = ROOT / "mappings" / ("chinook_postgresql.yaml" if engine == "postgresql" else "chinook.yaml")
    text = shipped.read_text().replace("type: entity", "type: entity\n  ttl: expiresAt")
    (tmp_path / "mapping.yaml").write_text(text)
    made = project(tmp_path, url, "http://127.0.0.1:1", "Chinook")
    made.job.write_text(made.job.read_text().replace(str(shipped), "mapping.yaml"))
    job = str(made.job)
    assert pins.said(made.done("capture", "install", job).out, "captured")
    assert pins.said(made.done("capture", "install", job).out, "change")
    names = {"postgresql": ("track", "name", "track_id", "migrator.mark")}
    track, name, key, mark = names.get(engine, ("Track", "Name", "TrackId", "migrator_mark"))
    service = connect(engine, url)
    cursor = service.cursor()
    cursor.execute(f"UPDATE {track} SET {name} = 'x' WHERE {key} < 4")
    cursor.execute(f"SELECT COUNT(*) FROM {mark}")
    assert cursor.fetchone()[0] == 3
    service.close()
    assert pins.said(made.done("capture", "uninstall", job, "--discard-marks").out, "away")


def _chinook(engine: str, request: pytest.FixtureRequest, chinook_dir: Path, tmp_path: Path) -> str:
    if engine == "sqlite":
        shutil.copyfile(chinook_dir / "Chinook_Sqlite.sqlite", tmp_path / "chinook.db")
        return f"sqlite:///{tmp_path}/chinook.db"
    if engine == "postgresql":
        url = request.getfixturevalue("postgres_database")
        services.run_script(url, services.chinook_postgres_script(chinook_dir))
    else:
        url = request.getfixturevalue("mysql_database")
        support_mysql.run_script(url, support_mysql.chinook_mysql_script(chinook_dir))
    return str(url)
