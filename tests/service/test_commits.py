"""What is refused is not committed, now or later; and what a service asks of its database stays what it was."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from migrator.api import Migration
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError, UnmarkedError
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.service.shop import Shop, User
from tests.service.test_outbox import a_user
from tests.support_waiting import until

SERVERS = pytest.mark.engines("postgresql", "mariadb")
INSERT = sa.text("INSERT INTO users (id, name) VALUES (:id, 'Ada')")
COUNT = sa.text("SELECT COUNT(*) FROM users")


@contextmanager
def behind(shop: Shop, faults: Faults) -> Iterator[Migration]:
    """A migration whose DynamoDB is behind a proxy with faults."""
    good = shop.job.read_text()
    endpoint = next(part for part in good.split("'") if part.startswith("http"))
    with FaultProxy(endpoint, faults) as proxy:
        shop.job.write_text(good.replace(endpoint, proxy.url))
        try:
            with shop.migration() as migration:
                yield migration
        finally:
            shop.job.write_text(good)


# ── refused commits ──


@SERVERS
def test_refused_commit_is_rolled_back_on_a_reused_connection(shop: Shop) -> None:
    faults = Faults()
    with behind(shop, faults) as migration, shop.engine.connect() as connection:
        migration.dual_write(shop.engine, mode="strict", longest_transaction_s=5, longest_write_s=120)
        faults.errors = 1.0
        connection.execute(INSERT, {"id": 1})
        with pytest.raises(MigratorError):
            connection.commit()
        connection.rollback()
        assert connection.execute(COUNT).scalar() == 0
        connection.rollback()
        faults.errors = 0.0

        def commits() -> bool:
            connection.execute(INSERT, {"id": 2})
            try:
                connection.commit()
            except StoppedError:
                connection.rollback()
                return False
            return True

        # Strict rests for a while after DynamoDB did not answer.
        until(commits, "a commit that DynamoDB answers", pause_s=0.5)
        assert connection.execute(COUNT).scalar() == 1
    assert ("USER#2", "META") in shop.items()


@SERVERS
def test_outage_holds_a_transaction_no_longer_than_its_limit(shop: Shop) -> None:
    faults, text = Faults(), shop.job.read_text()
    shop.job.write_text(
        text.replace("attempts: 4", "attempts: 50").replace("give_up_after_s: 3", "give_up_after_s: 60")
    )
    with behind(shop, faults) as migration:
        migration.dual_write(shop.engine, mode="strict", longest_transaction_s=2, longest_write_s=120)
        faults.errors = 1.0
        started = time.monotonic()
        with pytest.raises(MigratorError), shop.engine.begin() as connection:
            connection.execute(INSERT, {"id": 1})
        assert time.monotonic() - started < 40


def test_change_with_a_failed_mark_is_not_committed_if_caught(shop: Shop) -> None:
    with shop.migration() as migration:
        migration.dual_write(shop.engine)
        with shop.engine.begin() as connection:
            connection.execute(INSERT, {"id": 1})
        mark = "migrator.mark" if shop.engine_name == "postgresql" else "migrator_mark"
        with shop.engine.begin() as connection:
            connection.execute(sa.text(f"DROP TABLE {mark}"))
        with shop.engine.connect() as connection:
            with pins.refused(UnmarkedError, "gone"):
                connection.execute(INSERT, {"id": 2})
            with pins.refused(UnmarkedError):
                connection.commit()
            connection.rollback()
            assert connection.execute(COUNT).scalar() == 1
            connection.rollback()
            with suppress(UnmarkedError), connection.begin(), connection.begin_nested():
                connection.execute(INSERT, {"id": 3})
            with connection.begin():
                with suppress(UnmarkedError), connection.begin_nested():
                    connection.execute(INSERT, {"id": 4})
                # What failed is undone, and the rest may be committed.
                connection.execute(sa.text("CREATE TABLE others (id INTEGER PRIMARY KEY)"))
            assert connection.execute(COUNT).scalar() == 1


# ── forks ──


@SERVERS
def test_a_strict_service_forks_after_it_has_written(shop: Shop) -> None:
    shop.job.write_text(shop.job.read_text().replace("silent_s: 60", "silent_s: 5"))
    with shop.migration() as migration:
        migration.dual_write(shop.sessions, mode="strict", longest_write_s=120)
        with shop.sessions.begin() as session:
            session.add_all([a_user(1), a_user(2)])
        child = os.fork()
        if not child:
            signal.alarm(30)
            code = 1
            try:
                shop.engine.dispose(close=False)
                for number in (3, 5, 7):
                    with shop.sessions.begin() as session:
                        session.add_all([a_user(number), a_user(number + 1)])
                    # Longer than a writer may be silent (5 s) in all: another thread beats for the child.
                    time.sleep(2)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        with shop.sessions.begin() as session:
            session.add(a_user(9))
    assert {("USER#8", "META"), ("USER#9", "META")} <= shop.items().keys()
    shop.comes_to_rest()


# ── what a service sees of its own statements ──


@pytest.mark.engines("mariadb")
def test_the_last_id_that_the_database_made_stays_the_services(shop: Shop) -> None:
    with shop.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE others (id INTEGER PRIMARY KEY AUTO_INCREMENT, note TEXT)"))
        connection.execute(sa.text("ALTER TABLE others AUTO_INCREMENT = 500"))
    with shop.migration() as migration:
        migration.dual_write(shop.engine)
        with shop.engine.begin() as connection:
            connection.execute(sa.text("INSERT INTO others (note) VALUES ('x')"))
            connection.execute(INSERT, {"id": 1})
            assert connection.execute(sa.text("SELECT LAST_INSERT_ID()")).scalar() == 500


def test_counts_of_rows_are_what_they_were(shop: Shop) -> None:
    serial = {"postgresql": "SERIAL PRIMARY KEY", "mariadb": "INTEGER PRIMARY KEY AUTO_INCREMENT"}
    with shop.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE nodes"))
        key = serial.get(shop.engine_name, "INTEGER PRIMARY KEY")
        connection.execute(
            sa.text(f"CREATE TABLE nodes (id {key}, parent_id INTEGER, slug VARCHAR(80) NOT NULL)")
        )
    with shop.migration() as migration:
        migration.dual_write(shop.engine, unknown_rows="lock")
        with shop.engine.begin() as connection:
            insert = sa.text("INSERT INTO nodes (slug) VALUES (:slug)")
            assert connection.execute(insert, [{"slug": one} for one in "abc"]).rowcount == 3
            one = connection.execute(insert, {"slug": "d"})
            assert (one.rowcount, one.returns_rows) == (1, False)
            assert connection.execute(sa.text("UPDATE nodes SET slug = 'x' WHERE slug < 'c'")).rowcount == 2
            assert connection.execute(sa.text("DELETE FROM nodes")).rowcount == 4
        assert shop.marks() == 10


# ── flush ──


@pytest.mark.engines("sqlite")
def test_failed_flush_never_undoes_the_commit(shop: Shop) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("nobody thought of this")

    with shop.migration() as migration:
        migration.dual_write(shop.sessions, flush=True)
        events = migration._service.session.target.store.client.meta.events
        events.register("before-send.dynamodb.PutItem", broken)
        with shop.sessions.begin() as session:
            session.add(a_user(1))
        events.unregister("before-send.dynamodb.PutItem", broken)
    assert shop.marks() == 1


@pytest.mark.engines("sqlite")
def test_flush_needs_sessions(shop: Shop) -> None:
    with shop.migration() as migration, pins.refused(SettingsError):
        migration.dual_write(shop.engine, flush=True)


# ── and more ──


def test_autocommit_is_allowed_if_triggers_leave_the_marks(triggered_shop: Shop) -> None:
    engine = triggered_shop.engine.execution_options(isolation_level="AUTOCOMMIT")
    with triggered_shop.migration() as migration:
        migration.dual_write(engine)
        with engine.connect() as connection:
            connection.execute(INSERT, {"id": 1})
    assert triggered_shop.marks() == 1


@SERVERS
def test_change_marked_by_hand_is_written_before_a_strict_commit(shop: Shop) -> None:
    with shop.migration() as migration:
        migration.dual_write(shop.sessions, mode="strict", longest_write_s=120)
        with shop.sessions.begin() as session, migration.changing(session, "users", 1):
            by_hand = {"migrator_marked": True}
            session.execute(
                sa.text("INSERT INTO users (id, name) SELECT 1, 'Ada'"), execution_options=by_hand
            )
        assert ("USER#1", "META") in shop.items()
        raw = shop.engine.raw_connection()
        with pins.refused(UnmarkedError):
            migration.mark_changed(
                raw.driver_connection, "users", None, {"id": 1, "email": None, "handle": None}
            )
        raw.close()


def test_a_block_that_fails_is_marked_anyway(shop: Shop) -> None:
    with shop.migration() as migration, Session(shop.engine) as session:
        migration.begin_marking()
        with suppress(KeyError), migration.changing(session, "users", 1):
            session.execute(INSERT, {"id": 1})
            raise KeyError
        session.commit()
    assert shop.marks() == 1


@pytest.mark.engines("sqlite")
def test_sessions_that_are_named_twice_are_listened_to_once(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        for _ in range(2):
            writing = migration.dual_write([sessions, sessions, shop.engine])
            with sessions.begin() as session:
                session.execute(sa.update(User).where(User.id == 1).values(name="x"))
            writing.close()
