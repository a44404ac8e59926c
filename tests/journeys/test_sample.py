"""A sample by the installed command: what it looks at, what it says that it did not, and the same again by its seed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = small_shop(tmp_path, dynamodb_url)
    made.done("backfill", str(made.job))
    return made


def test_sample_reads_some_rows_and_reports_the_rest(shop: Project) -> None:
    ended = shop.done("verify", str(shop.job), "--sample", "10%", "--seed", "7")
    assert re.search(r"a sample \(10%, seed 7\): (9|10|11) rows against their items", ended.out)
    assert pins.said(ended.out, "totals")
    data = shop.done("verify", str(shop.job), "--sample", "20 rows", "--seed", "7", "--json").data
    assert data["sample"] == {"of": "20 rows", "seed": 7}
    assert 20 <= data["total"]["rows"] <= 23
    drawn = shop.done("verify", str(shop.job), "--sample", "10%")
    assert pins.said(drawn.err, "seed")

    shop.store().delete([(item["PK"], item["SK"]) for item in shop.items() if item["type"] == "InvoiceById"])
    assert shop.run("verify", str(shop.job), "--sample", "10%", "--seed", "7").code == 1
    assert shop.run("verify", str(shop.job)).code == 1


@pytest.mark.parametrize(
    "words", [["--sample", "0%"], ["--sample", "101%"], ["--sample", "some"], ["--seed", "1"]]
)
def test_what_is_no_sample_is_wrong_use(shop: Project, words: list[str]) -> None:
    assert shop.run("verify", str(shop.job), *words).code == 2
