"""A log that is lost: a relay stops, and an install with `verify --repair` makes it good."""

from __future__ import annotations

import pytest

from tests.log.shops import BinlogShop, LogShop, SlotShop
from tests.support_waiting import until

pytestmark = pytest.mark.slow

DROP_SLOT = "SELECT pg_drop_replication_slot('{0}')"
LOST = {
    "postgresql": {
        "dropped": [DROP_SLOT],
        "made again": [DROP_SLOT, "SELECT pg_create_logical_replication_slot('{0}', 'pgoutput')"],
        "moved on": ["SELECT pg_replication_slot_advance('{0}', pg_current_wal_lsn())"],
        "unpublished": ["DROP PUBLICATION {0}", "UPDATE customer SET name = 'nor this' WHERE id = 2"],
        "published again": [
            "DROP PUBLICATION {0}",
            "UPDATE customer SET name = 'nor this' WHERE id = 2",
            "CREATE PUBLICATION {0} FOR TABLE customer, orders, events",
        ],
    },
    "mysql": {
        "purged": ["FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE now() + INTERVAL 1 DAY"],
        "reset": ["RESET BINARY LOGS AND GTIDS"],
        "another server": [
            "UPDATE migrator_log SET gtids = concat(gtids, ',7e11fa47-31ca-19e1-9e56-c43aa21293f2:1-5')"
        ],
    },
}
"""By engine and what happened, the statements; {0} is the name of slot and publication."""


def lose(live: LogShop, how: str) -> None:
    live.sql(*(statement.format(live.name) for statement in LOST[live.engine][how]))


def is_told_and_made_good(live: LogShop) -> None:
    assert set(live.states().values()) == {"lost"}
    assert "lost: " in live.project.run("capture", "status", live.job).out
    ended = live.project.run("relay", live.job, "--once")
    assert ended.code == 2
    assert "migrator capture install" in " ".join(ended.err.split())
    again = live.project.done("capture", "install", live.job)
    assert "there is a new one" in " ".join(again.err.split())
    assert "nothing to change" not in again.out
    assert set(live.states().values()) == {"captured"}
    assert live.project.run("verify", live.job, "--repair").code in (0, 1)
    live.come_to_rest()


@pytest.mark.engines("postgresql")
@pytest.mark.parametrize("how", LOST["postgresql"])
def test_a_lost_slot_stops_the_relay(live: SlotShop, how: str) -> None:
    live.sql("UPDATE customer SET name = 'never seen' WHERE id = 1")
    lose(live, how)
    is_told_and_made_good(live)


@pytest.mark.engines("mysql")
@pytest.mark.parametrize("how", LOST["mysql"])
def test_a_lost_binary_log_stops_the_relay(live: BinlogShop, how: str) -> None:
    live.sql("UPDATE customer SET name = 'never seen' WHERE id = 1")
    lose(live, how)
    is_told_and_made_good(live)


def test_a_relay_that_runs_stops_when_its_log_is_lost(live: LogShop) -> None:
    relay = live.project.start("relay", live.job)
    until(lambda: live.lag()["has_reader"], "the relay reads the log")
    lose(live, {"postgresql": "published again", "mysql": "reset"}[live.engine])
    _, err = relay.communicate(timeout=60)
    assert relay.returncode == 3
    assert "so changes may be missing; run `migrator capture install" in err
    is_told_and_made_good(live)


@pytest.mark.engines("postgresql")
def test_a_server_that_keeps_too_little_log(live: SlotShop) -> None:
    note = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 5000) n)"
    with live.setting("max_slot_wal_keep_size", "1MB"):
        for _ in range(4):
            live.sql(f"UPDATE customer SET note = {note}", "SELECT pg_switch_wal()")
        live.sql("CHECKPOINT")
        assert "max_slot_wal_keep_size" in live.project.run("capture", "status", live.job).out
    is_told_and_made_good(live)
