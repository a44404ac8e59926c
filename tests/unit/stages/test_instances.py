"""The heartbeat of a service's instance: what it does at its start, while it runs, at its end, and in a forked child."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from migrator.errors import MigratorError, SettingsError, SourceError, StoppedError
from migrator.journal.instances import SqlInstances
from migrator.journal.store import SqlJournal
from migrator.ports.instances import Instance
from migrator.stages.instances import FORGOTTEN_S, Heartbeat, this_process
from tests.fakes.journal import FakeInstances

BEAT_S = 0.01


class Look:
    """What a service looks at; a test may break it."""

    def __init__(self) -> None:
        self.wrong: BaseException | None = None
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.wrong is not None:
            raise self.wrong


def me(service: str = "shop", version: str = "1.4.2") -> Instance:
    return this_process(service, version, "dual_write", "outbox", revision="abc", installation="here")


def until(holds: Callable[[], bool], limit_s: float = 10) -> None:
    ends_at = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < ends_at
        time.sleep(0.005)


@pytest.fixture
def instances() -> FakeInstances:
    return FakeInstances(time.time)


@pytest.fixture
def look() -> Look:
    return Look()


@pytest.fixture
def beating(instances: FakeInstances, look: Look) -> Iterator[Heartbeat]:
    with Heartbeat(instances, me(), look, BEAT_S) as made:
        yield made


def faulty(beating: Heartbeat) -> bool:
    try:
        beating.check()
    except MigratorError:
        return True
    return False


def test_an_instance_is_registered_renewed_and_says_goodbye(instances: FakeInstances, look: Look) -> None:
    with Heartbeat(instances, me(), look, BEAT_S) as beating:
        (first,) = instances.known()
        assert (first.service, first.pid, first.role, first.mode) == (
            "shop",
            os.getpid(),
            "dual_write",
            "outbox",
        )
        until(lambda: instances.known()[0].alive_at > first.alive_at)
        beating.check()
    assert instances.known() == []
    beating.stop()


def test_what_does_not_fit_at_the_start_is_an_error_and_registers_nothing(
    instances: FakeInstances, look: Look
) -> None:
    look.wrong = SettingsError("capture is not installed")
    with pytest.raises(SettingsError, match="not installed"):
        Heartbeat(instances, me(), look, BEAT_S).start()
    assert instances.known() == []


def test_a_journal_that_is_away_at_the_start_is_an_error(instances: FakeInstances, look: Look) -> None:
    instances.away = StoppedError("the journal does not answer")
    with pytest.raises(StoppedError):
        Heartbeat(instances, me(), look, BEAT_S).start()


def test_a_journal_that_goes_away_later_is_logged_once_and_is_no_fault(
    instances: FakeInstances, look: Look, beating: Heartbeat
) -> None:
    with capture_logs() as logged:
        instances.away = StoppedError("the journal does not answer")
        looks = look.calls
        until(lambda: look.calls > looks + 5)
        beating.check()
        instances.away = None
        last = beating.me.alive_at
        until(lambda: beating.me.alive_at > last)
    assert [line["event"] for line in logged] == ["instance_cannot_look"]


def test_what_fits_no_longer_fails_the_next_write_until_it_fits_again(look: Look, beating: Heartbeat) -> None:
    beating.check()
    look.wrong = SettingsError("capture was taken away")
    until(lambda: faulty(beating))
    for _ in range(2):
        with pytest.raises(SettingsError, match="taken away"):
            beating.check()
    look.wrong = None
    until(lambda: not faulty(beating))


def test_a_source_that_cannot_be_asked_is_no_fault_and_mends_none(look: Look, beating: Heartbeat) -> None:
    look.wrong = SourceError("the source is away")
    calls = look.calls
    until(lambda: look.calls > calls + 3)
    beating.check()
    look.wrong = SettingsError("capture was taken away")
    until(lambda: faulty(beating))
    look.wrong = SourceError("the source is away")
    calls = look.calls
    until(lambda: look.calls > calls + 3)
    assert faulty(beating)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_heartbeat_that_has_died_is_not_silent(look: Look, beating: Heartbeat) -> None:
    look.wrong = ZeroDivisionError("a bug")
    until(lambda: faulty(beating))
    with pytest.raises(StoppedError, match="nobody looks whether its changes are marked"):
        beating.check()


def test_who_was_silent_for_a_day_is_forgotten_at_the_next_start(look: Look) -> None:
    now = [1000.0]
    instances = FakeInstances(lambda: now[0])
    instances.enter(me())
    now[0] += FORGOTTEN_S + 1
    with Heartbeat(instances, me(), look, 60):
        assert len(instances.known()) == 1


@pytest.mark.parametrize("name", ["", "  ", "\n"])
def test_a_service_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="give it one"):
        me(name)


def test_what_a_service_says_of_itself_fits_a_line_and_a_column() -> None:
    said = me("shop\x1b[31m\0\n\ud800" + "x" * 500, "1\t2")
    assert said.service.isprintable()
    assert len(said.service) == 100
    assert said.version == "1?2"


@pytest.fixture(params=["file", "postgresql", "mariadb"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal]:
    servers = {"postgresql": "postgres_database", "mariadb": "mysql_database"}
    file = request.param == "file"
    made = (
        SqlJournal.in_file(tmp_path / "j.db")
        if file
        else SqlJournal(request.getfixturevalue(servers[request.param]))
    )
    yield made
    made.close()


def in_child(work: Callable[[], None]) -> int:
    """How a child's process ended that did the work: 0 where it raised nothing."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.alarm(60)
    try:
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_an_instance_of_its_own(journal: SqlJournal, look: Look) -> None:
    instances = SqlInstances(journal.database, "shop")
    with Heartbeat(instances, me(), look, 0.05) as beating:

        def work() -> None:
            until(lambda: len(instances.known()) == 2)
            found = {one.pid: one for one in instances.known()}
            assert set(found) == {os.getpid(), os.getppid()}
            until(lambda: beating.me.alive_at > found[os.getpid()].alive_at)
            beating.check()
            beating.stop()
            assert [one.pid for one in instances.known()] == [os.getppid()]

        # Often, so that some forks meet a beat that is under way.
        for _ in range(5):
            assert in_child(work) == 0
        (here,) = instances.known()
        until(lambda: instances.known()[0].alive_at > here.alive_at)
        assert here.pid == os.getpid()
    assert instances.known() == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_heartbeat_that_has_stopped_does_not_begin_again_in_a_child(
    instances: FakeInstances, look: Look
) -> None:
    with Heartbeat(instances, me(), look, BEAT_S):
        pass
    looks = look.calls

    def work() -> None:
        time.sleep(0.1)
        assert look.calls == looks
        assert instances.known() == []

    assert in_child(work) == 0
    gc.collect()
