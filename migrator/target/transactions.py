"""Items that are written in one transaction: all of them, or none of them and why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from migrator.errors import ItemRefusedError
from migrator.mapping.sizes import item_bytes, write_units
from migrator.model import Item
from migrator.ports.live import Outcome
from migrator.target.failures import Unprocessed, error_code, passes_in_batch
from migrator.target.store import DynamoStore
from migrator.target.wire import decode_item

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
