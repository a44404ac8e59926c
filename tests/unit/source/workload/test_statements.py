"""Statements of a file: their rates and names, and that alike ones are one, without any value of a row."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from migrator.mapping.model.questions import Statement
from migrator.runtime.errors import SettingsError
from migrator.source.workload.statements import file_text, is_ours, merged, statements_of

ENGINES = ("sqlite", "postgresql", "mysql")


def test_a_rate_and_a_name_stand_in_the_comment_before() -> None:
    text = """
-- recent_orders 12.5/s
SELECT 1 FROM orders WHERE id = ?;
-- name: by_mail
SELECT 2 FROM orders;
/* 3 / s */ SELECT 3 FROM orders; SELECT 4 FROM orders
"""
    made = {statement.sql[:8]: statement for statement in statements_of(text, "sqlite")}
    assert (made["SELECT 1"].calls, made["SELECT 1"].name) == (12.5, "recent_orders")
    assert (made["SELECT 2"].calls, made["SELECT 2"].name) == (1.0, "by_mail")
    assert made["SELECT 3"].calls == 3.0
    assert made["SELECT 4"].calls == 1.0


@pytest.mark.parametrize(
    ("comment", "per_s", "name"),
    [
        ("-- recent_orders 300/min", 5.0, "recent_orders"),
        ("/* recent_orders: 36/h */", 0.01, "recent_orders"),
        ("-- name: nightly (86400/day)", 1.0, "nightly"),
        ("-- 7200 / hours", 2.0, ""),
        ("-- recent_orders 12.5/s", 12.5, "recent_orders"),
        ("-- recent_orders 3/Min", 0.05, "recent_orders"),
        ("-- of the pages 1/2 and 24/7, docs/2/x.md, A4/b", None, ""),
        ("-- see page 3/min-max.md", 0.05, ""),
    ],
)
def test_a_rate_has_the_units_of_a_list(comment: str, per_s: float | None, name: str) -> None:
    (made,) = statements_of(f"{comment}\nSELECT 1 FROM orders", "sqlite")
    assert (made.per_s, made.name) == (per_s, name)


@pytest.mark.parametrize("dialect", ENGINES)
def test_a_semicolon_in_a_text_or_a_name_ends_nothing(dialect: str) -> None:
    text = """SELECT a FROM t WHERE b = 'x;y'; SELECT c FROM "t;u" -- ; no
WHERE d = 1"""
    assert len(statements_of(text, dialect)) == 2


@pytest.mark.parametrize("dialect", ENGINES)
def test_constants_are_ignored_and_no_value_is_left(dialect: str) -> None:
    text = "".join(
        f"SELECT a FROM t WHERE b = 'secret{n}' AND c >= {n} AND d IN ({n}, {n + 1}) ORDER BY 1 LIMIT 10;\n"
        for n in range(50)
    )
    (only,) = statements_of(text, dialect)
    assert only.sql == "SELECT a FROM t WHERE b = ? AND c >= ? AND d IN (?) ORDER BY 1 LIMIT 10"
    assert (only.calls, only.times) == (50.0, 50)


def test_a_list_of_one_named_parameter_keeps_its_name() -> None:
    (only,) = statements_of("SELECT a FROM t WHERE id IN (:ids)", "sqlite")
    assert only.sql.endswith("IN (:ids)")


def test_any_order_gives_the_same() -> None:
    statements = [
        Statement(f"SELECT a{n % 7} FROM t  WHERE b = {n}", float(n), f"name{n % 3}") for n in range(60)
    ]
    expected = merged(statements, "sqlite")
    for seed in range(5):
        mixed = list(statements)
        random.Random(seed).shuffle(mixed)
        assert merged(mixed, "sqlite") == expected


@pytest.mark.parametrize("dialect", ENGINES)
def test_blanks_and_the_case_of_keywords_make_no_other_text(dialect: str) -> None:
    ways = [
        "SELECT a, b FROM t WHERE a = ? AND b IN (?) AND c <= ? ORDER BY a DESC LIMIT 10",
        "select a,b from t where a=? and b in(?,?) and c<=? order by a desc limit 10",
        "  Select a\n ,b  From t\tWhere a= ? And b In ( ? ) And c <=? Order  By a Desc Limit 10 ",
    ]
    texts = {statements_of(way, dialect)[0].sql for way in ways}
    assert texts == {ways[0]}
    assert len(statements_of(";".join(ways), dialect)) == 1


def test_names_in_quotes_and_operators_stay_as_they_are() -> None:
    (only,) = statements_of(
        """SELECT "From  x", a->>'k' FROM t WHERE "and" <-> b = $1 AND a @> $2 AND n=:n""", "postgresql"
    )
    assert only.sql == """SELECT "From  x", a->>? FROM t WHERE "and" <-> b = $1 AND a @> $2 AND n = :n"""


@pytest.mark.parametrize("dialect", ENGINES)
def test_of_a_text_that_does_not_end_nothing_is_left(dialect: str) -> None:
    (only,) = statements_of("SELECT a FROM t WHERE b = 'secret and so on", dialect)
    assert only.sql == "SELECT a FROM t WHERE b = ..."


def test_writes_differing_in_values_or_row_count_are_one() -> None:
    made = statements_of(
        "INSERT INTO t VALUES (1, 'a', 2.5), (2, NULL, 3);INSERT INTO t VALUES (7, 'b', 1e3)", "mysql"
    )
    assert [each.sql for each in made] == ["INSERT INTO t VALUES (?, ?, ?)"]


def test_comments_are_dropped_and_mysql_executable_ones_kept() -> None:
    text = "SELECT /* user 7 */ /*!40001 SQL_NO_CACHE */ a FROM t -- x\n"
    (only,) = merged([Statement(text)], "mysql")
    assert only.sql == "SELECT SQL_NO_CACHE a FROM t"


@pytest.mark.parametrize(
    ("sql", "ours"),
    [
        ('SELECT root."id" \nFROM "public"."t" AS root \nWHERE root."id" > $1', True),
        ("SELECT `root` . `id` FROM `t` AS `root` ORDER BY `root` . `id` LIMIT ?", True),
        ("SELECT COUNT ( * ) FROM ( SELECT ? AS `one_row` FROM `t` LIMIT ? ) AS `migrator_first_rows`", True),
        ("SELECT root.id FROM roots root", False),
        ("SELECT id AS root FROM t", False),
    ],
)
def test_statements_of_this_toolkit_are_known(sql: str, *, ours: bool) -> None:
    assert is_ours(sql) == ours


def test_a_byte_order_mark_is_no_part_of_a_statement(tmp_path: Path) -> None:
    (tmp_path / "asked.sql").write_text("SELECT a FROM t WHERE b = ?", encoding="utf-8-sig")
    assert file_text(tmp_path / "asked.sql").startswith("SELECT")


def test_an_empty_file_has_no_statement() -> None:
    assert statements_of("  \n-- nothing\n;;", "sqlite") == []


@pytest.mark.slow
def test_hundred_thousand_statements_take_seconds_of_cpu() -> None:
    text = "".join(f"SELECT a FROM t{n % 500} WHERE b = {n} AND c = 'x{n}';\n" for n in range(100_000))
    began = time.process_time()
    assert len(statements_of(text, "postgresql")) == 500
    assert time.process_time() - began < 60


@pytest.mark.parametrize(
    ("comment", "rate"),
    [("-- 300/week", "300/week"), ("/* by_day: 5 / fortnight */", "5 / fortnight")],
)
def test_a_rate_of_an_unknown_unit_is_refused_with_its_line(comment: str, rate: str) -> None:
    with pytest.raises(SettingsError) as refused:
        statements_of(f"-- 3/s\nSELECT 1;\n{comment}\nSELECT 2", "sqlite")
    assert str(refused.value) == f"line 3: '{rate}' is not a rate: write 12.5/s, 300/min, 20/h or 5/day"


def test_statement_has_the_line_of_its_beginning() -> None:
    text = "SELECT id FROM a;\n\n-- by_b 3/s\nSELECT ';\n' AS id\n  FROM b;\n/* x\n */ SELECT id FROM c\n"
    assert {statement.sql[-1]: statement.line for statement in statements_of(text, "sqlite")} == {
        "a": 1,
        "b": 4,
        "c": 8,
    }
