"""The heartbeat of a service's instance: what it does at its start, while it runs, at its end, and in a forked child."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from structlog.testing import capture_logs

from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlInstances
from migrator.mapping.model.instances import Instance, Instances
from migrator.runtime.errors import MigratorError, SettingsError, SourceError, StoppedError
from migrator.runtime.system import birth, visible_processes
from migrator.runtime.values import replace
from migrator.stages.live.instances import FORGOTTEN_S, STRIKE_S, Heartbeat, ServiceRole, this_process
from tests import pins
from tests.fakes.journal import FakeInstances
from tests.support_fence import no_fence
from tests.support_journal_file import journal_in_file
from tests.support_waiting import until

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
    return this_process(service, version, revision="abc")


class Service:
    """A service that writes to SQL."""

    def __init__(self, instances: Instances, look: Look, beat_s: float = BEAT_S, **more: Any) -> None:
        self.heartbeat = Heartbeat(instances, me(), beat_s=beat_s, **more)
        self.role = ServiceRole("dual_write", look, "outbox", "here")
        self._stack = ExitStack()

    def start(self) -> Service:
        self._stack.enter_context(self.heartbeat.playing(self.role))
        return self

    def stop(self) -> None:
        self._stack.close()

    def check(self) -> None:
        self.heartbeat.check(self.role)


@contextmanager
def running(instances: Instances, look: Look, beat_s: float = BEAT_S, **more: Any) -> Iterator[Service]:
    made = Service(instances, look, beat_s, **more).start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def instances() -> FakeInstances:
    return FakeInstances(time.time)


@pytest.fixture
def look() -> Look:
    return Look()


@pytest.fixture
def beating(instances: FakeInstances, look: Look) -> Iterator[Service]:
    with running(instances, look) as made:
        yield made


def faulty(beating: Service) -> bool:
    try:
        beating.check()
    except MigratorError:
        return True
    return False


def test_instance_registers_renews_and_deregisters(instances: FakeInstances, look: Look) -> None:
    with running(instances, look) as beating:
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


def test_unfit_service_fails_at_the_start_and_registers_nothing(instances: FakeInstances, look: Look) -> None:
    look.wrong = SettingsError("capture is not installed")
    with pins.refused(SettingsError):
        Service(instances, look).start()
    assert instances.known() == []


def test_a_journal_that_is_away_at_the_start_is_an_error(instances: FakeInstances, look: Look) -> None:
    instances.away = StoppedError("the journal does not answer")
    with pytest.raises(StoppedError):
        Service(instances, look).start()


def test_journal_outage_after_the_start_is_logged_once(
    instances: FakeInstances, look: Look, beating: Service
) -> None:
    with capture_logs() as logged:
        instances.away = StoppedError("the journal does not answer")
        looks = look.calls
        until(lambda: look.calls > looks + 5)
        beating.check()
        instances.away = None
        last = beating.heartbeat.me.alive_at
        until(lambda: beating.heartbeat.me.alive_at > last)
    assert [line["event"] for line in logged] == ["instance_cannot_look"]


def test_lost_fit_fails_each_write_until_restored(look: Look, beating: Service) -> None:
    beating.check()
    look.wrong = SettingsError("capture was taken away")
    until(lambda: faulty(beating))
    for _ in range(2):
        with pins.refused(SettingsError):
            beating.check()
    look.wrong = None
    until(lambda: not faulty(beating))


def test_unreachable_source_neither_causes_nor_clears_a_fault(look: Look, beating: Service) -> None:
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
def test_a_heartbeat_that_has_died_is_not_silent(look: Look, beating: Service) -> None:
    look.wrong = ZeroDivisionError("a bug")
    until(lambda: faulty(beating))
    with pins.refused(StoppedError):
        beating.check()


def test_instance_silent_for_a_day_is_forgotten_at_next_start(look: Look) -> None:
    now = [1000.0]
    instances = FakeInstances(lambda: now[0])
    instances.enter(me())
    now[0] += FORGOTTEN_S + 1
    with running(instances, look, 60):
        assert len(instances.known()) == 1


# ── one instance a process ──


def said(instances: Instances) -> list[tuple[str, str, str]]:
    return [(one.role, one.mode, one.installation) for one in instances.known()]


def test_writing_and_reading_process_is_one_instance_with_roles(journal: SqlJournal, look: Look) -> None:
    instances = SqlInstances(journal.database, "shop")
    with running(instances, look, 60) as service:
        (first,) = instances.known()
        assert said(instances) == [("dual_write", "outbox", "here")]
        with service.heartbeat.playing(ServiceRole("read", lambda: None)):
            assert said(instances) == [("dual_write,read", "outbox", "here")]
            assert [(one.reads, one.marks, one.id) for one in instances.known()] == [(True, True, first.id)]
            strict = ServiceRole("dual_write", no_fence, "strict", "here")
            with service.heartbeat.playing(strict):
                assert said(instances) == [("dual_write,read", "strict", "here")]
            service.stop()
            assert said(instances) == [("read", "", "")]
    assert instances.known() == []


def test_a_process_that_begins_again_is_a_new_instance(instances: FakeInstances, look: Look) -> None:
    service = Service(instances, look)
    with service.heartbeat.playing(ServiceRole("read", lambda: None)):
        (first,) = instances.known()
    with service.heartbeat.playing(ServiceRole("read", lambda: None)):
        (second,) = instances.known()
        until(lambda: instances.known()[0].alive_at > second.alive_at)
    assert first.id != second.id
    assert instances.known() == []


def test_lost_fit_of_a_role_fails_only_its_own_writes(instances: FakeInstances, look: Look) -> None:
    other = Look()
    with running(instances, look) as service:
        strict = ServiceRole("dual_write", other, "strict", "here")
        with service.heartbeat.playing(strict):
            other.wrong = SettingsError("the relay works by another mapping")
            until(lambda: strict.fault is not None)
            service.check()
            with pins.refused(SettingsError):
                service.heartbeat.check(strict)


def test_a_role_that_does_not_fit_leaves_the_others_as_they_are(instances: FakeInstances, look: Look) -> None:
    wrong = Look()
    wrong.wrong = SettingsError("no")
    with running(instances, look) as service:
        with (
            pytest.raises(SettingsError),
            service.heartbeat.playing(ServiceRole("dual_write", wrong, "strict")),
        ):
            pass
        assert said(instances) == [("dual_write", "outbox", "here")]
        service.check()


# ── processes that have ended, and those that were only frozen ──


def ended_process() -> tuple[int, str]:
    """The number of a process that has ended, and when it began."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = birth(child.pid)
    child.kill()
    child.wait()
    return child.pid, born


needs_proc = pytest.mark.skipif(
    not visible_processes(), reason="this system does not say which processes one sees"
)


@needs_proc
def test_process_deregisters_a_killed_one_of_its_machine(journal: SqlJournal, look: Look) -> None:
    instances = SqlInstances(journal.database, "shop")
    pid, born = ended_process()
    killed = instances.enter(replace(me("another"), pid=pid, born=born))
    assert instances.known() == [killed]
    with running(instances, look, 60) as service:
        assert [one.id for one in instances.known()] == [service.heartbeat.me.id]


@needs_proc
def test_a_process_looks_for_the_dead_periodically_while_it_runs(
    instances: FakeInstances, look: Look
) -> None:
    now = [0.0]
    with running(instances, look, clock=lambda: now[0]) as service:
        pid, born = ended_process()
        instances.enter(replace(me(), pid=pid, born=born))
        now[0] = STRIKE_S
        until(lambda: [one.id for one in instances.known()] == [service.heartbeat.me.id])


@needs_proc
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"sees": "elsewhere", "pid": 2**22 + 1},
        {"sees": "", "pid": 2**22 + 1},
        {"born": "", "pid": 2**22 + 1},
    ],
    ids=["lives", "machine-container", "say-sees", "when-began"],
)
def test_a_silent_process_is_not_deregistered_that(
    changed: dict[str, Any], look: Look, instances: FakeInstances
) -> None:
    silent = instances.enter(replace(me(), **changed))
    with running(instances, look, 60):
        assert silent in instances.known()


def test_a_process_that_was_frozen_looks_before_its_next_write(instances: FakeInstances, look: Look) -> None:
    now = [0.0]
    with running(instances, look, 3600, silent_s=30, clock=lambda: now[0]) as service:
        look.wrong, now[0] = SettingsError("every pattern is complete"), 29.9
        service.check()
        now[0] = 30.0
        with pins.refused(SettingsError):
            service.check()


def test_frozen_process_continues_if_its_look_fails(instances: FakeInstances, look: Look) -> None:
    now = [0.0]
    with running(instances, look, 3600, silent_s=30, clock=lambda: now[0]) as service:
        look.wrong, now[0] = StoppedError("the journal is away"), 100.0
        before = look.calls
        service.check()
        service.check()
        # One look for each freeze: a journal that is away must not hold up every write.
        assert look.calls == before + 1


def test_one_of_many_writes_after_a_freeze_looks_and_all_wait(instances: FakeInstances, look: Look) -> None:
    now = [0.0]
    with running(instances, look, 3600, silent_s=30, clock=lambda: now[0]) as service:
        look.wrong, now[0] = SettingsError("every pattern is complete"), 100.0
        before, refused = look.calls, []

        def write() -> None:
            if faulty(service):
                refused.append(1)

        threads = [Thread(target=write) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(120)
        assert (len(refused), look.calls) == (8, before + 1)


@pytest.mark.parametrize("name", ["", "  ", "\n"])
def test_a_service_without_a_name_is_refused(name: str) -> None:
    with pins.refused(SettingsError):
        me(name)


def test_service_fields_fit_a_line_and_a_column() -> None:
    said = me("shop\x1b[31m\0\n\ud800" + "x" * 500, "1\t2")
    assert said.service.isprintable()
    assert len(said.service) == 100
    assert said.version == "1?2"


@pytest.fixture(params=["file", "postgresql", "mariadb"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal]:
    servers = {"postgresql": "postgres_database", "mariadb": "mysql_database"}
    file = request.param == "file"
    made = (
        journal_in_file(tmp_path / "j.db")
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
def test_forked_child_is_its_own_instance(journal: SqlJournal, look: Look) -> None:
    instances = SqlInstances(journal.database, "shop")
    with running(instances, look, 0.05) as beating:

        def work() -> None:
            until(lambda: len(instances.known()) == 2)
            found = {one.pid: one for one in instances.known()}
            assert set(found) == {os.getpid(), os.getppid()}
            until(lambda: beating.heartbeat.me.alive_at > found[os.getpid()].alive_at)
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
def test_stopped_heartbeat_does_not_restart_in_a_child(instances: FakeInstances, look: Look) -> None:
    with running(instances, look):
        pass
    looks = look.calls

    def work() -> None:
        time.sleep(0.1)
        assert look.calls == looks
        assert instances.known() == []

    assert in_child(work) == 0
    gc.collect()


def test_writers_wait_briefly_for_a_stalled_heartbeat() -> None:
    instances, look = FakeInstances(time.time), Look()
    asking, answered, later = Event(), Event(), [0.0]

    def waits() -> None:
        look()
        if look.calls > 1:
            asking.set()
            answered.wait(60)

    made = Service(instances, look, clock=lambda: time.monotonic() + later[0])
    made.role.look = waits
    made.start()
    try:
        assert asking.wait(120)
        later[0] = 100.0  # more than the time after which what is known is old
        writer = Thread(target=made.check)
        writer.start()
        writer.join(120)
        assert not writer.is_alive()
        assert not answered.is_set()
    finally:
        answered.set()
        made.stop()


def test_role_begun_while_the_last_one_ends_has_a_heartbeat() -> None:
    look = Look()
    leaving, left = Event(), Event()

    class Slow(FakeInstances):
        def leave(self, instance: Instance) -> None:
            leaving.set()
            left.wait(30)
            super().leave(instance)

    instances = Slow(time.time)
    made = Service(instances, look).start()
    ending = Thread(target=made.stop)
    ending.start()
    assert leaving.wait(120)
    other = ServiceRole("read", look)
    with made.heartbeat.playing(other):
        left.set()
        ending.join(120)
        known = look.calls
        until(lambda: look.calls > known + 1)
        made.heartbeat.check(other)
        assert [one.role for one in instances.known()] == ["read"]
    assert instances.known() == []
