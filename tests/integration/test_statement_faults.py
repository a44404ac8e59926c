"""The SQL of access patterns, shown to real databases: what they refuse is found before a question is asked."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import pytest

from migrator.settings.job import SourceSettings
from migrator.stages.patterns.question import statement_faults
from migrator.stages.session.source import open_source
from tests import pins
from tests.journeys.command import ROOT, project
from tests.support_chinook import snake_case
from tests.support_mapping import parse_mapping

CHINOOK = (ROOT / "mappings" / "chinook.yaml").read_text(encoding="utf-8")
CHINOOK_POSTGRESQL = (ROOT / "mappings" / "chinook_postgresql.yaml").read_text(encoding="utf-8")
TYPES = """\
  every_type:
    params: {i: integer, n: number, t: text, b: boolean, d: date, s: timestamp, l: list of integer, o: optional integer, m: integer}
    get: {key: ["ARTIST#{i}", META]}
    returns: [name]
    sql: >
      SELECT ar.Name FROM Artist ar WHERE ar.ArtistId = :i AND ar.ArtistId > :n AND ar.Name = :t AND 1 = :i
      AND ar.ArtistId IN :l AND ar.ArtistId = COALESCE(:o, 1) AND EXISTS (SELECT 1 FROM Invoice iv WHERE iv.InvoiceDate > :d)
      LIMIT :m
"""
WRONG = """\
  no_column:
    params: {id: integer}
    get: {key: ["ARTIST#{id}", META]}
    returns: [name]
    sql: SELECT ar.Nam FROM Artist ar WHERE ar.ArtistId = :id
  no_sql:
    params: {id: integer}
    get: {key: ["ARTIST#{id}", META]}
    returns: [name]
    sql: SELECT ar.Name FROM Artist ar WHERE WHERE ar.ArtistId = :id
  writes:
    params: {id: integer}
    get: {key: ["ARTIST#{id}", META]}
    returns: [name]
    sql: DELETE FROM Artist WHERE ArtistId = :id
"""


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('chinook_sqlite')}"
    return str(
        request.getfixturevalue({"postgresql": "chinook_postgres", "mariadb": "chinook_mysql"}[request.param])
    )


def faults(url: str, patterns: str) -> list[str]:
    if url.startswith("postgres"):
        patterns = re.sub(r"\b(?:[A-Z][a-z]+)+\b", lambda name: snake_case(name[0]), patterns)
    mapping = CHINOOK_POSTGRESQL if url.startswith("postgres") else CHINOOK
    parsed = parse_mapping(mapping + patterns, "m.yaml")
    with open_source(SourceSettings(url=url), parsed) as source:
        return [" ".join(names).strip() for names in statement_faults(source, parsed.mapping)]


def test_sound_statements_are_taken(url: str) -> None:
    assert faults(url, TYPES) == []


def test_all_refusals_are_reported_at_once(url: str) -> None:
    assert faults(url, WRONG) == ["no_column", "no_sql", "writes"]


def test_check_and_doctor_say_it_with_the_line(
    tmp_path: Path, chinook_sqlite: Path, dynamodb_url: str
) -> None:
    made = project(tmp_path, f"sqlite:///{chinook_sqlite}", dynamodb_url, f"C{secrets.token_hex(4)}")
    (tmp_path / "wrong.yaml").write_text(CHINOOK + WRONG)
    made.job.write_text(made.job.read_text().replace(str(ROOT / "mappings" / "chinook.yaml"), "wrong.yaml"))
    line = CHINOOK.count("\n") + 5
    ended = made.run("mapping", "check", "wrong.yaml")
    assert ended.code == 2
    assert f"wrong.yaml:{line}: access_patterns.no_column.sql: " in ended.err
    assert pins.said(ended.err, "such")
    assert "3 faults" in ended.err
    doctor = made.run("doctor", str(made.job), "--json").data["checks"]
    failed = {check["name"] for check in doctor if check["state"] == "failed"}
    assert {"SQL of no_column", "SQL of no_sql", "SQL of writes"} <= failed
