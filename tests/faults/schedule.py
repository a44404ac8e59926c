"""What goes wrong between migrator and a DynamoDB endpoint, and how often: a seeded schedule.

Each kind of fault stands in docs/faults.md with the tests that put it in.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

Wire = dict[str, Any]


@dataclass
class Faults:
    """Shares of requests (or, for `unprocessed`, of the entries of a batch) that go wrong, each from 0 to 1.

    `statement_code`: what an unprocessed statement of a batch fails with. `cancel`: transactions cancelled for
    `cancel_code`, which is the reason of their first action.
    `throttle`: over the table's capacity; `slow_down`: over the account's rate. `errors`: 500; `unavailable`: 503.
    `cut_before`, `cut_after`: the connection is cut before, or after, the request took effect. `late`: the answer
    comes after `late_s` seconds. `in_use`: the table is changing. `expires_after`: so many requests are answered,
    then the credentials have expired until `renew()`. `blind_reads`: so many queries of an index see nothing yet;
    `stale_s`: they may see it as it was up to so long ago.
    `never` names wire items or keys that are never taken: left unprocessed in a batch, throttled by themselves.
    `refuses`: the code that any request with this wire item is refused with; '' for none. `holds` says of which requests (operation and body) the
    caller hears nothing and the table neither, until FaultProxy.land().
    `clock_s`: the endpoint's clock is so far ahead of this machine's, and it takes no signature where that is too far: it says
    `clock_code`, with `clock_message`. `aged`: so many requests are told that their signature is too old, though clocks agree.
    `empty`: the table hears nothing of the request, and the caller is told 200 with `empty_body`; `empty_of`: of these
    operations alone. `altered`: so many answers come as `alters` makes them, of the operation, the status and the answer, where that
    changes them. `denied`: operations that the caller has no right to.
    """

    unprocessed: float = 0.0
    cancel: float = 0.0
    throttle: float = 0.0
    slow_down: float = 0.0
    errors: float = 0.0
    unavailable: float = 0.0
    in_use: float = 0.0
    cut_before: float = 0.0
    cut_after: float = 0.0
    late: float = 0.0
    late_s: float = 0.0
    expires_after: int | None = None
    blind_reads: int = 0
    stale_s: float = 0.0
    seed: int = 1
    statement_code: str = "ProvisionedThroughputExceeded"
    cancel_code: str = "TransactionConflict"
    never: Callable[[Wire], bool] = lambda wire: False
    refuses: Callable[[Wire], str] = lambda wire: ""
    holds: Callable[[str, Wire], bool] = lambda operation, body: False
    clock_s: float = 0.0
    clock_code: str = "InvalidSignatureException"
    clock_message: str = "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z"
    aged: int = 0
    empty: float = 0.0
    empty_body: bytes = b"{}"
    empty_of: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    altered: int = 0
    alters: Callable[[str, int, Wire], Wire] = lambda operation, status, answer: answer
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lock = Lock()
        self._answered = 0
        self._seen: dict[bytes, tuple[float, tuple[int, bytes]]] = {}

    def happens(self, kind: str, share: float) -> bool:
        """Whether this fault happens now; counted when it does."""
        with self._lock:
            found = self._random.random() < share
            self.counts[kind] += found
            return found

    def count(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1

    def is_withheld(self, wire: Wire) -> bool:
        """Whether this item, or key, is one that is never taken; counted when it is."""
        found = self.never(wire)
        if found:
            self.count("never")
        return found

    def refusal(self) -> tuple[int, str] | None:
        """The status and error code that this request gets in place of an answer."""
        if self._has_expired():
            return 400, "ExpiredTokenException"
        if abs(self.clock_s) > _SIGNED_S or self._is_aged():
            return 400, self.clock_code
        for kind, (status, code) in _REFUSALS.items():
            if self.happens(kind, getattr(self, kind)):
                return status, code
        return None

    def is_empty(self, operation: str) -> bool:
        """Whether this request is answered with nothing, and does nothing; counted when it is."""
        return (not self.empty_of or operation in self.empty_of) and self.happens("empty", self.empty)

    def as_altered(self, operation: str, status: int, body: bytes) -> bytes:
        """The answer as the caller gets it; counted where it is another one than the table gave."""
        changed = self.alters(operation, status, json.loads(body))
        with self._lock:
            found = self.counts["altered"] < self.altered and changed != json.loads(body)
            self.counts["altered"] += found
        return json.dumps(changed).encode() if found else body

    def renew(self) -> None:
        """New credentials."""
        self.expires_after = None

    def sees_nothing(self) -> bool:
        """Whether this query of an index comes before the index has caught up; counted when it does."""
        with self._lock:
            found = self.blind_reads > 0
            self.blind_reads -= found
            self.counts["blind_reads"] += found
            return found

    def lagging(self, body: bytes, forward: Callable[[bytes], tuple[int, bytes]]) -> tuple[int, bytes]:
        """The answer to a query of an index, or one that it had not long ago."""
        with self._lock:
            at, answer = self._seen.get(body, (-math.inf, (0, b"")))
            if time.monotonic() - at < self._random.uniform(0, self.stale_s):
                self.counts["stale_s"] += 1
                return answer
        began, answer = time.monotonic(), forward(body)
        with self._lock:
            self._seen[body] = (began, answer)
        return answer

    def _has_expired(self) -> bool:
        with self._lock:
            self._answered += 1
            found = self.expires_after is not None and self._answered > self.expires_after
            self.counts["expired"] += found
            return found

    def _is_aged(self) -> bool:
        with self._lock:
            found = self.counts["aged"] < self.aged
            self.counts["aged"] += found
            return found


_SIGNED_S = 300
_REFUSALS = {
    "throttle": (400, "ProvisionedThroughputExceededException"),
    "slow_down": (400, "ThrottlingException"),
    "in_use": (400, "ResourceInUseException"),
    "errors": (500, "InternalServerError"),
    "unavailable": (503, "ServiceUnavailable"),
}
