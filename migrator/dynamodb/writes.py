"""Writes under conditions as requests and as their bodies: puts, and transactions of puts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import orjson
from botocore.exceptions import ClientError

from migrator.dynamodb.exchange import json_of
from migrator.dynamodb.failures import Unprocessed, error_code, passes_in_batch
from migrator.mapping.items.wire import decode_item, item_bytes, units_of_writes, write_units
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import TOMBSTONE, EncodedItem, Item
from migrator.runtime.errors import ItemRefusedError

# ── Writes under conditions: each as a request, and as its body ──

REFUSED = "ConditionalCheckFailedException"
_ASKED = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD", "ReturnConsumedCapacity": "INDEXES"}
SourceText: TypeAlias = str
"""What an item's `_src` holds."""


class Write(Protocol):
    """One request that writes `count` items under conditions; `operation`: DynamoDB's name of it."""

    @property
    def operation(self) -> str: ...

    @property
    def count(self) -> int: ...

    def units(self) -> float:
        """Write units that it is thought to take."""

    def body(self) -> bytes:
        """It as JSON."""

    def asked(self) -> Mapping[str, Any]:
        """Those of its parts that say what its answer must hold."""

    def refused(self, error: ClientError) -> list[Outcome] | None:
        """What came of its items where their conditions refused it; None where the answer says something else."""


class Put(Write, Protocol):
    """A PutItem under a condition."""

    @property
    def item(self) -> Item: ...

    def request(self) -> dict[str, Any]:
        """As the client takes it, without what every request asks for."""


Refused: TypeAlias = Callable[[Item, Item], Outcome]
"""The outcome of an item that the other one refused."""


@dataclass(frozen=True, slots=True)
class ItemPut:
    item: Item
    request_of: Callable[[Item], dict[str, Any]]
    refused_by: Refused
    operation: str = "PutItem"
    count: int = 1

    def units(self) -> float:
        return write_units(item_bytes(self.item))

    def request(self) -> dict[str, Any]:
        return self.request_of(self.item)

    def body(self) -> bytes:
        return json_of({**self.request_of(self.item), "ReturnConsumedCapacity": "INDEXES"})

    def asked(self) -> Mapping[str, Any]:
        return _ASKED

    def refused(self, error: ClientError) -> list[Outcome] | None:
        return _refused(self, self.refused_by, error)


@dataclass(frozen=True, slots=True)
class EncodedPut:
    """`encoded`: the item as JSON in DynamoDB's form."""

    encoded: EncodedItem
    source: SourceText
    form: tuple[bytes, bytes, bytes]
    request_of: Callable[[Item], dict[str, Any]]
    refused_by: Refused
    operation: str = "PutItem"
    count: int = 1

    @property
    def item(self) -> Item:
        return decode_item(orjson.loads(self.encoded[1]))

    def units(self) -> float:
        return write_units(self.encoded[2])

    def request(self) -> dict[str, Any]:
        return self.request_of(self.item)

    def body(self) -> bytes:
        before, between, behind = self.form
        return b"".join((before, self.encoded[1], between, orjson.dumps(self.source), behind))

    def asked(self) -> Mapping[str, Any]:
        return _ASKED

    def refused(self, error: ClientError) -> list[Outcome] | None:
        return _refused(self, self.refused_by, error)


def _refused(put: Put, refused_by: Refused, error: ClientError) -> list[Outcome] | None:
    if error_code(error) != REFUSED:
        return None
    return [refused_by(put.item, decode_item(error.response.get("Item", {})))]


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


# ── Items that are written in one transaction: all of them, or none of them and why ──

_TRANSACTIONAL = 2
"""A transactional write takes twice the units. Source: AWS Developer Guide, "Amazon DynamoDB Transactions: How it works"."""
_NONE, _CONDITION = "None", "ConditionalCheckFailed"
CANCELLED = "TransactionCanceledException"


@dataclass(slots=True)
class Transaction:
    """A TransactWriteItems of puts, each under its condition. `item`: that of a number; `sizes`: in bytes.

    `cancelled`: tries that were answered by a cancellation.

    Source of the reasons: API reference, TransactWriteItems, "TransactionCanceledException".
    """

    puts: Sequence[Mapping[str, Any]]
    sizes: Sequence[int]
    item: Callable[[int], Item]
    refused_by: Refused
    cancelled: int = 0
    operation: str = "TransactWriteItems"
    _asked: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self._asked = {
            "TransactItems": [{"Put": put} for put in self.puts],
            "ReturnConsumedCapacity": "INDEXES",
        }

    @property
    def count(self) -> int:
        return len(self.puts)

    @property
    def items(self) -> list[Item]:
        return [self.item(number) for number in range(len(self.puts))]

    def units(self) -> float:
        return _TRANSACTIONAL * units_of_writes(self.sizes)

    def asked(self) -> Mapping[str, Any]:
        return self._asked

    def request(self) -> dict[str, Any]:
        """As the client takes it; as JSON it is `body`."""
        return {**self._asked, "ClientRequestToken": self._token(json_of(self._asked))}

    def body(self) -> bytes:
        text = json_of(self._asked)
        return b'%b,"ClientRequestToken":"%b"}' % (text[:-1], self._token(text).encode())

    def _token(self, text: bytes) -> str:
        """The same for the same request, so that one which is sent again within ten minutes takes effect once.

        What was answered is over: the next try is another request.

        Source: API reference, TransactWriteItems, "ClientRequestToken" (36 characters at most).
        """
        return hashlib.blake2b(b"%d%b" % (self.cancelled, text), digest_size=16).hexdigest()

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
        """What a cancellation that no condition is the reason of means, and whether it is for want of capacity.

        Raises: ItemRefusedError where it does not pass by itself.
        """
        codes = _codes(error)
        serious = sorted({code for code in codes if code != _NONE and not passes_in_batch(code)})
        if serious:
            what = f"DynamoDB refused a transaction on table {table} ({', '.join(serious)})"
            raise ItemRefusedError(f"{what}; run `migrator table check` with this job file")
        is_throttled = bool({"ThrottlingError", "ProvisionedThroughputExceeded"} & set(codes))
        return Unprocessed(f"{self.count} item(s) of a transaction not taken"), is_throttled


def _codes(error: ClientError) -> list[str]:
    """Why a transaction was cancelled, by its items; none where something else came of it."""
    if error_code(error) != CANCELLED:
        return []
    return [str(reason.get("Code") or _NONE) for reason in error.response.get("CancellationReasons") or []]
