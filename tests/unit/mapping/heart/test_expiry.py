"""When an item counts as expired: from the second that its TTL names."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.heart.items import is_expired
from migrator.model.results import Request
from migrator.model.table import Item, KeyAttribute, TableDesign
from migrator.stages.patterns.question import shown

TABLE = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type", ttl="expiresAt")
REQUEST = Request("get", (), ("PK", "SK"), type_attribute="type", ttl_attribute="expiresAt")
AT = 1_800_000_000


@pytest.mark.parametrize(
    ("now_s", "expired"), [(AT - 1, False), (AT - 0.001, False), (AT, True), (AT + 1, True)]
)
def test_an_item_expires_in_the_second_of_its_ttl(now_s: float, expired: bool) -> None:
    item: Item = {"type": "User", "expiresAt": AT}
    assert is_expired(item, TABLE, now_s) is expired
    stored = item | {"expiresAt": Decimal(AT)}
    assert shown([stored], REQUEST, now_s) == ([] if expired else [stored])


@pytest.mark.parametrize("value", [None, "1", str(AT)])
def test_an_item_without_a_number_as_ttl_never_expires(value: Any) -> None:
    item = {"type": "User"} | ({"expiresAt": value} if value else {})
    assert not is_expired(item, TABLE, AT + 1)
    assert shown([item], REQUEST, AT + 1) == [item]
