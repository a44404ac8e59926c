"""Behind a proxy, and where else botocore signs or sends: the same requests go to the same place, by either client."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, SSLError

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.exchange import BOTOCORE
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime.errors import MigratorError, StoppedError
from migrator.runtime.retry import Backoff
from tests import pins
from tests.contract.test_exchange import WRITTEN, answer, certificate_for_localhost, put, saying
from tests.faults.forward import ForwardProxy
from tests.support_fence import no_fence
from tests.support_items import put_items
from tests.support_lanes import by_botocore

QUICK = Backoff(attempts=3, base_s=0.001, cap_s=0.01, limit_s=120)
DESIGN = TableDesign("T", (KeyAttribute("PK"),), "type")


@pytest.fixture(autouse=True)
def proxied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")


def tls(folder: Path, patch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """That of a server whose CA the environment names."""
    ca = certificate_for_localhost(folder)
    patch.setenv("AWS_CA_BUNDLE", str(ca))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ca)
    return context


def store_at(url: str) -> DynamoStore:
    return DynamoStore(dynamodb_client(region=None, profile=None, endpoint=url), DESIGN, no_fence, QUICK)


# ── through a proxy ──


def test_tls_passes_a_tunnel_and_verifies_the_server_by_its_ca(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = tls(tmp_path, monkeypatch)
    with saying(answer(WRITTEN), tls=context) as (url, script), ForwardProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert put(url)["ConsumedCapacity"]["CapacityUnits"] == 1.0
        assert list(proxy.seen) == [f"CONNECT {url.removeprefix('https://')}"]
        assert len(script.seen) == 1
        monkeypatch.delenv("AWS_CA_BUNDLE")
        with pytest.raises(SSLError):
            put(url)


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_proxy_gets_its_user_and_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    context = tls(tmp_path, monkeypatch) if secure else None
    with saying(answer(WRITTEN), tls=context) as (url, script), ForwardProxy("ann:se-cret") as proxy:
        monkeypatch.setenv("HTTPS_PROXY" if secure else "HTTP_PROXY", proxy.url)
        assert put(url)["ConsumedCapacity"]["CapacityUnits"] == 1.0
        assert not any("proxy" in name.lower() for headers, _ in script.seen for name in headers)


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_wrong_proxy_password_is_reported_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    context = tls(tmp_path, monkeypatch) if secure else None
    with saying(answer(WRITTEN), tls=context) as (url, script), ForwardProxy("ann:se-cret") as proxy:
        monkeypatch.setenv("HTTPS_PROXY" if secure else "HTTP_PROXY", proxy.url.replace("se-cret", "wr-ong"))
        with pins.refused(MigratorError) as told:
            put_items(store_at(url), [{"PK": "P"}])
    assert "wr-ong" not in str(told.value)
    assert "user and password" in str(told.value)
    assert script.seen == []


def test_unreachable_proxy_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with ForwardProxy() as proxy:
        gone = proxy.address
    monkeypatch.setenv("HTTPS_PROXY", f"http://ann:se-cret@{gone}")
    store = store_at("https://localhost:1")
    with pins.refused(StoppedError, gone=gone) as told:
        put_items(store, [{"PK": "P"}])
    assert "se-cret" not in str(told.value)
    assert "gave up" not in str(told.value)


# ── where botocore signs ──


class SeenError(Exception):
    """What was to be sent is seen, and does not go out."""


def sent_to(region: str, *, alone: bool = False) -> tuple[str, dict[str, str], list[str]]:
    """`alone`: by botocore alone. The URL of a put, the headers that say what it is and who asks, and the scope and headers of its signature."""
    client: Any = dynamodb_client(region=region, profile=None, endpoint=None)
    client = by_botocore(client) if alone else client
    requests: list[Any] = []

    def see(request: Any, **_: Any) -> None:
        requests.append(request)
        raise SeenError

    client.meta.events.register("before-send.dynamodb", see)
    with pytest.raises(SeenError):
        client.put_item(TableName="T", Item={"PK": {"S": "P"}})
    (request,) = requests
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else value
        for name, value in request.headers.items()
    }
    scope, names, _ = headers["authorization"].split(", ")
    signed = names.partition("=")[2].split(";")
    kept = {name: headers[name] for name in signed if name in _TOLD}
    return request.url.rstrip("/"), kept, [scope, *(name for name in signed if name in _TOLD)]


_TOLD = ("x-amz-target", "x-amz-security-token", "content-type")
_SETTINGS: dict[str, tuple[str, dict[str, str], str]] = {
    "an account's own endpoint": (
        "eu-central-1",
        {"AWS_ACCOUNT_ID": "123456789012", "AWS_ACCOUNT_ID_ENDPOINT_MODE": "required"},
        "https://123456789012.ddb.eu-central-1.amazonaws.com",
    ),
    "FIPS": (
        "us-east-1",
        {"AWS_USE_FIPS_ENDPOINT": "true", "MIGRATOR_LANE": BOTOCORE},
        "https://dynamodb-fips.us-east-1.amazonaws.com",
    ),
    "dual-stack": (
        "eu-central-1",
        {"AWS_USE_DUALSTACK_ENDPOINT": "true", "MIGRATOR_LANE": BOTOCORE},
        "https://dynamodb.eu-central-1.api.aws",
    ),
    "a proxy": (
        "eu-central-1",
        {"HTTPS_PROXY": "http://127.0.0.1:1"},
        "https://dynamodb.eu-central-1.amazonaws.com",
    ),
}


@pytest.mark.parametrize("name", _SETTINGS)
def test_requests_have_the_address_and_signature_of_botocore(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    region, settings, url = _SETTINGS[name]
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "t"}
    for variable, value in {**keys, **settings}.items():
        monkeypatch.setenv(variable, value)
    told = sent_to(region)
    assert told[0] == url
    assert told[1]["x-amz-security-token"] == "t"
    assert told == sent_to(region, alone=True)


def test_an_account_that_is_not_known_is_refused_by_either(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_ACCOUNT_ID_ENDPOINT_MODE": "required",
    }
    for variable, value in keys.items():
        monkeypatch.setenv(variable, value)
    with pins.refused(Exception) as told:
        sent_to("eu-central-1")
    assert not isinstance(told.value, ClientError)
