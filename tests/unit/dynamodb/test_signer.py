"""Signatures that keep what stays the same for a day, beside those of botocore."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import given
from hypothesis import strategies as st

from migrator.dynamodb.exchange import OPERATIONS, Signer

NOW_S = datetime(2026, 11, 23, 23, 59, 59, tzinfo=UTC).timestamp()
ONE = ReadOnlyCredentials("AKIDEXAMPLE", "wJalr/+XUt=nFEMI", None, None)
SESSION = ReadOnlyCredentials("ASIA", "other", "token//with==\u00e9", None)
URL = "https://dynamodb.eu-central-1.amazonaws.com"


def signer_of(url: str = URL) -> Signer:
    return Signer(url, "eu-central-1", headers_of(url))


def headers_of(url: str) -> dict[str, str]:
    host = url.split("/")[2]
    return {
        "Host": host,
        "X-Amz-Target": "",
        "Content-Type": "application/x-amz-json-1.0",
        "User-Agent": "a b",
    }


def botocores(
    operation: str, body: bytes, credentials: Any, now_s: float, url: str = URL
) -> list[tuple[str, str]]:
    """The headers that botocore's signer makes at that moment, in their order."""
    headers = {**headers_of(url), "X-Amz-Target": f"DynamoDB_20120810.{operation}"}
    request = AWSRequest("POST", url, headers=headers, data=body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(now_s, UTC))
        SigV4Auth(credentials, "dynamodb", "eu-central-1").add_auth(request)
    return list(request.headers.items())


def ours(
    signer: Signer, operation: str, body: bytes, credentials: Any, now_s: float
) -> list[tuple[str, str]]:
    return list(signer.headers(operation, body, credentials, now_s).items())


@pytest.mark.parametrize("credentials", [ONE, SESSION], ids=["keys", "with a token"])
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_each_operation_is_signed_as_by_botocore(operation: str, credentials: Any) -> None:
    signer = signer_of()
    for body in (b"{}", b'{"TableName":"T"}', b"{}"):
        assert ours(signer, operation, body, credentials, NOW_S) == botocores(
            operation, body, credentials, NOW_S
        )


@given(
    body=st.binary(),
    later_s=st.integers(0, 10**9),
    secret=st.text(min_size=1),
    token=st.none() | st.just("t"),
)
def test_any_request_at_any_time_is_signed_as_by_botocore(
    body: bytes, later_s: int, secret: str, token: str | None
) -> None:
    try:
        secret.encode()
    except UnicodeEncodeError:
        return
    credentials = ReadOnlyCredentials("AKID", secret, token, None)
    now_s = NOW_S + later_s
    assert ours(SHARED, "PutItem", body, credentials, now_s) == botocores("PutItem", body, credentials, now_s)


SHARED = signer_of()


def test_signing_key_is_cached_per_day_and_credentials() -> None:
    signer = signer_of()
    turns = [(ONE, 0), (ONE, 2), (SESSION, 2), (ONE, 2), (ONE, 0), (ONE._replace(secret_key="new"), 0)]
    turns.append((SESSION._replace(token="renewed"), 0))
    for credentials, later_s in turns:
        for operation in ("BatchWriteItem", "PutItem", "BatchWriteItem"):
            now_s = NOW_S + later_s
            signed = ours(signer, operation, b"{}", credentials, now_s)
            assert signed == botocores(operation, b"{}", credentials, now_s)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000",
        "http://127.0.0.1:8000/",
        "https://localhost:443/behind/a gateway/../{here}/%7E",
        "http://[::1]:80/x",
    ],
)
def test_any_endpoint_is_signed_as_by_botocore(url: str) -> None:
    assert ours(signer_of(url), "Query", b"{}", SESSION, NOW_S) == botocores(
        "Query", b"{}", SESSION, NOW_S, url
    )
