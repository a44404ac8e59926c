"""`mapping check` on a job file, and the tables that no entity reads."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import cutover_shop
from tests.journeys.small import small_shop
from tools.pages.schemas import job_schema


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return small_shop(tmp_path, dynamodb_url, create=False)


def sql(shop: Project, script: str) -> None:
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
        source.executescript(script)


def test_a_job_is_checked_with_the_mapping_that_it_names(shop: Project) -> None:
    ended = shop.done("mapping", "check", "shop.yaml", "mapping.yaml")
    assert pins.said(ended.out)


def test_faults_of_job_and_mapping_are_reported_with_their_files(shop: Project) -> None:
    shop.job.write_text(f"{shop.job.read_text()}\nreads: {{connections: 0}}\nhoks: []\n")
    ended = shop.run("mapping", "check", "shop.yaml", "--json")
    assert ended.code == 2
    found = json.loads(ended.out)
    assert {(Path(fault["file"]).name, fault["where"]) for fault in found} == {
        ("shop.yaml", "reads.connections"),
        ("shop.yaml", "hoks"),
    }
    shop.job.write_text("job: 1\nmapping: mapping.yaml\nsource: sqlite:///shop.db\n")
    (shop.folder / "mapping.yaml").write_text("mapping: 1\ntable: {name: S}\n")
    assert "mapping.yaml" in shop.run("mapping", "check", "shop.yaml").err


def test_tables_without_an_entity_are_named_unless_left_out(shop: Project) -> None:
    source = f"sqlite:///{shop.folder}/shop.db"
    assert "have no entity" not in shop.done("mapping", "check", "mapping.yaml", "--source", source).err
    sql(
        shop,
        "CREATE TABLE audit_log (id INTEGER PRIMARY KEY); CREATE TABLE tax (id INTEGER PRIMARY KEY);"
        "CREATE VIEW rich AS SELECT * FROM customer",
    )
    ended = shop.done("mapping", "check", "mapping.yaml", "--source", source)
    assert pins.said(ended.err, "audit")
    shop.job.write_text(f"{shop.job.read_text()}\ncutover: {{leave: ['audit_*']}}\n")
    ended = shop.done("mapping", "check", "shop.yaml", "--source", source)
    assert pins.said(ended.err, "entity")


def test_what_is_neither_is_checked_as_a_mapping(shop: Project) -> None:
    for name, text in {"list.yaml": "[1]", "broken.yaml": "a: [", "bytes.yaml": "\x00"}.items():
        (shop.folder / name).write_text(text)
        assert shop.run("mapping", "check", name).code == 2
    assert pins.said(shop.run("mapping", "check", "none.yaml").err)
    assert shop.run("mapping", "check", ".").code == 2


def test_a_mapping_with_an_attribute_called_job_is_a_mapping(shop: Project) -> None:
    mapping = (shop.folder / "mapping.yaml").read_text()
    wide = "  customer:\n    attributes:\n      job: name\n    items: {Customer: {key: ['C#{id}', META], keep: [name]}}\n"
    lines = [line for line in mapping.splitlines(keepends=True) if "customer:" not in line]
    (shop.folder / "mapping.yaml").write_text("".join(lines).replace("entities:\n", f"entities:\n{wide}"))
    ended = shop.done("mapping", "check", "mapping.yaml", "--source", f"sqlite:///{shop.folder}/shop.db")
    assert pins.said(ended.out)


def test_the_schema_of_jobs_describes_each_word() -> None:
    data = job_schema()
    assert data["title"] == "migrator job"
    assert data["$defs"]["Tuning"]["properties"]["workers"]["description"] == pins.text()


def test_table_create_refuses_a_mapping_with_its_check_faults(tmp_path: Path, dynamodb_url: str) -> None:
    made = cutover_shop(tmp_path, dynamodb_url)
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("type: Customer,", "type: Customers,", 1))
    checked = made.run("mapping", "check", "mapping.yaml")
    assert checked.code == 2
    told = [line for line in (checked.out + checked.err).splitlines() if ": access_patterns." in line]
    faults = [line.partition(":")[2] for line in told if "warning" not in line]
    assert faults
    for words in (["table", "create"], ["table", "create", "--dry-run"], ["table", "check"]):
        ended = made.run(*words, str(made.job))
        assert ended.code == 2
        assert [fault for fault in faults if fault not in ended.err] == []
