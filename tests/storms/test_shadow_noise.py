"""Ten thousand reads beside writes in flight and an index that lags by up to two seconds: none of it is a difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.noise import noisy_shop, read_all

pytestmark = pytest.mark.nightly


def test_ten_thousand_reads_find_nothing(postgres_database: str, dynamodb_url: str, tmp_path: Path) -> None:
    url = postgres_database
    with noisy_shop("postgresql", url, dynamodb_url, tmp_path, lag_s=2.0, settle_s=10.0) as shop:
        found, samples = read_all(shop, 10_000, pause_s=0.03)
    counts = {name: (one.compared, one.same, one.transient, dict(one.dropped)) for name, one in found.items()}
    # A busy machine may let a deadline pass; that is an error, and no difference.
    assert [one for one in samples if one.key.kind != "error"] == [], counts
    assert sum(one.different for one in found.values()) == 0
    assert sum(sum(one.answered.values()) for one in found.values()) >= 10_000
    assert sum(one.compared for one in found.values()) > 2_000, counts
    assert sum(one.transient for one in found.values()) > 100, counts
    print(counts)
