"""Names of databases in MySQL's GRANTs."""

from __future__ import annotations

import pytest

from migrator.source.engines.mysql.server import is_like


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("shop", "shop", True),
        ("shop_eu", "shop_%", True),
        ("shopXeu", "shop_eu", True),
        ("shopXeu", "shop\\_eu", False),
        ("shop_eu", "shop\\_eu", True),
        ("shop", "sho", False),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("100%", "100\\%", True),
    ],
)
def test_a_grant_names_databases_by_a_pattern(name: str, pattern: str, fits: bool) -> None:
    assert is_like(name, pattern) is fits
