"""Every pattern is complete: the service may write the table itself, and nothing of ours puts old rows over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from migrator.api import Migration
from migrator.mapping.model.evidence import Move, State
from migrator.mapping.model.table import Item
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import OTHER, PATTERN, change, cutover_shop, desk_of, filled, live
from tests.support_items import put_items
from tests.support_waiting import until

WRITING = (
    ["backfill", "--restart"],
    ["relay"],
    ["relay", "--once"],
    ["verify", "--repair"],
    ["clean", "--all-items", "--yes"],
)


def complete(shop: Project, *patterns: str) -> Project:
    with desk_of(shop) as session:
        for pattern in patterns:
            known = session.phases.all()[pattern]
            session.phases.move(Move(pattern, known.state, State("complete"), "ada"), known.version)
    return shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Every pattern is live."""
    return live(filled(cutover_shop(tmp_path, dynamodb_url)))


def ours(shop: Project) -> Item:
    """An item as the service's own UpdateItem left it: `_src` is still there."""
    key = ("C#2", "META")
    item = {**shop.store().get([key])[key], "name": "Grace"}
    put_items(shop.store(), [item])
    return item


def test_nothing_of_ours_overwrites_writes_of_the_service(shop: Project) -> None:
    item = ours(complete(shop, PATTERN, OTHER))
    change(shop, "UPDATE customer SET name = 'old' WHERE id = 2")
    for command, *words in WRITING:
        refused = shop.run(command, str(shop.job), *words)
        assert (refused.code, pins.said(refused.err), "--force" in refused.err) == (2, True, True), command
    assert item in shop.items()


def test_data_that_answers_callers_is_not_removed(shop: Project) -> None:
    refused = shop.run("clean", "--all-items", str(shop.job), "--yes")
    said = f"callers are answered from these items: {PATTERN} (live), {OTHER} (live)"
    assert (refused.code, said in refused.err) == (2, True), refused.err
    assert len(shop.items()) > 1
    shop.done("clean", "--all-items", str(shop.job), "--dry-run")
    shop.done("clean", "--all-items", str(shop.job), "--yes", "--force")


def test_with_force_commands_write_a_table_of_complete_patterns(shop: Project) -> None:
    job = str(complete(shop, PATTERN, OTHER).job)
    change(shop, "UPDATE customer SET name = 'late' WHERE id = 2")
    shop.done("relay", job, "--once", "--force")
    assert shop.store().get([("C#2", "META")])[("C#2", "META")]["name"] == "late"
    shop.done("verify", job, "--settle", "0", "--repair", "--force")
    shop.done("backfill", job, "--restart", "--force")
    shop.done("clean", "--all-items", job, "--yes", "--force")


def test_what_changes_nothing_is_still_allowed(shop: Project) -> None:
    job = str(complete(shop, PATTERN, OTHER).job)
    for words in (["verify", "--settle", "0"], ["backfill", "--dry-run"], ["relay", "--dry-run"]):
        shop.done(words[0], job, *words[1:])
    shop.done("clean", "--all-items", job, "--dry-run")


def test_as_long_as_one_pattern_may_go_back_rows_are_the_truth(shop: Project) -> None:
    job = str(complete(shop, PATTERN).job)
    change(shop, "UPDATE customer SET name = 'new' WHERE id = 2")
    shop.done("relay", job, "--once")
    shop.done("backfill", job, "--restart")


def test_a_relay_that_runs_ends_by_itself(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = shop.start("relay", str(shop.job))
    until(lambda: "relay" in {one["kind"] for one in _writers(shop)})
    complete(shop, PATTERN, OTHER)
    _, err = relay.communicate(timeout=120)
    assert (relay.returncode, pins.said(err)) == (0, True)


def _writers(shop: Project) -> list[dict[str, str]]:
    found: list[dict[str, str]] = shop.done("status", str(shop.job), "--json").data["live"]["writers"]
    return found


def test_service_does_not_start_to_write_next_to_sql(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    complete(shop, PATTERN, OTHER)
    for name in ("MIGRATOR_SOURCE_URL", "MIGRATOR_HOME"):
        monkeypatch.setenv(name, shop.environment[name])
    sessions = sessionmaker(create_engine(shop.environment["MIGRATOR_SOURCE_URL"]))
    refused = pins.refused(SettingsError)
    with Migration.load(str(shop.job), service="shop-api") as migration, refused:
        migration.dual_write(sessions)
