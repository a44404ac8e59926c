"""A plugin of pytest's: what each test took, by the clock and of the processor, as one JSON file.

`--durations-json FILE` names the file. Seconds of the processor are those of the test's process and of the processes that
it has waited for. Shape: {"tests": {nodeid: {"wall_s": …, "cpu_s": …}}}, the dearest first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from time import monotonic

import pytest

_OPTION = "--durations-json"
_STARTED = pytest.StashKey[tuple[float, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, metavar="FILE", help="write the seconds of each test to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption(_OPTION)
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Durations(Path(file)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_STARTED] = (monotonic(), _cpu_s())
    return (yield)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Before the fixtures end: what they share with later tests is not this test's."""
    wall, cpu = item.stash[_STARTED]
    item.user_properties.append(
        ("seconds", {"wall_s": round(monotonic() - wall, 3), "cpu_s": round(_cpu_s() - cpu, 3)})
    )


class _Durations:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests: dict[str, object] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._tests[report.nodeid] = dict(report.user_properties).get("seconds", {})

    def pytest_sessionfinish(self) -> None:
        dearest = sorted(self._tests.items(), key=lambda test: -dict(test[1] or {}).get("cpu_s", 0.0))  # type: ignore[call-overload]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"tests": dict(dearest)}, indent=1), encoding="utf-8")


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
