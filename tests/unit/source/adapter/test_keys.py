from __future__ import annotations

from typing import Any

import pytest

from migrator.runtime.errors import UnmarkedError
from migrator.runtime.values import replace
from migrator.source.adapter.images import StatementKeys
from migrator.source.adapter.statement import StatementStyle, StatementWrite, written
from migrator.source.adapter.tables import CapturedTable
from migrator.source.engines.catalogue import Place
from tests import pins

ORDERS = CapturedTable(Place(None, "orders"), ("id", "shop", "code", "n"), ("shop", "id"), (("code",),))
THING = CapturedTable(Place(None, "thing"), ("id", "n"), ("id",))


def said(text: str, *parameters: Any, table: CapturedTable = ORDERS) -> StatementKeys:
    found = written(text, StatementStyle("postgresql", True))
    assert isinstance(found, StatementWrite), found
    return StatementKeys(found, table, parameters or [()], "postgresql")


def test_keys_combine_the_where_values_of_each_parameter_set() -> None:
    one = said("DELETE FROM orders WHERE shop = %s AND id IN (%s, 3)", ("a", 1), ("b", 2))
    assert one.wanted() == [("a", 1), ("a", 3), ("b", 2), ("b", 3)]
    assert said("DELETE FROM orders WHERE id = %s", (1,)).wanted() is None


@pytest.mark.parametrize("cast", ["", "::int[]"])
def test_a_list_of_keys_is_as_many_keys(cast: str) -> None:
    text = f"DELETE FROM orders WHERE shop = %s AND id = ANY(%s{cast})"
    assert said(text, ("a", [1, 2]), ("b", [])).wanted() == [("a", 1), ("a", 2)]
    assert said(text, ("a", "{1,2}")).wanted() is None


def test_missing_parameter_is_refused_without_showing_values() -> None:
    for parameters in ((), {"x": 1}):
        with pins.refused(UnmarkedError):
            said("DELETE FROM orders WHERE shop = %s AND id = %s", parameters).wanted()


def test_insert_keys_are_none_if_only_the_database_knows_them() -> None:
    one = said("INSERT INTO orders (id, shop) VALUES (%s, 'a'), (nextval('s'), 'b')", (7,))
    assert one.inserted == [("a", 7), ("b", None)]
    assert not one.says_inserted
    assert said("INSERT INTO orders VALUES (1, 'a')").inserted == [("a", 1)]
    assert said("INSERT INTO orders VALUES (1, 'a')").says_inserted
    assert not said("INSERT INTO orders VALUES (1)").says_inserted


def test_hidden_columns_are_absent_from_insert_and_returning() -> None:
    hiding = replace(ORDERS, columns=("x", *ORDERS.columns), hidden=frozenset("x"), unfilled=frozenset("x"))
    one = said("INSERT INTO orders VALUES (1, 'a') RETURNING *", table=hiding)
    assert (one.inserted, one.returned) == ([("a", 1)], [1, 0])


@pytest.mark.parametrize(
    ("returning", "places"), [("*", [1, 0]), ("n, id, shop", [2, 1]), ("id", []), ("lower(shop), id", [])]
)
def test_a_key_is_found_in_what_is_given_back(returning: str, places: list[int]) -> None:
    assert said(f"INSERT INTO orders (n) VALUES (1) RETURNING {returning}").returned == places


def test_upsert_may_meet_rows_by_each_key_that_it_gives_whole() -> None:
    upsert = "INSERT INTO orders ({}) VALUES ({}) ON CONFLICT DO NOTHING"
    assert list(said(upsert.format("id, shop, code", "1, 'a', 'x'")).met()) == [
        (("shop", "id"), [("a", 1)]),
        (("code",), [("x",)]),
    ]
    assert list(said(upsert.format("id, code", "1, 'x'")).met()) == [(("code",), [("x",)])]
    with pins.refused(UnmarkedError, "whole"):
        list(said(upsert.format("id, n", "1, 2")).met())
    with pins.refused(UnmarkedError, "key"):
        list(said("INSERT INTO orders VALUES (1) ON CONFLICT DO NOTHING").met())


def test_update_moves_a_row_to_its_stated_key() -> None:
    one = said("UPDATE orders SET id = %s WHERE shop = %s AND id = %s", (9, "a", 1))
    assert one.moved([("a", 1)]) == {("a", 1): ("a", 9)}
    assert said("UPDATE orders SET n = 1 WHERE shop = 'a' AND id = 1").moved([("a", 1)]) == {}


def test_many_updates_move_rows_one_after_the_other() -> None:
    one = said("UPDATE thing SET id = %s WHERE id = %s", (9, 1), (1, 2), (2, 9), table=THING)
    assert one.moved([(1,), (2,)]) == {(1,): (2,), (2,): (1,)}


def test_a_key_that_is_computed_is_refused() -> None:
    with pins.refused(UnmarkedError):
        said("UPDATE thing SET id = id + 1 WHERE id = 1", table=THING).moved([(1,)])


def test_a_row_that_is_written_twice_is_counted_twice() -> None:
    text = "UPDATE thing SET n = %s WHERE id = %s"
    assert said(text, (1, 1), (2, 2), (3, 2), table=THING).repeats == 1
    assert said("DELETE FROM thing WHERE id IN (1, 1)", table=THING).repeats == 0


def test_arrays_and_buffers_can_be_keys() -> None:
    one = said("DELETE FROM orders WHERE shop = %s AND id = %s", ([1, [2]], memoryview(b"x")))
    (key,) = one.wanted() or []
    assert key == ([1, [2]], b"x")
    assert len({key, key}) == 1
