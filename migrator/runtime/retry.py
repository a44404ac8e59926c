"""Retries with exponential backoff and full jitter, a time limit, and interruption; a rate limit for reading rows."""

from __future__ import annotations

import math
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from threading import Lock, Timer, get_ident
from typing import NoReturn, TypeVar

from msgspec import Struct
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential
from tenacity.stop import stop_base

from migrator.runtime.errors import AwayError, Interrupted, MigratorError, StoppedError
from migrator.runtime.logs import get_logger

Result = TypeVar("Result")

_TICK_S = 0.2
_QUIET_S = 3.0
"""Shorter waits are not reported."""
_AGAIN_S = 10.0
_log = get_logger("retry")
_logged_at = -math.inf
_tried: dict[int, str] = {}
"""What each thread has retried for longer than `_QUIET_S`, with the last error."""


def tried_now() -> str:
    return next(iter(list(_tried.values())), "")


def nap(seconds: float, stop: Callable[[], bool], sleep: Callable[[float], None]) -> None:
    """Sleep in short intervals, calling `stop` between them.

    Raises: Interrupted if `stop` returns True.
    """
    remaining_s = seconds
    while True:
        if stop():
            raise Interrupted(
                "stopped while it waited; what was done before stays, and the same command resumes"
            )
        if remaining_s <= 0:
            return
        sleep(min(remaining_s, _TICK_S))
        remaining_s -= _TICK_S


_END: ContextVar[tuple[float, str]] = ContextVar("end", default=(math.inf, ""))


@contextmanager
def ending_at(end: float, why: str) -> Iterator[None]:
    """In the block, and in its threads, no retry starts after `end` (seconds of time.monotonic).

    `why`: the reason in the resulting error.
    """
    token = _END.set(min((end, why), _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def refuse_late(made: type[StoppedError] = StoppedError) -> None:
    """Raises: StoppedError if the time of `ending_at` is over."""
    end, why = _END.get()
    if time.monotonic() >= end:
        raise made(why)


def cut_to_end(timeout_s: float | None) -> float | None:
    left_s = _END.get()[0] - time.monotonic()
    return timeout_s if math.isinf(left_s) else max(0.001, min(timeout_s or left_s, left_s))


@contextmanager
def cut_off(connection: int) -> Iterator[None]:
    """In the block, the socket with this number is shut down at the end of `ending_at`: drivers wait for a frozen
    server without limit.
    """
    left_s = _END.get()[0] - time.monotonic()
    if math.isinf(left_s):
        yield
        return
    # Of another number, which stays this socket's even when the driver closes its own.
    same = os.dup(connection)
    timer = Timer(max(left_s, 0.0), _shut, [same])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        os.close(same)


def _shut(number: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as ended:
        ended.shutdown(socket.SHUT_RDWR)


def in_context(work: Callable[..., Result]) -> Callable[..., Result]:
    context = copy_context()
    return lambda *words: context.run(work, *words)


class Backoff(Struct, frozen=True):
    """Limits of a retry: `attempts` tries and `limit_s` seconds, with waits of 0 to min(cap, base · 2^n)
    seconds.

    Source of full jitter: AWS Architecture Blog, "Exponential Backoff And Jitter".
    """

    attempts: int = 12
    base_s: float = 0.05
    cap_s: float = 10.0
    limit_s: float = 300.0


class Retry(Struct, frozen=True):
    """Calls `stop` while waiting, so that Ctrl-C interrupts a long wait."""

    backoff: Backoff = Backoff()
    stop: Callable[[], bool] = lambda: False
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def call(
        self,
        what: str,
        work: Callable[[], Result],
        can_pass: Callable[[BaseException], bool],
        gave_up: Callable[[BaseException, str], MigratorError] | None = None,
    ) -> Result:
        """Retry `work` while its error can pass.

        `gave_up`: makes the error at the limit from the last one and the time tried, in words.
        Raises: the error itself if it cannot pass; StoppedError, naming `what`, at the limit; Interrupted.
        """
        began = self.clock()
        try:
            return work()
        except BaseException as error:
            if not can_pass(error):
                raise
            # The failed try counts as the first one.
            again = _after(error, work)
        retrying = Retrying(
            wait=wait_random_exponential(multiplier=self.backoff.base_s, max=self.backoff.cap_s),
            stop=stop_after_attempt(self.backoff.attempts) | _AfterSeconds(self, began),
            retry=retry_if_exception(can_pass),
            sleep=self.wait,
            before_sleep=lambda state: self._tell(what, state, began),
            reraise=False,
            retry_error_callback=lambda state: self._give_up(what, state, began, gave_up),
        )
        try:
            return retrying(again)
        finally:
            _tried.pop(get_ident(), None)

    def pause(self) -> None:
        self.wait(random.uniform(0, self.backoff.base_s))

    def wait(self, seconds: float) -> None:
        nap(min(seconds, max(0.0, _END.get()[0] - time.monotonic())), self.stop, self.sleep)

    def _tell(self, what: str, state: RetryCallState, began: float) -> None:
        global _logged_at
        now = time.monotonic()
        tried_s = self.clock() - began
        if tried_s < _QUIET_S:
            return
        error = state.outcome.exception() if state.outcome else None
        why = _why(error)
        _tried[get_ident()] = f"{what} is tried again and again ({why})"
        if now - _logged_at < _AGAIN_S:
            return
        _logged_at = now
        _log.warning(
            "tried_again",
            what=what,
            why=why,
            tries=state.attempt_number,
            tried_s=round(tried_s, 1),
            gives_up_after_s=self.backoff.limit_s,
        )

    def _give_up(
        self,
        what: str,
        state: RetryCallState,
        began: float,
        gave_up: Callable[[BaseException, str], MigratorError] | None,
    ) -> NoReturn:
        refuse_late(AwayError)
        error = state.outcome.exception() if state.outcome else None
        tried = f"{state.attempt_number} tries in {self.clock() - began:.0f} s"
        if gave_up is not None and error is not None:
            raise gave_up(error, tried) from None
        raise StoppedError(
            f"{what} gave up after {tried} ({type(error).__name__}); checkpoints are kept, the same command resumes"
        ) from None


def _why(error: BaseException | None) -> str:
    """The service's own code, such as "ServiceUnavailable", else the error's type."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return str(code or type(error).__name__)


def _after(failed: BaseException, work: Callable[[], Result]) -> Callable[[], Result]:
    failure = [failed]

    def again() -> Result:
        if failure:
            raise failure.pop()
        return work()

    return again


class _AfterSeconds(stop_base):
    def __init__(self, retry: Retry, began: float) -> None:
        self.retry = retry
        self.began = began

    def __call__(self, state: RetryCallState) -> bool:
        late = time.monotonic() >= _END.get()[0]
        return late or self.retry.clock() - self.began >= self.retry.backoff.limit_s


# ── Clocks that only go forward ──


def running_s() -> float:
    """A clock that also runs while the machine sleeps; time.monotonic does so on Windows only."""
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def clock_of(now_s: Callable[[], float]) -> Callable[[], float]:
    """A clock that continues from `now_s`, independent of changes of this machine's clock."""
    then, before = now_s(), running_s()
    return lambda: then + running_s() - before


# ── Rate of reading rows: a token bucket shared by all workers of a run ──

_NO_DEBT_ROWS = 1e-6
"""Rounding error: waiting for so little could mean endless sleeps too short for any clock."""


class RateLimit:
    """An average limit of `rows_per_s` over all callers; None: unlimited. Thread-safe.

    A page's rows are known only after reading, and are deducted then. The next caller waits until the bucket,
    which holds at most one second's rows, is out of debt.
    """

    def __init__(
        self,
        rows_per_s: float | None = None,
        stop: Callable[[], bool] = lambda: False,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._of_all = self._rows_per_s = rows_per_s
        self._stop = stop
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._tokens = 0.0
        self._filled_at = clock()

    def share(self, parts: int) -> None:
        if self._of_all is not None:
            self._debt_s(self._rows_per_s or self._of_all)
            self._rows_per_s = self._of_all / parts

    @property
    def is_set(self) -> bool:
        return self._of_all is not None

    def wait(self) -> None:
        """Raises: Interrupted when the run is stopped."""
        if self._rows_per_s is None:
            return
        while (debt_s := self._debt_s(self._rows_per_s)) > 0:
            nap(debt_s, self._stop, self._sleep)

    def took(self, rows: int) -> None:
        if self._rows_per_s is not None:
            with self._lock:
                self._tokens -= rows

    def _debt_s(self, rows_per_s: float) -> float:
        with self._lock:
            now = self._clock()
            filled = self._tokens + (now - self._filled_at) * rows_per_s
            self._tokens, self._filled_at = min(filled, rows_per_s), now
            return -self._tokens / rows_per_s if self._tokens < -_NO_DEBT_ROWS else 0.0
