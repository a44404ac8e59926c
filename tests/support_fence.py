"""What writers in tests are given that are not about checks: one that lets everything pass, under a name that says so."""

from __future__ import annotations

import time
from typing import Any

from migrator.mapping.live.direct import DirectItems
from migrator.stages.backfill.write import Claims, FastPath, Puts


def no_fence() -> None:
    """Nothing stops this writer."""


def all_answered() -> int:
    """How many requests this writer knows no end of."""
    return 0


def written_alone(store: Puts, claims: Claims) -> FastPath:
    """The path of a backfill beside which nothing writes, of a source that stands still."""
    return FastPath(store, claims, time.time, no_fence, None, None, frozenset())


OF_A_STILL_SOURCE: dict[str, Any] = {
    "check": no_fence,
    "confirm": None,
    "is_quiet": lambda: True,
    "direct": DirectItems(),
}
"""What a Verify is given beside its edges where nothing changes meanwhile."""
