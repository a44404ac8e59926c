"""Chinook on every engine, moved once from end to end, and its 14 access patterns beside the README's golden figures."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from migrator.mapping.parse import parse_mapping
from tests.journey.chinook import ITEMS, ROWS, assert_whole
from tests.journey.command import ROOT, Ended, Project, project
from tests.support_chinook import Golden, golden_runs

# What a group asks of one table is asked by one worker, which moves Chinook once.
ENGINES = [
    pytest.param(name, marks=pytest.mark.xdist_group(f"chinook {name}"))
    for name in ("sqlite", "postgresql", "mariadb")
]


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
    """A project on the engine's Chinook, its table filled; its commands run in processes of their own."""
    folder = tmp_path_factory.mktemp(f"chinook_{engine}")
    made = project(
        folder,
        source_of(engine, request, folder),
        dynamodb_url,
        f"Chinook{secrets.token_hex(4)}",
        own_process=True,
    )
    made.done("table", "create", str(made.job))
    assert_total(made.done("backfill", str(made.job), "--json"))
    return made


def assert_total(ended: Ended) -> None:
    total = ended.data["total"]
    assert (total["rows"], total["items"], total["refused"]) == (ROWS, ITEMS, 0)


def source_of(engine: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if engine == "sqlite":
        copy = folder / "chinook.sqlite"
        shutil.copyfile(request.getfixturevalue("chinook_dir") / "Chinook_Sqlite.sqlite", copy)
        return f"sqlite:///{copy}"
    fixtures = {"postgresql": "chinook_postgres", "mariadb": "chinook_mysql"}
    return str(request.getfixturevalue(fixtures[engine]))


def test_the_mapping_has_every_pattern_of_the_readme(golden: list[Golden]) -> None:
    text = (ROOT / "mappings" / "chinook.yaml").read_text(encoding="utf-8")
    patterns = parse_mapping(text, "chinook.yaml").mapping.patterns
    assert len(golden) == 42
    assert set(patterns) == {one.pattern for one in golden}


def test_chinook_from_end_to_end(filled: Project, engine: str) -> None:
    job = str(filled.job)
    assert "as the mapping says" in filled.done("table", "check", job).out
    assert_whole(filled.items(), engine)
    verified = filled.done("verify", job, "--json").data
    assert (verified["clean"], verified["scanned_items"], verified["not_compared"]) == (True, ITEMS, [])
    again = filled.done("backfill", job, "--json")
    assert "nothing left to do" in again.err
    assert_total(again)
    runs = filled.done("status", job, "--json").data["runs"]
    assert [(run["kind"], run["state"]) for run in runs] == [("backfill", "done"), ("verify", "done")]


def test_every_golden_run_is_the_same_on_both_sides(filled: Project, golden: list[Golden]) -> None:
    here = replace(filled, own_process=False)  # 42 new processes would take most of a minute
    for one in golden:
        words = [word for name, value in one.params.items() for word in ("-p", f"{name}={value}")]
        parts = here.done("query", str(here.job), one.pattern, *words, "--json").data["parts"]
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
