"""The journal's time on a host whose own clock is wrong."""

from __future__ import annotations

import time

import pytest

from migrator.runtime.retry import clock_of


def test_host_with_clock_ten_minutes_off_uses_the_journals_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal_s = 1_800_000_000.0
    monkeypatch.setattr(time, "time", lambda: journal_s + 600)
    clock = clock_of(lambda: journal_s)
    first = clock()
    assert first == pytest.approx(journal_s, abs=1)
    monkeypatch.setattr(time, "time", lambda: journal_s - 600)
    time.sleep(0.05)
    assert 0.04 < clock() - first < 300
