"""A text that is not UTF-8, in a value and in a key: each command ends, and a finding names the row."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from migrator.runtime.values import replace
from tests import support_mysql
from tests.integration.test_source_encodings import database
from tests.journeys.command import Project, project

pytestmark = pytest.mark.slow

MAPPING = """\
mapping: 1
table: {name: Bytes, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  customer: {items: {Customer: {key: ["C#{id}", META], attributes: {name: name}}}}
  named: {items: {Named: {key: ["N#{name}", META], keep: [n]}}}
  note:
    join: {customer: customer_id}
    items: {Note: {key: ["C#{customer_id}", "NOTE#{id}"], attributes: {by: customer.name}}}
access_patterns:
  get_customer:
    params: {id: integer}
    get: {key: ["C#{id}", META]}
    returns: [name]
    sql: SELECT name FROM customer WHERE id = :id
  get_named:
    params: {name: text}
    get: {key: ["N#{name}", META]}
    returns: [n]
    sql: SELECT n FROM named WHERE name = :name
"""
TABLES = (
    "CREATE TABLE customer (id integer PRIMARY KEY, name text)",
    "CREATE TABLE named (name varchar(40) PRIMARY KEY NOT NULL, n integer)",
    "CREATE TABLE note (id integer PRIMARY KEY, customer_id integer REFERENCES customer (id))",
    "INSERT INTO customer VALUES (1, 'a'), (2, {bad}), (3, 'c')",
    "INSERT INTO named VALUES ('a', 1), ({bad}, 2)",
    "INSERT INTO note VALUES (1, 1), (2, 2)",
)
CHANGES = (
    "UPDATE customer SET name = 'd' WHERE id = 1",
    "UPDATE customer SET name = {worse} WHERE id = 2",
    "UPDATE customer SET name = {bad} WHERE id = 3",
    "UPDATE named SET n = 3 WHERE name = {bad}",
)


@dataclass(frozen=True)
class Shop:
    """`run`: statements as a service sends them, with their bytes in the engine's words."""

    project: Project
    run: Callable[..., None]
    bad_key: str = r'["Z\udce9"]'

    def findings(self) -> set[tuple[str, str]]:
        """(entity, key) of each finding of the newest run."""
        told = self.project.run("status", "--findings", str(self.project.job), "--json", "--show-keys")
        return {(one["entity"], one["source_key"]) for one in told.data["findings"]}


HALVES = {
    "utf8mb3": ("5AEDA080", "EDA08061"),
    "ucs2": ("005AD800", "D8000061"),
    "utf32": ("0000005A0000D800", "0000D80000000061"),
}
"""Of a character set: a text that ends with half of a surrogate pair, and one that begins with it. utf16 takes none."""


@pytest.fixture(
    params=[
        "postgresql",
        "sqlite",
        pytest.param("utf8mb3", marks=[pytest.mark.mysql, pytest.mark.mariadb]),
        pytest.param("ucs2", marks=pytest.mark.mysql),
        pytest.param("utf32", marks=[pytest.mark.mysql, pytest.mark.mariadb]),
    ]
)
def shop(request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str) -> Iterator[Shop]:
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    if request.param in HALVES:
        halves = {
            word: f"_{request.param} X'{text}'"
            for word, text in zip(("bad", "worse"), HALVES[request.param], strict=True)
        }
        url = request.getfixturevalue("mysql_database")

        def on_mysql(*statements: str) -> None:
            with support_mysql.connect(url) as server, server.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement.format(**halves))

        on_mysql(f"ALTER DATABASE CHARACTER SET {request.param}")
        yield replace(made(tmp_path, url, dynamodb_url, on_mysql), bad_key=r'["Z\udced\udca0\udc80"]')
        return
    if request.param == "sqlite":
        words = {"bad": "CAST(X'5ae9' AS TEXT)", "worse": "CAST(X'ff61' AS TEXT)"}

        def on_sqlite(*statements: str) -> None:
            with closing(sqlite3.connect(tmp_path / "shop.db")) as rows, rows:
                for statement in statements:
                    rows.execute(statement.format(**words))

        yield made(tmp_path, f"sqlite:///{tmp_path / 'shop.db'}", dynamodb_url, on_sqlite)
        return
    words = {
        "bad": "convert_from('\\x5ae9', 'SQL_ASCII')",
        "worse": "convert_from('\\xff61', 'SQL_ASCII')",
    }
    with database(request.getfixturevalue("postgres_url"), "SQL_ASCII") as url:

        def on_postgresql(*statements: str) -> None:
            with psycopg.connect(url) as server:
                for statement in statements:
                    server.execute(statement.format(**words))

        yield made(tmp_path, url, dynamodb_url, on_postgresql)


def made(folder: Path, url: str, endpoint: str, run: Callable[..., None]) -> Shop:
    run(*TABLES)
    new = project(folder, url, endpoint, f"B{secrets.token_hex(4)}", tuning="lease_s: 1, page_rows: 1")
    lines = new.job.read_text().splitlines()
    new.job.write_text("\n".join("mapping: mapping.yaml" if "mapping:" in line else line for line in lines))
    new.done("table", "create", str(new.job))
    return Shop(new, run)


def test_every_command_ends_and_a_finding_names_the_row(shop: Shop) -> None:
    job, run = str(shop.project.job), shop.project.run
    shop.project.done("mapping", "check", str(shop.project.folder / "mapping.yaml"), "--source", job)
    shop.project.done("capture", "install", job)
    assert run("backfill", job).code == 1
    assert shop.findings() == {("customer", "[2]"), ("named", shop.bad_key), ("note", "[2]")}
    shop.run(CHANGES[1])
    refused = run("verify", "--settle", "0s", job)
    assert refused.code == 1
    assert "3 rows refused" in refused.err
    assert "on its way" not in refused.err
    shop.run(*CHANGES)
    assert run("relay", "--once", job).code == 1
    relay = next(one for one in run("report", job, "--json").data["runs"] if one["kind"] == "relay")
    assert relay["refused"] == 4
    assert run("verify", "--settle", "0s", job).code == 1
    assert {item["PK"]: item["name"] for item in shop.project.items() if item["type"] == "Customer"} == {
        "C#1": "d"
    }
    for words in (
        ["status"],
        ["status", "--findings"],
        ["report"],
        ["look", "--pattern", "get_customer", "-p", "id=2"],
        ["shadow", "replay", "--sample", "10", "--settle", "0"],
    ):
        ended = run(*words, job)
        assert ended.code in (0, 1), (words, ended.err)
    shop.run("UPDATE customer SET name = 'e'", "DELETE FROM named WHERE n = 3")
    assert run("relay", "--once", job).code == 0
    assert run("verify", "--settle", "0s", job).code == 0
