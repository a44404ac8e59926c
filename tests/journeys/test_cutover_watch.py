"""`migrator cutover watch`: a pattern that fails goes back by itself, and the hooks hear of it."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests import pins
from tests.journeys.cutover import OTHER, PATTERN, compared, cutover_shop, desk_of, filled, force, phase
from tests.support_waiting import until


def test_watch_rolls_back_a_failing_pattern_and_calls_the_hook(tmp_path: Path, dynamodb_url: str) -> None:
    bare = cutover_shop(tmp_path, dynamodb_url)
    job, out = str(bare.job), bare.folder / "event.json"
    bare.job.write_text(f"{bare.job.read_text()}hooks: [{{on: [rolled_back], command: 'cat > {out}'}}]\n")
    force(bare, "advance", job, PATTERN)
    force(bare, "advance", job, PATTERN)
    assert bare.done("cutover", "watch", job, "--once").out == ""
    with desk_of(bare) as session:
        compared(session, bare, PATTERN, different=80)
    ended = bare.run("cutover", "watch", job, "--once")
    assert ended.code == 1
    assert "customer_by_id: ramp 1 % -> shadow: mismatches: 80 of 400 answers differ" in ended.out
    assert phase(bare) == "shadow"
    event = json.loads(out.read_text())
    assert (event["event"], event["pattern"], event["from"], event["to"]) == (
        "rolled_back",
        PATTERN,
        "ramp 1 %",
        "shadow",
    )
    assert pins.said(bare.done("cutover", "status", "--history", job).out)


def test_slow_hook_and_unreachable_source_do_not_delay_the_watch(tmp_path: Path, dynamodb_url: str) -> None:
    bare = cutover_shop(tmp_path, dynamodb_url)
    job = str(bare.job)
    text = bare.job.read_text().replace("cutover: {", "cutover: {watch: {every_s: 0.2}, ")
    goes_on = tmp_path / "the hook goes on"
    waits = f'grep -q customer_by_id && until [ -e "{goes_on}" ]; do sleep 0.1; done'
    bare.job.write_text(f"{text}hooks: [{{on: [rolled_back], command: '{waits}', wait: 5m}}]\n")
    for pattern in (PATTERN, OTHER):
        force(bare, "advance", job, pattern)
        force(bare, "advance", job, pattern)
    (bare.folder / "shop.db").rename(bare.folder / "away.db")
    log = tmp_path / "watch.log"
    process = bare.start("cutover", "watch", job, "--log-file", str(log))
    with desk_of(bare) as session:
        begun = time.monotonic()
        for pattern in (PATTERN, OTHER):
            compared(session, bare, pattern, different=80)
            until(lambda: phase(bare, pattern) == "shadow")  # noqa: B023
            if pattern == PATTERN:
                begun = time.monotonic()
        assert time.monotonic() - begun < 120
    until(lambda: "watch_failed" in log.read_text(), "the watch has met the source that is away")
    goes_on.touch()
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in err + log.read_text()) == (0, False)


def test_watch_runs_until_it_is_stopped(tmp_path: Path, dynamodb_url: str) -> None:
    shop = filled(cutover_shop(tmp_path, dynamodb_url))
    job, out = str(shop.job), shop.folder / "events"
    text = shop.job.read_text().replace("cutover: {", "cutover: {lag_max_s: 0.2, watch: {every_s: 0.2}, ")
    shop.job.write_text(f"{text}hooks: [{{on: [lag_high], command: 'cat >> {out}; echo >> {out}'}}]\n")
    shop.done("cutover", "advance", job, PATTERN)
    force(shop, "advance", job, PATTERN)
    process = shop.start("cutover", "watch", job)
    with desk_of(shop) as session, closing(sqlite3.connect(shop.folder / "shop.db")) as service:
        service.execute("UPDATE customer SET name = 'x' WHERE id = 2")
        service.commit()
        compared(session, shop, PATTERN, errors={"table": 90})
        until(lambda: not (phase(shop) != "shadow" or not out.exists()))
    process.terminate()
    said, err = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in err) == (0, False)
    assert pins.said(said)
    assert json.loads(out.read_text().splitlines()[0])["event"] == "lag_high"
