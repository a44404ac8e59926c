"""A standby takes over, with the slot (PostgreSQL 17 and newer) or without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.shops import SlotShop, engine_home
from tests.support_standby import Binaries, standby_of
from tests.support_waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.engines("postgresql")]
STANDBY = "standby_of_the_tests"


@contextmanager
def standby(shop: SlotShop, *, keeps_slots: bool) -> Iterator[SlotShop]:
    """The same database on a standby."""
    version = shop.rows("SHOW server_version")[0][0].split(".")[0]
    root = engine_home() / ("trixie" if version == "17" else "sid")
    binaries = Binaries(Path(f"/usr/lib/postgresql/{version}/bin"), root)
    names = (
        "wal_level",
        "max_connections",
        "max_wal_senders",
        "max_replication_slots",
        "max_prepared_transactions",
    )
    settings = [f"{name}={shop.rows(f'SHOW {name}')[0][0]}" for name in names]
    settings += [
        "hot_standby_feedback=on",
        "dynamic_shared_memory_type=mmap",
        f"sync_replication_slots={keeps_slots}",
    ]
    try:
        with standby_of(shop.url, *settings, slot=STANDBY, binaries=binaries) as url:
            shop.sql(f"ALTER SYSTEM SET synchronized_standby_slots = '{STANDBY}'", "SELECT pg_reload_conf()")
            yield replace(shop, url=url)
    finally:
        shop.sql("ALTER SYSTEM RESET synchronized_standby_slots", "SELECT pg_reload_conf()")
        has_ended = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{STANDBY}'"
        until(lambda: shop.rows(has_ended) == [(False,)], "the standby is gone")
        shop.sql(f"SELECT pg_drop_replication_slot('{STANDBY}')")


def has_slot(there: SlotShop, primary: SlotShop) -> bool:
    """Whether the standby has it for good. It takes it over once the primary's is as far as the standby's log is."""
    primary.sql("SELECT pg_log_standby_snapshot()")
    primary.relay()
    found = there.rows(
        "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_type = 'logical'"
    )
    return found == [(True,)]


def promoted(there: SlotShop, primary: SlotShop) -> None:
    """It has all that the primary has, and takes over."""
    end = primary.rows("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    until(lambda: there.firsts(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == [True], "it has replayed")
    there.sql("SELECT pg_promote()")
    there.project.environment["MIGRATOR_SOURCE_URL"] = there.url
    there.project.done("recover", there.job, "renamed")


def test_a_slot_on_the_standby_continues(live: SlotShop) -> None:
    live.sql("UPDATE customer SET email = 'one@x.example' WHERE id = 1")
    with standby(live, keeps_slots=True) as there:
        until(lambda: has_slot(there, live), "the standby has the slot")
        live.sql(
            "UPDATE customer SET email = 'two@x.example' WHERE id = 2", "DELETE FROM customer WHERE id = 3"
        )
        promoted(there, live)
        assert set(there.states().values()) == {"captured"}
        there.sql(
            "UPDATE customer SET email = 'three@x.example' WHERE id = 4", "DELETE FROM orders WHERE id = 7"
        )
        there.come_to_rest()
        assert {"two@x.example", "three@x.example"} <= there.emails()


def test_a_slot_that_the_standby_does_not_have_is_lost(live: SlotShop) -> None:
    with standby(live, keeps_slots=False) as there:
        live.sql(
            "UPDATE customer SET email = 'two@x.example' WHERE id = 2", "DELETE FROM customer WHERE id = 3"
        )
        promoted(there, live)
        assert set(there.states().values()) == {"lost"}
        assert there.project.run("relay", there.job, "--once").code == 2
        there.install()
        assert there.project.run("verify", there.job, "--repair").code == 1
        there.come_to_rest()
