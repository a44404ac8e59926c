"""Chinook's 14 access patterns: `migrator query` on every engine, beside the golden figures of the data's README."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
from pathlib import Path

import psycopg
import pytest

from migrator.cli.main import run
from migrator.mapping.parse import parse_mapping
from tests.journey.command import ROOT, Project, project
from tests.support_chinook import Golden, golden_runs

ENGINES = ("sqlite", "postgresql", "mysql")


@pytest.fixture(scope="module")
def golden(chinook_dir: Path) -> list[Golden]:
    return list(golden_runs((chinook_dir / "README.md").read_text(encoding="utf-8")))


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def filled(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str
) -> Project:
    """A project on the engine's Chinook, its table filled."""
    folder = tmp_path_factory.mktemp(f"patterns_{engine}")
    made = project(folder, source_of(engine, request, folder), dynamodb_url, f"Chinook{secrets.token_hex(4)}")
    made.done("table", "create", str(made.job))
    made.done("backfill", str(made.job))
    return made


def source_of(engine: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if engine == "sqlite":
        copy = folder / "chinook.sqlite"
        shutil.copyfile(request.getfixturevalue("chinook_dir") / "Chinook_Sqlite.sqlite", copy)
        return f"sqlite:///{copy}"
    fixtures = {"postgresql": "chinook_postgres", "mysql": "chinook_mysql"}
    return str(request.getfixturevalue(fixtures[engine]))


def test_the_mapping_has_every_pattern_of_the_readme(golden: list[Golden]) -> None:
    text = (ROOT / "mappings" / "chinook.yaml").read_text(encoding="utf-8")
    patterns = parse_mapping(text, "chinook.yaml").mapping.patterns
    assert len(golden) == 42
    assert set(patterns) == {one.pattern for one in golden}


def test_every_golden_run_is_the_same_on_both_sides(
    filled: Project, golden: list[Golden], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process: 42 new ones would take most of a minute.
    monkeypatch.setenv("MIGRATOR_SOURCE_URL", filled.environment["MIGRATOR_SOURCE_URL"])
    for one in golden:
        words = [word for name, value in one.params.items() for word in ("-p", f"{name}={value}")]
        code = run(["query", str(filled.job), one.pattern, *words, "--json"])
        printed = capsys.readouterr()
        assert code == 0, (one.pattern, one.params, printed.err[-2000:])
        parts = json.loads(printed.out)["parts"]
        assert all(part["same"] for part in parts)
        assert sum(len(part["items"]) for part in parts) == one.items, (one.pattern, one.params)
        # The README joins a parent with its children: as many rows as children, and one without any.
        assert max(len(part["rows"]) for part in parts) == one.rows, (one.pattern, one.params)


def test_the_data_is_the_readmes(golden: list[Golden], chinook_postgres: str) -> None:
    with psycopg.connect(chinook_postgres) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        for one in golden:
            statement = re.sub(r":(\w+)", r"%(\1)s", one.sql)
            rows = connection.execute(statement, one.values).fetchall()  # type: ignore[call-overload]
            lines = ["|".join("" if value is None else str(value) for value in row) for row in rows]
            digest = hashlib.md5("\n".join(lines).encode(), usedforsecurity=False).hexdigest()[:12]
            assert (len(rows), digest) == (one.rows, one.digest), (one.pattern, one.params)
