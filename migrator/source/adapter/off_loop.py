"""Work that waits, called from what SQLAlchemy runs for an event loop: it must not keep the loop from others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.util import await_only

from migrator.retry import in_context

Result = TypeVar("Result")


def off_loop(work: Callable[[], Result]) -> Result:
    """What `work` gives: in a thread beside the loop where SQLAlchemy runs this for one, at once where it does not."""
    if not _is_awaited():
        return work()
    result: Result = await_only(asyncio.get_running_loop().run_in_executor(None, in_context(work)))
    return result


def _is_awaited() -> bool:
    try:
        # Comes with SQLAlchemy's asyncio extra; who has not got it has no async sessions.
        from greenlet import getcurrent
    except ImportError:
        return False
    return bool(getattr(getcurrent(), "__sqlalchemy_greenlet_provider__", False))


class OffLoop:
    """The same as what it stands before, each of its methods off the loop."""

    def __init__(self, one: Any) -> None:
        self._one = one

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._one, name)
        if not callable(found):
            return found
        return lambda *words, **named: off_loop(partial(found, *words, **named))
