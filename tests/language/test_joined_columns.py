"""Columns that a mapping makes by SQL of a joined table: in items and keys, on every engine."""

from __future__ import annotations

from contextlib import closing

import pytest

from migrator.mapping.items.changes import captured_tables, needs_memory
from migrator.mapping.language.redaction import redaction_of
from migrator.runtime.errors import MappingError
from migrator.settings.transforms import checked_on, volatile_warnings
from tests.language.conftest import Database
from tests.language.context import HEAD, checked, items, open_source, plain
from tests.support_mapping import parse_mapping

SCRIPT = """
CREATE TABLE region (id INTEGER PRIMARY KEY, code CHAR(6) NOT NULL);
CREATE TABLE customer (id INTEGER PRIMARY KEY, name VARCHAR(20) NOT NULL, email VARCHAR(20), region_id INTEGER REFERENCES region (id),
    FOREIGN KEY (region_id) REFERENCES region (id));
CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer_id INTEGER, FOREIGN KEY (customer_id) REFERENCES customer (id));
INSERT INTO region VALUES (1, 'EU');
INSERT INTO customer VALUES (1, 'Ada', 'a@x', 1), (2, 'Bob', NULL, NULL);
INSERT INTO purchase VALUES (10, 1), (20, 2), (30, NULL);
"""
MAPPING = (
    HEAD
    + """
entities:
  purchase:
    join: {customer: customer_id, region: customer.region_id}
    columns:
      number: {sql: "id + 1", type: integer}
      customer.label: {sql: "UPPER(name)", type: text}
      customer.filled: {sql: "'x'", type: text}
      region.short: {sql: "RTRIM(code)", type: text}
    items:
      Purchase:
        key: ["PURCHASE#{id:04}", "REGION#{region.short|or:'none'}"]
        attributes: {number: number, label: customer.label, filled: customer.filled, short: region.short}
"""
)


def test_computed_parent_column_is_null_without_the_parent(database: Database) -> None:
    found = items(database(SCRIPT), MAPPING)
    assert plain(found, "PK", "SK", "number", "label", "filled", "short") == [
        ("PURCHASE#0010", "REGION#EU", 11, "ADA", "x", "EU"),
        ("PURCHASE#0020", "REGION#none", 21, "BOB", "x", None),
        ("PURCHASE#0030", "REGION#none", 31, None, None, None),
    ]


def test_every_change_of_such_a_parent_leaves_a_mark(database: Database) -> None:
    (entity,) = checked(database(SCRIPT), MAPPING).entities
    captured = captured_tables([entity.plan])
    watched = {name.rpartition(".")[2]: one.watched for name, one in captured.items()}
    assert (watched["customer"], watched["region"]) == (None, None)
    assert needs_memory(entity.plan)


@pytest.mark.parametrize(
    ("column", "where", "what"),
    [
        (
            "customer.name",
            "entities.purchase.columns.customer.name",
            "has a column 'name'; choose another name",
        ),
        (
            "region.name",
            "entities.purchase.items.Purchase.attributes.other",
            "table region has no column 'other'",
        ),
    ],
)
def test_wrong_names_are_faults(database: Database, column: str, where: str, what: str) -> None:
    text = MAPPING.replace("customer.label: {", f"{column}: {{").replace(
        "label: customer.label", "other: region.other"
    )
    with pytest.raises(MappingError) as refused:
        checked(database(SCRIPT), text)
    assert [one for one in refused.value.faults if one.where == where and what in one.what]


def test_refused_or_volatile_sql_is_named_with_its_alias(
    database: Database,
) -> None:
    url = database(SCRIPT)
    parsed = parse_mapping(MAPPING.replace("UPPER(name)", "UPPER(nam)"), "m.yaml")
    with closing(open_source(url, MAPPING)) as source:
        with pytest.raises(MappingError) as refused:
            checked_on(source, parsed)
        assert [one.where for one in refused.value.faults if not one.warning] == [
            "entities.purchase.columns.customer.label"
        ]
        parsed = parse_mapping(MAPPING.replace("UPPER(name)", "CURRENT_TIMESTAMP"), "m.yaml")
        (warning,) = volatile_warnings(source, parsed, checked_on(source, parsed))
        assert warning.where == "entities.purchase.columns.customer.label"


def test_it_is_redacted_with_what_it_is_made_of(database: Database) -> None:
    text = f"""{MAPPING}
access_patterns:
  p:
    params: {{id: integer}}
    query: {{key: ["PURCHASE#{{id:04}}"]}}
    returns: [called, label]
    redact: [called]
    sql: SELECT 1
"""
    made = checked(database(SCRIPT), text.replace("attributes: {", "attributes: {called: customer.name, "))
    (plan,) = [one.plan for one in made.entities]
    (design,) = plan.entity.items
    assert redaction_of(made.mapping, [plan]).hidden(plan, design) == {"called", "label"}


def test_a_changed_parent_leads_to_the_rows_that_read_it(database: Database) -> None:
    url = database(SCRIPT)
    (entity,) = checked(url, MAPPING).entities
    tables = {name.rpartition(".")[2]: one for name, one in captured_tables([entity.plan]).items()}
    with closing(open_source(url, MAPPING)) as source:
        found = {
            name: source.find_roots(entity.plan, tables[name].lookups[0], [(1,)], None, 10)
            for name in ("customer", "region")
        }
    assert found == {"customer": ["[10]"], "region": ["[10]"]}
