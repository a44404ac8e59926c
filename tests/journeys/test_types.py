"""Every type of every engine through backfill, capture, relay and verify: as the first row of a page, as a change, as NULL."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

import pytest

from tests.journeys.command import Project, project
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


@pytest.mark.parametrize("engine", ["sqlite", "postgresql", "mariadb"])
def test_types_keep_their_values_in_every_stage(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    server = request.getfixturevalue("mysql_url") if engine == "mariadb" else ""
    every = test_types_mariadb.cases_on(server) if server else CASES[engine]
    cases = [case for case in every if not case.refused]
    url = database_on(engine, request, tmp_path)(PREPARED[engine] + script_of(cases))
    made = of_types(tmp_path, url, dynamodb_url, cases)
    job = str(made.job)
    for words in (["table", "create"], ["capture", "install"], ["backfill"], ["verify"]):
        made.done("-q", *words, job)
    with closing(connect(engine, url)) as source, closing(source.cursor()) as cursor:
        for number, case in enumerate(cases):
            cursor.execute(f"INSERT INTO t{number} VALUES (2, {case.literal})")
            if takes_null(case):
                cursor.execute(f"INSERT INTO t{number} VALUES (3, NULL)")
    made.done("-q", "relay", "--once", job)
    made.done("-q", "verify", job)
    items = {(item["PK"], item["SK"]): item for item in made.items()}
    for number, case in enumerate(cases):
        first, second = items[f"T{number}#1", "P"], items[f"T{number}#2", "P"]
        assert (first.get("v"), "v" in first) == (second.get("v"), "v" in second), case
        assert not takes_null(case) or "v" not in items[f"T{number}#3", "P"], case


def takes_null(case: Case) -> bool:
    return "SERIAL" not in case.declared


def of_types(folder: Path, url: str, endpoint: str, cases: list[Case]) -> Project:
    made = project(folder, url, endpoint, f"T{secrets.token_hex(4)}")
    head = "mapping: 1\ntable: {name: Types, key: [PK, SK], type: type, ttl: expiresAt}\nentities:\n"
    lines = (
        f"  t{number}: {{items: {{T{number}: {{key: ['T{number}#{{id}}', P], keep: [v]}}}}}}\n"
        for number, _ in enumerate(cases)
    )
    (folder / "mapping.yaml").write_text(head + "".join(lines))
    text = made.job.read_text().splitlines()
    made.job.write_text("\n".join("mapping: mapping.yaml" if "mapping:" in one else one for one in text))
    return made
