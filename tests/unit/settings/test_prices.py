from __future__ import annotations

from decimal import Decimal

import pytest

from migrator.settings.transforms import known_regions, price_of


@pytest.mark.parametrize("region", ["us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1"])
def test_a_region_has_prices_with_their_date_and_page(region: str) -> None:
    price = price_of(region)
    assert price is not None
    assert Decimal("0.1") < price.read * 4 < price.write < 2
    assert Decimal("0.2") < price.storage < 1
    assert price.source.startswith("20")
    assert "aws.amazon.com/dynamodb/pricing" in price.source


def test_infrequent_access_costs_more_to_write_and_less_to_keep() -> None:
    price = price_of("us-east-1", "standard_infrequent_access")
    assert price is not None
    assert (price.write, price.storage) == (Decimal("0.78125"), Decimal("0.100"))
    assert price_of("us-east-1", "standard") == price_of("us-east-1")


def test_a_region_that_the_file_has_not_is_not_guessed() -> None:
    assert price_of("mars-north-1") is None
    assert price_of(None) is None
    assert "us-east-1" in known_regions()
