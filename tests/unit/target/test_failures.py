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

from migrator.errors import StoppedError, TargetError
from migrator.target.failures import Unprocessed, can_pass, in_words


def refusal(code: str, status: int = 400) -> ClientError:
    answer = {
        "Error": {"Code": code, "Message": "quotes Planted"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "PutItem")  # type: ignore[arg-type]


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


def test_a_refusal_is_said_without_amazon_s_own_words() -> None:
    said = in_words(refusal("AccessDeniedException"), "put_item", "Shop", "http://h")
    assert isinstance(said, TargetError)
    assert "Planted" not in str(said)
    assert "may not do this" in str(said)
    assert isinstance(
        in_words(refusal("InternalServerError", 500), "put_item", "Shop", "http://h"), StoppedError
    )
    assert "no AWS credentials" in str(in_words(NoCredentialsError(), "put_item", "Shop", "http://h"))
