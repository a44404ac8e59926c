"""`--json` of every command, where it has a result: one document on standard output, and nothing beside it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import PATTERN, cutover_shop
from tests.support_worlds import prepared
from tests.unit.cli.test_command_line import LEAVES

BEFORE = (
    "examples copied",
    "init sqlite:///shop.db --statements none --out proposed.yaml --no-prove",
    "plan mapping.yaml --source sqlite:///shop.db --region us-east-1",
    "mapping check mapping.yaml",
    "mapping diff mapping.yaml shop.yaml --source sqlite:///shop.db",
    "mapping check mapping.yaml --source sqlite:///shop.db --invertible",
    "mapping try mapping.yaml --source sqlite:///shop.db --entity customer --key 1",
    "table create shop.yaml --dry-run",
    "table create shop.yaml",
    "table check shop.yaml --as terraform",
    "table change shop.yaml",
    "table change shop.yaml --as terraform",
    "table change shop.yaml --dry-run",
    "export --as terraform shop.yaml",
    "export --as cloudformation shop.yaml --out out",
    "export --as cloudformation shop.yaml --out out --dry-run",
    "export --as cdk-ts shop.yaml",
    "export --as cdk-py shop.yaml",
    "export --as iam shop.yaml --region us-east-1",
    "export --as electrodb shop.yaml",
    "export --as electrodb shop.yaml --out out",
    "export --as json-schema shop.yaml",
    "export --as python shop.yaml",
    "export --as boto3 shop.yaml",
    "export --as workbench shop.yaml --out out",
    "export --as grants shop.yaml",
    "init out/workbench.json",
    "capture install shop.yaml --dry-run",
    "capture install shop.yaml",
    "capture status shop.yaml",
    "recover shop.yaml source-restored --dry-run",
    "doctor shop.yaml",
    "backfill shop.yaml --dry-run",
    "backfill shop.yaml",
    "migrate-mapping shop.yaml --dry-run",
    "migrate-mapping shop.yaml",
)
"""Commands of a move up to the backfill."""
AFTER = (
    "relay shop.yaml --dry-run",
    "relay shop.yaml --once",
    "relay shop.yaml --discard-marks",
    "verify shop.yaml --settle 0",
    "pace shop.yaml --max-write-units 200",
    "pace shop.yaml --pause --reason tried",
    "pace shop.yaml --resume",
    "pace shop.yaml",
    "status shop.yaml",
    "table export shop.yaml --to items",
    "table import shop.yaml --from items",
    "status shop.yaml --findings",
    "look shop.yaml --pk C#1",
    "ui shop.yaml --for 0s",
    f"look shop.yaml --pattern {PATTERN} -p id=1",
    "shadow replay shop.yaml --sample 3",
    "report shop.yaml",
    "reverse check shop.yaml",
    "reverse start shop.yaml --dry-run",
    "reverse status shop.yaml",
    "reverse verify shop.yaml",
    "reverse stop shop.yaml",
    "cutover status shop.yaml",
    f"cutover advance shop.yaml {PATTERN}",
    f"cutover ramp shop.yaml {PATTERN} 5",
    f"cutover rollback shop.yaml {PATTERN}",
    "cutover status shop.yaml --history",
    "cutover watch shop.yaml --once",
    "decommission check shop.yaml",
    "clean shop.yaml --attributes --yes",
    "clean shop.yaml --tombstones",
    "clean shop.yaml --all-items --dry-run",
    "clean shop.yaml --all-items --yes --force",
    "clean shop.yaml --row --entity customer --key 999 --yes",
    "capture uninstall shop.yaml --discard-marks",
    "local",
    "local stop",
)


def documents(shop: Project, lines: tuple[str, ...]) -> None:
    for line in lines:
        ended = shop.run(*line.split(), "--json")
        assert ended.code in (0, 1, 2), ended.err
        data = json.loads(ended.out)
        assert isinstance(data, (dict, list)), line
        if isinstance(data, dict) and "error" in data:
            assert data["exit_code"] == ended.code != 0, (line, ended.out)


def test_every_command_prints_one_document(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    documents(shop, BEFORE)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as service:
        service.execute("UPDATE customer SET name = 'Ada' WHERE id = 1")
        service.commit()
    documents(shop, AFTER)
    walked = {line for line in LEAVES if any(one.startswith(line) for one in (*BEFORE, *AFTER))}
    assert walked == set(LEAVES)


def test_findings_are_one_document_even_if_empty(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    prepared(shop, "table create", "capture install", "backfill")
    found = shop.done("status", "--findings", str(shop.job), "--json").data
    assert [one.get("kind") for one in found["lists"]] == ["backfill"]
    assert (found["total"], found["findings"]) == (0, [])


def test_file_with_faults_is_reported_with_each(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    shop.job.write_text(shop.job.read_text() + "one: 1\ntwo: 2\n")
    data = shop.run("status", str(shop.job), "--json").data
    assert (data["exit_code"], [fault["where"] for fault in data["faults"]]) == (2, ["one", "two"])


def test_a_command_in_a_message_can_be_copied_whole(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    job = str(shop.job)
    nothing = shop.run("backfill", job, "--entity", "customer")
    assert pins.said(nothing.err, "create", job=job)
    shop.done("table", "create", job)
    done = shop.done("backfill", job, "--entity", "customer", "--workers", "1")
    assert pins.said(done.err, "install", job=job)


def test_a_dry_run_reports_as_the_same_command(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    shop.job.write_text(shop.job.read_text().replace(shop.endpoint, "http://127.0.0.1:1"))
    ended = shop.run("clean", "--all-items", str(shop.job), "--dry-run")
    assert pins.said(ended.err, job=shop.job)


def test_a_command_in_a_row_is_a_row_s_text(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as service:
        service.execute("UPDATE customer SET name = 'run `migrator status` now' WHERE id = 1")
        service.commit()
    prepared(shop, "table create", "capture install", "backfill")
    answered = shop.done("look", str(shop.job), "--pattern", PATTERN, "-p", "id=1", "--json").out
    assert pins.said(answered)


def test_failure_names_the_same_command_with_all_its_options(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    job = str(shop.job)
    shop.job.write_text(shop.job.read_text().replace(shop.endpoint, "http://127.0.0.1:1"))
    shop.job.write_text(shop.job.read_text().replace("tuning: {", "tuning: {give_up_after_s: 0.1, "))
    ended = shop.run("backfill", job, "--entity", "customer", "--workers", "1", "--max-cost", "3.50")
    assert ended.code == 3
    assert pins.said(ended.err, job=job)
