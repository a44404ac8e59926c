"""Questions as a team lists them, in CSV and Markdown: what is read of a line, and every fault of a file at once."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from migrator.mapping.model.questions import Statement, Unserved
from migrator.runtime.errors import MappingError
from migrator.source.workload.statements import listed_questions
from tests import pins

CSV = """\
Access pattern;Name;Who asks;SQL;Frequency;Latency budget;Notes
Get a user by id;get_user;web;"SELECT *
FROM users WHERE id = 7";9/s;< 10 ms;x
List a user's last orders;;app;SELECT id FROM orders WHERE user_id = ? LIMIT 10;300/min;;

Shops near a place;;;;high;;
"""
MARKDOWN = """\
# What we ask

| not | ours |
|-----|------|
| 1   | 2    |

| # | Access Pattern | Name | Who asks | SQL | Frequency | Latency Budget |
|---|:---------------|------|----------|-----|-----------|----------------|
| 1 | Get a user by id | get_user | web | `SELECT * FROM users WHERE id = 7` | 9/s | < 10 ms |
| 2 | List a user's last orders | | app | SELECT id FROM orders WHERE user_id = ? LIMIT 10 | 5 | |
| 3 | Shops near a place | | | | high | |

| SQL |
|-----|
| SELECT 1 |
"""


def listed(text: str, name: str) -> tuple[list[Statement], list[Unserved]]:
    return listed_questions(text, Path(name), "sqlite")


@pytest.mark.parametrize(
    ("text", "name"), [(CSV, "team.csv"), (MARKDOWN, "team.md"), ("\ufeff" + CSV, "team.csv")]
)
def test_list_contains_questions_rates_budgets_and_callers(text: str, name: str) -> None:
    (user, orders), (near,) = listed(text, name)
    assert (user.sql, user.name, user.per_s, user.p99_ms, user.who, user.words) == (
        *("SELECT * FROM users WHERE id = ?", "get_user", 9, 10, "web", "Get a user by id"),
    )
    assert (orders.calls, orders.per_s, orders.p99_ms) == (5, 5, None)
    assert (near.reason, near.statement.words, near.statement.calls, near.statement.per_s) == (
        *("words", "Shops near a place", 100, None),
    )


def test_csv_field_limit_is_restored_for_the_rest_of_the_process() -> None:
    before = csv.field_size_limit()
    assert listed("sql\nSELECT 1", "t.csv")[0]
    assert listed(f'sql\n"SELECT 1 {" " * before}"', "t.csv")[0]
    assert csv.field_size_limit() == before


def test_two_lines_of_one_statement_merge_with_both_callers() -> None:
    (made,), _ = listed("sql,who,rate,p99\nSELECT a FROM t,web,1,20\nselect  a from t,app,2,10", "t.csv")
    assert (made.who, made.calls, made.p99_ms, made.times) == ("app; web", 3, 10, 2)


def test_every_fault_of_a_list_is_reported_with_its_line() -> None:
    text = """
| # | name | question | sql | rate | latency |
|---|------|----------|-----|------|---|
| 1 | a | | | 9 | |
| 2 | b | x | SELECT 1; SELECT 2 | often | |
| 3 | b | x | `SELECT a \\|\\| b FROM t` | 3/fortnight | fast |
| 4 | c | x | y | 1 | 2 | 7 |
"""
    with pytest.raises(MappingError) as raised:
        listed(text, "bad.md")
    assert [(fault.line, fault.where) for fault in raised.value.faults] == [
        *((4, ""), (5, "sql"), (5, "rate"), (6, "rate"), (6, "latency"), (6, "name"), (7, ""))
    ]


def test_a_quote_that_is_not_closed_ends_with_the_file() -> None:
    assert listed('sql\n"SELECT 1', "t.csv")[0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "t.csv"),
        ("name,sql", "t.csv"),
        ("# no table", "t.md"),
        ("foo,bar\n1,2", "t.csv"),
        ("sql,statement\nSELECT 1,", "t.csv"),
    ],
    ids=["question", "question-name", "question-table", "called-question", "two-columns"],
)
def test_a_file_without_questions_is_reported(text: str, name: str) -> None:
    with pins.refused(MappingError):
        listed(text, name)
