"""Conditional writes and transactions, with one outcome for each item."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from migrator.mapping.heart.sizes import item_bytes, write_units
from migrator.model.errors import FullCollectionError, ItemRefusedError, NeverTakenError
from migrator.model.live import Outcome, Verdict
from migrator.model.table import STATEMENT_BYTES, TOMBSTONE, Item
from migrator.runtime.processes import Forked, tell_of_forks
from migrator.runtime.retry import in_context
from migrator.target.failures import UNPROCESSED, Unprocessed, error_code, holds, passes_in_batch
from migrator.target.store import Batch, DynamoStore, batches
from migrator.target.wire import decode_item, encode, encode_item

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
                else Outcome(item, "withheld")
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
        self._pool = self._new_pool()
        tell_of_forks(self)

    def _new_pool(self) -> ThreadPoolExecutor:
        connections = int(self.store.client.meta.config.max_pool_connections)
        return ThreadPoolExecutor(connections, thread_name_prefix="conditional")

    def after_fork(self, *, in_child: bool) -> None:
        """Threads stay with the parent: a child that counted on them would wait for ever."""
        if in_child:
            self._pool = self._new_pool()

    def write(self, items: Sequence[Item], *, fresh: bool = False) -> list[Outcome]:
        return self._written(items, self._conditional_put, fresh=fresh)

    def write_own(self, items: Sequence[Item]) -> list[Outcome]:
        return self._written(items, self._own_put, fresh=True)

    def _written(
        self, items: Sequence[Item], put: Callable[[Item], dict[str, Any]], *, fresh: bool
    ) -> list[Outcome]:
        before = self.store.sent.taken
        done: set[int] = self._inserted(items, before) if fresh else set()
        left = [number for number in range(len(items)) if number not in done]
        work = partial(self._put_or_why_not, before, put)
        found = dict(zip(left, self._all(work, [items[number] for number in left]), strict=True))
        return [found.get(number) or Outcome(item, "stored") for number, item in enumerate(items)]

    def write_together(self, groups: Sequence[Sequence[Item]]) -> list[Outcome]:
        transactions = Transactions(self.store, self._conditional_put, self._refused)
        work = partial(self._transact_or_why_not, transactions, self.store.sent.taken)
        return [outcome for found in self._all(work, groups) for outcome in found]

    def remove_dead(self, tombstones: Sequence[Item]) -> int:
        return sum(self._all(self._remove, tombstones))

    def _all(self, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """The results in the order of the pieces.

        Where one fails, those that have not begun are left out, and the others have ended before it is told.
        """
        if len(pieces) < 2:
            return [work(piece) for piece in pieces]
        running = [self._pool.submit(in_context(work), piece) for piece in pieces]
        wait(running, return_when=FIRST_EXCEPTION)
        if any(one.done() and one.exception() for one in running):
            begun = [one for one in running if not one.cancel()]
            wait(begun)
            next(one for one in begun if one.exception()).result()
        return [one.result() for one in running]

    # ── puts and deletes ──

    def _conditional_put(self, item: Item) -> dict[str, Any]:
        """A put under rule 3's condition: a request of its own, or an action of a transaction."""
        put = self._own_put(item)
        ticket = encode(item.get(self.design.ticket_attribute, 0))
        return put | {
            "ConditionExpression": _NOTHING_NEWER,
            "ExpressionAttributeNames": put["ExpressionAttributeNames"] | self._names(),
            "ExpressionAttributeValues": put["ExpressionAttributeValues"] | {":ticket": ticket},
        }

    def _own_put(self, item: Item) -> dict[str, Any]:
        """A put over nothing of others."""
        design = self.design
        names = {
            "#key": design.key[0].name,
            "#source": design.source_attribute,
            "#type": design.type_attribute,
        }
        values = {":source": item.get(design.source_attribute), ":dead": TOMBSTONE}
        return {
            "TableName": design.name,
            "Item": encode_item(item),
            "ConditionExpression": _NOTHING_OF_OTHERS,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {name: encode(value) for name, value in values.items()},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _put_or_why_not(self, before: int, put: Callable[[Item], dict[str, Any]], item: Item) -> Outcome:
        """The outcome of a put; `before`: how many the table had taken when nothing was sent yet."""
        try:
            return self._put(put(item), item)
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

    def _put(self, put: dict[str, Any], item: Item) -> Outcome:
        request = {**put, "ReturnConsumedCapacity": "INDEXES"}
        units = write_units(item_bytes(item))

        def once() -> Outcome:
            try:
                self.store.metered(units, partial(self.store.client.put_item, **request))
            except ClientError as error:
                if error_code(error) != "ConditionalCheckFailedException":
                    raise
                return self._refused(item, decode_item(error.response.get("Item", {})))
            return Outcome(item, "stored")

        outcome: Outcome = self.store.retried("put_item", once)
        self.store.sent.taken += 1
        return outcome

    def _refused(self, item: Item, other: Item) -> Outcome:
        """The outcome of a put that `other` was in the way of."""
        owner = str(other.get(self.design.source_attribute, ""))
        ticket = other.get(self.design.ticket_attribute)
        known = ticket if isinstance(ticket, int) else 0
        if owner and owner == item.get(self.design.source_attribute):
            return Outcome(item, "newer", ticket=known)
        dead = other.get(self.design.type_attribute) == TOMBSTONE
        verdict: Verdict = "buried" if dead else "taken"
        return Outcome(item, verdict, owner, ticket=known)

    def _remove(self, tombstone: Item) -> bool:
        values = {":dead": TOMBSTONE, ":ticket": tombstone.get(self.design.ticket_attribute, 0)}
        request = {
            "TableName": self.design.name,
            "Key": self.store.key(self.design.key_of(tombstone)),
            "ConditionExpression": "#type = :dead AND #ticket = :ticket",
            "ExpressionAttributeNames": self._names(),
            "ExpressionAttributeValues": {name: encode(value) for name, value in values.items()},
            "ReturnConsumedCapacity": "INDEXES",
        }

        def once() -> bool:
            return holds(lambda: self.store.metered(1, lambda: self.store.client.delete_item(**request)))

        return bool(self.store.retried("delete_item", once))

    def _names(self) -> dict[str, str]:
        return {"#type": self.design.type_attribute, "#ticket": self.design.ticket_attribute}

    # ── inserts ──

    def _inserted(self, items: Sequence[Item], before: int) -> set[int]:
        """Numbers of the items that were put where nothing was."""
        limit = self.store.limit
        # By their number in place of their key: no two are of one key.
        sized = [
            ((number,), _statement(self.design.name, item), item_bytes(item))
            for number, item in enumerate(items)
        ]
        short = [one for one in sized if len(one[1]["Statement"].encode()) <= STATEMENT_BYTES]
        cut = list(batches(short, None if limit is None else limit.units_per_s))
        return {number for found in self._all(partial(self._insert, before), cut) for number in found}

    def _insert(self, before: int, batch: Batch) -> list[Any]:
        """Numbers of the batch's items that are in the table now; the others are a put's to try, or to fail with.

        Tries are counted from the last one that settled something. `before`: how many the table had taken when nothing
        was sent yet.
        """
        inserted: list[Any] = []
        left = batch

        def once() -> None:
            nonlocal left
            units = sum(write_units(size) for _, _, size in left)
            request = {"Statements": [one[1] for one in left], "ReturnConsumedCapacity": "INDEXES"}
            client = self.store.client
            answer = self.store.metered(units, lambda: client.batch_execute_statement(**request))
            codes = [_code(one) for one in answer["Responses"]]
            inserted.extend(key[0] for (key, _, _), code in zip(left, codes, strict=True) if not code)
            sent = len(left)
            left = [one for one, code in zip(left, codes, strict=True) if passes_in_batch(code)]
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


def _statement(table: str, item: Item) -> dict[str, Any]:
    wired = encode_item(item)
    names = ", ".join(f"{_quoted(name)}: ?" for name in wired)
    return {"Statement": f'INSERT INTO "{table}" VALUE {{{names}}}', "Parameters": list(wired.values())}


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _code(answer: Any) -> str:
    """What the statement failed with; '' where it did what it says."""
    error = answer.get("Error") or {}
    return str(error.get("Code") or ("unknown" if error else ""))
