from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from migrator.model.errors import StoppedError, TargetError
from migrator.model.table import KeyAttribute, TableDesign
from migrator.target.client import dynamodb_client
from migrator.target.failures import Unprocessed, can_pass, gave_up, in_words, passes_at
from migrator.target.store import DynamoStore
from tests import pins
from tests.support_fence import no_fence


def refusal(code: str, status: int = 400) -> ClientError:
    answer = {
        "Error": {"Code": code, "Message": "quotes Planted"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "PutItem")


URL = {"endpoint_url": "http://h"}


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (refusal("ProvisionedThroughputExceededException"), True),
        (refusal("ThrottlingException"), True),
        (refusal("Whatever", 503), True),
        (refusal("InternalServerError", 500), True),
        (EndpointConnectionError(**URL), True),
        (ReadTimeoutError(**URL), True),
        (ConnectionClosedError(**URL), True),
        (Unprocessed("3"), True),
        (SSLError(**URL, error="certificate"), False),
        (refusal("ValidationException"), False),
        (refusal("AccessDeniedException"), False),
        (refusal("ResourceNotFoundException"), False),
        (NoCredentialsError(), False),
        (ValueError(), False),
    ],
)
def test_what_can_pass(error: Exception, passing: bool) -> None:
    assert can_pass(error) is passing


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(**URL, error="[Errno 111] Connection refused"),
        EndpointConnectionError(**URL, error="Failed to resolve 'h'"),
        ReadTimeoutError(**URL, error="read"),
        SSLError(**URL, error="certificate"),
        ConnectionClosedError(**URL),
    ],
    ids=["listens-start", "host-correct", "look-network", "agreement-certificates", "broke-network"],
)
def test_an_endpoint_without_an_answer_is_told_as_a_source_is(error: Exception) -> None:
    told = str(in_words(error, "query", "Shop", "http://h"))
    assert told == pins.text("http", name=type(error).__name__)
    assert told == pins.text("then")


def test_what_was_never_connected_to_is_told_at_once() -> None:
    client = dynamodb_client(region=None, profile=None, endpoint="http://127.0.0.1:1")
    store = DynamoStore(client, TableDesign("Shop", (KeyAttribute("PK"),), "type"), no_fence)
    with pins.refused(StoppedError) as caught:
        store.get([("a",)])
    assert not pins.said_by("test_what_gave_up_says_what_mends_it tries", str(caught.value))


def test_what_has_answered_once_is_waited_for() -> None:
    client = dynamodb_client(region=None, profile=None, endpoint="http://127.0.0.1:1")
    refused = EndpointConnectionError(**URL)
    assert not passes_at(client, refused)
    client.meta.events.emit("response-received.dynamodb.GetItem", parsed_response={})
    assert passes_at(client, refused)


def test_a_refusal_is_said_without_amazon_s_own_words() -> None:
    said = in_words(refusal("AccessDeniedException"), "put_item", "Shop", "http://h")
    assert isinstance(said, TargetError)
    assert "Planted" not in str(said)
    assert pins.said(str(said))
    assert isinstance(
        in_words(refusal("InternalServerError", 500), "put_item", "Shop", "http://h"), StoppedError
    )
    assert "no AWS credentials" in str(in_words(NoCredentialsError(), "put_item", "Shop", "http://h"))


@pytest.mark.parametrize(
    "error",
    [refusal("ServiceUnavailable", 503), refusal("ThrottlingException"), Unprocessed("3")],
    ids=["unavailable", "throttling", "unprocessed"],
)
def test_what_gave_up_says_what_mends_it(error: Exception) -> None:
    told = str(gave_up("DynamoDB put_item on table Shop", error, "9 tries in 60 s"))
    assert pins.said(told, "tries")
    assert pins.said(told, "cause")
    assert told == pins.text("again")
