"""Marks left by hand on connections whose drivers give rows in another form: dicts, named tuples, single values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import rows as forms
from pymysql.cursors import DictCursor

from tests import support_mysql
from tests.service.shop import Shop
from tests.support_capture import connect

FORMS: list[Callable[..., Any]] = [
    forms.dict_row,
    forms.namedtuple_row,
    forms.scalar_row,
    forms.class_row(dict),
    forms.tuple_row,
]


def _moves(shop: Shop, connection: Any) -> None:
    """A row gets another key: what it was and what it is stand in a mark, and so does what is said of a row."""
    cursor = connection.cursor()
    cursor.execute("INSERT INTO users (id, name) VALUES (1, 'Ada'), (2, 'Bob')")
    cursor.execute("INSERT INTO orders (id, user_id, total) VALUES (7, 1, 5)")
    connection.commit()
    with shop.migration() as migration:
        migration.begin_marking()
        with migration.changing(connection, "orders", 7):
            cursor.execute("UPDATE orders SET user_id = 2 WHERE id = 7")
        migration.mark_changed(connection, "users", None, {"id": 1, "email": None, "handle": "ada"})
        connection.commit()
    moved, said = shop.live.marks.take(10, 0)
    assert moved.before is not None
    assert moved.after is not None
    assert (str(moved.before["user_id"]), str(moved.after["user_id"])) == ("1", "2")
    assert said.after is not None
    assert said.after["handle"] == "ada"


@pytest.mark.engines("postgresql")
@pytest.mark.parametrize("form", FORMS, ids=lambda one: getattr(one, "__name__", "row"))
def test_psycopgs_rows_may_have_any_form(shop: Shop, url: str, form: Any) -> None:
    with psycopg.connect(url, row_factory=form) as connection:
        _moves(shop, connection)


@pytest.mark.engines("mariadb")
def test_pymysqls_rows_may_be_dicts(shop: Shop, url: str) -> None:
    connection = support_mysql.connect(url, cursorclass=DictCursor)
    connection.autocommit(False)
    _moves(shop, connection)
    connection.close()


@pytest.mark.engines("sqlite")
def test_sqlites_rows_may_be_dicts(shop: Shop, url: str) -> None:
    connection = connect("sqlite", url)
    connection.isolation_level = ""
    connection.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    _moves(shop, connection)
    connection.close()
