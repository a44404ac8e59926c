"""What goes wrong around a service's dual writes: loud at the start, clean in a transaction, never silent."""

from __future__ import annotations

import os
import threading
import time

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from migrator.api import Migration
from migrator.runtime.errors import MigratorError, SettingsError, SourceError, UnmarkedError
from tests import pins
from tests.service.shop import Order, Shop, User
from tests.service.test_outbox import a_user

pytestmark = pytest.mark.slow


def edited(shop: Shop, old: str, new: str) -> None:
    text = shop.job.read_text()
    assert old in text
    shop.job.write_text(text.replace(old, new))


# ── at the start ──


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("job", ["no-such-job.yaml", "."])
def test_a_job_that_is_none(shop: Shop, job: str) -> None:
    with pins.refused(SettingsError):
        Migration.load(shop.folder / job)


@pytest.mark.engines("sqlite")
def test_a_journal_that_is_away(shop: Shop) -> None:
    edited(shop, f"sqlite:///{shop.folder}/journal.db", "postgresql://root@127.0.0.1:1/none")
    with pins.refused(MigratorError), shop.migration() as migration:
        migration.dual_write(shop.sessions)


def test_capture_that_is_not_installed(shop: Shop) -> None:
    shop.done("capture", "uninstall")
    with shop.migration() as migration, pins.refused(SettingsError):
        migration.dual_write(shop.sessions)


@pytest.mark.engines("sqlite")
def test_what_makes_no_sessions(shop: Shop) -> None:
    with shop.migration() as migration:
        for wrong in ("Session", 3, None, object(), User):
            with pins.refused(SettingsError, "sessionmaker"):
                migration.dual_write(wrong)
        with pins.refused(SettingsError, "outbox"):
            migration.dual_write(shop.sessions, mode="paranoid", unknown_rows="ok")  # type: ignore[arg-type]
        for seconds in ("2", None, float("nan")):
            with pins.refused(SettingsError, "seconds"):
                migration.dual_write(shop.sessions, longest_write_s=seconds)  # type: ignore[arg-type]
        with pins.refused(SettingsError, "empty"):
            migration.dual_write([])


@pytest.mark.engines("sqlite")
def test_an_engine_of_another_database(shop: Shop) -> None:
    other = sa.create_engine("sqlite://")
    with other.begin() as connection:
        connection.execute(sa.text("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)"))
    with shop.migration() as migration:
        migration.dual_write(other)
        with pins.refused(UnmarkedError), other.begin() as connection:
            connection.execute(sa.text("INSERT INTO users (id, name) VALUES (1, 'Ada')"))
    other.dispose()


@pytest.mark.engines("sqlite")
def test_two_migrations_on_one_session(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as one, shop.migration() as other:
        one.dual_write(sessions)
        with pins.refused(SettingsError):
            other.dual_write(sessions)
        one.close()
        other.dual_write(sessions)
        with sessions.begin() as session:
            session.add(a_user(1))
    assert shop.marks() == 1


@pytest.mark.engines("postgresql", "sqlite")
def test_a_service_of_another_mapping_than_the_relays(shop: Shop) -> None:
    shop.done("relay", "--once")
    mapping = shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("keep: [total]", "keep: [total, id]"))
    with shop.migration() as migration, pins.refused(SettingsError):
        migration.dual_write(shop.sessions)
    shop.done("relay", "--once")
    with shop.migration() as migration:
        migration.dual_write(shop.sessions)


# ── later ──


def test_capture_that_is_taken_away_stops_the_service(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions)
        with sessions.begin() as session:
            session.add(a_user(1))
        assert "shop" in shop.command("capture", "uninstall").err
        shop.done("capture", "uninstall", "--force", "--discard-marks")
        # By the mark that cannot be left, or by the heartbeat, whichever is first.
        gone = pytest.raises((UnmarkedError, SettingsError), match="capture install")
        with gone, sessions.begin() as session:
            session.add(a_user(2))


def test_dynamodb_is_not_missed_in_outbox_mode(shop: Shop) -> None:
    good = shop.job.read_text()
    endpoint = next(part for part in good.split("'") if part.startswith("http"))
    edited(shop, endpoint, "http://127.0.0.1:1")
    with shop.migration() as migration:
        sessions = shop.sessions
        migration.dual_write(sessions)
        with sessions.begin() as session:
            session.add(a_user(1))
    shop.job.write_text(good)
    assert shop.marks() == 1
    shop.comes_to_rest()


@pytest.mark.engines("sqlite", "postgresql")
def test_a_table_without_a_model_is_marked_anyway(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions)
        with sessions.begin() as session:
            session.execute(sa.text("INSERT INTO nodes (id, slug) VALUES (1, 'root')"))
        assert shop.marks() == 1
        shop.comes_to_rest()


def test_a_service_that_forks_after_load(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions)
        with sessions.begin() as session:
            session.add(a_user(1))
        child = os.fork()
        if not child:
            code = 1
            try:
                # As SQLAlchemy wants it of every service.
                shop.engine.dispose(close=False)
                with sessions.begin() as session:
                    session.add(a_user(2))
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        with sessions.begin() as session:
            session.add(a_user(3))
        assert shop.marks() == 3
        shop.comes_to_rest()


def test_sessions_of_many_threads(shop: Shop) -> None:
    sessions, wrong = shop.sessions, []

    def work(number: int) -> None:
        try:
            for one in range(5):
                with sessions.begin() as session:
                    session.add(a_user(number * 10 + one))
        except Exception as error:
            wrong.append(error)

    with shop.migration() as migration:
        migration.dual_write(sessions)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert shop.marks() == 20
    shop.comes_to_rest()


@pytest.mark.engines("postgresql")
def test_session_shared_by_two_threads_marks_its_commits(shop: Shop) -> None:
    with shop.migration() as migration:
        migration.dual_write(shop.engine)
        with Session(shop.engine) as session:
            threads = [threading.Thread(target=lambda n=n: session.add(a_user(n))) for n in (1, 2)]
            for thread in threads:
                thread.start()
                thread.join()
            session.commit()
        assert shop.marks() == 2


@pytest.mark.engines("sqlite")
def test_sessions_that_find_their_engine_late(shop: Shop) -> None:
    sessions = sessionmaker()
    with shop.migration() as migration:
        migration.dual_write(sessions)
        for number in (1, 2):
            with sessions(bind=shop.engine) as session:
                session.add(a_user(number))
                session.commit()
        assert shop.marks() == 2


def test_a_statement_whose_rows_are_not_known(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions, unknown_rows="lock")
        with pins.refused(UnmarkedError), sessions.begin() as session:
            session.execute(sa.text("INSERT INTO orders (id, user_id, total) SELECT id, id, 1 FROM users"))
        with sessions.begin() as session:
            by_hand = {"migrator_marked": True}
            session.execute(sa.text("DELETE FROM orders"), execution_options=by_hand)
            session.execute(sa.select(Order)).all()
        assert shop.marks() == 0


@pytest.mark.engines("postgresql")
def test_user_without_rights_on_our_tables_gets_the_grants(shop: Shop) -> None:
    with shop.engine.begin() as connection:
        for statement in (
            "DROP ROLE IF EXISTS migrator_test_plain",
            "CREATE ROLE migrator_test_plain",
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO migrator_test_plain",
        ):
            connection.execute(sa.text(statement))
    try:
        with shop.migration() as migration:
            migration.dual_write(shop.engine)
            with shop.engine.connect() as connection:
                connection.execute(sa.text("SET LOCAL ROLE migrator_test_plain"))
                with pytest.raises(UnmarkedError, match="GRANT SELECT"):
                    connection.execute(sa.text("INSERT INTO users (id, name) VALUES (1, 'Ada')"))
    finally:
        with shop.engine.begin() as connection:
            connection.execute(sa.text("DROP OWNED BY migrator_test_plain"))
            connection.execute(sa.text("DROP ROLE migrator_test_plain"))


@pytest.mark.engines("sqlite", "postgresql")
@pytest.mark.parametrize("by", ["services", "triggers"])
def test_change_unfit_at_the_commit_is_not_committed(shop: Shop, by: str) -> None:
    """As of a process that was frozen between its statement and its commit, while others went on without it."""
    if by == "triggers":
        shop.done("capture", "install")
    with shop.migration() as migration:
        migration.dual_write(shop.sessions)
        (role,) = migration._service.heartbeat._roles
        with pins.refused(SettingsError), shop.sessions.begin() as session:
            session.execute(sa.text("INSERT INTO users (id, name) VALUES (77, 'Ada')"))
            role.fault = SettingsError("every pattern is complete")
        role.fault = None
        with shop.engine.connect() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM users WHERE id = 77")).scalar() == 0
    assert shop.marks() == 0


@pytest.mark.engines("sqlite")
def test_the_heartbeat_finds_what_no_longer_fits(shop: Shop) -> None:
    with shop.migration() as migration:
        migration.dual_write(shop.sessions)
        assert "shop" in shop.done("status")
        shop.done("capture", "uninstall", "--force")
        ends_at = time.monotonic() + 120
        while time.monotonic() < ends_at:
            try:
                with shop.sessions.begin() as session:
                    session.execute(sa.update(User).where(User.id == 99).values(name="nobody"))
            except (SettingsError, UnmarkedError, SourceError):
                return
            time.sleep(0.2)
    raise AssertionError("a service went on without capture")
