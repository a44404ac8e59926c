"""A small shop: its schema, and orders whose mapping is written on the spot."""

from __future__ import annotations

from typing import Any

from tests.golden.heart import entity, facts, items, table

ORDERS = table(
    "orders",
    {
        "id": "integer!",
        "user_id": "integer",
        "status": "text",
        "total": "number(2)",
        "created_at": "timestamp",
        "paid_at": "timestamp with zone",
        "due": "date",
        "invoice_no": "text",
        "open": "boolean",
        "token": "uuid",
        "weight": "float",
        "picture": "binary",
        "extra": "json",
        "expires_at": "timestamp",
        "expires_s": "integer",
    },
    references={"user_id": "users.id"},
)
USERS = table(
    "users",
    {"id": "integer!", "name": "text", "region_id": "integer"},
    references={"region_id": "regions.id"},
)
REGIONS = table("regions", {"id": "integer!", "name": "text"})
LINES = table(
    "lines",
    {"order_id": "integer!", "product_id": "integer!", "quantity": "integer", "price": "number(2)"},
    ("order_id", "product_id"),
    references={"order_id": "orders.id", "product_id": "products.id"},
)
PRODUCTS = table("products", {"id": "integer!", "name": "text"})
SCHEMA = facts(ORDERS, USERS, REGIONS, LINES, PRODUCTS)

PLAIN = """
entities:
  orders:
    items:
      Order: {key: ["ORDER#{id}", META], %s}
"""


def made(rest: str, row: dict[str, Any]) -> dict[str, Any]:
    """The one item of an order whose mapping has `rest`, without its key, type and source."""
    (item,) = items(entity(PLAIN % rest, SCHEMA), {"id": 7, **row})
    assert item.pop("PK") == "ORDER#7"
    assert item.pop("SK") == "META"
    assert item.pop("type") == "Order"
    assert item.pop("_src") == "orders:[7]"
    return item
