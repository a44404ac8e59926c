"""Each recipe of docs/schema-changes.md and triggers.md, while a service writes through the whole of it and a relay works.

No write fails, the commands are those of the page, and at rest verify is clean.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.changing import (
    WRITES,
    Changing,
    as_written,
    changing,
    commands_of,
    migration,
    new_file,
    printed,
    shop_project,
)
from tests.journeys.command import Project

ENGINES = [
    "sqlite",
    "postgresql",
    pytest.param("mariadb", marks=pytest.mark.nightly),
]
REMARK = '  remark: {items: {Remark: {key: ["R#{id}", META], keep: [words]}}}\n'


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    fixtures = {"postgresql": "postgres_database", "mariadb": "mysql_database"}
    return new_file(tmp_path) if engine == "sqlite" else str(request.getfixturevalue(fixtures[engine]))


@pytest.fixture
def made(url: str, tmp_path: Path, dynamodb_url: str) -> Project:
    return shop_project(tmp_path, url, dynamodb_url)


@pytest.fixture
def shop(engine: str, url: str, made: Project) -> Iterator[Changing]:
    with changing(engine, url, made) as shop:
        yield shop


def ends_well(shop: Changing, recipe: str) -> bool:
    """Raises: AssertionError that says what went wrong."""
    assert shop.at_rest() == ""
    assert shop.service.failed == []
    assert shop.given == commands_of(recipe)
    return True


def test_a_column_is_added(shop: Changing) -> None:
    shop.sql("ALTER TABLE customer ADD COLUMN city VARCHAR(20) DEFAULT 'Rome'")
    shop.service.deploy(customer=(*WRITES["customer"], "UPDATE customer SET city = 'c{n}' WHERE id = {old}"))
    shop.map(("keep: [note]", "keep: [note, city]"))
    shop.go_on()
    assert ends_well(shop, "A column or a table is added")


def test_a_column_is_renamed_in_steps(shop: Changing) -> None:
    shop.sql("ALTER TABLE customer ADD COLUMN title VARCHAR(40)")
    both = (
        "INSERT INTO customer (id, name, title, note) VALUES ({n}, 'N{n}', 'N{n}', 'a')",
        "UPDATE customer SET name = 'M{n}', title = 'M{n}' WHERE id = {old}",
        WRITES["customer"][2],
    )
    shop.service.deploy(customer=both)
    shop.sql("UPDATE customer SET title = name WHERE title IS NULL")
    shop.map(("{name: name}", "{name: title}"))
    shop.go_on()
    shop.service.deploy(customer=as_written("customer", "name", "title"))
    shop.sql("ALTER TABLE customer DROP COLUMN name")
    assert ends_well(shop, "A column is renamed, in steps")


def test_a_column_that_keys_are_made_of_is_renamed_in_steps(shop: Changing) -> None:
    """A held one: base key and foreign key. Marks of before do not say it; the relay asks for `verify --repair`."""
    shop.sql("ALTER TABLE invoice ADD COLUMN buyer_id INTEGER REFERENCES customer (id)")
    both = (
        "INSERT INTO invoice (id, customer_id, buyer_id, code, total) VALUES ({n}, {old}, {old}, 'B{n}', 5)",
        WRITES["invoice"][1],
        "UPDATE invoice SET customer_id = {old}, buyer_id = {old} WHERE id = {before}",
        *WRITES["invoice"][3:],
    )
    shop.service.deploy(invoice=both)
    shop.sql("UPDATE invoice SET buyer_id = customer_id WHERE buyer_id IS NULL")
    shop.map(("{customer_id}", "{buyer_id}"), ("customer: customer_id", "customer: buyer_id"))
    shop.go_on()
    shop.repair()
    assert ends_well(shop, "A column that keys are made of changes")


@pytest.mark.parametrize(
    ("table", "column", "edits"),
    [
        ("customer", "note", [("keep: [note]", "keep: [renamed]"), ("customer.note", "customer.renamed")]),
        (
            "invoice",
            "customer_id",
            [("customer: customer_id", "customer: renamed"), ("{customer_id}", "{renamed}")],
        ),
    ],
    ids=["watched", "held"],
)
def test_a_column_is_renamed_at_once(
    engine: str, url: str, made: Project, table: str, column: str, edits: list[tuple[str, str]]
) -> None:
    change = f"ALTER TABLE {table} RENAME COLUMN {column} TO renamed"
    statements = migration(printed(engine, url, made, change, edits))
    with changing(engine, url, made) as shop:
        # The service of before knows the old name alone: it writes the column again when the new one is there.
        shop.service.deploy(**{table: [one for one in WRITES[table] if column not in one]})
        shop.given.append("migrator capture install JOB --as alembic")
        shop.at_once(table, change, *statements)
        shop.service.deploy(**{table: as_written(table, column, "renamed")})
        shop.map(*edits)
        assert pins.said(shop.give("capture install JOB").out)
        shop.relay_anew()
        shop.give("backfill JOB")
        shop.repair()
        assert ends_well(shop, "A column is renamed at once")


def test_a_column_is_dropped(shop: Changing) -> None:
    shop.map(("attributes: {name: name}, keep", "keep"))
    shop.go_on()
    without = ("INSERT INTO customer (id, note) VALUES ({n}, 'a')", WRITES["customer"][2])
    shop.service.deploy(customer=without)
    shop.sql("ALTER TABLE customer DROP COLUMN name")
    assert ends_well(shop, "A column is dropped")


def test_a_table_is_added(shop: Changing) -> None:
    shop.sql("CREATE TABLE notice (id INTEGER NOT NULL PRIMARY KEY, words VARCHAR(40))")
    shop.service.deploy(notice=as_written("remark", "remark", "notice"))
    shop.map(
        (REMARK, REMARK + REMARK.replace("remark", "notice").replace("Remark", "Notice").replace("R#", "N#"))
    )
    shop.go_on()
    assert ends_well(shop, "A column or a table is added")


RENAMES = {
    "postgresql": (
        "BEGIN",
        "ALTER TABLE remark RENAME TO notice",
        "CREATE VIEW remark AS SELECT * FROM notice",
        "COMMIT",
    ),
    "mariadb": (
        "CREATE TABLE notice LIKE remark",
        "CREATE VIEW remark_view AS SELECT * FROM notice",
        "DROP TABLE notice",
        "RENAME TABLE remark TO notice, remark_view TO remark",
    ),
    "sqlite": ("ALTER TABLE remark RENAME TO notice",),
}


def test_a_table_is_renamed(shop: Changing) -> None:
    if shop.engine == "sqlite":
        # A view takes no writes there.
        shop.service.deploy(remark=())
    shop.sql(*RENAMES[shop.engine])
    shop.service.deploy(remark=as_written("remark", "remark", "notice"))
    shop.map(("  remark: {", "  remark: {table: notice, "))
    shop.go_on()
    if shop.engine != "sqlite":
        shop.sql("DROP VIEW remark")
    shop.repair()
    assert ends_well(shop, "A table is renamed")


def test_a_table_is_dropped(shop: Changing) -> None:
    shop.map((REMARK, ""))
    shop.go_on()
    shop.service.deploy(remark=())
    shop.end_relay()
    shop.give("clean JOB --all-items --entity remark")
    shop.relay_anew()
    shop.sql("DROP TABLE remark")
    shop.repair()
    assert ends_well(shop, "A table is dropped")
