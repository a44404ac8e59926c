"""Cost of capture for a service: the time of a pgbench transaction with triggers, with the log, and with neither."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest

from bench.measure import Tables
from bench.shapes import fill_users
from bench.test_relay import USERS, filled, sink_before
from migrator.mapping.model.live import MarkedBy
from tests.support_services import own_postgres, postgres_binaries

# Else the fixture of a server refuses a test that is collected outside of tests/.
pytestmark = pytest.mark.postgres

ROWS = 20_000
CAPTURES: tuple[MarkedBy, ...] = ("triggers", "log")
FOR_S = int(os.environ.get("MIGRATOR_TEST_CAPTURE_S", "10"))
UPDATE = f"\\set id random(1, {ROWS})\nUPDATE users SET visits = visits + 1 WHERE id = :id;\n"


def times_ms(url: str, connections: int, folder: Path) -> list[float]:
    (folder / "update.sql").write_text(UPDATE)
    pgbench = shutil.which("pgbench") or str(postgres_binaries()[-1] / "pgbench")
    words = ["-n", "-f", "update.sql", "-l", "-c", str(connections), "-T", str(FOR_S)]
    subprocess.run([pgbench, *words, url], cwd=folder, check=True, capture_output=True)
    # The third word of a line is the time in microseconds. Source: PostgreSQL's documentation, pgbench, per-transaction logging.
    logs = list(folder.glob("pgbench_log.*"))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    for log in logs:
        log.unlink()
    return [int(line.split()[2]) / 1000 for line in lines]


def test_a_transaction_of_a_service(tmp_path: Path, dynamodb_url: str, tables: Tables) -> None:
    """With an active relay, which shares the cores."""
    rates: dict[int, float] = {}

    def measured(capture: str, relay: str, folder: Path, url: str) -> None:
        for connections in (1, 4, 16):
            found = times_ms(url, connections, folder)
            rate, cut = len(found) / FOR_S, statistics.quantiles(found, n=100)
            tables.add(
                f"An UPDATE by key in its own transaction, PostgreSQL, pgbench, {FOR_S} s each",
                connections=str(connections),
                capture=capture,
                relay=relay,
                p50=f"{cut[49]:.2f} ms",
                p99=f"{cut[98]:.2f} ms",
                a_second=f"{rate:,.0f} ({rate / rates.setdefault(connections, rate):.2f})",
            )

    with own_postgres("wal_level=logical", "fsync=on", "max_connections=60") as server:
        fill_users(server.url, ROWS)
        measured("none", "none", tmp_path, server.url)
        for capture in CAPTURES:
            folder = tmp_path / capture
            folder.mkdir()
            with sink_before(dynamodb_url) as sink:
                made = filled(folder, USERS, server.url, sink, capture)
                measured(capture, "stopped", folder, server.url)
                with made.beside("relay", str(made.job)):
                    measured(capture, "running", folder, server.url)
                made.done("relay", str(made.job), "--once")
                made.done("capture", "uninstall", str(made.job))
