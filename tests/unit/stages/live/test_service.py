"""What a service must be before it may write items: its source, its transactions, its mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from migrator.model.errors import SettingsError
from migrator.model.instances import Lifetimes, MarkedColumns, Revision, Standing
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
        refuse_new_revision(cast("Standing", standing))
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
