"""Spoils items of the shop's table on purpose, past the migrator, so that the demo has something to find.

    python docker/shop/plant.py products http://127.0.0.1:4566     three kinds of corruption, one item each
    python docker/shop/plant.py orders http://127.0.0.1:4566       orders of every third customer lose their status

It is for a table on this machine alone.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any
from urllib.parse import urlsplit

import boto3

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TABLE = "AppTable"


def products(table: Any) -> list[str]:
    """A value, a type and an item that is not there any more."""
    key = {"SK": "METADATA"}
    table.update_item(
        Key={"PK": "PRODUCT#7", **key},
        UpdateExpression="SET price = price + :more",
        ExpressionAttributeValues={":more": 1},
    )
    price = table.get_item(Key={"PK": "PRODUCT#20", **key})["Item"]["price"]
    table.update_item(
        Key={"PK": "PRODUCT#20", **key},
        UpdateExpression="SET price = :text",
        ExpressionAttributeValues={":text": str(price)},
    )
    table.delete_item(Key={"PK": "PRODUCT#33", **key})
    return ["PRODUCT#7: another price", "PRODUCT#20: a price as text", "PRODUCT#33: deleted"]


def orders(table: Any) -> list[str]:
    spoilt = 0
    for user in range(1, 2001, 3):
        asked = {":user": f"USER#{user}", ":order": "ORDER#"}
        condition = "PK = :user AND begins_with(SK, :order)"
        found = table.query(KeyConditionExpression=condition, ExpressionAttributeValues=asked)["Items"]
        for item in found:
            table.update_item(
                Key={"PK": item["PK"], "SK": item["SK"]},
                UpdateExpression="SET #s = :lost",
                ExpressionAttributeNames={"#s": "status"},
                ExpressionAttributeValues={":lost": "lost"},
            )
        spoilt += len(found)
    return [f"{spoilt:,} orders: status 'lost'"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["products", "orders"])
    parser.add_argument("endpoint", help="of a DynamoDB on this machine")
    asked = parser.parse_args()
    if urlsplit(asked.endpoint).hostname not in LOOPBACK:
        parser.error("this spoils data: it is for a table on this machine alone")
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "eu-central-1"}
    table = boto3.resource("dynamodb", endpoint_url=asked.endpoint, **keys).Table(TABLE)
    for line in {"products": products, "orders": orders}[asked.what](table):
        print(f"spoilt: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
