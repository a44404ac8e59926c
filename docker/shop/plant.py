"""Writes items of the shop's table behind migrator's back: corrupts some, so that the demo has something to find.

    python docker/shop/plant.py products http://127.0.0.1:4566     three kinds of corruption, one item each
    python docker/shop/plant.py orders http://127.0.0.1:4566       the newest order of every third customer loses its status
    python docker/shop/plant.py lines http://127.0.0.1:4566        no corruption: a service writes a line of an order itself

Only for a table on this machine.
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
    newest = {"KeyConditionExpression": "PK = :user AND begins_with(SK, :order)", "ScanIndexForward": False}
    spoilt = 0
    with table.batch_writer() as batch:
        for user in range(1, 2001, 3):
            asked = {":user": f"USER#{user}", ":order": "ORDER#"}
            found = table.query(**newest, Limit=1, ExpressionAttributeValues=asked)["Items"]
            for item in found:
                batch.put_item(Item=item | {"status": "lost"})
            spoilt += len(found)
    return [f"{spoilt:,} orders: status 'lost'"]


def lines(table: Any) -> list[str]:
    """Change the quantity of order 8000's first line."""
    key = {"KeyConditionExpression": "PK = :order AND begins_with(SK, :item)", "Limit": 1}
    (line,) = table.query(**key, ExpressionAttributeValues={":order": "ORDER#8000", ":item": "ITEM#"})[
        "Items"
    ]
    table.put_item(Item={name: value for name, value in line.items() if name[0] != "_"} | {"quantity": 9})
    return [f"{line['PK']} {line['SK']}: quantity 9"]


KINDS = {"products": products, "orders": orders, "lines": lines}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=list(KINDS))
    parser.add_argument("endpoint", help="URL of a DynamoDB on this machine")
    asked = parser.parse_args()
    if urlsplit(asked.endpoint).hostname not in LOOPBACK:
        parser.error("this spoils data: it is for a table on this machine alone")
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "eu-central-1"}
    table = boto3.resource("dynamodb", endpoint_url=asked.endpoint, **keys).Table(TABLE)
    for line in KINDS[asked.what](table):
        print(f"written: {line}" if asked.what == "lines" else f"spoilt: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
