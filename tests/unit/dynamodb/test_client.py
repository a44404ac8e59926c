from __future__ import annotations

from typing import Any

import pytest
from botocore.loaders import JSONFileLoader, Loader

from migrator.dynamodb.client import default_region, dynamodb_client, is_loopback, models
from migrator.runtime.errors import TargetError
from tests import pins


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://127.9.9.9", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("http://10.0.0.1", False),
        ("https://dynamodb.eu-central-1.amazonaws.com", False),
        ("http://127.0.0.1.example.com", False),
    ],
)
def test_only_this_machine_is_loopback(endpoint: str, local: bool) -> None:
    assert is_loopback(endpoint) is local


def test_without_a_region_none_is_made_up() -> None:
    assert default_region(None, None) is None


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_of_the_environment_is_taken(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv(name, "eu-west-1")
    endpoint = "http://127.0.0.1:8000"
    regions = {
        region: dynamodb_client(region=region, profile=None, endpoint=endpoint).meta.region_name
        for region in (None, "eu-central-1")
    }
    assert regions == {None: "eu-west-1", "eu-central-1": "eu-central-1"}
    assert default_region(None, None) == "eu-west-1"


def test_an_endpoint_on_this_machine_needs_nothing_else() -> None:
    client = dynamodb_client(region=None, profile=None, endpoint="http://127.0.0.1:8000")
    assert client.meta.endpoint_url == "http://127.0.0.1:8000"
    assert client.meta.config.retries["total_max_attempts"] == 1


@pytest.mark.parametrize(
    "words",
    [
        {"region": None, "profile": None},
        {"region": "eu-central-1", "profile": None},
        {"region": "eu-central-1", "profile": "nobody"},
    ],
    ids=["region-set", "credentials-found", "profile-nobody"],
)
def test_what_is_missing_is_reported(words: dict[str, Any]) -> None:
    with pins.refused(TargetError):
        dynamodb_client(endpoint=None, **words)


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        ({"region": "eu west", "endpoint": None}, {}),
        ({"region": "eu-central-1", "endpoint": "localhost:8000"}, {}),
        ({"region": "eu-central-1", "endpoint": None}, {"AWS_ENDPOINT_URL": "nowhere"}),
        ({"region": "eu-central-1", "endpoint": None}, {"AWS_ACCOUNT_ID_ENDPOINT_MODE": "x"}),
    ],
    ids=["region", "endpoint", "endpoint-of-the-environment", "other"],
)
def test_a_client_that_cannot_be_made_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], environment: dict[str, str]
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", **environment}.items():
        monkeypatch.setenv(name, value)
    with pins.refused(TargetError):
        dynamodb_client(profile=None, **words)


@pytest.mark.parametrize("name", ["endpoints", "partitions", "dynamodb/2012-08-10/service-2", "_retry"])
def test_models_read_in_parts_are_those_of_botocore(name: str) -> None:
    ours = models.__wrapped__(None)  # clients change what they share
    assert read_whole(ours.load_data(name)) == Loader(file_loader=JSONFileLoader()).load_data(name)


def read_whole(part: Any) -> Any:
    if isinstance(part, list):
        return [read_whole(one) for one in part]
    if not isinstance(part, dict):
        return part
    assert [value for _, value in part.items()] == list(part.values())
    return {name: read_whole(value) for name, value in part.items()}
