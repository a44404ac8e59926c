"""`migrator init` alone on schemas that nobody tuned it for, on three engines: what is served answers as SQL does."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests import support_mysql
from tests import support_services as services
from tests.journeys.command import Project
from tests.journeys.proposals import FILES, here, proposed
from tests.support_design import OF_TENANTS, QUESTIONS, filled
from tests.support_schemas import SCHEMAS, wide

__all__ = ["here"]

ENGINES = [
    pytest.param("sqlite"),
    pytest.param("postgresql", marks=pytest.mark.nightly),
    pytest.param("mariadb", marks=pytest.mark.nightly),
]
SEED = 3
TABLES = 200


def filled_with(file: Path, script: str) -> str:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
    return f"sqlite:///{file}"


@contextmanager
def loaded(engine: str, script: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The URL of a database of the engine with the script's tables and rows."""
    if engine == "sqlite":
        yield filled_with(folder / "source.db", script)
    elif engine == "postgresql":
        with services.postgres_database(request.getfixturevalue("postgres_url")) as url:
            services.run_script(url, script)
            yield url
    else:
        with support_mysql.mysql_database(request.getfixturevalue("mysql_url")) as url:
            support_mysql.run_script(url, script)
            yield url


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SCHEMAS)
def test_patterns_of_a_generated_schema_answer_as_sql_does(
    name: str, engine: str, here: Callable[[str], Project], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    schema = SCHEMAS[name](random.Random(SEED))
    statements = schema.statements.replace('"', "`") if engine == "mariadb" else schema.statements
    (tmp_path / "asked.sql").write_text(statements, encoding="utf-8")
    with loaded(engine, schema.script, request, tmp_path) as url:
        ended = proposed(here(url), "--statements", "asked.sql", "--json", prove=True)
    assert ended.code == 1, ended.err
    reasons = sorted(other["reason"] for other in ended.data["not_served"])
    assert (ended.data["served"], reasons) == (schema.served, list(schema.not_served))
    assert ended.data["indexes"] <= schema.indexes
    asked = ended.data["proof"]["patterns"].values()
    assert len(asked) == schema.served
    assert all(pattern["questions"] and not pattern["different"] for pattern in asked)
    assert ended.data["proof"]["refused"] == {}


def test_six_digits_of_a_float_are_the_answer_on_mariadb(
    here: Callable[[str], Project], mysql_database: str
) -> None:
    support_mysql.run_script(
        mysql_database,
        "CREATE TABLE shop (id INT PRIMARY KEY, lat FLOAT, exact DOUBLE);"
        "CREATE TABLE visit (id INT PRIMARY KEY, shop_id INT NOT NULL, score FLOAT,"
        " FOREIGN KEY (shop_id) REFERENCES shop (id));"
        "INSERT INTO shop VALUES (1, 1 / 7, 1 / 7), (2, 123456.789, 2), (3, NULL, NULL), (4, 16777217, 3);"
        "INSERT INTO visit SELECT id * 10, id, id / 7 FROM shop",
    )
    project = here(mysql_database)
    ended = proposed(project, "--statements", "none", "--json", prove=True)
    assert ended.code == 0, ended.err
    assert not any(one["different"] for one in ended.data["proof"]["patterns"].values())
    text = (project.folder / "shop.yaml").read_text(encoding="utf-8")
    assert text.count("compare: {normalise: {lat: six_digits}}") == 1
    assert text.count("compare: {normalise: {score: six_digits}}") == 2


def test_composite_keys_without_statements_are_queried_by_key(
    here: Callable[[str], Project], tmp_path: Path
) -> None:
    filled(tmp_path / "source.db", seed=5)
    ended = proposed(
        here(f"sqlite:///{tmp_path / 'source.db'}"), "--statements", "none", "--json", prove=True
    )
    assert ended.code == 0, ended.err
    patterns = ended.data["proof"]["patterns"]
    assert ended.data["served"] == len(patterns) >= 15
    assert all(pattern["questions"] and not pattern["different"] for pattern in patterns.values())


def test_two_hundred_tables_take_less_than_thirty_cpu_seconds(
    here: Callable[[str], Project], tmp_path: Path
) -> None:
    schema = wide(TABLES)
    (tmp_path / "asked.sql").write_text(schema.statements, encoding="utf-8")
    project = here(filled_with(tmp_path / "source.db", schema.script))
    began = time.process_time()
    ended = proposed(project, "--statements", "asked.sql", "--json")
    took_s = time.process_time() - began
    assert ended.code == 0, ended.err
    assert (ended.data["served"], ended.data["indexes"], ended.data["entities"]) == (schema.served, 1, TABLES)
    assert took_s < 30


def test_any_order_of_the_statements_makes_the_same_three_files(
    here: Callable[[str], Project], tmp_path: Path
) -> None:
    filled(tmp_path / "source.db", seed=5)
    project = here(f"sqlite:///{tmp_path / 'source.db'}")
    statements = (QUESTIONS.replace("-- 9/s\nSELECT", "/* 9/s */ SELECT") + OF_TENANTS).split(";\n")
    made = set()
    for seed in range(3):
        mixed = [statement for statement in statements if statement.strip()]
        random.Random(seed).shuffle(mixed)
        text = ";\n".join(mixed)
        (tmp_path / "asked.sql").write_text(text.lower() if seed == 2 else text, encoding="utf-8")
        proposed(project, "--statements", "asked.sql", "--force", "--max-indexes", "9")
        made.add(tuple(_md5(tmp_path / file) for file in sorted(FILES)))
    assert len(made) == 1


def _md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
