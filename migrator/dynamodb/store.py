"""Batched item writes and reads, with retries of unprocessed items; sizes and capacity counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import orjson
from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.answers import (
    Received,
    all_written,
    checked_last,
    consumed_by_meter,
    consumed_units,
    note_answer,
)
from migrator.dynamodb.exchange import Line, SocketTransport, Texts, json_of
from migrator.dynamodb.failures import (
    UNPROCESSED,
    Unprocessed,
    holds,
    is_throttle,
    retried,
)
from migrator.dynamodb.throttle import TABLE, LimitedRequest, Sent, WriteLimit
from migrator.mapping.items.encoder import PutTexts, items_in, sizes_of
from migrator.mapping.items.wire import (
    decode_item,
    encode,
    encode_item,
    item_bytes,
    units_of_writes,
    write_units,
)
from migrator.mapping.model.edges import Found, QueryPage, Receipt, ScanPage, WiredItem
from migrator.mapping.model.table import (
    BATCH_GET_KEYS,
    BATCH_WRITE_BYTES,
    BATCH_WRITE_ITEMS,
    EncodedItem,
    Item,
    ItemKey,
    TableDesign,
)
from migrator.runtime.errors import FullCollectionError, ItemRefusedError, StoppedError, TargetError, amount
from migrator.runtime.retry import Backoff, Retry

# ── A scan's answer ──

_BEGIN, _END = b'"Items":[{"', b"}}]"


def read_items(see: Callable[[bytes], list[Any]]) -> Callable[[bytes], Any]:
    """A parser like orjson.loads, except that `Items` is what `see` makes of their JSON, with commas between them.

    `see` returns a list with a place for each item, raises ValueError for text that is not JSON, and has no side
    effects: an answer may turn out incomplete and be repeated. Raises: orjson.JSONDecodeError.
    """

    def read(body: bytes) -> Any:
        begin, end = body.find(_BEGIN) + len(_BEGIN) - 2, body.rfind(_END) + 2
        if len(_BEGIN) - 2 <= begin < end:
            # If a text looked like the beginning or end of the items, one of the parts is not valid JSON.
            with suppress(ValueError):
                answer = orjson.loads(body[:begin] + body[end:])
                items = see(body[begin:end])
                if answer.get("Count") == len(items):
                    return answer | {"Items": items}
        answer = orjson.loads(body)
        if isinstance(answer, dict) and isinstance(answer.get("Items"), list):
            answer["Items"] = see(orjson.dumps(answer["Items"])[1:-1])
        return answer

    return read


# ── Items cut into batches that BatchWriteItem takes ──

Sized = tuple[ItemKey, Any, int]
"""An item's key, its form in a request (a dict, or JSON) and its bytes."""

_OfBatch = TypeVar("_OfBatch", bound=tuple[Any, ...])
"""A tuple that begins as Sized, such as an EncodedItem."""


def batches(items: Sequence[_OfBatch], units_at_most: float | None = None) -> Iterator[Sequence[_OfBatch]]:
    """Batches in order: at most 25 items and 16 MB, and no key twice, which DynamoDB rejects.

    A second item with the same key begins a new batch, so that the later one is written later.
    `units_at_most`: write units of a batch of more than one item.
    Source: API reference, BatchWriteItem.
    """
    if units_at_most is None and _fits(items, None):
        # Most pages: a limit that the whole meets is met by each part.
        yield from (items[at : at + BATCH_WRITE_ITEMS] for at in range(0, len(items), BATCH_WRITE_ITEMS))
        return
    start = 0
    while start < len(items):
        batch = items[start : start + BATCH_WRITE_ITEMS]
        if not _fits(batch, units_at_most):
            batch = batch[: _fitting(batch, units_at_most)]
        yield batch
        start += len(batch)


def _fits(batch: Sequence[tuple[Any, ...]], units_at_most: float | None) -> bool:
    sizes = sizes_of(batch)
    is_cheap = units_at_most is None or units_of_writes(sizes) <= units_at_most
    return is_cheap and sum(sizes) <= BATCH_WRITE_BYTES and _is_distinct(batch)


def _is_distinct(batch: Sequence[tuple[Any, ...]]) -> bool:
    return isinstance(batch, PutTexts) or len({item[0] for item in batch}) == len(batch)


def _fitting(batch: Sequence[tuple[Any, ...]], units_at_most: float | None) -> int:
    """How many of the first items make a batch; at least one, however large it is."""
    number = 1
    while _fits(batch[: number + 1], units_at_most):
        number += 1
    return number


def _puts(items: Sequence[bytes]) -> bytes:
    between = b'}},{"PutRequest":{"Item":'
    return b"".join((between[3:], between.join(items), between[:2]))


# ── The items of one table over a client: batches within the limits, with retries of unprocessed items ──


def reads_only() -> None:
    """The check of a read-only store. Raises: TargetError, since a write is a program error."""
    what = "this table was opened read-only"
    raise TargetError(f"{what}; please report this, with the command that was run")


def by_condition() -> None:
    """No further check: each write has a condition that no late request can meet.

    Such writes are the control item's, which name its version, and deletes of tombstones by their ticket.
    """


class DynamoStore:
    """Items of a DynamoDB table. Thread-safe.

    `check` runs before each write, after all waiting and again when it is signed (only then where nothing
    waits); it raises if this writer must stop sending.
    """

    sends_texts = True

    def __init__(
        self,
        client: Any,
        design: TableDesign,
        check: Callable[[], None],
        backoff: Backoff | None = None,
        stop: Callable[[], bool] = lambda: False,
        limit: WriteLimit | None = None,
        sent: Sent | None = None,
    ) -> None:
        self.client = client
        self.design = design
        self.check = check
        self.retry = Retry(backoff or Backoff(), stop)
        self.limit = limit or WriteLimit(None)
        self.sent = sent or Sent()

    def fenced(self, check: Callable[[], None]) -> DynamoStore:
        """A store with another check that shares connections, limit and counts."""
        retry = self.retry
        return DynamoStore(self.client, self.design, check, retry.backoff, retry.stop, self.limit, self.sent)

    @property
    def sockets(self) -> SocketTransport | None:
        sockets: SocketTransport | None = self.client.exchange.sockets
        return sockets

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        units, requests = 0.0, 0
        unwritten: dict[ItemKey, str] = {}
        refused: list[ItemRefusedError] = []
        sockets = None if self.limit.is_set else self.sockets
        with nullcontext() if sockets is None else Line(sockets.connections) as line:
            for batch in batches(items, self.limit.units_at_most):
                if line is not None and self.limit.is_set:
                    # Set meanwhile: who holds a connection must not wait for another.
                    line.leave()
                    line = None
                receipt = self._write(batch, refused, line)
                units, requests = units + receipt.write_units, requests + receipt.requests
                unwritten |= receipt.unwritten
        if (
            refused
            and not self.sent.taken
            and not any(isinstance(error, FullCollectionError) for error in refused)
        ):
            # The table may not take any item at all.
            raise refused[0]
        written = [item for item in items if item.key not in unwritten] if unwritten else items
        return Receipt(len(written), sum(sizes_of(written)), units, requests, unwritten)

    def delete(self, keys: Sequence[ItemKey]) -> None:
        wired = [(key, self.key(key), 1) for key in dict.fromkeys(keys)]
        for batch in batches(wired):
            deletes = [{"DeleteRequest": {"Key": key}} for _, key, _ in batch]
            if self._send(deletes, [1] * len(batch)).unwritten:
                raise StoppedError(f"DynamoDB leaves deletes on table {self.design.name} unprocessed")

    def delete_own(self, items: Sequence[Item]) -> int:
        return sum(self.delete_if(item, [self.design.source_attribute]) for item in items)

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        items: dict[ItemKey, Item] = {}
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), BATCH_GET_KEYS):
            wired_keys = [self.key(key) for key in wanted[start : start + BATCH_GET_KEYS]]
            for item in self._read(wired_keys, consistent=True).items:
                items[self.design.key_of(item)] = item
        return items

    def scan(self, segment: int, segments: int, start: ItemKey | None = None) -> Iterator[ScanPage[Item]]:
        for answer, next_start in self._answers(segment, segments, start, self.client.scan):
            yield ScanPage([decode_item(item) for item in answer.get("Items", [])], next_start)

    def scan_encoded(
        self, segment: int, segments: int, each: Callable[[WiredItem], Found], start: ItemKey | None = None
    ) -> Iterator[ScanPage[Found]]:
        return self._scanned(
            segment, segments, read_items(lambda text: list(map(each, items_in(text)))), start
        )

    def scan_text(
        self,
        segment: int,
        segments: int,
        see: Callable[[bytes], list[Found]],
        start: ItemKey | None = None,
    ) -> Iterator[ScanPage[Found]]:
        return self._scanned(segment, segments, read_items(see), start)

    def _scanned(
        self, segment: int, segments: int, read: Callable[[bytes], Any], start: ItemKey | None
    ) -> Iterator[ScanPage[Any]]:
        call = partial(self.client.exchange.scan, self.client, read)
        for answer, next_start in self._answers(segment, segments, start, call):
            yield ScanPage(answer["Items"], next_start)

    def _answers(
        self, segment: int, segments: int, start: ItemKey | None, call: Callable[..., Any]
    ) -> Iterator[tuple[Mapping[str, Any], ItemKey | None]]:
        request: dict[str, Any] = {
            "TableName": self.design.name,
            "ConsistentRead": True,
            "Segment": segment,
            "TotalSegments": segments,
        }
        last = None if start is None else self.key(start)
        while True:
            if last is not None:
                request["ExclusiveStartKey"] = last
            answer = self.retried("scan", partial(call, **request))
            last = answer.get("LastEvaluatedKey")
            yield answer, None if last is None else self.design.key_of(decode_item(last))
            if last is None:
                return

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        bound = {name: encode(value) for name, value in request["ExpressionAttributeValues"].items()}
        call_params = {
            **request,
            "TableName": self.design.name,
            "ExpressionAttributeValues": bound,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if start is not None:
            call_params["ExclusiveStartKey"] = start
        page = self._read_counted("query", call_params)
        items = [decode_item(item) for item in page.get("Items", [])]
        dropped = int(page.get("ScannedCount", len(items))) - len(items)
        return QueryPage(items, page.get("LastEvaluatedKey"), consumed_units(page), dropped=dropped)

    def start_after(self, request: Mapping[str, Any], position: Item) -> Mapping[str, Any]:
        return encode_item(position)

    def get_item(self, request: Mapping[str, Any]) -> QueryPage:
        key = encode_item(request["Key"])
        call_params = {
            **request,
            "TableName": self.design.name,
            "Key": key,
            "ReturnConsumedCapacity": "TOTAL",
        }
        answer = self._read_counted("get_item", call_params)
        items = [decode_item(answer["Item"])] if answer.get("Item") else []
        return QueryPage(items, read_units=consumed_units(answer))

    def batch_get(self, request: Mapping[str, Any]) -> QueryPage:
        keys = [encode_item(key) for key in request["Keys"]]
        return self._read(keys, consistent=request.get("ConsistentRead", False))

    # ── batches ──

    def _write(
        self, batch: Sequence[EncodedItem], refused: list[ItemRefusedError], line: Line | None = None
    ) -> Receipt:
        """One rejected item fails the whole batch, so it is found by bisection, and its error added to `refused`.

        `line`: for the first try, if nothing limits it.
        """
        sizes = sizes_of(batch)
        puts = batch.json() if isinstance(batch, PutTexts) else _puts([item.json for item in batch])
        requests, first = Texts(puts, len(batch)), None
        if line is not None:
            first = self._tried(line, requests)
            consumed = all_written(first)
            if consumed is not None:
                note_answer(self.client)
                self.sent.taken += len(batch)
                self.count(consumed)
                return Receipt(write_units=sum(consumed.values()), requests=1)
            line.leave()
        try:
            sent = self._send(requests, sizes, first)
        except ItemRefusedError as error:
            if len(batch) > 1:
                return self._by_halves(batch, refused)
            refused.append(error)
            return Receipt(requests=1, unwritten={batch[0].key: str(error)})
        if sent.write_units:
            return sent
        sizes = (
            sizes_of([item for item in batch if item.key not in sent.unwritten]) if sent.unwritten else sizes
        )
        units = float(sum(map(write_units, sizes)))
        return Receipt(write_units=units, requests=sent.requests, unwritten=sent.unwritten)

    def _by_halves(self, batch: Sequence[EncodedItem], refused: list[ItemRefusedError]) -> Receipt:
        half = len(batch) // 2
        first, second = self._write(batch[:half], refused), self._write(batch[half:], refused)
        units, requests = first.write_units + second.write_units, first.requests + second.requests + 1
        return Receipt(
            write_units=units, requests=requests, unwritten={**first.unwritten, **second.unwritten}
        )

    def _tried(self, line: Line, requests: Texts) -> Received | Exception:
        sockets = self.sockets
        assert sockets is not None
        body = json_of(self._batch(requests))
        try:
            with checked_last(self.check):
                return line.exchange(partial(sockets.request, self.client, "BatchWriteItem", body))
        except (BotoCoreError, ClientError) as error:
            failure: Exception = error
            return failure

    def _batch(self, requests: list[dict[str, Any]] | Texts) -> dict[str, Any]:
        return {"RequestItems": {self.design.name: requests}, "ReturnConsumedCapacity": "INDEXES"}

    def _send(
        self,
        requests: list[dict[str, Any]] | Texts,
        sizes: Sequence[int],
        first: Received | Exception | None = None,
    ) -> Receipt:
        """Send until everything is taken; tries are counted from the last one that took something. `sizes`: in
        bytes. `first`: the answer to the first try.

        The rest after the last try is `unwritten` if the table took other items meanwhile, here or for
        another thread. Then the fault is theirs, not the table's. Raises: StoppedError if it took nothing.
        """
        units, count = 0.0, 0
        left = requests
        before, answered = self.sent.taken, False

        def once() -> None:
            nonlocal left, units, count, answered, first
            count, answered = count + 1, False
            request = self._batch(left)
            # The answer does not number the remaining ones: assume the largest.
            largest = sizes if len(left) == len(sizes) else sorted(sizes)[-len(left) :]
            units_asked = units_of_writes(largest)
            if first is None:
                answer = self.metered(units_asked, partial(self.client.batch_write_item, **request))
            else:
                call = partial(self.client.exchange.answer, self.client, "BatchWriteItem", request, first)
                first = None
                answer = self._answered(LimitedRequest(units_asked), call)
            units += consumed_units(answer)
            sent, left = len(left), (answer.get("UnprocessedItems") or {}).get(self.design.name, [])
            self.sent.taken, answered = self.sent.taken + sent - len(left), True
            if left:
                self.throttled(units_of_writes(sorted(sizes)[-len(left) :]))
            if left and len(left) == sent:
                raise Unprocessed(f"{amount(sent, 'item')} not taken")

        while left:
            remaining = len(left)
            try:
                self.retried("batch_write_item", once)
            except StoppedError:
                if not answered or self.sent.taken == before:
                    raise
                unwritten = dict.fromkeys(self._keys_of(left), UNPROCESSED)
                return Receipt(write_units=units, requests=count, unwritten=unwritten)
            if left and len(left) < remaining:
                self.retry.pause()
        return Receipt(write_units=units, requests=count)

    def _keys_of(self, requests: Iterable[dict[str, Any]]) -> tuple[ItemKey, ...]:
        wired = (
            request.get("PutRequest", {}).get("Item") or request["DeleteRequest"]["Key"]
            for request in requests
        )
        return tuple(self.design.key_of(decode_item(request)) for request in wired)

    def _read(self, keys: list[dict[str, Any]], *, consistent: bool) -> QueryPage:
        """Items of up to 100 keys; tries are counted from the last one that read something."""
        items: list[Item] = []
        units, count = 0.0, 0
        left = keys

        def once() -> None:
            nonlocal left, units, count
            count += 1
            answer = self.client.batch_get_item(
                RequestItems={self.design.name: {"Keys": left, "ConsistentRead": consistent}},
                ReturnConsumedCapacity="TOTAL",
            )
            units += consumed_units(answer)
            self.sent.consumed.add(("read", TABLE), consumed_units(answer))
            items.extend(decode_item(item) for item in answer.get("Responses", {}).get(self.design.name, []))
            unread = (answer.get("UnprocessedKeys") or {}).get(self.design.name, {})
            before, left = len(left), unread.get("Keys", [])
            if left and len(left) == before:
                raise Unprocessed(f"{amount(before, 'key')} not read")

        while left:
            remaining = len(left)
            self.retried("batch_get_item", once)
            if left and len(left) < remaining:
                self.retry.pause()
        return QueryPage(items, read_units=units, requests=count)

    def delete_if(self, item: Item, held: Sequence[str]) -> bool:
        """Whether an item is gone: it is deleted unless one of the `held` attributes has another value by now.

        An item that is not there is gone, too: the answer to the delete may have been lost. One by one, since
        BatchWriteItem takes no conditions.
        """
        names = {f"#held{number}": name for number, name in enumerate(held)}
        request = {
            "TableName": self.design.name,
            "Key": self.key(self.design.key_of(item)),
            "ConditionExpression": "attribute_not_exists(#key) OR "
            + " AND ".join(f"{name} = :{name[1:]}" for name in names),
            "ExpressionAttributeNames": {"#key": self.design.key[0].name, **names},
            "ExpressionAttributeValues": {f":{name[1:]}": encode(item[of]) for name, of in names.items()},
            "ReturnConsumedCapacity": "INDEXES",
        }
        # A delete takes the units of the item's write.
        return self.write_if("delete_item", request, write_units(item_bytes(item)))

    # ── requests ──

    def write_if(self, operation: str, request: Mapping[str, Any], units: float) -> bool:
        """Whether the request's condition held."""

        def once() -> bool:
            return holds(lambda: self.metered(units, lambda: getattr(self.client, operation)(**request)))

        return bool(self.retried(operation, once))

    def _read_counted(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._call(operation, request)
        self.sent.consumed.add(("read", str(request.get("IndexName", TABLE))), consumed_units(answer))
        return answer

    def _call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return self.retried(operation, partial(getattr(self.client, operation), **request))  # type: ignore[no-any-return]

    def metered(self, units: float, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Send a write of about so many units as soon as the limit has room for it."""
        with self.limit.request(units) as request:
            # After all waiting, and again when the request is signed.
            self.check()
            with checked_last(self.check):
                return self._answered(request, call)

    def _answered(self, request: LimitedRequest, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The answer of a request under way, with what it consumed counted."""
        try:
            answer = call()
        except BotoCoreError:
            # Interrupted or timed out: it may still take effect after the wait.
            self.sent.unanswered += 1
            raise
        except ClientError as error:
            if is_throttle(error):
                self.throttled(request.units)
                request.consumed = {}
            raise
        request.consumed = consumed_by_meter(answer)
        self.count({TABLE: request.units} if request.consumed is None else request.consumed)
        return answer

    def count(self, consumed: Mapping[str, float]) -> None:
        for meter, number in consumed.items():
            self.sent.consumed.add(("write", meter), number)

    def throttled(self, units: float) -> None:
        """Count a request that was throttled, in full or in part, and slow down."""
        self.sent.was_throttled(units)
        self.limit.throttled()

    def retried(self, operation: str, work: Callable[[], Any]) -> Any:
        """Retry while the error can pass. Raises: StoppedError, TargetError, Interrupted."""
        return retried(self.client, self.retry, operation, self.design.name, work)

    def key(self, key: ItemKey) -> dict[str, Any]:
        return {attribute.name: encode(value) for attribute, value in zip(self.design.key, key, strict=True)}
