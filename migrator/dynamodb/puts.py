"""Many concurrent conditional writes by one thread, each on its own kept-alive connection.

A thread per request would cost more than the request: threads of an interpreter take turns, and each send and
read waits for the next one.
"""

from __future__ import annotations

import hashlib
import math
import selectors
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError
from msgspec import Struct
from urllib3.connection import HTTPConnection

from migrator.dynamodb.answers import BrokenFrameError, Received, checked_last, consumed_by_meter, received
from migrator.dynamodb.exchange import Connections, SocketTransport, json_of
from migrator.dynamodb.failures import Unprocessed, error_code, is_throttle, passes_in_batch
from migrator.dynamodb.store import DynamoStore
from migrator.dynamodb.throttle import LimitedRequest
from migrator.mapping.items.wire import decode_item, units_of_writes, write_units
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import EncodedItem, Item
from migrator.runtime.errors import ItemRefusedError, amount
from migrator.runtime.retry import cut_to_end

# ── Conditional writes as requests: puts, and transactions of puts ──

REFUSED = "ConditionalCheckFailedException"
Refused: TypeAlias = Callable[[EncodedItem, Item], Outcome]
"""The outcome of an item whose condition failed because of the second item."""


class Put(Struct, frozen=True):
    """One conditional put. `put`: as a transaction's action. `operation`: DynamoDB's name for it."""

    item: EncodedItem
    put: Mapping[str, Any]
    refused_by: Refused
    operation: str = "PutItem"

    @property
    def items(self) -> Sequence[EncodedItem]:
        return (self.item,)

    def units(self) -> float:
        return write_units(self.item.size_bytes)

    def request(self) -> Mapping[str, Any]:
        return {**self.put, "ReturnConsumedCapacity": "INDEXES"}

    def refused(self, error: ClientError) -> list[Outcome] | None:
        if error_code(error) != REFUSED:
            return None
        return [self.refused_by(self.item, decode_item(error.response.get("Item", {})))]


# ── Items that are written in one transaction: all of them, or none of them and why ──

_TRANSACTIONAL = 2
"""A transactional write takes twice the units. Source: AWS Developer Guide, "Amazon DynamoDB Transactions: How it works"."""
_NONE, _CONDITION = "None", "ConditionalCheckFailed"
CANCELLED = "TransactionCanceledException"


@dataclass(slots=True)
class Transaction:
    """A TransactWriteItems of puts. `cancelled`: number of cancelled tries.

    Source of the reasons: API reference, TransactWriteItems, "TransactionCanceledException".
    """

    items: Sequence[EncodedItem]
    puts: Sequence[Mapping[str, Any]]
    refused_by: Refused
    cancelled: int = 0
    operation: str = "TransactWriteItems"

    def units(self) -> float:
        return _TRANSACTIONAL * units_of_writes([item.size_bytes for item in self.items])

    def request(self) -> Mapping[str, Any]:
        """A token per request: a retry within ten minutes takes effect once. After an answer, the next try is a
        new request.

        Source: API reference, TransactWriteItems, "ClientRequestToken" (36 characters at most).
        """
        request = {"TransactItems": [{"Put": put} for put in self.puts], "ReturnConsumedCapacity": "INDEXES"}
        text = b"%d%b" % (self.cancelled, json_of(request))
        return {**request, "ClientRequestToken": hashlib.blake2b(text, digest_size=16).hexdigest()}

    def refused(self, error: ClientError) -> list[Outcome] | None:
        codes = _codes(error)
        if _CONDITION not in codes:
            return None
        reasons = error.response.get("CancellationReasons") or []
        return [
            self.refused_by(item, decode_item(reason.get("Item") or {}))
            if code == _CONDITION
            else Outcome(item, "rolled_back")
            for item, reason, code in zip(self.items, reasons, codes, strict=True)
        ]

    def not_taken(self, error: ClientError, table: str) -> tuple[Unprocessed, bool]:
        """The error for a cancellation without a failed condition, and whether capacity was the cause.

        Raises: ItemRefusedError if a retry cannot succeed.
        """
        codes = _codes(error)
        serious = sorted({code for code in codes if code != _NONE and not passes_in_batch(code)})
        if serious:
            what = f"DynamoDB refused a transaction on table {table} ({', '.join(serious)})"
            raise ItemRefusedError(f"{what}; run `migrator table check` with this job file")
        is_throttled = bool({"ThrottlingError", "ProvisionedThroughputExceeded"} & set(codes))
        return Unprocessed(f"{amount(len(self.items), 'item')} of a transaction not taken"), is_throttled


def _codes(error: ClientError) -> list[str]:
    if error_code(error) != CANCELLED:
        return []
    return [str(reason.get("Code") or _NONE) for reason in error.response.get("CancellationReasons") or []]


ConditionalWrite: TypeAlias = Put | Transaction

# ── The first tries of many ──


class FirstTries:
    """Concurrent first tries of many writes.

    `answered`: numbers of settled writes.
    `refused`: outcomes of failed conditions.
    `failed`: errors of the others.

    Respects the write limit: while it has no room for the next write, answers are read.
    """

    def __init__(self, store: DynamoStore, writes: Sequence[ConditionalWrite]) -> None:
        self._store = store
        self._writes = writes
        self._limited: dict[int, LimitedRequest] = {}
        self._sent: dict[int, Mapping[str, Any]] = {}
        self.answered: set[int] = set()
        self.refused: dict[int, list[Outcome]] = {}
        self.failed: dict[int, Exception] = {}

    def send(self, sockets: SocketTransport) -> None:
        pauses = Pauses(self._pause_s, self._store.limit.wait)
        request = partial(self._request, sockets)
        exchange_many(sockets.connections, len(self._writes), request, self._answer, pauses)

    def _pause_s(self, number: int) -> float:
        limit = self._store.limit
        if limit.units_at_most is None:
            return 0.0
        limited = self._limited.setdefault(number, LimitedRequest(0.0))
        limited.units = limited.units or self._writes[number].units()
        return limit.pause_s(limited)

    def _request(self, sockets: SocketTransport, number: int) -> bytes:
        write = self._writes[number]
        try:
            params = self._sent[number] = write.request()
            body = json_of(params)
            # Here, and again when the request is signed.
            self._store.check()
            with checked_last(self._store.check):
                request = sockets.request(self._store.client, write.operation, body)
        except BaseException:
            self._settle(number, {})
            raise
        return request

    def _answer(self, number: int, received: Received | BotoCoreError) -> bool:
        """Whether more may be sent."""
        consumed: Mapping[str, float] | None = None
        try:
            answer = self._answer_of(number, received)
            if answer is not None:
                consumed = consumed_by_meter(answer)
                self._store.count(consumed or {})
        except BotoCoreError as error:
            # It may take effect nevertheless.
            self._store.sent.unanswered += 1
            self.failed[number] = error
            return False
        except ClientError as error:
            if is_throttle(error):
                consumed = {}
                self._store.throttled(self._writes[number].units())
            self.failed[number] = error
            return False
        finally:
            self._settle(number, consumed)
        self.answered.add(number)
        self._store.sent.taken += len(self._writes[number].items)
        return True

    def _answer_of(self, number: int, received: Received | BotoCoreError) -> Mapping[str, Any] | None:
        client, write = self._store.client, self._writes[number]
        if isinstance(received, BotoCoreError):
            raise received
        try:
            answer: Mapping[str, Any] = client.exchange.answer(
                client, write.operation, self._sent.pop(number), received
            )
        except ClientError as error:
            outcomes = write.refused(error)
            if outcomes is None:
                raise
            self.refused[number] = outcomes
            return None
        return answer

    def _settle(self, number: int, consumed: Mapping[str, float] | None) -> None:
        limited = self._limited.pop(number, None)
        if limited is not None:
            limited.consumed = consumed
            self._store.limit.settle(limited)


# ── Requests side by side ──

AT_ONCE = 16
"""Concurrent requests of one call. With answers after 5 ms that is 3,200 a second."""
_PIECE_BYTES = 65_536
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Pauses(Struct, frozen=True):
    """`before_s`: seconds until a numbered request may be sent, or is to be asked for again; 0: now.
    `wait`: sleep, if no answer is pending.
    """

    before_s: Callable[[int], float]
    wait: Callable[[float], None]


_NO_PAUSES = Pauses(lambda _: 0.0, time.sleep)


def exchange_many(
    connections: Connections,
    count: int,
    request: Callable[[int], bytes],
    answered: Callable[[int, Received | BotoCoreError], bool],
    pauses: Pauses = _NO_PAUSES,
) -> None:
    """Send `count` requests, each once. `request`: makes the bytes of a number's request right before it is
    sent.

    `answered`: called with each answer, or the error of its connection; returns whether more may be sent. All
    sent requests have their answers on return. If no connection can be opened, the others are left out.
    Raises: errors of `request` and `answered`; nothing more is sent after that.
    """
    _Exchanges(connections, request, answered, pauses).run(count)


@dataclass(slots=True)
class _Lane:
    """A connection, and its pending request, which times out at `ends_at`."""

    connection: HTTPConnection
    number: int = -1
    timeout_s: float | None = None
    ends_at: float = 0.0
    piece: bytes = b""


class _Exchanges:
    def __init__(
        self,
        connections: Connections,
        request: Callable[[int], bytes],
        answered: Callable[[int, Received | BotoCoreError], bool],
        pauses: Pauses,
    ) -> None:
        self._connections = connections
        self._request = request
        self._answered = answered
        self._pauses = pauses
        self._free: list[_Lane] = []
        self._waiting: dict[int, _Lane] = {}
        """By number, in the order of sending."""
        self._failed: list[Exception] = []
        self._continues = True
        self._selector = selectors.DefaultSelector()

    def run(self, count: int) -> None:
        number = 0
        try:
            while True:
                pause_s = 0.0
                while number < count and (lane := self._lane()) is not None:
                    if (pause_s := self._pauses.before_s(number)) > 0:
                        self._free.append(lane)
                        break
                    self._begin(number, lane)
                    number += 1
                if self._waiting:
                    self._await(pause_s)
                elif pause_s > 0:
                    self._pauses.wait(pause_s)
                else:
                    break
        finally:
            self._end()
        if self._failed:
            raise self._failed[0]

    def _lane(self) -> _Lane | None:
        if not self._continues or len(self._waiting) >= AT_ONCE:
            return None
        if self._free:
            return self._free.pop()
        try:
            return self._opened()
        except BotoCoreError:
            self._continues = False
            return None

    def _begin(self, number: int, lane: _Lane) -> None:
        try:
            request = self._request(number)
        except Exception as error:
            self._free.append(lane)
            self._fail(error)
            return
        lane.number, lane.piece = number, b""
        lane.timeout_s = cut_to_end(self._connections.timeout_s)
        lane.ends_at = time.monotonic() + (lane.timeout_s or 0.0)
        self._waiting[number] = lane
        try:
            _send(lane, request)
        except OSError as error:
            self._break(lane, ConnectionClosedError(endpoint_url=self._connections.url, error=error))

    def _opened(self) -> _Lane | None:
        # Wait for a connection only if this call holds none; beyond that, take only idle ones.
        connection = self._connections.take(waits=not self._waiting)
        if connection is None:
            return None
        lane = _Lane(connection)
        connection.sock.settimeout(0.0)
        self._selector.register(connection.sock, selectors.EVENT_READ, lane)
        return lane

    # ── answers ──

    def _await(self, pause_s: float) -> None:
        oldest = next(iter(self._waiting.values()))
        left_s = math.inf if oldest.timeout_s is None else max(0.0, oldest.ends_at - time.monotonic())
        wait_s = min(left_s, pause_s or math.inf)
        ready = self._selector.select(None if math.isinf(wait_s) else wait_s)
        for key, _ in ready:
            self._look(key.data)
        if not ready and left_s <= wait_s:
            error = TimeoutError("timed out")
            self._break(oldest, ReadTimeoutError(endpoint_url=self._connections.url, error=error))

    def _look(self, lane: _Lane) -> None:
        try:
            answer = _read(lane)
        except (OSError, BrokenFrameError) as error:
            self._break(lane, ConnectionClosedError(endpoint_url=self._connections.url, error=error))
            return
        if answer is None or lane.number not in self._waiting:
            return
        del self._waiting[lane.number]
        if answer.ends:
            self._close(lane)
        else:
            self._free.append(lane)
        self._tell(lane.number, answer)

    def _tell(self, number: int, answer: Received | BotoCoreError) -> None:
        try:
            self._continues &= self._answered(number, answer)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed.append(error)
        self._continues = False

    # ── ends ──

    def _break(self, lane: _Lane, error: BotoCoreError) -> None:
        is_waiting = self._waiting.pop(lane.number, None) is lane
        if lane in self._free:
            self._free.remove(lane)
        self._close(lane)
        if is_waiting:
            self._tell(lane.number, error)

    def _close(self, lane: _Lane) -> None:
        self._selector.unregister(lane.connection.sock)
        self._connections.drop(lane.connection)

    def _end(self) -> None:
        """Return connections; close those with a pending answer, which an interrupted thread leaves."""
        for lane in list(self._waiting.values()):
            self._break(lane, ConnectionClosedError(endpoint_url=self._connections.url))
        for lane in self._free:
            self._connections.give_back(lane.connection)
        self._selector.close()


# ── One connection, without waiting ──


def _send(lane: _Lane, request: bytes) -> None:
    """Block only for the part that exceeds the connection's buffer. Raises: OSError."""
    sock = lane.connection.sock
    try:
        sent = sock.send(request)
    except _NOT_YET:
        sent = 0
    if sent < len(request):
        sock.settimeout(lane.timeout_s)
        try:
            sock.sendall(memoryview(request)[sent:])
        finally:
            sock.settimeout(0.0)


def _read(lane: _Lane) -> Received | None:
    sock = lane.connection.sock
    while True:
        try:
            piece = sock.recv(_PIECE_BYTES)
        except _NOT_YET:
            return None
        lane.piece += piece
        try:
            return received(_Pieces(lane.piece, ended=not piece))
        except _NotWholeError:
            # Data that TLS has already decoded does not make its socket readable: read until it is empty.
            continue


class _NotWholeError(Exception):
    """The rest of the answer is still to come."""


class _Pieces:
    def __init__(self, piece: bytes, *, ended: bool) -> None:
        self._piece = piece
        self._ended = ended

    def recv(self, _: int) -> bytes:
        piece, self._piece = self._piece, b""
        if not piece and not self._ended:
            raise _NotWholeError
        return piece
