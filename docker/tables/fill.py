"""Builds the three old tables of the shop with the customers and orders of the SQL shop.

    python docker/tables/fill.py --fewer 4 http://127.0.0.1:4566

The same arguments give the same documents everywhere. Only for a DynamoDB on this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shop"))
from build import orders, users

LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEYS = {"Users": ["id"], "Orders": ["order_id"], "OrderLines": ["order_id", "product_id"]}
BY_USER = {
    "IndexName": "by_user",
    "KeySchema": [
        {"AttributeName": "user_id", "KeyType": "HASH"},
        {"AttributeName": "placed", "KeyType": "RANGE"},
    ],
    "Projection": {"ProjectionType": "ALL"},
}

Document = dict[str, Any]


def documents(fewer: int) -> Iterator[tuple[str, Document]]:
    """Documents with their tables. `fewer`: keep one of N orders."""
    for number, email, name, phone, since in users(1):
        contact = {"phone": phone} if phone else {}
        yield (
            "Users",
            {"id": number, "email": email, "name": name, "contact": contact, "since": moment(since)},
        )
    for (number, user, status, _, placed), lines in islice(orders(1), fewer - 1, None, fewer):
        yield (
            "Orders",
            {"order_id": number, "user_id": user, "status": status, "placed": moment(placed)},
        )
        for _, product, quantity, _ in lines:
            yield "OrderLines", {"order_id": number, "product_id": product, "quantity": quantity}


def moment(text: str) -> str:
    return datetime.fromisoformat(text).isoformat(timespec="milliseconds") + "Z"


def make(dynamodb: Any, prefix: str) -> None:
    for name, key in KEYS.items():
        indexed = {"GlobalSecondaryIndexes": [BY_USER]} if name == "Orders" else {}
        others = [("user_id", "N"), ("placed", "S")] if name == "Orders" else []
        types = [*((part, "N") for part in key), *others]
        dynamodb.create_table(
            TableName=f"{prefix}{name}",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": part, "KeyType": kind}
                for part, kind in zip(key, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[{"AttributeName": part, "AttributeType": type_} for part, type_ in types],
            **indexed,
        ).wait_until_exists()


def fill(dynamodb: Any, prefix: str, fewer: int) -> dict[str, int]:
    """Number of documents by table."""
    counts = dict.fromkeys(KEYS, 0)
    with (
        dynamodb.Table(f"{prefix}Users").batch_writer() as customers,
        dynamodb.Table(f"{prefix}Orders").batch_writer() as placed,
        dynamodb.Table(f"{prefix}OrderLines").batch_writer() as lines,
    ):
        writers = {"Users": customers, "Orders": placed, "OrderLines": lines}
        for name, document in documents(fewer):
            writers[name].put_item(Item=document)
            counts[name] += 1
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("endpoint", help="URL of a DynamoDB on this machine")
    parser.add_argument("--fewer", type=int, default=1, help="keep one of N orders")
    parser.add_argument("--prefix", default="", help="prefix of the table names")
    asked = parser.parse_args()
    if urlsplit(asked.endpoint).hostname not in LOOPBACK:
        parser.error("this makes tables: it is for a DynamoDB on this machine alone")
    if asked.fewer < 1:
        parser.error("--fewer starts at 1")
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "eu-central-1"}
    dynamodb = boto3.resource("dynamodb", endpoint_url=asked.endpoint, **keys)
    make(dynamodb, asked.prefix)
    counts = fill(dynamodb, asked.prefix, asked.fewer)
    print(f"the old tables: {', '.join(f'{count:,} {name}' for name, count in counts.items())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
