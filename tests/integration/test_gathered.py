"""Sets, maps and items of whole tables follow every change of their rows, and verify sees what differs in them."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import sqlalchemy as sa

from migrator.dynamodb.client import dynamodb_client
from migrator.source.engines.connect import source_url
from tests.journeys.command import Project, project
from tests.language.conftest import database_on
from tests.language.engines import ENGINES

MAPPING = """\
mapping: 1
table: {name: Users, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  everything:
    single: true
    collect: {tags: {of: tag, join: {account: account_id}}, accounts: {of: account, count: all}}
    items:
      Everything:
        key: ["ALL#{*|shard:3}", META]
        attributes:
          accounts: accounts
          tags: {each: tags, key: "{account_id}-{label}", attributes: {size: size, name: account.name}}
  account:
    collect: {tags: {of: tag, by: account_id}}
    items:
      Account:
        key: ["USER#{id}", META]
        attributes: {tags: tags.label|set, sizes: tags.size|set, by_label: {each: tags, key: label, attributes: {size: size}}}
"""
SCRIPT = """
CREATE TABLE account (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20));
CREATE TABLE tag (account_id INTEGER NOT NULL, label VARCHAR(20) NOT NULL, size INTEGER NOT NULL,
  PRIMARY KEY (account_id, label), FOREIGN KEY (account_id) REFERENCES account (id));
INSERT INTO account VALUES (1, 'Ann'), (2, 'Bo');
INSERT INTO tag VALUES (1, 'red', 5), (1, 'blue', 5), (2, 'red', 7);
"""


@pytest.fixture(params=ENGINES)
def shop(request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str) -> Project:
    url = database_on(request.param, request, tmp_path)(SCRIPT)
    made = project(tmp_path, url, dynamodb_url, f"T{secrets.token_hex(4)}", text=MAPPING)
    return made.prepared("table create", "capture install", "backfill")


def changed(shop: Project, *statements: str) -> None:
    engine = sa.create_engine(source_url(shop.environment["MIGRATOR_SOURCE_URL"]))
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()
    shop.done("relay", str(shop.job), "--once")


def accounts(shop: Project) -> dict[str, object]:
    return {
        str(item["PK"]): (item.get("tags"), item.get("sizes"), item["by_label"])
        for item in shop.items()
        if item["type"] == "Account"
    }


def test_a_childs_change_is_written_and_verified(shop: Project) -> None:
    assert accounts(shop) == {
        "USER#1": (["blue", "red"], [5], {"red": {"size": 5}, "blue": {"size": 5}}),
        "USER#2": (["red"], [7], {"red": {"size": 7}}),
    }
    changed(
        shop,
        "INSERT INTO tag VALUES (1, 'green', 9)",
        "UPDATE tag SET label = 'pink' WHERE account_id = 1 AND label = 'red'",
        "DELETE FROM tag WHERE account_id = 2",
    )
    assert accounts(shop) == {
        "USER#1": (
            ["blue", "green", "pink"],
            [5, 9],
            {n: {"size": 9 if n == "green" else 5} for n in ("green", "blue", "pink")},
        ),
        "USER#2": (None, None, {}),
    }
    client = dynamodb_client(region=None, profile=None, endpoint=shop.endpoint)
    for members, code in ((["pink", "blue", "green"], 0), (["blue", "pink"], 1)):
        client.update_item(
            TableName=shop.table,
            Key={"PK": {"S": "USER#1"}, "SK": {"S": "META"}},
            UpdateExpression="SET tags = :tags",
            ExpressionAttributeValues={":tags": {"SS": members}},
        )
        assert shop.run("verify", str(shop.job)).code == code


def everything(shop: Project) -> dict[str, object]:
    """What each of the three copies holds."""
    items = {str(item.pop("PK")): item for item in shop.items() if item["type"] == "Everything"}
    assert sorted(items) == ["ALL#0", "ALL#1", "ALL#2"]
    (held,) = {repr([item[name] for name in ("accounts", "tags")]): item for item in items.values()}.values()
    return {name: held[name] for name in ("accounts", "tags")}


def test_item_of_whole_tables_follows_each_row_and_its_parents(shop: Project) -> None:
    first = {"1-red": {"size": 5, "name": "Ann"}, "1-blue": {"size": 5, "name": "Ann"}}
    assert everything(shop) == {
        "accounts": 2,
        "tags": first | {"2-red": {"size": 7, "name": "Bo"}},
    }
    changed(shop, "UPDATE account SET name = 'Cy' WHERE id = 2", "DELETE FROM tag WHERE label = 'blue'")
    changed(
        shop, "INSERT INTO account VALUES (3, 'Di')", "UPDATE tag SET label = 'pink' WHERE account_id = 1"
    )
    pink = {"1-pink": {"size": 5, "name": "Ann"}, "2-red": {"size": 7, "name": "Cy"}}
    assert everything(shop) == {"accounts": 3, "tags": pink}
    assert shop.run("verify", str(shop.job)).code == 0
    changed(shop, "DELETE FROM tag", "DELETE FROM account")
    assert everything(shop) == {"accounts": 0, "tags": {}}
    assert shop.run("verify", str(shop.job)).code == 0
