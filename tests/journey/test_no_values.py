"""No value of a row, no secret and no URL with a password in anything that a run says."""

from __future__ import annotations

import re
import secrets
import sqlite3
from pathlib import Path

import psycopg

from tests.journey.command import Project, project

PLANTED = [f"planted{n}{secrets.token_hex(6)}" for n in range(6)]
MAPPING = """\
mapping: 1
table: {name: People, key: [PK, SK], type: type, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  person:
    items:
      Person: {key: ["PERSON#{id}", META], GSI1: ["EMAIL#{email}", "{name}"], keep: all}
      ByEmail: {key: ["MAIL#{email|lower}", MAIL], keep: [name]}
"""
TABLE = "CREATE TABLE person (id INTEGER PRIMARY KEY, name VARCHAR(3000), email VARCHAR(100), born DATE)"
ROWS = [
    (1, PLANTED[0], f"{PLANTED[1]}@example.com", "2000-01-02"),
    (2, PLANTED[2], f"{PLANTED[1].upper()}@example.com", "2000-01-02"),  # the same address: a collision
    (3, PLANTED[3] * 100, f"{PLANTED[4]}@example.com", "2000-01-02"),  # too long a key: refused
]


def said(made: Project) -> str:
    """All that the commands of a migration say, with something wrong at every step."""
    runs = [
        made.run("mapping", "check", "people.yaml"),
        made.run("table", "create", str(made.job)),
        made.run("table", "check", str(made.job)),
        made.run("backfill", str(made.job), "--dry-run"),
        made.run("backfill", str(made.job)),
        made.run("status", str(made.job)),
        made.run("findings", str(made.job), "--all"),
    ]
    (item,) = made.store().get([("PERSON#1", "META")]).values()
    made.store().put([{**item, "name": PLANTED[5]}])
    runs += [
        made.run("verify", str(made.job)),
        made.run("verify", str(made.job), "--json"),
        made.run("findings", str(made.job)),
    ]
    assert [run.code for run in runs] == [0, 0, 0, 1, 1, 0, 0, 1, 1, 0]
    return "".join(run.out + run.err for run in runs)


def prepared(folder: Path, source: str, endpoint: str) -> Project:
    (folder / "people.yaml").write_text(MAPPING)
    made = project(folder, source, endpoint, f"People{secrets.token_hex(4)}")
    made.job.write_text(re.sub("mapping: .*", "mapping: people.yaml", made.job.read_text()))
    return made


def test_a_run_on_sqlite_says_nothing_of_its_rows(tmp_path: Path, dynamodb_url: str) -> None:
    connection = sqlite3.connect(tmp_path / "people.db")
    connection.execute(TABLE)
    connection.executemany("INSERT INTO person VALUES (?, ?, ?, ?)", ROWS)
    connection.commit()
    connection.close()
    text = said(prepared(tmp_path, f"sqlite:///{tmp_path}/people.db", dynamodb_url)).lower()
    # The key of an item names a person here; findings name it, because somebody must find the item.
    shown = {value for value in PLANTED if value in text}
    assert shown <= {PLANTED[1]}
    lines = [line for line in text.splitlines() if PLANTED[1] in line]
    assert all("collision" in line or "missing" in line or "mail#" in line for line in lines)
    assert not any(line.startswith("{") and '"event"' in line for line in lines), "a log line holds a key"


def test_a_run_on_postgresql_keeps_its_password_and_its_rows(
    tmp_path: Path, postgres_database: str, dynamodb_url: str
) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute(TABLE)
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO person VALUES (%s, %s, %s, %s)", ROWS)
    with_password = re.sub(
        r"//(?:([^:@/]+)(?::[^@]*)?@)?", r"//\g<1>:hunter2-planted@", postgres_database, count=1
    )
    if "//:" in with_password:
        with_password = with_password.replace("//:", "//root:")
    text = said(prepared(tmp_path, with_password, dynamodb_url)).lower()
    assert "hunter2" not in text
    assert {value for value in PLANTED if value in text} <= {PLANTED[1]}


def test_an_unreachable_source_keeps_its_password(tmp_path: Path, dynamodb_url: str) -> None:
    made = prepared(tmp_path, "postgresql://someone:hunter2-planted@127.0.0.1:1/nowhere", dynamodb_url)
    ended = made.run("backfill", str(made.job))
    assert ended.code == 3
    assert "hunter2" not in ended.out + ended.err
