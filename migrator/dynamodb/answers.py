"""Checks that AWS's answers are complete, HTTP parsing, and the last check before a request is sent.

An incomplete answer is retried as a failed request. A proxy, a gateway or a broken endpoint can return 200
with an empty body, which would read as "all written" or "not found".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias
from weakref import WeakSet

import orjson
from botocore.exceptions import HTTPClientError
from botocore.parsers import ResponseParserError, ResponseParserFactory
from httptools import HttpParserError, HttpResponseParser
from msgspec import Struct

from migrator.dynamodb.throttle import TABLE
from migrator.runtime.retry import cut_to_end

RequestParams: TypeAlias = Mapping[str, Any]
"""A request's parameters, as passed to the client."""
Answer: TypeAlias = Mapping[str, Any]
_Missing: TypeAlias = Iterator[str]
"""Names of the missing parts."""

_PARAMS = "migrator_asked"
_UNREADABLE = (ResponseParserError, AttributeError, LookupError, TypeError, ValueError)
"""What botocore's parsers raise for an answer of an unexpected shape."""


class IncompleteAnswerError(HTTPClientError):  # type: ignore[misc]
    """An answer that lacks a required part: the request may have taken effect, or may do so later."""

    fmt = "an answer without {part}"


class WholeAnswers(ResponseParserFactory):  # type: ignore[misc]
    """botocore's parsers; their failures become incomplete answers."""

    def create_parser(self, protocol_name: str) -> Any:
        return _Parser(super().create_parser(protocol_name))


class _Parser:
    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def parse(self, response: Any, shape: Any) -> Any:
        try:
            parsed = self._parser.parse(response, shape)
        except _UNREADABLE:
            parsed = None
        if not isinstance(parsed, dict):
            raise IncompleteAnswerError(part="the operation's shape")
        return parsed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


# ── Before a request is sent, and when its answer came ──


def watch_requests(client: Any) -> None:
    """Run the check of `checked_last` before each request, and check that each answer is complete.

    No request waits for its answer longer than the time that is left of `ending_at`; connecting has a limit of its own.
    A call raises IncompleteAnswerError if a part of its answer is missing.
    """
    events, service = client.meta.events, client.meta.service_model.service_id.hyphenize()

    def prepare(request: Any, **_: Any) -> None:
        _LAST_CHECK.get()()
        timeout_s = cut_to_end(client._endpoint.http_session._timeout.read_timeout)
        request.context = {**(getattr(request, "context", None) or {}), "read_timeout": timeout_s}

    def note(parsed_response: Any = None, **_: Any) -> None:
        if parsed_response is not None:
            note_answer(client)

    events.register(f"before-parameter-build.{service}", _keep)
    events.register("before-send", prepare)
    events.register("response-received", note)
    events.register(f"after-call.{service}", _require)


_ANSWERING: WeakSet[Any] = WeakSet()
"""Clients that have had an answer from their endpoint."""


def note_answer(client: Any) -> None:
    _ANSWERING.add(client)


def has_answered(client: Any) -> bool:
    return client in _ANSWERING


_LAST_CHECK: ContextVar[Callable[[], None]] = ContextVar("last_check", default=lambda: None)


@contextmanager
def checked_last(check: Callable[[], None]) -> Iterator[None]:
    """Run `check` again while each request is signed, right before it is sent.

    A process may be suspended at any moment. Suspended before the check, it is stopped by it; suspended after
    it, its signature expires: AWS takes none older than five minutes.
    """
    token = _LAST_CHECK.set(check)
    try:
        yield
    finally:
        _LAST_CHECK.reset(token)


# ── Whether an answer is whole ──

CHECKSUM = "x-amz-crc32"
"""Header with the CRC32 of an answer's body, as a number."""


def require_checksum(headers: Mapping[str, str], body: bytes) -> None:
    """Raises: IncompleteAnswerError if the answer's checksum does not match its body.

    botocore checks it only if it does the retries, which are ours.
    Source: Developer Guide, "DynamoDB low-level API", "Response format".
    """
    checksum = headers.get(CHECKSUM)
    if checksum is not None and checksum != str(zlib.crc32(body)):
        raise IncompleteAnswerError(part="the body of its checksum")


def _keep(params: RequestParams, context: dict[str, Any], **_: Any) -> None:
    context[_PARAMS] = params


def _require(http_response: Any, parsed: Answer, model: Any, context: Mapping[str, Any], **_: Any) -> None:
    params = context.get(_PARAMS, {})
    if CHECKSUM in http_response.headers:
        require_checksum(http_response.headers, http_response.content)
    missing: list[str] = []
    if http_response.status_code < 300:
        missing += missing_parts(model.name, params, parsed)
    elif model.http["method"] != "HEAD":  # whose failures have no body
        missing += missing_reasons(params, parsed)
    if missing:
        raise IncompleteAnswerError(part=missing[0])


_NO_CODE = "400"
"""The status takes the place of a code that is missing. Other statuses of 4xx are those of proxies."""


def missing_parts(operation: str, params: RequestParams, answer: Answer) -> _Missing:
    """Parts missing from the answer of a request that took effect.

    Fields that AWS omits if empty (Item, LastEvaluatedKey) are not required.
    Source: API references of DynamoDB and S3, "Response Elements".
    """
    yield from _PARTS.get(operation, _nothing)(params, answer)


def missing_reasons(params: RequestParams, answer: Answer) -> _Missing:
    """Parts missing from a failure, which has a code, and should name the item whose condition failed.

    Source: API reference, PutItem, "ReturnValuesOnConditionCheckFailure"; TransactWriteItems,
    "TransactionCanceledException".
    """
    code = str(answer.get("Error", {}).get("Code", ""))
    if code == _NO_CODE:
        yield "an error's code"
    if code == "ConditionalCheckFailedException" and _wants_old(params) and not answer.get("Item"):
        yield "Item"
    if code != "TransactionCanceledException":
        return
    actions, reasons = params.get("TransactItems", []), answer.get("CancellationReasons") or []
    if not _is_list(reasons, len(actions)) or not all(reason.get("Code") for reason in reasons):
        yield "CancellationReasons"
        return
    for action, reason in zip(actions, reasons, strict=True):
        (words,) = action.values()
        if reason["Code"] == "ConditionalCheckFailed" and _wants_old(words) and not reason.get("Item"):
            yield "Item of a CancellationReason"


def _wants_old(words: RequestParams) -> bool:
    return words.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"


# ── by operation ──


def _nothing(params: RequestParams, answer: Answer) -> _Missing:
    return iter(())


def _capacity(params: RequestParams, answer: Answer) -> _Missing:
    """Every operation returns it on request; some answers have no other evidence of a write."""
    capacity = answer.get("ConsumedCapacity")
    parts = [capacity] if isinstance(capacity, dict) else capacity or []
    if params.get("ReturnConsumedCapacity", "NONE") != "NONE" and not any(
        isinstance(part.get("CapacityUnits"), (int, float)) for part in parts
    ):
        yield "ConsumedCapacity"


def _batch_written(params: RequestParams, answer: Answer) -> _Missing:
    sent, left = params["RequestItems"], answer.get("UnprocessedItems")
    if left == {}:
        yield from _capacity(params, answer)
    elif left is None or not all(0 < len(left[table]) <= len(sent.get(table, ())) for table in left):
        yield "UnprocessedItems"
    elif sum(map(len, left.values())) < sum(map(len, sent.values())):
        yield from _capacity(params, answer)


def _batch_read(params: RequestParams, answer: Answer) -> _Missing:
    """ConsumedCapacity is not required: some endpoints do not return it for this operation."""
    sent, read, left = params["RequestItems"], answer.get("Responses"), answer.get("UnprocessedKeys")
    if left is None or not left.keys() <= sent.keys():
        yield "UnprocessedKeys"
        return
    done = {
        table: len(words["Keys"]) - len(left.get(table, {}).get("Keys", [])) for table, words in sent.items()
    }
    untold = read is None or any(count and table not in read for table, count in done.items())
    if untold or any(len(items) > done.get(table, 0) for table, items in (read or {}).items()):
        yield "Responses"


def _statements_run(params: RequestParams, answer: Answer) -> _Missing:
    responses = answer.get("Responses")
    if not _is_list(responses, len(params["Statements"])):
        yield "Responses"
    elif not all(response.get("Error") for response in responses or []):
        yield from _capacity(params, answer)


def _page(params: RequestParams, answer: Answer) -> _Missing:
    items = range(answer.get("Count") or 0) if params.get("Select") == "COUNT" else answer.get("Items")
    if not isinstance(items, (list, range)):
        yield "Items"
    elif answer.get("Count") != len(items):
        yield "Count"
    yield from _capacity(params, answer)


def _named(name: str, *parts: str) -> Callable[[RequestParams, Answer], _Missing]:
    def missing(params: RequestParams, answer: Answer) -> _Missing:
        described = answer.get(name) or {}
        yield from (f"{name}.{part}" for part in parts if described.get(part) is None)

    return missing


def _with_parts(*parts: str) -> Callable[[RequestParams, Answer], _Missing]:
    return lambda params, answer: (part for part in parts if answer.get(part) is None)


_PARTS: Mapping[str, Callable[[RequestParams, Answer], _Missing]] = {
    "PutItem": _capacity,
    "DeleteItem": _capacity,
    "UpdateItem": _capacity,
    "GetItem": _capacity,
    "TransactWriteItems": _capacity,
    "BatchWriteItem": _batch_written,
    "BatchGetItem": _batch_read,
    "BatchExecuteStatement": _statements_run,
    "Query": _page,
    "Scan": _page,
    "DescribeTable": _named("Table", "TableName", "TableStatus"),
    "CreateTable": _named("TableDescription", "TableName"),
    "DescribeTimeToLive": _named("TimeToLiveDescription", "TimeToLiveStatus"),
    "UpdateTimeToLive": _named("TimeToLiveSpecification", "Enabled"),
    "PutObject": _with_parts("ETag"),
    "HeadObject": _with_parts("ETag", "ContentLength"),
}


def _is_list(value: Any, length: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == length
        and all(isinstance(element, Mapping) for element in value)
    )


# ── Consumed capacity ──
#
# Source: API reference, ConsumedCapacity. Required if it was requested; an endpoint other than AWS may omit the indexes.


def consumed_units(answer: Mapping[str, Any]) -> float:
    return sum(float(part.get("CapacityUnits", 0.0)) for part in _parts(answer))


def consumed_by_meter(answer: Mapping[str, Any]) -> dict[str, float] | None:
    """Units of the table (local indexes included) and of each global index.

    Needs ReturnConsumedCapacity: INDEXES; without it all units count as the table's.
    """
    units: dict[str, float] = {}
    for part in _parts(answer):
        indexes = part.get("GlobalSecondaryIndexes") or {}
        apart = {name: float(index.get("CapacityUnits", 0.0)) for name, index in indexes.items()}
        # From the sum: it lists local indexes apart from "Table", but they draw on the table's capacity.
        apart[TABLE] = float(part.get("CapacityUnits", 0.0)) - sum(apart.values())
        for name, number in apart.items():
            units[name] = units.get(name, 0.0) + number
    return units or None


def _parts(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    capacity = answer.get("ConsumedCapacity") or []
    return [part for part in ([capacity] if isinstance(capacity, dict) else capacity) if part]


# ── Received answers: one frame of HTTP/1.1 ──


def all_written(answer: Received | Exception) -> Mapping[str, float] | None:
    """Units by meter that a BatchWriteItem consumed, if it took everything; None for any other answer."""
    if isinstance(answer, Exception) or answer.status != 200:
        return None
    try:
        require_checksum(answer.headers, answer.body)
        told = orjson.loads(answer.body)
        consumed = consumed_by_meter(told) if told["UnprocessedItems"] == {} else None
    except (IncompleteAnswerError, *_UNREADABLE):
        return None
    return consumed if consumed and sum(consumed.values()) > 0 else None


_PIECE_BYTES = 65_536
_HEAD_BYTES = 65_536


class BrokenFrameError(Exception):
    """Not an HTTP answer, or an incomplete one."""


class Received(Struct, frozen=True):
    """`headers`: names in lower case.
    `ends`: the connection cannot be used again.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    ends: bool


class Frame:
    """One answer, of the pieces that a connection gives. Its other methods are the parser's callbacks.

    Stricter than the source: a client may repair some errors. Source: RFC 9112, "Message Body Length".
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._head_bytes = self._status = 0
        self._is_whole = self._ends = self._has_length = False

    def add(self, piece: bytes) -> Received | None:
        """The answer once it is whole. `piece`: b"" where the connection has ended. Raises: BrokenFrameError."""
        try:
            self._parser.feed_data(piece)
        except HttpParserError as error:
            if not self._is_whole:
                raise BrokenFrameError(f"no answer of HTTP/1.1 ({error})") from None
            self._ends = True
        if not self._status:
            self._head_bytes += len(piece)
        if not self._is_whole and (not piece or self._head_bytes > _HEAD_BYTES):
            if not self._status or self._has_length:
                raise BrokenFrameError("an answer without an end")
            self._is_whole = self._ends = True
        if not self._is_whole:
            return None
        del self._parser  # which refers to this frame: megabytes would stay until garbage is collected
        return Received(self._status, self._headers, b"".join(self._body), self._ends)

    def on_message_begin(self) -> None:
        # Surplus bytes belong to no request: they would be read as the next one's answer.
        self._ends = self._is_whole

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:
            header, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self._headers[header] = f"{self._headers[header]}, {text}" if header in self._headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._is_whole:
            return
        self._status = status
        self._ends = not self._parser.should_keep_alive()
        coding = self._headers.get("transfer-encoding")
        self._has_length = coding is not None or "content-length" in self._headers
        if coding is not None and (coding != "chunked" or self._parser.get_http_version() == "1.0"):
            raise BrokenFrameError("chunks in another coding, or of HTTP/1.0")

    def on_body(self, part: bytes) -> None:
        if not self._is_whole:
            self._body.append(part)

    def on_message_complete(self) -> None:
        if self._status:
            self._is_whole = True
        else:
            self._headers.clear()


def received(sock: Any) -> Received:
    """Raises: BrokenFrameError, OSError."""
    frame = Frame()
    while (answer := frame.add(sock.recv(_PIECE_BYTES))) is None:
        pass
    return answer
