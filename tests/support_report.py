"""Reports made by hand, for tests of all forms of them."""

from __future__ import annotations

import math

from migrator.mapping.model.capacity import Costs, HotKey, PatternCost, PlaceSizes, Spread
from migrator.mapping.model.report import (
    Cell,
    Coverage,
    Curve,
    Facet,
    Group,
    InstanceReport,
    LagReport,
    PatternReport,
    PhaseMove,
    Refused,
    ReportModel,
    RunReport,
    SampleItem,
    Series,
    ShownCollection,
    ShownDifference,
    Span,
    Verdict,
    View,
    WorkSpan,
)
from migrator.stages.patterns.latencies import CURVE

NOW_S = 1_772_370_300.0
MINUTE_S = 60


def curve(p50_ms: float, p99_ms: float, answers: int = 1_200) -> Curve:
    """A curve through these two, rising with each nine."""
    slope = math.log(p99_ms / p50_ms) / 1.7
    points = tuple((share, round(p50_ms * math.exp(slope * (_nines(share) - 0.3)), 3)) for share in CURVE)
    return Curve(answers, points, points[-1][1] * 1.7)


def _nines(share: float) -> float:
    return -math.log10(1 - share / 100)


def sides(**values: tuple[str | None, str | None]) -> list[Cell]:
    return [Cell(name, sql, item, sql != item) for name, (sql, item) in values.items()]


PRICE = Group(
    "g-11aa22bb33",
    ("replay", "service"),
    "get_product",
    "",
    "value",
    "price",
    214,
    "SQL's is 100 times the item: another unit, such as cents and dollars",
    "change the mapping or the pattern's SQL; `compare:` in the pattern where both are right",
    [
        ShownDifference(
            "g-11aa22bb33",
            NOW_S - 60 * number,
            {"product_id": str(4_711 + number)},
            cells=sides(
                productId=(str(4_711 + number), str(4_711 + number)),
                name=('"Enamel mug, 0.3 l"', '"Enamel mug, 0.3 l"'),
                price=(f"{1_290 + number}", f"{(1_290 + number) / 100:.2f}"),
                stock=("17", "17"),
            ),
        )
        for number in range(8)
    ],
)
MISSING = Group(
    "g-44cc55dd66",
    ("service",),
    "order_with_items",
    "items",
    "missing",
    "",
    37,
    "changes on their way: 12 changes wait for a relay",
    "`migrator relay JOB`, then compare again",
    [
        ShownDifference(
            "g-44cc55dd66",
            NOW_S - 400,
            {"order_id": "90211"},
            cells=sides(productId=("12", None), quantity=("3", None), price=("8.50", None)),
        )
    ],
)
EMAIL = Group(
    "g-77ee88ff99",
    ("verify",),
    "user",
    "",
    "different",
    "email",
    2,
    "",
    "look at the examples; if the item is old: `migrator verify JOB --repair`, then `migrator relay JOB --once`",
    [
        ShownDifference(
            "g-77ee88ff99",
            row_key=f"[{number}]",
            item_key=f'["USER#{number}","PROFILE"]',
            why="the attribute's value differs",
            cells=sides(
                PK=(f'"USER#{number}"', f'"USER#{number}"'), email=("…3fa9", "…90c1"), name=('"Ada"', '"Ada"')
            ),
        )
        for number in (4, 19)
    ],
)
PATTERNS = (
    PatternReport("orders_of_day", "off", 0.0),
    PatternReport(
        "get_product",
        "shadow",
        NOW_S - 90_000,
        2_400,
        2_180,
        6,
        214,
        coverage=[Coverage((), 2_400, 40, ("replay", "service"))],
        latency={"table": curve(4.1, 17.5), "sql": curve(2.2, 31.0)},
    ),
    PatternReport(
        "order_with_items",
        "ramp 10 %",
        NOW_S - 7_200,
        1_940,
        1_880,
        23,
        37,
        errors={"table": 3},
        dropped={"busy": 12},
        coverage=[
            Coverage((), 900, 65, ("service",)),
            Coverage(("since", "status"), 1_040, 65, ("service",)),
        ],
        latency={"table": curve(6.4, 22.0), "sql": curve(3.9, 48.0)},
        budget_ms=20.0,
    ),
    PatternReport(
        "recent_orders",
        "live",
        NOW_S - 260_000,
        5_820,
        5_820,
        0,
        0,
        outdated=300,
        coverage=[Coverage(("limit",), 5_820, 12, ("service",))],
        latency={"table": curve(5.0, 14.2), "sql": curve(9.5, 120.0)},
    ),
)
MODEL = ReportModel(
    job="shop",
    journal="/srv/jobs/.migrator/shop.db",
    table="AppTable",
    revision="4f0c9a7be31d55aa",
    version="0.1.0",
    made_at=NOW_S,
    since_s=7 * 86_400.0,
    verdict=Verdict(
        "different",
        "Differences stand; do not move a pattern yet",
        (
            "2 differences between rows and items, in user",
            "251 answers differ, of get_product, order_with_items",
            "3 rows were refused and have no items",
            "1 of 4 patterns were not compared by this mapping: orders_of_day",
        ),
        "migrator verify jobs/shop.yaml --repair",
        "queue the rows that differ for the relay",
    ),
    patterns=PATTERNS,
    moves=(
        PhaseMove(
            NOW_S - 7_200, "order_with_items", "shadow", "ramp 10 %", "ann", "evidence of 3 days", False
        ),
        PhaseMove(NOW_S - 260_000, "recent_orders", "ramp 100 %", "live", "bob", "a demo", True),
    ),
    groups=(PRICE, MISSING, EMAIL),
    timeline=Series(
        900,
        tuple(
            Span(
                int(NOW_S) // 900 * 900 - 900 * (70 - place),
                int(120 + 70 * math.sin(place / 9) + 13 * (place % 3)),
                place % 7 // 5,
                max(0, int(9 * math.sin((place - 40) / 6))) if place > 40 else 0,
                2 if place == 58 else 0,
            )
            for place in range(71)
        ),
    ),
    work=Series(
        900,
        tuple(
            WorkSpan(
                int(NOW_S) // 900 * 900 - 900 * (70 - place),
                40_000 if place < 4 else int(300 + 250 * math.sin(place / 7)),
                61_000.5 if place < 4 else int(420 + 330 * math.sin(place / 7)),
                0.0 if place < 4 else round(2 + 1.5 * math.sin(place / 3), 1) + (90 if place == 44 else 0),
            )
            for place in range(71)
        ),
    ),
    costs=Costs(
        (
            PatternCost("orders_of_day", None, None, None, None, None),
            PatternCost("get_product", 0.5, 4.0, 4.1, 0.8, 0.82),
            PatternCost("order_with_items", 1.5, 2.0, 2.5, 1.2, 1.5),
            PatternCost("recent_orders", 6.25, 120.0, 120.0, 300.4, 300.4),
        ),
        (
            PlaceSizes(
                "",
                96_702,
                40_000_000,
                48_000,
                Spread(900, 40_000, 650_000),
                Spread(2, 90, 1_200),
                (
                    HotKey("USER#4", 1_200, 650_000, 0.016, ("Order", "User")),
                    HotKey("USER#19", 300, 90_000, 0.002, ("Order", "User")),
                ),
                False,
            ),
        ),
        False,
        "eu-central-1, 2025",
        "",
    ),
    lag=LagReport(12, 4.2, 0, ("relay",)),
    runs=(
        RunReport(
            "backfill", 1, "done", "2026-02-27 08:12:01", "", "", 48_210, 96_702, 3, {"refused": 3}, None
        ),
        RunReport(
            "verify", 4, "done", "2026-03-01 06:00:12", "", "", 48_377, 97_031, 3, {"different": 2}, True
        ),
        RunReport("relay", 2, "running", "2026-02-27 09:00:00", "", "", 0, 0, 0, {}, None),
    ),
    refused=(
        Refused("order", "item Order: the base key has no value (invoice_no is NULL)", 3, ("[77]", "[91]")),
    ),
    instances=(
        InstanceReport("shop-api 1.4.2", "web-1:4711", "dual_write", "outbox", 3.0, True, False),
        InstanceReport("shop-api 1.4.1", "web-2:4801", "read", "", 700.0, False, True),
    ),
    views=(
        View(
            "",
            ("PK",),
            ("SK",),
            "all",
            (
                Facet(
                    "user",
                    "User",
                    {"PK": "USER#{id}", "SK": "PROFILE"},
                    ("userId", "name", "email", "createdAt"),
                ),
                Facet(
                    "order",
                    "Order",
                    {"PK": "USER#{user_id}", "SK": "ORDER#{created_at|iso:s}#{id:010}"},
                    ("orderId", "status", "total"),
                ),
            ),
            (
                ShownCollection(
                    '"USER#1"',
                    (
                        SampleItem(
                            "Order",
                            {"PK": '"USER#1"', "SK": '"ORDER#2026-02-01T10:12:00Z#0000000012"'},
                            {"orderId": "12", "status": '"shipped"', "total": "129.90"},
                        ),
                        SampleItem(
                            "User",
                            {"PK": '"USER#1"', "SK": '"PROFILE"'},
                            {
                                "userId": "1",
                                "name": '"Ada"',
                                "email": "…3fa9",
                                "createdAt": '"2024-05-01T08:00:00Z"',
                            },
                        ),
                    ),
                ),
            ),
        ),
        View(
            "GSI1",
            ("GSI1PK",),
            ("GSI1SK",),
            "all",
            (
                Facet(
                    "user", "User", {"GSI1PK": "EMAIL#{email|lower}", "GSI1SK": "PROFILE"}, ("userId", "name")
                ),
            ),
        ),
    ),
    notes=(),
)
