"""Checks that AWS's answers are complete, HTTP parsing, and the last check before a request is sent.

An incomplete answer is retried as a failed request. A proxy, a gateway or a broken endpoint can return 200
with an empty body, which would read as "all written" or "not found".
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias
from weakref import WeakSet

from botocore.exceptions import HTTPClientError
from botocore.parsers import ResponseParserError, ResponseParserFactory
from msgspec import Struct

from migrator.dynamodb.throttle import TABLE

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

    A call raises IncompleteAnswerError if a part of its answer is missing.
    """
    events, service = client.meta.events, client.meta.service_model.service_id.hyphenize()

    def note(parsed_response: Any = None, **_: Any) -> None:
        if parsed_response is not None:
            note_answer(client)

    events.register(f"before-parameter-build.{service}", _keep)
    events.register("before-send", _check_last)
    events.register("response-received", note)
    events.register(f"after-call.{service}", _require)


_ANSWERING: WeakSet[Any] = WeakSet()
"""Clients that have had an answer from their endpoint."""


def note_answer(client: Any) -> None:
    _ANSWERING.add(client)


def has_answered(client: Any) -> bool:
    return client in _ANSWERING


_LAST_CHECK: ContextVar[Callable[[], None]] = ContextVar("last_check")


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


def _check_last(**_: Any) -> None:
    check = _LAST_CHECK.get(None)
    if check is not None:
        check()


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
    if http_response.status_code < 300:
        missing = list(missing_parts(model.name, params, parsed))
    else:
        missing = list(missing_reasons(params, parsed))
    if missing:
        raise IncompleteAnswerError(part=missing[0])


def missing_parts(operation: str, params: RequestParams, answer: Answer) -> _Missing:
    """Parts missing from the answer of a request that took effect.

    Fields that AWS omits if empty (Item, LastEvaluatedKey) are not required.
    Source: API references of DynamoDB and S3, "Response Elements".
    """
    yield from _PARTS.get(operation, _nothing)(params, answer)


def missing_reasons(params: RequestParams, answer: Answer) -> _Missing:
    """Parts missing from a failure that should name the item whose condition failed.

    Source: API reference, PutItem, "ReturnValuesOnConditionCheckFailure"; TransactWriteItems,
    "TransactionCanceledException".
    """
    code = str(answer.get("Error", {}).get("Code", ""))
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

_PIECE_BYTES = 65_536
_HEAD_BYTES = 65_536
_HEAD = re.compile(
    r"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n\0]*)?((?:\r\n[!#-'*+.^-z|~\w-]+:[^\r\n\0]*)*)", re.ASCII
)
_FIELD = re.compile(r"\r\n([^:]+):([^\r]*)")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?")
_LENGTH = re.compile(r"[0-9]{1,15}")
_NO_BODY = frozenset({204, 304})


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


class _Frame:
    """Bytes of one answer from a socket. Raises: BrokenFrameError, OSError."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.received: bytes = b""

    def until(self, mark: bytes, at_most: int) -> bytes:
        while (end := self.received.find(mark)) < 0:
            if len(self.received) > at_most or not self._more():
                raise BrokenFrameError(f"no end of a line after {len(self.received)} bytes")
        taken, self.received = self.received[:end], self.received[end + len(mark) :]
        return taken

    def exactly(self, length: int) -> bytes:
        pieces, have = [self.received], len(self.received)
        while have < length:
            pieces.append(self._sock.recv(_PIECE_BYTES))
            have += len(pieces[-1])
            if not pieces[-1]:
                raise BrokenFrameError(f"{have} of {length} bytes")
        whole = b"".join(pieces) if len(pieces) > 1 else self.received
        self.received = whole[length:]
        return whole[:length]

    def rest(self) -> bytes:
        pieces = [self.received]
        while pieces[-1] or len(pieces) == 1:
            pieces.append(self._sock.recv(_PIECE_BYTES))
        self.received = b""
        return b"".join(pieces)

    def _more(self) -> bool:
        data: bytes = self._sock.recv(_PIECE_BYTES)
        self.received += data
        return bool(data)


def received(sock: Any) -> Received:
    """Raises: BrokenFrameError, OSError.

    Stricter than the source: a client may repair some errors. Source: RFC 9112, "Message Body Length".
    """
    frame = _Frame(sock)
    status = 100
    while status < 200:
        minor, status, fields = _head(frame.until(b"\r\n\r\n", _HEAD_BYTES))
    headers = dict(fields)
    codings, lengths = _all(headers, fields, "transfer-encoding"), _all(headers, fields, "content-length")
    ends = minor == "0" or "close" in ",".join(_all(headers, fields, "connection")).lower()
    if status in _NO_BODY:
        body = b""
    elif codings:
        if codings != ["chunked"] or lengths or minor == "0":
            raise BrokenFrameError("chunks together with another coding or a length")
        body = _chunks(frame)
    elif lengths:
        if len(set(lengths)) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
            raise BrokenFrameError("no length that is one number")
        body = frame.exactly(int(lengths[0]))
    else:
        body, ends = frame.rest(), True
    # Surplus bytes belong to no request: they would be read as the next one's answer.
    return Received(status, headers, body, ends or bool(frame.received))


def _head(head: bytes) -> tuple[str, int, list[tuple[str, str]]]:
    matched = _HEAD.fullmatch(head.decode("latin-1"))
    if matched is None:
        raise BrokenFrameError("no head of HTTP/1.1")
    minor, status, lines = matched.groups()
    return minor, int(status), [(name.lower(), value.strip()) for name, value in _FIELD.findall(lines)]


def _all(headers: Mapping[str, str], fields: list[tuple[str, str]], name: str) -> list[str]:
    if name not in headers:
        return []
    return [value for field, value in fields if field == name]


def _chunks(frame: _Frame) -> bytes:
    body = []
    while True:
        matched = _SIZE.fullmatch(frame.until(b"\r\n", _HEAD_BYTES))
        if matched is None:
            raise BrokenFrameError("no size of a chunk")
        size = int(matched[1], 16)
        if not size:
            break
        body.append(frame.exactly(size))
        if frame.exactly(2) != b"\r\n":
            raise BrokenFrameError("no end of a chunk")
    # The trailer ends like a head, with an empty line; most trailers are nothing else.
    while frame.until(b"\r\n", _HEAD_BYTES):
        pass
    return b"".join(body)
