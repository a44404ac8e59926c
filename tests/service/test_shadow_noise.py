"""Writes in flight and an index that lags are no differences; ten thousand reads of it are in the soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.noise import noisy_shop, read_all

pytestmark = pytest.mark.slow


def test_what_is_in_flight_is_never_counted(
    postgres_database: str, dynamodb_url: str, tmp_path: Path
) -> None:
    with noisy_shop(
        "postgresql", postgres_database, dynamodb_url, tmp_path, lag_s=2.0, settle_s=30.0
    ) as shop:
        found, samples = read_all(shop, 100, compared=6)
    # A busy machine may let a deadline pass; that is an error, and no difference.
    assert [one for one in samples if one.key.kind != "error"] == []
    assert sum(one.different for one in found.values()) == 0
    assert sum(one.transient for one in found.values()) > 0
