"""`migrator doctor --probe` on the local servers: what they lack is told apart from what is wrong."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from migrator.dynamodb.client import service_client
from migrator.features.probe.work import ASSUMPTIONS, MOST_REQUESTS, ExhaustedError, Probe, result_of
from tests import pins
from tests.journeys.in_process import Ended, run_here

pytestmark = pytest.mark.dynamodb
LACKING = {
    # AWS: names have at least one byte (Developer Guide, "Naming rules and data types").
    "empty text, bytes, map, list, set, name": "differs",
    "point-in-time recovery": "not there",
}
"""What MiniStack or dynoxide do not do as AWS documents it."""
IMPORT = ("an import of a file in S3", "the items of the import")
POLICY = ("rights of each role's policy", "an insert with the right PartiQLInsert alone")
UNTRIED = dict.fromkeys((*IMPORT, *POLICY), "not tried")
"""What needs a bucket or a role."""
CONDITION = next(one for one in ASSUMPTIONS if one.name == "a refused condition")
ROOT = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}


@pytest.fixture
def doctor(tmp_path: Path, dynamodb_url: str) -> Callable[..., Ended]:
    return doctor_of(tmp_path, f"endpoint: '{dynamodb_url}'")


def doctor_of(folder: Path, target: str) -> Callable[..., Ended]:
    (folder / "mapping.yaml").write_text("mapping: 1\n")
    job = folder / "job.yaml"
    job.write_text(
        f"job: 1\nmapping: mapping.yaml\nsource: {{url: 'sqlite:///none.db'}}\ntarget: {{{target}}}\n"
    )

    def run(*words: str) -> Ended:
        return run_here(["doctor", str(job), *(words or ("--probe",))], folder, dict(os.environ))

    return run


def states(ended: Ended) -> dict[str, str]:
    """Of what does not hold."""
    found = json.loads(ended.out)["assumptions"]
    return {one["assumption"]: one["state"] for one in found if one["state"] != "holds"}


@pytest.fixture
def client(dynamodb_url: str) -> Any:
    return service_client("dynamodb", region=None, profile=None, endpoint=dynamodb_url)


def test_every_assumption_holds_except_unsupported_ones(doctor: Callable[..., Ended], client: Any) -> None:
    ended = doctor("--probe", "--json")
    data, found = json.loads(ended.out), states(ended)
    assert UNTRIED.items() <= found.items() <= {**LACKING, **UNTRIED}.items(), data
    assert len(data["assumptions"]) == len(ASSUMPTIONS)
    assert ended.code == ("differs" in found.values())
    assert data["requests"] < MOST_REQUESTS
    assert not [name for name in client.list_tables()["TableNames"] if name.startswith("migrator-probe")]


def test_probe_prints_its_bounds_first_and_then_differences(
    doctor: Callable[..., Ended],
) -> None:
    ended = doctor()
    assert pins.said(ended.err, "bound")
    assert pins.said(ended.out, "verdict")


def test_wrong_use_is_refused(doctor: Callable[..., Ended]) -> None:
    assert doctor("--probe", "--write").code == 2
    assert doctor("--probe", "--to", "s3://b/p", "--role", "relay").code == 2
    ended = doctor("--probe", "--to", "/tmp/b")
    assert (ended.code, pins.said(ended.err)) == (2, True)


@pytest.mark.ministack
def test_an_import_from_a_bucket_is_tried_and_nothing_stays(
    doctor: Callable[..., Ended], client: Any, dynamodb_url: str
) -> None:
    s3, bucket = boto3.client("s3", endpoint_url=dynamodb_url, **ROOT), f"b{secrets.token_hex(6)}"
    s3.create_bucket(Bucket=bucket)
    found = states(doctor("--probe", "--to", f"s3://{bucket}/shop/", "--json"))
    assert not found.keys() & {*IMPORT}
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    assert not [name for name in client.list_tables()["TableNames"] if name.startswith("migrator-probe")]
    found = states(doctor("--probe", "--to", f"s3://absent-{bucket}", "--json"))
    assert [found[name] for name in IMPORT] == ["differs", "not tried"]


@pytest.mark.ministack
def test_server_ignoring_policies_is_recognized(
    tmp_path: Path, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    role = "arn:aws:iam::000000000000:role/migrator"
    found = states(
        doctor_of(tmp_path, f"endpoint: '{dynamodb_url}', role_arn: '{role}'")("--probe", "--json")
    )
    assert [found[name] for name in POLICY] == ["not there", "not there"]


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
    result = result_of(CONDITION, probe)
    assert (result.state, result.seen) == ("differs", "taken")


def test_the_bound_on_requests_holds(client: Any, table: str) -> None:
    probe = Probe(client, None, table, lambda wait_s: None, sent=MOST_REQUESTS)
    with pytest.raises(ExhaustedError):
        result_of(CONDITION, probe)
