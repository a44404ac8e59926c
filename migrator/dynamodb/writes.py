"""Writes under conditions as requests: puts, and transactions of puts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from botocore.exceptions import ClientError
from msgspec import Struct

from migrator.dynamodb.exchange import json_of
from migrator.dynamodb.failures import Unprocessed, error_code, passes_in_batch
from migrator.mapping.items.wire import decode_item, units_of_writes, write_units
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import EncodedItem, Item
from migrator.runtime.errors import ItemRefusedError, amount

# ── Writes under conditions ──

REFUSED = "ConditionalCheckFailedException"
Refused: TypeAlias = Callable[[EncodedItem, Item], Outcome]
"""The outcome of an item that the other one refused."""


class Write(Protocol):
    """One request that writes items under conditions; `operation`: DynamoDB's name of it."""

    @property
    def operation(self) -> str: ...

    @property
    def items(self) -> Sequence[EncodedItem]: ...

    def units(self) -> float:
        """Write units that it is thought to take."""

    def request(self) -> Mapping[str, Any]:
        """As the client takes it."""

    def refused(self, error: ClientError) -> list[Outcome] | None:
        """What came of its items where their conditions refused it; None where the answer says something else."""


class Put(Struct, frozen=True):
    """A PutItem. `put`: the same as an action of a transaction."""

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
    """A TransactWriteItems of puts. `cancelled`: tries that were answered by a cancellation.

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
        """With a token that is the same for the same request, so that one which is sent again within ten minutes takes
        effect once. What was answered is over: the next try is another request.

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
        """What a cancellation that no condition is the reason of means, and whether it is for want of capacity.

        Raises: ItemRefusedError where it does not pass by itself.
        """
        codes = _codes(error)
        serious = sorted({code for code in codes if code != _NONE and not passes_in_batch(code)})
        if serious:
            what = f"DynamoDB refused a transaction on table {table} ({', '.join(serious)})"
            raise ItemRefusedError(f"{what}; run `migrator table check` with this job file")
        is_throttled = bool({"ThrottlingError", "ProvisionedThroughputExceeded"} & set(codes))
        return Unprocessed(f"{amount(len(self.items), 'item')} of a transaction not taken"), is_throttled


def _codes(error: ClientError) -> list[str]:
    """Why a transaction was cancelled, by its items; none where something else came of it."""
    if error_code(error) != CANCELLED:
        return []
    return [str(reason.get("Code") or _NONE) for reason in error.response.get("CancellationReasons") or []]
