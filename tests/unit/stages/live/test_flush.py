"""A flush is best effort, and costs a service nothing while DynamoDB is away."""

from __future__ import annotations

from structlog.testing import capture_logs

from migrator.model.errors import TargetError
from migrator.model.instances import Lifetimes
from migrator.model.live import Change
from migrator.stages.live.relay import Relay
from migrator.stages.live.service import REST_S, Flush, LeftToTheRelay
from migrator.stages.live.writers import SharedLeases, WriterHeartbeats
from tests.fakes.journal import FakeRevisions, FakeWriters, RevisionBook
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
    leases = SharedLeases(heartbeats, "relay", lambda: now[0], lambda: None)
    flush = Flush(MemoryMarks(), away, leases, LeftToTheRelay(), lambda: now[0])
    changes = [Change("customer", None, {"id": "integer:1"})]
    for now[0] in (0.0, 1.0, REST_S - 1, REST_S, REST_S + 1):
        assert not flush(changes)
    assert tried == [0.0, REST_S]


def test_a_service_of_another_mapping_writes_nothing_and_says_it_once() -> None:
    now, book = [0.0], RevisionBook()
    FakeRevisions(book, "newer").register()
    writers = FakeWriters(lambda: now[0])
    heartbeats = WriterHeartbeats(
        writers, FakeRevisions(book, "own"), Lifetimes(), lambda: now[0], all_answered
    )
    leases = SharedLeases(heartbeats, "relay", lambda: now[0], lambda: None)
    made: list[float] = []

    def relay() -> Relay:
        made.append(now[0])
        raise AssertionError

    flush = Flush(MemoryMarks(), relay, leases, LeftToTheRelay(lambda: now[0]), lambda: now[0])
    with capture_logs() as logs:
        for now[0] in (0.0, 1.0, REST_S, 2 * REST_S):
            assert not flush([Change("customer", None, {"id": "integer:1"})])
    assert (made, writers.living(30.0)) == ([], [])
    assert [one["event"] for one in logs] == ["left_to_the_relay"]
