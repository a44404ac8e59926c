"""Claimed keys in bounded memory; bench/ does the same with ten million."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.test_claims import held


@pytest.mark.nightly
def test_half_a_million_keys_are_claimed_in_bounded_memory(tmp_path: Path) -> None:
    held(tmp_path, 500_000)
