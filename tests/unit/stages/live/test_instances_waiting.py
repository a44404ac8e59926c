"""The heartbeat of an instance while its journal is slow: no caller waits for long, and every role keeps its heartbeat."""

from __future__ import annotations

import time
from threading import Event, Thread

from migrator.model.instances import Instance
from migrator.stages.live.instances import Role
from tests.fakes.journal import FakeInstances
from tests.unit.stages.live.test_instances import Look, Service, until


def test_writers_wait_a_moment_for_a_heart_that_waits_for_its_journal_and_go_on() -> None:
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


def test_a_role_that_begins_while_the_last_one_ends_has_a_heart_that_beats() -> None:
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
    other = Role("read", look)
    with made.heartbeat.playing(other):
        left.set()
        ending.join(120)
        known = look.calls
        until(lambda: look.calls > known + 1)
        made.heartbeat.check(other)
        assert [one.role for one in instances.known()] == ["read"]
    assert instances.known() == []
