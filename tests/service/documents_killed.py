"""A service on boto3 that is killed: it writes old tables, each call with documents of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import boto3
import orjson

from migrator.api import Migration
from tests.service.killed import Life, serve

Tables = Mapping[str, str]
"""The names in the account by those of the mapping."""


def client_at(url: str) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.client("dynamodb", region_name="us-east-1", endpoint_url=url, **keys)


def user(number: int, name: str) -> dict[str, Any]:
    return {"id": {"S": f"k{number}"}, "name": {"S": name}}


def order(number: int, of: int, status: str) -> dict[str, Any]:
    placed = {"S": "2024-05-01T10:00:00Z"}
    return {
        "order_id": {"S": f"n{number}"},
        "user_id": {"S": f"k{of}"},
        "placed": placed,
        "status": {"S": status},
    }


def before(client: Any, tables: Tables, first: int) -> None:
    """The documents that the calls find: two users, the first with two orders."""
    for n in (first, first + 1):
        client.put_item(TableName=tables["Users"], Item=user(n, f"u{n}"))
        client.put_item(TableName=tables["Orders"], Item=order(n, first, "open"))


def rename_the_parent(client: Any, tables: Tables, first: int) -> None:
    """Items of three documents follow."""
    client.put_item(TableName=tables["Users"], Item=user(first, "another"))


def change_the_parent(client: Any, tables: Tables, first: int) -> None:
    """An item moves."""
    client.put_item(TableName=tables["Orders"], Item=order(first, first + 1, "moved"))


def several_at_once(client: Any, tables: Tables, first: int) -> None:
    key = {"order_id": {"S": f"n{first}"}}
    client.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": tables["Orders"], "Item": order(first + 2, first, "new")}},
            {"Put": {"TableName": tables["Users"], "Item": user(first + 2, "new")}},
            {"Delete": {"TableName": tables["Orders"], "Key": key}},
        ]
    )


CALLS: dict[str, Callable[[Any, Tables, int], None]] = {
    one.__name__: one for one in (rename_the_parent, change_the_parent, several_at_once)
}


def _on_tables(url: str, tables: Tables, migration: Migration, life: Life) -> Callable[[], object]:
    client = client_at(url)
    migration.dual_write(client, mode="strict", longest_write_s=120)
    return partial(CALLS[life.transaction], client, tables, life.first)


if __name__ == "__main__":
    on_tables = partial(_on_tables, sys.argv[2], orjson.loads(sys.argv[3]))
    serve(sys.argv[1], on_tables, Life("strict", next(iter(CALLS)), 0, 0))
