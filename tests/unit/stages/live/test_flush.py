"""A flush is best effort, and costs a service nothing while DynamoDB is away."""

from __future__ import annotations

from migrator.model.errors import TargetError
from migrator.model.instances import Lifetimes
from migrator.model.live import Change
from migrator.stages.live.relay import Relay
from migrator.stages.live.service import REST_S, Flush
from migrator.stages.live.writers import SharedLeases, WriterHeartbeats
from tests.fakes.journal import FakeRevisions, FakeWriters
from tests.fakes.marks import MemoryMarks
from tests.support_fence import all_answered


def test_after_a_failure_it_rests_and_then_tries_again() -> None:
    now, tried = [0.0], list[float]()

    def away() -> Relay:
        tried.append(now[0])
        raise TargetError("DynamoDB is away")

    heartbeats = WriterHeartbeats(
        FakeWriters(lambda: now[0]), FakeRevisions(), Lifetimes(), lambda: now[0], all_answered
    )
    flush = Flush(
        MemoryMarks(), away, SharedLeases(heartbeats, "relay", lambda: now[0], lambda: None), lambda: now[0]
    )
    changes = [Change("customer", None, {"id": "integer:1"})]
    for now[0] in (0.0, 1.0, REST_S - 1, REST_S, REST_S + 1):
        assert not flush(changes)
    assert tried == [0.0, REST_S]
