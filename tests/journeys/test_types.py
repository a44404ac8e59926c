"""Every type of every engine in each stage: a value, another row of it, NULL; as an attribute and as what names rows."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from migrator.runtime.values import replace
from tests.exports.generated import CLIENT
from tests.journeys.command import Project, project
from tests.journeys.test_rows_come_back import emptied, engine_of
from tests.language import test_types_mariadb, test_types_postgresql, test_types_sqlite
from tests.language.conftest import database_on
from tests.language.typed import Case, script_of
from tests.support_capture import connect

PREPARED = {
    "sqlite": "",
    "postgresql": test_types_postgresql.MAKE_TYPES,
    "mariadb": "SET sql_mode = 'ALLOW_INVALID_DATES'; ",
}
CASES = {
    "sqlite": test_types_sqlite.CASES,
    "postgresql": test_types_postgresql.CASES,
}
TEXTS = {
    "sqlite": "typeof(v) || quote(v)",
    "postgresql": "CAST(v AS text)",
    "mariadb": "HEX(CAST(v AS BINARY))",
}
"""All of a value as text."""
PLAIN: dict[str, Callable[[str], str]] = {
    "sqlite": lambda text: text[len("text'") : -1].replace("''", "'"),
    "postgresql": str,
    "mariadb": lambda text: bytes.fromhex(text).decode(),
}
"""A text out of that."""
OTHER_TEXT = ("jsonb[]", "[0:1]", "ROW(")
"""Of declared types and literals whose value comes back in another text: a document's spaces and the order of its names,
the lower bounds of an array."""
DRIVERS: dict[str, Any] = {"sqlite": sqlite3, "postgresql": psycopg, "mariadb": pymysql}


@dataclass(frozen=True)
class Typed:
    """A source with a table of each case: t0, t1, … with `v` as an attribute, k0, k1, … of those whose `v` names rows."""

    engine: str
    made: Project
    cases: Sequence[Case]
    keyed: Sequence[int]

    @property
    def tables(self) -> list[str]:
        there = (f"t{number}" for number, case in enumerate(self.cases) if case.comes_back)
        return [*there, *(f"k{number}" for number in self.keyed)]

    def run(self, *statements: str) -> None:
        url = self.made.environment["MIGRATOR_SOURCE_URL"]
        with closing(connect(self.engine, url)) as source, closing(source.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self) -> dict[str, list[Any]]:
        with engine_of(self.made).connect() as source:
            return {
                table: sorted(map(tuple, source.execute(sa.text(self._select(table)))), key=repr)
                for table in self.tables
            }

    def _select(self, table: str) -> str:
        return f"SELECT {'id' if table[0] == 't' else 'n'}, {TEXTS[self.engine]} FROM {table}"

    def documents(self, rows: Sequence[Any]) -> list[Any]:
        """Rows with the document that is in their text, whatever its spaces, the order of names and names that come twice."""
        null = "nullNULL" if self.engine == "sqlite" else None
        return [
            (number, [] if text == null else [json.loads(PLAIN[self.engine](text))]) for number, text in rows
        ]

    def has_one_text(self, table: str) -> bool:
        case = self.cases[int(table[1:])]
        # SQLite keeps a time as any text of it; `reverse verify` compares the values.
        has_other = any(word in f"{case.declared} {case.literal}" for word in OTHER_TEXT)
        return not (self.engine == "sqlite" or has_other or is_document(case))


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def typed(request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str) -> Typed:
    engine = request.param
    server = request.getfixturevalue("mysql_url") if engine == "mariadb" else ""
    every = test_types_mariadb.cases_on(server) if server else CASES[engine]
    cases = [case for case in every if not case.refused]
    url = database_on(engine, request, tmp_path)(PREPARED[engine] + script_of(cases))
    keyed = list(_keyed(engine, url, cases))
    made = of_types(tmp_path, url, dynamodb_url, cases, keyed)
    checked = made.run("mapping", "check", str(made.folder / "mapping.yaml"), "--source", url)
    # A type that may not name rows; docs/types.md says why.
    refused = {int(number) for number in re.findall(r"yaml:\d+: entities\.k(\d+)\.", checked.err)}
    keyed = [number for number in keyed if number not in refused]
    (tmp_path / "mapping.yaml").write_text(mapping_of(cases, keyed))
    return Typed(engine, made, cases, keyed)


def test_types_keep_their_values_in_every_stage(typed: Typed) -> None:
    (typed.made.folder / "mapping.yaml").write_text(mapping_of(typed.cases, ()))
    go_forward(replace(typed, keyed=()))


@pytest.mark.nightly
def test_types_come_back_as_attributes_and_as_keys(typed: Typed) -> None:
    go_forward(typed)
    come_back(typed)


def go_forward(typed: Typed) -> None:
    """Backfill, a change of each row that the relay writes, and verify after both."""
    made, cases = typed.made, typed.cases
    job = str(made.job)
    for words in (["table", "create"], ["capture", "install"], ["backfill"], ["verify"]):
        made.done("-q", *words, job)
    typed.run(*_writes(typed))
    made.done("-q", "relay", "--once", job)
    made.done("-q", "verify", job)
    items = {(item["PK"], item["SK"]): item for item in made.items()}
    for number, case in enumerate(cases):
        first, second = items[f"T{number}#1", "P"], items[f"T{number}#2", "P"]
        assert (first.get("v"), "v" in first) == (second.get("v"), "v" in second), case
        assert not takes_null(case) or "v" not in items[f"T{number}#3", "P"], case
    named = [item for item in made.items() if item["type"] in {f"K{number}" for number in typed.keyed}]
    assert [item["n"] for item in named] == [2] * len(typed.keyed)


def come_back(typed: Typed) -> None:
    """Rows of an empty copy of the schema, made of the items, are those of before."""
    made, before = typed.made, typed.rows()
    job = str(made.job)
    made.job.write_text(f"{made.job.read_text()}writes: {{direct: [{', '.join(typed.tables)}]}}\n")
    made.done("capture", "install", job)
    made.done("reverse", "start", job, "--once", "--settle", "0s")
    write_the_same(made)
    made.done("reverse", "start", job, "--once", "--settle", "0s")
    assert typed.rows() == before
    made.done("reverse", "verify", job, "--settle", "0s")
    emptied(made, typed.tables)
    made.done("reverse", "verify", job, "--repair", "--settle", "0s")
    after = typed.rows()
    for table in typed.tables:
        case = typed.cases[int(table[1:])]
        if typed.has_one_text(table):
            assert after[table] == before[table], case
        elif is_document(case):
            assert typed.documents(after[table]) == typed.documents(before[table]), case
        else:
            assert len(after[table]) == len(before[table])


def write_the_same(made: Project) -> None:
    """A service's writes of which no row makes anything, so that the stream has a record of each item."""
    table = boto3.resource("dynamodb", endpoint_url=made.endpoint, **CLIENT).Table(made.table)
    for item in made.items():
        for word in ("SET seen = :seen", "REMOVE seen"):
            values = {"ExpressionAttributeValues": {":seen": 1}} if ":seen" in word else {}
            table.update_item(Key={"PK": item["PK"], "SK": item["SK"]}, UpdateExpression=word, **values)


def _writes(typed: Typed) -> Iterator[str]:
    """A second row of each value, one of NULL, and a change of each row that is named by its value."""
    if typed.engine == "mariadb":
        yield "SET sql_mode = 'ALLOW_INVALID_DATES'"
    for number, case in enumerate(typed.cases):
        yield f"INSERT INTO t{number} VALUES (2, {case.literal})"
        if takes_null(case):
            yield f"INSERT INTO t{number} VALUES (3, NULL)"
    yield from (f"UPDATE k{number} SET n = 2" for number in typed.keyed)


def _keyed(engine: str, url: str, cases: Sequence[Case]) -> Iterator[int]:
    """Numbers of the cases whose type the source takes as a primary key, each with a table of one row."""
    with closing(connect(engine, url)) as source, closing(source.cursor()) as cursor:
        for number, case in enumerate(cases):
            if not takes_null(case) or case.literal == "NULL" or _is_several(case) or not case.comes_back:
                continue
            try:
                cursor.execute(f"CREATE TABLE k{number} (v {case.declared} NOT NULL PRIMARY KEY, n INTEGER)")
            except DRIVERS[engine].Error:
                continue
            cursor.execute(f"INSERT INTO k{number} VALUES ({case.literal}, 1)")
            yield number


def _is_several(case: Case) -> bool:
    """Whether one value has several texts as a key: a JSON document, and a number in a column without a type."""
    return not case.declared or "JSON" in case.declared.upper()


def is_document(case: Case) -> bool:
    return case.declared in ("JSON", "JSONB")


def takes_null(case: Case) -> bool:
    return "SERIAL" not in case.declared


def mapping_of(cases: Sequence[Case], keyed: Sequence[int]) -> str:
    head = "mapping: 1\ntable: {name: Types, key: [PK, SK], type: type, ttl: expiresAt}\nentities:\n"
    attributes = (
        f"  t{number}: {{items: {{T{number}: {{key: ['T{number}#{{id}}', P], keep: [v]}}}}}}\n"
        for number, _ in enumerate(cases)
    )
    filters = {
        number: "json|hash" if "JSON" in cases[number].declared.upper() else "hash" for number in keyed
    }
    keys = (
        f"  k{number}: {{items: {{K{number}: {{key: ['K{number}#{{v|{used}}}', P], keep: [v, n]}}}}}}\n"
        for number, used in filters.items()
    )
    return "".join((head, *attributes, *keys))


def of_types(folder: Path, url: str, endpoint: str, cases: Sequence[Case], keyed: Sequence[int]) -> Project:
    made = project(folder, url, endpoint, f"T{secrets.token_hex(4)}")
    made.environment["MIGRATOR_HOME"] = str(folder / ".migrator")
    (folder / "mapping.yaml").write_text(mapping_of(cases, keyed))
    text = made.job.read_text().replace("target: {", "target: {options: {stream: new_and_old_images}, ")
    lines = ("mapping: mapping.yaml" if "mapping:" in one else one for one in text.splitlines())
    made.job.write_text("\n".join([*lines, ""]))
    return made
