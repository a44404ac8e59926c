"""No value of a row, no secret and no URL with a password in anything that a run says."""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import psycopg

from migrator.mapping.model.table import Item
from tests.journeys.command import Project, project
from tests.support_items import put_items

PLANTED = [f"planted{n}{secrets.token_hex(6)}" for n in range(12)]
MAPPING = """\
mapping: 1
table: {name: People, key: [PK, SK], type: type, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  person:
    items:
      Person: {key: ["PERSON#{id}", META], GSI1: ["EMAIL#{email}", "{name}"], keep: all}
      ByEmail: {key: ["MAIL#{email|lower}", MAIL], keep: [name]}
  member:
    items:
      Member: {key: ["MEMBER#{email}", "{name}"], keep: all}
      Named: {key: ["{name|lower}", META]}
"""
TABLES = """
CREATE TABLE person (id INTEGER PRIMARY KEY, name VARCHAR(3000), email VARCHAR(100), born DATE);
CREATE TABLE member (email VARCHAR(100) PRIMARY KEY, name VARCHAR(3000), phone VARCHAR(20));
"""
PERSONS = [
    (1, PLANTED[0], f"{PLANTED[1]}@example.com", "2000-01-02"),
    (2, PLANTED[2], f"{PLANTED[1].upper()}@example.com", "2000-01-02"),  # the same address: a collision
    (3, PLANTED[3] * 100, f"{PLANTED[4]}@example.com", "2000-01-02"),  # too long a key: refused
]
MEMBERS = [
    (f"{PLANTED[6]}@example.com", PLANTED[7], "+491701234567"),
    (f"{PLANTED[8]}@example.com", PLANTED[7].upper(), "+491701234567"),  # the same name: a collision
    (f"{PLANTED[9]}@example.com", PLANTED[10] * 100, "+491701234567"),  # too long a key: refused
]
FOREIGN: Item = {"PK": PLANTED[11], "SK": "META", "_src": PLANTED[11], "type": "Other"}
INSERTS: dict[str, Sequence[tuple[object, ...]]] = {"person": PERSONS, "member": MEMBERS}


def said(made: Project) -> str:
    """In lower case all that the commands of a migration say, with something wrong at every step."""
    runs = [
        made.run("mapping", "check", "people.yaml"),
        made.run("table", "create", str(made.job)),
        made.run("table", "check", str(made.job)),
        made.run("backfill", str(made.job), "--dry-run"),
        made.run("backfill", str(made.job)),
        made.run("status", str(made.job)),
        made.run("status", "--findings", str(made.job), "--all"),
    ]
    spoiled(made)
    runs += [
        made.run("verify", str(made.job)),
        made.run("verify", str(made.job), "--json"),
        made.run("status", "--findings", str(made.job)),
        made.run("status", "--findings", str(made.job), "--json"),
        made.run("clean", "--all-items", str(made.job), "--dry-run"),
        made.run("look", str(made.job), "--pattern", "nobody"),
    ]
    assert [run.code for run in runs] == [0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 2]
    return "".join(run.out + run.err for run in runs).lower()


def spoiled(made: Project) -> None:
    """The table with a changed value, a missing item, an item that no row makes, and one of another program's."""
    email = f"{PLANTED[6]}@example.com"
    (item,) = made.store().get([("PERSON#1", "META")]).values()
    (member,) = made.store().get([(f"MEMBER#{email}", PLANTED[7])]).values()
    extra = {**member, "SK": PLANTED[8]}
    other = {**member, "PK": PLANTED[7], "SK": "META", "_src": PLANTED[11]}
    put_items(made.store(), [{**item, "name": PLANTED[5]}, extra, other, FOREIGN])
    made.store().delete([(f"MEMBER#{email}", PLANTED[7])])


def prepared(folder: Path, source: str, endpoint: str) -> Project:
    (folder / "people.yaml").write_text(MAPPING)
    made = project(folder, source, endpoint, f"People{secrets.token_hex(4)}")
    made.job.write_text(re.sub("mapping: .*", "mapping: people.yaml", made.job.read_text()))
    return made


def test_run_on_sqlite_prints_nothing_of_its_rows(tmp_path: Path, dynamodb_url: str) -> None:
    connection = sqlite3.connect(tmp_path / "people.db")
    connection.executescript(TABLES)
    for table, rows in INSERTS.items():
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    connection.commit()
    connection.close()
    made = prepared(tmp_path, f"sqlite:///{tmp_path}/people.db", dynamodb_url)
    text = said(made)
    assert [value for value in PLANTED if value in text] == []
    assert "+491701234567" not in text
    for kind in ("refused", "collision", "missing", "different", "unexpected", "foreign"):
        assert f"\n{kind}:" in text, kind
    assert re.search(r'item \w+ \["member#…', text)

    whole = (
        made.run("status", "--findings", str(made.job), "--all", "--show-keys").out
        + made.run("verify", str(made.job), "--show-keys").out
    )
    assert (
        f'missing: member ["{PLANTED[6]}@example.com"] item Member ["MEMBER#{PLANTED[6]}@example.com"'
        in whole
    )


def test_a_run_on_postgresql_keeps_its_password_and_its_rows(
    tmp_path: Path, postgres_database: str, dynamodb_url: str
) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute(TABLES)
        with connection.cursor() as cursor:
            for table, rows in INSERTS.items():
                marks = ", ".join(["%s"] * len(rows[0]))
                cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    with_password = re.sub(
        r"//(?:([^:@/]+)(?::[^@]*)?@)?", r"//\g<1>:hunter2-planted@", postgres_database, count=1
    )
    if "//:" in with_password:
        with_password = with_password.replace("//:", "//root:")
    text = said(prepared(tmp_path, with_password, dynamodb_url))
    assert "hunter2" not in text
    assert [value for value in PLANTED if value in text] == []
