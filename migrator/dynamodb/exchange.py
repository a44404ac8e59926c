"""DynamoDB's data operations without botocore's model, which takes a millisecond for a request of 25 items.

Credentials, endpoint, TLS and the signature stay botocore's; its client sends all other operations. Bodies go
on our own connections, unless settings require botocore to sign or send.
"""

from __future__ import annotations

import hmac
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, NoReturn, Protocol
from urllib.parse import urlsplit

import orjson
from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, create_request_object, prepare_request_dict
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
    SSLError,
)
from msgspec import Struct
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError as Urllib3ConnectTimeoutError
from urllib3.exceptions import NewConnectionError

from migrator.dynamodb.answers import (
    BrokenFrameError,
    IncompleteAnswerError,
    Received,
    missing_parts,
    missing_reasons,
    note_answer,
    received,
    require_checksum,
)
from migrator.runtime.retry import cut_to_end
from migrator.runtime.system import Places

CONTENT_TYPE = "application/x-amz-json-1.0"


class BotocoreSigning:
    """Signs requests by botocore's endpoint rules, like its client."""

    def __init__(self, client: Any) -> None:
        self._user_agent = client._user_agent_creator.to_string()

    def signed(
        self, client: Any, operation: str, params: Mapping[str, Any], body: bytes
    ) -> AWSPreparedRequest:
        model = client.meta.service_model.operation_model(operation)
        context = {
            "client_region": client.meta.region_name,
            "client_config": client.meta.config,
            "has_streaming_input": False,
            "auth_type": model.resolved_auth_type,
            "unsigned_payload": model.unsigned_payload,
            "auth_options": client.meta.service_model.metadata.get("auth"),
        }
        url, headers, properties = client._resolve_endpoint_ruleset(model, params, context)
        if properties:
            context["endpoint_properties"] = properties
        target = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": CONTENT_TYPE}
        words = {"method": "POST", "url_path": "/", "query_string": "", "headers": {**headers, **target}}
        prepare_request_dict(words, endpoint_url=url, context=context, user_agent=self._user_agent)
        request = create_request_object({**words, "body": body})
        client._request_signer.sign(operation, request)
        return client._endpoint.prepare_request(request)


class SessionTransport:
    """The HTTP session of a botocore client, which supports proxies; `at_most` concurrent requests."""

    def __init__(self, signing: BotocoreSigning | KeptSigning, at_most: int) -> None:
        self.signing = signing
        self._places = Places(at_most)

    def send(self, client: Any, operation: str, params: Mapping[str, Any], body: bytes) -> Received:
        with self._places.free:
            request = self.signing.signed(client, operation, params, body)
            client.meta.events.emit(f"before-send.dynamodb.{operation}", request=request)
            answer = client._endpoint.http_session.send(request)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Received(answer.status_code, headers, answer.content, ends=False)

    def close(self) -> None:
        """Does nothing: the connections are the client's, which closes them."""


OPERATIONS = frozenset(
    {
        *("PutItem", "UpdateItem", "DeleteItem", "GetItem", "BatchWriteItem", "BatchGetItem"),
        *("Query", "Scan", "TransactWriteItems", "BatchExecuteStatement"),
    }
)
"""Operations with plain JSON requests, whose answers need only part names from the model."""

_SERVICE = "dynamodb"
_BLOCK = 64
"""Block size of SHA-256 in bytes. Source: RFC 2104."""

BOTOCORE = "botocore"
"""The value of MIGRATOR_LANE that lets botocore sign and send the bodies."""


# ── Connections ──

AT_MOST = 64
"""Open connections of a client; more only if a job has more workers."""


class Connections:
    """Kept-alive connections to one URL, with the timeouts and certificates of a botocore session.

    Thread-safe; at most `at_most` are open, idle ones included. Raises: botocore's connection errors.
    """

    def __init__(self, session: Any, url: str, at_most: int) -> None:
        self._session = session
        self.url = url
        self.timeout_s: float | None = session._timeout.read_timeout
        self._places = Places(at_most)
        self._idle: list[HTTPConnection] = []

    def exchange(self, request: Callable[[], bytes]) -> Received:
        """As Line.exchange, on any free connection."""
        with Line(self) as line:
            return line.exchange(request)

    def give_back(self, connection: HTTPConnection) -> None:
        """Return a connection without a pending answer."""
        # Before its place is free: a thread that takes the place then finds this connection instead of opening another.
        self._idle.append(connection)
        self._places.free.release()

    def drop(self, connection: HTTPConnection) -> None:
        connection.close()
        self._places.free.release()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def take(self, *, waits: bool = True) -> HTTPConnection | None:
        """A free connection; None if all are in use and `waits` is False.

        `waits`: only for a caller that holds none, since two that wait for each other's would deadlock.
        Raises: botocore's connection errors.
        """
        if not self._places.free.acquire(blocking=waits):
            return None
        try:
            while self._idle:
                try:
                    connection = self._idle.pop()
                except IndexError:
                    continue  # another thread was first
                # A connection closed by the other side is readable; discard it.
                if connection.is_connected:
                    return connection
                connection.close()
            return self._opened()
        except BaseException:
            self._places.free.release()
            raise

    def _opened(self) -> HTTPConnection:
        pool = self._session._manager.connection_from_url(self.url)
        self._session._setup_ssl_cert(pool, self.url, self._session._verify)
        connection: HTTPConnection = pool._new_conn()
        connection.timeout = cut_to_end(connection.timeout)
        try:
            connection.connect()
        except NewConnectionError as error:
            raise EndpointConnectionError(endpoint_url=self.url, error=error) from error
        except Urllib3ConnectTimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=self.url, error=error) from error
        except ssl.SSLError as error:
            raise SSLError(endpoint_url=self.url, error=error) from error
        except OSError as error:
            raise ConnectionClosedError(endpoint_url=self.url, error=error) from error
        return connection


class Line:
    """A connection that one thread holds from its first request until it leaves, for one request after the other."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def exchange(self, request: Callable[[], bytes]) -> Received:
        """Send a request once. `request`: makes its bytes as soon as there is a connection. Raises: botocore's errors."""
        connection = self._connection = self._connection or self._connections.take()
        assert connection is not None  # it has waited
        signed = request()
        url = self._connections.url
        try:
            connection.sock.settimeout(cut_to_end(self._connections.timeout_s))
            connection.sock.sendall(signed)
            answer = received(connection.sock)
        except TimeoutError as error:
            self._drop(connection)
            raise ReadTimeoutError(endpoint_url=url, error=error) from error
        except (OSError, BrokenFrameError) as error:
            self._drop(connection)
            raise ConnectionClosedError(endpoint_url=url, error=error) from error
        except BaseException:
            # Interrupted: the rest of the answer must not be read as another request's.
            self._drop(connection)
            raise
        if answer.ends:
            self._drop(connection)
        return answer

    def leave(self) -> None:
        """Give the connection to others; the next request takes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.give_back(connection)

    def _drop(self, connection: HTTPConnection) -> None:
        self._connection = None
        self._connections.drop(connection)


# ── Signatures ──


class Secrets(Protocol):
    access_key: str
    secret_key: str


class _SignedForm(Struct, frozen=True):
    """Parts shared by requests of one operation, as long as credentials and day stay the same.

    `canonical`: the canonical request before and after its timestamp, without the final body hash. `inner`,
    `outer`: an HMAC's hashes with the key.
    """

    headers: Mapping[str, str]
    token: Mapping[str, str]
    canonical: tuple[str, str]
    scope: str
    authorization: str
    inner: Any
    outer: Any


@dataclass(eq=False)
class Signer:
    """Headers with botocore's SigV4Auth signature; the constant parts are computed once a day. Thread-safe.

    Source: AWS General Reference, "Create a signed AWS API request".
    """

    url: str
    region: str
    common: Mapping[str, str]
    _kept_moment: tuple[int, str] = field(default=(-1, ""), init=False)
    _kept: tuple[object, str, dict[str, _SignedForm]] = field(default=(None, "", {}), init=False)

    def headers(self, operation: str, body: bytes, secrets: Secrets, now_s: float) -> dict[str, str]:
        second, moment = self._kept_moment
        if second != int(now_s):
            second, moment = int(now_s), time.strftime(SIGV4_TIMESTAMP, time.gmtime(now_s))
            self._kept_moment = (second, moment)
        form = self._form(operation, secrets, moment[:8])
        before, behind = form.canonical
        canonical = f"{before}{moment}{behind}{sha256(body).hexdigest()}"
        hashed = sha256(canonical.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{moment}\n{form.scope}\n{hashed}"
        # Like hmac.digest() with the key of both, which would hash the key each time.
        inner, outer = form.inner.copy(), form.outer.copy()
        inner.update(to_sign.encode())
        outer.update(inner.digest())
        signature = outer.hexdigest()
        signed = {"Authorization": f"{form.authorization}{signature}"}
        return {**form.headers, "X-Amz-Date": moment, **form.token, **signed}

    def _form(self, operation: str, secrets: Secrets, day: str) -> _SignedForm:
        kept_secrets, kept_day, forms = self._kept
        if day != kept_day or secrets != kept_secrets:
            # One assignment: another thread reads either the old values or the new ones, never a mix.
            forms = {}
            self._kept = (secrets, day, forms)
        form = forms.get(operation)
        if form is None:
            form = forms[operation] = self._made(operation, secrets, day)
        return form

    def _made(self, operation: str, secrets: Secrets, day: str) -> _SignedForm:
        headers = {**self.common, "X-Amz-Target": f"DynamoDB_20120810.{operation}"}
        request = AWSRequest("POST", self.url, headers=headers, data=b"")
        moment = request.context["timestamp"] = f"{day}T000000Z"
        signer = SigV4Auth(secrets, _SERVICE, self.region)
        signer._modify_request_before_signing(request)
        canonical = signer.canonical_request(request).rpartition("\n")[0] + "\n"
        before, mark, behind = canonical.partition(f"\nx-amz-date:{moment}\n")
        names = signer.signed_headers(signer.headers_to_sign(request))
        key = f"AWS4{secrets.secret_key}".encode()
        for part in (day, self.region, _SERVICE, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return _SignedForm(
            headers,
            {name: value for name, value in request.headers.items() if name not in (*headers, "X-Amz-Date")},
            (before + mark[: -len(moment) - 1], "\n" + behind),
            signer.credential_scope(request),
            f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, Signature=",
            *(sha256(bytes(byte ^ pad for byte in key.ljust(_BLOCK, b"\0"))) for pad in (0x36, 0x5C)),
        )


# ── Requests and answers ──


class KeptSigning:
    """Signatures of version 4; the constant parts are computed once a day."""

    def __init__(self, client: Any) -> None:
        self._credentials = client._request_signer._credentials
        self._url = client.meta.endpoint_url
        self.host, path = urlsplit(self._url)[1:3]
        self.path = path or "/"
        headers = {
            "Host": self.host,
            "X-Amz-Target": "",
            "Content-Type": CONTENT_TYPE,
            "User-Agent": client._user_agent_creator.to_string(),
        }
        self._signer = Signer(self._url, client.meta.region_name, headers)

    def signed(
        self, client: Any, operation: str, params: Mapping[str, Any], body: bytes
    ) -> AWSPreparedRequest:
        # Refreshed, if they can be.
        secrets = self._credentials.get_frozen_credentials()
        headers = self._signer.headers(operation, body, secrets, time.time())
        return AWSPreparedRequest("POST", self._url, headers, body, stream_output=False)


class SocketTransport(Struct, frozen=True):
    """Kept-alive connections for many concurrent requests (dynamodb/conditional.py)."""

    signing: KeptSigning
    connections: Connections

    def send(self, client: Any, operation: str, params: Mapping[str, Any], body: bytes) -> Received:
        return self.connections.exchange(partial(self.request, client, operation, body))

    def request(self, client: Any, operation: str, body: bytes) -> bytes:
        request = self.signing.signed(client, operation, {}, body)
        client.meta.events.emit(f"before-send.dynamodb.{operation}", request=request)
        lines = [f"{name}: {value}\r\n" for name, value in request.headers.items()]
        end = f"Accept-Encoding: identity\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"POST {self.signing.path} HTTP/1.1\r\n{''.join(lines)}{end}".encode() + body

    def close(self) -> None:
        self.connections.close()


class Exchange(Struct, frozen=True):
    """Sends one client's requests, after its check, and parses their answers. Thread-safe.

    Raises, also from `transport`: botocore's errors.
    """

    transport: SocketTransport | SessionTransport

    @property
    def sockets(self) -> SocketTransport | None:
        return self.transport if isinstance(self.transport, SocketTransport) else None

    def call(
        self,
        client: Any,
        operation: str,
        params: Mapping[str, Any],
        read: Callable[[bytes], Any] = orjson.loads,
    ) -> dict[str, Any]:
        """An answer as from botocore's clients, except that binary values are base64 text.

        `read`: parses the answer's JSON.
        Raises: ClientError, BotoCoreError as a client does; IncompleteAnswerError if a part is missing.
        """
        answer = self.transport.send(client, operation, params, json_of(params))
        return self.answer(client, operation, params, answer, read)

    def answer(
        self,
        client: Any,
        operation: str,
        params: Mapping[str, Any],
        answer: Received | Exception,
        read: Callable[[bytes], Any] = orjson.loads,
    ) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        note_answer(client)
        require_checksum(answer.headers, answer.body)
        try:
            parsed = read(answer.body)
        except orjson.JSONDecodeError:
            parsed = None
        parsed = parsed if isinstance(parsed, dict) else None
        if answer.status >= 300:
            _refuse(client, operation, params, answer, parsed)
        if parsed is None:
            raise IncompleteAnswerError(part="the operation's shape")
        for part in missing_parts(operation, params, parsed):
            raise IncompleteAnswerError(part=part)
        return parsed

    def scan(self, client: Any, read: Callable[[bytes], Any], **params: Any) -> dict[str, Any]:
        return self.call(client, "Scan", params, read)

    def close(self) -> None:
        self.transport.close()


class Texts:
    """A list of so many elements as JSON, `inner` without the brackets."""

    def __init__(self, inner: bytes, count: int) -> None:
        self.inner = inner
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(orjson.loads(self.json()))

    def json(self) -> bytes:
        return b"[%b]" % self.inner


def json_of(params: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(params, default=_as_json)
    except TypeError:
        # Not valid Unicode: let the service reject it.
        return json.dumps(params, default=_base64).encode()


def _as_json(value: Any) -> Any:
    return orjson.Fragment(value.json()) if isinstance(value, Texts) else _base64(value)


def _base64(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return b64encode(value).decode()
    raise TypeError(type(value).__name__)


def _refuse(
    client: Any, operation: str, params: Mapping[str, Any], answer: Received, parsed: dict[str, Any] | None
) -> NoReturn:
    """Raises: ClientError of the answer's type.

    Source: Developer Guide, "Error handling with DynamoDB", "Error components".
    """
    body = parsed or {}
    code = str(body.get("__type") or answer.status).split(":")[0].rpartition("#")[2]
    message = body.get("message") or body.get("Message") or ""
    metadata = {
        "HTTPStatusCode": answer.status,
        "HTTPHeaders": dict(answer.headers),
        "RequestId": answer.headers.get("x-amzn-requestid", ""),
    }
    told = {**body, "Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}
    for part in missing_reasons(params, told):
        raise IncompleteAnswerError(part=part)
    raise client.exceptions.from_code(code)(told, operation)


# ── Clients that use it ──


class ExchangingClient:
    """Base class for botocore's client classes: sends hot operations through an exchange, if the client has one."""

    exchange: Exchange | None = None

    def _make_api_call(self, operation_name: str, api_params: Mapping[str, Any]) -> Any:
        if self.exchange is None or operation_name not in OPERATIONS:
            return super()._make_api_call(operation_name, api_params)  # type: ignore[misc]
        return self.exchange.call(self, operation_name, api_params)

    def close(self) -> None:
        if self.exchange is not None:
            self.exchange.close()
        super().close()  # type: ignore[misc]


def with_exchange(base_classes: list[type], **_: Any) -> None:
    base_classes.insert(0, ExchangingClient)
