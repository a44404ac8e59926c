"""Chromium without a window, its clock for scripts, its log and its network watched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests import support_services as services
from tests.nightly.browser.page import Browser

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ARTEFACTS = "MIGRATOR_TEST_ARTEFACTS"
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
)


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    speaker = shutil.which("chromedriver")
    if browser is None or speaker is None:
        what = "there is no Chromium; on Debian: apt-get install chromium chromium-driver"
        if services.in_ci():
            pytest.fail(f"CI=true, and {what}", pytrace=False)
        pytest.skip(what)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for one in _OPTIONS:
        options.add_argument(one)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(speaker))
    yield made
    made.quit()


@pytest.fixture
def browser(driver: webdriver.Chrome, tmp_path: Path) -> Browser:
    """Nothing of the test before is left in it."""
    made = Browser(driver, tmp_path)
    made.begin()
    return made


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures go that a person may want to look at."""
    named = os.environ.get(_ARTEFACTS)
    folder = Path(named).resolve() if named else tmp_path_factory.mktemp("artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
