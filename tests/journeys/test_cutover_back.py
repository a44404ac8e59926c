"""The way back by `migrator cutover`: at any time, by the journal alone, past what was edited by hand."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, update

from migrator.api import Migration
from migrator.journal import schema
from migrator.runtime.errors import MissingNameError
from migrator.runtime.values import replace
from migrator.stages.core.ownership import OlderError
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import (
    MAPPING,
    OTHER,
    PATTERN,
    cutover_shop,
    desk_of,
    filled,
    force,
    live,
    obey,
    phase,
    reader,
)
from tests.support_waiting import until


def test_rollback_works_from_every_phase_without_table_or_source(bare: Project) -> None:
    job, mapping = str(bare.job), bare.folder / "mapping.yaml"
    for steps, to, after in (
        (["advance"], "", "off"),
        (["advance", "ramp 1"], "", "shadow"),
        (["ramp 50"], "off", "off"),
        (["advance", "ramp 100", "advance"], "shadow", "shadow"),
        (["ramp 100", "advance"], "off", "off"),
    ):
        for step in steps:
            word, *percent = step.split()
            force(bare, word, job, PATTERN, *percent)
        mapping.write_text("mapping: 7\n")
        (bare.folder / "shop.db").rename(bare.folder / "away.db")
        bare.done("cutover", "rollback", job, PATTERN, *(["--to", to] if to else []))
        assert phase(bare) == after
        (bare.folder / "away.db").rename(bare.folder / "shop.db")
        mapping.write_text(MAPPING)


def test_all_patterns_go_back_at_once(bare: Project) -> None:
    job, other = str(bare.job), OTHER
    assert pins.said(bare.done("cutover", "rollback", job, "--all").out, "roll")
    assert bare.done("cutover", "rollback", job, "--all", "--json").data == []
    for pattern in (PATTERN, other):
        force(bare, "advance", job, pattern)
    force(bare, "ramp", job, PATTERN, "30")
    assert "nothing" not in bare.done("cutover", "rollback", job, "--all", "--reason", "storm").out
    assert (phase(bare), phase(bare, other)) == ("shadow", "shadow")
    off = bare.done("cutover", "rollback", job, "--all", "--to", "off", "--json").data
    assert [(one["pattern"], one["from"], one["to"]) for one in off] == [
        (PATTERN, "shadow", "off"),
        (OTHER, "shadow", "off"),
    ]
    assert (phase(bare), phase(bare, other)) == ("off", "off")
    for words in ([], [PATTERN, "--all"]):
        assert pins.said(bare.run("cutover", "rollback", job, *words).err, "say")


def test_phase_edited_by_hand_is_refused_with_the_fix(bare: Project) -> None:
    job = str(bare.job)
    force(bare, "advance", job, PATTERN)
    with desk_of(bare) as session, session.journal.database.begin() as connection:
        connection.execute(update(schema.phase).values(phase="live"))
    for words in (
        ["status", job],
        ["advance", job, PATTERN],
        ["watch", job, "--once"],
    ):
        ended = bare.run("cutover", *words)
        assert ended.code == 2, words
        assert pins.said(ended.err, "customer")
        assert "phase 'shadow', percent 0, version 1" in ended.err
    assert "off -> shadow" in bare.done("cutover", "status", "--history", job).out
    # It does not hold up other patterns: they move, and go back.
    force(bare, "advance", job, OTHER)
    force(bare, "advance", job, OTHER)
    assert f"{OTHER}  ramp 1 %" in bare.run("cutover", "status", job).out
    back = bare.run("cutover", "rollback", job, "--all", "--json")
    assert [(one["pattern"], one["to"], one["moved"]) for one in back.data] == [
        (PATTERN, "shadow", False),
        (OTHER, "shadow", True),
    ]
    assert pins.said(back.err, "edited")
    assert pins.said(bare.done("cutover", "rollback", job, PATTERN).out, "shadow")


def test_edited_phase_goes_back_from_its_last_audit_line(bare: Project) -> None:
    job = str(bare.job)
    for words in (["advance"], ["ramp", "40"]):
        force(bare, words[0], job, PATTERN, *words[1:])
    with desk_of(bare) as session, session.journal.database.begin() as connection:
        connection.execute(delete(schema.phase))
    back = bare.done("cutover", "rollback", job, PATTERN)
    assert "customer_by_id: ramp 40 % -> shadow (version 3)" in back.out
    with desk_of(bare) as session, session.journal.database.begin() as connection:
        connection.execute(update(schema.phase).values(phase="off"))
        row = {
            "job": session.job.name,
            "pattern": OTHER,
            "phase": "live",
            "percent": 0,
            "version": 1,
            "since": 0.0,
        }
        connection.execute(insert(schema.phase).values(**row))
    assert bare.done("cutover", "rollback", job, OTHER, "--json").data["moved"] is False
    assert "no line in the audit" not in bare.run("cutover", "status", job).err


def test_all_are_moved_back_before_any_reader_is_waited_for(bare: Project) -> None:
    job = str(bare.job)
    for pattern in (PATTERN, OTHER):
        for words in (["advance"], ["ramp", "40"]):
            force(bare, words[0], job, pattern, *words[1:])
    with desk_of(bare) as session:
        stalled = reader(session, bare)
        process = bare.start("cutover", "rollback", job, "--all", "--wait")
        ends_at = time.monotonic() + 120
        while {phase(bare, PATTERN), phase(bare, OTHER)} != {"shadow"}:
            assert time.monotonic() < ends_at
            session.instances.beat(stalled)
            time.sleep(0.1)
        assert process.poll() is None
        obey(session, stalled)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out == pins.text()


def test_the_way_down_asks_neither_table_nor_source_nor_mapping(bare: Project) -> None:
    job = str(bare.job)
    for words in (["advance"], ["ramp", "100"], ["advance"]):
        force(bare, words[0], job, PATTERN, *words[1:])
    (bare.folder / "mapping.yaml").write_text("mapping: 7\n")
    (bare.folder / "shop.db").rename(bare.folder / "away.db")
    assert (
        "could go from live to ramp 60 %" in bare.done("cutover", "ramp", job, PATTERN, "60", "--dry-run").out
    )
    for percent in ("60", "5"):
        bare.done("cutover", "ramp", job, PATTERN, percent, "--reason", "slowly")
        assert phase(bare) == f"ramp {percent} %"
    last = bare.done("cutover", "status", "--history", job, "--json").data[-1]
    assert (last["reason"], last["override"], last["evidence"]) == ("slowly", False, [])


def is_refused(migration: Migration) -> bool:
    try:
        migration.read(OTHER, customer_id=1)
    except MissingNameError:
        return False
    except OlderError:
        return True
    return False


def test_recreated_table_that_answers_is_not_an_all_clear(
    tmp_path: Path, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = live(filled(cutover_shop(tmp_path, dynamodb_url)))
    job = str(shop.job)
    # The relay's writers record which table is the job's.
    shop.done("relay", job, "--once")
    for name in ("MIGRATOR_HOME", "MIGRATOR_SOURCE_URL"):
        monkeypatch.setenv(name, shop.environment[name])
    with Migration.load(shop.job) as migration:
        assert migration.read(OTHER, customer_id=1)
        shop.store().client.delete_table(TableName=shop.table)
        assert shop.run("table", "create", job).code == 2
        # As Terraform does, which does not know the journal.
        elsewhere = shop.environment | {"MIGRATOR_HOME": str(tmp_path / "elsewhere")}
        replace(shop, environment=elsewhere).done("table", "create", job)
        until(lambda: is_refused(migration))
    with Migration.load(shop.job) as migration:
        assert is_refused(migration)
    relay = shop.run("relay", job, "--once")
    assert (relay.code, "in an older state" in relay.err) == (2, True)
    assert "in an older state" in shop.run("status", job).out
    repaired = shop.run("verify", job, "--settle", "0", "--repair")
    assert repaired.code == 1
    shop.done("relay", job, "--once")
    assert "clean" in shop.done("verify", job, "--settle", "0").out


def test_missing_table_is_created_once_its_patterns_are_off(tmp_path: Path, dynamodb_url: str) -> None:
    shop = live(filled(cutover_shop(tmp_path, dynamodb_url)))
    job = str(shop.job)
    shop.store().client.delete_table(TableName=shop.table)
    assert shop.run("table", "create", job).code == 2
    shop.done("cutover", "rollback", job, "--all", "--to", "off")
    shop.done("table", "create", job)
    shop.done("backfill", job)
    assert "clean" in shop.done("verify", job, "--settle", "0").out
