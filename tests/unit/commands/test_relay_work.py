"""A relay that seems well because nothing leaves marks any more says so."""

from __future__ import annotations

from typing import cast

from structlog.testing import capture_logs

from migrator.commands.capture_work import LOOK_S, CaptureCheck
from migrator.mapping.model.live import CaptureState, Installation, TableCapture
from migrator.runtime.errors import SettingsError
from migrator.stages.live.capture import CaptureStatus
from tests import pins

INSTALLED = Installation("abc", "shop", 1, 1, 0, "triggers")


class Source:
    """Says how its one table is captured; it answers in no time, or in `took_s`."""

    def __init__(self, took_s: float = 0.0) -> None:
        self.now, self.took_s = 0.0, took_s
        self.state: CaptureState = "captured"
        self.asked: list[float] = []
        self.check = CaptureCheck(self.status, lambda: self.now)

    def status(self) -> CaptureStatus:
        self.asked.append(self.now)
        self.now += self.took_s
        return CaptureStatus(INSTALLED, (TableCapture("customer", self.state),), "triggers")

    def looks_at(self, *moments: float) -> None:
        for self.now in moments:
            self.check()


def test_relay_stops_after_two_looks_at_a_table_without_triggers() -> None:
    source = Source()
    with capture_logs() as logs:
        source.looks_at(0.0, LOOK_S / 2, LOOK_S, LOOK_S * 1.5)
        assert (source.asked, logs) == ([LOOK_S], [])
        source.state = "missing"
        source.looks_at(2 * LOOK_S)
        with pins.refused(SettingsError):
            source.looks_at(3 * LOOK_S)
    assert [(one["event"], one["tables"]) for one in logs] == [
        ("changes_leave_no_mark", {"customer": "missing"})
    ] * 2


def test_one_look_may_have_met_an_install_under_way() -> None:
    source = Source()
    source.looks_at(0.0)
    for moment, state in enumerate(("missing", "captured", "missing", "stale", "stale"), 1):
        source.state = cast("CaptureState", state)
        source.looks_at(moment * LOOK_S)
    assert len(source.asked) == 5


def test_source_that_responds_slowly_is_queried_less_often() -> None:
    source = Source(took_s=2.0)
    source.looks_at(0.0, LOOK_S, *(2.0 * LOOK_S + second for second in range(90)), LOOK_S + 102.0)
    assert source.asked == [LOOK_S, LOOK_S + 102.0]
