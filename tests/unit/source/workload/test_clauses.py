"""Columns that the clauses of a statement name, in the SQL of each engine."""

from __future__ import annotations

import pytest

from migrator.mapping.model.facts import SchemaFacts
from migrator.mapping.model.questions import Clauses
from migrator.runtime.values import replace
from migrator.source.sql.statements import checked_statement, read_select
from migrator.source.workload.clauses import clauses_of, unknown_name
from tests.support_design import SHOP, source_with

QUOTES = {"postgresql": '"', "mysql": "`", "sqlite": '"'}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> SchemaFacts:
    with source_with(tmp_path_factory.mktemp("shop"), SHOP) as source:
        return source.facts()


def read(sql: str, facts: SchemaFacts) -> Clauses:
    clauses = clauses_of(sql, facts)
    assert clauses is not None
    return clauses


@pytest.mark.parametrize("dialect", sorted(QUOTES))
def test_clauses_are_read_in_the_sql_of_each_engine(facts: SchemaFacts, dialect: str) -> None:
    quote = QUOTES[dialect]
    sql = (
        f"SELECT o.{quote}id{quote} FROM orders AS o JOIN customers c ON c.id = o.customer_id"
        f" WHERE c.id = :c AND lower(o.{quote}status{quote}) = :s ORDER BY o.placed_at DESC LIMIT :n OFFSET 3"
    )
    clauses = read(sql, replace(facts, dialect=dialect))
    own = {column for table, column in clauses.filters if table == "orders"}
    assert own == {"customer_id", "status"}
    assert ("orders", "customer_id") in clauses.equal
    assert [(term.columns, term.descends) for term in clauses.order] == [((("orders", "placed_at"),), True)]
    assert (clauses.limit, clauses.offset) == (":n", True)


@pytest.mark.parametrize(
    ("dialect", "end", "limit", "offset"),
    [
        ("postgresql", "FETCH FIRST 5 ROWS ONLY", "5", False),
        ("postgresql", "FETCH FIRST ROW ONLY", "1", False),
        ("postgresql", "LIMIT CAST(:n AS BIGINT)", ":n", False),
        ("postgresql", "LIMIT ALL", "", False),
        ("mysql", "LIMIT 3, 5", "5", True),
        ("sqlite", "LIMIT 5 OFFSET 0", "5", False),
    ],
)
def test_a_limit_of_any_form_is_read(
    facts: SchemaFacts, dialect: str, end: str, limit: str, offset: bool
) -> None:
    clauses = read(f"SELECT id FROM orders ORDER BY id {end}", replace(facts, dialect=dialect))
    assert (clauses.limit, clauses.offset) == (limit, offset)


@pytest.mark.parametrize("sql", ["SELECT FROM WHERE", "DELETE FROM orders", "SELECT 1; SELECT 2", "(" * 3000])
def test_what_is_no_query_has_no_clauses(facts: SchemaFacts, sql: str) -> None:
    assert clauses_of(sql, facts) is None


def test_names_that_the_source_does_not_have_are_left_out(facts: SchemaFacts) -> None:
    assert (
        read("WITH a AS (SELECT * FROM nothing) SELECT x FROM a WHERE x = y ORDER BY z", facts) == Clauses()
    )


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT o.id FROM orders o WHERE o.status = :s", ""),
        ("SELECT totl FROM orders", "table orders has no column 'totl'; did you mean 'total'?"),
        ("SELECT x.id FROM orders o", "no table is called 'x' in it; known: o"),
        ("SELECT id FROM ordrs", "the source has no table 'ordrs'; did you mean 'orders'?"),
        ("WITH a AS (SELECT id FROM orders) SELECT a.id FROM a ORDER BY id", ""),
        ("SELECT o.id AS n FROM orders o ORDER BY n", ""),
        ("SELECT o.* FROM orders o JOIN customers c ON c.id = o.customer_id", ""),
        ("SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer_id)", ""),
        (
            "SELECT o.id, c.nam FROM orders o, customers c",
            "table customers has no column 'nam'; did you mean 'name'?",
        ),
        ("no SQL at all", ""),
    ],
)
def test_name_missing_from_the_source_is_reported(sql: str, what: str, facts: SchemaFacts) -> None:
    assert unknown_name(sql, facts) == what


def test_clauses_and_check_share_one_tree(facts: SchemaFacts) -> None:
    sql = "SELECT id FROM orders WHERE customer_id = :from ORDER BY placed_at LIMIT :order"
    parsed = read_select.cache_info().misses
    assert read(sql, facts).limit == ":order"
    checked_statement(sql, facts.dialect)
    assert read_select.cache_info().misses == parsed + 1


@pytest.mark.parametrize(
    ("condition", "filtered"),
    [
        ("customer_id IN (SELECT id FROM customers WHERE name = :n)", False),
        ("customer_id NOT IN (SELECT id FROM customers WHERE name = :n)", True),
        ("(customer_id IN (SELECT id FROM customers) OR id = :n)", True),
        ("customer_id IN (SELECT MAX(id) FROM customers WHERE name = :n)", True),
    ],
)
def test_a_row_of_a_subquerys_key_is_joined(facts: SchemaFacts, condition: str, filtered: bool) -> None:
    own = read(f"SELECT id FROM orders WHERE {condition}", facts).filters
    assert (("orders", "customer_id") in own) is filtered
