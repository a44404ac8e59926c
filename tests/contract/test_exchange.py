"""Requests on our own connections, as prepared bodies by botocore, and by botocore's client: the same answers, the same errors."""

from __future__ import annotations

import secrets
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, HTTPClientError, SSLError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from migrator.dynamodb import client as client_module
from migrator.dynamodb import exchange
from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.answers import IncompleteAnswerError
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.table import Item, KeyAttribute, TableDesign
from tests import pins
from tests.support_fence import no_fence
from tests.support_items import write_items
from tests.support_lanes import by_botocore

LANES = ["exchange", exchange.BOTOCORE]
NewClient = Callable[..., Any]


@pytest.fixture(params=LANES)
def lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MIGRATOR_LANE", request.param)
    return str(request.param)


def client_of(url: str) -> Any:
    return dynamodb_client(region=None, profile=None, endpoint=url)


# ── all operations against a table ──

THINGS = {"S": {"S": "é\u2028\"'"}, "N": {"N": "1.50"}, "B": {"B": b"\x00\xff"}, "BOOL": {"BOOL": True}}
ITEM = {
    **THINGS,
    "NULL": {"NULL": True},
    "L": {"L": [{"B": b"x"}, {"M": {"n": {"N": "1"}}}]},
    "SS": {"SS": ["a", "b"]},
    "BS": {"BS": [b"\x01", b"\x02"]},
}


def key(number: int) -> dict[str, Any]:
    return {"PK": {"S": "P"}, "SK": {"S": f"S#{number:03}"}}


def requests_of(table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each operation, those that are refused too, in an order of which each meets what those before wrote."""
    told = {"TableName": table, "ReturnConsumedCapacity": "TOTAL"}
    absent = {
        "ConditionExpression": "attribute_not_exists(PK)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    yield "put_item", {**told, "Item": {**key(1), **ITEM}}
    yield "put_item", {**told, "Item": key(1), **absent}
    yield "get_item", {**told, "Key": key(1), "ConsistentRead": True}
    yield "get_item", {**told, "Key": key(9)}
    puts = [{"PutRequest": {"Item": {**key(number), **THINGS}}} for number in range(2, 8)]
    yield "batch_write_item", {"RequestItems": {table: puts}, "ReturnConsumedCapacity": "TOTAL"}
    yield "batch_get_item", {"RequestItems": {table: {"Keys": [key(1), key(3), key(9)]}}}
    asked = {"KeyConditionExpression": "PK = :p", "ExpressionAttributeValues": {":p": {"S": "P"}}}
    yield "query", {**told, **asked, "Limit": 3}
    yield "query", {**told, **asked, "ExclusiveStartKey": key(3)}
    yield "scan", {**told, "Limit": 2}
    change = {"UpdateExpression": "SET S = :s", "ExpressionAttributeValues": {":s": {"S": "new"}}}
    yield "update_item", {**told, "Key": key(2), **change, "ReturnValues": "ALL_NEW"}
    writes = [{"Put": {"TableName": table, "Item": key(20)}}, {"Put": {"TableName": table, "Item": key(21)}}]
    yield "transact_write_items", {"TransactItems": writes, "ReturnConsumedCapacity": "TOTAL"}
    meeting = [
        {"Put": {"TableName": table, "Item": key(30)}},
        {"Put": {"TableName": table, "Item": key(1), **absent}},
    ]
    yield "transact_write_items", {"TransactItems": meeting}
    insert = f"INSERT INTO \"{table}\" VALUE {{'PK': ?, 'SK': ?}}"
    statements = [{"Statement": insert, "Parameters": list(key(number).values())} for number in (40, 1)]
    yield "batch_execute_statement", {"Statements": statements, "ReturnConsumedCapacity": "TOTAL"}
    yield "delete_item", {**told, "Key": key(2), "ReturnValues": "ALL_OLD"}
    yield "put_item", {**told, "Item": {"PK": {"S": "P"}}}
    yield "query", {**told, **asked, "TableName": "NoSuchTable"}


def answers_of(client: Any) -> list[Any]:
    """What a client says to each of the requests on a new table, in one form: plain values, sorted where order is chance."""
    table = f"T{secrets.token_hex(6)}"
    admin = DynamoTableAdmin(client)
    admin.create(TableDesign(table, (KeyAttribute("PK"), KeyAttribute("SK")), "type"))
    answers = []
    for name, request in requests_of(table):
        try:
            answer = getattr(client, name)(**request)
        except ClientError as error:
            answer = {**error.response, "class": type(error).__name__, "operation": error.operation_name}
            answer["status"] = error.response["ResponseMetadata"]["HTTPStatusCode"]
        answers.append((name, _plain(answer, table)))
    client.delete_table(TableName=table)
    return answers


def _plain(value: Any, table: str) -> Any:
    if isinstance(value, dict):
        if value and len(value) == 1 and value.keys() < {"B", "BS"}:
            return decode_item({"it": value})
        kept = {
            name: one
            for name, one in sorted(value.items())
            if name not in ("ResponseMetadata", "message", "__type")
        }
        return {name.replace(table, "T"): _plain(one, table) for name, one in kept.items()}
    if isinstance(value, list):
        return sorted((_plain(one, table) for one in value), key=repr)
    return value.replace(table, "T") if isinstance(value, str) else value


def test_every_operation_answers_the_same(dynamodb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = answers_of(client_of(dynamodb_url))
    assert ours == answers_of(by_botocore(client_of(dynamodb_url)))
    monkeypatch.setenv("MIGRATOR_LANE", exchange.BOTOCORE)
    assert ours == answers_of(client_of(dynamodb_url))
    assert {"".join(map(str.capitalize, name.split("_"))) for name, _ in ours} == exchange.OPERATIONS


# ── answers of a server that says what a test wants ──


class Script(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: bytes = b""
    closes = False
    seen: list[tuple[dict[str, str], bytes]]
    connections: set[Any]
    closed: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((dict(self.headers.items()), body))
        self.connections.add(self.client_address)
        # Before the answer: with it the client goes on, and what it sets then is about its next request.
        self.close_connection = self.closes
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: Any) -> None:
        return


class Server(ThreadingHTTPServer):
    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.RequestHandlerClass.closed.set()  # type: ignore[attr-defined]


@contextmanager
def saying(
    answer: bytes, *, closes: bool = False, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, type[Script]]]:
    script = type(
        "Said",
        (Script,),
        {"answer": answer, "closes": closes, "seen": [], "connections": set(), "closed": threading.Event()},
    )
    with Server(("127.0.0.1", 0), script) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        host = "http://127.0.0.1" if tls is None else "https://localhost"
        yield f"{host}:{server.server_port}", script
        server.shutdown()


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def put(url: str, text: str = "x") -> Any:
    return client_of(url).put_item(TableName="T", Item={"PK": {"S": text}}, ReturnConsumedCapacity="TOTAL")


WRITTEN = b'{"ConsumedCapacity":{"TableName":"T","CapacityUnits":1.0}}'
CHUNKS = f"{len(WRITTEN):x}\r\n".encode() + WRITTEN + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "whole",
    [
        answer(WRITTEN),
        answer(WRITTEN, "200 OK", f"x-amz-crc32: {zlib.crc32(WRITTEN)}"),
        answer(WRITTEN, "200 OK", "Connection: close"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
        b"HTTP/1.1 100 Continue\r\n\r\n" + answer(WRITTEN),
        b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * 60_000 + b"\r\nConnection: close\r\n\r\n" + WRITTEN,
        b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n" + WRITTEN,
    ],
)
def test_an_answer_in_any_frame_is_read(lane: str, whole: bytes) -> None:
    with saying(whole, closes=b"close" in whole) as (url, _):
        assert put(url)["ConsumedCapacity"]["CapacityUnits"] == 1.0


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (answer(b"<html>no</html>", "503 Service Unavailable"), "503"),
        (answer(b"", "500 Internal Server Error"), "500"),
        (answer(b"not JSON", "413 Too Large"), "413"),
        (
            answer(b'{"__type":"a.b#ThrottlingException","Message":"m"}', "400 Bad Request"),
            "ThrottlingException",
        ),
        (answer(b'{"__type":"ValidationException:http://x/"}', "400 Bad Request"), "ValidationException"),
    ],
)
def test_a_refusal_has_its_documented_code(lane: str, refusal: bytes, code: str) -> None:
    with saying(refusal) as (url, _), pytest.raises(ClientError) as caught:
        put(url)
    response = caught.value.response
    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == (
        code,
        int(refusal.split()[1]),
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"half":', b"\xff", b"{}"])
def test_an_answer_that_is_not_whole_is_none(lane: str, body: bytes) -> None:
    with saying(answer(body)) as (url, _), pytest.raises(IncompleteAnswerError):
        put(url)


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "500 Internal Server Error"])
def test_an_answer_with_another_checksum_is_none(lane: str, status: str) -> None:
    with saying(answer(WRITTEN, status, "x-amz-crc32: 1")) as (url, _), pins.refused(IncompleteAnswerError):
        put(url)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS[:20],
    ],
)
def test_an_answer_that_breaks_off_is_an_error_of_the_connection(lane: str, broken: bytes) -> None:
    with saying(broken, closes=True) as (url, _), pytest.raises(HTTPClientError):
        put(url)


def test_connections_are_kept_and_closed_ones_are_not_used(lane: str) -> None:
    with saying(answer(WRITTEN)) as (url, script):
        client = client_of(url)
        request = {"TableName": "T", "Item": {}, "ReturnConsumedCapacity": "TOTAL"}
        for _ in range(3):
            client.put_item(**request)
        assert len(script.connections) == 1
        script.closes = True
        client.put_item(**request)
        assert script.closed.wait(120)
        client.put_item(**request)
        assert len(script.seen) == 5
        client.close()


def test_text_that_is_not_unicode_goes_to_the_service(lane: str) -> None:
    with saying(answer(WRITTEN)) as (url, script):
        put(url, "\ud800")
    assert script.seen[0][1].count(b"\\ud800") == 1


@pytest.mark.parametrize("path", ["", "/", "/behind/a/gateway"])
def test_what_is_sent_is_what_was_signed(lane: str, path: str) -> None:
    with saying(answer(WRITTEN)) as (url, script):
        put(url + path)
    headers, body = script.seen[0]
    signed = headers["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    assert {"host", "x-amz-date", "x-amz-target"} <= set(signed)
    kept = {name: value for name, value in headers.items() if name.lower() in signed}
    request = AWSRequest("POST", url + (path or "/"), headers=kept, data=body)
    request.context["timestamp"] = headers["X-Amz-Date"]
    signer = SigV4Auth(Credentials("local", "local"), "dynamodb", "us-east-1")
    wanted = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    assert headers["Authorization"].endswith(f"Signature={wanted}")


def test_a_server_is_known_by_the_ca_that_the_environment_names(
    lane: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = certificate_for_localhost(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ca)
    with saying(answer(WRITTEN), tls=context) as (url, _):
        with pytest.raises(SSLError):
            put(url)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(ca))
        assert put(url)["ConsumedCapacity"]["CapacityUnits"] == 1.0


def test_many_puts_go_side_by_side_by_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers longer than one record of TLS, and a request that is more than a connection takes at once."""
    ca = certificate_for_localhost(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ca)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(ca))
    design = TableDesign("T", (KeyAttribute("PK"),), "type")
    items: list[Item] = [
        {"PK": f"P{number}", "type": "T", "_src": f"a:[{number}]", "_tk": 1, "text": "x" * size}
        for number, size in enumerate([10, 10, 390_000, 10] * 10)
    ]
    with saying(answer(WRITTEN + b" " * 40_000), tls=context) as (url, script):
        outcomes = write_items(ConditionalWrites(DynamoStore(client_of(url), design, no_fence)), items)
        assert [outcome.verdict for outcome in outcomes] == ["stored"] * len(items)
        assert len(script.seen) == len(items)


def certificate_for_localhost(folder: Path) -> Path:
    """A key and a certificate that it signs itself, in one file."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "localhost.pem"
    file.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
    return file


# ── where botocore sends ──


@pytest.mark.parametrize(
    "environment",
    [
        {"MIGRATOR_LANE": "botocore"},
        {"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": ""},
        {"AWS_ACCOUNT_ID_ENDPOINT_MODE": "required"},
    ],
    ids=["case", "proxy-set", "endpoint-required"],
)
def test_unsupported_settings_fall_back_to_botocore_logged_once(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", **environment}.items():
        monkeypatch.setenv(name, value)
    client_module._say_bodies.cache_clear()
    with capture_logs() as lines:
        clients = [dynamodb_client(region="eu-central-1", profile=None, endpoint=None) for _ in range(2)]
    stores = [
        DynamoStore(client, TableDesign("T", (KeyAttribute("PK"),), "type"), no_fence) for client in clients
    ]
    assert [store.sockets for store in stores] == [None, None]
    said = [("botocore_sends_prepared_bodies", pins.text())]
    assert [(line["event"], line["reason"]) for line in lines] == said


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        ({}, "dynamodb.eu-central-1.amazonaws.com"),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "dynamodb-fips.us-east-1.amazonaws.com"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "dynamodb.eu-central-1.api.aws"),
    ],
)
def test_endpoints_are_those_of_botocore(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], host: str
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", **environment}.items():
        monkeypatch.setenv(name, value)
    region = "us-east-1" if "fips" in host else "eu-central-1"
    client = dynamodb_client(region=region, profile=None, endpoint=None)
    assert client.exchange.sockets.signing.host == host
