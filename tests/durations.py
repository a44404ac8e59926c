"""A plugin of pytest's: what each test took, by the clock and of the processor, as one JSON file.

`--durations-json FILE` names the file. Seconds of the processor are those of the test's process and of the processes that
it has waited for. Shape: {"tests": {nodeid: {"wall_s": …, "cpu_s": …}}}, the dearest first.

If $MIGRATOR_TEST_TABLE names a page (docs/tested.md), the run replaces its own row there: date, versions of the servers that
its tests used, numbers of tests by outcome. The row has the name of FILE, without "durations-".
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime
from importlib.metadata import version
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
        self._outcomes: Counter[str] = Counter()
        self._markers: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._outcomes[report.outcome] += 1
            self._markers.update(report.keywords)
        if report.when == "teardown":
            self._tests[report.nodeid] = dict(report.user_properties).get("seconds", {})

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        dearest = sorted(self._tests.items(), key=lambda test: -dict(test[1] or {}).get("cpu_s", 0.0))  # type: ignore[call-overload]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"tests": dict(dearest)}, indent=1), encoding="utf-8")
        # One that was interrupted, or ran nothing, says nothing of a version.
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and (
            page := os.environ.get("MIGRATOR_TEST_TABLE")
        ):
            self._write_row(Path(page))

    def _write_row(self, page: Path) -> None:
        counts = [f"{self._outcomes[outcome]:,}" for outcome in ("passed", "failed", "skipped")]
        name = self._file.stem.removeprefix("durations-")
        words = [name, f"{datetime.now(UTC):%Y-%m-%d}", *_versions(self._markers), *counts]
        before, head, rows = page.read_text(encoding="utf-8").partition(
            "|---|---|---|---|---|---|---|---|---|\n"
        )
        kept = [row for row in rows.splitlines() if not row.startswith(f"| {name} |")]
        text = "\n".join(sorted([*kept, f"| {' | '.join(words)} |"]))
        page.write_text(f"{before}{head}{text}\n", encoding="utf-8")


def _versions(markers: set[str]) -> list[str]:
    """Of Python and of each server that the tests used; "–" for one that they did not use."""
    from tests import support_mysql, support_services

    logical = os.environ.get(support_services.LOGICAL_VARIABLE)
    postgres, mysql = logical or support_services.answering_postgres(), support_mysql.answering_mysql()
    dynamodb = os.environ.get("MIGRATOR_TEST_DYNAMODB_NAME") or f"MiniStack {version('ministack')}"
    found = {
        "postgres": postgres and (support_services.postgres_version(postgres) or "").split(" ")[0],
        "mysql": mysql and _mysql_name(support_mysql.mysql_version(mysql) or ""),
        "dynamodb": dynamodb,
    }
    return [platform.python_version(), *((marker in markers and one) or "–" for marker, one in found.items())]


def _mysql_name(answered: str) -> str:
    number, _, kind = answered.partition("-")
    return f"{'MariaDB' if kind.startswith('MariaDB') else 'MySQL'} {number}"


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
