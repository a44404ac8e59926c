"""An estimate in words and as plain data."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from migrator.mapping.costs import Estimate, Price

_MB = 1024**2


def estimate_data(found: Estimate, price: Price | None) -> dict[str, Any]:
    """The estimate as plain values; dollars None where the region's price is not known."""
    return {
        "rows": found.rows,
        "items": found.items,
        "write_units": found.write_units,
        "index_write_units": found.index_units,
        "stored_bytes": found.stored_bytes,
        "write_usd": None if price is None else float(found.write_cost(price)),
        "storage_usd_a_month": None if price is None else float(found.storage_cost(price)),
        "region": None if price is None else price.region,
        "prices": None if price is None else price.source,
    }


def estimate_line(found: Estimate, price: Price | None, unpriced: str) -> str:
    """One line: what the rows take, and what that costs on AWS; `unpriced`: why that is not known."""
    units = f"{found.write_units:,} write units, {found.index_units:,} of them for indexes"
    taken = f"{found.rows:,} rows make about {found.items:,} items: {units}; {found.stored_bytes / _MB:,.1f} MB stored"
    if price is None:
        return f"estimate: {taken}; {unpriced}"
    write, month = usd(found.write_cost(price)), usd(found.storage_cost(price))
    where = f"{price.region}, infrequent access," if price.infrequent else price.region
    costs = f"on demand in {where} {write} to write, {month} a month to keep"
    return f"estimate: {taken}; {costs} (prices of {price.source})"


def usd(amount: Decimal) -> str:
    return f"USD {amount:,.2f}" if amount >= Decimal("0.01") or amount == 0 else "less than USD 0.01"
