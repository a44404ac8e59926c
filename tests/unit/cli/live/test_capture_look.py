"""A relay that seems well because nothing leaves marks any more says so."""

from __future__ import annotations

from structlog.testing import capture_logs

from migrator.cli.live.relay import LOOK_S, CaptureCheck
from migrator.model.capture import Installation, TableCapture
from migrator.stages.live.capture import CaptureStatus

INSTALLED = Installation("abc", "shop", 1, 1, 0, "triggers")


def test_it_looks_once_a_minute_and_tells_as_long_as_it_lasts() -> None:
    now, asked = [0.0], list[float]()
    states = [TableCapture("customer", "captured")]

    def status() -> CaptureStatus:
        asked.append(now[0])
        return CaptureStatus(INSTALLED, tuple(states))

    look = CaptureCheck(status, lambda: now[0])
    with capture_logs() as logs:
        for now[0] in (0.0, 10.0, LOOK_S, LOOK_S + 10):
            look()
        assert (asked, logs) == ([LOOK_S], [])
        states[:] = [TableCapture("customer", "missing")]
        for now[0] in (2 * LOOK_S, 3 * LOOK_S):
            look()
    assert [(one["event"], one["tables"]) for one in logs] == [
        ("changes_leave_no_mark", {"customer": "missing"})
    ] * 2
