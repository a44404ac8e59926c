"""Item collections on terminals of two widths and as a part of a page."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from migrator.features.plan.work import print_views, views_fragment
from migrator.mapping.model.report import Facet, SampleItem, ShownCollection, View
from migrator.runtime.values import asdict
from tests import pins
from tests.support_report_hostile import HOSTILE

ITEMS = [
    SampleItem("Order", {"PK": '"U#1"', "SK": '"O#1"'}, {"total": "5.00", "status": '"paid"'}),
    SampleItem("Order", {"PK": '"U#1"', "SK": '"O#2"'}, {"total": "7.50"}),
    SampleItem("User", {"PK": '"U#1"', "SK": '"PROFILE"'}, {"name": '"Ann"'}),
]
VIEW = View(
    "",
    ["PK"],
    ["SK"],
    "all",
    [Facet("order", "Order", {"PK": "U#{user_id}", "SK": "O#{id}"}, ["total", "status"])],
    [ShownCollection('"U#1"', ITEMS, 4)],
    9,
)
WIDE = """
the table: PK · SK
  type   PK           SK      other attributes
  Order  U#{user_id}  O#{id}  total, status
  PK "U#1"
    Order  SK     total  status
           "O#1"  5.00   "paid"
           "O#2"  7.50   –
    User  SK         name
          "PROFILE"  "Ann"
    and 4 more from the rows read
  9 more item collections from the rows read
"""


def printed(views: list[View], width: int) -> str:
    file = io.StringIO()
    print_views(Console(file=file, width=width), views)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def test_columns_stand_below_each_other_by_type() -> None:
    assert printed([VIEW], 80) == WIDE


def test_a_narrow_terminal_lists_the_attributes() -> None:
    text = printed([VIEW], 40)
    assert '    Order "O#1"  total: 5.00, status: "paid"\n    Order "O#2"  total: 7.50\n' in text


def test_programs_get_all_of_it() -> None:
    data = asdict(VIEW)
    assert data["more"] == 9
    assert data["collections"][0]["more"] == 4
    assert data["collections"][0]["items"][1]["attributes"] == {"total": "7.50"}


def test_part_of_a_page_has_a_place_for_missing_attributes() -> None:
    page = str(views_fragment([VIEW]))
    assert page.count('<dt><span class="name">status</span></dt>') == 2
    assert '<span class="soft">–</span>' in page
    assert pins.said(page, "were")
    assert pins.said(page, "collection")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text(text: str) -> None:
    item = SampleItem(text, {"PK": text, "SK": text}, {text: text})
    view = View(
        text, ["PK"], ["SK"], text, [Facet(text, text, {"PK": text}, [text])], [ShownCollection(text, [item])]
    )
    page = str(views_fragment([view]))
    assert not any(mark in page for mark in ("<script", "<img", "<a href='http", "\u202e", "\u2028", "\x1b"))
    assert not {"\x1b", "\x07", "\x00", "\u202e"} & set(printed([view], 120))
