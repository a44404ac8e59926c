"""What writers in tests are given that are not about checks: one that lets everything pass, under a name that says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from migrator.mapping.items.encoder import compile_encoder
from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.journal import Page
from migrator.mapping.model.table import RowTree
from migrator.stages.backfill.write import Claims, FastPath, PagePath, Puts, RawRead, encoders_of
from migrator.stages.verify.scan import DirectItems


def no_fence() -> None:
    """Nothing stops this writer."""


def all_answered() -> int:
    """How many requests this writer knows no end of."""
    return 0


def page_of(
    read: Callable[[], list[RowTree]], read_raw: RawRead | None = None, page: Page | None = None
) -> tuple[Page, RawRead]:
    """A page that a test reads in its own way. `read_raw`: with raw texts, if it can be read so."""
    return page or Page("", 1, None, None), read_raw or (lambda _: RawPage(read()))


def written_alone(store: Puts, claims: Claims) -> PagePath:
    """The path of a backfill beside which nothing writes, of a source that stands still."""
    encoders = encoders_of(claims.source, claims.entities.values(), compile_encoder)
    return FastPath(store, claims, encoders, time.time, no_fence, None, None, frozenset())


OF_A_STILL_SOURCE: dict[str, Any] = {
    "check": no_fence,
    "confirm": None,
    "is_quiet": lambda: True,
    "direct": DirectItems(),
}
"""What a Verify is given beside its edges where nothing changes meanwhile."""
