"""`migrator plan` draws item collections of real rows before there is a table: of one key, and on its page."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.journey.command import Project
from tests.journey.small import small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Its table is not there."""
    return small_shop(tmp_path, dynamodb_url, create=False)


def test_a_key_shows_what_its_rows_would_make(shop: Project) -> None:
    ended = shop.done("plan", "shop.yaml", "--show", "C#1")
    assert "Customer" in ended.out
    assert '"I#30"' in ended.out
    assert '"I#60"' in ended.out
    assert "Name 1" not in ended.out
    assert "would create" not in ended.out
    (view,) = json.loads(shop.done("plan", "shop.yaml", "--show", "C#1", "--json").out)["views"]
    assert [item["type"] for item in view["collections"][0]["items"]] == ["Invoice", "Invoice", "Customer"]


def test_a_key_of_nothing_says_what_keys_look_like(shop: Project) -> None:
    ended = shop.done("plan", "shop.yaml", "--show", "customer 1")
    assert ended.out == "partition keys of the table look like this: C#{customer_id}, C#{id}, I#{id}\n"


def test_a_mapping_is_enough_where_the_source_is_named(shop: Project) -> None:
    source = f"sqlite:///{shop.folder}/shop.db"
    assert '"META"' in shop.done("plan", "mapping.yaml", "--source", source, "--show", "I#7").out


def test_show_measures_nothing_and_says_so_beside_what_does(shop: Project) -> None:
    for option in (("--html", "plan.html"), ("--compare", "mapping.yaml")):
        ended = shop.run("plan", "shop.yaml", "--show", "C#1", *option)
        assert ended.code == 2
        assert f"leave {option[0]} out" in ended.err
    assert not (shop.folder / "plan.html").exists()


def test_the_page_has_the_collections_with_masked_values(shop: Project) -> None:
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
        source.execute("UPDATE customer SET name = '<script>alert(1)</script>'")
        source.commit()
    shop.run("plan", "shop.yaml", "--html", "plan.html")
    page = (shop.folder / "plan.html").read_text()
    assert page.count('<section class="collection"') == 4
    assert "more item collection(s) of the rows that were read" in page
    assert "alert(1)" not in page
