"""Conditional writes and transactions, with one outcome for each item."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import orjson
from botocore.exceptions import ClientError

from migrator.mapping.heart.encoder import EncodedItem
from migrator.mapping.heart.wire import (
    decode_item,
    encode,
    encode_item,
    encode_sized,
    item_bytes,
    write_units,
)
from migrator.model.errors import FullCollectionError, ItemRefusedError, NeverTakenError
from migrator.model.live import Outcome, Verdict
from migrator.model.table import STATEMENT_BYTES, TOMBSTONE, Item
from migrator.runtime.retry import in_context
from migrator.runtime.system import Forked, tell_of_forks
from migrator.target.failures import UNPROCESSED, Unprocessed, error_code, holds, passes_in_batch
from migrator.target.puts import REFUSED, EncodedPut, FirstTries, ItemPut, Put, PutForm, SourceText
from migrator.target.store import Batch, DynamoStore, Sized, batches

# ── Items that are written in one transaction: all of them, or none of them and why ──

_TRANSACTIONAL = 2
"""A transactional write takes twice the units. Source: AWS Developer Guide, "Amazon DynamoDB Transactions: How it works"."""
_NONE, _CONDITION = "None", "ConditionalCheckFailed"


@dataclass(frozen=True)
class Transactions:
    """`put`: a Put of the item with its condition, as DynamoDB takes it. `refused`: what an item that is in the way means.

    Source of the reasons: API reference, TransactWriteItems, "TransactionCanceledException".
    """

    store: DynamoStore
    put: Callable[[Item], dict[str, Any]]
    refused: Callable[[Item, Item], Outcome]

    def write(self, items: Sequence[Item]) -> list[Outcome]:
        """An outcome for each item, in their order; either all are stored or none is.

        Raises: StoppedError when DynamoDB gave up; ItemRefusedError where it does not take the items as they are.
        """
        if not items:
            return []
        actions = [{"Put": self.put(item)} for item in items]
        request: dict[str, Any] = {"TransactItems": actions, "ReturnConsumedCapacity": "INDEXES"}
        units = _TRANSACTIONAL * sum(write_units(item_bytes(item)) for item in items)
        cancelled = 0

        def once() -> list[Outcome]:
            nonlocal cancelled
            request["ClientRequestToken"] = _token(actions, cancelled)
            try:
                self.store.metered(units, lambda: self.store.client.transact_write_items(**request))
            except ClientError as error:
                if error_code(error) != "TransactionCanceledException":
                    raise
                # An answer: nothing of it took effect, so the next try is another request.
                cancelled += 1
                return self._cancelled(items, error.response.get("CancellationReasons") or [])
            return [Outcome(item, "stored") for item in items]

        outcomes: list[Outcome] = self.store.retried("transact_write_items", once)
        self.store.sent.taken += len(items)
        return outcomes

    def _cancelled(self, items: Sequence[Item], reasons: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """What was in the way of which item. Raises: Unprocessed where nothing was but what passes by itself."""
        codes = [str(reason.get("Code") or _NONE) for reason in reasons]
        if _CONDITION in codes:
            return [
                self.refused(item, decode_item(reason.get("Item") or {}))
                if code == _CONDITION
                else Outcome(item, "rolled_back")
                for item, reason, code in zip(items, reasons, codes, strict=True)
            ]
        serious = sorted({code for code in codes if code != _NONE and not passes_in_batch(code)})
        if serious:
            what = f"DynamoDB refused a transaction on table {self.store.design.name} ({', '.join(serious)})"
            raise ItemRefusedError(f"{what}; run `migrator table check` with this job file")
        if self.store.limit is not None and {"ThrottlingError", "ProvisionedThroughputExceeded"} & set(codes):
            self.store.limit.throttled()
        raise Unprocessed(f"{len(items)} item(s) of a transaction not taken")


def _token(actions: Sequence[Mapping[str, Any]], cancelled: int) -> str:
    """The same text for the same request, so that one which is sent again within ten minutes takes effect once.

    `cancelled`: tries that were answered by a cancellation.

    Source: API reference, TransactWriteItems, "ClientRequestToken" (36 characters at most).
    """
    text = json.dumps([cancelled, *actions], sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# ──
# Writes beside other writers: each under the condition that nothing newer, and nothing of another row's,
# is there.

_NOTHING_NEWER = (
    "attribute_not_exists(#key) OR ((#source = :source OR #type = :dead) "
    "AND (attribute_not_exists(#ticket) OR #ticket <= :ticket))"
)
"""An item of ours that has no ticket was written without one, so before any that has."""

_NOTHING_OF_OTHERS = "attribute_not_exists(#key) OR #source = :source OR #type = :dead"

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class ConditionalWrites(Forked):
    """model.live.ConditionalStore and OwnStore on a DynamoDB table; safe to share between threads.

    A request that is sent again is the same request: where the first one took effect unseen, the second finds the
    item with its own ticket and may replace it, or finds something newer.
    """

    def __init__(self, store: DynamoStore) -> None:
        self.store = store
        self.design = store.design
        self._names = {"#type": self.design.type_attribute, "#ticket": self.design.ticket_attribute}
        self._own_names = {
            "#key": self.design.key[0].name,
            "#source": self.design.source_attribute,
            "#type": self.design.type_attribute,
        }
        self._form = PutForm.of_table(self.design.name, _NOTHING_NEWER, self._own_names | self._names)
        self._connections = int(self.store.client.meta.config.max_pool_connections)
        self._pool = self._new_pool()
        tell_of_forks(self)

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._connections, thread_name_prefix="conditional")

    def after_fork(self, *, in_child: bool) -> None:
        """Threads stay with the parent: a child that counted on them would wait for ever."""
        if in_child:
            self._pool = self._new_pool()

    def write(self, items: Sequence[Item], *, fresh: bool = False) -> list[Outcome]:
        return self._written(items, self._conditional_put, fresh=fresh)

    def write_own(self, items: Sequence[Item]) -> list[Outcome]:
        return self._written(items, self._own_put, fresh=True)

    def _written(
        self, items: Sequence[Item], request: Callable[[Item], dict[str, Any]], *, fresh: bool
    ) -> list[Outcome]:
        before = self.store.sent.taken
        table = self.design.name
        # By their number in place of their key: no two are of one key.
        statements = [_statement(table, number, item) for number, item in enumerate(items)] if fresh else []
        done = self._inserted(statements, before)
        left = [number for number in range(len(items)) if number not in done]
        puts = [ItemPut(items[number], request) for number in left]
        refused = {left[number]: outcome for number, outcome in self._put_all(puts, before).items()}
        return [refused.get(number) or Outcome(item, "stored") for number, item in enumerate(items)]

    @property
    def takes_encoded(self) -> bool:
        return self.store.takes_encoded

    def insert_encoded(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        before = self.store.sent.taken
        done = self._inserted_encoded(items, before)
        left = [decode_item(orjson.loads(item[1])) for number, item in enumerate(items) if number not in done]
        refused = self._put_all([ItemPut(item, self._conditional_put) for item in left], before)
        return [refused.get(number) or Outcome(item, "stored") for number, item in enumerate(left)]

    def write_encoded(
        self, items: Sequence[tuple[SourceText, EncodedItem]], ticket: int, *, fresh: bool = False
    ) -> list[Outcome]:
        before = self.store.sent.taken
        done = self._inserted_encoded([item for _, item in items], before) if fresh else set()
        form = self._form.of(ticket)
        puts = [
            EncodedPut(item[1], source, form, self._conditional_put)
            for number, (source, item) in enumerate(items)
            if number not in done
        ]
        return list(self._put_all(puts, before).values())

    def _inserted_encoded(self, items: Sequence[EncodedItem], before: int) -> set[int]:
        table = self.design.name
        statements = [
            _encoded_statement(table, number, attributes, size)
            for number, (_, attributes, size, _) in enumerate(items)
        ]
        return self._inserted(statements, before)

    def write_together(self, groups: Sequence[Sequence[Item]]) -> list[Outcome]:
        transactions = Transactions(self.store, self._conditional_put, self.refused)
        work = partial(self._transact_or_why_not, transactions, self.store.sent.taken)
        return [outcome for group_outcomes in self._all(work, groups) for outcome in group_outcomes]

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        return sum(self._all(self._remove, tombstones))

    def _all(self, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """The results in the order of the pieces.

        Where one fails, those that have not begun are left out, and the others have ended before it is told.
        """
        if len(pieces) < 2:
            return [work(piece) for piece in pieces]
        waiting, results = iter(enumerate(pieces)), dict[int, Result]()

        def take_turns() -> None:
            # A future for each piece would cost a third of a request: each thread takes the next one by itself.
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

    def _conditional_put(self, item: Item) -> dict[str, Any]:
        """A put under rule 3's condition: a request of its own, or an action of a transaction."""
        put = self._own_put(item)
        ticket = encode(item.get(self.design.ticket_attribute, 0))
        return put | {
            "ConditionExpression": _NOTHING_NEWER,
            "ExpressionAttributeNames": self._own_names | self._names,
            "ExpressionAttributeValues": put["ExpressionAttributeValues"] | {":ticket": ticket},
        }

    def _own_put(self, item: Item) -> dict[str, Any]:
        """A put over nothing of others."""
        values = {":source": item.get(self.design.source_attribute), ":dead": TOMBSTONE}
        return {
            "TableName": self.design.name,
            "Item": encode_item(item),
            "ConditionExpression": _NOTHING_OF_OTHERS,
            "ExpressionAttributeNames": self._own_names,
            "ExpressionAttributeValues": {name: encode(value) for name, value in values.items()},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _put_all(self, puts: Sequence[Put], before: int) -> dict[int, Outcome]:
        """The outcomes of those that are not stored, by their numbers.

        Where nothing else is asked of them, the first try of each goes with those of many others. After the first one that
        failed for another reason than its condition, each goes by itself, with its further tries.
        """
        first = FirstTries(self.store, puts, self.refused)
        if len(puts) > 1 and self.store.takes_encoded and self.store.limit is None:
            first.send()
        left = [number for number in range(len(puts)) if number not in first.answered]
        work = partial(self._put_or_why_not, before)
        tried = self._all(work, [(puts[number], first.failed.get(number)) for number in left])
        outcomes = {**first.refused, **dict(zip(left, tried, strict=True))}
        return {number: outcome for number, outcome in outcomes.items() if outcome.verdict != "stored"}

    def _put_or_why_not(self, before: int, put_and_failure: tuple[Put, Exception | None]) -> Outcome:
        """The outcome of a put, with the failure of its first try; `before`: how many items the table had taken before
        anything was sent."""
        put, failure = put_and_failure
        item = put.item
        try:
            return self._put(put.request(), item, failure)
        except ItemRefusedError as error:
            if not self.store.sent.taken and not isinstance(error, FullCollectionError):
                # Nothing says that the table would take any item at all.
                raise
            return Outcome(item, "unwritten", why=str(error))
        except NeverTakenError:
            if self.store.sent.taken == before:
                raise
            return Outcome(item, "unwritten", why=UNPROCESSED)

    def _transact_or_why_not(
        self, transactions: Transactions, before: int, items: Sequence[Item]
    ) -> list[Outcome]:
        try:
            return transactions.write(items)
        except NeverTakenError:
            if self.store.sent.taken == before:
                raise
            return [Outcome(item, "unwritten", why=UNPROCESSED) for item in items]

    def _put(self, put: dict[str, Any], item: Item, failure: Exception | None) -> Outcome:
        request = {**put, "ReturnConsumedCapacity": "INDEXES"}
        units = write_units(item_bytes(item))
        failures = [] if failure is None else [failure]

        def once() -> Outcome:
            try:
                if failures:
                    raise failures.pop()
                self.store.metered(units, partial(self.store.client.put_item, **request))
            except ClientError as error:
                if error_code(error) != REFUSED:
                    raise
                return self.refused(item, decode_item(error.response.get("Item", {})))
            return Outcome(item, "stored")

        outcome: Outcome = self.store.retried("put_item", once)
        self.store.sent.taken += 1
        return outcome

    def refused(self, item: Item, other: Item) -> Outcome:
        """The outcome of a put that `other`, the item under its key, refused."""
        owner = str(other.get(self.design.source_attribute, ""))
        ticket = other.get(self.design.ticket_attribute)
        ticket_there = ticket if isinstance(ticket, int) else 0
        if owner and owner == item.get(self.design.source_attribute):
            return Outcome(item, "newer", ticket=ticket_there)
        is_tombstone = other.get(self.design.type_attribute) == TOMBSTONE
        verdict: Verdict = "tombstoned_by_other" if is_tombstone else "owned_by_other"
        return Outcome(item, verdict, owner, ticket=ticket_there)

    def _remove(self, tombstone: Item) -> bool:
        values = {":dead": TOMBSTONE, ":ticket": tombstone.get(self.design.ticket_attribute, 0)}
        request = {
            "TableName": self.design.name,
            "Key": self.store.key(self.design.key_of(tombstone)),
            "ConditionExpression": "#type = :dead AND #ticket = :ticket",
            "ExpressionAttributeNames": self._names,
            "ExpressionAttributeValues": {name: encode(value) for name, value in values.items()},
            "ReturnConsumedCapacity": "INDEXES",
        }

        def once() -> bool:
            return holds(lambda: self.store.metered(1, lambda: self.store.client.delete_item(**request)))

        return bool(self.store.retried("delete_item", once))

    # ── inserts ──

    def _inserted(self, statements: Sequence[Sized | None], before: int) -> set[int]:
        """Numbers of the items that were put where nothing was. `statements`: None where one would be too long."""
        limit = self.store.limit
        short = [statement for statement in statements if statement is not None]
        cut = list(batches(short, None if limit is None else limit.units_per_s))
        return {number for numbers in self._all(partial(self._insert, before), cut) for number in numbers}

    def _insert(self, before: int, batch: Batch) -> list[Any]:
        """Numbers of the batch's items that are in the table now; the others are tried as puts, which say why they fail.

        Tries are counted from the last one that settled something. `before`: how many items the table had taken
        before anything was sent.
        """
        inserted: list[Any] = []
        left = batch

        def once() -> None:
            nonlocal left
            units = sum(write_units(size) for _, _, size in left)
            request = {
                "Statements": [statement[1] for statement in left],
                "ReturnConsumedCapacity": "INDEXES",
            }
            client = self.store.client
            answer = self.store.metered(units, lambda: client.batch_execute_statement(**request))
            codes = [_code(statement) for statement in answer["Responses"]]
            inserted.extend(key[0] for (key, _, _), code in zip(left, codes, strict=True) if not code)
            sent = len(left)
            left = [statement for statement, code in zip(left, codes, strict=True) if passes_in_batch(code)]
            self.store.sent.taken += sent - len(left)
            if left and self.store.limit is not None:
                self.store.limit.throttled()
            if len(left) == sent:
                raise Unprocessed(f"{sent} item(s) not taken")

        while left:
            remaining = len(left)
            try:
                self.store.retried("batch_execute_statement", once)
            except NeverTakenError:
                if self.store.sent.taken == before:
                    raise
                return inserted
            if left and len(left) < remaining:
                self.store.retry.pause()
        return inserted


def _statement(table: str, number: int, item: Item) -> Sized | None:
    wired, size = encode_sized(item)
    text = _insert_text(table, tuple(wired))
    if text is None:
        return None
    return (number,), {"Statement": text, "Parameters": list(wired.values())}, size


def _encoded_statement(table: str, number: int, attributes: bytes, size: int) -> Sized | None:
    wired = orjson.loads(attributes)
    head = _insert_head(table, tuple(wired))
    if head is None:
        return None
    return (number,), orjson.Fragment(head + orjson.dumps(list(wired.values())) + b"}"), size


@lru_cache(maxsize=1024)
def _insert_text(table: str, names: tuple[str, ...]) -> str | None:
    """The statement that inserts an item with these attributes; None where it is longer than one may be."""
    values = ", ".join(f"{_quoted(name)}: ?" for name in names)
    statement = f'INSERT INTO "{table}" VALUE {{{values}}}'
    return statement if len(statement.encode()) <= STATEMENT_BYTES else None


@lru_cache(maxsize=1024)
def _insert_head(table: str, names: tuple[str, ...]) -> bytes | None:
    """The statement as JSON, up to its parameters."""
    text = _insert_text(table, names)
    return None if text is None else b'{"Statement":' + orjson.dumps(text) + b',"Parameters":'


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _code(answer: Any) -> str:
    """What the statement failed with; '' where it did what it says."""
    error = answer.get("Error") or {}
    return str(error.get("Code") or ("unknown" if error else ""))
