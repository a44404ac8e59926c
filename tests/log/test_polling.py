"""Where a pooler lets no replication connection through, the slot is read by SQL."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from migrator.runtime.retry import Backoff, Retry
from migrator.source.capture.log.postgresql.protocol import PolledSlot, open_stream
from migrator.source.capture.log.postgresql.slot import SlotLog
from migrator.source.capture.log.reader import LogReader
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.sql.transactions import Writing
from tests import support_services as services
from tests.log.shops import WRITES, SlotShop
from tests.log.test_kills import Killed, read_all
from tests.support_pooler import pooler
from tests.support_waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.engines("postgresql")]


@pytest.fixture
def pooled(shop: SlotShop) -> Iterator[SlotShop]:
    """Captured and backfilled through a pooler; the service writes to the server itself."""
    try:
        with pooler(shop.url) as made:
            shop.project.environment["MIGRATOR_SOURCE_URL"] = made.url
            shop.begun()
            yield shop
    except services.MissingPart as missing:
        pytest.skip(str(missing))


def test_changes_become_items_through_a_pooler(pooled: SlotShop) -> None:
    pooled.sql(
        *WRITES, "TRUNCATE events", "INSERT INTO orders SELECT n, 3, n FROM generate_series(1000, 8000) n"
    )
    relayed = pooled.project.done("relay", pooled.job, "--once")
    assert "log_is_polled" in relayed.err
    pooled.verify()
    assert set(pooled.states().values()) == {"captured"}
    # The server need not keep the log any longer.
    assert pooled.lag()["bytes_behind"] < 100_000
    pooled.project.done("capture", "uninstall", pooled.job)
    assert pooled.slots() == []


def test_relays_behind_a_pooler_are_killed_during_writes(pooled: SlotShop) -> None:
    with pooled.writing() as written:
        for turn in range(3):
            relays = [pooled.project.start("relay", pooled.job) for _ in range(2)]
            time.sleep(4 + 0.23 * turn)
            for relay in relays:
                relay.send_signal(signal.SIGKILL)
                relay.communicate()
        until(lambda: written[0] > 100, "the service has written")
    pooled.project.pass_time(3600)
    pooled.come_to_rest()


def test_from_a_polled_log_to_triggers_while_a_service_writes(pooled: SlotShop) -> None:
    """The slot is dropped between two looks of the relay."""
    with pooled.project.beside("relay", pooled.job), pooled.writing() as written:
        time.sleep(3)
        pooled.project.done("capture", "install", pooled.job, "--by", "triggers")
        assert pooled.slots() == []
        time.sleep(2)
        pooled.install()
        time.sleep(3)
        until(lambda: written[0] > 50, "the service has written")
    pooled.come_to_rest()


def test_killed_between_our_commit_and_the_advance_of_the_slot(live: SlotShop) -> None:
    class Unconfirmed(PolledSlot):
        def confirm(self, lsn: int) -> None:
            raise Killed

    live.changes()
    address = Address.of(source_url(live.url))
    with closing(Writing(address, ConnectionOptions(name="reader"), Retry(Backoff(attempts=1)))) as source:
        reader = LogReader(source, SlotLog(source, lambda: Unconfirmed(source)))
        with pytest.raises(Killed):
            reader.turn(reader.ask())
        before = live.count_of_marks()
        assert before > 100
        second = LogReader(source, SlotLog(source, lambda: PolledSlot(source)))
        read_all(second)
        second.close()
        assert live.count_of_marks() == 2 * before
        stream = open_stream(source, address, "reader")
        stream.close()
        assert not isinstance(stream, PolledSlot)
    live.come_to_rest()
