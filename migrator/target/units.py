"""What answers of DynamoDB say that requests consumed, and what became of the requests of all stores of one client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from migrator.runtime.measures import Counts
from migrator.target.throttle import TABLE

# ── What an answer says that a request consumed ──
#
# Source: API reference, ConsumedCapacity. That it is there is required where it was asked for (target/answers.py); an
# endpoint that is not AWS may leave out what it says of indexes.


def consumed_units(answer: Mapping[str, Any]) -> float:
    """Capacity units in all, those of indexes included; 0 where the endpoint names none."""
    return sum(float(part.get("CapacityUnits", 0.0)) for part in _parts(answer))


def consumed_by_meter(answer: Mapping[str, Any]) -> dict[str, float] | None:
    """Units of the table (its local indexes included) and of each global index; None where the answer has none.

    Needs ReturnConsumedCapacity: INDEXES; from an answer without that, all is taken for the table's.
    """
    units: Counter[str] = Counter()
    is_reported = False
    for part in _parts(answer):
        is_reported = True
        indexes = part.get("GlobalSecondaryIndexes") or {}
        apart = {name: float(index.get("CapacityUnits", 0.0)) for name, index in indexes.items()}
        # Taken from the sum: local indexes stand beside "Table" there, and draw on the table's capacity.
        units.update(apart | {TABLE: float(part.get("CapacityUnits", 0.0)) - sum(apart.values())})
    return dict(units) if is_reported else None


def _parts(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """One part per table; a batch answers with a list, another operation with the part itself."""
    capacity = answer.get("ConsumedCapacity") or []
    yield from (part for part in ([capacity] if isinstance(capacity, Mapping) else capacity) if part)


# ── What became of requests ──


@dataclass
class Sent:
    """What became of the requests of all stores of one client.

    `taken`: how many items were ever taken; only compared with itself, so a lost count between threads does no harm.
    `unanswered`: writes that were cut off, and may take effect later.
    """

    taken: int = 0
    unanswered: int = 0
    consumed: Counts = field(default_factory=Counts)
    """Capacity units by (read or write, index; '' for the table)."""
    throttled: Counts = field(default_factory=Counts)
    """Requests that were not taken, or not whole, for want of capacity, and the units that they asked for."""

    def was_throttled(self, units: float) -> None:
        self.throttled.add(("requests",))
        self.throttled.add(("units",), units)
