"""Retries with exponential backoff and full jitter, a time limit, and a stop between them; how fast rows are read."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Lock, get_ident
from typing import NoReturn, TypeVar

from msgspec import Struct
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential
from tenacity.stop import stop_base

from migrator.runtime.errors import AwayError, Interrupted, MigratorError, StoppedError
from migrator.runtime.logs import get_logger

Result = TypeVar("Result")

_TICK_S = 0.2
_QUIET_S = 3.0
"""What is over sooner is not worth a word."""
_AGAIN_S = 10.0
_log = get_logger("retry")
_logged_at = -math.inf
_tried: dict[int, str] = {}
"""What each thread has tried for longer than `_QUIET_S`, and why it failed last."""


def tried_now() -> str:
    """What this process tries again and again just now, of many calls one; '' for nothing."""
    return next(iter(list(_tried.values())), "")


def nap(seconds: float, stop: Callable[[], bool], sleep: Callable[[float], None]) -> None:
    """Sleeps in short pieces, looking up between them.

    Raises: Interrupted when `stop` says so.
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
    """Nothing is tried again past `end` (seconds of time.monotonic) by what runs inside, in its threads too.

    `why`: what an error says that comes of it.
    """
    token = _END.set(min((end, why), _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def refuse_late(made: type[StoppedError] = StoppedError) -> None:
    """Raises: StoppedError where the time of `ending_at` is over."""
    end, why = _END.get()
    if time.monotonic() >= end:
        raise made(why)


def cut_to_end(timeout_s: float | None) -> float | None:
    """A timeout, no longer than what is left of the time of `ending_at`."""
    left_s = _END.get()[0] - time.monotonic()
    return timeout_s if math.isinf(left_s) else max(0.001, min(timeout_s or left_s, left_s))


def in_context(work: Callable[..., Result]) -> Callable[..., Result]:
    """`work` for another thread, under the same end."""
    context = copy_context()
    return lambda *words: context.run(work, *words)


class Backoff(Struct, frozen=True):
    """How long to go on: at most `attempts` tries and `limit_s` seconds, waits of 0 to min(cap, base · 2^n) seconds.

    Source of full jitter: AWS Architecture Blog, "Exponential Backoff And Jitter".
    """

    attempts: int = 12
    base_s: float = 0.05
    cap_s: float = 10.0
    limit_s: float = 300.0


class Retry(Struct, frozen=True):
    """Tries again what can pass. `stop` is asked while waiting, so that Ctrl-C does not sit out a long wait."""

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
        """The result of `work`, tried again while its error can pass.

        `gave_up`: makes the error of the limit out of the last one and of how long was tried, in words.
        Raises: the error itself when it cannot pass; StoppedError, naming `what`, at the limit; Interrupted.
        """
        began = self.clock()
        try:
            return work()
        except BaseException as error:
            if not can_pass(error):
                raise
            # The try that failed is the first of those that are counted.
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
        """A first, short wait: something was taken, the rest follows."""
        self.wait(random.uniform(0, self.backoff.base_s))

    def wait(self, seconds: float) -> None:
        """Sleeps in short naps, looking up between them."""
        nap(min(seconds, max(0.0, _END.get()[0] - time.monotonic())), self.stop, self.sleep)

    def _tell(self, what: str, state: RetryCallState, began: float) -> None:
        """Tells that it waits, once it has waited for some time; of many calls that wait, now and then one is logged."""
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
    """The service's own code where it gave one, as "ServiceUnavailable"; else the kind of the error."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return str(code or type(error).__name__)


def _after(failed: BaseException, work: Callable[[], Result]) -> Callable[[], Result]:
    """`work`, but for its first call, which has failed already."""
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
    """A clock that also runs while the machine sleeps, which time.monotonic does on Windows alone."""
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def clock_of(now_s: Callable[[], float]) -> Callable[[], float]:
    """A clock that goes on from what `now_s` says now, whatever this machine's own clock says or is set to."""
    then, before = now_s(), running_s()
    return lambda: then + running_s() - before


# ── How fast rows are read: a bucket of tokens that all workers of a run draw from ──

_NO_DEBT_ROWS = 1e-6
"""Rounding leaves so much; to wait for it could ask for sleeps too short for any clock, without end."""


class RateLimit:
    """At most `rows_per_s` on the average over all callers; None is no limit. Safe to use from many threads.

    A page's rows are known only when it is read: they are drawn afterwards, and the next caller waits until the
    bucket, which never holds more than one second's rows, is out of debt.
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
        """From now on it is one of so many equal parts of the limit; others take the others."""
        if self._of_all is not None:
            self._debt_s(self._rows_per_s or self._of_all)
            self._rows_per_s = self._of_all / parts

    @property
    def is_set(self) -> bool:
        return self._of_all is not None

    def wait(self) -> None:
        """Returns when the next page may be read.

        Raises: Interrupted when the run is asked to stop.
        """
        if self._rows_per_s is None:
            return
        while (debt_s := self._debt_s(self._rows_per_s)) > 0:
            nap(debt_s, self._stop, self._sleep)

    def took(self, rows: int) -> None:
        """Draws the rows that were read."""
        if self._rows_per_s is not None:
            with self._lock:
                self._tokens -= rows

    def _debt_s(self, rows_per_s: float) -> float:
        """How long the bucket needs to be out of debt."""
        with self._lock:
            now = self._clock()
            filled = self._tokens + (now - self._filled_at) * rows_per_s
            self._tokens, self._filled_at = min(filled, rows_per_s), now
            return -self._tokens / rows_per_s if self._tokens < -_NO_DEBT_ROWS else 0.0
