"""The page as text; how it looks and what it does is tested in a browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re

import pytest

from migrator.cli.page import hours_text
from migrator.features.report.work import html_page, report_data
from migrator.runtime.values import replace
from tests import pins
from tests.support_report import MISSING, MODEL, PRICE
from tests.support_report_hostile import hostile, many


def test_its_policy_lets_in_exactly_its_style_and_its_script() -> None:
    page = html_page(MODEL)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.split(" ", 1) for rule in html.unescape(policy).split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for name, tag in (("style-src", "style"), ("script-src", "script")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_page_has_neither_addresses_handlers_nor_inline_styles() -> None:
    page = html_page(MODEL)
    outside = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.findall(r"\b(?:https?:|src=|url\(|@import)", outside)
    assert not re.findall(r"<[^>]*\s(?:on\w+|style)=", outside)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', outside))


def test_hostile_text_is_never_a_tag() -> None:
    page = html_page(hostile())
    page.encode()
    for tag in ("script", "style"):
        assert len(re.findall(rf"<{tag}[\s>]", page)) == 1
    assert not re.findall(r"<(?:img|link|iframe|object)", page)
    assert "{{ 7 * 7 }}" in page


def test_sentences_begin_large_and_keep_their_names() -> None:
    assert "<p>SQL has it, the table has not; found by services." in html_page(MODEL)


def test_failed_and_skipped_shadows_follow_the_patterns_table() -> None:
    page = html_page(MODEL)
    told = page[page.index('id="patterns"') : page.index('id="differences"')]
    assert pins.said(told)
    assert told.index("</table>") < told.index("12 shadows") < told.index("<h3>Moves</h3>")


def test_differences_before_a_move_are_marked_and_not_counted() -> None:
    moved = replace(MODEL.patterns[1], compared=0, same=0, different=0, before_move=2_400)
    before = replace(PRICE, before_move=True)
    model = replace(MODEL, groups=(MISSING, before), patterns=(moved, *MODEL.patterns[2:]))
    page = html_page(model)
    assert page.count("before its last move") == 2
    assert 'that count">1</span>' in page
    assert 'data-value="0">0</td>' in page
    assert pins.said(page)
    assert "badge" not in html_page(replace(model, groups=(before,))).split("</nav>")[0].split("<nav")[1]
    assert report_data(model)["groups"][1]["before_move"]


def test_a_page_of_many_differences_holds_each_once() -> None:
    page = html_page(many(5_000))
    assert len(re.findall(r"\[&#34;PRODUCT#\d{7}&#34;", page)) == 5_000
    assert len(page) < 4_000_000


def test_the_data_is_json_in_the_order_of_the_page() -> None:
    data = json.loads(json.dumps(report_data(MODEL)))
    assert list(data)[7:] == [
        "verdict",
        "never_compared",
        "patterns",
        "moves",
        "groups",
        "timeline",
        "work",
        "costs",
        "lag",
        "runs",
        "refused",
        "instances",
        "views",
        "notes",
    ]
    assert data["verdict"]["standing"] == "different"
    assert data["patterns"][1]["age_s"] == 40
    assert data["never_compared"] == ["orders_of_day"]
    json.dumps(report_data(hostile()), ensure_ascii=True).encode()


def test_total_covers_all_rows_and_is_not_an_item_difference() -> None:
    missing = replace(MISSING, found_by=("verify",), count=2)
    total = replace(missing, kind="sum", count=1, differences=[replace(MISSING.differences[0], row_key="")])
    model = replace(MODEL, groups=[missing, total])
    assert model.items_differing == 2
    rows = re.findall(r'<tr data-kind="sum".*?</tr>', html_page(model))
    assert rows
    assert all("all rows" in row and "no parameters" not in row for row in rows)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59, "less than a minute"),
        (60, "1 minute"),
        (2 * 3_600 - 60, "119 minutes"),
        (2 * 3_600, "2.0 hours"),
    ],
)
def test_hours_turn_from_minutes_at_two_hours(seconds: int, text: str) -> None:
    assert hours_text(seconds / 3_600) == text
