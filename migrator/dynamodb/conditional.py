"""Conditional writes and transactions, with an outcome per item.

One thread sends many concurrently, each on its own kept-alive connection. A thread per request would cost more
than the request: threads of an interpreter take turns, and each send and read waits for the next one.
"""

from __future__ import annotations

import hashlib
import math
import selectors
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar

import orjson
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError
from msgspec import Struct
from urllib3.connection import HTTPConnection

from migrator.dynamodb.answers import BrokenFrameError, Frame, Received, checked_last, consumed_by_meter
from migrator.dynamodb.exchange import Connections, SocketTransport, Texts, json_of
from migrator.dynamodb.failures import UNPROCESSED, Unprocessed, error_code, is_throttle, passes_in_batch
from migrator.dynamodb.store import DynamoStore, Sized, batches
from migrator.dynamodb.throttle import LimitedRequest
from migrator.mapping.items.encoder import PutTexts, encoded_of, item_of, names_and_values
from migrator.mapping.items.wire import decode_item, encode_item, units_of_writes, write_units
from migrator.mapping.model.live import Outcome, Verdict
from migrator.mapping.model.table import STATEMENT_BYTES, TOMBSTONE, EncodedItem, Item
from migrator.runtime.errors import FullCollectionError, ItemRefusedError, NeverTakenError, amount
from migrator.runtime.retry import cut_to_end, in_context
from migrator.runtime.system import Forked, tell_of_forks

# Each write has the condition that no newer item, and no other row's item, exists under its key.

_NOTHING_NEWER = (
    "attribute_not_exists(#key) OR ((#source = :source OR #type = :dead) "
    "AND (attribute_not_exists(#ticket) OR #ticket <= :ticket))"
)
"""One of our items without a ticket was written without tickets, so before any that has one."""

_NOTHING_OF_OTHERS = "attribute_not_exists(#key) OR #source = :source OR #type = :dead"

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class ConditionalWrites(Forked):
    """Conditional writes to a DynamoDB table. Thread-safe.

    A retry is the same request. If the first try took effect unseen, the retry finds the item with its own
    ticket and may replace it, or finds a newer one.
    """

    def __init__(self, store: DynamoStore) -> None:
        self.store = store
        self.design = store.design
        self._own_names = {
            "#key": self.design.key[0].name,
            "#source": self.design.source_attribute,
            "#type": self.design.type_attribute,
        }
        self._names = self._own_names | {"#ticket": self.design.ticket_attribute}
        self._connections = int(self.store.client.meta.config.max_pool_connections)
        self._pool = self._new_pool()
        tell_of_forks(self)

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._connections, thread_name_prefix="conditional")

    @property
    def sends_texts(self) -> bool:
        # With attributes that services keep, items are merged with the stored ones.
        return not self.design.kept

    def after_fork(self, *, in_child: bool) -> None:
        """A child has none of its parent's threads: waiting for them would never end."""
        if in_child:
            self._pool = self._new_pool()

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        return self._kept(items, partial(self._written, own=False, fresh=fresh))

    def write_own(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        return self._kept(items, partial(self._written, own=True, fresh=True))

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        if not self.design.kept:
            return self._written_together(groups)
        return [
            outcome
            for group in groups
            for outcome in self._kept(group, lambda items: self._written_together([items]), whole=True)
        ]

    # ── attributes of services ──

    def _kept(
        self,
        items: Sequence[EncodedItem],
        write: Callable[[Sequence[EncodedItem]], list[Outcome]],
        *,
        whole: bool = False,
    ) -> list[Outcome]:
        """Put items with the attributes that services keep on the stored ones. Items that changed between read
        and put are retried, alone or all together.
        """
        if not self.design.kept:
            return write(items)
        outcomes: dict[int, Outcome] = {}
        while left := [number for number in range(len(items)) if number not in outcomes]:
            written = write(self._with_kept([items[number] for number in left]))
            if whole and any(outcome.verdict == "kept_changed" for outcome in written):
                continue
            found = dict(zip(left, written, strict=True))
            outcomes |= {number: one for number, one in found.items() if one.verdict != "kept_changed"}
        return [outcomes[number] for number in range(len(items))]

    def _with_kept(self, items: Sequence[EncodedItem]) -> list[EncodedItem]:
        stored = self.store.get(list({item.key for item in items if not item.is_tombstone}))

        def merged(item: EncodedItem) -> EncodedItem:
            own = {name: value for name, value in item_of(item).items() if name not in self.design.kept}
            return encoded_of(own | self._kept_of(stored.get(item.key, {})), self.design)

        # A tombstone replaces the whole item.
        return [item if item.is_tombstone else merged(item) for item in items]

    def _kept_of(self, item: Item) -> Item:
        return {name: value for name, value in item.items() if name in self.design.kept}

    # ── items ──

    def _written(self, items: Sequence[EncodedItem], *, own: bool, fresh: bool) -> list[Outcome]:
        before = self.store.sent.taken
        done = self._inserted(items, before) if fresh else set[int]()
        left = [number for number in range(len(items)) if number not in done]
        puts = [
            Put(item, self._put_of(item, own=own), self._refused) for item in map(items.__getitem__, left)
        ]
        tried = dict(zip(left, self._tried(puts, before), strict=True))
        if isinstance(items, PutTexts):
            return [outcome for (outcome,) in tried.values()]
        return [
            tried[number][0] if number in tried else Outcome(item, "stored")
            for number, item in enumerate(items)
        ]

    def _written_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        transactions = [
            Transaction(group, [self._put_of(item, own=False) for item in group], self._refused)
            for group in groups
            if group
        ]
        outcomes = self._tried(transactions, self.store.sent.taken)
        return [outcome for of_group in outcomes for outcome in of_group]

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        held = [self.design.type_attribute, self.design.ticket_attribute]
        return sum(self._all(lambda item: self.store.delete_if(item, held), tombstones))

    def _all(self, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """Results in the order of the pieces.

        If one fails, no further piece is started, and the running ones end before the error is raised.
        """
        if len(pieces) < 2:
            return [work(piece) for piece in pieces]
        waiting, results = iter(enumerate(pieces)), dict[int, Result]()

        def take_turns() -> None:
            # A future per piece would cost a third of a request, so each thread takes the next piece.
            try:
                for number, piece in waiting:
                    results[number] = work(piece)
            except BaseException:
                for _ in waiting:
                    pass
                raise

        threads = min(len(pieces), self._connections)
        running = [self._pool.submit(in_context(take_turns)) for _ in range(threads)]
        wait(running)
        for future in running:
            future.result()
        return [results[number] for number in range(len(pieces))]

    # ── puts and deletes ──

    def _put_of(self, item: EncodedItem, *, own: bool) -> dict[str, Any]:
        names, condition = self._own_names, _NOTHING_OF_OTHERS
        values: dict[str, Any] = {":source": {"S": item.source}, ":dead": {"S": TOMBSTONE}}
        if not own:
            names, condition = self._names, _NOTHING_NEWER
            values[":ticket"] = {"N": str(item.ticket)}
        if self.design.kept and not item.is_tombstone:
            kept, there = dict(enumerate(sorted(self.design.kept))), orjson.loads(item.json)
            as_read = [
                f"#kept{number} = :kept{number}" if name in there else f"attribute_not_exists(#kept{number})"
                for number, name in kept.items()
            ]
            condition = " AND ".join([f"({condition})", *as_read])
            names = names | {f"#kept{number}": name for number, name in kept.items()}
            values |= {f":kept{number}": there[name] for number, name in kept.items() if name in there}
        return {
            "TableName": self.design.name,
            "Item": orjson.Fragment(item.json),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _tried(self, writes: Sequence[Put | Transaction], before: int) -> list[list[Outcome]]:
        """Outcomes of each write's items. `before`: number of items taken before.

        First tries are concurrent. A write that fails for any reason except its conditions is retried alone.
        """

        def took(number: int, _: Mapping[str, Any] | None) -> bool:
            self.store.sent.taken += len(writes[number].items)
            return True

        first = self._first_tries(writes, took)
        left = [number for number in range(len(writes)) if number not in first.answered]
        further = partial(self._settled_or_why_not, before)
        tried = self._all(further, [(writes[number], first.failed.get(number)) for number in left])
        outcomes = {**first.refused, **dict(zip(left, tried, strict=True))}
        return [outcomes.get(number) or _all_stored(write) for number, write in enumerate(writes)]

    def _first_tries(self, writes: Sequence[ConditionalWrite], took: Took) -> FirstTries:
        first = FirstTries(self.store, writes, took)
        if len(writes) > 1 and (sockets := self.store.sockets) is not None:
            first.send(sockets)
        return first

    def _settled_or_why_not(
        self, before: int, write_and_failure: tuple[Put | Transaction, Exception | None]
    ) -> list[Outcome]:
        write, failure = write_and_failure
        try:
            return self._settled(write, failure)
        except ItemRefusedError as error:
            is_of_item = self.store.sent.taken or isinstance(error, FullCollectionError)
            if isinstance(write, Transaction) or not is_of_item:
                # The table may not take any item at all.
                raise
            why = str(error)
        except NeverTakenError:
            if self.store.sent.taken == before:
                raise
            why = UNPROCESSED
        return [Outcome(item, "unwritten", why=why) for item in write.items]

    def _settled(self, write: Put | Transaction, failure: Exception | None) -> list[Outcome]:
        """Outcomes after the failure of a first try.

        Raises: StoppedError if DynamoDB gave up; ItemRefusedError if it rejects the items as they are.
        """
        failures = [] if failure is None else [failure]
        operation = xform_name(write.operation)

        def once() -> list[Outcome]:
            try:
                if failures:
                    raise failures.pop()
                call = partial(getattr(self.store.client, operation), **write.request())
                self.store.metered(write.units(), call)
            except ClientError as error:
                outcomes = write.refused(error)
                if outcomes is None and isinstance(write, Transaction) and error_code(error) == CANCELLED:
                    # Answered, and without effect: the next try is a new request.
                    write.cancelled += 1
                    unprocessed, is_throttled = write.not_taken(error, self.design.name)
                    if is_throttled:
                        self.store.throttled(write.units())
                    raise unprocessed from None
                if outcomes is None:
                    raise
                return outcomes
            return _all_stored(write)

        outcomes: list[Outcome] = self.store.retried(operation, once)
        self.store.sent.taken += len(write.items)
        return outcomes

    def _refused(self, item: EncodedItem, other: Item) -> Outcome:
        has_kept = bool(self.design.kept) and not item.is_tombstone
        if has_kept and _differ(self._kept_of(item_of(item)), self._kept_of(other)):
            return Outcome(item, "kept_changed")
        owner = str(other.get(self.design.source_attribute, ""))
        ticket = other.get(self.design.ticket_attribute)
        ticket_there = ticket if isinstance(ticket, int) else 0
        if owner and owner == item.source:
            return Outcome(item, "newer", ticket=ticket_there)
        is_tombstone = other.get(self.design.type_attribute) == TOMBSTONE
        verdict: Verdict = "tombstoned_by_other" if is_tombstone else "owned_by_other"
        return Outcome(item, verdict, owner, ticket=ticket_there)

    # ── inserts ──

    def _inserted(self, items: Sequence[EncodedItem], before: int) -> set[int]:
        """Numbers of stored items; the others are tried as puts, which report why they fail. `before`: number of items
        taken before.
        """
        writes = list(_cut(items, self.design.name, self.store.limit.units_at_most))
        inserted, left = set[int](), list[tuple[Inserts, Exception | None]]()

        def took(number: int, answer: Mapping[str, Any] | None) -> bool:
            assert answer is not None  # which statements failed is in it
            rest = self._took(writes[number], answer, inserted)
            if rest:
                left.append((rest, _unprocessed(rest)))
            return rest is None

        first = self._first_tries(writes, took)
        unanswered = (number for number in range(len(writes)) if number not in first.answered)
        left += [(writes[number], first.failed.get(number)) for number in unanswered]
        for numbers in self._all(partial(self._insert, before), left):
            inserted |= numbers
        return inserted

    def _insert(self, before: int, write_and_failure: tuple[Inserts, Exception | None]) -> set[int]:
        """As `_inserted`, after the failure of a first try. Tries are counted from the last one that settled an item."""
        inserted = set[int]()
        left: Inserts | None
        left, failure = write_and_failure
        failures = [] if failure is None else [failure]

        def once(trying: Inserts) -> None:
            nonlocal left
            if failures:
                raise failures.pop()
            request, client = trying.request(), self.store.client
            answer = self.store.metered(trying.units(), lambda: client.batch_execute_statement(**request))
            left = self._took(trying, answer, inserted)
            if left and len(left.numbers) == len(trying.numbers):
                raise _unprocessed(left)

        while left:
            trying = left
            try:
                self.store.retried("batch_execute_statement", partial(once, trying))
            except NeverTakenError:
                if self.store.sent.taken == before:
                    raise
                return inserted
            if left and len(left.numbers) < len(trying.numbers):
                self.store.retry.pause()
        return inserted

    def _took(self, write: Inserts, answer: Mapping[str, Any], inserted: set[int]) -> Inserts | None:
        """Add the numbers of stored items; return the statements that may pass on a retry."""
        codes = [_code(statement) for statement in answer["Responses"]]
        inserted.update(number for number, code in zip(write.numbers, codes, strict=True) if not code)
        left = write.only([place for place, code in enumerate(codes) if passes_in_batch(code)])
        self.store.sent.taken += len(codes) - (len(left.numbers) if left else 0)
        if left:
            self.store.throttled(left.units())
        return left


def _differ(one: Item, other: Item) -> bool:
    """DynamoDB's comparison: true is not 1."""
    return encode_item(one) != encode_item(other)


def _all_stored(write: Put | Transaction) -> list[Outcome]:
    return [Outcome(item, "stored") for item in write.items]


def _cut(items: Sequence[EncodedItem], table: str, units_at_most: float | None) -> Iterator[Inserts]:
    """Requests that insert the items, without those whose statement would be too long."""
    head_of, first = partial(_insert_head, table), 0
    if not isinstance(items, PutTexts):
        # By number instead of key: no two of them have the same key.
        numbered = (_statement(head_of, number, item) for number, item in enumerate(items))
        for batch in batches([statement for statement in numbered if statement is not None], units_at_most):
            numbers, made, sizes = zip(*batch, strict=True)
            yield Inserts([number for (number,) in numbers], sizes, Texts(b",".join(made), len(made)))
        return
    for texts in batches(items, units_at_most):
        assert isinstance(texts, PutTexts)
        joined = texts.inserts(head_of)
        if joined is not None:
            yield Inserts(range(first, first + len(texts)), texts.sizes, Texts(joined, len(texts)))
        first += len(texts)


def _statement(head_of: Callable[[bytes], bytes | None], number: int, item: EncodedItem) -> Sized | None:
    names, values = names_and_values(item)
    head = head_of(names)
    return None if head is None else ((number,), head + values + b"]}", item.size_bytes)


@lru_cache(maxsize=1024)
def _insert_head(table: str, names: bytes) -> bytes | None:
    values = ", ".join(f"{_quoted(name)}: ?" for name in orjson.loads(b"[%b]" % names))
    statement = f'INSERT INTO "{table}" VALUE {{{values}}}'
    if len(statement.encode()) > STATEMENT_BYTES:
        return None
    return b'{"Statement":' + orjson.dumps(statement) + b',"Parameters":['


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _code(answer: Any) -> str:
    error = answer.get("Error") or {}
    return str(error.get("Code") or ("unknown" if error else ""))


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


class Inserts(Struct, frozen=True):
    """Statements of one request. `numbers`: of their items; `sizes`: in bytes. Its answer says which items it stored."""

    numbers: Sequence[int]
    sizes: Sequence[int]
    statements: Texts
    operation: str = "BatchExecuteStatement"

    def units(self) -> float:
        return units_of_writes(self.sizes)

    def request(self) -> Mapping[str, Any]:
        return {"Statements": self.statements, "ReturnConsumedCapacity": "INDEXES"}

    def refused(self, error: ClientError) -> list[Outcome] | None:
        return None

    def only(self, places: Sequence[int]) -> Inserts | None:
        if not places:
            return None
        statements = list(self.statements)
        kept = orjson.dumps([statements[place] for place in places])[1:-1]
        numbers, sizes = ([every[place] for place in places] for every in (self.numbers, self.sizes))
        return Inserts(numbers, sizes, Texts(kept, len(places)))


def _unprocessed(write: Inserts) -> Unprocessed:
    return Unprocessed(f"{amount(len(write.numbers), 'item')} not taken")


ConditionalWrite: TypeAlias = Put | Transaction | Inserts
Took: TypeAlias = Callable[[int, Mapping[str, Any] | None], bool]
"""Called with a write's number and answer (None: its condition failed); returns whether more may be sent."""

# ── The first tries of many ──


class FirstTries:
    """Concurrent first tries of many writes.

    `answered`: numbers of settled writes.
    `refused`: outcomes of failed conditions.
    `failed`: errors of the others.

    Respects the write limit: while it has no room for the next write, answers are read.
    """

    def __init__(self, store: DynamoStore, writes: Sequence[ConditionalWrite], took: Took) -> None:
        self._store = store
        self._writes = writes
        self._took = took
        self._limited: dict[int, LimitedRequest] = {}
        self._sent: dict[int, Mapping[str, Any]] = {}
        self.answered: set[int] = set()
        self.refused: dict[int, list[Outcome]] = {}
        self.failed: dict[int, Exception] = {}

    def send(self, sockets: SocketTransport) -> None:
        request, wait = partial(self._request, sockets), self._store.limit.wait
        many = ManyExchanges(sockets.connections, request, self._answer, self._pause_s, wait)
        many.run(len(self._writes))

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

    def _answer(self, number: int, received: Received | Exception) -> bool:
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
        return self._took(number, answer)

    def _answer_of(self, number: int, received: Received | Exception) -> Mapping[str, Any] | None:
        client, write = self._store.client, self._writes[number]
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


@dataclass(slots=True)
class _Lane:
    """A connection, and its pending request, which times out at `ends_at`."""

    connection: HTTPConnection
    number: int = -1
    timeout_s: float | None = None
    ends_at: float = 0.0
    frame: Frame = field(default_factory=Frame)


@dataclass
class ManyExchanges:
    """`_request`: makes the bytes of a number's request right before it is sent.

    `_answered`: called with each answer, or the error of its connection or credentials; returns whether more may be sent.
    `_pause_s`: until a numbered request may be sent, or is to be asked for again; 0: now.
    `_wait`: sleep, if no answer is pending.
    `_waiting`: by number, in the order of sending.
    """

    _connections: Connections
    _request: Callable[[int], bytes]
    _answered: Callable[[int, Received | Exception], bool]
    _pause_s: Callable[[int], float] = lambda _: 0.0
    _wait: Callable[[float], None] = time.sleep
    _free: list[_Lane] = field(default_factory=list)
    _waiting: dict[int, _Lane] = field(default_factory=dict)
    _failed: list[Exception] = field(default_factory=list)
    _continues: bool = True
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def run(self, count: int) -> None:
        """Send so many requests, each once. All sent requests have their answers on return; if no connection can be
        opened, the others are left out.

        Raises: errors of `_request` and `_answered`; nothing more is sent after that.
        """
        number = 0
        try:
            while True:
                pause_s = 0.0
                while number < count and (lane := self._lane()) is not None:
                    if (pause_s := self._pause_s(number)) > 0:
                        self._free.append(lane)
                        break
                    self._begin(number, lane)
                    number += 1
                if self._waiting:
                    self._await(pause_s)
                elif pause_s > 0:
                    self._wait(pause_s)
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
            if isinstance(error, (BotoCoreError, ClientError)):  # credentials could not be renewed
                self._tell(number, error)
            else:
                self._fail(error)
            return
        lane.number = number
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

    def _tell(self, number: int, answer: Received | Exception) -> None:
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
        answer = lane.frame.add(piece)
        if answer is not None:
            lane.frame = Frame()
            return answer
        # Data that TLS has already decoded does not make its socket readable: read until it is empty.
