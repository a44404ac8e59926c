"""Reads that are asked wrongly, and reads whose journal or index is not there."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from migrator.journal.schema import phase as phases
from migrator.journal.writers import SqlInstances
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError, TargetError, amount
from tests import pins
from tests.faults.tcp import TcpWay, tcp_way
from tests.service.reading import ReadShop, open_read_shop, seen
from tests.support_capture import new_sqlite

pytestmark = pytest.mark.engines("sqlite")


WRONG_CALLS: list[tuple[Any, dict[str, Any], str]] = [
    (None, {}, "an access pattern is named by a text; this NoneType is none"),
    (["by_status"], {}, "this list is none"),
    ("recent_orders", {"user_id": 10**30}, "parameter 'user_id' is an integer beyond 64 bits"),
    ("recent_orders", {"user_id": 2**63}, "an integer that SQLite cannot hold"),
    ("recent_order", {}, "the mapping has no access pattern 'recent_order'; did you mean 'recent_orders'?"),
    ("recent_orders", {"usr_id": 1}, "recent_orders has no parameter 'usr_id'; did you mean 'user_id'?"),
    ("recent_orders", {}, "parameter 'user_id' (integer) is missing"),
    ("recent_orders", {"user_id": "1"}, "parameter 'user_id' is of type integer, not a str"),
    ("recent_orders", {"user_id": None}, "parameter 'user_id' is of type integer, not a None"),
    ("by_status", {"status": b"open"}, "parameter 'status' is of type text, not a bytes"),
    # Only a request would find it, and SQL answers: it is refused all the same.
    ("recent_orders", {"user_id": 1, "limit": 0}, "the limit must be a whole number above 0"),
]


def test_a_wrong_call_names_its_fault(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        for pattern, params, said in WRONG_CALLS:
            with pytest.raises(SettingsError) as error:
                migration.read(pattern, **params)
            assert said in str(error.value)


@pytest.mark.parametrize(("columns", "count"), [("id", 1), ("id, user_id, expires_at", 3)])
def test_sql_of_other_columns_than_the_pattern_returns(read_shop: ReadShop, columns: str, count: int) -> None:
    mapping = read_shop.folder / "mapping.yaml"
    asked = "SELECT id, user_id FROM sessions"
    mapping.write_text(mapping.read_text().replace(asked, f"SELECT {columns} FROM sessions"))
    with read_shop.migration() as migration, pytest.raises(SettingsError) as error:
        migration.read("session_by_id", session_id="new")
    said = f"its SQL gives {amount(count, 'column')}, and it returns 2 attributes: sessionId, user_id"
    assert said in str(error.value)


def test_missing_index_stops_the_start_of_its_reader(read_shop: ReadShop) -> None:
    mapping = read_shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("GSI1", "GSI9"))
    with read_shop.migration() as migration:
        # The table is not read yet.
        migration.begin_reading()
        assert migration.read("by_status", status="sent")
    read_shop.move("shadow")
    with read_shop.migration() as migration:
        with pytest.raises(TargetError) as error:
            migration.begin_reading()
        assert pins.said(str(error.value), "shadow")
        assert pins.said(str(error.value), "check")
        assert SqlInstances(read_shop.journal.database, "reads").known() == []


def test_an_index_that_is_missed_later_is_an_error_of_the_shadow(read_shop: ReadShop) -> None:
    mapping = read_shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("GSI1", "GSI9"))
    with read_shop.migration() as migration:
        migration.begin_reading()
        read_shop.move("shadow")
        seen(migration, "shadow", "by_status")
        assert migration.read("by_status", status="sent")
        read_shop.until(migration, "by_status", lambda one: one.errors.get("table") == 1)


def test_phase_edited_by_hand_stops_a_start_and_no_running_one(read_shop: ReadShop) -> None:
    read_shop.move("shadow")
    with read_shop.migration() as migration:
        migration.begin_reading()
        with read_shop.journal.database.begin() as connection:
            connection.execute(sa.update(phases).values(phase="live"))
        time.sleep(0.3)
        assert migration._reads().reads.phases.state("recent_orders").phase == "shadow"
        with read_shop.migration() as other, pins.refused(SettingsError):
            other.begin_reading()


# ── the journal ──


@pytest.fixture
def far_shop(postgres_database: str, dynamodb_url: str, tmp_path: Path) -> Iterator[tuple[ReadShop, TcpWay]]:
    """Its journal is on a server behind a proxy that can be cut."""
    address = sa.make_url(postgres_database)
    with (
        tcp_way(address.host or "", address.port or 5432) as proxy,
        open_read_shop("sqlite", new_sqlite(tmp_path / "shop.db"), dynamodb_url, tmp_path) as shop,
    ):
        far = address.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        near = f"sqlite:///{tmp_path}/journal.db"
        shop.job.write_text(shop.job.read_text().replace(near, far))
        yield shop, proxy


def test_a_journal_that_is_away_stops_a_start_and_later_nothing(far_shop: tuple[ReadShop, TcpWay]) -> None:
    shop, proxy = far_shop
    with capture_logs() as logs, shop.migration() as migration:
        assert len(migration.read("recent_orders", user_id=2)) == 10
        proxy.cut()
        ends_at = time.monotonic() + 120
        while not [one for one in logs if one["event"] == "phases_cannot_be_read"]:
            assert len(migration.read("recent_orders", user_id=2)) == 10
            assert time.monotonic() < ends_at
            time.sleep(0.01)
        said = next(one for one in logs if one["event"] == "phases_cannot_be_read")
        assert said["kept"] == pins.text()
        took = [_took(lambda: migration.read("recent_orders", user_id=2)) for _ in range(50)]
        # Those that waited for the journal would do so for give_up_after_s; a busy machine holds up single ones.
        assert median(took) < 2.5
        # Once a minute, not once a look.
        assert len([one for one in logs if one["event"] == "phases_cannot_be_read"]) == 1
        with pytest.raises(MigratorError) as error, shop.migration() as other:
            other.begin_reading()
        assert isinstance(error.value, StoppedError)
        answered = len(took)
        proxy.mend()
        ledger = migration._reads().reads.ledger
        ends_at = time.monotonic() + 120
        while True:
            try:
                ledger.flush()
                break
            except StoppedError:
                assert time.monotonic() < ends_at
                time.sleep(0.1)
        # Nothing that was counted meanwhile is lost.
        total = sum(one.answered.get("sql", 0) for one in ledger.evidence.windows(0))
        assert total > answered


def _took(work: Any) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


# ── instances ──


def test_reader_is_an_instance_and_confirms_its_phase_versions(read_shop: ReadShop) -> None:
    instances = SqlInstances(read_shop.journal.database, "reads")
    with read_shop.migration(version="1.4.2") as migration:
        assert instances.known() == []
        migration.begin_reading()
        (me,) = instances.known()
        assert (me.service, me.role, me.mode, me.version) == ("shop", "read", "", "1.4.2")
        for phase in ("shadow", "off"):
            read_shop.move(phase, 0, "by_status")
            seen(migration, phase, "by_status")
            version = read_shop.phases.all()["by_status"].version
            ends_at = time.monotonic() + 120
            while read_shop.phases.confirmed().get(me.id, {}).get("by_status") != version:
                assert time.monotonic() < ends_at
                time.sleep(0.02)
    assert instances.known() == []


def test_forked_child_reads_and_counts_separately(read_shop: ReadShop) -> None:
    read_shop.move("shadow")
    with read_shop.migration() as migration:
        migration.read("recent_orders", user_id=2)
        read_shop.until(migration, "recent_orders", lambda one: one.same == 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ledger = migration._reads().reads.ledger
                ends_at = time.monotonic() + 120
                while time.monotonic() < ends_at and not ledger.writer():
                    time.sleep(0.02)
                assert len(migration.read("recent_orders", user_id=2)) == 10
                time.sleep(0.3)
                ledger.flush()
                code = 0
            finally:
                os._exit(code)
        ends_at = time.monotonic() + 120
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > ends_at:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
        assert ended[1] == 0
        migration.read("recent_orders", user_id=2)
        found = read_shop.until(migration, "recent_orders", lambda one: one.same == 3)
        assert found.answered == {"sql": 3, "table": 3}


def test_what_is_closed_answers_no_more(read_shop: ReadShop) -> None:
    """It would act by the phases that it knew last, and no move waits for an instance that said goodbye."""
    migration = read_shop.migration()

    @migration.pattern("by_status")
    def by_status(status: str) -> Any:
        return []

    migration.begin_reading()
    assert by_status(status="open") == []
    assert len(migration.read("recent_orders", user_id=2)) == 10
    asyncio.run(migration.read_async("recent_orders", user_id=2))
    migration.close()
    for ask in (
        lambda: migration.read("recent_orders", user_id=2),
        lambda: migration.read_page("recent_orders", user_id=2),
        lambda: asyncio.run(migration.read_async("recent_orders", user_id=2)),
        lambda: asyncio.run(migration.read_page_async("recent_orders", user_id=2)),
        lambda: by_status(status="open"),
        migration.phases,
        migration.begin_reading,
        migration.begin_marking,
        lambda: migration.dual_write(read_shop.engine),
        lambda: migration.mark_changed(None, "orders", None, {"id": 1}),
    ):
        with pins.refused(SettingsError):
            ask()
    # Once more does no harm.
    migration.close()
