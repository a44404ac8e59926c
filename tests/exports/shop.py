"""The shop's mapping with some rows of each table, and every pattern of it asked once at least."""

from __future__ import annotations

from tools.pages.golden import ROOT, GoldenQuery

SHOP = ROOT / "mappings" / "ecommerce.yaml"
_ROWS = """
INSERT INTO users VALUES (7, 'ann@example.com', 'Ann', NULL, '2026-01-02 03:04:05'), (8, 'Bo@x', 'a ${b} `c`', '1', '2026-02-03');
INSERT INTO categories VALUES ('toys', 'Toys');
INSERT INTO products VALUES (1, 'toys', 'Mug', 9.5, 3, NULL), (2, 'toys', 'Cap', 1234.25, 0, 'u');
INSERT INTO orders VALUES (42, 7, 'pending', 149.9, '2026-06-10 14:32:00.123'), (43, 7, 'shipped', 20, '2026-07-01 09:00:00');
INSERT INTO order_items VALUES (42, 1, 2, 9.5), (42, 2, 1, 15), (43, 2, 3, 15.25);
INSERT INTO sessions VALUES ('s1', 7, '2026-01-01 00:00:00', '2099-01-01 00:00:00'), ('s2', 8, '2026-01-01', '2020-01-01');
"""
SHOP_SCRIPT = (ROOT / "docker" / "shop" / "schema.sql").read_text(encoding="utf-8") + _ROWS
"""The shop's tables and rows, for SQLite."""
SHOP_QUERIES = [
    GoldenQuery(pattern, params, {})
    for pattern, params in (
        ("get_user", {"user_id": "7"}),
        ("get_user", {"user_id": "9"}),
        ("get_user_with_orders", {"user_id": "7"}),
        ("recent_orders", {"user_id": "7", "limit": "1"}),
        ("user_by_email", {"email": "ann@example.com"}),
        ("get_order", {"user_id": "7", "created_at": "2026-07-01 09:00:00", "order_id": "43"}),
        ("order_with_items", {"order_id": "42"}),
        ("orders_of_product", {"product_id": "2"}),
        ("get_orders_by_status", {"status": "pending"}),
        ("get_orders_by_status", {"status": "shipped", "since": "2026-07-02"}),
        ("get_all_active_orders", {}),
        ("get_product", {"product_id": "1"}),
        ("get_products_by_category", {"category": "toys"}),
        ("get_products_by_category", {"category": "toys", "min_price": "9.50", "max_price": "100"}),
        ("products_of_category", {"category": "toys"}),
        ("get_session", {"session_id": "s1"}),
        ("get_session", {"session_id": "s2"}),
    )
]
