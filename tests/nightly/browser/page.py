"""One page in a browser, as tests look at it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from migrator.features.report.work import html_page
from migrator.mapping.model.report import ReportModel

WIDE, NARROW = (1280, 900), (390, 844)


@dataclass
class Browser:
    driver: webdriver.Chrome
    folder: Path

    def begin(self) -> None:
        self.command("Emulation.setScriptExecutionDisabled", value=False)
        self.command("Emulation.setEmulatedMedia", media="", features=[])
        self.look()
        self.driver.get("about:blank")
        self.log()
        self.requests()

    def open(self, model: ReportModel, hash_: str = "") -> None:
        self.open_page(html_page(model), hash_)

    def open_page(self, text: str, hash_: str = "") -> None:
        file = self.folder / "page.html"
        file.write_bytes(text.encode("utf-8", "backslashreplace"))
        self.driver.get("about:blank")
        self.requests()
        self.driver.get(f"{file.as_uri()}{hash_}")

    def look(self, size: tuple[int, int] = WIDE, scheme: Literal["light", "dark"] = "light") -> None:
        """The window's size, and the scheme that its person prefers."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)
        self.command(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def command(self, name: str, **given: Any) -> dict[str, Any]:
        told: dict[str, Any] = self.driver.execute_cdp_cmd(name, given)
        return told

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return [
            str(text)
            for text in self.run(
                f"return [...document.querySelectorAll({selector!r})].map((e) => e.textContent.trim())"
            )
        ]

    def choose(self, selector: str, value: str) -> None:
        """Fills a field as a typing user does."""
        self.run(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            self.one(selector),
            value,
        )

    def picture(self, file: Path) -> None:
        """The whole page, however long it is."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def log(self) -> list[str]:
        """What the browser has complained of since it was asked last."""
        return [str(one["message"]) for one in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def requests(self, *, sent: bool = False) -> list[str]:
        """Addresses that the page asked for since the last time; `sent`: only those that the policy let through."""
        entries = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        events = [json.loads(one["message"])["message"] for one in entries]
        stopped = {
            one["params"]["requestId"]
            for one in events
            if one["method"] == "Network.loadingFailed" and one["params"].get("blockedReason") == "csp"
        }
        asked = [one["params"] for one in events if one["method"] == "Network.requestWillBeSent"]
        kept = [one["request"]["url"] for one in asked if not (sent and one["requestId"] in stopped)]
        return [url for url in kept if url != "about:blank"]
