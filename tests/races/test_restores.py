"""An older state that is right, unknown writers, and a capture that is off: refused, found, repaired."""

from __future__ import annotations

from threading import Timer

import pytest

from migrator.mapping.model.live import MarksState
from migrator.mapping.model.results import Worked
from migrator.runtime.errors import MigratorError, SettingsError
from migrator.stages.live.daemon import Daemon
from tests import pins
from tests.races.harness import Pause, Race
from tests.support_items import put_items

TWO = (
    "INSERT INTO users (id, name, email) VALUES (1, 'Ann', 'ann@x')",
    "INSERT INTO users (id, name) VALUES (2, 'Bob')",
)


def restore(race: Race) -> None:
    """The source as it was when there was Ann alone, its counter of tickets and its marks with it."""
    ticket = race.shop.mark_table.replace("mark", "ticket")
    race.sql(
        "DELETE FROM users WHERE id = 2",
        "UPDATE users SET name = 'Ann', email = 'ann@x' WHERE id = 1",
        f"DELETE FROM {race.shop.mark_table}",
        f"UPDATE {ticket} SET number = 1",
    )


def changed(race: Race) -> None:
    race.sql(TWO[0])
    race.work()
    race.sql("UPDATE users SET name = 'New', email = 'new@x' WHERE id = 1", TWO[1])
    race.work()
    race.beside.guard()


def test_restored_source_is_refused_until_the_epoch_is_raised(race: Race) -> None:
    changed(race)
    restore(race)
    before = race.stored()
    for words in (["relay", "--once"], ["backfill", "--into-existing"]):
        refused = race.command(*words)
        assert refused.code == 2
        assert pins.said(refused.err, "epoch")
    assert race.stored() == before
    assert race.command("recover", "source-restored", "--settle", "0s").code == 0
    verified = race.command("verify", "--settle", "0s")
    assert verified.code == 0, verified.out
    # The older value is the right one, and wins over the newer one that was written before.
    assert race.item("USER#1")["name"] == "Ann"
    assert {key for key in race.live() if key[0] != "_migrator"} == {
        ("USER#1", "META"),
        ("EMAIL#ann@x", "META"),
    }
    race.comes_to_rest()


def test_a_restored_source_is_refused_though_the_journal_is_lost(race: Race) -> None:
    """The table's control item knows the highest ticket, too."""
    changed(race)
    restore(race)
    with race.shop.journal.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM migrator_record WHERE kind = 'reached_ticket'")
    refused = race.command("relay", "--once")
    assert (refused.code, pins.said(refused.err, "restored")) == (2, True)
    race.raise_epoch()
    unrepaired = race.command("relay", "--once")
    assert (unrepaired.code, pins.said(unrepaired.err, "verify")) == (2, True)
    assert race.command("verify", "--repair", "--settle", "0s").code == 1
    assert race.command("relay", "--once").code == 0


def test_relay_running_over_a_restore_writes_nothing_keeps_marks(
    race: Race,
) -> None:
    changed(race)
    relay = race.relay(lease_s=0, wait_s=0)
    restore(race)
    race.sql("UPDATE users SET name = 'After' WHERE id = 1")
    before, marks = race.stored(), race.mark_ids()
    for _ in range(3):  # the counter does not come up by being asked
        with pins.refused(SettingsError):
            relay.once()
    assert (race.stored(), race.mark_ids()) == (before, marks)
    assert race.command("relay", "--once").code == 2
    assert race.command("recover", "source-restored", "--settle", "0s").code == 0
    race.comes_to_rest()
    assert race.item("USER#1")["name"] == "After"


@pytest.mark.triggers
def test_write_refused_by_an_undrawn_ticket_reveals_a_restore(race: Race) -> None:
    """The journal went back with the source, and the table's control item was put back, too."""
    changed(race)
    restore(race)
    put_items(race.target.store, [{**item, "_tk": 1} for item in race.whole() if item["PK"] == "_migrator"])
    with race.shop.journal.database.begin() as connection:
        connection.exec_driver_sql("UPDATE migrator_record SET value = '1' WHERE kind = 'reached_ticket'")
    race.sql("UPDATE users SET name = 'After' WHERE id = 1")
    before, relay = race.live(), race.relay(lease_s=0, wait_s=0)
    for _ in range(3):
        with pins.refused(SettingsError):
            relay.once()
    assert len(race.mark_ids()) == 1
    assert race.live()["USER#1", "META"] == before["USER#1", "META"]


class SilentListener:
    """A migrator.stages.live.daemon.Listener that prints nothing."""

    def worked(self, worked: Worked, took_ms: int) -> None:
        return

    def failed(self, error: MigratorError, wait_s: float) -> None:
        return

    def idle(self) -> None:
        return


@pytest.mark.triggers
def test_daemon_with_a_restored_source_ends_with_all_its_workers(race: Race) -> None:
    changed(race)
    restore(race)
    race.sql("UPDATE users SET name = 'After' WHERE id = 1")
    daemon = Daemon(race.beside.relay, race.heartbeats, SilentListener(), race.beside.guard, workers=2)
    too_long = Timer(30, daemon.stop.set)
    too_long.start()
    with pins.refused(SettingsError):
        daemon.run(once=False)
    assert too_long.is_alive()
    too_long.cancel()
    assert len(race.mark_ids()) == 1


# ── changes without a mark ──


def test_item_of_a_rogue_writer_is_found_and_repaired_by_a_mark(race: Race) -> None:
    race.sql(*TWO)
    race.fill()
    put_items(race.target.store, [{**race.item("USER#1"), "name": "Rogue"}])
    race.target.store.delete([("EMAIL#ann@x", "META")])
    verified = race.command("verify", "--repair", "--settle", "0s")
    assert (verified.code, pins.said(verified.err)) == (1, True)
    race.comes_to_rest()
    assert race.item("USER#1")["name"] == "Ann"


def test_a_repair_that_comes_too_late_changes_nothing_newer(race: Race) -> None:
    """Between its second look and the relay's work the row changes again."""
    race.sql(*TWO)
    race.fill()
    race.target.store.delete([("USER#1", "META")])
    assert race.command("verify", "--repair", "--settle", "0s").code == 1

    def meanwhile() -> None:
        race.sql("UPDATE users SET name = 'Newer' WHERE id = 1")
        race.work()

    race.relay(Pause(meanwhile), lease_s=0).once()
    assert race.item("USER#1")["name"] == "Newer"
    race.comes_to_rest()


def test_verify_finds_differences_only_until_marks_are_processed(race: Race) -> None:
    race.sql(*TWO)
    race.fill()
    assert race.differences() == {}
    race.sql("UPDATE users SET name = 'Bea', email = 'b@x' WHERE id = 1", "DELETE FROM users WHERE id = 2")
    assert set(race.differences()) >= {"different", "missing", "unexpected"}
    race.comes_to_rest()


@pytest.mark.triggers
def test_changes_without_a_mark_are_reported_and_repaired(race: Race) -> None:
    """The triggers were dropped: capture's status says so, and verify finds what was missed."""
    race.sql(*TWO)
    race.fill()
    assert race.command("capture", "uninstall", "--discard-marks").code == 0
    try:
        race.sql("UPDATE users SET name = 'Unseen' WHERE id = 1")
        assert race.command("capture", "status").code == 1
        assert race.command("relay", "--once").code != 0
    finally:
        assert race.command("capture", "install").code == 0
    # Another installation begins its tickets anew, so they may be behind.
    race.raise_epoch()
    assert race.shop.live.marks.state() == MarksState()
    assert race.command("verify", "--repair", "--settle", "0s").code == 1
    race.comes_to_rest()
    assert race.item("USER#1")["name"] == "Unseen"
