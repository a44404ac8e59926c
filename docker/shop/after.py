"""The shop's service on a generated module: a customer's questions, and, on the module for the time after, an order.

    migrator export JOB --as python|boto3 --out modules
    SHOP_MODULE=app_table PYTHONPATH=modules python docker/shop/after.py    # later: app_table_after

The two modules differ only in their names: a caller changes this one import.
"""

from __future__ import annotations

import importlib
import os
import sys
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from migrator.runtime.values import replace

CUSTOMER = 1


def main() -> int:
    module = importlib.import_module(os.environ.get("SHOP_MODULE", "app_table"))
    with module.AppTable.connect() as shop:
        ask(shop)
        ask_everything(shop)
        if hasattr(shop, "put_order"):
            order(module, shop)
    return 0


def ask(shop: Any) -> None:
    account = shop.get_user_with_orders(user_id=CUSTOMER)
    print(f"{account.user.name}: {len(account.orders)} orders")
    for found in shop.recent_orders(user_id=CUSTOMER, limit=3):
        print(f"  order {found.orderId}, {found.status}: {found.total:.2f}")
    for product in shop.get_products_by_category(category="electronics", max_price=Decimal(40))[:3]:
        print(f"  {product.name}: {product.price:.2f}")


def ask_everything(shop: Any) -> None:
    """Number of the shop's questions, and a digest of all answers, for comparison."""
    user, (order,) = shop.get_user(user_id=CUSTOMER), shop.recent_orders(user_id=CUSTOMER, limit=1)
    alike = shop.get_orders_by_status(status=order.status)  # newest first
    placed_at = next(found.createdAt for found in alike if found.userId == CUSTOMER)
    product = shop.order_with_items(order_id=order.orderId).items[0].productId
    answers = [
        shop.get_user(user_id=CUSTOMER),
        shop.get_user_with_orders(user_id=CUSTOMER),
        shop.recent_orders(user_id=CUSTOMER, limit=100),
        shop.user_by_email(email=user.email),
        shop.get_order(user_id=CUSTOMER, created_at=placed_at, order_id=order.orderId),
        shop.order_with_items(order_id=order.orderId),
        shop.orders_of_product(product_id=product),
        shop.get_orders_by_status(status=order.status),
        shop.get_all_active_orders(),
        shop.get_product(product_id=product),
        shop.get_products_by_category(category="electronics"),
        shop.products_of_category(category="electronics"),
        shop.get_session(session_id="b0a6a12ee455ed8e52d013f912fa8478"),
    ]
    texts = [repr(sorted(map(repr, answer)) if isinstance(answer, list) else answer) for answer in answers]
    print(f"{len(answers)} questions, answers {sha256(chr(10).join(texts).encode()).hexdigest()[:12]}")


def order(module: Any, shop: Any) -> None:
    """Place an order, and let two clerks update it concurrently: one gets a conflict."""
    at = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    placed = module.OrderRow(
        id=900_000_001, user_id=CUSTOMER, status="pending", total=Decimal("24.90"), created_at=at
    )
    shop.put_order(placed)
    seen = shop.read_order(user_id=CUSTOMER, created_at=at, id=placed.id)
    shop.change_order(seen, replace(seen, status="shipped"))
    try:
        shop.change_order(seen, replace(seen, status="cancelled"))
    except module.ConflictError as error:
        print(f"the second clerk: {error}")
    found = shop.get_order(user_id=CUSTOMER, created_at=at, order_id=placed.id)
    of_index = shop.get_orders_by_status(status="shipped", since=at)
    print(f"order {found.orderId} is {found.status}, in the table and in its index: {bool(of_index)}")


if __name__ == "__main__":
    sys.exit(main())
