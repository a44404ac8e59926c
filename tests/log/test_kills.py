"""Readers of the log that are killed at each step, that meet each other, and whose server goes away: nothing is lost."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from migrator.source.capture.log.reader import LogPlace, LogReader, LogStream, Position, Received
from tests.log.shops import LogShop
from tests.support_waiting import until

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """The process ends here."""


class Ending:
    """Before a LogStream's class: it ends after so many receipts, or before a confirmation."""

    receipts = 10**9
    confirms = True

    def receive(self, wait_s: float) -> Received | None:
        type(self).receipts -= 1
        if self.receipts < 0:
            raise Killed
        return super().receive(wait_s)  # type: ignore[misc,no-any-return]

    def confirm(self, position: Any) -> None:
        if not self.confirms:
            raise Killed
        super().confirm(position)  # type: ignore[misc]


@contextmanager
def ending_reader(shop: LogShop, **limits: object) -> Iterator[LogReader]:
    with shop.open_reader() as reader:
        opens = reader.log.open

        def opening(place: LogPlace) -> LogStream:
            stream = opens(place)
            stream.__class__ = type("EndingStream", (Ending, type(stream)), limits)
            return stream

        reader.log.open = opening  # type: ignore[method-assign]
        yield reader


def is_killed(reader: LogReader, wanted: Position) -> bool:
    try:
        reader.turn(wanted)
    except Killed:
        return True
    return False


def has_passed(reader: LogReader, wanted: Position) -> bool:
    place = reader.place()
    return place is not None and bool(place.position >= wanted)


def read_all(reader: LogReader) -> None:
    wanted = reader.ask()
    until(lambda: reader.turn(wanted) and has_passed(reader, wanted), "it has read all")


def test_killed_between_our_commit_and_the_confirmation(live: LogShop) -> None:
    """PostgreSQL sends what it was not told of again: marks are doubled, which does no harm. MySQL is asked for what comes
    after our position, which was stored with the marks."""
    live.changes()
    with ending_reader(live, confirms=False) as reader, pytest.raises(Killed):
        reader.turn(reader.ask())
    before = live.count_of_marks()
    assert before > 100
    with live.open_reader() as reader:
        read_all(reader)
    assert live.count_of_marks() == live.copies * before
    live.come_to_rest()


@pytest.mark.parametrize("receipts", [1, 3, 5, 9, 14, 20, 30, 60, 100])
def test_killed_while_it_reads(live: LogShop, receipts: int) -> None:
    live.changes()
    with ending_reader(live, receipts=receipts) as reader:
        wanted = reader.ask()
        until(lambda: is_killed(reader, wanted), "it is killed")
    live.come_to_rest()


def test_a_second_reader_stands_aside(live: LogShop) -> None:
    with live.open_reader() as first, live.open_reader() as second:
        assert first.turn()
        assert live.lag()["has_reader"]
        assert not second.turn()
        live.changes()
        # What the second one asks for the first one copies.
        wanted = second.ask()
        while not second.turn() and not has_passed(second, wanted):
            first.turn()
        first.close()
        until(second.turn, "the second one reads")
    until(lambda: not live.lag()["has_reader"], "no reader has the log")
    live.come_to_rest()


def test_reader_with_a_terminated_connection_stores_nothing(live: LogShop) -> None:
    """It thaws after another one went on: its older position would pass by nothing, and the log is the other one's."""
    with live.open_reader() as first, live.open_reader() as second:
        assert first.turn()
        live.changes()
        live.sql(*(live.kill.format(id_) for id_ in live.firsts(live.reader_ids)))
        until(second.turn, "the second one reads")
        read_all(second)
        before = live.count_of_marks()
        first.turn()
        assert live.count_of_marks() == before
    live.come_to_rest()


def test_relays_that_are_killed_while_a_service_writes(live: LogShop) -> None:
    """Whenever it comes: SIGKILL of two relays, four times."""
    with live.writing() as written:
        for turn in range(4):
            relays = [live.project.start("relay", live.job) for _ in range(2)]
            time.sleep(1.5 + 0.23 * turn)
            for relay in relays:
                relay.send_signal(signal.SIGKILL)
                relay.communicate()
        until(lambda: written[0] > 300, "the service has written")
    live.project.pass_time(3600)
    live.come_to_rest()


def test_log_to_triggers_and_back_while_a_service_writes(live: LogShop) -> None:
    """A relay runs all the time: it gives the log up, and opens it again."""
    with live.project.beside("relay", live.job), live.writing() as written:
        for _ in range(2):
            time.sleep(2)
            live.project.done("capture", "install", live.job, "--by", "triggers")
            assert live.of_the_log() == []
            assert live.rows(live.triggers)
            time.sleep(2)
            live.install()
            assert live.rows(live.triggers) == []
        time.sleep(6)
        until(lambda: written[0] > 300, "the service has written")
    live.come_to_rest()


def test_a_server_that_crashes(live: LogShop) -> None:
    """The relay that runs meanwhile opens the log again."""
    with live.project.beside("relay", live.job):
        live.changes()
        time.sleep(2)
        live.server.crash()
        live.server.start()
        live.sql("UPDATE customer SET email = 'crash@x.example' WHERE id = 9")
        until(lambda: "crash@x.example" in live.emails(), "the change is an item")
    live.come_to_rest()


def test_commit_that_is_not_visible_yet_leaves_no_mark_yet(live: LogShop) -> None:
    """It is in the log, and waits for a replica: who reads its row finds it as it was before."""
    update = "UPDATE customer SET email = 'late@x.example' WHERE id = 1"
    service = threading.Thread(target=live.sql, args=[update])
    with live.open_reader() as reader:
        assert reader.turn()
        with live.waiting_commits():
            service.start()
            until(lambda: len(live.rows(live.waiting)) == 1, "the commit waits")
            end = time.monotonic() + 3
            while time.monotonic() < end:
                assert reader.turn()
                assert live.count_of_marks() == 0
                time.sleep(0.1)
            assert live.firsts("SELECT email FROM customer WHERE id = 1") == ["n1@x.example"]
        service.join()
        until(lambda: reader.turn() and live.count_of_marks() > 0, "the mark is there")
    live.come_to_rest()
