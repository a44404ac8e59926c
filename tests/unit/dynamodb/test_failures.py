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

from migrator.dynamodb import client as target_client
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.failures import Unprocessed, can_pass, denied, gave_up, in_words, passes_at
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime.errors import SettingsError, StoppedError, TargetError
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
        (refusal("Whatever", 500), True),
        (refusal("Whatever", 499), False),
        (refusal("429", 429), True),
        (refusal("404", 404), False),
        (refusal("InternalServerError", 500), True),
        (refusal("ReplicatedWriteConflictException"), True),
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
def test_endpoint_without_an_answer_is_reported_like_a_source(error: Exception) -> None:
    told = str(in_words(error, "query", "Shop", "http://h"))
    assert told == pins.text("http", name=type(error).__name__)
    assert told == pins.text("then")


def test_host_never_connected_to_is_reported_at_once() -> None:
    client = dynamodb_client(region=None, profile=None, endpoint="http://127.0.0.1:1")
    store = DynamoStore(client, TableDesign("Shop", (KeyAttribute("PK"),), "type"), no_fence)
    with pins.refused(StoppedError) as caught:
        store.get([("a",)])
    assert not pins.said_by("test_what_gave_up_names_its_fix tries", str(caught.value))


@pytest.mark.parametrize("refused", [EndpointConnectionError(**URL), SSLError(**URL, error="EOF")])
def test_what_has_answered_once_is_waited_for(refused: Exception) -> None:
    client = dynamodb_client(region=None, profile=None, endpoint="http://127.0.0.1:1")
    assert not passes_at(client, refused)
    client.meta.events.emit("response-received.dynamodb.GetItem", parsed_response={})
    assert passes_at(client, refused)


def test_refusal_is_reported_without_amazons_own_words() -> None:
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
    [
        refusal("ServiceUnavailable", 503),
        refusal("ThrottlingException"),
        Unprocessed("3"),
        refusal("502", 502),
    ],
    ids=["unavailable", "throttling", "unprocessed", "gateway"],
)
def test_what_gave_up_names_its_fix(error: Exception) -> None:
    told = str(gave_up("DynamoDB put_item on table Shop", error, "9 tries in 60 s"))
    assert pins.said(told, "tries")
    assert pins.said(told, "cause")
    assert told == pins.text("again")


WHO = "arn:aws:sts::111122223333:assumed-role/migrator/migrator-shop"


def refused(operation: str, code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


CASES = [
    (
        refused(
            "PutItem",
            "AccessDeniedException",
            f"User: {WHO} is not authorized to perform: dynamodb:PutItem on resource:"
            " arn:aws:dynamodb:eu-central-1:111122223333:table/Shop because no identity-based policy allows the"
            " dynamodb:PutItem action",
        ),
        "dynamodb",
        f"{WHO} may not dynamodb:PutItem on arn:aws:dynamodb:eu-central-1:111122223333:table/Shop; allow that action",
    ),
    (
        refused(
            "Query",
            "AccessDeniedException",
            f"User: {WHO} is not authorized to perform: dynamodb:Query on resource:"
            " arn:aws:dynamodb:eu-central-1:111122223333:table/Shop/index/GSI1 with an explicit deny in an"
            " identity-based policy",
        ),
        "dynamodb",
        "table/Shop/index/GSI1; a policy denies it by name",
    ),
    (
        refused(
            "PutObject",
            "AccessDenied",
            f'User: {WHO} is not authorized to perform: s3:PutObject on resource: "arn:aws:s3:::bucket/Shop/1f2e"'
            " because no identity-based policy allows the s3:PutObject action",
        ),
        "s3",
        "may not s3:PutObject on arn:aws:s3:::bucket/Shop/1f2e; allow that action",
    ),
    (
        refused("HeadObject", "403", "Forbidden"),
        "s3",
        "these credentials may not do this; allow s3:GetObject",
    ),
    (refused("PutObject", "AccessDenied", "Access Denied"), "s3", "allow s3:PutObject"),
    (
        refused(
            "GetSecretValue",
            "AccessDeniedException",
            f"User: {WHO} is not authorized to perform: secretsmanager:GetSecretValue on resource: shop/url because"
            " no identity-based policy allows the secretsmanager:GetSecretValue action",
        ),
        "secretsmanager",
        "may not secretsmanager:GetSecretValue on shop/url; allow that action",
    ),
]


@pytest.mark.parametrize(("error", "service", "words"), CASES)
def test_which_principal_may_not_do_what_on_what(error: ClientError, service: str, words: str) -> None:
    assert words in denied(error, service)


def test_error_that_denies_nothing_names_no_right() -> None:
    assert denied(refused("PutItem", "ValidationException", "s3cret value"), "dynamodb") == ""


def test_rest_of_the_error_text_is_not_passed_on() -> None:
    error = refused(
        "PutItem", "AccessDeniedException", f"User: {WHO} is not authorized to perform: a:B s3cret"
    )
    assert "s3cret" not in str(in_words(error, "put_item", "Shop", "https://here"))


def test_a_role_that_may_not_be_assumed_names_it() -> None:
    role = "arn:aws:iam::111122223333:role/migrator"
    message = f"User: {WHO} is not authorized to perform: sts:AssumeRole on resource: {role}"
    said = str(in_words(refused("AssumeRole", "AccessDenied", message), "put_item", "Shop", "https://here"))
    assert pins.said(said, "role", who=WHO, role=role)
    assert "target.external_id" in said


def test_a_secret_that_may_not_be_read_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def get_secret_value(self, **_: object) -> None:
            raise CASES[-1][0]

    class Session:
        def __init__(self, **_: object) -> None:
            pass

        def client(self, *_: object, **__: object) -> Client:
            return Client()

    monkeypatch.setattr("boto3.Session", Session)
    with pins.refused(SettingsError):
        target_client.read_secret("shop/url", region=None, profile=None)
