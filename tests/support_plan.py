"""Plans made by hand: one with everything that a page can hold, and the same with texts that would break it."""

from __future__ import annotations

from decimal import Decimal

from migrator.mapping.model.capacity import (
    Advice,
    Bills,
    Capacity,
    HotKey,
    Load,
    PatternReads,
    PlaceSizes,
    Rewrite,
    Spread,
    TypeSize,
    WriteRates,
)
from migrator.runtime.values import replace

READS = (
    PatternReads(
        "orders_of_customer",
        "",
        "CUSTOMER#{id}, begins_with ORDER#",
        "query",
        12.5,
        100,
        7.25,
        3_000.0,
        1.0,
        1,
        0.75,
        2.0,
        True,
    ),
    PatternReads(
        "open_orders",
        "GSI1",
        "STATUS#{status}, between {from|iso:s} and {to|iso:s}",
        "query",
        None,
        10,
        90_000.0,
        4e7,
        38.2,
        60,
        4_900.0,
        8_000.0,
        False,
    ),
    PatternReads(
        "lost",
        "GSI2",
        "EMAIL#{email|lower}",
        "query",
        0.001,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        True,
        "there is no row that it reads",
    ),
)
PLACES = (
    PlaceSizes(
        "", 1_500_000, 700_000_000, 120_000, Spread(900, 40_000, 6_500_000), Spread(3, 90, 12_000),
        tuple(HotKey(f"CUSTOMER#{n:06}", 12_000 // (n + 1), 6_500_000 // (n + 1), 0.0093 / (n + 1), ("Customer", "Order"), 1_250.0 / (n + 1)) for n in range(10)),
        False,
    ),
    PlaceSizes("GSI1", 900_000, 90_000_000, 3, Spread(2_000_000, 80_000_000, 80_000_000), Spread(20_000, 800_000, 800_000), (HotKey("STATUS#open", 800_000, 80_000_000, 0.88, ("Order",)),), True),
    PlaceSizes("GSI2", 0, 0, 0, Spread(0, 0, 0), Spread(0, 0, 0), (), True),
)  # fmt: skip
ADVICE = (
    Advice(
        "misfit",
        "write units",
        "GSI1",
        "one partition (Order) takes 2,200 write units a second, of 1,000",
        "spread it",
    ),
    Advice(
        "warning",
        "unbounded collection",
        "the table",
        "Order under CUSTOMER#{id}: the largest has 12,000 items",
        "bucket",
    ),
    Advice(
        "advice",
        "projection",
        "GSI1",
        "its patterns need 70% less than it contains (85.8 MB)",
        "project: [id, total]",
    ),
)
PLAN = Capacity(
    table="Shop",
    mapping="mappings/shop.yaml",
    indexes=("GSI1", "GSI2"),
    triggers=12,
    captured=4,
    rows=1_600_000,
    items=1_500_000,
    stored_bytes=1_100_000_000,
    write_units=4_200_000,
    index_units=2_300_000,
    refused=3,
    exact=False,
    types=(TypeSize("Order", "order", 1_400_000, 600_000_000, 390_000, 2.9, {"GSI1": 1.0}, 2, False),),
    patterns=READS,
    places=PLACES,
    rewrites=(
        Rewrite("orders", "order", Spread(1, 1, 1), 1.0, 2.9, True, ("id", "status")),
        Rewrite("customers", "order", Spread(3, 90, 12_000), 90.0, 261.0, True),
        Rewrite("products", "order", None, 0.0, 0.0, False, why="order has more than 100,000 rows"),
    ),
    writes=WriteRates({"orders": 1_100.0}, {("orders", "status"): 200.0}, "the file of statements"),
    advice=ADVICE,
    bills=Bills(Decimal("12.50"), Decimal("4812.25"), Decimal("0.31"), Decimal("2200"), Decimal("3.20"), "eu-central-1, 2025", "1 of 3 patterns have no frequency, and are not counted"),
    load=Load(1_600_000, 3_200, 4, 4_200_000, 4_000.0, 0.13, "what a new table on demand takes at once"),
    unmapped_tables=("audit", "sessions"),
    unmapped_columns={"customers": ("fax", "birthday")},
    usd_a_million_reads=Decimal("0.1525"),
    notes=("the triggers of capture are not counted: no right",),
)  # fmt: skip
OTHER = replace(PLAN, mapping="mappings/other.yaml", items=1_400_000, advice=ADVICE[1:], patterns=READS[:2])

SCRIPT = '<script>alert("plan")</script><img src=x onerror=alert(1)>\u202e'
LONG = "x" * 600


def hostile_plan() -> Capacity:
    """Every text of it is markup, or too long for any page."""
    hot = replace(PLACES[1].hottest[0], key=f"{SCRIPT}{LONG}", types=(SCRIPT,))
    return replace(
        PLAN,
        table=SCRIPT,
        mapping=f"{LONG}.yaml",
        patterns=[
            replace(READS[0], pattern=SCRIPT, condition=LONG),
            replace(READS[2], why=f"{SCRIPT}{LONG}"),
        ],
        places=[replace(PLACES[1], index=LONG, hottest=(hot,))],
        rewrites=[replace(PLAN.rewrites[2], table=LONG, why=SCRIPT)],
        advice=[Advice("misfit", SCRIPT, LONG, SCRIPT, LONG)],
        unmapped_tables=(SCRIPT, LONG),
        unmapped_columns={LONG: (SCRIPT,)},
        notes=(SCRIPT, LONG),
    )
