"""The pages of `migrator ui` in Chromium: both sizes, both schemes, and whatever rows and items hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from migrator.features.look.server import HttpPage, serving
from migrator.features.look.work import STATE_WORDS, Pages
from migrator.mapping.model.report import Cell, LookedItem, LookReport, LookState
from tests.nightly.browser.page import Browser
from tests.support_report_hostile import HOSTILE

pytestmark = pytest.mark.xdist_group("chromium")

SIZES = ((1400, 900), (400, 844))
LARGE = "x" * 400_000
ASKED = {"pk": HOSTILE[0], "sk": HOSTILE[5], "index": HOSTILE[1]}
STATUS = {
    "journal": HOSTILE[2],
    "runs": [
        {
            "run": 1,
            "kind": "backfill",
            "state": "done",
            "started": "2026-01-01 10:00:00",
            "pages_done": 3,
            "pages_planned": 4,
            "tally": {"rows": 1500, "items": 3000},
            "findings": {"refused": 2, HOSTILE[0]: 1},
        }
    ],
}


def items(state: LookState, number: int) -> LookedItem:
    texts = (*HOSTILE, LARGE if number == 0 else "same")
    cells = [Cell(text[:300], text, HOSTILE[at % 3], differs=at % 2 == 0) for at, text in enumerate(texts)]
    cells += [Cell("gone", "1", None, differs=True), Cell("new", None, "2", differs=True)]
    at, key = {"SK": HOSTILE[0]}, HOSTILE[number % len(HOSTILE)]
    return LookedItem(state, key, at, key, HOSTILE[0], HOSTILE[7], cells, HOSTILE[number % len(HOSTILE)])


REPORT = LookReport(
    job=HOSTILE[0],
    table=HOSTILE[1],
    index=HOSTILE[2],
    partition={"PK": HOSTILE[3]},
    items=[items(state, number) for number, state in enumerate(STATE_WORDS)],
    refused=HOSTILE,
    is_cut=True,
    notes=HOSTILE,
)


@pytest.fixture
def url() -> Iterator[str]:
    pages = Pages(HOSTILE[0], HOSTILE[1], [HOSTILE[1], "GSI1"], "1.0")

    def look(fields: Mapping[str, str]) -> HttpPage:
        return 200, pages.look(ASKED | dict(fields), REPORT if fields else None)

    site = {"": look, "look": look, "status": lambda fields: (200, pages.status(STATUS, HOSTILE))}
    with serving(site, 0, refusal=pages.refusal, policy=pages.policy) as served:
        yield served


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=["1400", "400"])
def test_what_rows_hold_is_text_at_every_size(
    browser: Browser, artefacts: Path, url: str, scheme: Literal["light", "dark"], size: tuple[int, int]
) -> None:
    browser.look(size, scheme)
    for page in ("look", "look?pk=1", "status"):
        browser.driver.get(f"{url}{page}")
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        wanted, given = browser.run(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wanted <= given == size[0], page
        assert browser.run("return window.pwned") is None
        assert (
            browser.run("return document.querySelectorAll('script, img, link, iframe, object').length") == 0
        )
        assert browser.run("return getComputedStyle(document.body).display") == "block"
        browser.picture(artefacts / f"ui-{page.partition('?')[0]}-{scheme}-{size[0]}.png")
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(250, 248, 243)", "dark": "rgb(21, 24, 27)"}[scheme]
    assert browser.log() == []
    assert all(one.startswith((url, "data:")) for one in browser.requests(sent=True))


def test_it_holds_no_letter_that_changes_how_others_are_read(browser: Browser, url: str) -> None:
    browser.driver.get(f"{url}look?pk=1")
    text = str(browser.run("return document.documentElement.outerHTML"))
    assert not {"\u202e", "\u2069", "\u200f", "\u2028", "\x1b"} & set(text)
    assert len(text) < 2_000_000


def test_each_state_is_shown_and_only_faults_are_open(browser: Browser, url: str) -> None:
    browser.driver.get(f"{url}look?pk=1")
    assert browser.texts("details .kind") == list(STATE_WORDS)
    closed = browser.run(
        "return [...document.querySelectorAll('details:not([open]) .kind')].map((e) => e.textContent)"
    )
    assert set(closed) == {"same", "expired", "tombstone", "control", "direct"}


def test_the_form_asks_the_server_and_nothing_else(browser: Browser, url: str) -> None:
    browser.driver.get(url)
    browser.run("document.querySelector('select').value = 'GSI1'")
    browser.choose("input[name=pk]", "A B&c=d#e")
    browser.requests()
    browser.one("form button").click()
    WebDriverWait(browser.driver, 120).until(lambda _: browser.all("details"))
    assert browser.run("return document.querySelector('input[name=pk]').value") == "A B&c=d#e"
    assert browser.run("return document.querySelector('select').value") == "GSI1"
    assert browser.run("return location.pathname").endswith("/look")
    browser.one("nav a[href=status]").click()
    WebDriverWait(browser.driver, 120).until(lambda _: browser.all("#found table"))
    assert browser.texts("h2") == ["Status"]
    assert browser.run("return document.referrer") == ""


def test_the_keyboard_is_enough(browser: Browser, url: str) -> None:
    browser.driver.get(url)
    assert browser.run("return document.activeElement.name") == "pk"
    browser.driver.switch_to.active_element.send_keys("X", Keys.ENTER)
    WebDriverWait(browser.driver, 120).until(lambda _: browser.all("details"))
    assert browser.texts("details .kind") == list(STATE_WORDS)
