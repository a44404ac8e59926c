"""Conditional writes and transactions, with an outcome per item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache, partial
from typing import Any, TypeVar

import orjson
from botocore import xform_name
from botocore.exceptions import ClientError

from migrator.dynamodb.failures import UNPROCESSED, Unprocessed, error_code, passes_in_batch
from migrator.dynamodb.puts import (
    CANCELLED,
    ConditionalWrite,
    FirstTries,
    Put,
    Transaction,
)
from migrator.dynamodb.store import Batch, DynamoStore, Sized, batches
from migrator.mapping.items.encoder import encoded_of, item_of
from migrator.mapping.items.wire import encode, encode_item, write_units
from migrator.mapping.model.live import Outcome, Verdict
from migrator.mapping.model.table import STATEMENT_BYTES, TOMBSTONE, EncodedItem, Item
from migrator.runtime.errors import FullCollectionError, ItemRefusedError, NeverTakenError, amount
from migrator.runtime.retry import in_context
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
        table = self.design.name
        # By number instead of key: no two of them have the same key.
        statements = [_statement(table, number, item) for number, item in enumerate(items)] if fresh else []
        done = self._inserted(statements, before)
        left = [number for number in range(len(items)) if number not in done]
        puts = [Put(items[number], self._put_of(items[number], own=own), self._refused) for number in left]
        tried = dict(zip(left, self._tried(puts, before), strict=True))
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
        return sum(self._all(self._remove, tombstones))

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

    def _tried(self, writes: Sequence[ConditionalWrite], before: int) -> list[list[Outcome]]:
        """Outcomes of each write's items. `before`: number of items taken before.

        First tries are concurrent. A write that fails for any reason except its conditions is retried alone.
        """
        first = FirstTries(self.store, writes)
        if len(writes) > 1 and (sockets := self.store.sockets) is not None:
            first.send(sockets)
        left = [number for number in range(len(writes)) if number not in first.answered]
        further = partial(self._settled_or_why_not, before)
        tried = self._all(further, [(writes[number], first.failed.get(number)) for number in left])
        outcomes = {**first.refused, **dict(zip(left, tried, strict=True))}
        return [outcomes.get(number) or _all_stored(write) for number, write in enumerate(writes)]

    def _settled_or_why_not(
        self, before: int, write_and_failure: tuple[ConditionalWrite, Exception | None]
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

    def _settled(self, write: ConditionalWrite, failure: Exception | None) -> list[Outcome]:
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

    def _remove(self, tombstone: Item) -> bool:
        values = {":dead": TOMBSTONE, ":ticket": tombstone.get(self.design.ticket_attribute, 0)}
        request = {
            "TableName": self.design.name,
            "Key": self.store.key(self.design.key_of(tombstone)),
            "ConditionExpression": "#type = :dead AND #ticket = :ticket",
            "ExpressionAttributeNames": {name: self._names[name] for name in ("#type", "#ticket")},
            "ExpressionAttributeValues": {name: encode(value) for name, value in values.items()},
            "ReturnConsumedCapacity": "INDEXES",
        }
        return self.store.write_if("delete_item", request, 1)

    # ── inserts ──

    def _inserted(self, statements: Sequence[Sized | None], before: int) -> set[int]:
        short = [statement for statement in statements if statement is not None]
        cut = list(batches(short, self.store.limit.units_at_most))
        return {number for numbers in self._all(partial(self._insert, before), cut) for number in numbers}

    def _insert(self, before: int, batch: Batch) -> list[Any]:
        """Numbers of stored items; the others are tried as puts, which report why they fail.

        Tries are counted from the last one that settled an item. `before`: number of items taken before.
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
            if left:
                self.store.throttled(sum(write_units(size) for _, _, size in left))
            if len(left) == sent:
                raise Unprocessed(f"{amount(sent, 'item')} not taken")

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


def _differ(one: Item, other: Item) -> bool:
    """DynamoDB's comparison: true is not 1."""
    return encode_item(one) != encode_item(other)


def _all_stored(write: ConditionalWrite) -> list[Outcome]:
    return [Outcome(item, "stored") for item in write.items]


def _statement(table: str, number: int, item: EncodedItem) -> Sized | None:
    wired = orjson.loads(item.json)
    head = _insert_head(table, tuple(wired))
    if head is None:
        return None
    return (number,), orjson.Fragment(head + orjson.dumps(list(wired.values())) + b"}"), item.size_bytes


@lru_cache(maxsize=1024)
def _insert_head(table: str, names: tuple[str, ...]) -> bytes | None:
    values = ", ".join(f"{_quoted(name)}: ?" for name in names)
    statement = f'INSERT INTO "{table}" VALUE {{{values}}}'
    if len(statement.encode()) > STATEMENT_BYTES:
        return None
    return b'{"Statement":' + orjson.dumps(statement) + b',"Parameters":'


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _code(answer: Any) -> str:
    error = answer.get("Error") or {}
    return str(error.get("Code") or ("unknown" if error else ""))
