"""Text of rows on a page and in a terminal."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from migrator.cli.inert import inert, name_text, plain
from tests import pins
from tests.support_report_hostile import HOSTILE

UNSEEN = "\u202e\u2028\u2029\u200f\u2069\x00\x07\x1b\ud800"


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_it_is_markup_and_all_of_it_is_seen(text: str) -> None:
    shown = inert(text)
    assert "<" not in shown.replace('<span class="code">', "").replace("</span>", "")
    assert not set(UNSEEN) & set(shown)
    assert not set(UNSEEN) & set(plain(text))
    shown.encode()
    plain(text).encode()


def test_invisible_characters_are_written_out_once_per_run() -> None:
    assert inert("a\u202e\u200fb") == pins.text()
    assert plain("tag \U000e0041") == "tag \\udb40\\udc41"
    assert inert("Zoë 😀 שלום") == "Zoë 😀 שלום"
    assert inert(Markup("<b>ours</b>")) == "<b>ours</b>"


def test_name_breaks_only_after_underscores_if_parts_are_short() -> None:
    assert name_text("a_b__c") == '<span class="name">a_<wbr>b_<wbr>_<wbr>c</span>'
    assert name_text("<i>_") == '<span class="name">&lt;i&gt;_<wbr></span>'
    assert name_text("x" * 17) == "x" * 17
    assert "<wbr>" not in name_text("\u202e" * 5)
