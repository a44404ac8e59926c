"""Sets of DynamoDB's: their form, their bytes, and the order of their members."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.mapping.heart.wire import decode, encode, encode_value, value_bytes


@pytest.mark.parametrize(
    ("wired", "size"),
    [
        ({"SS": ["a", "é"]}, 3),
        ({"NS": ["2", "10", "1.5"]}, 6),
        ({"BS": [b"\x01", b"\x02\x03"]}, 3),
    ],
)
def test_a_set_stays_a_set_with_its_members_in_order(wired: dict[str, Any], size: int) -> None:
    value = decode(wired)
    again, bytes_ = encode_value(value)
    assert {form: sorted(members) for form, members in again.items()} == {
        form: sorted(members) for form, members in wired.items()
    }
    assert (bytes_, value_bytes(value)) == (size, size)
    assert encode(list(value)) != again  # type: ignore[arg-type]
