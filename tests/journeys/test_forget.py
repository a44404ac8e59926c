"""Forgetting a row by the installed command: nothing of it is kept, and nothing of it that is still needed is lost."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.people import ANN, BOB, RIPE_S, change, deleted, forget, journal, kept_of, people


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return people(tmp_path, dynamodb_url)


def test_a_deleted_row_leaves_no_trace(shop: Project) -> None:
    assert "collision" in shop.run("status", "--findings", str(shop.job), "--show-keys").out
    deleted(shop, BOB)
    counted = forget(shop, BOB, "--dry-run", "--json").data
    assert (counted["row_in_source"], counted["items"], counted["forgotten"]) == (False, 0, None)
    assert counted["found"]["findings"] >= 1
    assert counted["found"]["remembered keys"] >= 1
    assert counted["tombstones_left"] == counted["found"]["tombstones"] >= 2
    assert {"shop.db"} <= set(kept_of(shop, BOB))

    young = forget(shop, BOB, "--yes")
    assert young.code == 1
    assert f"{counted['tombstones_left']} tombstones must stay until no late writer" in young.out
    shop.pass_time(RIPE_S)
    done = forget(shop, BOB, "--yes", "--json")
    assert (done.code, done.data["tombstones_left"]) == (0, 0)
    assert done.data["forgotten"]["tombstones"] >= 2
    assert not [one for one in kept_of(shop, BOB) if one not in ("shop.db",)]
    assert BOB.encode() not in (shop.folder / "home" / "shop.db").read_bytes()

    again = forget(shop, BOB, "--yes", "--json")
    assert (again.code, set(again.data["forgotten"].values())) == (0, {0})


def test_nothing_of_another_row_goes(shop: Project) -> None:
    before = sorted(repr(item) for item in shop.items() if ANN in repr(item))
    owners = journal(shop, f"SELECT digest FROM migrator_claim WHERE owner LIKE '%{ANN}%'")
    deleted(shop, BOB)
    shop.pass_time(RIPE_S)
    assert forget(shop, BOB, "--yes").code == 0
    live = [item for item in shop.items() if ANN in repr(item)]
    assert sorted(repr({**item, "_tk": 0}) for item in live) == [
        one.replace(f"'_tk': {1}", "'_tk': 0") for one in before
    ]
    assert journal(shop, f"SELECT digest FROM migrator_claim WHERE owner LIKE '%{ANN}%'") == owners
    shop.done("verify", str(shop.job))


def test_row_owning_a_wanted_key_is_forgotten_in_both_findings(shop: Project) -> None:
    """The finding of the other row names the first one."""
    first = (
        ANN
        if f'member ["{ANN}"] makes' in shop.run("status", "--findings", str(shop.job), "--show-keys").out
        else BOB
    )
    deleted(shop, first)
    shop.pass_time(RIPE_S)
    assert forget(shop, first, "--yes").code == 0
    assert first.encode() not in (shop.folder / "home" / "shop.db").read_bytes()
    shop.done("verify", str(shop.job))


def test_all_entities_of_the_row_are_forgotten(shop: Project) -> None:
    deleted(shop, BOB)
    shop.pass_time(RIPE_S)
    assert forget(shop, BOB, "--yes", entity="resident").code == 0
    assert not [item for item in shop.items() if BOB in repr(item)]


def test_a_row_that_is_still_there_is_not_forgotten(shop: Project) -> None:
    refused = forget(shop, BOB, "--yes")
    assert refused.code == 2
    assert pins.said(refused.err, "still")
    assert BOB not in refused.err + refused.out
    before = shop.items()
    anyway = forget(shop, BOB, "--yes", "--force", "--json")
    assert anyway.code == 0
    assert anyway.data["forgotten"]["findings"] >= 0
    assert not {"claims", "contests", "remembered keys"} & anyway.data["forgotten"].keys()
    assert pins.said(anyway.data["left"], "itself")
    assert shop.items() == before


def test_a_row_whose_mark_waits_is_not_forgotten(shop: Project) -> None:
    change(shop, "DELETE FROM member WHERE mail = ?", (BOB,))
    for words in (["--yes"], ["--yes", "--force"]):
        refused = forget(shop, BOB, *words)
        assert refused.code == 2
        assert pins.said(refused.err, "wait")
        assert pins.said(refused.err, "first", job=shop.job)
    assert forget(shop, BOB, "--dry-run").code == 0
    assert any(BOB in repr(item) for item in shop.items())


def test_failing_mark_is_removed_with_the_row(shop: Project) -> None:
    deleted(shop, BOB)
    image = json.dumps({"mail": f"text:{BOB}"})
    change(
        shop,
        "INSERT INTO migrator_mark (table_name, image_before, tries) VALUES ('member', ?, 3)",
        (image,),
    )
    change(shop, "INSERT INTO migrator_mark (root_entity, root_key, tries) VALUES ('member', '[\"x\"]', 3)")
    shop.pass_time(RIPE_S)
    done = forget(shop, BOB, "--yes", "--json")
    assert (done.code, done.data["forgotten"]["marks"]) == (0, 1)
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
        assert source.execute("SELECT COUNT(*) FROM migrator_mark").fetchone() == (1,)


def test_items_that_outlived_their_row_are_reported(shop: Project) -> None:
    change(shop, "DELETE FROM member WHERE mail = ?", (BOB,))
    change(shop, "DELETE FROM migrator_mark")
    refused = forget(shop, BOB, "--yes")
    assert refused.code == 2
    assert pins.said(refused.err, "still")
    anyway = forget(shop, BOB, "--yes", "--force")
    assert anyway.code == 0
    assert pins.said(anyway.out, "row")
    # The item still needs a tombstone, and its key, which cannot be computed, is still remembered for it.
    shop.run("verify", str(shop.job), "--repair", "--settle", "0")
    shop.done("relay", str(shop.job), "--once")
    shop.done("verify", str(shop.job))
    assert not [one for one in shop.items() if BOB in repr(one) and one["type"] != "_tombstone"]


def test_without_capture_the_journals_traces_go(tmp_path: Path, shop: Project) -> None:
    shop.done("capture", "uninstall", str(shop.job))
    change(shop, "DELETE FROM member WHERE mail = ?", (BOB,))
    done = forget(shop, BOB, "--yes", "--force")
    assert done.code == 0
    assert pins.said(done.out)


def test_what_is_left_is_reported(shop: Project) -> None:
    deleted(shop, BOB)
    told = forget(shop, BOB, "--dry-run").out
    for word in (
        "point-in-time recovery",
        "exports",
        "backups, replicas and binary logs of the source",
        "VACUUM",
    ):
        assert word in told
    assert BOB not in told


def test_page_that_begins_at_the_row_is_left_and_reported(shop: Project) -> None:
    deleted(shop, BOB)
    with closing(sqlite3.connect(shop.folder / "home" / "shop.db")) as database:
        database.execute(
            "UPDATE migrator_page SET upto_key = ? WHERE entity = 'member'", (json.dumps([BOB]),)
        )
        database.commit()
    assert pins.said(forget(shop, BOB, "--dry-run").out)


@contextmanager
def living_writer(shop: Project) -> Iterator[None]:
    """A relay that began 100 s ago and beats, until the block ends."""
    ends, file = threading.Event(), shop.folder / "home" / "shop.db"

    def write(statement: str, *values: object) -> None:
        with closing(sqlite3.connect(file, timeout=30)) as database:
            database.execute(statement, values)
            database.commit()

    def beat() -> None:
        while not ends.wait(0.2):
            write("UPDATE migrator_writer SET alive_at = ?", time.time() + RIPE_S)

    with closing(sqlite3.connect(file)) as database:
        (table,) = database.execute(
            "SELECT scope FROM migrator_record WHERE kind = 'reached_ticket'"
        ).fetchone()
    columns = "(id, table_id, kind, since, alive_at, fenced)"
    insert = f"INSERT INTO migrator_writer {columns} VALUES ('w1', ?, 'relay', ?, ?, 0)"
    write(insert, table, time.time() - 100, time.time() + RIPE_S)
    beating = threading.Thread(target=beat)
    beating.start()
    try:
        yield
    finally:
        ends.set()
        beating.join(60)
        write("DELETE FROM migrator_writer")


def test_concurrent_older_writer_keeps_the_records_that_it_needs(shop: Project) -> None:
    deleted(shop, BOB)
    shop.pass_time(RIPE_S)
    with living_writer(shop):
        done = forget(shop, BOB, "--yes", "--json")
    assert (done.code, done.data["writers_late"]) == (1, True)
    assert "remembered keys" not in done.data["forgotten"]
    assert done.data["tombstones_left"] >= 2
    assert forget(shop, BOB, "--yes").code == 0
