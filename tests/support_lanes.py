"""The ways by which requests reach DynamoDB: the same tests run on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from migrator.dynamodb.exchange import BOTOCORE
from tests.faults.forward import ForwardProxy

EXCHANGE = "exchange"
"""Prepared bodies on connections of our own, which needs nothing to be set."""
PROXY = "proxy"
"""Prepared bodies by botocore, because a proxy is set: a real one, through which every request goes."""
LANES = (EXCHANGE, PROXY)


@contextmanager
def lane_of(name: str, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Requests of clients that are made inside go by the lane."""
    if name != PROXY:
        patch.setenv("MIGRATOR_LANE", name)
        yield name
        return
    patch.setenv("MIGRATOR_LANE", "")
    with ForwardProxy() as proxy:
        patch.setenv("HTTP_PROXY", proxy.url)
        patch.setenv("NO_PROXY", "")
        yield name
        assert proxy.seen, "nothing went through the proxy"


EACH_LANE = [EXCHANGE, pytest.param(PROXY, marks=pytest.mark.nightly)]
"""Parameters of a test: a landing shows it on one lane, and tests/contract/test_exchange.py that the lanes are one."""


@pytest.fixture(params=EACH_LANE, autouse=True)
def every_lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Imported by a module, it lets all tests of it run on each lane."""
    with lane_of(request.param, monkeypatch) as name:
        yield name


def by_botocore(client: Any) -> Any:
    """The client, whose requests and answers are made by botocore alone from now on: what those of ours are compared with."""
    client.close()
    client.exchange = None
    return client


__all__ = [
    "BOTOCORE",
    "EACH_LANE",
    "EXCHANGE",
    "LANES",
    "PROXY",
    "by_botocore",
    "every_lane",
    "lane_of",
]
