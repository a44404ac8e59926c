"""Strict mode: the items are written before the commit, or nothing is committed."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import MigratorError, SettingsError
from tests import pins
from tests.service.shop import Order, Shop, User
from tests.service.test_outbox import a_user

pytestmark = pytest.mark.engines("postgresql", "mariadb")


def test_items_are_there_when_the_commit_is_done(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions, mode="strict", longest_write_s=120)
        with sessions.begin() as session:
            session.add(a_user(1, orders=[Order(id=10, total=5)]))
        assert shop.items()["USER#1", "ORDER#10"]["user_name"] == "User 1"
        with sessions.begin() as session:
            session.get_one(User, 1).email = "other@example.com"
        assert ("EMAIL#other@example.com", "META") in shop.items()
        assert ("EMAIL#u1@example.com", "META") not in shop.items()
        with sessions.begin() as session:
            session.delete(session.get_one(User, 1))
        assert shop.items() == {}
        shop.comes_to_rest()


def test_service_with_an_isolation_hiding_changes_is_refused(shop: Shop) -> None:
    engine = shop.engine.execution_options(isolation_level="REPEATABLE READ")
    with shop.migration() as migration:
        migration.dual_write(engine, mode="strict", longest_write_s=120)
        with pytest.raises(SettingsError, match="READ COMMITTED"), engine.begin() as connection:
            connection.execute(sa.text("INSERT INTO users (id, name) VALUES (1, 'Ada')"))
    assert shop.items() == {}


def test_a_rollback_after_the_items_were_written_is_healed(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions, mode="strict", longest_transaction_s=5, longest_write_s=120)
        with sessions() as session:
            session.add(a_user(1))
            session.flush()
            connection = session.connection()
            connection.dispatch.commit(connection)
            session.rollback()
        assert ("USER#1", "META") in shop.items()
        shop.ripen_marks()  # the transaction may last for 5 s, its last request for one more
        shop.comes_to_rest()
        assert shop.items() == {}


def test_write_without_dynamodb_fails_and_leaves_nothing(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions, mode="strict", longest_write_s=120)
        shop.store.client.delete_table(TableName=shop.table)
        with pytest.raises(MigratorError), sessions.begin() as session:
            session.add(a_user(1))
        with sessions() as session:
            assert session.get(User, 1) is None


@pytest.mark.engines("postgresql")
def test_job_without_a_connection_per_session_is_refused(shop: Shop) -> None:
    url = shop.job.read_text().split("source: {")[1].split("}")[0]
    shop.job.write_text(shop.job.read_text().replace(url, f"{url}, max_connections: 15"))
    with shop.migration() as migration:
        with pins.refused(SettingsError):
            migration.dual_write(shop.sessions, mode="strict", longest_write_s=120)
        migration.dual_write(shop.sessions)


@pytest.mark.engines("sqlite")
def test_sqlite_is_refused(shop: Shop) -> None:
    with shop.migration() as migration, pins.refused(SettingsError):
        migration.dual_write(shop.sessions, mode="strict", longest_write_s=120)
