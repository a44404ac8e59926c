"""Entities that the service writes to the table itself: migrator no longer writes, compares or captures them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from migrator.api import Migration
from migrator.mapping.model.table import Item
from migrator.runtime.errors import SettingsError
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
    live,
    obey,
    reader,
)
from tests.support_items import put_items

WRITES = "writes: {direct: [invoice]}\n"
KEY = {"PK": "C#2", "SK": "I#000001"}


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Every pattern is live."""
    return live(filled(cutover_shop(tmp_path, dynamodb_url)))


@pytest.fixture
def direct(shop: Project) -> Project:
    """The pattern that reads invoices is complete, and the service writes them from now on."""
    with desk_of(shop) as session:
        compared(session, shop, OTHER)
        obey(session, one := reader(session, shop))
        compared(session, shop, OTHER)
        shop.done("cutover", "advance", str(shop.job), OTHER, "--yes", "--one-way")
        session.instances.leave(one)
    say(shop)
    shop.done("capture", "install", str(shop.job))
    return shop


def say(shop: Project, writes: str = WRITES) -> None:
    shop.job.write_text(shop.job.read_text() + writes)


def put(shop: Project, item: Item) -> None:
    put_items(shop.store(), [item])


def invoice(shop: Project) -> Item:
    return shop.store().get([("C#2", "I#000001")])[("C#2", "I#000001")]


def test_an_entity_is_direct_only_on_evidence(shop: Project) -> None:
    say(shop)
    refused = shop.run("capture", "install", str(shop.job))
    assert refused.code == 1
    assert pins.said(refused.err, "proven")
    assert OTHER in refused.out
    assert PATTERN not in refused.out
    assert "invoice: captured" in shop.run("capture", "status", str(shop.job)).out.replace(
        "extra", "captured"
    )
    for words in (["backfill"], ["relay", "--once"]):
        early = shop.run(words[0], str(shop.job), *words[1:])
        assert early.code == 2
        assert pins.said(early.err, "complete", other=OTHER)


def test_writers_to_sql_and_marks_that_wait_stand_in_the_way(shop: Project) -> None:
    with desk_of(shop) as session:
        compared(session, shop, OTHER)
        obey(session, one := reader(session, shop))
        compared(session, shop, OTHER)
        shop.done("cutover", "advance", str(shop.job), OTHER, "--yes", "--one-way")
        session.instances.leave(one)
        me = replace(this_process("shop-api", "1", revision="other"), role="dual_write", mode="outbox")
        session.instances.enter(me)
    change(shop, "UPDATE invoice SET total = 6 WHERE id = 1")
    say(shop)
    before = invoice(shop)
    refused = shop.run("capture", "install", str(shop.job))
    assert refused.code == 1
    assert "not proven: marks, writers, instances" in refused.err
    # The mark is of a root that the service may have written since: it is told, and nothing is written by it.
    worked = shop.run("relay", str(shop.job), "--once")
    assert worked.code == 1
    assert pins.said(shop.run("status", "--findings", str(shop.job)).out)
    assert invoice(shop) == before


def test_what_the_service_wrote_is_never_touched(direct: Project) -> None:
    shop, job = direct, str(direct.job)
    status = shop.done("capture", "status", job).out
    assert "customer: captured" in status
    assert "invoice" not in status
    put(shop, {**invoice(shop), "total": 77})  # as UpdateItem leaves it: _src is still there
    own: Item = {"PK": "C#3", "SK": "I#000099", "type": "Invoice", "id": 99, "total": 1}
    put(shop, own)
    change(shop, "UPDATE invoice SET total = 6 WHERE id = 1")
    change(shop, "DELETE FROM invoice WHERE id = 2")
    change(shop, "UPDATE customer SET name = 'Grace' WHERE id = 2")
    shop.done("relay", job, "--once")
    shop.done("backfill", job)
    assert "clean" in shop.done("verify", job, "--repair", "--settle", "0").out
    assert invoice(shop)["total"] == 77
    assert own in shop.items()
    assert {"PK": "C#2", "SK": "META", "name": "Grace"}.items() <= shop.store().get([("C#2", "META")])[
        ("C#2", "META")
    ].items()
    counted = shop.done("clean", "--all-items", job, "--dry-run").out
    assert "Customer" in counted
    assert "Invoice" not in counted
    refused = shop.run("clean", "--all-items", job, "--entity", "invoice", "--yes")
    assert (refused.code, pins.said(refused.err)) == (2, True)


def test_direct_entity_is_reported_and_its_patterns_still_answer(direct: Project) -> None:
    job = str(direct.job)
    told = "written to the table by the service itself: invoice"
    assert told in direct.done("cutover", "status", job).out
    check = direct.run("decommission", "check", job)
    assert told in check.out
    assert pins.said(check.out, "migrated")
    assert direct.run("decommission", "check", job, "--json").data["direct"] == ["invoice"]
    assert direct.done("look", job, "--pattern", OTHER, "-p", "customer_id=2", "--json").data["same"]
    assert pins.said(direct.done("capture", "install", job).out, "change")


def test_job_without_direct_setting_is_stopped_before_old_rows(direct: Project) -> None:
    job = str(direct.job)
    put(direct, {**invoice(direct), "total": 77})
    direct.job.write_text(direct.job.read_text().replace(WRITES, ""))
    for words in (["backfill", job], ["relay", job, "--once"], ["capture", "install", job]):
        stopped = direct.run(*words)
        assert (stopped.code, pins.said(stopped.err)) == (2, True), words
    assert invoice(direct)["total"] == 77


def test_triggers_put_in_by_hand_do_not_let_old_rows_in(direct: Project) -> None:
    """The journal says whose the entity is, not the triggers."""
    job = str(direct.job)
    direct.job.write_text(direct.job.read_text().replace(WRITES, ""))
    home = direct.environment["MIGRATOR_HOME"]
    direct.environment["MIGRATOR_HOME"] = f"{home}-of-another-host"
    refused = direct.run("capture", "install", job)  # by a journal that knows nothing
    assert (refused.code, pins.said(refused.err, "journal")) == (2, True)
    with closing(sqlite3.connect(direct.folder / "shop.db")) as connection:
        connection.executescript(direct.done("capture", "install", job, "--as", "sql").out)
    direct.environment["MIGRATOR_HOME"] = home
    for words in (["backfill", job], ["relay", job, "--once"]):
        stopped = direct.run(*words)
        assert (stopped.code, pins.said(stopped.err, "itself")) == (2, True), words


def test_it_can_be_taken_back_on_request(direct: Project) -> None:
    job = str(direct.job)
    direct.job.write_text(direct.job.read_text().replace(WRITES, ""))
    assert "invoice" in direct.done("recover", job, "entity-taken-back").out
    change(direct, "UPDATE invoice SET total = 6 WHERE id = 1")
    direct.done("relay", job, "--once")
    assert invoice(direct)["total"] == 6


def test_all_entities_may_be_direct_and_then_rows_make_no_items(direct: Project) -> None:
    job, all_of_them = str(direct.job), "writes: {direct: [invoice, customer]}\n"
    direct.done("verify", job)
    with desk_of(direct) as session:
        compared(session, direct, PATTERN)
        obey(session, one := reader(session, direct))
        compared(session, direct, PATTERN)
        direct.done("cutover", "advance", job, PATTERN, "--yes", "--one-way")
        session.instances.leave(one)
    direct.job.write_text(direct.job.read_text().replace(WRITES, all_of_them))
    assert pins.said(direct.done("capture", "install", job).out, "captured")
    for words in (["backfill", job], ["relay", job, "--once"], ["verify", job]):
        refused = direct.run(*words)
        assert (refused.code, pins.said(refused.err, "migrate")) == (2, True), words
    assert pins.said(
        direct.run("decommission", "check", job).out.replace("invoice, customer", "customer, invoice"),
        "customer",
    )


@pytest.mark.parametrize(
    "writes",
    [
        "writes: {direct: [invoices]}",
        "writes: {direct: invoice}",
        "writes: {directly: [invoice]}",
    ],
)
def test_wrong_names_are_reported(tmp_path: Path, dynamodb_url: str, writes: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    say(shop, writes + "\n")
    for command in (["capture", "install"], ["backfill"], ["verify"]):
        ended = shop.run(*command, str(shop.job))
        assert ended.code == 2
        assert pins.said(ended.err)


def test_entity_reading_the_table_of_a_direct_one_must_be_direct(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    mapping = shop.folder / "mapping.yaml"
    customer = 'customer: {items: {Customer: {key: ["C#{id}", META], keep: [name]}}}'
    spent = customer.replace("{items", "{collect: {spent: {sum: total, of: invoice, by: customer_id}}, items")
    mapping.write_text(
        mapping.read_text().replace(
            customer, spent.replace("keep: [name]", "keep: [name], attributes: {spent: spent}")
        )
    )
    say(shop)
    ended = shop.run("capture", "install", str(shop.job))
    assert ended.code == 2
    assert "entity customer reads table invoice" in ended.err


def test_service_that_would_stop_marking_too_early_is_refused(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(shop)
    for name in ("MIGRATOR_SOURCE_URL", "MIGRATOR_HOME"):
        monkeypatch.setenv(name, shop.environment[name])
    sessions = sessionmaker(create_engine(shop.environment["MIGRATOR_SOURCE_URL"]))
    refused = pins.refused(SettingsError, other=OTHER)
    with Migration.load(str(shop.job), service="shop-api") as migration, refused:
        migration.dual_write(sessions)
