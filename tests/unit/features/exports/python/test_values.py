"""Functions that generated modules have a copy of."""

from __future__ import annotations

import pytest

from migrator.features.exports.python.values import RefusedError, _expires


def test_expiry_in_another_unit_is_refused() -> None:
    milliseconds = 4_000_000_000_000
    assert _expires(milliseconds, 0, "UTC", 1000) == 4_000_000_000
    with pytest.raises(RefusedError):
        _expires(milliseconds, 0, "UTC")
    assert _expires(0, 0, "UTC", zero_is_never=True) is None
