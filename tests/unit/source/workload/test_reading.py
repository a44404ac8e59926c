"""Statements read as questions, and every reason for which one is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.features.init.placing import LARGEST_LIST
from migrator.features.init.written import proposal_of
from migrator.mapping.model.facts import SchemaFacts
from migrator.mapping.model.questions import REASONS, Figures, Statement, StatementQuestion, Unserved
from migrator.runtime.errors import Fault
from migrator.runtime.values import replace
from migrator.source.workload.reading import LONGEST, marked, question_of
from migrator.source.workload.statements import statements_of
from tests import pins
from tests.support_design import SHOP, proposed, read, source_with


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaFacts]:
    with source_with(tmp_path_factory.mktemp("shop"), SHOP) as source:
        yield source.facts()


def question(sql: str, facts: SchemaFacts) -> StatementQuestion:
    (made,) = read(sql, facts)
    assert isinstance(made, StatementQuestion), made
    return made


def test_a_parents_key_is_the_childs_column_that_points_to_it(facts: SchemaFacts) -> None:
    made = question(
        "SELECT o.id, c.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.id = ?",
        facts,
    )
    assert made.table == "orders"
    assert made.outputs == (("", "id"), ("", "customer_id"), ("customers", "name"))
    assert made.params == (("customer_id", "integer"),)
    assert made.conditions[0].path == ("", "customer_id")


def test_a_star_does_not_return_hidden_columns(facts: SchemaFacts) -> None:
    orders = facts.tables["orders"]
    columns = tuple(replace(column, hidden=column.name == "status") for column in orders.columns)
    hiding = replace(facts, tables={**facts.tables, "orders": replace(orders, columns=columns)})
    made = question("SELECT * FROM orders WHERE id = ? AND status = ?", hiding)
    assert {path[1] for path in made.outputs} == {column.name for column in columns} - {"status"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM orders WHERE customer_id = $1 AND placed_at>=$2",
        "SELECT id FROM orders WHERE customer_id = ? AND placed_at >= ?",
        "SELECT id FROM orders WHERE customer_id = %s AND placed_at >= %s",
        "SELECT id FROM orders WHERE customer_id = :customer_id AND placed_at >= :from_placed_at",
        "SELECT id FROM orders WHERE customer_id = %(customer_id)s AND placed_at >= %(from_placed_at)s",
        "SELECT id FROM orders WHERE customer_id = 7 AND placed_at >= '2026-01-01'",
        "select o.id from orders as o where :customer_id = o.customer_id and :from_placed_at <= o.placed_at",
    ],
)
def test_placeholders_of_every_style_have_names(sql: str, facts: SchemaFacts) -> None:
    made = question(sql, facts)
    assert made.params == (("customer_id", "integer"), ("from_placed_at", "timestamp"))
    assert [condition.bound for condition in made.conditions] == ["=", ">="]
    assert ":customer_id" in made.sql
    assert ":from_placed_at" in made.sql


def test_adjacent_numbered_placeholders_are_not_a_dollar_quote() -> None:
    assert marked("IN ($1,$2)", "postgresql") == ("IN (:migrator_p0,:migrator_p1)", ("", ""))
    assert marked("a = $2 AND b = $1 AND c = $2", "postgresql")[0].count("migrator_p0") == 2


@pytest.mark.parametrize(
    "sql", ["SELECT ':x', a FROM t -- $1", "SELECT a::text FROM t /* ? */", 'SELECT "a?" FROM t']
)
def test_texts_comments_and_casts_hold_no_placeholder(sql: str) -> None:
    assert marked(sql, "postgresql") == (sql, ())


def test_names_of_parameters_are_ascii(tmp_path: Path) -> None:
    script = 'CREATE TABLE "表" ("鍵" INTEGER NOT NULL PRIMARY KEY, "größe" INTEGER NOT NULL);'
    with source_with(tmp_path, script) as source:
        made = question(
            'SELECT "größe" FROM "表" WHERE "鍵" = ? AND "größe" >= ? LIMIT :größe', source.facts()
        )
    assert [name for name, _ in made.params] == ["value", "from_gr__e", "gr__e"]


def test_a_list_of_constants_or_placeholders_is_one_parameter(facts: SchemaFacts) -> None:
    for values in ("?, ?, ?", "1,2,3", "$1,$2", ":ids", "..."):
        made = question(f"SELECT id, name FROM customers WHERE id IN ({values})", facts)
        assert made.params[0][1] == pins.text()
        assert made.sql.count(":") == 1


def test_an_inner_join_needs_a_value_that_may_be_null(facts: SchemaFacts) -> None:
    sql = "SELECT c.id, r.name FROM customers c {} JOIN regions r ON r.id = c.region_id WHERE c.id = ?"
    assert question(sql.format(""), facts).required == ("region_id",)
    assert question(sql.format("LEFT"), facts).required == ()


def test_unproved_key_does_not_imply_that_a_row_has_a_parent(facts: SchemaFacts) -> None:
    orders = facts.tables["orders"]
    doubted = tuple(replace(key, proved=False) for key in orders.foreign_keys)
    doubting = replace(facts, tables={**facts.tables, "orders": replace(orders, foreign_keys=doubted)})
    sql = "SELECT o.id, c.name FROM orders o {} JOIN customers c ON c.id = o.customer_id WHERE o.id = ?"
    (refused,) = read(sql.format(""), doubting)
    assert isinstance(refused, Unserved)
    assert refused.reason == "join"
    question(sql.format("LEFT"), doubting)


def test_sum_of_children_is_read_from_their_parent(facts: SchemaFacts) -> None:
    made = question(
        "SELECT p.name, SUM(l.quantity) sold FROM lines l JOIN products p ON p.id = l.product_id"
        " GROUP BY p.id, p.name ORDER BY sold DESC, p.id LIMIT 10",
        facts,
    )
    assert made.table == "products"
    assert made.total is not None
    assert (made.total.kind, made.total.column, made.total.table) == ("sum", "quantity", "lines")
    assert made.limit == "10"


@pytest.mark.parametrize(
    ("sql", "kind", "column"),
    [
        ("SELECT COUNT(*) FROM orders WHERE customer_id = ?", "count", "all"),
        ("SELECT COUNT(1) AS n FROM orders o WHERE o.customer_id = 7", "count", "all"),
        ("SELECT COUNT(o.id) FROM orders o WHERE customer_id = :customer_id", "count", "all"),
        ("SELECT SUM(total) FROM orders WHERE customer_id = $1", "sum", "total"),
        ("SELECT max(placed_at) FROM orders WHERE customer_id = %s", "max", "placed_at"),
    ],
)
def test_number_of_one_parents_children_is_read_from_the_parent(
    sql: str, kind: str, column: str, facts: SchemaFacts
) -> None:
    made = question(sql, facts)
    assert made.total is not None
    assert (made.table, made.total.kind, made.total.column) == ("customers", kind, column)
    assert made.params == (("customer_id", "integer"),)
    assert made.sql.endswith('FROM "customers" AS parent WHERE parent."id" = :customer_id')


@pytest.mark.parametrize(
    ("sql", "bounds", "outputs"),
    [
        ("SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id", [], ["id", "count"]),
        (
            "SELECT SUM(total), customer_id FROM orders WHERE customer_id IN (?) GROUP BY 2",
            ["in"],
            ["sum", "id"],
        ),
        ("SELECT MAX(total) FROM orders o WHERE o.customer_id = ? GROUP BY o.customer_id", ["="], ["max"]),
        (
            "SELECT boss_id, COUNT(id) FROM staff WHERE boss_id IN (?, ?) GROUP BY boss_id",
            ["in"],
            ["id", "count"],
        ),
    ],
)
def test_total_grouped_by_a_foreign_key_is_of_parents(
    sql: str, bounds: list[str], outputs: list[str], facts: SchemaFacts
) -> None:
    made = question(sql, facts)
    assert made.total is not None
    assert made.table == made.total.table.replace("orders", "customers")
    assert [condition.bound for condition in made.conditions] == bounds
    assert [name.split("_")[0] for _, name in made.outputs] == outputs
    assert made.notes == ("a parent without rows is in the answer",)


ROWS_OR_NONE = "FROM customers c LEFT JOIN orders o ON o.customer_id = c.id"


@pytest.mark.parametrize(
    ("sql", "total", "outputs"),
    [
        (f"SELECT c.id, COUNT(o.id) AS n {ROWS_OR_NONE} GROUP BY c.id", ("count", "all"), ["id", "count"]),
        (
            f"SELECT SUM(o.total), c.name {ROWS_OR_NONE} WHERE c.id = ? GROUP BY c.id, 2",
            ("sum", "total"),
            ["sum", "name"],
        ),
        (
            f"SELECT c.*, MAX(o.total) {ROWS_OR_NONE} GROUP BY c.email",
            ("max", "total"),
            ["id", "email", "name", "region", "active", "max"],
        ),
        (
            f"SELECT c.id, COUNT(o.id) {ROWS_OR_NONE} GROUP BY c.id ORDER BY COUNT(o.id) DESC, c.id LIMIT 5",
            ("count", "all"),
            ["id", "count"],
        ),
    ],
)
def test_total_of_a_left_join_is_of_parents_with_none(
    sql: str, total: tuple[str, str], outputs: list[str], facts: SchemaFacts
) -> None:
    made = question(sql, facts)
    assert made.total is not None
    assert (made.table, made.with_parent) == ("customers", False)
    assert (made.total.kind, made.total.column) == total
    assert [name.split("_")[0] for _, name in made.outputs] == outputs


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT c.id, COUNT(*) {ROWS_OR_NONE} GROUP BY c.id",
        f"SELECT c.id, COUNT(c.id) {ROWS_OR_NONE} GROUP BY c.id",
        f"SELECT c.id, COUNT(o.shipped_at) {ROWS_OR_NONE} GROUP BY c.id",
        f"SELECT c.name, COUNT(o.id) {ROWS_OR_NONE} GROUP BY c.name",
        f"SELECT o.customer_id, COUNT(o.id) {ROWS_OR_NONE} GROUP BY o.customer_id",
        f"SELECT c.id, COUNT(o.id) {ROWS_OR_NONE} GROUP BY c.id, o.customer_id",
        f"SELECT c.id, COUNT(o.id), SUM(o.total) {ROWS_OR_NONE} GROUP BY c.id",
        f"SELECT COUNT(o.id) {ROWS_OR_NONE}",
        f"SELECT c.id, COUNT(o.id) {ROWS_OR_NONE} WHERE o.id IS NULL GROUP BY c.id",
        "SELECT c.id, COUNT(o.id) AS n FROM customers c JOIN orders o ON o.customer_id = c.id GROUP BY c.id ORDER BY n",
    ],
)
def test_total_of_a_left_join_of_another_form_is_reported(sql: str, facts: SchemaFacts) -> None:
    (made,) = read(sql, facts)
    assert isinstance(made, Unserved)
    assert made.reason == "aggregate"


def test_order_by_another_number_is_reported(facts: SchemaFacts) -> None:
    sql = f"SELECT c.id, COUNT(o.id) {ROWS_OR_NONE} GROUP BY c.id ORDER BY MAX(o.total) DESC LIMIT 5"
    (made,) = read(sql, facts)
    assert isinstance(made, Unserved)
    assert made.reason == "function"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FILTER (WHERE status = 'open') FROM orders WHERE customer_id = ?",
        "SELECT COUNT(*), COUNT(*) FILTER (WHERE status = 'open') FROM orders WHERE customer_id = ?",
        "SELECT SUM(CASE WHEN status = 'open' THEN 1 ELSE 0 END) FROM orders WHERE customer_id = ?",
        "SELECT COUNT(*) FROM orders WHERE customer_id = ? AND status = ?",
        "SELECT SUM(total) FROM orders WHERE customer_id = ? AND status = 'open'",
    ],
)
def test_total_of_some_children_names_the_way_out(sql: str, facts: SchemaFacts) -> None:
    (made,) = read(sql, facts)
    assert isinstance(made, Unserved)
    assert made.reason == "some"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM orders",
        "SELECT COUNT(*), MAX(total) FROM orders WHERE customer_id = ?",
        "SELECT COUNT(shipped_at) FROM orders WHERE customer_id = ?",
        "SELECT COUNT(DISTINCT status) FROM orders WHERE customer_id = ?",
        "SELECT COUNT(*) FROM orders WHERE customer_id > ?",
        "SELECT status, COUNT(*) FROM orders GROUP BY status",
        "SELECT status, COUNT(*) FROM orders WHERE customer_id = ? GROUP BY status",
        "SELECT customer_id, status, COUNT(*) FROM orders GROUP BY customer_id, status",
        "SELECT customer_id, COUNT(*) FROM orders WHERE id > ? GROUP BY customer_id",
        "SELECT customer_id, COUNT(*) FROM orders GROUP BY customer_id ORDER BY 2",
        "SELECT customer_id, COUNT(*) FROM orders GROUP BY customer_id LIMIT 5",
        "SELECT boss_id, COUNT(*) FROM staff GROUP BY boss_id",  # a group of NULL
        "SELECT customer_id, COUNT(*), SUM(total) FROM orders GROUP BY customer_id",
        "SELECT COUNT(*) FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.name = ?",
        "SELECT AVG(total) FROM orders WHERE customer_id = ?",
    ],
)
def test_every_other_number_of_rows_is_reported(sql: str, facts: SchemaFacts) -> None:
    (made,) = read(sql, facts)
    assert isinstance(made, Unserved)
    assert made.reason == "aggregate"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT id FROM customers WHERE?active = TRUE", "unknown"),
        ("SELECT t.id FROM orders t JOIN lines l USING (OFFSET, id) WHERE t.id = ?", "ambiguous"),
        ("SELECT id, id FROM orders WHERE id = ?", "computed"),
        ("SELECT FROM orders WHERE id = ?", "computed"),
        ("SELECT id FROM orders WHERE id = ? AND id = ?", "condition"),
        ("SELECT id FROM orders WHERE id = ? LIMIT ? + 1", "limit"),
        ("SELECT id FROM orders LEFT JOIN lines ON order_id = id AND line_no = ? WHERE id = ?", "join"),
        ("SELECT id FROM orders, customers", "join"),
        ("SELECT orders.id FROM orders, customers WHERE orders.id = ?", "join"),
        ("SELECT id FROM orders WHERE customer_id = ?; \x00", "unknown"),
    ],
)
def test_bad_statements_are_named_and_never_an_error(sql: str, reason: str, facts: SchemaFacts) -> None:
    reasons = [made.reason for made in read(sql, facts) if isinstance(made, Unserved)]
    assert reason in reasons, reasons


@pytest.mark.parametrize("table", ["missing", "sales.missing"])
def test_an_unknown_table_is_named_with_its_schema(table: str, facts: SchemaFacts) -> None:
    (made,) = read(f"SELECT id FROM {table} WHERE id = ?", facts)
    assert isinstance(made, Unserved)
    assert pins.said(made.what, table=table)


NOT_READ = {
    "aggregate": "SELECT COUNT(*) FROM orders WHERE status = ?",
    "ambiguous": "SELECT id FROM missing",
    "case": "SELECT id FROM products WHERE name ILIKE ? || '%'",
    "catalogue": "WITH x AS (SELECT 1 FROM pg_class) SELECT * FROM information_schema.tables, x",
    "columns": "SELECT id FROM orders WHERE placed_at < shipped_at",
    "computed": "SELECT id, total * 2 FROM orders WHERE id = ?",
    "condition": "SELECT id FROM orders WHERE customer_id = ? OR status = ?",
    "cut": "SELECT id, status, placed_at FROM orders WHERE customer_id = ? AND stat...",
    "definition": "CREATE TABLE x (id INTEGER)",
    "distinct": "SELECT DISTINCT status FROM orders",
    "function": "SELECT id FROM orders WHERE date(placed_at) = ?",
    "join": "SELECT c.id, o.id FROM customers c JOIN orders o ON o.customer_id = c.id JOIN staff s ON s.id = c.id",
    "long": f"SELECT id FROM orders WHERE total = {'1+' * LONGEST}1",
    "offset": "SELECT id FROM orders ORDER BY id LIMIT 10 OFFSET 20",
    "search": "SELECT id FROM products WHERE name LIKE ?",
    "session": "SET search_path = x",
    "shape": "SELECT id FROM orders UNION SELECT id FROM lines",
    "some": "SELECT COUNT(*) FILTER (WHERE status = 'open') FROM orders WHERE customer_id = ?",
    "unsafe": "SELECT id FROM orders WHERE id = ? AND load_extension(?)",
    "unknown": "this is no SQL at all",
    "write": "UPDATE orders SET status = ? WHERE id = ?",
}
NOT_PLACED = {
    "constant": "SELECT id FROM orders WHERE status = TRUE",
    "index": "SELECT id FROM orders WHERE status = ?",
    "key": "SELECT id FROM products WHERE photo IS NULL AND price = ? AND name = ?",
    "limit": "SELECT id, name FROM products ORDER BY name LIMIT 5",
    "list": "SELECT id FROM orders WHERE customer_id IN (?, ?) AND status IN (?)",
    "scan": "SELECT id FROM events",
    "unordered": "SELECT id, name FROM products LIMIT 5",
}
EVENTS = f"""{SHOP}
CREATE TABLE events (id INTEGER NOT NULL PRIMARY KEY, happened_at TIMESTAMP NOT NULL);
INSERT INTO events WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {LARGEST_LIST + 1})
  SELECT i, '2026-01-01 00:00:00' FROM n;
UPDATE products SET price = -price;
"""


@pytest.mark.parametrize(("reason", "sql"), NOT_READ.items(), ids=NOT_READ)
def test_what_is_no_question_has_a_reason(reason: str, sql: str, facts: SchemaFacts) -> None:
    (made,) = read(sql, facts)
    assert isinstance(made, Unserved)
    assert made.reason == reason


@pytest.mark.parametrize(("reason", "sql"), NOT_PLACED.items(), ids=NOT_PLACED)
def test_what_no_key_answers_has_a_reason(reason: str, sql: str, tmp_path: Path) -> None:
    with source_with(tmp_path, EVENTS) as source:
        made = proposed(source, sql, max_indexes=0)
    assert [other.reason for other in made.unserved] == [reason]
    assert not made.design.accesses


@pytest.mark.parametrize(
    ("place", "reason", "what"),
    [("sql", "refused", "line 1: no such thing"), ("get.key", "fault", "no such thing")],
)
def test_pattern_with_a_fault_is_taken_out(tmp_path: Path, place: str, reason: str, what: str) -> None:
    with source_with(tmp_path, SHOP) as source:
        facts = source.facts()
        questions = [
            made
            for made in read("SELECT id FROM orders WHERE id = ?", facts)
            if isinstance(made, StatementQuestion)
        ]

        def refused(text: str) -> list[Fault]:
            wrong = "access_patterns" in text
            return (
                [Fault("shop.yaml", 1, f"access_patterns.get_order.{place}", "no such thing")]
                if wrong
                else []
            )

        made = proposal_of(questions, facts, Figures(), "Shop", 5, refused)
    assert [(other.reason, other.what) for other in made.unserved] == [(reason, what)]
    assert "access_patterns" not in made.text


def test_faulty_entity_loses_its_queries_then_is_left_out(tmp_path: Path) -> None:
    with source_with(tmp_path, SHOP) as source:
        facts = source.facts()
        questions = [
            made
            for made in read("SELECT id FROM orders WHERE id = ?", facts)
            if isinstance(made, StatementQuestion)
        ]

        def refused(text: str) -> list[Fault]:
            wrong = "\n  order:" in text
            return [Fault("shop.yaml", 1, "entities.order.items.Order.key", "no such thing")] if wrong else []

        made = proposal_of(questions, facts, Figures(), "Shop", 5, refused)
    assert [other.reason for other in made.unserved] == ["fault"]
    assert "orders" not in made.design.homes
    assert pins.said(made.decisions)


def test_every_reason_has_a_test() -> None:
    assert {*NOT_READ, *NOT_PLACED, "fault", "refused", "words"} == set(REASONS)


_ONE_ORDER = "SELECT id, total FROM orders WHERE customer_id = ?"
_SAME = {
    "SELECT id, total FROM orders WHERE customer_id = ? AND 1=1": _ONE_ORDER,
    "SELECT id, total FROM orders WHERE (customer_id = ? AND (1=1 AND TRUE)) OFFSET 0": _ONE_ORDER,
    "SELECT DISTINCT id, total FROM orders WHERE customer_id = ?": _ONE_ORDER,
    "WITH mine AS (SELECT * FROM orders WHERE customer_id = ?) SELECT mine.id, mine.total FROM mine": _ONE_ORDER,
    "SELECT a.id, a.total FROM (SELECT o.id, o.total FROM orders AS o WHERE o.customer_id = ?) AS a": _ONE_ORDER,
    "SELECT * FROM (SELECT id, total FROM orders WHERE customer_id = ? ORDER BY id LIMIT 5) AS page": (
        _ONE_ORDER + " ORDER BY id LIMIT 5"
    ),
    "SELECT id FROM orders WHERE customer_id IN (SELECT id FROM customers WHERE email = ?)": (
        "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.email = ?"
    ),
    "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer_id AND c.email = ?)": (
        "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.email = ?"
    ),
    "SELECT o.id FROM orders o LEFT JOIN customers c ON c.id = o.customer_id WHERE c.email = ?": (
        "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.email = ?"
    ),
    "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id AND c.email = ?": (
        "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.email = ?"
    ),
    "SELECT count(*) AS n FROM (SELECT id AS order_id FROM orders WHERE customer_id = ? ORDER BY id) AS a": (
        "SELECT COUNT(*) FROM orders WHERE customer_id = ?"
    ),
    "SELECT id FROM orders WHERE customer_id = ANY(?)": "SELECT id FROM orders WHERE customer_id IN (?)",
    "SELECT id FROM orders WHERE status = ? OR status = ?": "SELECT id FROM orders WHERE status IN (?)",
    "SELECT id FROM customers WHERE active": "SELECT id FROM customers WHERE active = TRUE",
    "SELECT id FROM customers WHERE NOT active": "SELECT id FROM customers WHERE active = FALSE",
    "SELECT id FROM customers WHERE active IS FALSE": "SELECT id FROM customers WHERE active = FALSE",
    "SELECT id FROM customers WHERE id = ? AND name IS NOT NULL": "SELECT id FROM customers WHERE id = ?",
    "SELECT id FROM orders WHERE status = ? AND (placed_at < ? OR (placed_at = ? AND id < ?))"
    " ORDER BY placed_at DESC, id DESC LIMIT 5": (
        "SELECT id FROM orders WHERE status = ? AND (placed_at, id) < (?, ?)"
        " ORDER BY placed_at DESC, id DESC LIMIT 5"
    ),
    "SELECT id FROM orders WHERE status = ? AND placed_at <= ? AND (placed_at < ? OR id < ?)"
    " ORDER BY placed_at DESC, id DESC LIMIT 5": (
        "SELECT id FROM orders WHERE status = ? AND (placed_at, id) < (?, ?)"
        " ORDER BY placed_at DESC, id DESC LIMIT 5"
    ),
    "SELECT id FROM orders WHERE placed_at >= NOW()": "SELECT id FROM orders WHERE placed_at >= ?",
    "SELECT id FROM customers WHERE UPPER(email) = UPPER(?)": (
        "SELECT id FROM customers WHERE LOWER(email) = LOWER(?)"
    ),
    "SELECT id FROM customers WHERE LOWER(email) = ?": "SELECT id FROM customers WHERE LOWER(email) = LOWER(?)",
    "SELECT 1 AS one FROM customers WHERE email = ? LIMIT 1": "SELECT id FROM customers WHERE email = ?",
    "SELECT EXISTS (SELECT * FROM orders WHERE customer_id = ?)": (
        "SELECT id FROM orders WHERE customer_id = ? ORDER BY id LIMIT 1"
    ),
    "SELECT COUNT(*) > 0 FROM orders WHERE customer_id = ?": (
        "SELECT id FROM orders WHERE customer_id = ? ORDER BY id LIMIT 1"
    ),
    "SELECT CASE WHEN COUNT(id) > 0 THEN TRUE ELSE FALSE END FROM orders WHERE customer_id = ?": (
        "SELECT id FROM orders WHERE customer_id = ? ORDER BY id LIMIT 1"
    ),
    "SELECT id FROM orders WHERE customer_id = ? LIMIT 1": (
        "SELECT id FROM orders WHERE customer_id = ? ORDER BY id LIMIT 1"
    ),
    "SELECT o.id, o.customer_id, c.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.id = ?": (
        "SELECT o.id, o.customer_id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.id = ?"
    ),
    "SELECT id FROM orders WHERE id = ? LIMIT ? OFFSET ?": "SELECT id FROM orders WHERE id = ? LIMIT ?",
    "SELECT id FROM orders WHERE customer_id = ? ORDER BY id FETCH FIRST 5 ROWS ONLY": (
        "SELECT id FROM orders WHERE customer_id = ? ORDER BY id LIMIT 5"
    ),
}
"""By the form of an ORM, the plain one that asks the same."""


@pytest.mark.parametrize(("sql", "plain"), _SAME.items())
def test_a_statement_of_an_orm_is_read_as_its_plain_form(sql: str, plain: str, facts: SchemaFacts) -> None:
    postgresql = replace(facts, dialect="postgresql")
    made, expected = question(sql, postgresql), question(plain, postgresql)
    asked = ["table", "params", "conditions", "outputs", "joins", "required", "order", "limit", "total"]
    assert {name: getattr(made, name) for name in asked} == {name: getattr(expected, name) for name in asked}


_OTHERWISE = {
    "SELECT c.id FROM customers c WHERE c.id IN (SELECT o.customer_id FROM orders o WHERE o.status = ?)": "shape",
    "SELECT c.id FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)": "shape",
    "SELECT id FROM orders WHERE customer_id NOT IN (SELECT id FROM customers WHERE name = ?)": "shape",
    "SELECT id FROM orders WHERE customer_id IN (SELECT id FROM customers ORDER BY id LIMIT 3)": "shape",
    "SELECT COUNT(*) FROM (SELECT id FROM orders WHERE customer_id = ? LIMIT 10) AS a": "shape",
    "SELECT COUNT(*) FROM (SELECT DISTINCT status FROM orders WHERE customer_id = ?) AS a": "shape",
    "SELECT DISTINCT status FROM orders WHERE customer_id = ?": "distinct",
    "SELECT DISTINCT ON (customer_id) id FROM orders WHERE customer_id = ?": "distinct",
    "SELECT id FROM orders WHERE placed_at < ? OR (placed_at = ? AND id > ?)": "condition",
    "SELECT id FROM orders WHERE placed_at < ? OR (total = ? AND id < ?)": "condition",
    "SELECT id FROM orders WHERE (placed_at, id) = (?, ?)": "condition",
    "SELECT id FROM orders WHERE (placed_at, id) < (?, total)": "condition",
    "SELECT id FROM orders WHERE customer_id = ? LIMIT ? OFFSET ?": "offset",
    "SELECT id FROM orders WHERE id = ? LIMIT 5 OFFSET 10": "offset",
    "SELECT id FROM customers WHERE active IS NOT TRUE": "condition",
    "SELECT id FROM customers WHERE NOT (active IS TRUE)": "condition",
    "SELECT id FROM orders WHERE total = RANDOM()": "condition",
    "SELECT COUNT(*) > 1 FROM orders WHERE customer_id = ?": "aggregate",
    "SELECT id FROM orders WHERE status = ? AND total >= ?::int": "condition",
    "SELECT id FROM customers WHERE name LIKE '%ann%'": "search",
    "SELECT id FROM customers WHERE name LIKE 'a_n%'": "search",
    "SELECT id FROM customers WHERE name NOT LIKE 'ann%'": "search",
    "SELECT EXISTS (SELECT COUNT(*) FROM orders WHERE customer_id = ?)": "shape",
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT MAX(c.id) FROM customers c WHERE c.id = o.customer_id)": "shape",
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer_id LIMIT 0)": "shape",
    "SELECT COUNT(name) > 0 FROM notes": "ambiguous",
    "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a) SELECT o.id FROM orders o, a": "shape",
}


@pytest.mark.parametrize(("sql", "reason"), _OTHERWISE.items())
def test_a_statement_that_no_plain_form_has_is_refused(sql: str, reason: str, facts: SchemaFacts) -> None:
    (made,) = read(sql, replace(facts, dialect="postgresql"))
    assert isinstance(made, Unserved), made
    assert made.reason == reason


@pytest.mark.parametrize("condition", ["placed_at >= ?::date", "(placed_at, id) > (CAST(? AS DATE), ?)"])
def test_a_cast_to_a_day_becomes_part_of_the_parameter(condition: str, facts: SchemaFacts) -> None:
    made = question(f"SELECT id FROM orders WHERE {condition}", replace(facts, dialect="postgresql"))
    assert ("from_placed_at", "timestamp") in made.params
    assert "DATE" not in made.sql.upper()
    assert len(made.notes) == 1


_NOT_WHOLE = {
    "orders TABLESAMPLE SYSTEM (1)": "postgresql",
    "ONLY orders": "postgresql",
    "orders AS o (customer_id, id)": "postgresql",
    "orders PARTITION (p0)": "mysql",
    "orders FOR SYSTEM_TIME AS OF NOW()": "mysql",
}


@pytest.mark.parametrize(("table", "dialect"), _NOT_WHOLE.items())
def test_a_part_or_another_state_of_a_table_is_refused(table: str, dialect: str, facts: SchemaFacts) -> None:
    (made,) = read(f"SELECT id FROM {table} WHERE customer_id = ?", replace(facts, dialect=dialect))
    assert isinstance(made, Unserved), made
    assert made.reason == "shape"


@pytest.mark.parametrize(
    ("table", "dialect"),
    {"orders o FORCE INDEX (i)": "mysql", "orders o": "postgresql", "orders INDEXED BY i": "sqlite"}.items(),
)
def test_an_index_named_for_a_table_changes_nothing(table: str, dialect: str, facts: SchemaFacts) -> None:
    made = question(f"SELECT id FROM {table} WHERE customer_id = ?", replace(facts, dialect=dialect))
    assert made.table == "orders"


@pytest.mark.parametrize(("dialect", "served"), [("postgresql", True), ("mysql", True), ("sqlite", False)])
def test_like_with_a_prefix_is_served_if_letters_differ(
    dialect: str, served: bool, facts: SchemaFacts
) -> None:
    (statement,) = statements_of("SELECT id FROM customers WHERE name LIKE 'Ann%'", dialect)
    made = question_of(statement, replace(facts, dialect=dialect))
    assert isinstance(made, StatementQuestion) == served
    if isinstance(made, StatementQuestion):
        assert made.params == (("name_prefix", "text"),)
        assert made.notes


_EVERY = ("postgresql", "mysql", "sqlite")
_CONDITIONS = {
    "shipped_at IS NULL": "is null",
    "shipped_at ISNULL": "is null",
    "(shipped_at IS NULL)": "is null",
    "NOT (shipped_at IS NOT NULL)": "is null",
    "NOT NOT shipped_at IS NULL": "is null",
    "shipped_at IS NOT NULL": "is not null",
    "shipped_at NOTNULL": "is not null",
    "((shipped_at IS NOT NULL))": "is not null",
    "NOT shipped_at IS NULL": "is not null",
    "NOT (shipped_at IS NULL)": "is not null",
    "NOT ((shipped_at) IS NULL)": "is not null",
    "NOT (NOT (shipped_at IS NOT NULL))": "is not null",
    "shipped_at = ?": "=",
    "? = shipped_at": "=",
    "shipped_at < ?": "<",
    "? < shipped_at": ">",
    "shipped_at <= ?": "<=",
    "shipped_at > ?": ">",
    "shipped_at >= ?": ">=",
    "shipped_at BETWEEN ? AND ?": ">= <=",
    "shipped_at IN (?)": "in",
    "shipped_at BETWEEN SYMMETRIC ? AND ?": "condition",
    "shipped_at NOT BETWEEN ? AND ?": "condition",
    "shipped_at NOT IN (?)": "condition",
    "shipped_at <> ?": "condition",
    "shipped_at != ?": "condition",
    "NOT shipped_at = ?": "condition",
    "NOT (shipped_at <= ?)": "condition",
    "shipped_at IS DISTINCT FROM ?": "condition",
    "shipped_at IS NOT DISTINCT FROM ?": "condition",
    "shipped_at = NULL": "condition",
    "shipped_at IS NULL OR id = 5": "condition",
    "NOT (shipped_at IS NULL AND id = 5)": "condition",
    "status IS TRUE": "condition",
    "status IS NOT TRUE": "condition",
    "status LIKE ?": "search",
    "status NOT LIKE ?": "search",
    "shipped_at = ANY(?)": "constant condition",
}
"""By condition, the bounds that it says, or why it is no question."""


@pytest.mark.parametrize("dialect", _EVERY)
@pytest.mark.parametrize("condition", _CONDITIONS)
def test_every_condition_form_is_read_as_the_server_reads_it(
    condition: str, dialect: str, facts: SchemaFacts
) -> None:
    statement = Statement(f"SELECT id FROM orders WHERE {condition}")
    made = question_of(statement, replace(facts, dialect=dialect))
    if isinstance(made, Unserved):
        assert made.reason in _CONDITIONS[condition].split()
    else:
        assert [one.bound for one in made.conditions] in (
            [_CONDITIONS[condition]], _CONDITIONS[condition].split()
        )  # fmt: skip


@pytest.mark.parametrize("dialect", _EVERY)
@pytest.mark.parametrize(
    "words", ["", "NULLS FIRST", "NULLS LAST", "DESC", "DESC NULLS FIRST", "DESC NULLS LAST"]
)
def test_order_names_columns_that_sort_null_unlike_the_source(
    words: str, dialect: str, facts: SchemaFacts
) -> None:
    statement = Statement(f"SELECT id FROM orders WHERE customer_id = ? ORDER BY shipped_at {words}")
    made = question_of(statement, replace(facts, dialect=dialect))
    nulls_are_large = dialect == "postgresql"
    first = nulls_are_large == words.startswith("DESC")
    is_own = "NULLS" not in words or words.endswith("FIRST") == first
    assert isinstance(made, StatementQuestion)
    assert made.nulls_moved == (() if is_own else (("", "shipped_at"),))
    on_a_column_without = Statement(statement.sql.replace("shipped_at", "placed_at"))
    other = question_of(on_a_column_without, replace(facts, dialect=dialect))
    assert isinstance(other, StatementQuestion)
    assert other.nulls_moved == ()
