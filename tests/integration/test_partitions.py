"""A partition that comes while capture is on: its rows leave marks, so nothing has to stop for it."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import psycopg
import pytest

from tests import pins
from tests.journeys.command import Project, project

MAPPING = """\
mapping: 1
table: {name: Sensors, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  sensor: {items: {Sensor: {key: ["S#{id}", "{at}"], keep: [v]}}}
"""
TABLES = (
    "CREATE TABLE sensor (at date, id integer, v integer, PRIMARY KEY (at, id)) PARTITION BY RANGE (at)",
    "CREATE TABLE sensor_23 PARTITION OF sensor FOR VALUES FROM ('2023-01-01') TO ('2024-01-01')",
    "INSERT INTO sensor VALUES ('2023-05-01', 1, 1)",
)
PARTITION = (
    "CREATE TABLE sensor_24 PARTITION OF sensor FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
    "INSERT INTO sensor VALUES ('2024-05-01', 2, 2)",
)


@pytest.fixture
def sensors(tmp_path: Path, postgres_database: str, dynamodb_url: str) -> Project:
    """Captured and filled; a partition came since."""
    run(postgres_database, *TABLES)
    made = project(tmp_path, postgres_database, dynamodb_url, f"S{secrets.token_hex(4)}", text=MAPPING)
    made.prepared("table create", "capture install", "backfill")
    run(postgres_database, *PARTITION)
    return made


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_relay_follows_a_new_partition_and_warns_of_lost_marks(sensors: Project) -> None:
    worked = sensors.run("relay", str(sensors.job), "--once")
    assert {item["PK"] for item in sensors.items()} >= {"S#1", "S#2"}
    assert "truncate_leaves_no_mark" in worked.err
    assert pins.said(worked.err, "warning")
    assert worked.code == 1
    assert pins.said(sensors.done("status", str(sensors.job)).out, "changes")


def test_backfill_continues_with_a_new_partition(sensors: Project) -> None:
    assert "truncate_leaves_no_mark" in sensors.done("backfill", str(sensors.job), "--restart").err


def test_status_and_doctor_name_a_new_partition_until_install(sensors: Project) -> None:
    job = str(sensors.job)
    status = sensors.run("capture", "status", job)
    assert (status.code, pins.said(status.out)) == (1, True)
    checks = json.loads(sensors.run("doctor", job, "--json").out)["checks"]
    (capture,) = [one for one in checks if one["name"] == "capture"]
    assert (capture["state"], "TRUNCATE of public.sensor_24" in capture["what"]) == ("warning", True)
    sensors.done("capture", "install", job)
    assert sensors.done("capture", "status", job).out.count("captured: every change") == 3
    assert "truncate" not in sensors.done("relay", job, "--once").err


def test_table_without_its_triggers_still_stops_a_relay(sensors: Project, postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        names = connection.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = 'sensor'::regclass AND NOT tgisinternal"
        ).fetchall()
        connection.execute(f'DROP TRIGGER "{names[0][0]}" ON sensor')
    refused = sensors.run("relay", str(sensors.job), "--once")
    assert (refused.code, pins.said(refused.err)) == (2, True)
