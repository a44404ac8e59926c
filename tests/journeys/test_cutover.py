"""`migrator cutover` as operators use it: forward on evidence, back at any time, watched, and with bad input."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import update

from migrator.journal import schema
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import (
    MAPPING,
    PATTERN,
    compared,
    cutover_shop,
    dead,
    desk_of,
    filled,
    force,
    obey,
    phase,
    reader,
)
from tests.support_waiting import until


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return filled(cutover_shop(tmp_path, dynamodb_url))


@contextmanager
def relaying(shop: Project) -> Iterator[None]:
    """A relay at work."""
    with shop.beside("relay", str(shop.job)):
        until(
            lambda: "relay" in json.dumps(shop.run("status", str(shop.job), "--json").data["live"]["writers"])
        )
        yield


def evidence(shop: Project, *words: str) -> dict[str, str]:
    """Verdicts by name, of a move that is looked at and not made."""
    ended = shop.run("cutover", *words, "--dry-run", "--json")
    assert ended.code in (0, 1), ended.err
    return {line["name"]: line["verdict"] for line in ended.data["evidence"]}


def test_a_pattern_goes_forward_on_evidence_and_back_without(shop: Project) -> None:
    job = str(shop.job)
    assert "customer_by_id        off" in shop.done("cutover", "status", job).out
    moved = shop.done("cutover", "advance", job, PATTERN)
    assert "customer_by_id: off -> shadow (version 1)" in moved.out
    assert pins.said(moved.out)
    refused = shop.run("cutover", "advance", job, PATTERN)
    assert refused.code == 1
    assert "refused: customer_by_id stays in shadow; not proven: relay, comparisons" in refused.err
    with desk_of(shop) as session, relaying(shop):
        one = reader(session, shop)
        obey(session, one)
        compared(session, shop, PATTERN)
        for words in (["advance", job, PATTERN], ["ramp", job, PATTERN, "100"], ["advance", job, PATTERN]):
            session.instances.beat(one)
            waits = evidence(shop, *words)
            assert set(waits.values()) == {"ok"}, waits
            shop.done("cutover", *words, "--reason", "as planned")
            if phase(shop) != "live":
                late = evidence(shop, "advance", job, PATTERN)
                assert (late["confirmed"], late["comparisons"], late["kinds"]) == ("no", "no", "ok")
            obey(session, one)
            compared(session, shop, PATTERN)
    assert phase(shop) == "live"
    history = shop.done("cutover", "status", "--history", job, PATTERN)
    assert [line.split("  ")[2] for line in history.out.splitlines()] == [
        "off -> shadow",
        "shadow -> ramp 1 %",
        "ramp 1 % -> ramp 100 %",
        "ramp 100 % -> live",
    ]
    assert [line[line.index("(") :] for line in history.out.splitlines()] == [
        f"(evidence: {count} ok)" for count in (2, 13, 13, 14)
    ]
    lines = shop.done("cutover", "status", "--history", job, "--json").data
    assert {one["name"] for one in lines[-1]["evidence"]} >= {"verify", "lag", "p99", "confirmed"}
    assert lines[-1]["reason"] == "as planned"
    back = shop.done("cutover", "rollback", job, PATTERN, "--reason", "pager", "--who", "ada")
    assert "customer_by_id: live -> shadow (version 5)" in back.out
    assert "by ada: pager" in shop.done("cutover", "status", "--history", job).out


def test_an_override_is_on_record_and_wants_a_reason(shop: Project) -> None:
    job = str(shop.job)
    shop.done("cutover", "advance", job, PATTERN)
    empty = shop.run("cutover", "advance", job, PATTERN, "--override", " ")
    assert (empty.code, pins.said(empty.err)) == (2, True)
    force(shop, "advance", job, PATTERN)
    line = shop.done("cutover", "status", "--history", job, "--json").data[-1]
    assert (line["override"], line["reason"]) == (True, "a test's own way")
    verdicts = {one["name"]: one["verdict"] for one in line["evidence"]}
    assert (verdicts["comparisons"], verdicts["p99"], verdicts["verify"]) == ("no", "unknown", "ok")
    told = shop.done("cutover", "status", "--history", job, PATTERN).out
    assert "against the evidence: a test's own way (evidence: 6 ok; no: relay, comparisons, " in told


def test_one_of_two_simultaneous_operators_wins(shop: Project) -> None:
    words = [str(shop.job), PATTERN]
    pool = ThreadPoolExecutor(2)
    own = [shop.start("cutover", "advance", *words, "--who", who) for who in ("ada", "bob")]
    ended = list(pool.map(lambda one: (*one.communicate(timeout=120), one.returncode), own))
    codes = sorted(code for _, _, code in ended)
    told = " ".join(out + err for out, err, _ in ended)
    # The later one may also begin after the first one's end; then it asks for the next step, which is refused.
    assert codes == [0, 1], told
    assert "moved it from off at" in told or "not proven" in told
    assert len(shop.done("cutover", "status", "--history", *words, "--json").data) == 1


BAD = {
    "ramp 0": (
        ["ramp", PATTERN, "0"],
        "1 to 100 percent, not 0; SQL answers all after `migrator cutover rollback ",
    ),
    "ramp 101": (["ramp", PATTERN, "101"], "1 to 100 percent, not 101"),
    "ramp -5": (["ramp", PATTERN, "--", "-5"], "1 to 100 percent, not -5"),
    "ramp ten": (["ramp", PATTERN, "ten"], "not a valid integer"),
    "a ramp out of off": (["ramp", PATTERN, "10"], "from off it can move to shadow, not to ramp"),
    "an unknown pattern": (["advance", "customer_by_ib"], "did you mean 'customer_by_id'"),
    "an unknown pattern back": (["rollback", "customer_by_ib"], "did you mean 'customer_by_id'"),
    "a pattern like no other": (["advance", "PATTERN"], "has no access pattern 'PATTERN'"),
    "the status of none": (["status", "customers"], "the mapping has no access pattern 'customers'"),
    "the history of none": (
        ["status", "--history", "customers"],
        "the mapping has no access pattern 'customers'",
    ),
    "a reason too long": (["rollback", PATTERN, "--reason", "x" * 501], "at most 500 letters"),
    "back from off": (["rollback", PATTERN], "it is in off already"),
    "an unknown instance": (["advance", PATTERN, "--evict", "abc"], "instance not found"),
    "gone, and changed nothing": (["advance", PATTERN, "--evict", "abc", "--dry-run"], "give one of them"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_reported_and_changes_nothing(what: str, tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    words, said = BAD[what]
    ended = shop.run("cutover", words[0], str(shop.job), *words[1:])
    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert phase(shop) == "off"


def test_nothing_goes_to_shadow_without_table_or_marks(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    refused = shop.run("cutover", "advance", str(shop.job), PATTERN)
    assert refused.code == 1
    assert "not proven: table, capture" in refused.err
    assert pins.said(refused.out, "table")
    assert pins.said(refused.out, "install")


def test_dead_instance_counts_until_an_operator_evicts_it(bare: Project) -> None:
    job = str(bare.job)
    force(bare, "advance", job, PATTERN)
    gone = dead(bare)
    words = ["advance", job, PATTERN]
    assert evidence(bare, *words)["silent"] == "unknown"
    assert f"--evict {gone.id}" in bare.done("cutover", "status", job).out
    with desk_of(bare) as session:
        living = reader(session, bare)
        alive = bare.run("cutover", *words, "--evict", living.id)
        assert (alive.code, pins.said(alive.err, "heard")) == (2, True)
    bare.done("cutover", *words, "--evict", gone.id, "--override", "drill")
    line = bare.done("cutover", "status", "--history", job, "--json").data[-1]
    assert line["reason"] == pins.text("killed")
    assert "silent" not in bare.done("cutover", "status", job).out


def test_a_move_back_evicts_each_instance_that_is_named(bare: Project) -> None:
    job = str(bare.job)
    force(bare, "advance", job, PATTERN)
    force(bare, "ramp", job, PATTERN, "50")
    gone = [word for instance in (dead(bare), dead(bare)) for word in ("--evict", instance.id)]
    bare.done("cutover", "ramp", job, PATTERN, "5", *gone)
    line = bare.done("cutover", "status", "--history", job, "--json").data[-1]
    assert line["reason"].count("killed 1 on ") == 2
    with desk_of(bare) as session:
        assert session.instances.known() == []


def test_evidence_that_is_old_or_of_another_mapping_is_none(shop: Project) -> None:
    job = str(shop.job)
    shop.done("cutover", "advance", job, PATTERN)
    with desk_of(shop) as session:
        compared(session, shop, PATTERN)
    words = ["advance", job, PATTERN]
    assert evidence(shop, *words)["comparisons"] == "ok"
    shop.job.write_text(
        shop.job.read_text().replace("quiet:", "evidence_max_age: 1, verify_max_age: 1, quiet:")
    )
    shop.pass_time(2.1)
    old = evidence(shop, *words)
    assert (old["comparisons"], old["verify"]) == ("no", "no")
    shop.job.write_text(shop.job.read_text().replace("evidence_max_age: 1, verify_max_age: 1, ", ""))
    assert evidence(shop, *words)["verify"] == "ok"
    with desk_of(shop) as session, session.journal.database.begin() as connection:
        # As if it had been stopped, and had gone on and ended just now.
        verified = update(schema.run).where(schema.run.c.kind == "verify")
        connection.execute(verified.values(started_at="2020-01-01 00:00:00+00:00"))
    assert evidence(shop, *words)["verify"] == "no"
    (shop.folder / "mapping.yaml").write_text(MAPPING.replace("keep: [name]", "keep: all"))
    other = evidence(shop, *words)
    assert (other["comparisons"], other["verify"]) == ("no", "unknown")


def test_evidence_survives_unrelated_mapping_changes(shop: Project) -> None:
    job, words = str(shop.job), ["advance", str(shop.job), PATTERN]
    shop.done("cutover", *words)
    with desk_of(shop) as session:
        compared(session, shop, PATTERN)
    file = shop.folder / "mapping.yaml"
    file.write_text(MAPPING.replace("keep: [total]", "keep: [total, customer_id]"))
    shop.done("capture", "install", job)
    found = evidence(shop, *words)
    assert (found["comparisons"], found["verify"]) == ("ok", "unknown"), "the table is to be verified whole"
    shop.done("backfill", job)
    shop.done("verify", job)
    assert evidence(shop, *words)["verify"] == "ok"
    # The same items, so that no writer works by another revision; and the pattern asks another question.
    file.write_text(
        file.read_text().replace("FROM customer WHERE id = :id", "FROM customer c WHERE id = :id")
    )
    found = evidence(shop, *words)
    assert (found["comparisons"], found["verify"]) == ("no", "ok")


def test_relay_with_another_mapping_is_not_evidence(shop: Project) -> None:
    job = str(shop.job)
    shop.done("cutover", "advance", job, PATTERN)
    with relaying(shop):
        assert evidence(shop, "advance", job, PATTERN)["relay"] == "ok"
        (shop.folder / "mapping.yaml").write_text(MAPPING.replace("keep: [name]", "keep: all"))
        assert evidence(shop, "advance", job, PATTERN)["relay"] == "unknown"
        assert pins.said(shop.run("cutover", "advance", job, PATTERN).out.replace("\n", " "))


def test_a_table_that_differs_and_lag_stand_against_a_move(shop: Project) -> None:
    job = str(shop.job)
    shop.done("cutover", "advance", job, PATTERN)
    shop.store().delete([("C#1", "META")])
    assert shop.run("verify", job, "--settle", "0").code == 1
    with closing(sqlite3.connect(shop.folder / "shop.db")) as service:
        service.execute("UPDATE customer SET name = 'x' WHERE id = 2")
        service.execute("UPDATE migrator_mark SET changed_at = changed_at - 1")
        service.commit()
    shop.job.write_text(shop.job.read_text().replace("cutover: {", "cutover: {lag_max_s: 0.5, "))
    found = evidence(shop, "advance", job, PATTERN)
    assert (found["verify"], found["lag"], found["relay"]) == ("no", "no", "no")
