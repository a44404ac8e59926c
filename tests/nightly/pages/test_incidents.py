"""Each incident of docs/incidents.md is brought about; its commands say what the page says, and its way back ends clean."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest
import yaml

from migrator.runtime.values import replace
from tests.journeys.command import ROOT
from tests.journeys.console import Command, with_blocks
from tests.journeys.incidents import INCIDENTS, ON_POSTGRESQL, PAGE, night_on, played, sections
from tests.nightly.pages.test_runbook import told

TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = sections(TEXT)
DIFFERS = (
    # Which request of several met the fault first.
    (r"DynamoDB \w+ on table", "DynamoDB REQUEST on table"),
    (r"127\.0\.0\.1:\d+: [\w ]+: OperationalError", "SERVER: DOING: OperationalError"),
    (r"(?m)^left .*", "left"),
    (r"\d+\.\d ms of \d+ answers; limit \d+\.\d ms", "P99"),
)


def lines(command: Command) -> list[str]:
    said = command.said
    for pattern, name in DIFFERS:
        said = re.sub(pattern, name, said)
    return told(replace(command, said=said), is_busy=False)


def compare(symptom: str, folder: Path, dynamodb_url: str, postgres: tuple[str, str] | None) -> None:
    with night_on(folder, dynamodb_url, postgres) as night:
        again = played(symptom, SECTIONS[symptom], night)
    for written, said in zip(chain(*SECTIONS[symptom]), chain(*again), strict=True):
        assert lines(said) == lines(written), f"{written.text}\nsaid:\n{said.said}"


@pytest.mark.parametrize("symptom", [name for name in INCIDENTS if name not in ON_POSTGRESQL])
def test_incident_is_reported_and_fixed_as_documented(
    symptom: str, tmp_path: Path, dynamodb_url: str
) -> None:
    compare(symptom, tmp_path, dynamodb_url, None)


@pytest.mark.parametrize("symptom", sorted(ON_POSTGRESQL))
def test_server_incident_is_reported_and_fixed_as_documented(
    symptom: str, tmp_path: Path, dynamodb_url: str, postgres_database: str, postgres_url: str
) -> None:
    compare(symptom, tmp_path, dynamodb_url, (postgres_database, postgres_url))


def test_every_incident_is_on_the_page_and_has_an_alert_link() -> None:
    assert list(SECTIONS) == list(INCIDENTS)
    assert with_blocks(TEXT, [block for blocks in SECTIONS.values() for block in blocks]) == TEXT
    rules = yaml.safe_load((ROOT / "docs" / "operations" / "alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        page, _, place = rule["annotations"]["runbook"].partition("#")
        assert ROOT / page == PAGE
        assert place in {name.lower().replace(" ", "-") for name in SECTIONS}
        assert f"`{rule['alert']}`" in TEXT
