"""Chinook on every engine, moved once from end to end, and its 14 access patterns beside the README's golden figures."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from pathlib import Path

import psycopg
import pytest

from migrator.mapping.model.mapping import Mapping
from migrator.mapping.model.table import Item
from migrator.runtime.values import replace
from tests import pins
from tests.journeys.chinook import ITEMS, ROWS, assert_whole
from tests.journeys.command import ROOT, Project, project
from tests.journeys.in_process import Ended
from tests.support_chinook import Golden, golden_runs, snake_case
from tests.support_items import put_items
from tests.support_mapping import parse_mapping

# What a group asks of one table is asked by one worker, which moves Chinook once.
ENGINES = [
    pytest.param(name, marks=[pytest.mark.xdist_group(f"chinook {name}"), *more])
    for name, more in (
        ("sqlite", []),
        ("postgresql", [pytest.mark.nightly]),
        ("mariadb", [pytest.mark.nightly]),
    )
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
    assert len(golden) == 42
    assert set(_chinook("chinook").patterns) == {one.pattern for one in golden}


def test_the_two_mappings_of_chinook_ask_the_same() -> None:
    """SQLite, MariaDB and MySQL have TrackId where PostgreSQL has track_id."""
    first, second = _chinook("chinook"), _chinook("chinook_postgresql")
    assert first.table == second.table
    for name, pattern in first.patterns.items():
        sql = {part: _in_snake_case(str(text)) for part, text in pattern.statements.items()}
        assert replace(pattern, statements=sql) == second.patterns[name]


def _chinook(name: str) -> Mapping:
    text = (ROOT / "mappings" / f"{name}.yaml").read_text(encoding="utf-8")
    return parse_mapping(text, f"{name}.yaml").mapping


def _in_snake_case(sql: str) -> str:
    return re.sub(r"\b(?:[A-Z][a-z]+)+\b", lambda name: snake_case(name[0]), sql)


def test_chinook_from_end_to_end(filled: Project, engine: str) -> None:
    job = str(filled.job)
    assert pins.said(filled.done("table", "check", job).out, "mapping")
    assert_whole(filled.items(), engine)
    verified = filled.done("verify", job, "--json").data
    assert (verified["clean"], verified["scanned_items"], verified["not_compared"]) == (True, ITEMS, [])
    again = filled.done("backfill", job, "--json")
    assert pins.said(again.err, "left")
    assert_total(again)
    runs = filled.done("status", job, "--json").data["runs"]
    assert [(run["kind"], run["state"]) for run in runs] == [("backfill", "done"), ("verify", "done")]


def test_all_three_parameter_sets_of_each_pattern_are_equal(filled: Project, golden: list[Golden]) -> None:
    here = replace(filled, own_process=False)
    for one in golden:
        assert_same(here, one)


def assert_same(here: Project, one: Golden) -> None:
    words = [word for name, value in one.params.items() for word in ("-p", f"{name}={value}")]
    parts = here.done("look", str(here.job), "--pattern", one.pattern, *words, "--json").data["parts"]
    assert all(part["same"] for part in parts)
    assert sum(len(part["items"]) for part in parts) == one.items, (one.pattern, one.params)
    # The README joins a parent with its children: as many rows as children, and one without any.
    assert max(len(part["rows"]) for part in parts) == one.rows, (one.pattern, one.params)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2021-01-15T12:00:00", "2021-02-10T00:00:00"),
        ("2021-01-02T00:00:00", "2021-01-03T00:00:00"),
        ("2021-03-01", "2021-01-01"),
    ],
)
def test_invoices_from_the_middle_of_a_month_equal_those_of_sql(
    filled: Project, since: str, until: str
) -> None:
    here = replace(filled, own_process=False)
    words = ["-p", f"from={since}", "-p", f"to={until}", "--json"]
    (part,) = here.done("look", str(here.job), "--pattern", "list_invoices_by_month", *words).data["parts"]
    assert part["same"]


def test_every_pattern_replays_clean(filled: Project, engine: str) -> None:
    here = replace(filled, own_process=False)
    ended = here.run("shadow", "replay", str(here.job), "--sample", "8", "--seed", "1", "--json")
    assert ended.code == 0, ended.out
    found = {one["pattern"]: one for one in ended.data["patterns"]}
    assert len(found) == 14
    assert all(one["same"] == one["samples"] == 8 for one in found.values()), found
    assert all(one["empty"] < 8 for one in found.values())
    made_up = {
        (p, n) for p, one in found.items() for n, text in one["parameters"].items() if text == "made up"
    }
    assert made_up == {("top_selling_tracks", "n")}
    column = "invoice.invoice_date" if engine == "postgresql" else "Invoice.InvoiceDate"
    assert found["list_invoices_by_month"]["parameters"] == {"from": column, "to": column}


@pytest.mark.parametrize("engine", [ENGINES[0]], indirect=True)
def test_verify_finds_changed_missing_and_extra_items(filled: Project) -> None:
    job, store, here = str(filled.job), filled.store(), replace(filled, own_process=False)
    (track,), (invoice,) = (store.get([key]).values() for key in (("TRACK#1", "META"), ("INVOICE#1", "META")))
    extra = {**track, "PK": "TRACK#99999", "_src": "track:[99999]"}
    strange: Item = {"PK": "X", "SK": "Y", "n": 1}
    put_items(store, [{**track, "unit_price": 1, "name": 7}, extra, strange])
    store.delete([("INVOICE#1", "META")])
    try:
        ended = here.run("verify", job, "--json")
        found = here.done("status", "--findings", job, "--all", "--show-keys").out
    finally:
        put_items(store, [track, invoice])
        store.delete([("TRACK#99999", "META"), ("X", "Y")])
    assert ended.code == 1
    # Counts of Track and Invoice; sums of Track's seven numeric columns and of Invoice's three.
    expected = {"different": 2, "missing": 1, "unexpected": 1, "foreign": 1, "count": 2, "sum": 10}
    assert ended.data["findings"] == expected
    told = 'different: track [1] item Track ["TRACK#1","META"] attribute name: the attribute\'s type differs'
    assert told in found
    assert pins.said(found, "price")
    assert 'missing: invoice [1] item Invoice ["INVOICE#1","META"]' in found
    assert pins.said(found, "unexpected")
    assert 'foreign: item ["X","Y"]' in found
    assert "For Those About To Rock" not in found


def test_the_data_is_the_readmes(golden: list[Golden], chinook_postgres: str) -> None:
    with psycopg.connect(chinook_postgres) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        for one in golden:
            statement = re.sub(r":(\w+)", r"%(\1)s", one.sql)
            rows = connection.execute(statement, one.values).fetchall()
            lines = ["|".join("" if value is None else str(value) for value in row) for row in rows]
            digest = hashlib.md5("\n".join(lines).encode(), usedforsecurity=False).hexdigest()[:12]
            assert (len(rows), digest) == (one.rows, one.digest), (one.pattern, one.params)
