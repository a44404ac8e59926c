"""A service on boto3 is killed with -9 between any two requests of a strict write to old tables; a relay heals what it left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.documents import old_shop
from tests.service.documents_killed import CALLS, before
from tests.service.killed import ROWS, killing_of
from tests.service.test_strict_kills import MOST_STEPS, killed_at_each

pytestmark = pytest.mark.slow


def test_service_killed_between_any_two_requests_loses_nothing(tmp_path: Path, dynamodb_url: str) -> None:
    with old_shop(tmp_path, dynamodb_url) as shop:
        firsts = [ROWS * number for number in range(1, 1 + len(CALLS) * MOST_STEPS)]
        for first in firsts:
            before(shop.tables.client, shop.real, first)
        shop.project.done("relay", shop.job, "--once")
        places = (shop.job, dynamodb_url, json.dumps(shop.real))
        rows = iter(firsts)
        with killing_of("tests.service.documents_killed", *places) as kill:
            kills = [killed_at_each(kill, "strict", call, rows, range(1, MOST_STEPS)) for call in CALLS]
        assert min(kills) > 3
        assert shop.project.run("verify", shop.job).code == 1
        shop.project.done("relay", shop.job, "--once")
        assert "clean" in shop.project.done("verify", shop.job).out
