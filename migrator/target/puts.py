"""Many puts under a condition at once, by one thread, each on a kept-alive connection of its own.

A thread for each request would cost more than the request: the threads of an interpreter take turns, and each send and each
read of an answer gives the turn away and waits for the next one.
"""

from __future__ import annotations

import selectors
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import orjson
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError
from urllib3.connection import HTTPConnection

from migrator.mapping.heart.wire import decode_item, item_bytes, write_units
from migrator.model.live import Outcome
from migrator.model.table import TOMBSTONE, Item
from migrator.target.answers import BrokenFrameError, Received, checked_last, consumed_by_meter, received
from migrator.target.exchange import Connections, json_of
from migrator.target.failures import error_code, is_throttle
from migrator.target.store import DynamoStore

# ── A put as a request, and as its body ──

REFUSED = "ConditionalCheckFailedException"
_ASKED = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD", "ReturnConsumedCapacity": "INDEXES"}
SourceText: TypeAlias = str
"""What an item's `_src` holds."""


class Put(Protocol):
    """A PutItem under a condition."""

    @property
    def item(self) -> Item: ...

    def request(self) -> dict[str, Any]:
        """As the client takes it, without what every request asks for."""

    def body(self) -> bytes:
        """The same as JSON, with what every request asks for."""


@dataclass(frozen=True, slots=True)
class ItemPut:
    item: Item
    request_of: Callable[[Item], dict[str, Any]]

    def request(self) -> dict[str, Any]:
        return self.request_of(self.item)

    def body(self) -> bytes:
        return json_of({**self.request_of(self.item), "ReturnConsumedCapacity": "INDEXES"})


@dataclass(frozen=True, slots=True)
class EncodedPut:
    """`attributes`: the item as JSON in DynamoDB's form."""

    attributes: bytes
    source: SourceText
    form: tuple[bytes, bytes, bytes]
    request_of: Callable[[Item], dict[str, Any]]

    @property
    def item(self) -> Item:
        return decode_item(orjson.loads(self.attributes))

    def request(self) -> dict[str, Any]:
        return self.request_of(self.item)

    def body(self) -> bytes:
        before, between, behind = self.form
        return b"".join((before, self.attributes, between, orjson.dumps(self.source), behind))


@dataclass(frozen=True, slots=True)
class PutForm:
    """What the bodies of all puts to a table have in common: before the item, its source and its ticket, and behind that."""

    before: bytes
    between: bytes
    ticket: bytes
    behind: bytes

    @classmethod
    def of_table(cls, name: str, expression: str, names: Mapping[str, str]) -> PutForm:
        condition = {"ConditionExpression": expression, "ExpressionAttributeNames": names}
        dead = orjson.dumps({":dead": {"S": TOMBSTONE}})
        return cls(
            orjson.dumps({"TableName": name})[:-1] + b',"Item":',
            b"," + orjson.dumps(condition)[1:-1] + b',"ExpressionAttributeValues":{":source":{"S":',
            b"}," + dead[1:-1] + b',":ticket":{"N":"',
            b'"}},' + orjson.dumps(_ASKED)[1:],
        )

    def of(self, ticket: int) -> tuple[bytes, bytes, bytes]:
        return self.before, self.between, b"%b%d%b" % (self.ticket, ticket, self.behind)


# ── The first tries of many ──


class FirstTries:
    """The first tries of many puts, side by side. `answered`: numbers of settled ones; `failed`: errors of others."""

    def __init__(
        self, store: DynamoStore, puts: Sequence[Put], refused: Callable[[Item, Item], Outcome]
    ) -> None:
        self._store = store
        self._puts = puts
        self._refused = refused
        self.answered: set[int] = set()
        self.refused: dict[int, Outcome] = {}
        self.failed: dict[int, Exception] = {}

    def send(self) -> None:
        connections = self._store.client.exchange.connections
        exchange_many(connections, len(self._puts), self._request, self._answer)

    def _request(self, number: int) -> bytes:
        body = self._puts[number].body()
        # Here, and once more when it is signed.
        self._store.check()
        with checked_last(self._store.check):
            request: bytes = self._store.client.exchange.request(self._store.client, "PutItem", body)
        return request

    def _answer(self, number: int, received: Received | BotoCoreError) -> bool:
        """Whether nothing speaks against sending more."""
        client = self._store.client
        try:
            if isinstance(received, BotoCoreError):
                raise received
            answer = client.exchange.answer(client, "PutItem", _ASKED, received)
        except BotoCoreError as error:
            # It may take effect all the same.
            self._store.sent.unanswered += 1
            self.failed[number] = error
            return False
        except ClientError as error:
            if error_code(error) != REFUSED:
                if is_throttle(error):
                    self._store.throttled(write_units(item_bytes(self._puts[number].item)))
                self.failed[number] = error
                return False
            other = decode_item(error.response.get("Item", {}))
            self.refused[number] = self._refused(self._puts[number].item, other)
        else:
            self._store.count(consumed_by_meter(answer) or {})
        self.answered.add(number)
        self._store.sent.taken += 1
        return True


# ── Requests side by side ──

AT_ONCE = 16
"""Requests under way of one call. With answers after 5 ms that is 3,200 a second."""
_PIECE_BYTES = 65_536
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def exchange_many(
    connections: Connections,
    count: int,
    request: Callable[[int], bytes],
    answered: Callable[[int, Received | BotoCoreError], bool],
) -> None:
    """Sends `count` requests, each once. `request`: the bytes of a number's, asked for right before they are sent.

    `answered`: is given what came of each that was sent, an error of its connection included, and says whether more may be
    sent.

    Those that were sent have their answers when it returns. Where no connection can be opened, the others are left out.
    Raises: what `request` or `answered` raises; nothing more is sent then.
    """
    _Exchanges(connections, request, answered).run(iter(range(count)))


@dataclass(slots=True)
class _Lane:
    """A connection, and the request on it whose answer is awaited until `ends_at`."""

    connection: HTTPConnection
    timeout_s: float | None
    number: int = -1
    ends_at: float = 0.0
    piece: bytes = b""


class _Exchanges:
    def __init__(
        self,
        connections: Connections,
        request: Callable[[int], bytes],
        answered: Callable[[int, Received | BotoCoreError], bool],
    ) -> None:
        self._connections = connections
        self._request = request
        self._answered = answered
        self._free: list[_Lane] = []
        self._waiting: dict[int, _Lane] = {}
        """By number, in the order in which they were sent."""
        self._failed: list[Exception] = []
        self._goes_on = True
        self._selector = selectors.DefaultSelector()

    def run(self, numbers: Iterator[int]) -> None:
        try:
            while True:
                while self._goes_on and len(self._waiting) < AT_ONCE:
                    number = next(numbers, None)
                    if number is None:
                        break
                    self._begin(number)
                if not self._waiting:
                    break
                self._await()
        finally:
            self._end()
        if self._failed:
            raise self._failed[0]

    def _begin(self, number: int) -> None:
        try:
            lane = self._free.pop() if self._free else self._opened()
        except BotoCoreError:
            self._goes_on = False
            return
        try:
            request = self._request(number)
        except Exception as error:
            self._free.append(lane)
            self._fail(error)
            return
        lane.number, lane.piece = number, b""
        lane.ends_at = time.monotonic() + (lane.timeout_s or 0.0)
        self._waiting[number] = lane
        try:
            _send(lane, request)
        except OSError as error:
            self._break(lane, ConnectionClosedError(endpoint_url=self._connections.url, error=error))

    def _opened(self) -> _Lane:
        connection = self._connections.take()
        lane = _Lane(connection, connection.sock.gettimeout())
        connection.sock.settimeout(0.0)
        self._selector.register(connection.sock, selectors.EVENT_READ, lane)
        return lane

    # ── answers ──

    def _await(self) -> None:
        """Returns when an answer came, or none did in the time that it has."""
        oldest = next(iter(self._waiting.values()))
        left_s = None if oldest.timeout_s is None else max(0.0, oldest.ends_at - time.monotonic())
        ready = self._selector.select(left_s)
        for key, _ in ready:
            self._look(key.data)
        if not ready and left_s is not None:
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
            self._goes_on &= self._answered(number, answer)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed.append(error)
        self._goes_on = False

    # ── ends ──

    def _break(self, lane: _Lane, error: BotoCoreError) -> None:
        """The connection is of no use any more, and what was sent on it may take effect, or not."""
        is_waiting = self._waiting.pop(lane.number, None) is lane
        if lane in self._free:
            self._free.remove(lane)
        self._close(lane)
        if is_waiting:
            self._tell(lane.number, error)

    def _close(self, lane: _Lane) -> None:
        self._selector.unregister(lane.connection.sock)
        lane.connection.close()

    def _end(self) -> None:
        """Gives the connections back; those that still await an answer, because the thread was stopped, are closed."""
        for lane in list(self._waiting.values()):
            self._break(lane, ConnectionClosedError(endpoint_url=self._connections.url))
        for lane in self._free:
            lane.connection.sock.settimeout(lane.timeout_s)
            self._connections.give_back(lane.connection)
        self._selector.close()


# ── One connection, without waiting ──


def _send(lane: _Lane, request: bytes) -> None:
    """Sends all of it; waits only for what is more than the connection takes at once. Raises: OSError."""
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
    """The answer; None as long as it is not whole. Raises: OSError, BrokenFrameError."""
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
            # What TLS has decoded already does not make its socket readable: it is asked until it has nothing.
            continue


class _NotWholeError(Exception):
    """More of an answer is to come."""


class _Pieces:
    """What came so far, as a socket gives it."""

    def __init__(self, piece: bytes, *, ended: bool) -> None:
        self._piece = piece
        self._ended = ended

    def recv(self, _: int) -> bytes:
        piece, self._piece = self._piece, b""
        if not piece and not self._ended:
            raise _NotWholeError
        return piece
