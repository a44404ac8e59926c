from __future__ import annotations

import pytest

from migrator.source.adapter.statement import words_of
from migrator.source.adapter.tables import CapturedTable, CapturedTables, above, beneath
from migrator.source.engines.catalogue import Place
from tests import pins

A, B, C, D = (Place("public", name) for name in "abcd")


def test_a_line_of_links_is_followed_up_and_down_to_its_end() -> None:
    pairs = [(A, B), (B, C), (D, C)]
    assert above(pairs, [C]) == {A, B, C, D}
    assert beneath(pairs, [A]) == {A, B, C}
    assert beneath(pairs, [C]) == {C}


def test_a_circle_of_links_comes_to_an_end() -> None:
    assert above([(A, B), (B, A), (C, C)], [A, C]) == {A, B, C}


def tables(dialect: str, *places: tuple[str | None, str], home: str | None = "public", folds: bool = False) -> CapturedTables:  # fmt: skip
    made = {Place(*place): CapturedTable(Place(*place), ("id",), ("id",)) for place in places}
    return CapturedTables(dialect, home, made, frozenset({"seen_orders"}), folds)


ORDERS = ("public", "orders")


@pytest.mark.parametrize(
    ("text", "mentioned"),
    [
        ("DELETE FROM ORDERS", True),
        ("DELETE FROM reorders_old", True),
        ("DELETE FROM order", False),
        ('DELETE FROM "we""ird"', True),
        ("DELETE FROM `back``tick`", True),
        ("DELETE FROM per%%cent", True),
        ("DELETE FROM per%cent", True),
        ("DELETE FROM Seen_Orders", True),
    ],
)
def test_a_table_is_mentioned_however_its_name_is_spelled(text: str, mentioned: bool) -> None:
    names = ("orders", 'we"ird', "back`tick", "per%cent")
    assert tables("postgresql", *(("public", name) for name in names)).mentioned(text) is mentioned


def test_what_cannot_be_read_names_whole_words() -> None:
    found = tables("postgresql", ORDERS, ("public", "Order Lines"))
    assert found.named(frozenset({"reorders"})) == []
    assert found.named(frozenset({"delete", "orders"})) == ["public.orders"]
    assert found.named(frozenset({"order", "lines"})) == ["public.Order Lines"]
    assert found.named(frozenset({"seen_orders"})) == [pins.text()]


def test_names_differing_in_case_are_two_tables_per_server() -> None:
    for dialect in ("postgresql", "mysql"):
        both = tables(dialect, ORDERS, ("public", "Orders"))
        for name in ("orders", "Orders"):
            found = both.resolve(None, name)
            assert found is not None
            assert found.place.name == name
        assert tables(dialect, ORDERS).resolve(None, "Orders") is None
    for one in (
        tables("mysql", ORDERS, folds=True),
        tables("sqlite", (None, "orders"), home=None, folds=True),
    ):
        assert one.resolve(None, "ORDERS") is not None


def test_a_table_of_another_schema_is_another_one() -> None:
    one = tables("postgresql", ORDERS)
    assert one.resolve("public", "orders") is not None
    assert one.resolve("other", "orders") is None
    assert one.resolve(None, "orders", "other") is None
    sqlite = tables("sqlite", (None, "orders"), home=None)
    assert sqlite.resolve("main", "orders") is not None
    assert sqlite.resolve("temp", "orders") is None


def test_of_two_schemas_the_sessions_one_is_meant() -> None:
    both = tables("postgresql", ORDERS, ("other", "orders"))
    assert both.is_shared("orders")
    for schema in ("public", "other"):
        found = both.resolve(None, "orders", schema)
        assert found is not None
        assert found.place.schema == schema


def test_a_name_that_a_search_path_leads_to_is_found() -> None:
    found = tables("postgresql", ("other", "lines"))
    assert found.resolve(None, "lines") is not None
    assert not found.is_shared("lines")


def test_only_a_cascading_truncate_names_a_table_emptying_others() -> None:
    one = Place("public", "orders")
    watched = {one: CapturedTable(one, ("id",), ("id",))}
    found = CapturedTables("postgresql", "public", watched, emptied=frozenset({"users"}))
    assert found.mentioned("TRUNCATE Users CASCADE")
    assert not found.mentioned("DELETE FROM users")
    assert found.named(words_of("TRUNCATE users")) == []
    assert found.named(words_of("TRUNCATE users CASCADE")) == ["what TRUNCATE … CASCADE of users empties"]
