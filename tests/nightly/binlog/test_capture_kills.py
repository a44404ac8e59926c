"""Readers of the binary log that are killed at each step, that meet each other, and whose server goes away: nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psutil
import pytest

from migrator.mapping.model.live import SlotLag
from migrator.source.capture.log.mysql.stream import Binlog, BinlogChanges
from migrator.source.capture.log.reader import LogPlace, LogReader, Position, Received
from tests.journeys.command import ROOT
from tests.log.conftest import Killed, engine_home
from tests.nightly.binlog.conftest import BinlogShop, open_reader
from tests.support_mysql import numbers
from tests.support_waiting import until

pytestmark = pytest.mark.xdist_group("binlog")


class EndingChanges(BinlogChanges):
    """Ends after so many events, or before what it has read is confirmed."""

    events = 10**9
    confirms = True

    def receive(self, wait_s: float) -> Received | None:
        type(self).events -= 1
        if self.events < 0:
            raise Killed
        return super().receive(wait_s)

    def confirm(self, position: object) -> None:
        if not self.confirms:
            raise Killed


@contextmanager
def reader_of(shop: BinlogShop, stream: type[BinlogChanges] = BinlogChanges) -> Iterator[LogReader]:
    class EndingLog(Binlog):
        def open(self, place: LogPlace) -> BinlogChanges:
            opened = super().open(place)
            opened.__class__ = stream
            return opened

    with open_reader(shop, EndingLog) as (_, reader):
        yield reader


def changes(shop: BinlogShop) -> None:
    shop.sql(
        "UPDATE customer SET email = 'k@x.example' WHERE id = 1",
        "DELETE FROM customer WHERE id = 2",
        f"INSERT INTO orders SELECT seq, 3, seq FROM {numbers(1100, 1000)}",
    )


def lag(reader: LogReader) -> SlotLag:
    def work(connection: object, ddl: object) -> SlotLag:
        place = reader.log.place(connection, ddl)  # type: ignore[arg-type]
        assert place is not None
        return reader.log.lag(connection, place, time.time())  # type: ignore[arg-type]

    return reader.writing.look("looking", work)


def test_killed_right_after_our_commit(live: BinlogShop) -> None:
    """Marks and position are one transaction, so a reader that goes on repeats none."""

    class Unconfirmed(EndingChanges):
        confirms = False

    changes(live)
    with reader_of(live, Unconfirmed) as reader, pytest.raises(Killed):
        reader.turn(reader.ask())
    before = live.count_of_marks()
    assert before > 100
    with reader_of(live) as reader:
        wanted = reader.ask()
        until(lambda: reader.turn(wanted) and _has_passed(reader, wanted), "it has read all")
    assert live.count_of_marks() == before
    live.relay()
    live.verify()


def _is_killed(reader: LogReader, wanted: Position) -> bool:
    try:
        reader.turn(wanted)
    except Killed:
        return True
    return False


def _has_passed(reader: LogReader, wanted: Position) -> bool:
    place = reader.place()
    return place is not None and bool(place.position >= wanted)


@pytest.mark.parametrize("events", [1, 3, 5, 9, 14, 20, 30])
def test_killed_while_it_reads(live: BinlogShop, events: int) -> None:
    class Ending(EndingChanges):
        pass

    Ending.events = events
    changes(live)
    with reader_of(live, Ending) as reader:
        wanted = reader.ask()
        until(lambda: _is_killed(reader, wanted), "it is killed")
    live.relay()
    live.verify()


def test_a_second_reader_stands_aside(live: BinlogShop) -> None:
    with reader_of(live) as first, reader_of(live) as second:
        assert first.turn()
        assert lag(second).has_reader
        assert not second.turn()
        changes(live)
        # What the second one asks for the first one copies.
        wanted = second.ask()
        while not second.turn() and not _has_passed(second, wanted):
            first.turn()
        first.close()
        until(second.turn, "the second one reads")
    with reader_of(live) as third:
        until(lambda: not lag(third).has_reader, "the lock of the readers is free")
    live.relay()
    live.verify()


def test_a_reader_whose_connection_was_taken_away_stores_nothing(live: BinlogShop) -> None:
    """It thaws after another one went on: its older position would pass by nothing, and its row is the other one's."""
    with reader_of(live) as first, reader_of(live) as second:
        assert first.turn()
        changes(live)
        name = live.rows("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
        live.sql(*(f"KILL {row[0]}" for row in name))
        wanted = second.ask()
        until(lambda: second.turn(wanted) and _has_passed(second, wanted), "the second one reads")
        before = live.count_of_marks()
        first.turn()
        assert live.count_of_marks() == before
    live.relay()
    live.verify()


@contextmanager
def writing(shop: BinlogShop) -> Iterator[list[int]]:
    """A service writes until the block ends; how many times."""
    stop, written = threading.Event(), [0]

    def write() -> None:
        with closing(shop.connect()) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                written[0] += 1
                turn = written[0]
                number = turn % 20 + 1
                cursor.execute(f"UPDATE customer SET email = 'e{turn}@x.example' WHERE id = {number}")
                cursor.execute(f"INSERT INTO orders VALUES ({10_000 + turn}, {number}, 1)")
                cursor.execute(f"DELETE FROM orders WHERE id = {10_000 + turn - 7}")
                if not turn % 50:
                    cursor.execute(f"UPDATE customer SET id = id + 1000 WHERE id = {number}")
                    cursor.execute(f"UPDATE customer SET id = id - 1000 WHERE id = {number + 1000}")
                if not turn % 150:
                    cursor.execute("TRUNCATE events")
                    cursor.execute(f"INSERT INTO events SELECT seq, seq, 'x' FROM {numbers(9)}")
                time.sleep(0.002)

    service = threading.Thread(target=write)
    service.start()
    try:
        yield written
    finally:
        stop.set()
        service.join()


def test_relays_that_are_killed_while_a_service_writes(live: BinlogShop) -> None:
    """Whenever it comes: SIGKILL of two relays, four times."""
    with writing(live) as written:
        for turn in range(4):
            relays = [live.project.start("relay", live.job) for _ in range(2)]
            time.sleep(1.5 + 0.23 * turn)
            for relay in relays:
                relay.send_signal(signal.SIGKILL)
                relay.communicate()
        until(lambda: written[0] > 100, "the service has written")
    live.project.pass_time(3600)
    live.relay()
    live.verify()


def test_from_the_log_to_triggers_and_back_while_a_service_writes(live: BinlogShop) -> None:
    with live.project.beside("relay", live.job), writing(live) as written:
        for _ in range(2):
            time.sleep(2)
            live.project.done("capture", "install", live.job, "--by", "triggers")
            assert live.triggers() > 0
            time.sleep(2)
            live.install()
            assert live.triggers() == 0
        time.sleep(3)
        until(lambda: written[0] > 100, "the service has written")
    live.relay()
    live.verify()


def test_a_server_that_crashes(live: BinlogShop) -> None:
    """The relay that runs meanwhile opens the log again."""
    with live.project.beside("relay", live.job):
        changes(live)
        time.sleep(2)
        server = int((engine_home() / "mysql.pid").read_text())
        os.kill(server, signal.SIGKILL)
        # The next one takes its socket only when nothing of it is left.
        until(lambda: not psutil.pid_exists(server), "the server has ended")
        subprocess.run([ROOT / ".ci" / "engine", "mysql"], check=True, stdout=subprocess.DEVNULL)
        live.sql(
            "SET GLOBAL binlog_row_metadata = FULL",
            "UPDATE customer SET email = 'crash@x.example' WHERE id = 9",
        )
        is_there = "EMAIL#crash@x.example"
        until(
            lambda: any(item.get("PK") == is_there for item in live.project.items()), "the change is an item"
        )
    live.relay()
    live.verify()


def test_a_commit_that_nobody_sees_yet_leaves_no_mark_yet(live: BinlogShop) -> None:
    """It is in the log, and waits for a replica: who reads its row finds it as it was before."""
    with reader_of(live) as reader:
        assert reader.turn()
        service = threading.Thread(
            target=live.sql, args=["UPDATE customer SET email = 'late@x.example' WHERE id = 1"]
        )
        with waiting_commits(live):
            service.start()
            email = "SELECT email FROM customer WHERE id = 1"
            in_log = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for semi-sync%'"
            until(lambda: live.rows(in_log) == [(1,)], "the commit waits")
            end = time.monotonic() + 2
            while time.monotonic() < end:
                assert reader.turn()
                assert live.count_of_marks() == 0
                time.sleep(0.05)
            assert live.rows(email) == [("n1@x.example",)]
        service.join()
        until(lambda: reader.turn() and live.count_of_marks() > 0, "the mark is there")
    live.relay()
    live.verify()


@contextmanager
def waiting_commits(shop: BinlogShop) -> Iterator[None]:
    """Commits are in the log, and wait for a replica that there is not."""
    shop.sql("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    try:
        shop.sql(
            "SET GLOBAL rpl_semi_sync_source_timeout = 60000, rpl_semi_sync_source_wait_no_replica = ON,"
            " rpl_semi_sync_source_enabled = ON"
        )
        yield
    finally:
        shop.sql("SET GLOBAL rpl_semi_sync_source_enabled = OFF", "UNINSTALL PLUGIN rpl_semi_sync_source")
