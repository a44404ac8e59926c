"""Answers of AWS, read from HTTP, and whether they are complete; the last check before a request is sent.

Where a part of an answer is missing it counts as none, and is asked for again: a proxy, a gateway or a broken endpoint can
say 200 with nothing in it. Read as an answer it would say that all is written, or that nothing is there.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias
from weakref import WeakSet

from botocore.exceptions import HTTPClientError
from botocore.parsers import ResponseParserError, ResponseParserFactory
from msgspec import Struct

from migrator.dynamodb.throttle import TABLE

RequestParams: TypeAlias = Mapping[str, Any]
"""A request's parameters as they were given to the client."""
Answer: TypeAlias = Mapping[str, Any]
_Missing: TypeAlias = Iterator[str]
"""Names of what an answer lacks."""

_PARAMS = "migrator_asked"
_UNREADABLE = (ResponseParserError, AttributeError, LookupError, TypeError, ValueError)
"""What botocore's parsers raise over an answer of another shape."""


class IncompleteAnswerError(HTTPClientError):  # type: ignore[misc]
    """An answer that lacks a part that was asked for: the request may have taken effect, or may yet."""

    fmt = "an answer without {part}"


class WholeAnswers(ResponseParserFactory):  # type: ignore[misc]
    """botocore's parsers, whose every failure is an answer that is not whole."""

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
    """Lets each request of the client ask the check of `checked_last`, and each answer count only where it is whole.

    A call raises IncompleteAnswerError where a part of what it asked for is missing.
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
"""Clients whose endpoint has answered them."""


def note_answer(client: Any) -> None:
    """From here on the client is known to have the right address."""
    _ANSWERING.add(client)


def has_answered(client: Any) -> bool:
    """Whether an answer has come to the client, so that its address is right."""
    return client in _ANSWERING


_LAST_CHECK: ContextVar[Callable[[], None]] = ContextVar("last_check")


@contextmanager
def checked_last(check: Callable[[], None]) -> Iterator[None]:
    """Every request that is sent inside asks `check` once more when it is signed, right before its bytes go out.

    A process may be frozen at any moment. What is frozen before this one is stopped by it; what is frozen after it has a
    signature that grows old, and AWS takes none that is older than five minutes.
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
"""The header by which DynamoDB says the CRC32 of an answer's body, as a number."""


def require_checksum(headers: Mapping[str, str], body: bytes) -> None:
    """Raises: IncompleteAnswerError where the answer names another checksum than its body has.

    botocore looks at it only where it tries again, which is ours to do.
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
    """What the answer of a request that took effect lacks.

    Source: API references of DynamoDB and S3, "Response Elements"; fields that AWS leaves out where they are empty (Item,
    LastEvaluatedKey) are not among them.
    """
    yield from _PARTS.get(operation, _nothing)(params, answer)


def missing_reasons(params: RequestParams, answer: Answer) -> _Missing:
    """The parts that a refusal lacks to say which item refused the write.

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
    """Returned by every operation on request; in some answers nothing else shows that a write took place."""
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
    elif left is None or not all(_is_part(left[table], sent.get(table, [])) for table in left):
        yield "UnprocessedItems"
    elif sum(map(len, left.values())) < sum(map(len, sent.values())):
        yield from _capacity(params, answer)


def _batch_read(params: RequestParams, answer: Answer) -> _Missing:
    """Its ConsumedCapacity is not required: some endpoints do not return it for this operation."""
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
    """Checks that the answer holds a description called `name` with these parts."""

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


def _is_part(left: Sequence[Any], sent: Sequence[Any]) -> bool:
    return 0 < len(left) <= len(sent)


# ── What an answer says that a request consumed ──
#
# Source: API reference, ConsumedCapacity. That it is there is required where it was asked for (dynamodb/answers.py); an
# endpoint that is not AWS may leave out what it says of indexes.


def consumed_units(answer: Mapping[str, Any]) -> float:
    """Capacity units in all, those of indexes included; 0 where the endpoint names none."""
    return sum(float(part.get("CapacityUnits", 0.0)) for part in _parts(answer))


def consumed_by_meter(answer: Mapping[str, Any]) -> dict[str, float] | None:
    """Units of the table (its local indexes included) and of each global index; None where the answer has none.

    Needs ReturnConsumedCapacity: INDEXES; from an answer without that, all is taken for the table's.
    """
    units: dict[str, float] = {}
    for part in _parts(answer):
        indexes = part.get("GlobalSecondaryIndexes") or {}
        apart = {name: float(index.get("CapacityUnits", 0.0)) for name, index in indexes.items()}
        # Taken from the sum: local indexes stand beside "Table" there, and draw on the table's capacity.
        apart[TABLE] = float(part.get("CapacityUnits", 0.0)) - sum(apart.values())
        for name, number in apart.items():
            units[name] = units.get(name, 0.0) + number
    return units or None


def _parts(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One part per table; a batch answers with a list, another operation with the part itself."""
    capacity = answer.get("ConsumedCapacity") or []
    return [part for part in ([capacity] if isinstance(capacity, dict) else capacity) if part]


# ── Answers as they come: one frame of HTTP/1.1 ──

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
    """What came is no answer of HTTP, or not all of one."""


class Received(Struct, frozen=True):
    """`headers`: by names in lower case. `ends`: whether nothing can be asked on its connection any more."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    ends: bool


class _Frame:
    """What comes from a socket, taken piece by piece. Raises: BrokenFrameError, OSError."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.received: bytes = b""

    def until(self, mark: bytes, at_most: int) -> bytes:
        """What is before the mark, which is taken, too."""
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
    """The answer that comes next. Raises: BrokenFrameError, OSError.

    Source: RFC 9112, "Message Body Length". What it lets a client repair is refused here.
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
    # Bytes behind its end are of nothing that was asked for: what came next would be read as of another request.
    return Received(status, headers, body, ends or bool(frame.received))


def _head(head: bytes) -> tuple[str, int, list[tuple[str, str]]]:
    """The minor version, the status, and the header fields in lower case."""
    matched = _HEAD.fullmatch(head.decode("latin-1"))
    if matched is None:
        raise BrokenFrameError("no head of HTTP/1.1")
    minor, status, lines = matched.groups()
    return minor, int(status), [(name.lower(), value.strip()) for name, value in _FIELD.findall(lines)]


def _all(headers: Mapping[str, str], fields: list[tuple[str, str]], name: str) -> list[str]:
    """The values of all fields of this name, of which `headers` has one."""
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
    # The trailer ends as a head does: with an empty line, which is all there is of most.
    while frame.until(b"\r\n", _HEAD_BYTES):
        pass
    return b"".join(body)
