"""What a test waits for: it comes, or has not come in a time that only a failure takes."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 120.0


def until(holds: Callable[[], object], what: object = "", *, pause_s: float = 0.05) -> None:
    ends_at = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < ends_at, f"never: {what}"
        time.sleep(pause_s)
