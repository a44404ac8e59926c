"""A database server that the tests started themselves, so that they may end it and start it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class OwnServer:
    """`crash` ends it at once, as a power cut would; `start` starts it again with what it holds."""

    url: str
    start: Callable[[], None]
    crash: Callable[[], None]
