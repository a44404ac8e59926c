from __future__ import annotations

import io
import signal
import sys

import pytest

from migrator.cli.options import stop_on_signals
from tests import pins


class Interrupted(io.RawIOBase):
    """Ctrl-C comes while a line is written."""

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        signal.raise_signal(signal.SIGINT)
        return len(data)  # type: ignore[arg-type]


def test_ctrl_c_in_the_middle_of_a_line_asks_to_stop(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with stop_on_signals() as stop, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Interrupted())))
        sys.stderr.write("a line of a log\n")
        sys.stderr.flush()
    assert stop.is_set()
    assert pins.said(capfd.readouterr().err)
