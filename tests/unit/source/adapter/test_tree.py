from __future__ import annotations

from typing import Any

import pytest

from migrator.source.adapter.statement import StatementStyle, StatementValue, StatementWrite, written
from tests import pins

SPOKEN = {
    "postgresql": StatementStyle("postgresql", True),
    "mysql": StatementStyle("mysql", True),
    "ansi": StatementStyle("mysql", True, True),
    "sqlite": StatementStyle("sqlite"),
}


def write(dialect: str, text: str) -> StatementWrite:
    found = written(text, SPOKEN[dialect])
    assert isinstance(found, StatementWrite), found
    return found


def keys(dialect: str, where: str) -> dict[str, list[Any]]:
    """By column, what WHERE ties it to: places in braces, values as they are."""
    found = write(dialect, f"DELETE FROM orders WHERE {where}").wanted
    return {
        name: [{one.place} if one.place is not None else one.value for one in given]
        for name, given in found.items()
    }


@pytest.mark.parametrize(
    ("dialect", "where", "wanted"),
    [
        ("postgresql", "orders.id = %(orders_id)s", {"id": [{"orders_id"}]}),
        ("postgresql", "id = %s AND version = %s", {"id": [{0}], "version": [{1}]}),
        ("postgresql", "%s = id", {"id": [{0}]}),
        ("postgresql", "id = %(i)s::INTEGER", {"id": [{"i"}]}),
        ("postgresql", "CAST(%s AS uuid) = id", {"id": [{0}]}),
        ("postgresql", "((id = %s) AND (b = 'x'))", {"id": [{0}], "b": ["x"]}),
        ("postgresql", "id IN (%(a)s, %(b)s, -3)", {"id": [{"a"}, {"b"}, -3]}),
        ("postgresql", '"Id" = 5 AND ID = 6', {"Id": [5], "id": [6]}),
        ("postgresql", "\"100%%(x)\" = 'say ''?'' 100%% {0}'", {"100%(x)": ["say '?' 100% {0}"]}),
        ("postgresql", "id = $2", {}),
        ("postgresql", "id = %s OR id = %s", {}),
        ("postgresql", "NOT id = %s", {}),
        ("postgresql", "NOT (id = %s AND b = 1)", {}),
        ("postgresql", "id <> %s AND id > 3", {}),
        ("postgresql", "id NOT IN (%s)", {}),
        ("postgresql", "id IN (SELECT id FROM x)", {}),
        ("postgresql", "id IN (%s, lower(%s))", {}),
        ("postgresql", "id = ANY(ARRAY[1, 2])", {}),
        ("postgresql", "id = ANY(SELECT 1)", {}),
        ("postgresql", "id <> ALL(%s)", {}),
        ("postgresql", "id > ANY(%s)", {}),
        ("postgresql", "id::text = %s", {}),
        ("postgresql", "lower(id) = %s", {}),
        ("postgresql", "other.id = %s", {}),
        ("postgresql", "id = other_column", {}),
        ("postgresql", "id = 'a%s'", {}),
        ("mysql", "`id` = %s # %%", {"id": [{0}]}),
        ("mysql", "`or``d` = 'a\\'b'", {"or`d": ["a'b"]}),
        ("mysql", "ID = \"x\"", {"id": ["x"]}),
        ("mysql", "note = '%s' AND id = %s", {"id": [{1}]}),
        ("ansi", "\"id\" = %s", {"id": [{0}]}),
        ("sqlite", "[id] = ?", {"id": [{0}]}),
        ("sqlite", "id == ?3", {"id": [{2}]}),
        ("sqlite", "id = :key AND a = @b AND c = $d", {"id": [{"key"}], "a": [{"b"}], "c": [{"d"}]}),
        ("sqlite", "a = '?' AND id = ? -- ?", {"a": ["?"], "id": [{0}]}),
        ("sqlite", "id IS ?", {}),
        ("sqlite", "id = x'ff'", {}),
        ("sqlite", "rowid = ?", {"rowid": [{0}]}),
    ],
)  # fmt: skip
def test_where_ties_columns_to_values(dialect: str, where: str, wanted: dict[str, list[Any]]) -> None:
    assert keys(dialect, where) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("UPDATE orders SET a = x.a FROM x WHERE x.id = %s AND n = 3", set()),
        ("UPDATE orders SET a = x.a FROM x WHERE orders.id = %s", {"id"}),
        ("UPDATE orders AS o SET a = x.a FROM x WHERE o.id = %s", {"id"}),
        ("DELETE FROM orders AS o USING x WHERE x.id = %s AND o.n = 3", {"n"}),
    ],
)
def test_a_column_of_another_table_is_no_key(text: str, wanted: set[str]) -> None:
    found = write("postgresql", text)
    assert set(found.wanted) == wanted
    assert found.opaque == pins.text()


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("postgresql", "UPDATE orders SET (a, b) = (1, 2) WHERE n = 1"),
        ("postgresql", "UPDATE orders SET tags[1] = 'x'"),
        ("postgresql", "UPDATE orders SET a = (SELECT max(x) FROM y)"),
        ("postgresql", "DELETE FROM orders WHERE EXISTS (SELECT 1 FROM x)"),
        ("mysql", "DELETE FROM orders ORDER BY n LIMIT 1"),
        ("mysql", "UPDATE orders SET a = 1 WHERE n = 1 LIMIT 1"),
        ("postgresql", "UPDATE orders SET a = DEFAULT WHERE n LIKE 'a%%'"),
    ],
)
def test_what_stands_against_reading_by_where(dialect: str, text: str) -> None:
    assert write(dialect, text).opaque == pins.text()


@pytest.mark.parametrize(
    ("dialect", "text", "place"),
    [
        ("postgresql", 'DELETE FROM "Shop"."Orders"', ("Shop", "Orders")),
        ("postgresql", "DELETE FROM Shop.ORDERS", ("shop", "orders")),
        ("postgresql", 'DELETE FROM "we""ird"', (None, 'we"ird')),
        ("postgresql", "DELETE FROM ONLY orders", (None, "orders")),
        ("mysql", "DELETE FROM `Shop`.Orders", ("Shop", "Orders")),
        ("ansi", 'DELETE FROM "Orders"', (None, "Orders")),
        ("sqlite", "DELETE FROM main.[Orders]", ("main", "orders")),
        ("sqlite", "DELETE FROM 'orders' INDEXED BY i", (None, "orders")),
    ],
)
def test_a_name_is_what_the_database_makes_of_it(
    dialect: str, text: str, place: tuple[str | None, str]
) -> None:
    found = write(dialect, text)
    assert (found.schema, found.table) == place


@pytest.mark.parametrize(
    ("dialect", "text", "columns", "rows"),
    [
        (
            "postgresql",
            "INSERT INTO orders (id, name) VALUES (%(id)s::INTEGER, lower(%(name)s))",
            ("id", "name"),
            [("id", None)],
        ),
        (
            "postgresql",
            "INSERT INTO orders (name) SELECT p0::VARCHAR FROM (VALUES (%(n__0)s, 0), (%(n__1)s, 1))"
            " AS imp_sen(p0, sen_counter) ORDER BY sen_counter RETURNING orders.id",
            ("name",),
            [("n__0",), ("n__1",)],
        ),
        ("postgresql", "INSERT INTO orders DEFAULT VALUES", None, [()]),
        ("postgresql", "INSERT INTO orders (id) VALUES (DEFAULT)", ("id",), [(None,)]),
        ("mysql", "INSERT INTO orders SET id = %s, name = %s", ("id", "name"), [(0, 1)]),
        ("mysql", "INSERT INTO orders () VALUES ()", (), [()]),
        ("sqlite", "INSERT INTO orders VALUES (?2, ?1), (?, ?)", None, [(1, 0), (2, 3)]),
    ],
)
def test_an_insert_has_its_rows(
    dialect: str, text: str, columns: tuple[str, ...] | None, rows: list[tuple[Any, ...]]
) -> None:
    found = write(dialect, text)
    assert found.columns == columns
    assert [tuple(one and one.place for one in row) for row in found.rows] == rows


@pytest.mark.parametrize(
    ("text", "returned"),
    [
        ("RETURNING id, orders.name AS n", ("id", "name")),
        ("RETURNING *", ("*",)),
        ("RETURNING orders.*", ("*",)),
        ("RETURNING lower(id), id", ("", "id")),
        ("", ()),
    ],
)
def test_an_insert_returns_values(text: str, returned: tuple[str, ...]) -> None:
    assert write("postgresql", f"INSERT INTO orders (a) VALUES (1) {text}").returned == returned


@pytest.mark.parametrize(
    ("dialect", "action", "kept", "moved"),
    [
        ("postgresql", "ON CONFLICT (id) DO UPDATE SET n = excluded.n, id = excluded.id", {"n", "id"}, set()),
        ("postgresql", "ON CONFLICT (id) DO UPDATE SET id = 9, n = orders.m", set(), {"id", "n"}),
        ("postgresql", "ON CONFLICT (id) DO UPDATE SET (id, n) = (1, 2)", set(), {"id", "n"}),
        ("mysql", "ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), n = VALUES(n)", {"id", "n"}, set()),
        ("mysql", "ON DUPLICATE KEY UPDATE id = id + 1", set(), {"id"}),
        ("sqlite", "ON CONFLICT DO NOTHING", set(), set()),
    ],
)
def test_an_upsert_lists_what_it_sets(dialect: str, action: str, kept: set[str], moved: set[str]) -> None:
    found = write(dialect, f"INSERT INTO orders (id, n) VALUES (1, 2) {action}")
    assert (set(found.kept), found.assigned.keys() - found.kept) == (kept, moved)


def test_an_update_lists_what_it_sets() -> None:
    found = write("postgresql", "UPDATE orders SET id = %(new)s::INTEGER, n = n + 1 WHERE id = %(old)s")
    assert found.assigned == {"id": StatementValue("new"), "n": None}
