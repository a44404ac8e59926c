"""What the whole of Chinook is in its table; the figures are those of the data's README."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from migrator.mapping.model.table import Item
from tests.journeys.command import digest, keys

KEYS = "0e10dfc2f6319e2f47264525d45a6338"
GSI1 = "2472c5c1e196cfbed472dc13b076ec1d"
GSI2 = {
    "sqlite": "b2ce87e87712732a0f0489d0d1f8c634",
    "postgresql": "0542af16537dfbbcc0a1307a6a723430",
    "mariadb": "fac6c125cb028662534577ed149c035e",
}
ROWS = 15_607
ITEMS = 15_666
COUNTS = {
    "Artist": 275,
    "Album": 347,
    "Track": 3503,
    "Genre": 25,
    "MediaType": 5,
    "Playlist": 18,
    "PlaylistTrack": 8715,
    "Employee": 8,
    "Customer": 59,
    "CustomerEmail": 59,
    "Invoice": 412,
    "InvoiceLine": 2240,
}


def assert_whole(items: Sequence[Item], engine: str) -> None:
    """Every item of Chinook, and every entry of its indexes, is there once."""
    assert Counter(str(item["entity"]) for item in items) == COUNTS
    assert len(items) == ITEMS
    assert [len(keys(items, index)) for index in ("GSI1", "GSI2", "GSI3")] == [15_576, 3_974, 1_984]
    assert digest(keys(items)) == KEYS
    assert digest(keys(items, "GSI1")) == GSI1
    assert digest(keys(items, "GSI2")) == GSI2[engine]
