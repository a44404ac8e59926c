"""The worksheet of a proposal: every statement is in it, served or with a reason, and nothing in it breaks its tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from migrator.features.init.work import Sheet, questions_each, summary_text, worksheet
from migrator.mapping.model.capacity import PatternReads
from migrator.mapping.model.questions import REASONS, Figures, Statement, StatementQuestion, Unserved
from migrator.mapping.model.results import Proof
from migrator.source.reader import SqlSource
from migrator.source.workload.reading import question_of
from migrator.source.workload.statements import statements_of
from tests import pins
from tests.support_design import QUESTIONS, SHOP, proposed, source_with
from tests.unit.source.workload.test_reading import NOT_PLACED, NOT_READ


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSource]:
    with source_with(tmp_path_factory.mktemp("shop"), SHOP) as source:
        yield source


def sheet_of(source: SqlSource, statements: list[Statement], **more: object) -> Sheet:
    facts = source.facts()
    read = [question_of(statement, facts) for statement in statements]
    proposal = proposed(source, [made for made in read if isinstance(made, StatementQuestion)], max_indexes=3)
    unread = [made for made in read if isinstance(made, Unserved)]
    return Sheet("shop.yaml", proposal, (*unread, *proposal.unserved), Figures(), **more)  # type: ignore[arg-type]


def test_every_statement_of_a_log_is_in_the_worksheet(shop: SqlSource) -> None:
    text = ";\n".join(
        [QUESTIONS, *NOT_PLACED.values(), *(sql for name, sql in NOT_READ.items() if name != "long")]
    )
    statements = statements_of(text, "sqlite")
    sheet = sheet_of(shop, statements)
    written = re.sub(r"\s+", " ", worksheet(sheet))
    assert len(sheet.served) + len(sheet.not_served) + len(sheet.no_questions) == len(statements)
    for statement in statements:
        shown = statement.sql if statement.sql in written else statement.sql[:80].strip()
        assert shown in written, statement
    for other in sheet.not_served:
        assert REASONS[other.reason][1] in written


def test_reads_of_a_call_are_shown_as_exact_or_estimated(shop: SqlSource) -> None:
    by_key, by_customer = (
        "SELECT name FROM products WHERE id = ?",
        "SELECT id FROM orders WHERE customer_id = ?",
    )
    reads = {
        name: PatternReads(name, "", "", "get", None, 25, 1.5, 1234.0, 1.0, 1, 0.5, 0.5, exact)
        for name, exact in (("get_product", True), ("list_orders_by_customer_id", False))
    }
    sheet = sheet_of(
        shop, [Statement(by_key, 9, who="web", per_s=9.0), Statement(by_customer, 1)], reads=reads
    )
    lines = worksheet(sheet).splitlines()
    assert "| 9/s | 90.0 % | `get the table: PRODUCT#{id}, META` | 1.5 | 1,234 | 0.5 |" in next(
        line for line in lines if line.startswith("| get_product | web |")
    )
    assert "| 1.5 (estimated) | 1,234 (estimated) | 0.5 (estimated) |" in next(
        line for line in lines if line.startswith("| list_orders_by_customer_id | not told |")
    )


def test_the_unknown_is_reported_as_unknown(shop: SqlSource) -> None:
    sheet = sheet_of(shop, [Statement("SELECT name FROM products WHERE id = ?")])
    assert pins.said(worksheet(sheet))


def test_words_and_names_of_a_team_break_no_table(shop: SqlSource) -> None:
    hostile = "a | b\n# <script>\x1b[31m"
    words = Unserved(Statement("", words=hostile, who=hostile), "words")
    served = Statement("SELECT name FROM products WHERE id = ?", name="x|y", who=hostile, words=hostile)
    sheet = sheet_of(shop, [served])
    sheet = Sheet(sheet.mapping, sheet.proposal, (words,), sheet.figures)
    text = worksheet(sheet)
    assert "\x1b" not in text
    assert "\n# <script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| x_y ")]
    assert [len(re.split(r"(?<!\\)\|", row)) for row in rows] == [11]


def test_terminal_lists_the_most_frequent_unserved_statements(shop: SqlSource) -> None:
    statements = [Statement(f"SELECT {n} FROM nowhere", n) for n in range(1, 51)]
    text = summary_text(sheet_of(shop, statements))
    assert text.count("not served: SELECT ") == 20
    assert "not served: SELECT 50 FROM nowhere (50 calls): " in text
    assert pins.said(text)


def test_unserved_statement_is_named_with_its_fix(shop: SqlSource) -> None:
    by_shipped = Statement("SELECT id FROM orders WHERE status = ? ORDER BY shipped_at LIMIT 3", 2, "sent")
    of_any = Statement("SELECT id FROM orders WHERE status = ? LIMIT 3", 1, "any_three")
    sheet = sheet_of(shop, [by_shipped, of_any])
    first, second = (line for line in summary_text(sheet).splitlines() if line.startswith("not served: "))
    assert first == pins.text("sent")
    assert "(shipped_at may be NULL)" in first
    assert pins.said(first, "make")
    assert second == pins.text("three")
    assert pins.said(second, "case")
    assert "NULL" not in second
    assert "- called: any_three" in worksheet(sheet)


def test_missing_proof_is_reported_with_its_reason(shop: SqlSource) -> None:
    sheet = sheet_of(
        shop, [Statement("SELECT name FROM products WHERE id = ?")], proof=Proof(missing="no reason")
    )
    assert pins.said(summary_text(sheet))


@pytest.mark.parametrize(
    ("patterns", "each"), [(0, 25), (1, 25), (800, 25), (1_000, 20), (4_000, 5), (40_000, 5)]
)
def test_many_patterns_have_fewer_questions_each(patterns: int, each: int) -> None:
    assert questions_each(patterns) == each
