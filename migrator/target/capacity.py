"""What an answer says that a request consumed.

Source: API reference, ConsumedCapacity. That it is there is required where it was asked for (target/answers.py); an
endpoint that is not AWS may leave out what it says of indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from migrator.target.throttle import TABLE


def consumed_units(answer: Mapping[str, Any]) -> float:
    """Capacity units in all, those of indexes included; 0 where the endpoint names none."""
    return sum(float(one.get("CapacityUnits", 0.0)) for one in _parts(answer))


def consumed_by_meter(answer: Mapping[str, Any]) -> dict[str, float] | None:
    """Units of the table (its local indexes included) and of each global index; None where nothing is told.

    Needs ReturnConsumedCapacity: INDEXES; from an answer without that, all is taken for the table's.
    """
    found: Counter[str] = Counter()
    told = False
    for one in _parts(answer):
        told = True
        indexes = one.get("GlobalSecondaryIndexes") or {}
        apart = {name: float(index.get("CapacityUnits", 0.0)) for name, index in indexes.items()}
        # Taken from the sum: local indexes stand beside "Table" there, and draw on the table's capacity.
        found.update(apart | {TABLE: float(one.get("CapacityUnits", 0.0)) - sum(apart.values())})
    return dict(found) if told else None


def _parts(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """One part per table; a batch answers with a list, another operation with the part itself."""
    told = answer.get("ConsumedCapacity") or []
    yield from (one for one in ([told] if isinstance(told, Mapping) else told) if one)
