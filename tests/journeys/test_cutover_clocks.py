"""A service whose clock is ten minutes ahead, an operator whose clock is ten minutes behind, and the journal's own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from migrator.runtime.values import replace
from tests import pins
from tests.journeys.command import ROOT, Project
from tests.journeys.cutover import CUTOVER, PATTERN, cutover_shop, desk_of, filled

OFF_S = 600
READS = "reads: {phase_cache_s: 0.2, shadow: {per_s: 1000, at_once: 4, settle_s: 0.2}}\n"
CLOCK = """
import os, time
real, real_ns, off_s = time.time, time.time_ns, int(os.environ["CLOCK_OFF_S"])
time.time = lambda: real() + off_s
time.time_ns = lambda: real_ns() + off_s * 10**9
"""
SERVICE = """
import sys, time
from migrator.api import Migration
with Migration.load(sys.argv[1], service="shop-api") as migration:
    print(time.time(), flush=True)
    for number in range(100000):
        migration.read("customer_by_id", id=number % 30 + 1)
        time.sleep(0.01)
"""


def with_clock(shop: Project, off_s: int) -> Project:
    """The same project on a host of its own, whose clock is wrong."""
    folder = shop.folder / f"host{off_s}"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CLOCK)
    more = {"PYTHONPATH": f"{folder}:{ROOT}", "CLOCK_OFF_S": str(off_s)}
    return replace(shop, environment=shop.environment | more, own_process=True)


@contextmanager
def serving(host: Project) -> Iterator[None]:
    command = [sys.executable, "-c", SERVICE, str(host.job)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=host.environment, cwd=host.folder, stdout=pipe, text=True)
    try:
        assert process.stdout is not None
        assert float(process.stdout.readline()) - time.time() > OFF_S - 60
        yield
    finally:
        process.terminate()
        process.communicate(timeout=120)


def lines(operator: Project) -> dict[str, Any]:
    ended = operator.run("cutover", "advance", str(operator.job), PATTERN, "--dry-run", "--json")
    return {line["name"]: line for line in ended.data["evidence"]}


def test_phases_evidence_and_instances_go_by_the_journals_clock(tmp_path: Path, dynamodb_url: str) -> None:
    shop = filled(cutover_shop(tmp_path, dynamodb_url, CUTOVER + READS))
    operator, service = with_clock(shop, -OFF_S), with_clock(shop, OFF_S)
    with serving(service), desk_of(shop) as session:
        moved = operator.done("cutover", "advance", str(shop.job), PATTERN, "--wait")
        assert pins.said(moved.out)
        assert abs(session.phases.all()[PATTERN].since - session.evidence.now_s()) < 60
        ends_at = time.monotonic() + 120
        while (found := lines(operator))["comparisons"]["verdict"] != "ok":
            assert time.monotonic() < ends_at, found
        not_ok = {name for name, line in found.items() if line["verdict"] != "ok"}
        assert not_ok <= {"relay", "p99", "mismatches"}
        assert found["comparisons"]["age_s"] < 90
        assert found["verify"]["age_s"] < 90
        begun = [one.begun_at for one in session.evidence.windows(0, PATTERN)]
        assert max(abs(one - session.evidence.now_s()) for one in begun) < 120
        assert [one.service for one in session.service_registry().living] == ["shop-api"]
