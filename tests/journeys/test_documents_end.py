"""Old tables of DynamoDB near their end: what services write themselves, days without a relay, the way back, and after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from migrator.journal.database import Database
from migrator.journal.schema import stream_shard
from tests import pins
from tests.journeys.documents import Shop, old_shop

LINES = ("lines_of_order", "one_line")
LIMITS = {"cutover": {"quiet": "0.5s"}, "tuning": {"request_life_s": 0.5, "silent_s": 10, "lease_s": 1}}


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Iterator[Shop]:
    with old_shop(tmp_path, dynamodb_url) as made:
        change(made, **LIMITS)
        yield made


def change(shop: Shop, **settings: Any) -> None:
    job = shop.project.job
    job.write_text(json.dumps(json.loads(job.read_text()) | settings))


def keep_patterns(shop: Shop, *before: str) -> None:
    """Those of the mapping that stand before the one that is named."""
    mapping = shop.project.folder / "mapping.yaml"
    for name in before:
        mapping.write_text(mapping.read_text().partition(f"  {name}:")[0])


def complete(shop: Shop, *patterns: str) -> None:
    shop.project.done("verify", shop.job)
    for name in patterns:
        for words in (["advance"], ["ramp", "100"], ["advance"], ["advance", "--one-way", "--yes"]):
            more = (*words[1:], "--override", "another test's")
            shop.project.done("cutover", words[0], shop.job, name, *more)


def checked(shop: Shop) -> dict[str, dict[str, Any]]:
    lines = shop.project.run("decommission", "check", shop.job, "--json").data["lines"]
    return {line["name"]: line for line in lines}


def item(shop: Shop, key: str, sort: str) -> dict[str, Any]:
    return next(one for one in shop.project.items() if (one["PK"], one["SK"]) == (key, sort))


def days_pass(shop: Shop) -> None:
    """Of which no relay has read, as streams see it: what was not read is dropped."""
    database = Database(f"sqlite:///{shop.project.folder}/.migrator/shop.db")
    with database.begin() as connection:
        connection.execute(
            update(stream_shard).values(passed_at=stream_shard.c.passed_at - 3 * 86400, sequence="")
        )
    database.close()


def test_unread_change_keeps_its_entity_from_going_direct(shop: Shop) -> None:
    """Once the service writes the entity itself, nobody would ever read that record."""
    made, job = shop.project, shop.job
    complete(shop, *LINES)
    shop.tables.put(shop.real["Lines"], [{"order_id": "o0", "line": 1, "sku": "last"}])
    change(shop, writes={"direct": ["line"]})
    refused = made.run("capture", "install", job)
    assert refused.code == 1
    assert "1 wait (Lines: 1)" in " ".join(refused.out.split())
    change(shop, writes={"direct": []})
    made.done("relay", job, "--once")
    change(shop, writes={"direct": ["line"]})
    made.done("capture", "install", job)
    shop.tables.put(shop.real["Lines"], [{"order_id": "o0", "line": 1, "sku": "stray"}])
    made.done("relay", job, "--once")
    assert item(shop, "ORDER#o0", "LINE#001")["sku"] == "last"
    end = made.run("decommission", "check", job, "--explain").out
    assert "written to the table by the service itself: line" in end
    assert f"delete-table --endpoint-url {made.endpoint} --table-name {shop.real['Lines']}" in end
    assert checked(shop)["marks"]["verdict"] == "ok"


def test_end_is_reported_correctly_days_after_the_last_relay(shop: Shop) -> None:
    """No relay runs once every pattern is complete; the release without `Migration` takes days."""
    made, job = shop.project, shop.job
    keep_patterns(shop, "orders_of_user")
    told = made.folder / "told.txt"
    change(shop, hooks=[{"on": ["lag_high"], "command": ["tee", "-a", str(told)]}])
    complete(shop, "profile")
    days_pass(shop)
    lines = checked(shop)
    assert {name for name, line in lines.items() if line["verdict"] != "ok"} == {"marks", "verify"}
    for name in ("marks", "verify"):
        assert lines[name]["verdict"] == "unknown"
        assert pins.said(lines[name]["found"], "day")
    assert "the oldest for" not in made.done("status", job).out
    made.done("cutover", "watch", job, "--once")
    assert not told.exists(), "nothing is behind where nothing is to be read"
    assert pins.said(made.done("report", job).out, "sides")


def test_unread_stream_is_behind_before_the_end(shop: Shop) -> None:
    days_pass(shop)
    assert pins.said(shop.project.done("status", shop.job).out)


def test_rollback_from_complete_needs_an_operators_confirmation(shop: Shop) -> None:
    made, job = shop.project, shop.job
    keep_patterns(shop, "orders_of_user")
    complete(shop, "profile")
    refused = made.run("cutover", "rollback", job, "profile", "--yes")
    assert refused.code == 1
    assert pins.said(" ".join(refused.out.split()))
    assert "--unwritten ENTITY" in refused.out
    assert "reverse check" not in refused.out
    words = [word for name in ("user", "order", "line") for word in ("--unwritten", name)]
    made.done("cutover", "rollback", job, "profile", "--yes", *words)
    shop.tables.put(shop.real["Users"], [{"id": "u4", "name": "Eve"}])
    made.done("relay", job, "--once")
    assert item(shop, "USER#u4", "PROFILE")["name"] == "Eve"
    made.done("verify", job)
    assert "shadow" in made.done("cutover", "status", job).out


def test_move_to_complete_advises_no_command_of_reverse(shop: Shop) -> None:
    made, job = shop.project, shop.job
    keep_patterns(shop, "orders_of_user")
    for words in (["advance"], ["ramp", "100"], ["advance"]):
        made.done("cutover", words[0], job, "profile", *words[1:], "--override", "another test's")
    lines = made.run("cutover", "advance", job, "profile", "--dry-run", "--json").data["evidence"]
    advice = {line["name"]: line["mend"] for line in lines if line["name"] in ("way back", "reverse")}
    assert advice == dict.fromkeys(("way back", "reverse"), "pass --one-way")


@pytest.mark.parametrize("command", ["start", "verify"])
def test_reverse_is_refused_with_advice_that_works(shop: Shop, command: str) -> None:
    refused = shop.project.run("reverse", command, shop.job)
    assert refused.code == 2
    assert "reverse check" not in refused.err
    assert "migrator cutover advance" in refused.err
    assert pins.said(refused.err)


def test_commands_work_without_the_old_tables(shop: Shop) -> None:
    made, job = shop.project, shop.job
    keep_patterns(shop, "orders_of_user")
    complete(shop, "profile")
    made.done("capture", "uninstall", job)
    for name in shop.real.values():
        shop.tables.drop(name)
    gone = made.run("decommission", "check", job)
    assert gone.code == 3
    assert pins.said(gone.err, users=shop.real["Users"])
    made.prepared("cutover status", "cutover status --history", "report", "status")
    made.done("clean", "--attributes", job, "--yes")
    assert "_src" not in item(shop, "USER#u4", "PROFILE")
