"""A clumsy and a hostile user: one clear line, the right exit code, no traceback, nothing lost."""

from __future__ import annotations

import secrets
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime.values import replace
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.journeys.command import Project, project
from tests.journeys.console import LOG_LINE
from tests.journeys.in_process import Ended

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: entity}
entities:
  users:
    items:
      User: {key: ["USER#{id}", META], keep: all}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
        database.executemany(
            "INSERT INTO users VALUES (?, ?, ?)", [(n, f"Planted{n}", n) for n in range(1, 3001)]
        )
    return path


New = Callable[..., Project]


@pytest.fixture
def new(tmp_path: Path, shop: Path, dynamodb_url: str) -> New:
    def make(source: str = f"sqlite:///{shop}", **words: Any) -> Project:
        made = project(tmp_path, source, dynamodb_url, f"Shop{secrets.token_hex(4)}", **words)
        (tmp_path / "mapping.yaml").write_text(MAPPING)
        made.job.write_text(re_mapped(made.job.read_text()))
        return made

    return make


def re_mapped(job: str) -> str:
    return "\n".join(
        "mapping: mapping.yaml" if line.startswith("mapping:") else line for line in job.splitlines()
    )


def one_line(ended: Ended, code: int, *words: str) -> str:
    assert ended.code == code, ended.err
    (line,) = [line for line in ended.err.splitlines() if not LOG_LINE.match(line)]
    assert line.startswith("error: ")
    for word in words:
        assert word in line
    assert "Planted" not in ended.out + ended.err
    return line


def test_an_unreachable_source(new: New) -> None:
    ended = new("postgresql://me:s3cret-pw@127.0.0.1:1/none").run("verify", "shop.yaml")
    one_line(ended, 3)
    assert "s3cret-pw" not in ended.err


@pytest.mark.parametrize(
    "source", ["nonsense", "oracle://h/x", "sqlite:///not-there.db", "postgresql://[::1/x"]
)
def test_a_source_that_is_none(new: New, source: str) -> None:
    one_line(new(source).run("backfill", "shop.yaml"), 2)


def test_no_table(new: New) -> None:
    made = new()
    for command in ("backfill", "verify"):
        assert pins.said(one_line(made.run(command, "shop.yaml"), 2, "migrator table create"))


def test_a_table_with_other_keys(new: New, dynamodb_url: str) -> None:
    made = new()
    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(client).create(TableDesign(made.table, (KeyAttribute("id", "number"),), "type"))
    line = one_line(made.run("backfill", "shop.yaml"), 2)
    assert pins.said(line, "mapping")
    assert pins.said(line, "table")
    assert made.run("table", "check", "shop.yaml").code == 1


def test_no_credentials(new: New) -> None:
    made = new()
    made.job.write_text(made.job.read_text().replace(made.endpoint, "https://dynamodb.invalid"))
    one_line(made.run("table", "create", "shop.yaml"), 2, "region")
    made.job.write_text(made.job.read_text().replace("endpoint:", "region: eu-central-1, endpoint:"))
    assert pins.said(one_line(made.run("table", "create", "shop.yaml"), 2, "AWS_PROFILE"))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["backfill", "none.yaml"], id="job-file"),
        pytest.param(["backfill", "."], id="folder"),
        pytest.param(["mapping", "check", "none.yaml"], id="mapping-file"),
        pytest.param(["mapping", "check", "shop.db"], id="utf-8"),
        pytest.param(["backfill", "shop.yaml", "--entity", "user"], id="entity"),
        pytest.param(["mapping", "try", "mapping.yaml", "--entity", "users", "--key", "x"], id="integer"),
        pytest.param(["mapping", "try", "mapping.yaml", "--entity", "users", "--key", "9999"], id="no-row"),
        pytest.param(
            ["mapping", "try", "mapping.yaml", "--entity", "users", "--key", "a=1", "--key", "b=2"],
            id="key-name",
        ),
        pytest.param(["look", "shop.yaml", "--pattern", "nothing"], id="pattern"),
        pytest.param(["status", "shop.yaml", "--findings"], id="no-run"),
    ],
)
def test_wrong_words(new: New, words: list[str]) -> None:
    made = new()
    made.run("table", "create", "shop.yaml")
    told = one_line(made.run(*words), 2)
    assert pins.said(told)
    assert f"`migrator {' '.join(words)}`" not in told, "it advises what failed"


def test_a_job_whose_variable_is_not_set(new: New) -> None:
    made = new()
    bare = replace(
        made, environment={k: v for k, v in made.environment.items() if k != "MIGRATOR_SOURCE_URL"}
    )
    ended = bare.run("backfill", "shop.yaml")
    assert ended.code == 2
    assert pins.said(ended.err)


def test_ctrl_c_keeps_the_checkpoint_and_a_rerun_continues(new: New, dynamodb_url: str) -> None:
    faults = Faults(unprocessed=0.6, seed=3)  # so that the run takes long enough to be met at work
    with FaultProxy(dynamodb_url, faults) as proxy:
        made = new(through=proxy.url, tuning="page_rows: 50, workers: 2, attempts: 50, backoff_cap_s: 0.5")
        made.done("table", "create", "shop.yaml")
        process = made.start("backfill", "shop.yaml", "--verbose")
        while "page_done" not in (line := process.stderr.readline()):  # type: ignore[union-attr]
            assert line, "the run ended before its first page"
        second = made.run("backfill", "shop.yaml")
        assert pins.said(one_line(second, 2))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        (run,) = made.done("status", "shop.yaml", "--json").data["runs"]
        assert run["state"] == "interrupted"
        assert 0 < run["pages_done"] < run["pages_planned"]
        faults.unprocessed = 0.1
        assert "is resumed" in made.done("backfill", "shop.yaml").err
    assert len(made.items()) == 3000


def test_dry_run_and_limit_write_what_they_say(new: New) -> None:
    made = new()
    made.done("table", "create", "shop.yaml")
    dry = made.done("backfill", "shop.yaml", "--dry-run", "--json").data
    assert (dry["total"]["items"], dry["total"]["bytes"] > 0) == (3000, True)
    assert made.items() == []
    made.done("backfill", "shop.yaml", "--limit", "10")
    assert len(made.items()) == 10
    made.done("backfill", "shop.yaml")
    assert len(made.items()) == 3000


def test_refused_rows_are_findings_and_the_others_are_written(new: New, shop: Path) -> None:
    with sqlite3.connect(shop) as database:
        database.execute("UPDATE users SET age = 'Planted text' WHERE id IN (7, 8)")
    made = new()
    made.done("table", "create", "shop.yaml")
    ended = made.run("backfill", "shop.yaml", "--json")
    assert (ended.code, ended.data["findings"], ended.data["total"]["items"]) == (1, {"refused": 2}, 2998)
    found = made.done("status", "--findings", "shop.yaml").out.splitlines()
    assert found == [
        f"refused: users [{n}]: users.User: column age: the value is not an integer, but the column is declared as one"
        for n in (7, 8)
    ]
    made.job.write_text(made.job.read_text().replace("tuning: {", "tuning: {max_refused: 2, "))
    assert made.run("backfill", "shop.yaml").code == 0
    assert made.run("verify", "shop.yaml", "--json").data["findings"] == {"refused": 2}


def test_recreated_table_of_the_same_name_is_filled_again(new: New, dynamodb_url: str) -> None:
    made = new()
    made.done("table", "create", "shop.yaml")
    made.done("backfill", "shop.yaml")
    dynamodb_client(region=None, profile=None, endpoint=dynamodb_url).delete_table(TableName=made.table)
    time.sleep(0.1)
    made.done("table", "create", "shop.yaml")
    made.done("backfill", "shop.yaml")
    assert len(made.items()) == 3000
