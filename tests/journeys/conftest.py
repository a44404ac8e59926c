"""A job whose patterns are moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.command import Project
from tests.journeys.cutover import cutover_shop


@pytest.fixture
def bare(tmp_path: Path, dynamodb_url: str) -> Project:
    """Neither a table nor marks: what needs no evidence, or overrides it, does without."""
    return cutover_shop(tmp_path, dynamodb_url)
