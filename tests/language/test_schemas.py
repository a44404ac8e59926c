"""Tables of other schemas, and tenants in a schema each."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.runtime.errors import MappingError, SettingsError
from migrator.stages.patterns.question import ask
from tests import pins
from tests.fakes.store import FakeStore
from tests.language.conftest import database_on
from tests.language.context import HEAD, checked, items, open_source, plain
from tests.support_fence import no_fence
from tests.support_items import put_items
from tests.support_mapping import parse_mapping

TABLES = """
CREATE TABLE {0}.customer (id INTEGER PRIMARY KEY, name VARCHAR(80));
CREATE TABLE {0}.invoice (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, FOREIGN KEY (customer_id) REFERENCES {0}.customer (id));
INSERT INTO {0}.customer VALUES (1, 'Ann of {0}'), (2, 'Bob of {0}');
INSERT INTO {0}.invoice VALUES (7, 2);
"""
TENANTS = """
source: {schemas: [%s, %s]}
entities:
  customer:
    items:
      Customer: {key: ["TENANT#{@schema}#CUSTOMER#{id}", META], keep: [name], attributes: {tenant: "@schema|upper"}}
  invoice:
    join: {customer: customer_id}
    items:
      Invoice:
        key: ["TENANT#{@schema}#CUSTOMER#{customer_id}", "INVOICE#{id:06}"]
        attributes: {customer: customer.name, label: "{@schema}/{id}"}
"""


@pytest.fixture(params=["postgresql", "mariadb"])
def schemas(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, str]:
    """A URL and two schemas of it; MariaDB calls a database a schema, so there they are databases of their own."""
    if request.param == "postgresql":
        names = ("acme", "bolt")
        script = "".join(f"CREATE SCHEMA {name};{TABLES.format(name)}" for name in names)
        return database_on("postgresql", request, tmp_path)(script), *names
    make = request.getfixturevalue("new_mysql_database")
    names = tuple(make().rpartition("/")[2] for _ in range(2))
    return database_on("mariadb", request, tmp_path)("".join(map(TABLES.format, names))), *names


def test_every_tenant_has_items_of_its_own(schemas: tuple[str, str, str]) -> None:
    url, one, other = schemas
    found = items(url, HEAD + TENANTS % (one, other))
    assert plain(found, "_src", "PK", "SK") == [
        (f"customer@{one}:[1]", f"TENANT#{one}#CUSTOMER#1", "META"),
        (f"customer@{one}:[2]", f"TENANT#{one}#CUSTOMER#2", "META"),
        (f"invoice@{one}:[7]", f"TENANT#{one}#CUSTOMER#2", "INVOICE#000007"),
        (f"customer@{other}:[1]", f"TENANT#{other}#CUSTOMER#1", "META"),
        (f"customer@{other}:[2]", f"TENANT#{other}#CUSTOMER#2", "META"),
        (f"invoice@{other}:[7]", f"TENANT#{other}#CUSTOMER#2", "INVOICE#000007"),
    ]
    assert found[2]["customer"] == f"Bob of {one}"
    assert found[2]["label"] == f"{one}/7"
    assert found[0]["tenant"] == one.upper()


def test_keys_of_two_tenants_are_proved_apart(schemas: tuple[str, str, str]) -> None:
    url, one, other = schemas
    good = checked(url, HEAD + TENANTS % (one, other))
    assert set(good.unproved.values()) == {frozenset()}
    bad = checked(url, HEAD + (TENANTS % (one, other)).replace("TENANT#{@schema}#", ""))
    assert bad.unproved[f"customer@{one}"] == {"Customer"}
    assert pins.said(str(fault) for fault in bad.warnings)


def test_a_table_of_another_schema(schemas: tuple[str, str, str]) -> None:
    url, one, other = schemas
    text = f"""
entities:
  invoice:
    table: {one}.invoice
    join: {{customer: customer_id}}
    collect: {{all: {{count: all, of: {other}.invoice, by: customer_id}}}}
    items:
      Invoice: {{key: ["INVOICE#{{id}}", META], attributes: {{customer: customer.name, all: all}}}}
"""
    assert plain(items(url, HEAD + text), "PK", "customer", "all") == [("INVOICE#7", f"Bob of {one}", 0)]


def test_a_schema_that_is_not_there(schemas: tuple[str, str, str]) -> None:
    url, one, _ = schemas
    with pins.refused(MappingError, one=one):
        checked(url, HEAD + TENANTS % (one, f"{one}x"))


def test_sqlite_has_no_schemas(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = database_on("sqlite", request, tmp_path)(
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT);"
    )
    with pins.refused(MappingError):
        checked(url, HEAD + TENANTS % ("acme", "bolt"))


def test_the_sql_of_a_pattern_reads_the_tenants_schema(schemas: tuple[str, str, str]) -> None:
    url, one, other = schemas
    text = (
        HEAD
        + TENANTS % (one, other)
        + """
access_patterns:
  customer:
    params: {tenant: text, id: integer}
    schema: tenant
    get: {key: ["TENANT#{tenant}#CUSTOMER#{id}", META]}
    returns: [name]
    sql: SELECT c.name FROM customer c WHERE c.id = :id AND EXISTS (SELECT 1 FROM invoice WHERE invoice.customer_id = c.id)
"""
    )
    parsed = parse_mapping(text, "m.yaml")
    source, store = open_source(url, text), FakeStore(parsed.mapping.table, no_fence)
    put_items(store, items(url, text))
    mapping, pattern = parsed.mapping, parsed.mapping.patterns["customer"]
    for tenant in (one, other):
        answer = ask(mapping, pattern, {"tenant": tenant, "id": 2}, source, store)
        assert answer.same
        assert answer.parts[0].rows == [(f"Bob of {tenant}",)]
    with pins.refused(SettingsError):
        ask(mapping, pattern, {"tenant": "public", "id": 2}, source, store)
    source.close()


@pytest.fixture(params=["postgresql", "mariadb"])
def half_a_tenant(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, str]:
    """A URL whose default schema has the table customer, a whole tenant, and one without that table."""
    default = "CREATE TABLE customer (id INTEGER PRIMARY KEY, name VARCHAR(80));"
    invoice = "CREATE TABLE {0}.invoice (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL);"
    if request.param == "postgresql":
        one, other = "acme", "bolt"
        begin = f"CREATE SCHEMA {one}; CREATE SCHEMA {other};"
    else:
        make = request.getfixturevalue("new_mysql_database")
        one, other = (make().rpartition("/")[2] for _ in range(2))
        begin = ""
    script = begin + TABLES.format(one) + invoice.format(other) + default
    return database_on(request.param, request, tmp_path)(script), one, other


def test_tenant_without_the_table_never_gets_default_schema_rows(
    half_a_tenant: tuple[str, str, str],
) -> None:
    url, one, other = half_a_tenant
    with pins.refused(MappingError, other=other):
        checked(url, HEAD + TENANTS % (one, other))
