"""From complete and back: services write the table, rows follow, rows are the truth again, and forward once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migrator.commands import rollback_work as back
from migrator.commands.rollback_work import _Back
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import (
    OTHER,
    PATTERN,
    compared,
    cutover_shop,
    desk_of,
    filled,
    live,
    obey,
    phase,
    reader,
)
from tests.journeys.test_reverse import invoice, made_direct, rows_of_items
from tests.support_capture import connect
from tests.support_waiting import until

WRITES = "writes: {direct: [invoice]}\n"
BACK = ("--yes", "--settle", "0.2s", "--from", "complete")
STEPS = ("drain", "compare", "move_counters", "capture", "own", "look", "keep")
Change = Callable[..., None]


def made(folder: Path, dynamodb_url: str) -> Project:
    """Its table has a stream."""
    shop = cutover_shop(folder, dynamodb_url)
    job = shop.job.read_text()
    shop.job.write_text(job.replace("target: {", "target: {options: {stream: new_and_old_images}, ", 1))
    return shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Every pattern is live."""
    return live(filled(made(tmp_path, dynamodb_url)))


def changing(shop: Project) -> Change:
    """What a service does in SQL, each statement in a transaction of its own."""
    url = shop.environment["MIGRATOR_SOURCE_URL"]

    def change(*statements: str) -> None:
        with closing(connect(url.partition(":")[0].partition("+")[0], url)) as service:
            for statement in statements:
                service.cursor().execute(statement)
            service.commit()

    return change


def rows(shop: Project) -> list[tuple[Any, ...]]:
    url = shop.environment["MIGRATOR_SOURCE_URL"]
    with closing(connect(url.partition(":")[0].partition("+")[0], url)) as reading:
        cursor = reading.cursor()
        cursor.execute("SELECT id, customer_id, total FROM invoice ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]


def write_directly(shop: Project, numbers: Sequence[int], total: int) -> None:
    """What a service does that writes the table: changes, moves to another customer, deletes, new ones."""
    client, table = shop.store().client, shop.table
    of = {number: customer for number, customer, _ in rows_of_items(shop)}
    for number in numbers:
        key = {name: invoice(number, of.get(number, 1), 0)[name] for name in ("PK", "SK")}
        if number not in of:
            client.put_item(TableName=table, Item=invoice(number, 1, total))
        elif number % 4 == 0:
            client.delete_item(TableName=table, Key=key)
        elif number % 4 == 1:
            put = {"Put": {"TableName": table, "Item": invoice(number, of[number] % 30 + 1, total)}}
            client.transact_write_items(TransactItems=[put, {"Delete": {"TableName": table, "Key": key}}])
        else:
            client.put_item(TableName=table, Item=invoice(number, of[number], total))


def status(shop: Project) -> dict[str, Any]:
    return dict(shop.run("reverse", "status", str(shop.job), "--json").data)


def complete(shop: Project, *words: str, pattern: str = OTHER) -> None:
    with desk_of(shop) as session:
        compared(session, shop, pattern)
        obey(session, one := reader(session, shop))
        compared(session, shop, pattern)
        try:
            shop.done("cutover", "advance", str(shop.job), pattern, "--yes", *words)
        finally:
            session.instances.leave(one)


def taken_out(shop: Project) -> None:
    shop.job.write_text(shop.job.read_text().replace(WRITES, ""))


def test_complete_needs_reverse_and_rollback_no_waiting_row(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = str(shop.job)
    with desk_of(shop) as session:
        compared(session, shop, OTHER)
        obey(session, one := reader(session, shop))
        compared(session, shop, OTHER)
        refused = shop.run("cutover", "advance", job, OTHER, "--yes")
        assert (refused.code, pins.said(refused.err, "proven")) == (1, True)
        session.instances.leave(one)
    with shop.beside("reverse", "start", job, "--settle", "0.2s"):
        until(lambda: status(shop)["processes"] > 0)
        complete(shop)
        made_direct(shop)
        # Without a start anew: the process that was there before makes rows from the first direct write on.
        write_directly(shop, range(1, 9), 77)
        until(lambda: rows(shop) == rows_of_items(shop))
        early = shop.run("cutover", "rollback", job, OTHER, *BACK)
        assert (early.code, pins.said(early.err, "take")) == (2, True)
        misfit = {**invoice(2000, 1, 5), "total": {"S": "five"}}
        shop.store().client.put_item(TableName=shop.table, Item=misfit)
        until(lambda: bool(status(shop)["parked"]))
        taken_out(shop)
        parked = shop.run("cutover", "rollback", job, OTHER, *BACK)
        assert (parked.code, pins.said(parked.err, "reverse")) == (1, True)
        shop.store().client.put_item(TableName=shop.table, Item=invoice(2000, 1, 5))
        until(lambda: not status(shop)["parked"])
        unsaid = shop.run("cutover", "rollback", job, OTHER)
        assert (unsaid.code, pins.said(unsaid.err, "say")) == (2, True)
        with monkeypatch.context() as patched:
            patched.setattr(back, "_ENDS_WITHIN_S", -1000.0)
            goes_on = shop.run("cutover", "rollback", job, OTHER, *BACK)
        assert (goes_on.code, pins.said(goes_on.err, "did")) == (1, True)
        assert phase(shop, OTHER) == "complete"
        shop.done("cutover", "rollback", job, OTHER, *BACK)
    assert phase(shop, OTHER) == "shadow"
    assert rows(shop) == rows_of_items(shop)


def test_killed_at_every_step_both_captures_resume(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    job, change = str(shop.job), changing(shop)
    shop.done("reverse", "start", job, "--once", "--settle", "0s")
    complete(shop, "--one-way")
    assert "one way" in str(shop.done("cutover", "status", "--history", job, OTHER, "--json").data)
    made_direct(shop)
    write_directly(shop, range(1, 61), 77)
    shop.done("reverse", "start", job, "--once", "--settle", "0.2s")
    taken_out(shop)
    for name in STEPS:
        with monkeypatch.context() as patched:
            patched.setattr(_Back, name, killed_after(getattr(_Back, name)))
            assert shop.run("cutover", "rollback", job, OTHER, *BACK).code != 0
        assert phase(shop, OTHER) == "complete"
        assert rows(shop) == rows_of_items(shop)
    shop.done("cutover", "rollback", job, OTHER, *BACK)
    assert (phase(shop, OTHER), rows(shop)) == ("shadow", rows_of_items(shop))
    change("UPDATE invoice SET total = 5 WHERE id = 2", "UPDATE invoice SET customer_id = 9 WHERE id = 5")
    change("DELETE FROM invoice WHERE id = 3", "INSERT INTO invoice VALUES (4, 4, 4)")
    shop.done("relay", job, "--once")
    assert rows(shop) == rows_of_items(shop)
    assert "clean" in shop.done("verify", job, "--settle", "0").out


def test_two_complete_patterns_roll_back_one_after_the_other(shop: Project) -> None:
    """Nothing is direct on record, and a service wrote what the second pattern reads: the first rollback compares that, too."""
    job = str(shop.job)
    complete(shop, "--one-way", pattern=PATTERN)
    complete(shop, "--one-way")
    write_directly(shop, [2], 77)
    first = ("cutover", "rollback", job, PATTERN, *BACK)
    differs = shop.run(*first)
    assert (differs.code, pins.said(differs.err, "differ")) == (1, True)
    assert pins.said(differs.err, "entities")
    assert (phase(shop, PATTERN), phase(shop, OTHER)) == ("complete", "complete")
    strange = shop.run(*first, "--unwritten", "nobody")
    assert (strange.code, pins.said(strange.err, "customer")) == (2, True)
    repaired = shop.run("reverse", "verify", job, "--repair")
    assert (repaired.code, pins.said(repaired.err, "wrote")) == (
        2,
        True,
    )
    # As it says.
    made_direct(shop)
    shop.done("reverse", "start", job, "--once", "--settle", "0.2s")
    shop.done("reverse", "verify", job, "--repair", "--settle", "0.2s")
    taken_out(shop)
    refused = shop.run("relay", job, "--once")
    assert pins.said(refused.err, "rollback", job=job)
    shop.done(*first, "--unwritten", "customer")
    history = str(shop.done("cutover", "status", "--history", job, PATTERN, "--json").data)
    assert pins.said(history, "vouches")
    assert (phase(shop, PATTERN), phase(shop, OTHER)) == ("shadow", "complete")
    shop.done("cutover", "rollback", job, OTHER, *BACK)
    changing(shop)("UPDATE invoice SET total = 5 WHERE id = 2")
    shop.done("relay", job, "--once")
    assert rows(shop) == rows_of_items(shop)
    assert (2, 3, 5) in rows(shop)
    assert "clean" in shop.done("verify", job, "--settle", "0").out


def test_a_service_that_writes_while_items_become_ours_is_found(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = str(shop.job)
    shop.done("reverse", "start", job, "--once", "--settle", "0s")
    complete(shop, "--one-way")
    made_direct(shop)
    write_directly(shop, range(1, 9), 77)
    taken_out(shop)
    own, beside = _Back.own, []

    def written_meanwhile(one: _Back) -> int:
        owned = own(one)
        beside.append(shop.run("reverse", "start", job, "--once"))
        write_directly(shop, [6], 78)
        return owned

    with monkeypatch.context() as patched:
        patched.setattr(_Back, "own", written_meanwhile)
        refused = shop.run("cutover", "rollback", job, OTHER, *BACK)
    assert (refused.code, pins.said(refused.err, "still")) == (1, True)
    assert [(one.code, pins.said(one.err, "beside")) for one in beside] == [(3, True)]
    assert pins.said(refused.err, "reverse", job=job)
    assert phase(shop, OTHER) == "complete"
    shop.done("cutover", "rollback", job, OTHER, *BACK)
    assert (phase(shop, OTHER), rows(shop)) == ("shadow", rows_of_items(shop))
    assert any(row[0] == 6 and row[2] == 78 for row in rows(shop))


def keeping(shop: Project, *names: str) -> None:
    shop.job.write_text(shop.job.read_text() + f"writes: {{keep: [{', '.join(names)}]}}\n")


def test_added_attributes_survive_a_rollback_or_go_on_request(shop: Project) -> None:
    """Rows have no column for it: the first UPDATE in SQL would take it away."""
    job = str(shop.job)
    shop.done("reverse", "start", job, "--once", "--settle", "0s")
    complete(shop, "--one-way")
    made_direct(shop)
    write_directly(shop, [2, 3], 77)
    client = shop.store().client
    client.put_item(
        TableName=shop.table, Item={**invoice(2, 3, 78), "nickname": {"S": "ada"}, "visits": {"N": "3"}}
    )
    shop.done("reverse", "start", job, "--once", "--settle", "0.2s")
    lost = [
        {"type": "Invoice", "attribute": name, "items": 1, "why": "no column"}
        for name in ("nickname", "visits")
    ]
    assert shop.run("status", job, "--json").data["live"]["unkept"] == []
    verified = shop.run("reverse", "verify", job, "--json")
    assert shop.run("status", job, "--json").data["live"]["unkept"] == lost
    assert "no row keeps Invoice.nickname: 1 item has it" in shop.run("status", job).out
    assert (verified.code, verified.data["clean"], verified.data["unkept"]) == (1, True, lost)
    assert shop.run("reverse", "check", job, "--json").data["unkept"] == lost
    assert shop.run("reverse", "status", job, "--attributes", "--json").data["unkept"] == lost
    taken_out(shop)
    refused = shop.run("cutover", "rollback", job, OTHER, *BACK)
    assert (refused.code, "Invoice.nickname, Invoice.visits" in refused.err) == (1, True)
    assert phase(shop, OTHER) == "complete"
    keeping(shop, "nickname")
    refused = shop.run("cutover", "rollback", job, OTHER, *BACK)
    assert (refused.code, "no row keeps Invoice.visits" in refused.err) == (1, True)
    shop.done("cutover", "rollback", job, OTHER, *BACK, "--drop-attributes")
    history = shop.done("cutover", "status", "--history", job, OTHER, "--json").data
    assert "no row keeps Invoice.visits: --drop-attributes" in str(history)
    assert "no row keeps" not in shop.run("status", job).out
    assert shop.run("verify", job, "--settle", "0", "--repair").code == 1
    changing(shop)(
        "UPDATE invoice SET total = 5 WHERE id = 2", "UPDATE customer SET name = 'Grace' WHERE id = 3"
    )
    shop.done("relay", job, "--once")
    (item,) = [one for one in shop.items() if one.get("type") == "Invoice" and one["id"] == 2]
    assert (item["total"], item["nickname"], item.get("visits")) == (5, "ada", None)
    assert shop.done("verify", job, "--settle", "0", "--json").data["clean"]
    backfilled = shop.done("backfill", job, "--restart", "--into-existing")
    assert "path: conditional" in backfilled.err
    (item,) = [one for one in shop.items() if one.get("type") == "Invoice" and one["id"] == 2]
    assert (item["total"], item["nickname"]) == (5, "ada")
    changing(shop)("DELETE FROM invoice WHERE id = 2")
    shop.done("relay", job, "--once")
    assert not [one for one in shop.items() if one.get("nickname")]


def killed_after(step: Callable[..., Any]) -> Callable[..., Any]:
    def work(*words: Any) -> Any:
        step(*words)
        raise KeyboardInterrupt

    return work
