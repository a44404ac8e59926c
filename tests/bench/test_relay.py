"""How many marks, and items, a relay works in a second, while nothing goes wrong and nobody else writes."""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path

import pytest

from tests.journey.command import project
from tests.storm.shop import MAPPING, marks_left, open_shop, service

pytestmark = pytest.mark.bench

MARKS = int(os.environ.get("MIGRATOR_TEST_MARKS", 4000))
CHANGES = {
    "status of orders": "UPDATE orders SET status = 'paid', total = total + 1 WHERE id <= %s",
    "names of products": "UPDATE product SET name = 'other' WHERE id <= %s / 100",
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_marks_a_second(change: str, tmp_path: Path, postgres_database: str, dynamodb_url: str) -> None:
    (tmp_path / "storm.yaml").write_text(MAPPING)
    made = project(tmp_path, postgres_database, dynamodb_url, f"B{secrets.token_hex(4)}", own_process=True)
    lines = made.job.read_text().splitlines()
    made.job.write_text("\n".join("mapping: storm.yaml" if "mapping:" in one else one for one in lines))
    job = str(made.job)
    open_shop(postgres_database, MARKS // 2)
    made.done("table", "create", job)
    made.done("capture", "install", job)
    made.done("backfill", job)
    with service(postgres_database) as shop:
        shop.run(CHANGES[change], MARKS)
        shop.connection.commit()
    marks, started = marks_left(postgres_database), time.monotonic()
    ended = made.done("--verbose", "relay", job, "--once", "--workers", "2")
    worked = [json.loads(line) for line in ended.err.splitlines() if '"marks_worked"' in line]
    took_s = sum(one["took_ms"] for one in worked) / 1000 / 2
    items = sum(one["stored"] + one["buried"] for one in worked)
    print(
        f"\n{change}: {marks:,} marks, {items:,} items: {marks / took_s:,.0f} marks/s and {items / took_s:,.0f} items/s"
        f" with 2 workers; {time.monotonic() - started:.1f} s with the start of the process"
    )
    assert marks_left(postgres_database) == 0
