from __future__ import annotations

from decimal import Decimal

from migrator.cli.text import item_text
from migrator.mapping.model.table import Item


def test_an_item_shows_numbers_as_numbers() -> None:
    item: Item = {"PK": "A", "total": Decimal("32.38"), "code": "32.38", "raw": b"\x00"}
    assert item_text(item) == (
        '{\n  "PK": "A",\n  "total": 32.38,\n  "code": "32.38",\n  "raw": {\n    "b64": "AA=="\n  }\n}'
    )
