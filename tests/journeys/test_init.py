"""`migrator init`: from a database and its statements to a mapping that serves them, proved on Chinook; and what it refuses."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from migrator.mapping.language.parse import examine_mapping
from tests import pins
from tests.journeys.command import ROOT, Project
from tests.journeys.proposals import FILES, here, proposed
from tests.support_design import OF_TENANTS, QUESTIONS, filled
from tests.support_mapping import parse_mapping

ENGINES = [
    pytest.param("sqlite"),
    pytest.param("postgresql", marks=pytest.mark.nightly),
    pytest.param("mariadb", marks=pytest.mark.nightly),
]
INDEXES = 3
SAMPLES = "25"
__all__ = ["here"]


def source_of(engine: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if engine == "sqlite":
        shutil.copyfile(
            request.getfixturevalue("chinook_dir") / "Chinook_Sqlite.sqlite", folder / "chinook.sqlite"
        )
        return f"sqlite:///{folder / 'chinook.sqlite'}"
    return str(
        request.getfixturevalue({"postgresql": "chinook_postgres", "mariadb": "chinook_mysql"}[engine])
    )


def statements_of(engine: str) -> str:
    """The SQL of the shipped mapping's 14 patterns, of which three ask two statements each."""
    name = "chinook_postgresql" if engine == "postgresql" else "chinook"
    mapping = parse_mapping((ROOT / "mappings" / f"{name}.yaml").read_text(encoding="utf-8"), name).mapping
    texts = [
        f"-- {pattern} {len(pattern)}/s\n{sql};"
        for pattern, made in mapping.patterns.items()
        for sql in made.statements.values()
    ]
    return "\n".join(texts)


@pytest.mark.parametrize("engine", ENGINES)
def test_chinook_is_proposed_moved_and_answers_as_sql_does(
    engine: str, here: Callable[[str], Project], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    project = here(source_of(engine, request, tmp_path))
    (tmp_path / "log.sql").write_text(statements_of(engine), encoding="utf-8")
    ended = proposed(project, "--statements", "log.sql", "--json")
    assert ended.code == 0, ended.err
    assert (ended.data["served"], ended.data["not_served"], ended.data["entities"]) == (17, [], 11)
    assert ended.data["indexes"] <= INDEXES
    checked = project.done(
        "mapping", "check", "shop.yaml", "--source", project.environment["MIGRATOR_SOURCE_URL"]
    )
    assert pins.said(checked.out)
    job = str(project.job)
    project.done("table", "create", job)
    total = project.done("backfill", job, "--json").data["total"]
    assert (total["rows"], total["items"], total["refused"]) == (15_607, 15_607, 0)
    replayed = project.done("shadow", "replay", job, "--sample", SAMPLES, "--seed", "19", "--json").data
    assert len(replayed["patterns"]) == 17
    assert {pattern["same"] for pattern in replayed["patterns"]} == {int(SAMPLES)}


def test_tenants_composite_keys_and_self_references_match_sql(
    here: Callable[[str], Project], tmp_path: Path
) -> None:
    filled(tmp_path / "source.db", seed=5)
    project = here(f"sqlite:///{tmp_path / 'source.db'}")
    (tmp_path / "log.sql").write_text(QUESTIONS + OF_TENANTS, encoding="utf-8")
    ended = proposed(project, "--statements", "log.sql", "--max-indexes", "9", "--json")
    assert ended.code == 0, ended.err
    assert (ended.data["served"], ended.data["indexes"]) == (34, 6)
    job = str(project.job)
    project.done("table", "create", job)
    assert project.done("backfill", job, "--json").data["total"]["refused"] == 0
    replayed = project.done("shadow", "replay", job, "--sample", SAMPLES, "--seed", "19", "--json").data
    assert len(replayed["patterns"]) == 34
    assert all(pattern["same"] == pattern["samples"] > 0 for pattern in replayed["patterns"])


@pytest.mark.parametrize("engine", ENGINES)
def test_chinook_without_statements_is_queried_by_its_keys(
    engine: str, here: Callable[[str], Project], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    project = here(source_of(engine, request, tmp_path))
    ended = proposed(project, "--statements", "none", "--json")
    assert ended.code == 0, ended.err
    assert (ended.data["served"], ended.data["not_served"]) == (22, [])
    text = (tmp_path / "shop.yaml").read_text(encoding="utf-8")
    assert examine_mapping(text, "shop.yaml").faults == ()
    assert proposed(project, "--statements", "none", "--force").code == 0
    assert (tmp_path / "shop.yaml").read_text(encoding="utf-8") == text


@pytest.fixture
def shop(here: Callable[[str], Project], request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return here(source_of("sqlite", request, tmp_path))


def test_every_statement_is_in_the_worksheet(shop: Project, tmp_path: Path) -> None:
    (tmp_path / "log.sql").write_text(
        "-- 9/s\nSELECT Name FROM Artist WHERE ArtistId = 1;\n-- 5/s\nSELECT Name FROM Artist WHERE Name LIKE 'secret%';\n"
        "-- 3/s\nUPDATE Artist SET Name = 'secret' WHERE ArtistId = 2;\nnonsense | <b>;",
        encoding="utf-8",
    )
    ended = proposed(shop, "--statements", "log.sql")
    assert ended.code == 1
    assert pins.said(ended.out, "served")
    assert pins.said(ended.out, "searches")
    last = ended.out.splitlines()[-1]
    assert last == pins.text("exit")
    assert last == pins.text("next")
    sheet = (tmp_path / "shop.patterns.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)", sheet, re.MULTILINE) == ["get_artist", "search", "unknown"]
    assert pins.said(sheet, "get")
    assert "52.9 % of all" not in sheet
    assert "| 3/s | write | UPDATE Artist SET Name = ?" in sheet
    assert "    nonsense | < b >" in sheet
    for file in FILES:
        assert "secret" not in (tmp_path / file).read_text(encoding="utf-8")


def test_without_a_source_the_environment_names_it(shop: Project) -> None:
    words = "init", "--statements", "none", "--no-prove", "--out", "shop.yaml"
    shop.done(*words)
    url = shop.environment.pop("MIGRATOR_SOURCE_URL")
    ended = shop.run(*words, "--force")
    assert ended.code == 2
    assert "set MIGRATOR_SOURCE_URL" in ended.err
    assert shop.run("init", url, *words[1:], "--force").code == 0


def test_files_that_are_there_are_kept(shop: Project, tmp_path: Path) -> None:
    (tmp_path / "shop.patterns.md").write_text("mine", encoding="utf-8")
    ended = proposed(shop, "--statements", "none")
    assert ended.code == 2
    assert pins.said(ended.err)
    assert not (tmp_path / "shop.yaml").exists()
    assert proposed(shop, "--statements", "none", "--force").code == 0
    assert (tmp_path / "shop.patterns.md").read_text(encoding="utf-8") != "mine"


def test_a_mapping_that_is_replaced_keeps_its_names(shop: Project, tmp_path: Path) -> None:
    mapping = tmp_path / "shop.yaml"
    assert proposed(shop, "--statements", "none").code == 0
    text = mapping.read_text(encoding="utf-8")
    assert "\n  artist:\n    table: Artist\n" in text
    for old, new in {
        "\n  artist:": "\n  band:",
        "get_artist": "get_band",
        "      Artist:": "      Band:",
        '"ARTIST#': '"BAND#',
    }.items():
        assert old in text
        text = text.replace(old, new)
    mapping.write_text(text, encoding="utf-8")
    assert proposed(shop, "--statements", "none", "--force").code == 0
    assert mapping.read_text(encoding="utf-8") == text
    mapping.write_text("entities: {band: [", encoding="utf-8")
    assert proposed(shop, "--statements", "none", "--force").code == 0
    assert "ARTIST#" in mapping.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ["--statements", "missing.sql"],
        ["--statements", "."],
        ["--statements", "/dev/null"],
        ["--statements", "missing.csv"],
        ["--statements", "empty.csv"],
        ["--statements", "none", "--out", "shop.json"],
        ["--statements", "none", "--out", "no/shop.yaml"],
        ["--statements", "none", "--max-indexes", "21"],
        [],
    ],
    ids=[
        "missing-read",
        "read-directory",
        "statement",
        "takes-markdown",
        "question",
        "mapping-file",
        "such-folder",
        "case",
        "records-statements",
    ],
)
def test_wrong_use_writes_nothing(shop: Project, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "empty.csv").touch()
    out = [] if "--out" in words else ["--out", "shop.yaml"]
    ended = shop.run("init", shop.environment["MIGRATOR_SOURCE_URL"], "--no-prove", *out, *words)
    assert ended.code == 2
    assert pins.said(ended.err)
    assert not FILES & {path.name for path in tmp_path.iterdir()}


def test_a_source_that_is_away_stops_it(here: Callable[[str], Project], tmp_path: Path) -> None:
    ended = proposed(here("postgresql://nobody:secret@127.0.0.1:1/none"), "--statements", "none")
    assert ended.code == 3
    assert "secret" not in ended.err
    assert not FILES & {path.name for path in tmp_path.iterdir()}


def test_an_empty_database_is_reported(here: Callable[[str], Project], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        connection.execute("VACUUM")
    ended = proposed(here(f"sqlite:///{tmp_path / 'empty.db'}"), "--statements", "none")
    assert ended.code == 2
    assert pins.said(ended.err)
