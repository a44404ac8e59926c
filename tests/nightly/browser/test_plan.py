"""The plan's page in Chromium: wide and narrow, light and dark, on paper; and what it holds is text whatever it says."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Literal

import pytest

from migrator.features.plan.work import plan_page
from tests import pins
from tests.nightly.browser.page import Browser
from tests.support_plan import OTHER, PLAN, hostile_plan

pytestmark = pytest.mark.xdist_group("chromium")

WIDE, NARROW = (1400, 900), (400, 844)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_plan_page_fits_both_schemes_without_sideways_scroll(
    browser: Browser, artefacts: Path, scheme: Literal["light", "dark"], size: tuple[int, int]
) -> None:
    browser.look(size, scheme)
    browser.open_page(plan_page([PLAN, OTHER]))
    wanted, given = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wanted <= given == size[0]
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(250, 248, 243)", "dark": "rgb(21, 24, 27)"}[scheme]
    browser.picture(artefacts / f"plan-{scheme}-{size[0]}.png")
    assert browser.log() == []


def test_its_parts_stand_in_the_order_of_the_terminal(browser: Browser) -> None:
    browser.open_page(plan_page([PLAN, OTHER]))
    assert browser.texts("main > section > h2") == [
        pins.text("create"),
        *("Side by side", "Access patterns", "Item collections", "Rewrites", "Costs", "Advice", "Left out"),
    ]
    assert browser.texts("nav a") == ["The plan", *browser.texts("main > section > h2")[1:]]
    assert browser.texts(".standing") == [pins.text("fit")]
    assert len(browser.all(".hot li")) == 11
    ids = browser.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_it_prints_on_a4_without_losing_a_column(browser: Browser, artefacts: Path) -> None:
    browser.open_page(plan_page([PLAN, OTHER]))
    inches = {"paperWidth": 8.27, "paperHeight": 11.69}
    printed = base64.b64decode(browser.command("Page.printToPDF", printBackground=False, **inches)["data"])
    (artefacts / "plan.pdf").write_bytes(printed)
    assert printed.startswith(b"%PDF")
    assert 1 < len(re.findall(rb"/Type\s*/Page\b", printed)) < 12
    # As wide as A4 is between its margins of 14 mm, at 96 pixels an inch.
    browser.look((688, 900))
    browser.command("Emulation.setEmulatedMedia", media="print")
    wanted, given = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wanted <= given == 688
    browser.picture(artefacts / "plan-print.png")


def test_content_of_the_plan_is_text_and_widens_no_page(browser: Browser) -> None:
    for size in (WIDE, NARROW):
        browser.look(size)
        browser.open_page(plan_page([hostile_plan(), hostile_plan()]))
        wanted, given = browser.run(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wanted <= given == size[0]
    assert browser.all("script, img, iframe, link") == []
    assert browser.log() == []
    assert "\u202e" not in browser.run("return document.documentElement.textContent")


def test_no_address_is_requested(browser: Browser) -> None:
    browser.open_page(plan_page([PLAN]))
    assert [url for url in browser.requests() if not url.startswith("file:")] == []
