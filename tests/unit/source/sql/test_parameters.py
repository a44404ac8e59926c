from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import URL

from migrator.model.errors import SettingsError
from migrator.source.sql.gate import CheckedStatement, bound_statement, has_comment, masked, parameter_names
from tests import pins

DIALECTS = ["sqlite", "postgresql", "mysql"]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT :a, :from, ':b', \":c\", :a", {"a", "from"}),
        ("SELECT 'it''s :a' /* :b ' */ -- :c '\n, :d", {"d"}),
        ("SELECT x::int, a[1:n], '12:30', :d::text", {"d"}),
        ("SELECT :1, x :y, :_z", {"y", "_z"}),
        ("SELECT `:a`, :b", {"b"}),
    ],
)
def test_a_colon_is_not_always_a_parameter(sql: str, names: set[str]) -> None:
    assert parameter_names(sql, "sqlite") == names


@pytest.mark.parametrize(
    ("dialect", "sql", "names"),
    [
        ("sqlite", "SELECT [a:b :c] WHERE x = :d", {"d"}),
        ("postgresql", "SELECT a[:c] WHERE x = :d", {"c", "d"}),
        ("postgresql", r"SELECT E'\':a', '\', :b, $$ :c $$, $x$ $$ :d $x$, :e", {"b", "e"}),
        ("postgresql", "SELECT a #> :b, c -- :d", {"b"}),
        ("mysql", r"""SELECT '\':a', ":b", `:b`, :c # :d""", {"c"}),
        ("mysql", "SELECT 1 --:a\n-- :b", {"a"}),
        ("mysql", "SELECT @x := 1, :a", {"a"}),
    ],
)  # fmt: skip
def test_each_dialect_has_its_own_strings_and_comments(dialect: str, sql: str, names: set[str]) -> None:
    assert parameter_names(sql, dialect) == names


def test_masking_moves_nothing() -> None:
    assert masked("SELECT :from, ':x' -- :y", "sqlite") == "SELECT :____, ':x' -- :y"
    assert has_comment("a /* b */", "sqlite")
    assert not has_comment("'--'", "sqlite")


def compiled(sql: str, dialect: str, **params: Any) -> str:
    statement, _ = bound_statement(CheckedStatement(sql, dialect), params)
    made: Any = URL.create(dialect).get_dialect()
    return str(statement.compile(dialect=made(paramstyle="named")))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ':a', '::', ':', \"b:c\" /* :d */ -- :e",
        "SELECT a::int, b[1:2], '12:30:00', 'x\\:y' FROM t",
        "SELECT '100%' LIKE '%:x%'",
    ],
)
def test_all_but_the_parameters_reaches_the_database_as_it_is(sql: str, dialect: str) -> None:
    assert compiled(sql, dialect) == sql


@pytest.mark.parametrize("written", ["IN :ids", "IN (:ids)", "in ( :ids )", "IN(:ids)", "IN\n:ids"])
@pytest.mark.parametrize(("ids", "found"), [([1, 3], [1, 3]), ((2,), [2]), ([], [])])
def test_a_list_after_in_is_its_values(written: str, ids: Any, found: list[int]) -> None:
    sql = (
        f"WITH t(id) AS (VALUES (1), (2), (3)) SELECT id FROM t WHERE id {written} AND id > :low ORDER BY id"
    )
    statement, bound = bound_statement(CheckedStatement(sql, "sqlite"), {"ids": ids, "low": 0})
    with sa.create_engine("sqlite://").connect() as connection:
        assert [row[0] for row in connection.execute(statement, bound)] == found


def test_a_list_after_not_in_must_not_be_empty() -> None:
    with pins.refused(SettingsError):
        bound_statement(CheckedStatement("SELECT 1 WHERE 1 NOT IN :ids", "sqlite"), {"ids": []})
    _, bound = bound_statement(CheckedStatement("SELECT 1 WHERE 1 NOT IN (:ids)", "sqlite"), {"ids": [2]})
    assert bound == {"ids_0": 2}


def test_a_list_elsewhere_is_the_drivers_to_bind() -> None:
    statement, bound = bound_statement(
        CheckedStatement("SELECT 1 = ANY(:ids)", "postgresql"), {"ids": [1, 2]}
    )
    assert (statement.text, bound) == ("SELECT 1 = ANY(:ids)", {"ids": [1, 2]})


def test_parameters_that_the_statement_does_not_have_are_left_out() -> None:
    _, bound = bound_statement(CheckedStatement("SELECT :a", "sqlite"), {"a": None, "b": 2})
    assert bound == {"a": None}


MOMENT = datetime(2024, 5, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("value", "sqlite", "postgresql", "mysql"),
    [
        (True, True, True, True),
        (Decimal("5"), 5, Decimal("5"), Decimal("5")),
        (
            Decimal("9007199254740993"),
            9007199254740993,
            Decimal("9007199254740993"),
            Decimal("9007199254740993"),
        ),
        (Decimal("0.5"), 0.5, Decimal("0.5"), Decimal("0.5")),
        (date(2024, 5, 1), "2024-05-01", "2024-05-01", "2024-05-01"),
        (time(1, 2), "01:02:00", "01:02:00", "01:02:00"),
        (datetime(2024, 5, 1), *["2024-05-01 00:00:00"] * 3),
        (MOMENT, "2024-05-01 12:00:00+02:00", "2024-05-01 12:00:00+02:00", "2024-05-01 10:00:00"),
        (UUID(int=1), *["00000000-0000-0000-0000-000000000001"] * 3),
        (b"x", b"x", b"x", b"x"),
    ],
)
def test_values_are_bound_as_each_driver_takes_them(
    value: Any, sqlite: Any, postgresql: Any, mysql: Any
) -> None:
    for dialect, form in {"sqlite": sqlite, "postgresql": postgresql, "mysql": mysql}.items():
        _, bound = bound_statement(
            CheckedStatement("SELECT :a, :b WHERE 1 IN :c", dialect), {"a": value, "b": None, "c": [value]}
        )
        assert bound == {"a": form, "b": None, "c_0": form}


@pytest.mark.parametrize("given", [2**63, -(2**63) - 1, Decimal(10) ** 30, [1, 2**63]])
def test_sqlite_is_asked_for_no_integer_that_it_cannot_hold(given: Any) -> None:
    sql = "SELECT 1 WHERE 1 IN :n" if isinstance(given, list) else "SELECT 1 WHERE 1 = :n"
    with pins.refused(SettingsError):
        bound_statement(CheckedStatement(sql, "sqlite"), {"n": given})
    bound_statement(CheckedStatement(sql, "mysql"), {"n": given})
    bound_statement(CheckedStatement(sql, "sqlite"), {"n": 2**63 - 1})
