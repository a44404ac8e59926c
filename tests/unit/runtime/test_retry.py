from __future__ import annotations

import math
import threading

import pytest
from structlog.testing import capture_logs

from migrator.runtime import retry as runtime_retry
from migrator.runtime.errors import Interrupted, SourceError, StoppedError
from migrator.runtime.retry import Backoff, RateLimit, Retry
from tests import pins


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now


class Failing:
    """Fails so many times, then answers."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.left:
            raise OSError("secret")
        return "done"


def passing(error: BaseException) -> bool:
    return isinstance(error, OSError)


def test_what_is_raised_at_the_limit_can_be_anothers_word() -> None:
    retry = Retry(Backoff(attempts=2), sleep=lambda seconds: None)
    with pins.refused(SourceError):
        retry.call(
            "reading",
            Failing(9),
            passing,
            lambda error, tried: SourceError(f"{type(error).__name__}, {tried}"),
        )


def test_what_can_pass_is_tried_again() -> None:
    clock, work = Clock(), Failing(3)
    assert Retry(Backoff(), sleep=clock.sleep, clock=clock.time).call("writing", work, passing) == "done"
    assert work.calls == 4
    assert 0 <= clock.now <= 0.05 + 0.1 + 0.2 + 3 * 0.2


def test_error_at_the_limit_of_tries_names_the_failing_store() -> None:
    clock, work = Clock(), Failing(99)
    retry = Retry(Backoff(attempts=3), sleep=clock.sleep, clock=clock.time)
    with pins.refused(StoppedError) as caught:
        retry.call("writing", work, passing)
    assert work.calls == 3
    assert "secret" not in str(caught.value)


def test_a_long_wait_is_reported_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_retry, "_logged_at", -math.inf)
    clock = Clock()
    monkeypatch.setattr("migrator.runtime.retry.time.monotonic", clock.time)
    retry = Retry(Backoff(attempts=40, base_s=8, cap_s=8, limit_s=60), sleep=clock.sleep, clock=clock.time)
    with capture_logs() as logged, pytest.raises(StoppedError):
        retry.call("reading", Failing(99), passing)
    said = [line for line in logged if line["event"] == "tried_again"]
    assert 1 <= len(said) <= 6
    assert (said[0]["what"], said[0]["why"], said[0]["gives_up_after_s"]) == ("reading", "OSError", 60)


def test_long_retry_is_known_until_it_ends() -> None:
    clock, seen = Clock(), list[str]()
    retry = Retry(Backoff(attempts=99, base_s=8, cap_s=8), sleep=clock.sleep, clock=clock.time)

    def work() -> None:
        seen.append(runtime_retry.tried_now())
        if clock.now < 60:
            clock.now += 4
            raise OSError("secret")

    retry.call("reading", work, passing)
    assert set(seen) == {"", "reading is tried again and again (OSError)"}
    assert runtime_retry.tried_now() == ""


def test_at_the_limit_of_seconds() -> None:
    clock, work = Clock(), Failing(9999)
    retry = Retry(Backoff(attempts=9999, base_s=5, cap_s=5, limit_s=60), sleep=clock.sleep, clock=clock.time)
    with pytest.raises(StoppedError):
        retry.call("writing", work, passing)
    assert 60 <= clock.now < 66


def test_what_cannot_pass_comes_out_at_once() -> None:
    clock = Clock()

    def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        Retry(sleep=clock.sleep, clock=clock.time).call("writing", work, passing)
    assert clock.now == 0


def test_a_stop_ends_a_long_wait_at_its_next_nap() -> None:
    clock = Clock()
    retry = Retry(
        Backoff(base_s=1000, cap_s=1000), stop=lambda: clock.now >= 1, sleep=clock.sleep, clock=clock.time
    )
    with pytest.raises(Interrupted):
        retry.call("writing", Failing(9), passing)
    assert clock.now < 1.5


def test_pages_keep_to_the_rate_on_the_average() -> None:
    clock = Clock()
    pace = RateLimit(100, clock=clock.time, sleep=clock.sleep)
    for _ in range(10):
        pace.wait()
        pace.took(500)
    pace.wait()
    assert clock.now == pytest.approx(50)


def test_quiet_period_saves_no_more_than_one_seconds_rows() -> None:
    clock = Clock()
    pace = RateLimit(100, clock=clock.time, sleep=clock.sleep)
    clock.now += 3600
    pace.wait()
    pace.took(300)
    before = clock.now
    pace.wait()
    assert clock.now - before == pytest.approx(2)


def test_workers_share_one_bucket() -> None:
    clock = Clock()
    pace = RateLimit(10, clock=clock.time, sleep=clock.sleep)
    threads = [threading.Thread(target=pace.took, args=(5,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pace.wait()
    assert clock.now == pytest.approx(4)


def test_without_a_limit_no_reader_waits() -> None:
    clock = Clock()
    pace = RateLimit(None, clock=clock.time, sleep=clock.sleep)
    pace.took(10**9)
    pace.wait()
    assert clock.now == 0


def test_wait_ends_if_the_run_is_stopped() -> None:
    clock = Clock()
    pace = RateLimit(1, lambda: clock.now > 103, clock=clock.time, sleep=clock.sleep)
    pace.took(1000)
    with pytest.raises(Interrupted):
        pace.wait()
    assert clock.now < 104
