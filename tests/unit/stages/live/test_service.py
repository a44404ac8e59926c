"""What a service must be before it may write items: its source, its transactions, its mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from structlog.testing import capture_logs

from migrator.mapping.model.instances import Lifetimes, MarkedColumns, Revision
from migrator.mapping.model.live import Change
from migrator.runtime.errors import AwayError, NeverTakenError, SettingsError, StoppedError, TargetError
from migrator.runtime.retry import Backoff, Retry
from migrator.stages.live.relay import Relay
from migrator.stages.live.service import (
    REST_S,
    BeforeCommit,
    Flush,
    Rest,
    Strict,
    refuse_new_revision,
    refuse_partial_marks,
    refuse_strict,
)
from migrator.stages.live.writers import SharedLeases, WriterHeartbeats
from tests import pins
from tests.fakes.journal import FakeRevisions, FakeWriters, RevisionBook
from tests.fakes.marks import MemoryMarks
from tests.support_fence import all_answered


def test_service_with_a_mapping_unknown_to_relays_does_not_start() -> None:
    for standing in ("first", "newest", "old"):
        refuse_new_revision(standing)
    with pins.refused(SettingsError):
        refuse_new_revision("new")


USERS = MarkedColumns(("id", "email"), ("id", "email", "name"))


@pytest.mark.parametrize(
    ("newest", "unmarked"),
    [
        ({"users": USERS}, []),
        ({"users": MarkedColumns(("id",), ("id", "name"))}, []),
        ({"users": USERS, "orders": USERS}, ["orders"]),
        ({"users": MarkedColumns(("id", "name"), ("id", "name"))}, ["users.name"]),
        ({"users": MarkedColumns(("id",), ("id", "city"))}, ["users.city"]),
        ({"users": MarkedColumns(("id",), None)}, ["users.*"]),
        (None, None),
    ],
)
def test_columns_missing_from_a_services_marks_are_known(
    newest: dict[str, MarkedColumns] | None, unmarked: list[str] | None
) -> None:
    own = Revision("own", "own", marked={"users": USERS, "more": USERS})
    assert Revision("new", "new", marked=newest).unmarked_by(own) == unmarked
    if unmarked == []:
        refuse_partial_marks(unmarked)
    else:
        with pins.refused(SettingsError):
            refuse_partial_marks(unmarked)
    every = Revision("own", "own", marked={"users": MarkedColumns(("id", "email", "name"), None)})
    assert every.unmarked_by(Revision("own", "own", marked={"users": USERS})) == ["users.*", "users.name"]


def test_strict_mode_needs_a_server_and_a_connection_per_session() -> None:
    refuse_strict("outbox", is_file=True, max_connections=1, sessions=9)
    refuse_strict("strict", is_file=False, max_connections=None, sessions=9)
    refuse_strict("strict", is_file=False, max_connections=10, sessions=9)
    with pins.refused(SettingsError, "case"):
        refuse_strict("strict", is_file=True, max_connections=None, sessions=1)
    with pins.refused(SettingsError, "connections"):
        refuse_strict("strict", is_file=False, max_connections=9, sessions=9)


@dataclass
class Connection:
    level: str

    def get_isolation_level(self) -> str:
        return self.level


@dataclass
class Failing:
    error: Exception
    tries: int = 0

    def write_first(self, *words: Any) -> None:
        self.tries += 1
        raise self.error


def before_commit(
    writers: FakeWriters,
    strict: Any = None,
    rest: Rest | None = None,
    longest_write_s: float = 60.0,
    guard: Callable[[], None] = lambda: None,
) -> BeforeCommit:
    strict = strict or Failing(OSError("away"))
    heartbeats = WriterHeartbeats(writers, FakeRevisions(), Lifetimes(), lambda: 0.0, all_answered)
    leases = SharedLeases(heartbeats, "strict", lambda: 0.0, guard)

    @contextmanager
    def inside(connection: Any) -> Iterator[Any]:
        yield connection

    def at_once(work: Callable[[], Any]) -> Any:
        return work()

    return BeforeCommit(strict, leases, inside, at_once, Rest(), longest_write_s, rest or Rest())


def test_transaction_that_cannot_see_other_commits_is_refused() -> None:
    writers = FakeWriters(lambda: 0.0)
    with pins.refused(SettingsError):
        before_commit(writers)(Connection("REPEATABLE READ"), [], 0.0)
    assert not writers.living(30.0)


def test_a_turn_that_fails_is_left_and_the_commit_fails_with_it() -> None:
    stage = before_commit(FakeWriters(lambda: 0.0))
    with pytest.raises(OSError, match="away"):
        stage(Connection("READ COMMITTED"), [], 0.0)
    current = stage.shared_leases._current
    assert current is not None
    assert (current.turns, current.is_clean) == (0, False)
    stage.shared_leases.close()


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (AwayError("no answer"), 2),
        (NeverTakenError("throttled"), 2),
        (StoppedError("too large"), 5),
        (StoppedError("took all of its time"), 2),
    ],
    ids=["away", "throttled", "refused", "late"],
)
def test_strict_commits_rest_after_one_that_was_not_answered(error: StoppedError, tries: int) -> None:
    now, strict = [0.0], Failing(error)
    longest_write_s = 0.0 if "time" in str(error) else 60.0
    stage = before_commit(FakeWriters(lambda: 0.0), strict, Rest(lambda: now[0]), longest_write_s)
    for now[0] in (0.0, 1.0, REST_S - 1, REST_S, REST_S + 1):
        with pytest.raises(StoppedError):
            stage(Connection("READ COMMITTED"), [], 0.0)
    assert strict.tries == tries


class AwayRelay:
    """A relay of a table that does not answer: it retries until the time is over."""

    def refresh(self, root_keys: Any = None) -> None:
        Retry(Backoff(attempts=1000, base_s=0.01, cap_s=0.01)).call("writing", _away, _can_pass)


def _away() -> None:
    raise ConnectionError("away")


def _can_pass(error: BaseException) -> bool:
    return isinstance(error, ConnectionError)


def strict(relay: Any) -> Strict:
    return Strict(
        lambda changes, wait_s: [],
        lambda rows, check: relay,
        Lifetimes(),
        lambda: 0.0,
        lambda: None,
        longest_s=1e6,
    )


@pytest.mark.parametrize("hangs", ["write", "lease"])
def test_a_strict_write_ends_in_its_time_while_the_table_is_away(hangs: str) -> None:
    away = AwayRelay()
    guard = away.refresh if hangs == "lease" else lambda: None
    stage = before_commit(FakeWriters(lambda: 0.0), strict(away), longest_write_s=0.05, guard=guard)
    with pytest.raises(AwayError):
        stage(Connection("READ COMMITTED"), [], 0.0)


def test_after_a_failure_it_rests_and_then_tries_again() -> None:
    now, tried = [0.0], list[float]()

    def away() -> Relay:
        tried.append(now[0])
        raise TargetError("DynamoDB is away")

    heartbeats = WriterHeartbeats(
        FakeWriters(lambda: now[0]), FakeRevisions(), Lifetimes(), lambda: now[0], all_answered
    )
    leases = SharedLeases(heartbeats, "relay", lambda: now[0], lambda: None)
    flush = Flush(MemoryMarks().shown, away, leases, Rest(), Rest(lambda: now[0]))
    changes = [Change("customer", None, {"id": "integer:1"})]
    for now[0] in (0.0, 1.0, REST_S - 1, REST_S, REST_S + 1):
        assert not flush(changes)
    assert tried == [0.0, REST_S]


def test_service_of_another_mapping_writes_nothing_and_logs_once() -> None:
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

    flush = Flush(MemoryMarks().shown, relay, leases, Rest(lambda: now[0]), Rest(lambda: now[0]))
    with capture_logs() as logs:
        for now[0] in (0.0, 1.0, REST_S, 2 * REST_S):
            assert not flush([Change("customer", None, {"id": "integer:1"})])
    assert (made, writers.living(30.0)) == ([], [])
    assert [one["event"] for one in logs] == ["left_to_the_relay"]
