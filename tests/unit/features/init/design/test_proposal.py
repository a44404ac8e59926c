"""Proposed mappings: keys, indexes and patterns for questions, without a fault whatever is asked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.features.init.placing import Access, TableNames, singular
from migrator.features.init.written import Proposal, default_statements, wanted_of
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.questions import Statement, StatementQuestion, Unserved
from migrator.source.reader import SqlSource
from migrator.source.workload.reading import question_of
from migrator.source.workload.statements import merged
from tests import pins
from tests.support_design import QUESTIONS, SHOP, TENANTS, all_faults, proposed, read, source_with


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSource]:
    with source_with(tmp_path_factory.mktemp("shop"), SHOP) as source:
        yield source


def only(proposal: Proposal) -> Access:
    (access,) = proposal.design.accesses
    return access


def test_every_question_is_served_without_a_fault_or_a_warning(shop: SqlSource) -> None:
    made = proposed(shop, QUESTIONS, max_indexes=9)
    assert made.unserved == ()
    assert len(made.design.accesses) == 26
    assert all_faults(made.text, shop.facts()) == ()
    assert made.design.indexes == 6


def test_any_order_of_the_statements_gives_the_same_text(shop: SqlSource) -> None:
    expected = proposed(shop, QUESTIONS).text
    statements = QUESTIONS.replace("-- 9/s\nSELECT", "/* 9/s */ SELECT").split(";\n")
    for seed in range(5):
        mixed = [statement for statement in statements if statement.strip()]
        random.Random(seed).shuffle(mixed)
        assert proposed(shop, ";\n".join(mixed)).text == expected


def test_whitespace_and_keyword_case_give_the_same_proposal(shop: SqlSource) -> None:
    words = (
        "SELECT",
        "FROM",
        "WHERE",
        "AND",
        "ORDER BY",
        "LIMIT",
        "JOIN",
        "DESC",
        "SUM",
        "IS NULL",
        "BETWEEN",
        "IN",
    )
    lower = QUESTIONS.replace(" = ", "=").replace(", ", " ,\n  ")
    for word in words:
        lower = lower.replace(f"{word} ", f"{word.lower()}  ")
    assert proposed(shop, lower, max_indexes=9).text == proposed(shop, QUESTIONS, max_indexes=9).text


LATEST = "SELECT id FROM visit WHERE page = ? ORDER BY at DESC{} LIMIT 3"


@pytest.mark.parametrize("words", ["", " NULLS LAST", " NULLS FIRST"])
@pytest.mark.parametrize(
    ("rows", "strict", "is_served"),
    [
        ("(1, 'a', '2026-01-01')", False, True),
        ("(1, 'a', '2026-01-01')", True, False),
        ("(1, 'a', '2026-01-01'), (2, 'a', NULL)", False, False),
    ],
)
def test_nullable_column_orders_a_key_only_while_no_row_has_null(
    rows: str, strict: bool, is_served: bool, words: str, tmp_path: Path
) -> None:
    table = "CREATE TABLE visit (id INTEGER PRIMARY KEY, page TEXT NOT NULL, at DATE)"
    with source_with(tmp_path, f"{table}; INSERT INTO visit VALUES {rows};") as source:
        made = proposed(source, LATEST.format(words), strict=strict)
        assert [access.notes[-1] for access in made.design.accesses] == (
            ["served while no row has NULL in at"] if is_served else []
        )
        assert [other.reason for other in made.unserved] == ([] if is_served else ["limit"])
        assert all_faults(made.text, source.facts()) == ()


def test_nullable_column_without_a_limit_stays_out_of_the_key(tmp_path: Path) -> None:
    table = "CREATE TABLE visit (id INTEGER PRIMARY KEY, page TEXT NOT NULL, at DATE)"
    with source_with(tmp_path, f"{table}; INSERT INTO visit VALUES (1, 'a', '2026-01-01');") as source:
        made = proposed(source, "SELECT id FROM visit WHERE page = ? ORDER BY at")
    assert "at|iso" not in made.text  # a row with NULL that comes later must not leave the index


@pytest.mark.parametrize(
    ("plural", "one"),
    [
        (
            "customers order_lines days employees prices cases courses houses",
            "customer order_line day employee price case course house",
        ),
        ("categories countries queries movies cookies ties", "category country query movie cookie tie"),
        ("addresses classes wishes matches boxes quizzes heroes", "address class wish match box quiz hero"),
        ("statuses bonuses viruses buses aliases caches", "status bonus virus bus alias cache"),
        ("people children men women salesmen", "person child man woman salesmen"),
        (
            "indices matrices vertices analyses criteria axes taxes",
            "index matrix vertex analysis criterion axis tax",
        ),
        ("shelves archives moves photos menus", "shelf archive move photo menu"),
        (
            "status address analysis news series canvas gas us gps sms",
            "status address analysis news series canvas gas us gps sms",
        ),
        ("staff media inventory film_text data", "staff media inventory film_text data"),
    ],
)
def test_a_table_in_the_plural_is_named_by_one_row(plural: str, one: str) -> None:
    assert " ".join(map(singular, plural.split())) == one


def test_singular_name_that_another_table_has_is_not_taken(tmp_path: Path) -> None:
    tables = ("order", "orders", "Users", "user_s")
    with source_with(
        tmp_path, "".join(f'CREATE TABLE "{name}" (id INTEGER PRIMARY KEY);' for name in tables)
    ) as source:
        facts = source.facts()
        names = TableNames.of(facts)
        made = proposed(source, "".join(f'SELECT * FROM "{name}" WHERE id = ?;' for name in tables))
        assert all_faults(made.text, facts) == ()
    assert names.entities == {"order": "order", "orders": "orders", "Users": "user", "user_s": "user_s"}
    assert names.words == {"order": "ORDER", "orders": "ORDERS", "Users": "USER", "user_s": "USER_S"}


def test_columns_named_like_attributes_of_the_table_keep_their_names(tmp_path: Path) -> None:
    columns = "PK, sk, type, entity_type, expires_at, _src, _TK, _rev, GSI1PK, gsi2sk, _GSI7PK"
    with source_with(
        tmp_path, f"CREATE TABLE users (id INTEGER PRIMARY KEY, tag TEXT NOT NULL, {columns});"
    ) as source:
        facts, asked = source.facts(), "SELECT * FROM users WHERE tag = ?; SELECT * FROM users WHERE id = ?;"
        made = proposed(source, asked)
    assert (all_faults(made.text, facts), made.unserved) == ((), ())
    names = TableNames.of(facts)
    assert (names.partition, names.type, names.index) == ("_PK", "_entity_type", "__GSI")
    assert names.own == {"source": "__src", "ticket": "__tk", "revision": "__rev"}


def test_a_row_is_got_by_its_key(shop: SqlSource) -> None:
    access = only(proposed(shop, "SELECT * FROM customers WHERE id = :k"))
    assert (access.name, access.operation, access.key, access.condition) == (
        "get_customer",
        "get",
        "CUSTOMER#{k}",
        ("equal", ("META",)),
    )


def test_child_keyed_by_its_parent_is_in_the_parents_partition(shop: SqlSource) -> None:
    access = only(proposed(shop, "SELECT quantity FROM lines WHERE order_id = ? ORDER BY line_no"))
    assert (access.index, access.key, access.condition) == (
        0,
        "ORDER#{order_id}",
        ("begins_with", ("LINE#",)),
    )
    assert access.order == "exact"


def test_children_read_most_by_parent_are_in_its_partition(
    shop: SqlSource,
) -> None:
    by_parent, by_key = (
        "SELECT total FROM orders WHERE customer_id = ?;",
        "SELECT total FROM orders WHERE id = ?;",
    )
    made = proposed(shop, f"-- 9/s\n{by_parent}\n-- 2/s\n{by_key}")
    assert [access.index for access in made.design.accesses] == [0, 1]
    made = proposed(shop, f"-- 2/s\n{by_parent}\n-- 9/s\n{by_key}")
    assert [access.index for access in made.design.accesses] == [0, 1]
    assert [access.name for access in made.design.accesses] == ["get_order", "list_orders_by_customer_id"]


FEW = """
CREATE TABLE users (id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, boss INTEGER REFERENCES users (id), gone TIMESTAMP);
CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users (id), state TEXT NOT NULL,
  sent DATE, made TIMESTAMP NOT NULL, cost NUMERIC(8, 2), note TEXT);
CREATE TABLE profile (user_id INTEGER PRIMARY KEY REFERENCES users (id), plan INTEGER NOT NULL);
INSERT INTO users WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
  SELECT i, i %% 7, NULLIF(i %% 3, 0), NULL FROM n;
INSERT INTO orders WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
  SELECT i, i %% 300 + 1, 'open', NULL, '2026-01-01', -i, NULL FROM n;
"""
FILTERED = {
    "a key and a NULL": (
        "SELECT tenant FROM users WHERE id = ? AND gone IS NULL",
        {"gone": {"exists": False}},
        0,
    ),
    "a key and a column": ("SELECT id FROM users WHERE id = ? AND tenant = ?", {"tenant": "tenant"}, 0),
    "a key and a parent": (
        "SELECT u.id, b.tenant FROM users u JOIN users b ON b.id = u.boss WHERE u.id = ?",
        {"boss": {"exists": True}},
        0,
    ),
    "a key of a parent": ("SELECT plan FROM profile WHERE user_id = ? AND plan = ?", {"plan": "plan"}, 0),
    "a few children": (
        "SELECT id FROM orders WHERE user_id = ? AND state = ? ORDER BY id",
        {"state": "state"},
        1,
    ),
    "values that no key has": (
        "SELECT id FROM orders WHERE user_id = ? AND cost = ? AND sent IS NULL AND note IS NOT NULL",
        {"cost": "cost", "sent": {"exists": False}, "note": {"exists": True}},
        1,
    ),
    "the first of a few": (
        "SELECT id FROM orders WHERE user_id = ? AND sent IS NOT NULL ORDER BY id LIMIT 2",
        {"sent": {"exists": True}},
        1,
    ),
}
BY_PARENT = "SELECT state FROM orders WHERE user_id = ? ORDER BY id;\n-- 9/s\nSELECT state FROM orders WHERE id = ?;\n"


@pytest.mark.parametrize(("sql", "filters", "index"), FILTERED.values(), ids=FILTERED)
def test_one_item_or_few_are_filtered_rather_than_indexed(
    sql: str, filters: dict[str, object], index: int, tmp_path: Path
) -> None:
    with source_with(tmp_path, FEW % 3_000) as source:
        made = proposed(source, BY_PARENT + sql)
        assert [fault for fault in all_faults(made.text, source.facts()) if not fault.warning] == []
    assert made.design.indexes == 1
    assert [(one.filters, one.index) for one in made.design.accesses if one.filters] == [(filters, index)]


@pytest.mark.parametrize(
    ("rows", "sql"),
    [
        pytest.param(900, "SELECT id FROM orders WHERE user_id = ? AND state = ?", id="too few to tell"),
        pytest.param(
            90_900, "SELECT id FROM orders WHERE user_id = ? AND state = ?", id="many of one parent"
        ),
        pytest.param(3_000, "SELECT id FROM orders WHERE user_id = ? AND made = ?", id="a time"),
        pytest.param(
            3_000,
            "SELECT id FROM orders WHERE user_id = ? AND state = ? ORDER BY made, id",
            id="another order",
        ),
        pytest.param(3_000, "SELECT id FROM users WHERE tenant = ? AND gone IS NULL", id="no parent"),
    ],
)
def test_what_cannot_be_filtered_has_an_index(rows: int, sql: str, tmp_path: Path) -> None:
    with source_with(tmp_path, FEW % rows) as source:
        made = proposed(source, BY_PARENT + sql)
    assert not any(access.filters for access in made.design.accesses)
    assert len(made.design.accesses) == 3


HISTORY = """
CREATE TABLE dept (id INTEGER PRIMARY KEY, name VARCHAR(9) NOT NULL);
CREATE TABLE post (emp INTEGER NOT NULL, dept INTEGER NOT NULL REFERENCES dept (id), until DATE NOT NULL, seen TIMESTAMP NOT NULL,
  PRIMARY KEY (emp, until));
INSERT INTO dept VALUES (1, 'a'), (2, 'b');
INSERT INTO post WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
  SELECT i / 4, 1, CASE i % 4 WHEN 3 THEN '9999-01-01' ELSE '2001-01-0' || (i % 4 + 1) END, '9999-12-31 23:59:59' FROM n;
"""
OPEN_ENDS = [
    ("until = '9999-01-01'", "until", "9999-01-01"),
    ("until = DATE '9999-01-01'", "until", "9999-01-01"),
    ("seen = '9999-12-31 23:59:59'", "seen", "9999-12-31T23:59:59.000000"),
]


@pytest.mark.parametrize(("condition", "column", "stored"), OPEN_ENDS)
def test_open_end_date_is_a_sparse_entry_not_a_partition(
    condition: str, column: str, stored: str, tmp_path: Path
) -> None:
    with source_with(tmp_path, HISTORY) as source:
        statements = merged(
            [Statement(f"SELECT p.emp, d.name FROM post p JOIN dept d ON d.id = p.dept WHERE {condition}")],
            "sqlite",
        )
        questions = [
            one
            for each in statements
            if isinstance(one := question_of(each, source.facts()), StatementQuestion)
        ]
        made = proposed(source, questions)
        assert [fault for fault in all_faults(made.text, source.facts()) if not fault.warning] == []
    (entry,) = made.design.entries["post"]
    assert (entry.partition, entry.when) == ((f"POST_BY_{column.upper()}", ()), ((column, (stored,)),))
    assert only(made).notes == (
        "one partition has up to 40 rows and every write of them",
        "a change of one row of dept rewrites up to 40 items",
    )


@pytest.mark.parametrize(
    "condition",
    [
        "until < '9999-01-01'",
        "until <= '9999-01-01'",
        "until <> '9999-01-01'",
        "until = '2001-01-01'",
        "until IN ('9999-01-01', '2001-01-01')",
    ],
)
def test_another_day_or_comparison_is_a_parameter(condition: str) -> None:
    (statement,) = merged([Statement(f"SELECT emp FROM post WHERE {condition}")], "sqlite")
    assert "'" not in statement.sql


WITH_PARENT = "SELECT o.id, o.status, o.total, l.line_no, l.quantity FROM orders o JOIN lines l ON l.order_id = o.id WHERE o.id = ?"


def test_parent_with_its_children_is_one_partition_and_pattern(shop: SqlSource) -> None:
    made = proposed(shop, f"{WITH_PARENT} ORDER BY l.line_no DESC")
    access = only(made)
    assert (access.key, access.condition, access.order) == ("ORDER#{order_id}", ("", ()), "exact")
    assert [(part.name, [name for _, name in part.outputs], part.one) for part in access.parts] == [
        ("order", ["status", "total"], True),
        ("lines", ["order_id", "line_no", "quantity"], False),
    ]
    assert "the order is returned also if it has no lines" in access.notes
    parsed = examine_mapping(made.text, "shop.yaml").mapping
    assert parsed.entities["line"].joins == ()  # no column of the parent is copied into each child
    assert parsed.patterns[access.name].statements == {
        "order": 'SELECT "status", "total" FROM "orders" WHERE "id" = :order_id',
        "lines": 'SELECT "order_id", "line_no", "quantity" FROM "lines" WHERE "order_id" = :order_id ORDER BY "line_no" DESC',
    }


EAGER = "SELECT o.id, o.status, l.line_no FROM orders o LEFT JOIN lines l ON l.order_id = o.id WHERE {} = ?"


def test_left_join_of_children_includes_a_childless_parent(shop: SqlSource) -> None:
    access = only(proposed(shop, EAGER.format("o.id")))
    assert [[name for _, name in part.outputs] for part in access.parts] == [
        ["id", "status"],
        ["order_id", "line_no"],
    ]
    assert access.notes == ()


_FIRST_BY = "SELECT c.id, {} AS n FROM customers c {} JOIN orders o ON o.customer_id = c.id GROUP BY c.id ORDER BY n DESC LIMIT 2"


@pytest.mark.parametrize(("total", "form"), [("SUM(o.total)", ":013.2f"), ("MAX(o.placed_at)", "|iso")])
def test_first_parents_by_a_total_are_served_if_each_has_one(total: str, form: str, shop: SqlSource) -> None:
    made = proposed(shop, _FIRST_BY.format(total, ""))
    assert (made.unserved, form in made.text) == ((), True)
    questions = [
        one for one in read(_FIRST_BY.format(total, ""), shop.facts()) if isinstance(one, StatementQuestion)
    ]
    assert bool(wanted_of(questions, shop.facts(), nulls=True).totals) == (form != "|iso")
    left = proposed(shop, _FIRST_BY.format(total, "LEFT"))
    assert [one.reason for one in left.unserved] == ["limit"]


def test_parent_read_with_its_children_has_its_own_partition(shop: SqlSource) -> None:
    made = proposed(
        shop, f"-- 9/s\nSELECT total FROM orders WHERE customer_id = ?;\n-- 1/s\n{EAGER.format('o.id')}"
    )
    assert made.unserved == ()
    assert [(access.key, access.index) for access in made.design.accesses] == [
        ("CUSTOMER#{customer_id}", 1),
        ("ORDER#{order_id}", 0),
    ]


def test_children_bring_their_own_parents_with_them(shop: SqlSource) -> None:
    made = proposed(
        shop,
        "SELECT o.status, l.line_no, p.name FROM orders o LEFT JOIN lines l ON l.order_id = o.id"
        " LEFT JOIN products p ON p.id = l.product_id WHERE o.id = ? ORDER BY l.line_no",
    )
    (pattern,) = examine_mapping(made.text, "shop.yaml").mapping.patterns.values()
    assert {part.name: part.attributes for part in pattern.parts} == {
        "order": ("id", "status"),
        "lines": ("line_no", "products_name"),
    }
    assert pattern.statements["lines"] == (
        'SELECT "lines"."line_no", "products"."name" FROM "lines" LEFT JOIN "products" AS "products"'
        ' ON "products"."id" = "lines"."product_id" WHERE "lines"."order_id" = :order_id ORDER BY "lines"."line_no"'
    )


@pytest.mark.parametrize(
    "sql",
    [
        EAGER.format("o.status"),
        f"{EAGER.format('o.id')} ORDER BY l.line_no LIMIT 5",
        "SELECT c.email, o.id FROM customers c LEFT JOIN orders o ON o.customer_id = c.id WHERE c.id = ?"
        ";\n-- 9/s\nSELECT total FROM orders WHERE id = ?",
        "SELECT r.name, c.email FROM regions r LEFT JOIN customers c ON c.region_id = r.id WHERE r.id = ?",
        "SELECT c.email, o.id, l.line_no FROM customers c LEFT JOIN orders o ON o.customer_id = c.id"
        " LEFT JOIN lines l ON l.order_id = o.id WHERE c.id = ?",
    ],
)
def test_another_left_join_of_children_is_not_served(sql: str, shop: SqlSource) -> None:
    unread = [one for one in read(sql, shop.facts()) if isinstance(one, Unserved)]
    assert [one.reason for one in unread or proposed(shop, sql).unserved] == ["join"]


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(f"{WITH_PARENT} ORDER BY l.line_no LIMIT 3", id="the first of them"),
        pytest.param(f"{WITH_PARENT} ORDER BY o.total, l.line_no", id="in the order of the parent's"),
        pytest.param(
            "SELECT p.name, l.quantity FROM lines l JOIN products p ON p.id = l.product_id WHERE l.order_id = ?",
            id="another parent",
        ),
    ],
)
def test_other_joins_copy_the_parents_columns(sql: str, shop: SqlSource) -> None:
    access = only(proposed(shop, sql))
    assert (access.parts, access.index) == ((), 0)


def test_partition_with_many_other_children_is_not_read_whole(tmp_path: Path) -> None:
    beside = """CREATE TABLE notes_of (order_id INTEGER NOT NULL REFERENCES orders (id), n INTEGER NOT NULL, PRIMARY KEY (order_id, n));
        INSERT INTO notes_of WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i %% %d + 42, i FROM n;"""
    asked = f"{WITH_PARENT};\nSELECT n FROM notes_of WHERE order_id = ?"
    for name, rows, parents, is_one in (
        ("few", 2_000, 200, True),
        ("many", 2_000, 2, False),
        ("small", 20, 2, False),
    ):
        (tmp_path / name).mkdir()
        with source_with(tmp_path / name, SHOP + beside % (rows, parents)) as source:
            made = proposed(source, asked)
        assert any(access.parts for access in made.design.accesses) is is_one, name


FORUM = """
CREATE TABLE thread (id INTEGER PRIMARY KEY, title TEXT NOT NULL);
CREATE TABLE reply (id INTEGER PRIMARY KEY, thread_id INTEGER NOT NULL REFERENCES thread (id), at TIMESTAMP NOT NULL,
  seen TIMESTAMP, text TEXT NOT NULL);
INSERT INTO thread VALUES (1, 'a'), (2, 'b');
INSERT INTO reply VALUES (1, 1, '2026-01-02', NULL, 'x'), (2, 1, '2026-01-01', '2026-02-01', 'y'), (3, 2, '2026-01-01', NULL, 'z');
"""
REPLIES = "SELECT id, text FROM reply WHERE thread_id = ? ORDER BY at DESC, id DESC;\n"
SEEN = "SELECT id FROM reply WHERE thread_id = ? AND seen IS NOT NULL ORDER BY seen, id;\n"
ADDED = "INSERT INTO reply (id, thread_id, at, text) VALUES (?, ?, ?, ?);\n"


@pytest.mark.parametrize(
    ("sql", "sort"),
    [
        pytest.param(REPLIES + ADDED, "REPLY#{at|iso}#{id:010}", id="in its order"),
        pytest.param(
            REPLIES + ADDED + "UPDATE reply SET text = ? WHERE id = ?",
            "REPLY#{at|iso}#{id:010}",
            id="another column changes",
        ),
        pytest.param(REPLIES + ADDED + "UPDATE reply SET at = ? WHERE id = ?", None, id="the order changes"),
        pytest.param(REPLIES, None, id="no write is known"),
        pytest.param(SEEN + ADDED, None, id="may be NULL"),
        pytest.param(
            f"{REPLIES}{ADDED}-- 9/s\nSELECT text FROM reply WHERE id = ?", None, id="asked more by its key"
        ),
    ],
)
def test_children_are_sorted_by_columns_that_never_change(sql: str, sort: str | None, tmp_path: Path) -> None:
    with source_with(tmp_path, FORUM) as source:
        made = proposed(source, sql)
        assert [fault for fault in all_faults(made.text, source.facts()) if not fault.warning] == []
    (entity,) = (
        one
        for one in examine_mapping(made.text, "shop.yaml").mapping.entities.values()
        if one.table == "reply"
    )
    key = [template.source for template in entity.items[0].key]
    assert (key == ["THREAD#{thread_id}", sort]) is (sort is not None)
    assert made.design.indexes == (0 if sort else 1)


def test_row_key_index_is_queried_for_its_single_sort_key(shop: SqlSource) -> None:
    """Nothing stands behind the word there, so that no key begins with the word and a separator."""
    made = proposed(
        shop,
        "-- 9/s\nSELECT total FROM orders WHERE customer_id = ?;\nSELECT total FROM orders WHERE id = ?;",
    )
    assert 'GSI1: ["ORDER#{id}", ORDER]' in made.text
    assert made.design.accesses[1].condition == ("equal", ("ORDER",))


def test_row_stays_alone_if_parent_partition_answers_nothing(shop: SqlSource) -> None:
    """The order is another one than that of the keys there, so that an index is needed anyway."""
    made = proposed(shop, "SELECT total FROM orders WHERE customer_id = ? ORDER BY placed_at, id LIMIT 5")
    assert made.design.homes["orders"].parent is None


def test_query_without_order_shares_the_entry_of_an_ordered_one(shop: SqlSource) -> None:
    made = proposed(
        shop,
        "SELECT id FROM orders WHERE status = ?; SELECT id FROM orders WHERE status = ? ORDER BY placed_at, id;"
        "SELECT id FROM orders WHERE status = ? AND placed_at > ?",
    )
    assert made.design.indexes == 1


@pytest.mark.parametrize(
    ("condition", "low", "high"),
    [
        ("placed_at >= :a", "ORDER#{a|iso}", "ORDER#~"),
        ("placed_at > :a", "ORDER#{a|iso}#~", "ORDER#~"),
        ("placed_at < :a", "ORDER#", "ORDER#{a|iso}"),
        ("placed_at <= :a", "ORDER#", "ORDER#{a|iso}#~"),
        ("placed_at BETWEEN :a AND :b", "ORDER#{a|iso}", "ORDER#{b|iso}#~"),
    ],
)
def test_a_range_holds_what_sql_holds(shop: SqlSource, condition: str, low: str, high: str) -> None:
    access = only(proposed(shop, f"SELECT id FROM orders WHERE status = :s AND {condition}"))
    assert access.condition == ("between", (low, high))


def test_a_range_before_a_text_ends_above_every_text(tmp_path: Path) -> None:
    table = "CREATE TABLE page (site TEXT, uid INTEGER NOT NULL, box TEXT, PRIMARY KEY (site, box))"
    with source_with(tmp_path, f"{table}; INSERT INTO page VALUES ('a', 7, '日本');") as source:
        made = proposed(source, "SELECT uid, box FROM page WHERE site = :s AND uid > :a ORDER BY uid")
        assert all_faults(made.text, source.facts()) == ()
    assert only(made).condition == ("between", ("PAGE#{a:010}$", "PAGE#~"))


def test_a_range_of_the_key_itself_leaves_the_end_out(shop: SqlSource) -> None:
    made = proposed(shop, "SELECT id FROM orders WHERE status = :s AND id < :a")
    assert only(made).condition == ("between", ("ORDER#", "ORDER#{a:010}"))
    assert '"ORDER#{id:010}#"' in made.text


@pytest.mark.parametrize(
    ("order", "kept"),
    [
        ("placed_at, id", True),
        ("placed_at DESC, id ASC", True),
        ("total, id", True),
        ("placed_at", False),
        ("status, id", True),
        ("shipped_at, id", False),
    ],
)
def test_order_is_exact_if_the_key_keeps_it(shop: SqlSource, order: str, *, kept: bool) -> None:
    access = only(proposed(shop, f"SELECT id FROM orders WHERE status = ? ORDER BY {order}"))
    assert (access.order == "exact") == kept


def test_leading_key_column_comes_first_in_a_partition_key(tmp_path: Path) -> None:
    with source_with(tmp_path, TENANTS) as source:
        made = proposed(
            source,
            "SELECT project_no FROM projects WHERE parent_no = ? AND tenant = ?;"
            "SELECT id FROM tasks WHERE state = ? AND tenant = ?",
        )
    assert [access.key for access in made.design.accesses] == [
        "TASK_BY_TENANT_STATE#{tenant|escape}#{state|escape}",
        "PROJECT_BY_TENANT_PARENT_NO#{tenant|escape}#{parent_no}",
    ]


def test_contradictory_keys_give_the_table_to_the_most_used(
    shop: SqlSource,
) -> None:
    by_customer = "SELECT id FROM orders WHERE customer_id = ?"
    latest = "SELECT id FROM orders WHERE customer_id = ? ORDER BY placed_at DESC, id DESC LIMIT 5"
    asked = f"-- keyed 9/s\n{by_customer};\n-- latest 2/s\n{latest}"
    made = proposed(shop, asked)
    assert {access.name: access.index for access in made.design.accesses} == {"keyed": 0, "latest": 1}
    made = proposed(shop, asked, max_indexes=0)
    assert [access.name for access in made.design.accesses] == ["keyed"]
    assert [(other.reason, other.statement.name) for other in made.unserved] == [("index", "latest")]


def test_numbers_that_may_be_negative_are_not_sort_keys(tmp_path: Path) -> None:
    with source_with(tmp_path, SHOP + "UPDATE orders SET total = -1 WHERE id = 42;") as source:
        made = proposed(source, "SELECT id FROM orders WHERE status = ? ORDER BY total, id LIMIT 2")
    assert [other.reason for other in made.unserved] == ["limit"]


def test_without_statements_the_keys_are_the_questions(shop: SqlSource) -> None:
    facts = shop.facts()
    read_statements = [
        question_of(each, facts) for each in default_statements(facts, lambda name: f'"{name}"')
    ]
    questions = [made for made in read_statements if isinstance(made, StatementQuestion)]
    assert len(questions) == len(read_statements)
    made = proposed(shop, questions)
    assert made.unserved == ()
    assert [access.name for access in made.design.accesses if access.question.table == "orders"] == [
        "list_orders_by_customer_id",
        "get_order",
    ]


def test_what_is_to_decide_is_listed(shop: SqlSource) -> None:
    decisions = "\n".join(proposed(shop, "SELECT * FROM customers WHERE id = ?").decisions)
    assert pins.said(decisions, "notes")
    assert pins.said(decisions, "nobody")
    assert pins.said(decisions, "products")


HARD = """
CREATE TABLE "Order" ("Order ID" INTEGER NOT NULL PRIMARY KEY, "größe|x" VARCHAR(9) NOT NULL, "PK" TEXT, "sk" TEXT,
  "group" VARCHAR(5) NOT NULL, "it's" INTEGER NOT NULL);
CREATE TABLE "order line" ("Order ID" INTEGER NOT NULL REFERENCES "Order" ("Order ID"), "n:o" INTEGER NOT NULL,
  "entity_type" TEXT, PRIMARY KEY ("Order ID", "n:o"));
CREATE TABLE tenant (t VARCHAR(10) NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (t, id));
CREATE TABLE doc (t VARCHAR(10) NOT NULL, id INTEGER NOT NULL, owner INTEGER NOT NULL, code VARCHAR(9) NOT NULL,
  parent INTEGER, PRIMARY KEY (t, id), UNIQUE (t, code), FOREIGN KEY (t, owner) REFERENCES tenant (t, id),
  FOREIGN KEY (t, parent) REFERENCES doc (t, id));
CREATE TABLE keyless (a INTEGER, b TEXT, "Expires_At" TEXT);
CREATE TABLE coded (code BLOB NOT NULL PRIMARY KEY, amount REAL);
CREATE VIEW seen AS SELECT a FROM keyless;
"""


def test_odd_names_and_composite_keys_cause_no_fault(tmp_path: Path) -> None:
    with source_with(tmp_path, HARD) as source:
        facts = source.facts()
        keys = [question_of(each, facts) for each in default_statements(facts, lambda name: f'"{name}"')]
        more = read(
            """SELECT "größe|x" FROM "Order" WHERE "größe|x" = ? AND "it's" > ?; SELECT "group" FROM "Order" WHERE "PK" = ?;
            SELECT l."n:o", o."größe|x" FROM "order line" l JOIN "Order" o ON o."Order ID" = l."Order ID" WHERE o."Order ID" = ?;
            SELECT * FROM doc WHERE t = ? AND code = ?; SELECT id FROM doc WHERE t = ? AND owner = ? ORDER BY id;
            SELECT a FROM keyless WHERE a = ?; SELECT amount FROM coded WHERE amount > ?""",
            facts,
        )
        made = proposed(source, [each for each in (*keys, *more) if isinstance(each, StatementQuestion)])
        faults = all_faults(made.text, facts)
    assert [fault for fault in faults if not fault.warning] == []
    assert {other.reason for other in made.unserved} <= {"key", "fault"}
    assert len(made.design.accesses) >= 9
    # What live change needs is named, and by no name of a column.
    assert examine_mapping(made.text, "shop.yaml").mapping.table.ttl == "_expires_at"
    assert examine_mapping(made.text, "shop.yaml").mapping.entities.keys() >= {
        "order",
        "order_line",
        "doc",
        "tenant",
    }


HOSTS = """
CREATE TABLE host (id BLOB NOT NULL PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE service (host_id BLOB NOT NULL REFERENCES host (id), id BLOB NOT NULL, zone BLOB NOT NULL,
  PRIMARY KEY (host_id, id));
INSERT INTO host VALUES (x'00ff', 'a');
INSERT INTO service VALUES (x'00ff', x'01', x'02');
"""


def test_keys_of_bytes_are_served_by_their_hash(tmp_path: Path) -> None:
    asked = (
        "SELECT name FROM host WHERE id = ?; SELECT id, zone FROM service WHERE host_id = ?;"
        "SELECT id FROM service WHERE zone = ?"
    )
    with source_with(tmp_path, HOSTS) as source:
        made = proposed(source, asked)
        assert [fault for fault in all_faults(made.text, source.facts()) if not fault.warning] == []
    assert made.unserved == ()
    assert '"HOST#{id|hash}"' in made.text
    assert "{id: binary}" in made.text


@pytest.mark.slow
def test_two_hundred_tables_are_designed(tmp_path: Path) -> None:
    script = "".join(
        f"CREATE TABLE t{n} (id INTEGER NOT NULL PRIMARY KEY, p INTEGER {'REFERENCES t' + str(n - 1) + ' (id)' if n else ''},"
        f" name TEXT, at TIMESTAMP NOT NULL);\n"
        for n in range(200)
    )
    with source_with(tmp_path, script) as source:
        facts = source.facts()
        made = proposed(
            source,
            "".join(
                f"SELECT x.id, y.name FROM t{n} x JOIN t{n - 1} y ON y.id = x.p WHERE x.p = ? ORDER BY x.at, x.id;"
                for n in range(1, 200)
            ),
        )
    assert len(made.design.accesses) == 199
    assert made.design.indexes == 1
    assert len(examine_mapping(made.text, "shop.yaml").mapping.entities) == len(facts.tables) == 200


def test_a_join_of_an_order_that_no_key_keeps_is_left_out(shop: SqlSource) -> None:
    by_name = "SELECT l.line_no FROM lines l JOIN products p ON p.id = l.product_id WHERE l.order_id = ? ORDER BY p.name"
    made = proposed(shop, by_name)
    assert only(made).order == "any"
    assert "join:" not in made.text
    assert all_faults(made.text, shop.facts()) == ()


def test_joins_between_a_row_and_a_parent_that_is_read_stay(shop: SqlSource) -> None:
    sql = (
        "SELECT o.id, r.name FROM orders o JOIN customers c ON c.id = o.customer_id"
        " LEFT JOIN regions r ON r.id = c.region_id WHERE o.id = ? ORDER BY c.name"
    )
    made = proposed(shop, sql)
    assert "join:" in made.text
    assert "customers: {" in made.text
    assert all_faults(made.text, shop.facts()) == ()
