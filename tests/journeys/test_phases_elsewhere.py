"""Phases as a service in another language reads them: /phases of a relay, beside what `cutover status` says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.journeys.command import ROOT, Project
from tests.journeys.cutover import OTHER, PATTERN, cutover_shop, force
from tests.support_prometheus import fetched, free_port, until
from tests.support_worlds import prepared

_JSON = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Asked = tuple[Project, str]


@pytest.fixture
def asked(tmp_path: Path, dynamodb_url: str) -> Iterator[Asked]:
    """A job under relay, and the relay's address."""
    shop, port = cutover_shop(tmp_path, dynamodb_url), free_port()
    job = str(shop.job)
    prepared(shop, "table create", "capture install")
    with shop.beside("relay", job, "--metrics-port", str(port)):
        url = f"http://127.0.0.1:{port}/phases"
        until(lambda: _answers(url), "the relay serves the phases")
        yield shop, url


def _answers(url: str) -> bool:
    try:
        return fetched(url)[0] == 200
    except OSError:
        return False


def told(url: str) -> dict[str, Any]:
    code, text = fetched(url)
    assert code == 200
    found: dict[str, Any] = json.loads(text)
    return found


def page() -> tuple[Any, Any]:
    """The example of docs/other-languages.md, and its schema."""
    (example,) = _JSON.findall((ROOT / "docs" / "other-languages.md").read_text())
    return json.loads(example), json.loads((ROOT / "docs" / "phases.schema.json").read_text())


def test_the_example_of_the_page_fits_its_schema() -> None:
    example, schema = page()
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(example)
    for wrong in (example | {"format": 2}, example | {"age_s": -1}, {"format": 1}):
        assert not Draft202012Validator(schema).is_valid(wrong)


def test_relay_and_status_agree(asked: Asked) -> None:
    shop, url = asked
    job = str(shop.job)
    force(shop, "advance", job, PATTERN)
    force(shop, "advance", job, OTHER)
    force(shop, "ramp", job, OTHER, "5", "--for", "customer_id=42")
    until(lambda: told(url)["patterns"][OTHER]["version"] == 2, "the relay has read the moves")
    document = told(url)
    Draft202012Validator(page()[1]).validate(document)
    assert (document["format"], document["job"]) == (1, "shop")
    status = shop.done("cutover", "status", job, "--json").data["patterns"]
    keys = ("phase", "percent", "for", "version", "since", "fault")
    assert document["patterns"] == {view["pattern"]: {key: view[key] for key in keys} for view in status}
    assert document["patterns"][OTHER]["for"] == ["customer_id=42"]
    assert 0 <= document["age_s"] < 60


def test_phase_age_grows_until_the_journal_is_read_again(asked: Asked) -> None:
    _, url = asked
    ages: list[float] = [told(url)["age_s"]]

    def age_s() -> float:
        ages.append(told(url)["age_s"])
        return ages[-1]

    until(lambda: age_s() > ages[0], "older")
    until(lambda: age_s() < max(ages), "read anew")
