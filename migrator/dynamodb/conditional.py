"""Conditional writes and transactions, with one outcome for each item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache, partial
from typing import Any, TypeVar

import orjson
from botocore.exceptions import ClientError

from migrator.dynamodb.failures import UNPROCESSED, Unprocessed, error_code, holds, passes_in_batch
from migrator.dynamodb.puts import FirstTries
from migrator.dynamodb.store import Batch, DynamoStore, Sized, batches
from migrator.dynamodb.writes import (
    CANCELLED,
    EncodedPut,
    ItemPut,
    Put,
    PutForm,
    SourceText,
    Transaction,
    Write,
)
from migrator.mapping.items.wire import (
    decode_item,
    encode,
    encode_item,
    encode_sized,
    item_bytes,
    write_units,
)
from migrator.mapping.model.live import Outcome, Verdict
from migrator.mapping.model.table import STATEMENT_BYTES, TOMBSTONE, EncodedItem, Item
from migrator.runtime.errors import FullCollectionError, ItemRefusedError, NeverTakenError
from migrator.runtime.retry import in_context
from migrator.runtime.system import Forked, tell_of_forks

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
Tried = TypeVar("Tried", bound=Write)


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
        return self._kept(items, partial(self._written, request=self._conditional_put, fresh=fresh))

    def write_own(self, items: Sequence[Item]) -> list[Outcome]:
        return self._kept(items, partial(self._written, request=self._own_put, fresh=True))

    # ── attributes of services ──

    def _kept(self, items: Sequence[Item], write: Callable[[Sequence[Item]], list[Outcome]]) -> list[Outcome]:
        """What came of the items, each put with what services keep on the stored one; read and put again where they changed
        it in between."""
        if not self.design.kept:
            return write(items)
        outcomes: dict[int, Outcome] = {}
        while left := [number for number in range(len(items)) if number not in outcomes]:
            written = write(self._with_kept([items[number] for number in left]))
            found = dict(zip(left, written, strict=True))
            outcomes |= {number: one for number, one in found.items() if one.verdict != "kept_changed"}
        return [outcomes[number] for number in range(len(items))]

    def _with_kept(self, items: Sequence[Item]) -> list[Item]:
        kept = self.design.kept
        live = [item for item in items if not self._is_tombstone(item)]
        stored = self.store.get(list({self.design.key_of(item) for item in live}))
        return [
            item
            if self._is_tombstone(item)
            else {name: value for name, value in item.items() if name not in kept}
            | self._kept_of(stored.get(self.design.key_of(item), {}))
            for item in items
        ]

    def _kept_of(self, item: Item) -> Item:
        return {name: value for name, value in item.items() if name in self.design.kept}

    def _is_tombstone(self, item: Item) -> bool:
        """It takes the place of all of an item."""
        return item.get(self.design.type_attribute) == TOMBSTONE

    # ── items ──

    def _written(
        self, items: Sequence[Item], request: Callable[[Item], dict[str, Any]], *, fresh: bool
    ) -> list[Outcome]:
        before = self.store.sent.taken
        table = self.design.name
        # By their number in place of their key: no two are of one key.
        statements = [_statement(table, number, item) for number, item in enumerate(items)] if fresh else []
        done = self._inserted(statements, before)
        left = [number for number in range(len(items)) if number not in done]
        puts = [ItemPut(items[number], request, self.refused) for number in left]
        refused = {left[number]: outcome for number, outcome in self._put_all(puts, before).items()}
        return [refused.get(number) or Outcome(item, "stored") for number, item in enumerate(items)]

    def insert_encoded(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        if self.design.kept:
            return _not_stored(self.write(list(map(_decoded, items)), fresh=True))
        before = self.store.sent.taken
        done = self._inserted_encoded(items, before)
        left = [_decoded(item) for number, item in enumerate(items) if number not in done]
        puts = [ItemPut(item, self._conditional_put, self.refused) for item in left]
        refused = self._put_all(puts, before)
        return [refused.get(number) or Outcome(item, "stored") for number, item in enumerate(left)]

    def write_encoded(
        self, items: Sequence[tuple[SourceText, EncodedItem]], ticket: int, *, fresh: bool = False
    ) -> list[Outcome]:
        if self.design.kept:
            return _not_stored(self.write([_decoded(item) for _, item in items], fresh=fresh))
        before = self.store.sent.taken
        done = self._inserted_encoded([item for _, item in items], before) if fresh else set()
        form = self._form.of(ticket)
        puts = [
            EncodedPut(item, source, form, self._conditional_put, self.refused)
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
        if self.design.kept:
            return [outcome for group in groups for outcome in self._kept_together(group)]
        return self._written_together(groups)

    def _kept_together(self, group: Sequence[Item]) -> list[Outcome]:
        while True:
            outcomes = self._written_together([self._with_kept(group)])
            if all(outcome.verdict != "kept_changed" for outcome in outcomes):
                return outcomes

    def _written_together(self, groups: Sequence[Sequence[Item]]) -> list[Outcome]:
        transactions = [self._transaction(group) for group in groups if group]
        written = self._transact_all(transactions)
        return [
            outcome
            for number, transaction in enumerate(transactions)
            for outcome in written.get(number) or [Outcome(item, "stored") for item in transaction.items]
        ]

    def write_encoded_together(
        self, groups: Sequence[tuple[SourceText, Sequence[EncodedItem]]], ticket: int
    ) -> list[Outcome]:
        if self.design.kept:
            return _not_stored(self.write_together([list(map(_decoded, items)) for _, items in groups]))
        transactions = [self._encoded_transaction(source, items, ticket) for source, items in groups]
        written = self._transact_all(transactions).values()
        return _not_stored(outcome for outcomes in written for outcome in outcomes)

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
            "ConditionExpression": put["ConditionExpression"].replace(_NOTHING_OF_OTHERS, _NOTHING_NEWER),
            "ExpressionAttributeNames": put["ExpressionAttributeNames"] | self._names,
            "ExpressionAttributeValues": put["ExpressionAttributeValues"] | {":ticket": ticket},
        }

    def _own_put(self, item: Item) -> dict[str, Any]:
        """A put over nothing of others."""
        values = {":source": item.get(self.design.source_attribute), ":dead": TOMBSTONE}
        kept = {} if self._is_tombstone(item) else dict(enumerate(sorted(self.design.kept)))
        as_read = [
            f"#kept{number} = :kept{number}" if name in item else f"attribute_not_exists(#kept{number})"
            for number, name in kept.items()
        ]
        values |= {f":kept{number}": item[name] for number, name in kept.items() if name in item}
        return {
            "TableName": self.design.name,
            "Item": encode_item(item),
            "ConditionExpression": " AND ".join([f"({_NOTHING_OF_OTHERS})", *as_read])
            if as_read
            else _NOTHING_OF_OTHERS,
            "ExpressionAttributeNames": self._own_names
            | {f"#kept{number}": name for number, name in kept.items()},
            "ExpressionAttributeValues": {name: encode(value) for name, value in values.items()},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _put_all(self, puts: Sequence[Put], before: int) -> dict[int, Outcome]:
        """The outcomes of those that are not stored, by their numbers."""
        written = self._tried(puts, partial(self._put_or_why_not, before))
        return {number: outcome for number, (outcome,) in written.items() if outcome.verdict != "stored"}

    def _tried(
        self, writes: Sequence[Tried], further: Callable[[tuple[Tried, Exception | None]], list[Outcome]]
    ) -> dict[int, list[Outcome]]:
        """The outcomes of all but some that are stored, by their numbers. `further`: the further tries of one of them, with
        the failure of its first one.

        The first try of each goes with those of many others. After the first one that failed for another reason than its
        conditions, each goes by itself, with its further tries.
        """
        first = FirstTries(self.store, writes)
        if len(writes) > 1 and (sockets := self.store.sockets) is not None:
            first.send(sockets)
        left = [number for number in range(len(writes)) if number not in first.answered]
        tried = self._all(further, [(writes[number], first.failed.get(number)) for number in left])
        return {**first.refused, **dict(zip(left, tried, strict=True))}

    def _put_or_why_not(self, before: int, put_and_failure: tuple[Put, Exception | None]) -> list[Outcome]:
        """The outcome of a put, with the failure of its first try; `before`: how many items the table had taken before
        anything was sent."""
        put, failure = put_and_failure
        try:
            return self._put(put, failure)
        except ItemRefusedError as error:
            if not self.store.sent.taken and not isinstance(error, FullCollectionError):
                # Nothing says that the table would take any item at all.
                raise
            return [Outcome(put.item, "unwritten", why=str(error))]
        except NeverTakenError:
            if self.store.sent.taken == before:
                raise
            return [Outcome(put.item, "unwritten", why=UNPROCESSED)]

    def _put(self, put: Put, failure: Exception | None) -> list[Outcome]:
        request = {**put.request(), "ReturnConsumedCapacity": "INDEXES"}
        failures = [] if failure is None else [failure]

        def once() -> list[Outcome]:
            try:
                if failures:
                    raise failures.pop()
                self.store.metered(put.units(), partial(self.store.client.put_item, **request))
            except ClientError as error:
                outcomes = put.refused(error)
                if outcomes is None:
                    raise
                return outcomes
            return [Outcome(put.item, "stored")]

        outcomes: list[Outcome] = self.store.retried("put_item", once)
        self.store.sent.taken += 1
        return outcomes

    # ── transactions ──

    def _transaction(self, items: Sequence[Item]) -> Transaction:
        puts, sizes = map(self._conditional_put, items), map(item_bytes, items)
        return Transaction(list(puts), list(sizes), items.__getitem__, self.refused)

    def _encoded_transaction(
        self, source: SourceText, items: Sequence[EncodedItem], ticket: int
    ) -> Transaction:
        values = {":source": encode(source), ":dead": encode(TOMBSTONE), ":ticket": encode(ticket)}
        put = {
            "TableName": self.design.name,
            "Item": None,
            "ConditionExpression": _NOTHING_NEWER,
            "ExpressionAttributeNames": self._own_names | self._names,
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        puts = [{**put, "Item": orjson.Fragment(item[1])} for item in items]
        sizes = [item[2] for item in items]
        return Transaction(puts, sizes, lambda number: _decoded(items[number]), self.refused)

    def _transact_all(self, transactions: Sequence[Transaction]) -> dict[int, list[Outcome]]:
        return self._tried(transactions, partial(self._transact_or_why_not, self.store.sent.taken))

    def _transact_or_why_not(
        self, before: int, transaction_and_failure: tuple[Transaction, Exception | None]
    ) -> list[Outcome]:
        transaction, failure = transaction_and_failure
        try:
            return self._transact(transaction, failure)
        except NeverTakenError:
            if self.store.sent.taken == before:
                raise
            return [Outcome(item, "unwritten", why=UNPROCESSED) for item in transaction.items]

    def _transact(self, transaction: Transaction, failure: Exception | None) -> list[Outcome]:
        """Raises: StoppedError when DynamoDB gave up; ItemRefusedError where it does not take the items as they are."""
        failures = [] if failure is None else [failure]

        def once() -> list[Outcome]:
            try:
                if failures:
                    raise failures.pop()
                request = transaction.request()
                self.store.metered(
                    transaction.units(), partial(self.store.client.transact_write_items, **request)
                )
            except ClientError as error:
                outcomes = transaction.refused(error)
                if outcomes is None and error_code(error) == CANCELLED:
                    # An answer: nothing of it took effect, so the next try is another request.
                    transaction.cancelled += 1
                    unprocessed, is_throttled = transaction.not_taken(error, self.design.name)
                    if is_throttled:
                        self.store.throttled(transaction.units())
                    raise unprocessed from None
                if outcomes is None:
                    raise
                return outcomes
            return [Outcome(item, "stored") for item in transaction.items]

        outcomes: list[Outcome] = self.store.retried("transact_write_items", once)
        self.store.sent.taken += transaction.count
        return outcomes

    def refused(self, item: Item, other: Item) -> Outcome:
        """The outcome of a put that `other`, the item under its key, refused."""
        if not self._is_tombstone(item) and _differ(self._kept_of(item), self._kept_of(other)):
            return Outcome(item, "kept_changed")
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
        short = [statement for statement in statements if statement is not None]
        cut = list(batches(short, self.store.limit.units_at_most))
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
            if left:
                self.store.throttled(sum(write_units(size) for _, _, size in left))
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


def _differ(one: Item, other: Item) -> bool:
    """As DynamoDB compares: true is not 1."""
    return encode_item(one) != encode_item(other)


def _not_stored(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.verdict != "stored"]


def _decoded(item: EncodedItem) -> Item:
    return decode_item(orjson.loads(item[1]))


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
