"""docs/lost-journal.md: its commands, tried one after the other."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from migrator.dynamodb.client import dynamodb_client
from migrator.runtime.values import replace
from tests.journeys.command import ROOT, Project
from tests.journeys.cutover import change, cutover_shop, filled, live, phase
from tests.support_items import put_items

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
        shop.done(*words, "--settle", "0s")
    assert len(steps()) == 1
    shop.done("verify", "--settle", "0s", str(shop.job))
    assert phase(shop) == "live"
    assert {item["name"] for item in shop.items() if item["PK"] == "C#1" and item["SK"] == "META"} == {
        "meanwhile"
    }


def test_table_restored_under_another_name_follows_its_row_steps(shop: Project) -> None:
    (row,) = (line for line in PAGE.splitlines() if "under another name" in line)
    restored = replace(shop, table=f"{shop.table}restored")
    client = dynamodb_client(region=None, profile=None, endpoint=shop.endpoint)
    names: dict[str, Any] = {}
    table = client.describe_table(TableName=shop.table)["Table"]
    for part in ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes"):
        names |= {part: table[part]} if part in table else {}
    for index in names.get("GlobalSecondaryIndexes", []):
        for extra in index.keys() - {"IndexName", "KeySchema", "Projection"}:
            del index[extra]
    client.create_table(TableName=restored.table, BillingMode="PAY_PER_REQUEST", **names)
    ttl = {"AttributeName": "expiresAt", "Enabled": True}
    client.update_time_to_live(TableName=restored.table, TimeToLiveSpecification=ttl)
    put_items(restored.store(), shop.items())
    shop.job.write_text(shop.job.read_text().replace(f"table: {shop.table}", f"table: {restored.table}"))
    assert shop.run("relay", "--once", str(shop.job)).code == 2
    for words in re.findall(r"`(?:migrator )?([a-z][^`]*)`", row.rpartition("|")[0].rpartition("|")[2]):
        step = [str(shop.job) if word == "JOB" else word for word in words.split()]
        step += [] if "JOB" in words else [str(shop.job)]
        ended = shop.run(*step, *(["--once"] if step[0] == "relay" else []))
        assert ended.code in ((0, 1) if "--repair" in step else (0,)), (step, ended.err)
    assert shop.done("verify", "--settle", "0s", str(shop.job), "--json").data["clean"]


def test_the_page_quotes_the_messages() -> None:
    folders = (ROOT / "migrator" / name for name in ("stages", "journal"))
    said = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    for message in re.findall(r"\| \*([^*]+)\* \|", PAGE):
        for part in message.split("…"):
            assert part.strip() in said, part


def test_the_image_keeps_the_journal() -> None:
    image = (ROOT / "docker" / "Dockerfile").read_text()
    assert "VOLUME /var/lib/migrator" in image
    assert "MIGRATOR_HOME=/var/lib/migrator" in image
