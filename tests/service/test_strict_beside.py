"""Strict services when DynamoDB refuses, time runs out, or others write: backfills, relays, a second service."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from migrator.runtime.errors import StoppedError
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.forking import Python
from tests.service.killed import before
from tests.service.shop import Order, Shop, User
from tests.service.test_outbox import a_user
from tests.service.test_strict_kills import comes_to_rest

pytestmark = [pytest.mark.slow, pytest.mark.engines("postgresql", "mariadb")]
# What depends on no engine is tried on one.
POSTGRESQL, MARIADB = pytest.mark.engines("postgresql"), pytest.mark.engines("mariadb")
Sessions = sessionmaker[Session]
LONGEST_S = 5.0
"""Far more than a transaction takes on a busy machine."""


@pytest.fixture(autouse=True)
def _ripe_soon(shop: Shop) -> None:
    """A pre-mark waits for the longest transaction, and for twice what a request may last."""
    shop.job.write_text(shop.job.read_text().replace("request_life_s: 1,", "request_life_s: 0.3,"))


@contextmanager
def strict_service(shop: Shop, *, name: str = "shop", longest_s: float = LONGEST_S) -> Iterator[Sessions]:
    """Sessions of a service of its own, whose writes are strict."""
    engine = sa.create_engine(shop.engine.url, isolation_level="READ COMMITTED")
    sessions = sessionmaker(engine)
    with shop.migration(service=name) as migration:
        migration.dual_write(
            sessions, mode="strict", longest_transaction_s=longest_s, longest_write_s=longest_s
        )
        yield sessions
    engine.dispose()


@contextmanager
def behind_a_proxy(shop: Shop) -> Iterator[Faults]:
    """The faults of the one way that the job has to DynamoDB; none yet."""
    faults, job = Faults(), shop.job.read_text()
    endpoint = str(shop.store.client.meta.endpoint_url)
    with FaultProxy(endpoint, faults) as proxy:
        shop.job.write_text(job.replace(endpoint, proxy.url))
        yield faults
        shop.job.write_text(job)


@contextmanager
def command(shop: Shop, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command of ours at work in a process of its own."""
    line, pipe = ["-m", "migrator", *words, shop.job], subprocess.PIPE
    with Python(line, cwd=shop.folder, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def waited_for(what: Callable[[], object], limit_s: float = 120) -> None:
    ends_at = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < ends_at, "what was waited for did not come"
        time.sleep(0.05)


def renamed(sessions: Sessions, number: int, name: str, email: str | None = None) -> None:
    with sessions.begin() as session:
        user = session.get_one(User, number)
        user.name, user.email = name, email or user.email


def add_slowly(sessions: Sessions, user: User, wait_s: float) -> None:
    """A transaction that lasts so much longer after its change."""
    with sessions.begin() as session:
        session.add(user)
        session.flush()
        time.sleep(wait_s)


def name_of(shop: Shop, number: int) -> str:
    with Session(shop.engine) as session:
        return session.get_one(User, number).name


# ── DynamoDB refuses ──


@pytest.mark.parametrize("fault", ["unavailable", "throttle", "cut_before", "cut_after"])
def test_a_write_that_dynamodb_does_not_take_is_rolled_back(shop: Shop, fault: str) -> None:
    with behind_a_proxy(shop) as faults, strict_service(shop) as sessions:
        with sessions.begin() as session:
            session.add(a_user(1, orders=[Order(id=10, total=5)]))
        setattr(faults, fault, 1.0)
        with pytest.raises(StoppedError):
            renamed(sessions, 1, "Ada", email="ada@example.com")
        with pytest.raises(StoppedError, match="did not answer a commit before this one"):
            renamed(sessions, 1, "Ada", email="ada@example.com")
        assert name_of(shop, 1) == "User 1"
        setattr(faults, fault, 0.0)
        # This service rests now; another one goes on as if nothing had been.
        with strict_service(shop, name="other") as others:
            renamed(others, 1, "Bob")
        assert shop.items()["USER#1", "META"]["name"] == "Bob"
    assert faults.counts[fault]
    comes_to_rest(shop)


# ── time runs out ──


def test_transaction_over_its_time_limit_commits_nothing(shop: Shop) -> None:
    with strict_service(shop) as sessions:
        with pytest.raises(StoppedError, match="longest_transaction_s"):
            add_slowly(sessions, a_user(1), LONGEST_S)
        assert shop.items() == {}
        assert shop.marks() == 0
        with sessions.begin() as session:
            assert session.get(User, 1) is None
            session.add(a_user(1))
        assert ("USER#1", "META") in shop.items()
    comes_to_rest(shop)


def test_slow_writes_are_stopped_rolled_back_and_repaired(shop: Shop) -> None:
    def many(first: int) -> list[Order]:
        return [Order(id=first + number, total=5) for number in range(300)]

    with behind_a_proxy(shop) as faults:
        with strict_service(shop, name="before", longest_s=120) as sessions:
            began_at = time.monotonic()
            add_slowly(sessions, a_user(2, orders=many(1000)), 0)
            # However busy the machine is, a third of this is time enough to reach the first request.
            longest_s = 5 + 3 * (time.monotonic() - began_at)
        before = shop.items()
        # One request for the ticket, then ten at a time: half as long again at least.
        faults.late, faults.late_s = 1.0, longest_s / 20
        with (
            strict_service(shop, longest_s=longest_s) as sessions,
            pytest.raises(StoppedError, match="longest_transaction_s"),
        ):
            add_slowly(sessions, a_user(1, orders=many(10)), 0)
        faults.late = 0.0
        assert shop.items().keys() - before.keys(), "nothing was half done, so nothing is shown here"
    with Session(shop.engine) as session:
        assert session.get(User, 1) is None
    shop.ripen_marks()
    comes_to_rest(shop)
    assert shop.items().keys() == before.keys()


# ── others write ──


def test_two_strict_services_on_one_row_end_with_the_last_commit(shop: Shop) -> None:
    with (
        strict_service(shop, name="one") as one,
        strict_service(shop, name="two") as two,
    ):
        with one.begin() as session:
            session.add_all([a_user(1), a_user(2)])

        def write(sessions: Sessions, who: str) -> None:
            for number in range(8):
                with sessions.begin() as session:
                    user = session.get_one(User, 1, with_for_update=True)
                    user.name, user.email = f"{who} {number}", f"{who}{number}@example.com"

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(write, one, "one"), pool.submit(write, two, "two")]:
                done.result()
        items = shop.items()
        assert items["USER#1", "META"]["name"] == name_of(shop, 1)
        assert sum(key.startswith("EMAIL#") for key, _ in items) == 2
    comes_to_rest(shop)


def test_two_strict_services_change_one_item_by_their_own_rows(shop: Shop) -> None:
    with (
        strict_service(shop, name="one") as one,
        strict_service(shop, name="two") as two,
    ):
        with one.begin() as session:
            session.add(a_user(1))

        def place(sessions: Sessions, first: int) -> None:
            for number in range(first, first + 8):
                with sessions.begin() as session:
                    session.add(Order(id=number, user_id=1, total=number))

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(place, one, 100), pool.submit(place, two, 200)]:
                done.result()
    # Neither service could count the orders that the other had not committed yet; the marks tell it to a relay.
    comes_to_rest(shop)
    assert shop.items()["USER#1", "META"]["orders"] == 16


@POSTGRESQL
def test_fast_backfill_is_fenced_before_a_strict_service_writes(shop: Shop) -> None:
    before(shop.engine, [10 * number for number in range(1, 150)])
    with behind_a_proxy(shop) as faults:
        faults.late, faults.late_s = 1.0, 1.0
        with command(shop, "backfill") as backfill:
            waited_for(shop.items)
            with strict_service(shop) as sessions:
                assert backfill.wait(120) == 3, "it ended before anybody could be in its way"
                assert backfill.stderr is not None
                assert pins.said(backfill.stderr.read())
                faults.late = 0.0
                renamed(sessions, 1490, "Ada")
                again = shop.command("backfill")
                assert (again.code, "path: conditional" in again.out + again.err) == (0, True)
                renamed(sessions, 10, "Bob")
    comes_to_rest(shop)
    items = shop.items()
    assert [items[f"USER#{number}", "META"]["name"] for number in (10, 1490)] == ["Bob", "Ada"]


@MARIADB
def test_strict_service_writes_during_a_conditional_backfill(shop: Shop) -> None:
    before(shop.engine, [10 * number for number in range(1, 60)])
    with strict_service(shop) as sessions, command(shop, "backfill") as backfill:
        for number in range(1, 60):
            renamed(sessions, 10 * number, f"new {number}")
        assert backfill.wait(120) == 0, backfill.stderr.read() if backfill.stderr else ""
    comes_to_rest(shop)
    assert shop.items()["USER#590", "META"]["name"] == "new 59"


@POSTGRESQL
def test_a_strict_service_writes_while_a_relay_runs(shop: Shop) -> None:
    with strict_service(shop) as sessions, command(shop, "relay") as relay:
        with sessions.begin() as session:
            session.add_all([a_user(1), a_user(2)])
        for number in range(15):
            with sessions.begin() as session:
                giver, taker = session.get_one(User, 1 + number % 2), session.get_one(User, 2 - number % 2)
                giver.handle, taker.handle = None, f"h{number}"
                session.add(Order(id=number, user_id=giver.id, total=1))
        assert relay.poll() is None
        assert ("HANDLE#h14", "META") in shop.items()
    comes_to_rest(shop)
