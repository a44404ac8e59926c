"""The report in Chromium: looked at, sorted, filtered, printed; and what rows hold is text whatever it says."""

from __future__ import annotations

import base64
import csv
import json
import re
from pathlib import Path
from typing import Literal

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from migrator.runtime.values import replace
from tests import pins
from tests.nightly.browser.page import NARROW, WIDE, Browser
from tests.support_report import MODEL
from tests.support_report_hostile import HOSTILE, hostile, many

pytestmark = pytest.mark.xdist_group("chromium")


# ── how it looks ──


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_report_page_fits_both_schemes_without_sideways_scroll(
    browser: Browser, artefacts: Path, scheme: Literal["light", "dark"], size: tuple[int, int]
) -> None:
    browser.look(size, scheme)
    browser.open(MODEL)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    wanted, given = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wanted <= given == size[0]
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(250, 248, 243)", "dark": "rgb(21, 24, 27)"}[scheme]
    browser.picture(artefacts / f"report-{scheme}-{size[0]}.png")
    assert browser.log() == []


def test_the_parts_stand_in_the_order_that_the_terminal_has(browser: Browser) -> None:
    browser.open(MODEL)
    assert browser.texts("main > section > h2")[1:] == [
        "Access patterns",
        "Differences",
        "Over time",
        "Latency",
        "Costs",
        pins.text("runs"),
        "Coverage",
        "Item collections",
    ]
    assert browser.texts("nav a") == ["Verdict", *browser.texts("main > section > h2")[1:]]
    assert browser.run("return document.title") == pins.text("stand")
    ids = browser.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_hostile_text_makes_no_page_wider_than_a_telephone(browser: Browser) -> None:
    browser.look(NARROW)
    browser.open(hostile())
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    wanted, given = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wanted <= given == NARROW[0]


def test_the_button_paints_it_light_or_dark(browser: Browser) -> None:
    browser.open(MODEL)
    schemes = []
    for _ in range(3):
        browser.one("#scheme").click()
        schemes.append(browser.run("return document.documentElement.dataset.scheme || ''"))
    assert schemes == ["light", "dark", ""]


def test_report_prints_wide_on_a4_with_its_table_heads(browser: Browser, artefacts: Path) -> None:
    browser.open(MODEL)
    inches = {"paperWidth": 8.27, "paperHeight": 11.69}
    printed = base64.b64decode(browser.command("Page.printToPDF", printBackground=False, **inches)["data"])
    (artefacts / "report.pdf").write_bytes(printed)
    # As wide as A4 is between its margins of 14 mm, at 96 pixels an inch.
    browser.look((688, 900))
    browser.command("Emulation.setEmulatedMedia", media="print")
    wanted, given = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wanted <= given == 688
    heads = browser.run(
        "return [...document.querySelectorAll('#patterns thead th')].map((e) => [e.innerText.trim(), getComputedStyle(e).display])"
    )
    assert [name for name, _ in heads][:3] == ["Pattern", "Phase", "Compared"]
    assert {shown for _, shown in heads} == {"table-cell"}
    browser.picture(artefacts / "report-print.png")


def test_names_break_at_an_underscore_and_nowhere_else(browser: Browser) -> None:
    name = "orders_of_customer_by_creation_date_and_status"
    long = [replace(one, name=f"{name}_{place}") for place, one in enumerate(MODEL.patterns)]
    for size in ((1400, 900), (400, 844)):
        browser.look(size)
        browser.open(replace(MODEL, patterns=long))
        # The parts of a name between its breaks: a part with two boxes is broken.
        broken = browser.run(
            "return [...document.querySelectorAll('main .name')].flatMap((e) => [...e.childNodes]).filter((e) => { const r ="
            " document.createRange(); r.selectNodeContents(e); return r.getClientRects().length > 1; }).map((e) => e.textContent)"
        )
        assert broken == []
    assert browser.texts("#patterns tbody th")[0] == f"{name}_1"


# ── what it does ──


def counts(browser: Browser) -> list[int]:
    return [int(one.replace(",", "")) for one in browser.texts("#groups tbody tr td:first-child")]


def test_a_click_sorts_and_announces_it(browser: Browser) -> None:
    browser.open(MODEL)
    assert counts(browser) == [214, 37, 2]
    browser.one("#groups th:nth-child(1) button").click()
    assert counts(browser) == [214, 37, 2]
    assert browser.one("#groups th:nth-child(1)").get_attribute("aria-sort") == "descending"
    browser.one("#groups th:nth-child(1) button").click()
    assert counts(browser) == [2, 37, 214]
    assert browser.one("#groups th:nth-child(1)").get_attribute("aria-sort") == "ascending"
    browser.one("#groups th:nth-child(2) button").send_keys(Keys.ENTER)
    assert browser.texts("#groups tbody .kind") == ["different", "missing", "value"]
    assert len(browser.all("#groups [aria-sort]")) == 1
    browser.one("#patterns th:nth-child(8) button").click()
    assert browser.texts("#patterns tbody th")[0] == "recent_orders"


def test_fields_filter_count_and_stand_in_the_address(browser: Browser) -> None:
    browser.open(MODEL)
    assert browser.texts("#shown") == [pins.text("listed")]
    browser.choose("#by-class", "value")
    assert browser.texts("#shown") == [pins.text("kinds")]
    assert len(browser.all("#all tbody tr")) == 8
    assert [one.get_attribute("id") for one in browser.all(".group:not([hidden])")] == ["g-11aa22bb33"]
    browser.choose("#find", "4713")
    assert browser.texts("#shown") == [pins.text("listed-kinds")]
    address = browser.run("return location.hash")
    assert address == "#differences?q=4713&class=value"
    browser.open(MODEL, address)
    assert browser.texts("#shown") == [pins.text("listed-differences-kinds")]
    browser.choose("#find", "no such thing")
    assert browser.texts("#shown") == [pins.text("listed-2")]


def test_findings_are_saved_as_csv_and_as_json(browser: Browser, tmp_path: Path) -> None:
    browser.open(replace(MODEL, groups=[replace(MODEL.groups[0], where="=2+3"), *MODEL.groups[1:]]))
    assert browser.texts("#differences h3 + p")[0] == pins.text()
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.choose("#by-class", "value")
    for kind in ("csv", "json"):
        browser.one(f"[data-saves={kind}]").click()
    wait = WebDriverWait(browser.driver, 120)
    wait.until(lambda _: all((tmp_path / f"differences.{kind}").exists() for kind in ("csv", "json")))
    lines = list(csv.DictReader((tmp_path / "differences.csv").read_text().splitlines()))
    saved = json.loads((tmp_path / "differences.json").read_text())
    assert len(lines) == len(saved) == 8
    assert saved[0] == {
        "class": "value",
        "where": "=2+3 › price",
        "row_or_question": "product_id=4711",
        "item_or_difference": "1290 ≠ 12.90",
    }
    assert lines[0] == saved[0] | {"where": "'=2+3 › price"}
    assert browser.log() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "blob:"))] == []


def test_a_link_to_a_kind_opens_it(browser: Browser) -> None:
    browser.open(MODEL, "#g-77ee88ff99")
    assert browser.one("#g-77ee88ff99").get_attribute("open") is not None
    top = browser.run("return document.getElementById('g-77ee88ff99').getBoundingClientRect().top")
    assert 0 <= top < WIDE[1] / 2
    browser.run("arguments[0].click()", browser.one("#groups a[href='#g-44cc55dd66']"))
    assert browser.run("return document.getElementById('g-44cc55dd66').open")


def test_the_keyboard_is_enough(browser: Browser) -> None:
    browser.open(MODEL)
    body = browser.one("body")
    body.send_keys(Keys.TAB)
    assert browser.run("return document.activeElement.className") == "skip"
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    browser.run("document.activeElement.blur()")
    body.send_keys("/")
    assert browser.run("return document.activeElement.id") == "find"
    browser.driver.switch_to.active_element.send_keys("471/", Keys.BACKSPACE, "3", Keys.ENTER)
    assert browser.run("return document.getElementById('find').value") == "4713"
    assert len(browser.all("#all tbody tr")) == 1
    assert browser.log() == []


def test_it_can_be_read_without_scripts(browser: Browser) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(MODEL)
    browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert len(browser.all("#all tbody tr")) == 11
    assert not browser.one(".filters").is_displayed()
    assert not browser.all("thead button")
    assert browser.one("#verdict").is_displayed()


def test_it_prints_with_all_that_is_folded(browser: Browser, artefacts: Path) -> None:
    browser.open(MODEL)
    folded = browser.run("return document.querySelectorAll('details:not([open])').length")
    assert folded
    browser.run(
        "addEventListener('beforeprint', () => { window.left = document.querySelectorAll('details:not([open])').length })"
    )
    printed = base64.b64decode(browser.command("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 30_000
    assert browser.run("return window.left") == 0
    assert browser.run("return document.querySelectorAll('details:not([open])').length") == folded
    (artefacts / "report.pdf").write_bytes(printed)


def test_a_clean_report_prints_on_five_pages_at_most(browser: Browser) -> None:
    names = [f"{pattern.name}_{number}" for number in range(7) for pattern in MODEL.patterns]
    (price,) = MODEL.costs.patterns[1:2]
    model = replace(
        MODEL,
        verdict=replace(MODEL.verdict, standing="clean"),
        groups=(),
        refused=(),
        patterns=[replace(MODEL.patterns[3], name=name) for name in names],
        costs=replace(MODEL.costs, patterns=[replace(price, pattern=name) for name in names]),
        views=[
            replace(view, name=f"GSI{number}", facets=[*view.facets] * 4)
            for number in range(5)
            for view in MODEL.views[:1]
        ],
    )
    browser.open(model)
    printed = base64.b64decode(browser.command("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 5
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert browser.one("#patterns").is_displayed()
    assert browser.one("#coverage").is_displayed()
    assert browser.one("#collections table").is_displayed()


def test_of_five_thousand_differences_two_hundred_rows_are_drawn(browser: Browser) -> None:
    """However it is filtered and sorted: what is drawn is what takes a browser's time."""
    browser.open(many(5_000))
    assert browser.texts("#shown")[0] == pins.text("listed")
    assert len(browser.all("#all tbody tr")) == 200
    script = """
      const find = document.getElementById('find'), drawn = [];
      for (const text of ['w', 'wa', 'META#7', '00042', 'nothing at all', '', 'product ["']) {
        find.value = text;
        find.dispatchEvent(new Event('input', {bubbles: true}));
        drawn.push(document.querySelectorAll('#all tbody tr').length);
      }
      return drawn;
    """
    assert max(browser.run(script)) == 200
    browser.choose("#find", "")
    browser.choose("#by-where", "warehouse")
    assert browser.texts("#shown") == [pins.text("kinds")]
    browser.choose("#by-where", "")
    browser.run("arguments[0].click()", browser.one("#all th:nth-child(3) button"))
    assert len(browser.all("#all tbody tr")) == 200
    browser.one("#more").click()
    assert len(browser.all("#all tbody tr")) == 400


# ── what it does not do ──


def test_what_rows_hold_is_text(browser: Browser) -> None:
    browser.open(hostile())
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.run("for (const one of document.querySelectorAll('*')) one.dispatchEvent(new Event('mouseover'))")
    for selector in (
        "#groups th:nth-child(4) button",
        "#all th:nth-child(3) button",
        "#groups tbody tr:first-child a",
    ):
        browser.run("arguments[0].click()", browser.one(selector))
    for text in HOSTILE[:3]:
        browser.choose("#find", text)
        browser.choose("#by-where", text)
    assert browser.run("return window.pwned") is None
    assert (
        browser.run(
            "return document.querySelectorAll('script, style, link, img, iframe, object, form').length"
        )
        == 3
    )
    assert (
        browser.run(
            "return [...document.querySelectorAll('*')].some((e) => [...e.attributes].some((a) => a.name.startsWith('on')))"
        )
        is False
    )
    assert not [
        link
        for link in browser.run(
            "return [...document.querySelectorAll('a')].map((e) => e.getAttribute('href'))"
        )
        if not link.startswith("#")
    ]
    assert browser.log() == []
    shown = browser.run("return document.querySelector('main').textContent")
    assert "<script>window.pwned = 1</script>" in shown
    for unseen in "\u202e\u2028\u2029\x1b\x00\u200f":
        assert unseen not in shown
    assert r"\u202eright to left" in shown


def test_no_address_is_requested(browser: Browser) -> None:
    browser.open(hostile())
    browser.run("window.scrollTo(0, document.body.scrollHeight)")
    asked = browser.requests()
    assert len(asked) == 1
    assert asked[0].startswith("file://")


def test_page_policy_blocks_injected_content(browser: Browser) -> None:
    """An edited or faulty file gets no code run and no address asked."""
    browser.open(replace(MODEL, groups=()))
    for script in (
        "const made = document.createElement('script'); made.textContent = 'window.pwned = 1'; document.body.append(made)",
        "document.body.setAttribute('onclick', 'window.pwned = 2'); document.body.click()",
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.pwned=3>')",
        "const made = document.createElement('img'); made.src = 'http://198.51.100.1/x.png'; document.body.append(made)",
        "location.href = 'javascript:window.pwned=4'",
    ):
        browser.run(f"try {{ {script} }} catch (error) {{ }}")
    browser.run("return new Promise((done) => setTimeout(done, 100))")
    assert browser.run("return window.pwned") is None
    sent = browser.requests(sent=True)
    assert not [url for url in sent if not url.startswith("file://")]
    assert browser.log()


def test_no_column_is_lost_on_a4(browser: Browser) -> None:
    # As wide as A4 is between its margins of 14 mm, at 96 pixels an inch.
    browser.look((688, 900))
    browser.open(MODEL)
    browser.command("Emulation.setEmulatedMedia", media="print")
    wanted, given = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wanted <= given == 688
