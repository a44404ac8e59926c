"""`migrator decommission`: what still depends on SQL is named, `complete` asks for the same, and strip is the last step."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

import pytest

from migrator.mapping.model.journal import RunIdentity, SegmentState
from migrator.runtime.values import replace
from migrator.stages.live.instances import this_process
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import (
    OTHER,
    PATTERN,
    change,
    compared,
    cutover_shop,
    desk_of,
    filled,
    force,
    live,
    obey,
    phase,
    reader,
    revision,
)
from tests.support_items import put_items

OWN = {"_src", "_tk", "_rev"}


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Every pattern is live."""
    return live(filled(cutover_shop(tmp_path, dynamodb_url)))


def lines(shop: Project) -> dict[str, tuple[str, str]]:
    """Verdict and what was found, by name."""
    ended = shop.run("decommission", "check", str(shop.job), "--json")
    assert ended.code in (0, 1), ended.err
    assert (ended.code == 0) == ended.data["ok"]
    return {line["name"]: (line["verdict"], line["found"]) for line in ended.data["lines"]}


def completed(shop: Project) -> None:
    with desk_of(shop) as session:
        one = reader(session, shop)
        for pattern in (PATTERN, OTHER):
            compared(session, shop, pattern)
            obey(session, one)
            shop.done("cutover", "advance", str(shop.job), pattern, "--yes", "--one-way")
        session.instances.leave(one)


def test_what_still_depends_on_sql_is_named(tmp_path: Path, dynamodb_url: str) -> None:
    shop = filled(cutover_shop(tmp_path, dynamodb_url))
    job = str(shop.job)
    change(shop, "CREATE TABLE audit_log (id INTEGER PRIMARY KEY)")
    change(shop, "CREATE VIEW names AS SELECT name FROM customer")
    change(shop, "UPDATE customer SET name = 'x' WHERE id = 2")
    force(shop, "advance", job, PATTERN)
    with desk_of(shop) as session:
        me = replace(this_process("shop-api", "1", revision=revision(shop)), role="dual_write", mode="outbox")
        session.instances.enter(me)
    found = lines(shop)
    assert {name for name, (verdict, _) in found.items() if verdict == "ok"} == {
        "confirmed",
        "silent",
        "changes",
        "transactions",
        "tombstones",
    }
    assert found["patterns"] == ("no", pins.text("shadow", pattern=PATTERN, other=OTHER))
    assert found["writers"][1].startswith("1: shop-api on ")
    assert found["marks"][1].startswith("1 wait (customer: 1)")
    assert found["unmigrated"] == ("no", "audit_log")
    shop.job.write_text(shop.job.read_text().replace("cutover: {", "cutover: {leave: [audit_*], "))
    assert lines(shop)["unmigrated"] == ("ok", pins.text("purpose"))


def test_the_verdict_ends_with_a_command_that_answers(tmp_path: Path, dynamodb_url: str) -> None:
    shop = filled(cutover_shop(tmp_path, dynamodb_url))
    last = shop.run("decommission", "check", str(shop.job)).out.splitlines()[-1]
    named = re.search(r"`migrator ([^`]+)`", last)
    assert named, last
    assert shop.run(*shlex.split(named[1])).code == 0


def test_the_steps_are_printed_in_order_and_none_is_run(shop: Project) -> None:
    before = shop.items()
    told = shop.run("decommission", "check", str(shop.job))
    assert (told.code, "DROP TABLE" in told.out) == (1, False)
    told = shop.run("decommission", "check", str(shop.job), "--explain")
    assert told.code == 1
    assert told.out.splitlines()[-1].startswith("not yet: `migrator cutover advance --dry-run ")
    steps = told.out[told.out.index("1. ") :]
    order = [
        "read-only",
        "relay",
        "verify",
        f"complete {PATTERN}",
        f"complete {OTHER}",
        "DROP TRIGGER",
        "--attributes",
    ]
    places = [steps.index(word) for word in [*order, "DROP TABLE customer;"]]
    assert places == sorted(places)
    assert "DROP TABLE migrator_mark" in steps.replace("IF EXISTS ", "")
    assert shop.items() == before
    shop.done("capture", "status", str(shop.job))


def test_complete_asks_for_the_same_and_wants_a_yes(shop: Project) -> None:
    job = str(shop.job)
    change(shop, "UPDATE customer SET name = 'x' WHERE id = 2")
    refused = shop.run("cutover", "advance", job, PATTERN, "--yes", "--one-way")
    assert refused.code == 1
    assert "not proven: comparisons, mismatches, errors, p99, instances, marks, verify" in refused.err
    shop.done("relay", job, "--once")
    assert lines(shop)["verify"][0] == "no"
    assert pins.said(lines(shop)["verify"][1], "began")
    shop.done("verify", job, "--settle", "0")
    with desk_of(shop) as session:
        compared(session, shop, PATTERN)
        obey(session, reader(session, shop))
    asked = shop.run("cutover", "advance", job, PATTERN, "--one-way")
    assert (asked.code, pins.said(asked.err, "terminal")) == (2, True)
    shop.done("cutover", "advance", job, PATTERN, "--yes", "--one-way")
    for words in (["advance", job, PATTERN], ["ramp", job, PATTERN, "5"]):
        ended = shop.run("cutover", *words)
        assert ended.code == 2, words
    assert phase(shop) == "complete"
    # Nothing is direct, and another pattern is not complete: rows were the truth all the while.
    shop.done("cutover", "rollback", job, PATTERN)
    assert phase(shop) == "shadow"


def test_a_source_that_changes_meanwhile_is_not_complete(shop: Project) -> None:
    shop.job.write_text(shop.job.read_text().replace("quiet: 0.5", "quiet: 4s"))
    process = shop.start("decommission", "check", str(shop.job), "--json")
    for number in range(400):
        if process.poll() is not None:
            break
        change(shop, f"UPDATE customer SET name = 'x{number}' WHERE id = 2")
        time.sleep(0.05)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    found = {line["name"]: line for line in json.loads(out)["lines"]}
    assert found["changes"]["verdict"] == "no"
    assert pins.said(found["changes"]["found"])


def test_reader_through_migrator_blocks_the_end_and_not_complete(shop: Project) -> None:
    completed(shop)
    found = lines(shop)
    assert {name for name, (verdict, _) in found.items() if verdict != "ok"} == set()
    with desk_of(shop) as session:
        one = reader(session, shop)
        late = lines(shop)
        assert (late["services"][0], late["confirmed"][0]) == ("no", "no")
        assert late["confirmed"][1].endswith(f"({PATTERN}, {OTHER})")
        obey(session, one)
        assert {name for name, (verdict, _) in lines(shop).items() if verdict != "ok"} == {"services"}
    told = shop.run("decommission", "check", str(shop.job), "--explain").out
    assert "without `Migration`, which needs the source" in told
    assert "relay" not in told[told.index("1. ") :]


def test_strip_comes_last(shop: Project) -> None:
    job = str(shop.job)
    asked = shop.run("clean", "--attributes", job)
    assert (asked.code, pins.said(asked.err, "terminal")) == (2, True)
    early = shop.run("clean", "--attributes", job, "--yes")
    assert (early.code, pins.said(early.err, "complete", pattern=PATTERN, other=OTHER)) == (2, True)
    completed(shop)
    with desk_of(shop) as session:
        me = replace(this_process("shop-api", "1", revision=revision(shop)), role="dual_write", mode="outbox")
        one = session.instances.enter(me)
        late = shop.run("clean", "--attributes", job, "--yes")
        assert (late.code, pins.said(late.err, "still")) == (2, True)
        session.instances.leave(one)
    assert all(OWN & set(item) for item in shop.items())


def test_strip_leaves_the_items_and_nothing_of_ours(shop: Project) -> None:
    job = str(shop.job)
    change(shop, "DELETE FROM invoice WHERE id = 7")
    shop.done("relay", job, "--once")
    shop.done("verify", job, "--settle", "0")
    put_items(shop.store(), [{"PK": "theirs", "SK": "1", "_src": 7}])
    # Theirs is no finding that stands against the end of this migration; an operator says so.
    with desk_of(shop) as session:
        one = reader(session, shop)
        for pattern in (PATTERN, OTHER):
            compared(session, shop, pattern)
            obey(session, one)
            shop.done("cutover", "advance", job, pattern, "--yes", "--one-way")
        session.instances.leave(one)
    before = {(item["PK"], item["SK"]): item for item in shop.items()}
    shown = shop.done("clean", "--attributes", job, "--dry-run")
    assert pins.said(shown.out)
    assert {(item["PK"], item["SK"]): item for item in shop.items()} == before
    done = shop.done("clean", "--attributes", job, "--yes", "--json").data
    assert done == {"items": 89, "stripped": 89, "own": 2, "removed": 2, "others": 1}
    after = {(item["PK"], item["SK"]): item for item in shop.items()}
    kept = {key: item for key, item in before.items() if item.get("type") not in ("_tombstone", "_control")}
    theirs = ("theirs", "1")
    assert after.pop(theirs) == kept.pop(theirs)
    assert after == {key: {k: v for k, v in item.items() if k not in OWN} for key, item in kept.items()}
    assert shop.done("clean", "--attributes", job, "--yes", "--json").data["stripped"] == 0


def test_strip_resumes_where_it_was_stopped(shop: Project) -> None:
    completed(shop)
    job = str(shop.job)
    shop.job.write_text(shop.job.read_text().replace("tuning: {", "tuning: {scan_segments: 3, "))
    with desk_of(shop) as session:
        table_id = next(iter(session.journal.written_tables(session.job.name)))
        identity = RunIdentity("strip", session.job.name, table_id, revision(shop), "segments=3")
        run = session.journal.start_run(identity)
        tally = {"items": 5, "stripped": 5, "own": 0, "removed": 0, "others": 0}
        session.journal.save_segment(run, 1, SegmentState(None, True, tally), [])
        session.journal.end_run(run, "interrupted")
    done = shop.done("clean", "--attributes", job, "--yes", "--json").data
    left = [item for item in shop.items() if OWN & set(item)]
    assert done["items"] == 5 + 90 - len(left)
    assert 0 < len(left) < 90
