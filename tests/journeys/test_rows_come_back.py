"""Chinook and every design that comes back: filled tables, an empty copy of the schema, and the rows as they were."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from migrator.mapping.model.evidence import OFF, Move, State
from migrator.settings.transforms import sound_mapping
from migrator.source.engines.connect import source_url
from tests import pins, support_mysql
from tests import support_services as services
from tests.designs.golden import script_of
from tests.journeys.command import Project, chinook_mapping, project
from tests.journeys.cutover import desk_of
from tests.language.conftest import database_on
from tests.support_chinook import snake_case
from tools.pages.golden import DESIGNS, NAMES, ROOT

ENGINES = [
    "sqlite",
    *(pytest.param(name, marks=pytest.mark.nightly) for name in ("postgresql", "mariadb")),
]
SCRIPTS = {
    "postgresql": services.chinook_postgres_script,
    "mariadb": support_mysql.chinook_mysql_script,
}
STAY_AWAY = {
    *("app_table", "customer_bookmark", "ecommerce_table", "folders", "iot_events"),
    *("orders_by_total", "org_tree", "org_tree_by_tenant"),
    *("alarms", "big_time_deals", "customer_addresses", "version_control"),
}
"""Designs with a column that no item holds, or holds cut."""
WHOLE_ON_MARIADB = {"big_time_deals", "customer_addresses", "ecommerce_table", "orders_by_total"}
"""Times to the second are whole where the columns hold no more."""
Rows = dict[str, list[tuple[Any, ...]]]


def filled(folder: Path, mapping: Path, url: str, endpoint: str) -> Project:
    made = project(folder, url, endpoint, f"B{secrets.token_hex(4)}")
    made.environment["MIGRATOR_HOME"] = str(folder / ".migrator")
    (folder / "mapping.yaml").write_text(with_ttl(mapping.read_text()))
    head, _, rest = made.job.read_text().partition("mapping: ")
    job = f"{head}mapping: mapping.yaml\n{rest.partition(chr(10))[2]}"
    made.job.write_text(job.replace("target: {", "target: {options: {stream: new_and_old_images}, "))
    for words in (["table", "create"], ["capture", "install"], ["backfill"], ["verify"]):
        made.done("-q", *words, str(made.job))
    return made


def with_ttl(mapping: str) -> str:
    """Capture wants the table to have one."""
    if "ttl:" in mapping.partition("entities:")[0]:
        return mapping
    within = mapping.replace("\ntable: {", "\ntable: {ttl: expiresAt, ", 1)
    return within.replace("\ntable:\n", "\ntable:\n  ttl: expiresAt\n", 1)


def made_direct(made: Project) -> None:
    """Every pattern is complete and every entity the service's to write."""
    mapping = sound_mapping(made.folder / "mapping.yaml").mapping
    with desk_of(made) as session:
        for name in mapping.patterns:
            session.phases.move(Move(name, OFF, State("complete"), "a test"), 0)
    made.job.write_text(f"{made.job.read_text()}writes: {{direct: [{', '.join(mapping.entities)}]}}\n")
    made.done("capture", "install", str(made.job))


def tables_of(made: Project) -> Sequence[str]:
    """Names of the tables in the source."""
    facts = made.done("reverse", "check", str(made.job), "--json").data["tables"]
    written = {table["table"] for table in facts}
    named = sa.inspect(engine_of(made)).get_table_names()
    own = [name for name in named if name in written or snake_case(name) in written]
    assert len(own) == len(written)
    return own


def engine_of(made: Project) -> sa.Engine:
    return sa.create_engine(source_url(made.environment["MIGRATOR_SOURCE_URL"]), poolclass=sa.NullPool)


def rows(made: Project, tables: Sequence[str]) -> Rows:
    """By plain SQL."""
    with engine_of(made).connect() as source:
        quote = source.dialect.identifier_preparer.quote_identifier
        selects = {name: f"SELECT * FROM {quote(name)}" for name in tables}
        return {
            name: sorted((tuple(row) for row in source.exec_driver_sql(sql)), key=repr)
            for name, sql in selects.items()
        }


def emptied(made: Project, tables: Sequence[str]) -> None:
    """As a new copy of the schema is: counters of new rows begin anew, too. As an operator who has to."""
    with engine_of(made).begin() as source:
        quote = source.dialect.identifier_preparer.quote_identifier
        deletes = [f"DELETE FROM {quote(name)}" for name in tables]
        truncate = f"TRUNCATE {', '.join(map(quote, tables))} RESTART IDENTITY"
        own = {
            "sqlite": [
                "PRAGMA foreign_keys = OFF",
                *("INSERT INTO migrator_mark (id) VALUES (0)", *deletes, "DELETE FROM migrator_mark"),
            ],
            "postgresql": ["SET migrator.reverse = 'on'", truncate],
            "mysql": ["SET @migrator_reverse = DATABASE()", "SET FOREIGN_KEY_CHECKS = 0", *deletes],
        }
        for statement in own["mysql" if source.dialect.name == "mariadb" else source.dialect.name]:
            source.exec_driver_sql(statement)


def come_back(made: Project) -> Rows:
    """The rows, which are those of before."""
    job, tables = str(made.job), tables_of(made)
    before = rows(made, tables)
    made_direct(made)
    made.done("reverse", "start", job, "--once", "--settle", "0s")
    emptied(made, tables)
    assert not any(rows(made, tables).values())
    begun_at = time.monotonic()
    ended = made.done("reverse", "verify", job, "--repair", "--settle", "0s")
    count = sum(map(len, before.values()))
    print(f"{count:,} rows came back in {time.monotonic() - begun_at:.1f} s")
    assert ended.out == pins.text("come_back-clean")
    assert rows(made, tables) == before
    return before


@pytest.mark.parametrize("engine", ENGINES)
def test_chinook(engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str) -> None:
    if engine == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('chinook_sqlite')}"
    else:
        script = SCRIPTS[engine](request.getfixturevalue("chinook_dir"))
        url = database_on(engine, request, tmp_path)(script)
    mapping = ROOT / "mappings" / f"{chinook_mapping(url)}.yaml"
    came = come_back(filled(tmp_path, mapping, url, dynamodb_url))
    assert (len(came), sum(map(len, came.values()))) == (11, 15_607)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NAMES)
def test_a_design(
    name: str, engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    url = database_on(engine, request, tmp_path)(script_of(name, engine))
    made = filled(tmp_path, DESIGNS / f"{name}.yaml", url, dynamodb_url)
    if name in STAY_AWAY - (WHOLE_ON_MARIADB if engine == "mariadb" else set()):
        assert made.run("mapping", "check", str(made.job), "--invertible").code == 1
        assert made.run("reverse", "check", str(made.job)).code == 1
        return
    made.done("mapping", "check", str(made.job), "--invertible")
    assert all(come_back(made).values())
