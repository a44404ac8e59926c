"""`migrator doctor --probe` on the local servers: what they lack is told apart from what is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.dynamodb.client import service_client
from migrator.features.probe.assumptions import ASSUMPTIONS, MOST_REQUESTS, ExhaustedError, Probe, result_of
from tests import pins
from tests.journeys.in_process import Ended, run_here

pytestmark = pytest.mark.dynamodb
LACKING = {
    # AWS: names have at least one byte (Developer Guide, "Naming rules and data types").
    "empty text, bytes, map, list, set, name": "differs",
    "point-in-time recovery": "not there",
}
"""What MiniStack or dynoxide do not do as AWS documents it."""


@pytest.fixture
def doctor(tmp_path: Path, dynamodb_url: str) -> Callable[..., Ended]:
    (tmp_path / "mapping.yaml").write_text("mapping: 1\n")
    job = tmp_path / "job.yaml"
    job.write_text(
        f"job: 1\nmapping: mapping.yaml\nsource: {{url: 'sqlite:///none.db'}}\ntarget: {{endpoint: '{dynamodb_url}'}}\n"
    )

    def run(*words: str) -> Ended:
        return run_here(["doctor", str(job), "--probe", *words], tmp_path, dict(os.environ))

    return run


@pytest.fixture
def client(dynamodb_url: str) -> Any:
    return service_client("dynamodb", region=None, profile=None, endpoint=dynamodb_url)


def test_every_assumption_holds_but_for_what_the_server_lacks(
    doctor: Callable[..., Ended], client: Any
) -> None:
    ended = doctor("--json")
    data = json.loads(ended.out)
    found = {one["assumption"]: one["state"] for one in data["assumptions"] if one["state"] != "holds"}
    assert found.items() <= LACKING.items(), data
    assert len(data["assumptions"]) == len(ASSUMPTIONS)
    assert ended.code == ("differs" in found.values())
    assert data["requests"] < MOST_REQUESTS
    assert not [name for name in client.list_tables()["TableNames"] if name.startswith("migrator-probe")]


def test_it_says_before_it_starts_what_it_takes_and_prints_what_differs(
    doctor: Callable[..., Ended],
) -> None:
    ended = doctor()
    assert pins.said(ended.err, "bound")
    assert pins.said(ended.out, "verdict")


def test_wrong_use_is_refused(doctor: Callable[..., Ended]) -> None:
    assert doctor("--write").code == 2
    assert doctor("--role", "relay").code == 2


class WithoutConditions:
    """A client of a server that takes every put."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put_item(self, **words: Any) -> Any:
        for name in ("ConditionExpression", "ReturnValuesOnConditionCheckFailure"):
            words.pop(name, None)
        return self._client.put_item(**words)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.fixture
def table(client: Any) -> Any:
    name = "Probed"
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": one, "AttributeType": "S"} for one in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield name
    client.delete_table(TableName=name)


def test_a_server_that_ignores_conditions_is_found(client: Any, table: str) -> None:
    probe = Probe(WithoutConditions(client), None, table, lambda wait_s: None)
    result = result_of(ASSUMPTIONS[0], probe)
    assert (result.state, result.seen) == ("differs", "taken")


def test_the_bound_on_requests_holds(client: Any, table: str) -> None:
    probe = Probe(client, None, table, lambda wait_s: None, sent=MOST_REQUESTS)
    with pytest.raises(ExhaustedError):
        result_of(ASSUMPTIONS[0], probe)
