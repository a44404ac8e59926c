"""Readers of the log that are killed at each step, that meet each other, and whose server goes away: nothing is lost."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from migrator.source.capture.log.postgresql.protocol import Received, SlotStream
from migrator.source.capture.log.reader import LogReader
from tests.log.conftest import Killed, LogShop, changes, count_of_marks, open_reader, writing
from tests.support_own_server import OwnServer
from tests.support_waiting import until

pytestmark = pytest.mark.slow


class EndingStream(SlotStream):
    """Ends before a confirmation, or after so many messages."""

    confirms = True
    messages = 10**9

    def confirm(self, lsn: int) -> None:
        if not self.confirms:
            raise Killed
        super().confirm(lsn)

    def receive(self, wait_s: float) -> Received | None:
        type(self).messages -= 1
        if self.messages < 0:
            raise Killed
        return super().receive(wait_s)


@contextmanager
def reader_of(shop: LogShop, stream: Callable[..., SlotStream] = SlotStream) -> Iterator[LogReader]:
    with open_reader(shop, stream) as (_, reader):
        yield reader


def test_killed_between_our_commit_and_the_confirmation(live: LogShop) -> None:
    """The server sends what it was not told of again: marks are doubled, which does no harm."""

    class Unconfirmed(EndingStream):
        confirms = False

    changes(live)
    with reader_of(live, Unconfirmed) as reader, pytest.raises(Killed):
        reader.turn(reader.ask())
    before = count_of_marks(live)
    assert before > 100
    with reader_of(live) as reader:
        assert reader.turn(reader.ask())
    assert count_of_marks(live) == 2 * before
    live.relay()
    live.verify()


@pytest.mark.parametrize("messages", [1, 3, 5, 20, 60, 100])
def test_killed_while_it_reads(live: LogShop, messages: int) -> None:
    class Ending(EndingStream):
        pass

    Ending.messages = messages
    changes(live)
    with reader_of(live, Ending) as reader, pytest.raises(Killed):
        reader.turn(reader.ask())
    live.relay()
    live.verify()


def test_a_second_reader_stands_aside(live: LogShop) -> None:
    with reader_of(live) as first, reader_of(live) as second:
        assert first.turn()
        assert not second.turn()
        changes(live)
        # What the second one asks for the first one copies.
        until = second.ask()
        while not second.turn() and position_of(second) < until:
            first.turn()
        first.close()
        time.sleep(1.1)
        assert second.turn()
    live.relay()
    live.verify()


def position_of(reader: LogReader) -> int:
    place = reader.place()
    assert place is not None
    return int(place.position)


def test_relays_that_are_killed_while_a_service_writes(live: LogShop) -> None:
    """Whenever it comes: SIGKILL of two relays, four times."""
    with writing(live) as written:
        for turn in range(4):
            relays = [live.project.start("relay", live.job) for _ in range(2)]
            time.sleep(1.5 + 0.23 * turn)
            for relay in relays:
                relay.send_signal(signal.SIGKILL)
                relay.communicate()
        until(lambda: written[0] > 300, "the service has written")
    live.project.pass_time(3600)
    live.relay()
    live.verify()


def test_from_the_log_to_triggers_and_back_while_a_service_writes(live: LogShop) -> None:
    """A relay runs all the time: it gives the slot up, and opens the new one."""
    with live.project.beside("relay", live.job), writing(live) as written:
        for _ in range(2):
            time.sleep(2)
            live.project.done("capture", "install", live.job, "--by", "triggers")
            assert live.slots() == []
            time.sleep(2)
            live.install()
            assert live.rows("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == [(0,)]
        time.sleep(6)
        until(lambda: written[0] > 300, "the service has written")
    live.relay()
    live.verify()


def test_a_server_that_crashes(live: LogShop, log_server: OwnServer) -> None:
    """The relay that runs meanwhile opens the log again."""
    with live.project.beside("relay", live.job):
        changes(live)
        time.sleep(2)
        log_server.crash()
        log_server.start()
        live.sql("UPDATE customer SET email = 'crash@x.example' WHERE id = 9")
        end = time.monotonic() + 40
        while not any(item.get("PK") == "EMAIL#crash@x.example" for item in live.project.items()):
            assert time.monotonic() < end
            time.sleep(0.2)
    live.relay()
    live.verify()


def test_a_commit_that_nobody_sees_yet_leaves_no_mark_yet(live: LogShop) -> None:
    """It is in the log, and waits for a standby: who reads its row finds it as it was before."""
    live.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    service = threading.Thread(
        target=live.sql, args=["UPDATE customer SET email = 'late@x.example' WHERE id = 1"]
    )
    try:
        with reader_of(live) as reader:
            time.sleep(0.5)
            service.start()
            end = time.monotonic() + 3
            while time.monotonic() < end:
                assert reader.turn()
                assert count_of_marks(live) == 0
                time.sleep(0.1)
            with closing(live.connect()) as connection:
                connection.execute("SET synchronous_commit = local")
                connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
                connection.execute("SELECT pg_reload_conf()")
            service.join()
            while not count_of_marks(live):
                assert reader.turn()
    finally:
        live.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        service.join()
    live.relay()
    live.verify()
