"""The examples of docs/direct-writes.md run one after the other, on a table of the shop's own design, as they stand there."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from migrator.settings.job import load_job
from tests.journeys.command import ROOT, project

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "direct-writes.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> dict[str, Any]:
    """All that the page defines, its examples run on a table with the shop's indexes, one user and one product."""
    tmp_path = tmp_path_factory.mktemp("after")
    name = f"App{secrets.token_hex(4)}"
    made = project(tmp_path, f"sqlite:///{tmp_path}/no.db", dynamodb_url, name, mapping="ecommerce")
    made.done("table", "create", str(made.job))
    own = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
    table = boto3.resource("dynamodb", endpoint_url=dynamodb_url, **own).Table(name)
    table.put_item(Item={"PK": "USER#1", "SK": "PROFILE", "EntityType": "User", "userId": 1})
    table.put_item(Item={"PK": "PRODUCT#20", "SK": "METADATA", "EntityType": "Product", "stock": 3})
    table.put_item(Item={"PK": "COUNTER", "SK": "order", "EntityType": "Counter", "last": 8000})
    names = {"table": table, "client": table.meta.client}
    for number, text in enumerate(PYTHON.findall(PAGE), 1):
        exec(compile(text, f"docs/direct-writes.md, example {number}", "exec"), names)
    return names


def test_the_examples_do_what_the_page_describes(names: dict[str, Any]) -> None:
    table = names["table"]
    assert table.get_item(Key={"PK": "USER#1", "SK": "PROFILE"})["Item"]["orderCount"] == 1
    assert names["next_id"] == 8001
    assert table.get_item(Key={"PK": "PRODUCT#20", "SK": "METADATA"})["Item"]["stock"] == 1
    assert "Item" not in table.get_item(Key={"PK": "USER#9002", "SK": "PROFILE"})
    shipped = table.query(IndexName="GSI2", KeyConditionExpression=Key("GSI2PK").eq("STATUS#shipped"))[
        "Items"
    ]
    assert [one["createdAt"] for one in shipped] == ["2026-07-01T12:00:00"]
    active = table.query(IndexName="GSI4", KeyConditionExpression=Key("GSI4PK").eq("ACTIVE_ORDER"))["Items"]
    assert active == []


@pytest.mark.parametrize(
    ("words", "reasons"),
    [
        ((9003, 9001, 20, 2, "2026-07-02T12:00:00"), ["None", "ConditionalCheckFailed", "None"]),
        ((9004, 4711, 20, 1, "2026-07-02T12:00:00"), ["ConditionalCheckFailed", "None", "None"]),
    ],
)
def test_an_order_that_must_not_be_changes_nothing(
    names: dict[str, Any], words: tuple[Any, ...], reasons: list[str]
) -> None:
    table = names["table"]
    refused = names["client"].exceptions.TransactionCanceledException
    with pytest.raises(refused) as told:
        names["order"](*words)
    assert [one["Code"] for one in told.value.response["CancellationReasons"]] == reasons
    assert table.get_item(Key={"PK": "PRODUCT#20", "SK": "METADATA"})["Item"]["stock"] == 1


def test_the_job_of_after_is_one(tmp_path: Path) -> None:
    job = tmp_path / "shop.yaml"
    (text,) = YAML.findall((ROOT / "docs" / "after.md").read_text(encoding="utf-8"))
    job.write_text(f"job: 1\nmapping: m.yaml\nsource: sqlite:///no.db\n{text}")
    assert load_job(job, {}).direct == ("order", "order_item")
