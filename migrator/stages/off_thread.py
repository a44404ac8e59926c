"""Threads that an event loop hands its waiting to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

Result = TypeVar("Result")


class Threads:
    """Our own, for the loop's are the service's: one that waits for a database would be missing there."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._process = 0
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], Result]) -> Result:
        """What `work` gives. Raises: what it raises."""
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads(), context.run, work)

    def close(self) -> None:
        """Takes nothing more; what is under way goes on to its end."""
        if self._executor is not None and self._process == os.getpid():
            self._executor.shutdown(wait=False)

    def _threads(self) -> ThreadPoolExecutor:
        # The threads of a parent are not there after a fork.
        if self._executor is None or self._process != os.getpid():
            self._executor = ThreadPoolExecutor(self.at_once, thread_name_prefix="read")
            self._process = os.getpid()
        return self._executor
