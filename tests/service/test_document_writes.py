"""A service on boto3 that writes old tables: items made right after each write, by whatever call; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import boto3
import pytest
from botocore.exceptions import ClientError

from migrator.api import Migration
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError, UnmarkedError
from tests import pins
from tests.journeys.documents import Shop, old_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Iterator[Shop]:
    with old_shop(tmp_path, dynamodb_url) as made:
        yield made


@pytest.fixture
def client(dynamodb_url: str) -> Any:
    """The service's own."""
    return boto3.client("dynamodb", **at(dynamodb_url))


def at(url: str) -> dict[str, str]:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return {**keys, "region_name": "us-east-1", "endpoint_url": url}


def items(shop: Shop, pk: str) -> dict[str, dict[str, Any]]:
    """By sort key, those that readers see."""
    found = shop.tables.client.query(
        TableName=shop.project.table,
        KeyConditionExpression="PK = :pk",
        ExpressionAttributeValues={":pk": {"S": pk}},
        ConsistentRead=True,
    )["Items"]
    return {item["SK"]["S"]: item for item in found if item["type"]["S"] != "_tombstone"}


def order(number: int, user: str, status: str) -> dict[str, Any]:
    placed = f"2024-05-01T10:00:{number:02}Z"
    return {
        "order_id": {"S": f"n{number}"},
        "user_id": {"S": user},
        "placed": {"S": placed},
        "status": {"S": status},
    }


PLACED = "ORDER#2024-05-01T10:00:01Z#n1"


def test_items_follow_each_call_before_it_returns(shop: Shop, client: Any) -> None:
    orders, lines = shop.real["Orders"], shop.real["Lines"]
    with Migration.load(shop.job) as migration:
        migration.dual_write(client, mode="strict", longest_write_s=120)
        client.put_item(TableName=orders, Item=order(1, "u1", "open"))
        assert items(shop, "USER#u1")[PLACED]["userName"]["S"] == "Name 1"
        client.update_item(
            TableName=orders,
            Key={"order_id": {"S": "n1"}},
            UpdateExpression="SET #s = :paid",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":paid": {"S": "paid"}},
        )
        assert items(shop, "USER#u1")[PLACED]["status"]["S"] == "paid"
        client.delete_item(TableName=orders, Key={"order_id": {"S": "n1"}})
        assert PLACED not in items(shop, "USER#u1")
        writes = [
            {"PutRequest": {"Item": {"order_id": {"S": "o1"}, "line": {"N": "7"}, "sku": {"S": "s"}}}},
            {"DeleteRequest": {"Key": {"order_id": {"S": "o1"}, "line": {"N": "2"}}}},
        ]
        client.batch_write_item(RequestItems={lines: writes})
        assert set(items(shop, "ORDER#o1")) == {"LINE#001", "LINE#007"}
    # Nothing is listened to any more: the stream alone tells of it.
    client.put_item(TableName=orders, Item=order(2, "u1", "open"))
    assert "ORDER#2024-05-01T10:00:02Z#n2" not in items(shop, "USER#u1")
    shop.project.done("relay", shop.job, "--once")
    assert "clean" in shop.project.done("verify", shop.job).out


@pytest.mark.slow
def test_moved_items_and_other_documents_follow(shop: Shop, client: Any) -> None:
    orders, lines = shop.real["Orders"], shop.real["Lines"]
    with Migration.load(shop.job) as migration:
        migration.dual_write(client, mode="strict", longest_write_s=120)
        client.put_item(TableName=orders, Item=order(1, "u1", "open"))
        client.transact_write_items(
            TransactItems=[
                {"Put": {"TableName": orders, "Item": order(1, "u2", "paid")}},
                {"Delete": {"TableName": lines, "Key": {"order_id": {"S": "o1"}, "line": {"N": "1"}}}},
            ]
        )
        assert PLACED not in items(shop, "USER#u1")
        assert PLACED in items(shop, "USER#u2")
        assert set(items(shop, "ORDER#o1")) == {"LINE#002"}
        # A parent that is named anew.
        client.put_item(TableName=shop.real["Users"], Item={"id": {"S": "u2"}, "name": {"S": "Another"}})
        names = [one["userName"]["S"] for key, one in items(shop, "USER#u2").items() if "ORDER" in key]
        assert set(names) == {"Another"}
    shop.project.done("relay", shop.job, "--once")
    assert "clean" in shop.project.done("verify", shop.job).out


def test_resources_and_batch_writers_are_followed(shop: Shop, client: Any, dynamodb_url: str) -> None:
    table = boto3.resource("dynamodb", **at(dynamodb_url)).Table(shop.real["Lines"])
    with Migration.load(shop.job) as migration:
        migration.dual_write([table, client], flush=True)
        with table.batch_writer() as batch:
            for line in (11, 12):
                batch.put_item(Item={"order_id": "o2", "line": line, "sku": "new"})
        assert {"LINE#011", "LINE#012"} <= set(items(shop, "ORDER#o2"))


@pytest.mark.parametrize(
    "key", [{"N": "5"}, {"S": ""}, {"S": "x" * 2049}], ids=["another type", "empty", "too long"]
)
def test_call_with_invalid_key_raises_error_of_dynamodb(shop: Shop, client: Any, key: dict[str, Any]) -> None:
    with Migration.load(shop.job) as migration:
        migration.dual_write(client, mode="strict", longest_write_s=120)
        with pytest.raises(ClientError) as raised:
            client.put_item(TableName=shop.real["Orders"], Item=order(1, "u1", "open") | {"order_id": key})
    assert raised.value.response["Error"]["Code"] == "ValidationException"


def test_a_call_that_is_refused_by_its_condition_changes_no_item(shop: Shop, client: Any) -> None:
    before = items(shop, "USER#u1")
    with Migration.load(shop.job) as migration:
        migration.dual_write(client, mode="strict", longest_write_s=120)
        with pytest.raises(ClientError):
            client.put_item(
                TableName=shop.real["Users"],
                Item={"id": {"S": "u1"}, "name": {"S": "Another"}},
                ConditionExpression="attribute_not_exists(id)",
            )
    assert items(shop, "USER#u1") == before


@pytest.mark.parametrize(
    ("call", "is_refused"),
    [
        (
            lambda client, table: client.execute_statement(
                Statement=f"DELETE FROM \"{table}\" WHERE id='u1'"
            ),
            True,
        ),
        (
            lambda client, table: client.execute_statement(
                Statement=f"SELECT * FROM \"{table}\" WHERE id='u1'"
            ),
            False,
        ),
        (
            lambda client, table: client.batch_execute_statement(
                Statements=[{"Statement": f"UPDATE \"{table}\" SET name='x' WHERE id='u1'"}]
            ),
            True,
        ),
    ],
)
def test_only_a_writing_partiql_statement_is_refused(
    shop: Shop, client: Any, call: Callable[[Any, str], Any], is_refused: bool
) -> None:
    with Migration.load(shop.job) as migration:
        migration.dual_write(client, mode="strict", longest_write_s=120)
        if not is_refused:
            call(client, shop.real["Users"])
            return
        with pytest.raises(UnmarkedError, match="PartiQL"):
            call(client, shop.real["Users"])
    assert "PROFILE" in items(shop, "USER#u1")


@pytest.mark.parametrize("mode", ["strict", "outbox"])
def test_missing_new_table_fails_only_a_strict_call(
    shop: Shop, client: Any, mode: Literal["strict", "outbox"]
) -> None:
    """The old table has the change in either case, and its stream tells of it."""
    with Migration.load(shop.job) as migration:
        migration.dual_write(client, mode=mode, flush=True)
        shop.tables.client.delete_table(TableName=shop.project.table)
        put = {"TableName": shop.real["Orders"], "Item": order(3, "u1", "open")}
        if mode == "outbox":
            client.put_item(**put)
        else:
            with pins.refused(MigratorError) as raised:
                client.put_item(**put)
            assert isinstance(raised.value, StoppedError)
    assert "Item" in client.get_item(TableName=shop.real["Orders"], Key={"order_id": {"S": "n3"}})


def test_what_does_not_fit_is_reported_at_the_start(shop: Shop, client: Any) -> None:
    with Migration.load(shop.job) as migration:
        with pins.refused(SettingsError, "streams"):
            migration.dual_write(client)
        with pins.refused(SettingsError, "resource"):
            migration.dual_write(object(), mode="strict")
        with pins.refused(SettingsError, "tables"):
            migration.begin_marking()
    shop.project.done("capture", "uninstall", shop.job)
    with Migration.load(shop.job) as migration, pins.refused(SettingsError, "install"):
        migration.dual_write(client, mode="strict", longest_write_s=120)


def test_a_service_is_seen_as_a_writer(shop: Shop, client: Any) -> None:
    with Migration.load(shop.job, service="orders") as migration:
        migration.dual_write(client, mode="strict", longest_write_s=120)
        status = shop.project.run("status", shop.job, "--json")
        assert "orders" in json.dumps(status.data)
