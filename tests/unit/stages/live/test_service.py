"""What a service must be before it may write items: its source, its transactions, its mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from migrator.model.errors import SettingsError, StoppedError
from migrator.model.instances import Lifetimes, MarkedColumns, Revision
from migrator.model.live import ChangeMarks
from migrator.runtime.retry import Backoff, Retry
from migrator.stages.live.service import (
    BeforeCommit,
    LeftToTheRelay,
    Strict,
    refuse_new_revision,
    refuse_partial_marks,
    refuse_strict,
)
from migrator.stages.live.writers import SharedLeases, WriterHeartbeats
from tests import pins
from tests.fakes.journal import FakeRevisions, FakeWriters
from tests.support_fence import all_answered


def test_a_service_of_a_mapping_that_no_relay_has_worked_by_does_not_start() -> None:
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
def test_what_the_marks_of_a_service_lack_is_known(
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


def test_strict_mode_needs_a_server_and_a_connection_for_each_session() -> None:
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


class Failing:
    def write_first(self, *words: Any) -> None:
        raise OSError("away")


def before_commit(writers: FakeWriters) -> BeforeCommit:
    heartbeats = WriterHeartbeats(writers, FakeRevisions(), Lifetimes(), lambda: 0.0, all_answered)
    leases = SharedLeases(heartbeats, "strict", lambda: 0.0, lambda: None)

    @contextmanager
    def inside(connection: Any) -> Iterator[Any]:
        yield connection

    def at_once(work: Callable[[], Any]) -> Any:
        return work()

    return BeforeCommit(cast("Strict", Failing()), leases, inside, at_once, LeftToTheRelay())


def test_a_transaction_that_does_not_see_what_others_committed_is_refused() -> None:
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


class PreMarks:
    """Marks of a source that answers; `now`: the clock of the source."""

    def __init__(self, now: list[float]) -> None:
        self.now = now

    def pre_mark(self, changes: Any, wait_s: float) -> list[Any]:
        return []


class AwayRelay:
    """A relay of a table that does not answer: it retries until the time is over."""

    def __init__(self) -> None:
        self.tries = 0

    def refresh(self, root_keys: Any) -> None:
        self.tries += 1
        Retry(Backoff(attempts=1000, base_s=0.01, cap_s=0.01)).call("writing", _away, _can_pass)


def _away() -> None:
    raise ConnectionError("away")


def _can_pass(error: BaseException) -> bool:
    return isinstance(error, ConnectionError)


def strict(relay: Any, now: list[float], longest_write_s: float) -> Strict:
    return Strict(
        cast("ChangeMarks", PreMarks(now)),
        lambda rows, check: relay,
        Lifetimes(),
        lambda: now[0],
        lambda: None,
        longest_s=1e6,
        longest_write_s=longest_write_s,
    )


def test_a_strict_write_ends_in_its_time_while_the_table_is_away() -> None:
    writing = strict(AwayRelay(), [0.0], 0.05)
    with pytest.raises(StoppedError):
        writing.write_first([], cast("Any", None), 0.0)
