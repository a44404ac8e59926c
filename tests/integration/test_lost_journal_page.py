"""docs/lost-journal.md: its steps, tried one after the other."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.journeys.command import ROOT, Project
from tests.journeys.cutover import change, cutover_shop, filled, live, phase

PAGE = (ROOT / "docs" / "lost-journal.md").read_text()


def steps() -> list[list[str]]:
    """The commands of the section, in its order."""
    section = PAGE.partition("## A lost journal, step by step")[2].partition("\n## ")[0]
    return [shlex.split(line) for line in re.findall(r"^ {7}migrator (.*)$", section, re.MULTILINE)]


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = live(filled(cutover_shop(tmp_path, dynamodb_url)))
    made.done("relay", "--once", str(made.job))
    return made


def test_the_steps_lead_back_to_where_it_was(shop: Project) -> None:
    shutil.rmtree(shop.environment["MIGRATOR_HOME"])
    change(shop, "UPDATE customer SET name = 'meanwhile' WHERE id = 1")
    assert shop.run("relay", "--once", str(shop.job)).code == 2
    for step in steps():
        words = [str(shop.job) if word == "jobs/shop.yaml" else word for word in step]
        ended = shop.run(*words, *(["--settle", "0s"] if words[0] == "verify" else []))
        assert ended.code == (1 if "--repair" in words else 0), (words, ended.err)
    assert len(steps()) == 4
    assert phase(shop) == "live"
    assert {item["name"] for item in shop.items() if item["PK"] == "C#1" and item["SK"] == "META"} == {
        "meanwhile"
    }


def test_the_page_quotes_what_is_said() -> None:
    said = "".join(path.read_text() for path in (ROOT / "migrator" / "stages").rglob("*.py"))
    for message in re.findall(r"\| \*([^*]+)\* \|", PAGE):
        for part in message.split("…"):
            assert part.strip() in said, part


def test_the_image_keeps_the_journal() -> None:
    image = (ROOT / "docker" / "Dockerfile").read_text()
    assert "VOLUME /var/lib/migrator" in image
    assert "MIGRATOR_HOME=/var/lib/migrator" in image
