"""Statements as ORMs and public applications send them: served by a pattern that answers as SQL does, or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.mapping.model.questions import REASONS
from migrator.source.sql.spelling import Speller
from tests.journeys.in_process import run_here
from tests.support_capture import Capturing
from tests.support_statements import Application, applications, rows_of

APPLICATIONS = {application.name: application for application in applications()}
pytestmark = [pytest.mark.postgres, pytest.mark.mysql]


def filled(source: Capturing, application: Application) -> None:
    """The application's tables, with rows."""
    tables = [part for part in application.schema.split(";\n") if part.strip()]
    source.run(*tables)
    facts = source.source.facts()
    quoted = Speller("", facts.dialect).quoted
    names = [part.split(" (")[0].removeprefix("CREATE TABLE ").strip('"') for part in tables]
    with source.service() as service:
        for table in (facts.tables[name] for name in names):
            written = [column for column in table.columns if not column.generated]
            columns = ", ".join(quoted(column.real) for column in written)
            mark = "?" if facts.dialect == "sqlite" else "%s"
            marks = ", ".join([mark] * len(written))
            for row in rows_of(table):
                values = [row[column.real] for column in written]
                service.execute(f"INSERT INTO {quoted(table.real)} ({columns}) VALUES ({marks})", values)


OWN = pytest.mark.mariadb
"""Types that MySQL does not have."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[OWN] if "MariaDB" in name else []) for name in APPLICATIONS]
)
def test_statements_are_served_as_sql_answers_or_refused(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    application = APPLICATIONS[name]
    source: Capturing = request.getfixturevalue(application.engine)
    filled(source, application)
    (tmp_path / "asked.sql").write_text(application.file, encoding="utf-8")
    words = ["init", source.url, "--out", "shop.yaml", "--statements", "asked.sql", "--max-indexes", "20"]
    ended = run_here([*words, "--json"], tmp_path, {})
    assert ended.code == 1, ended.err

    refused = {one["statement"]: one["reason"] for one in ended.data["not_served"]}
    reasons = {f"s{n}": sent.refused for n, sent in enumerate(application.statements)}
    assert refused == {number: reason for number, reason in reasons.items() if reason}
    proof = ended.data["proof"]
    assert set(proof["patterns"]) == {number for number, reason in reasons.items() if not reason}
    assert all(replay["questions"] and not replay["different"] for replay in proof["patterns"].values())
    checked = run_here(["mapping", "check", "shop.yaml", "--source", source.url, "--json"], tmp_path, {})
    assert [fault for fault in checked.data if fault["where"].endswith(".sql")] == []
    assert not any("also matches longer names" in fault["what"] for fault in checked.data)


# Types that refuse a text which is none of their values, or cut it.
STRICT = {
    "postgresql": {
        "mood": "'sad'", "inet": "'10.1.2.3'", "cidr": "'10.0.0.0/8'", "macaddr8": "'08:00:2b:01:02:03:04:05'",
        "int4range": "'[1,5)'", "interval": "'1 day'", "pg_lsn": "'16/B374D848'", "tid": "'(0,1)'",
        '"char"': "'a'", "name": "'a'", "int4multirange": "'{[1,2)}'",
    },
    "mariadb": {"enum('a','b')": "'b'", "inet6": "'2001:db8::1'", "inet4": "'10.1.2.3'"},
}  # fmt: skip


@pytest.mark.parametrize("engine", ["postgresql", pytest.param("mariadb", marks=OWN)])
def test_values_of_a_strict_type_are_compared(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source: Capturing = request.getfixturevalue(engine)
    asked = []
    if engine == "postgresql":
        source.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    for number, (declared, value) in enumerate(STRICT[engine].items()):
        source.run(f"CREATE TABLE t{number} (id int PRIMARY KEY, v {declared} NOT NULL)")
        source.run(f"INSERT INTO t{number} VALUES (1, {value})")
        asked.append(f"-- p{number}: 1/s\nSELECT * FROM t{number} WHERE v = :v;\n")
    (tmp_path / "asked.sql").write_text("".join(asked), encoding="utf-8")
    ended = run_here(["init", source.url, "--out", "shop.yaml", "--statements", "asked.sql"], tmp_path, {})
    assert ended.code == 0, ended.out
    assert "any length" not in ended.out


def test_proof_says_why_a_row_makes_no_item(sqlite: Capturing, tmp_path: Path) -> None:
    sqlite.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP)", "INSERT INTO t VALUES (1, '0000-00-00')"
    )
    words = ["init", sqlite.url, "--out", "shop.yaml", "--statements", "none"]
    ended = run_here(words, tmp_path, {})
    (line,) = [line for line in ended.out.splitlines() if line.startswith("refused:")]
    assert (ended.code, "1 row of t makes no item: t.T: column at" in line, "at|text" in line) == (
        1,
        True,
        True,
    )
    assert run_here([*words, "--force", "--json"], tmp_path, {}).data["proof"]["refused"] == {"t": 1}


def test_three_of_four_statements_of_applications_are_served() -> None:
    sent = [sent for application in APPLICATIONS.values() for sent in application.statements]
    assert len(sent) >= 200
    assert sum(not one.refused for one in sent) >= 150
    assert {one.refused for one in sent if one.refused} <= set(REASONS)
