"""What capture from the log rests on taken away, one at a time: the simulation must find every one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from migrator.mapping.model.live import Mark
from migrator.runtime.values import replace
from tests.simulation.broken import found_out
from tests.simulation.log import Committed, LogDatabase
from tests.simulation.world import Parts

pytestmark = pytest.mark.slow


class StoresEarly(LogDatabase):
    """Stores marks of a transaction that others do not see yet."""

    def may_store(self, read: Sequence[Committed]) -> bool:
        return True


class ConfirmsFirst(LogDatabase):
    """A kill between the two loses the marks."""

    def keep_copied(self, read: Sequence[Committed], sent: int, generation: int) -> None:
        self.confirmed = sent
        self.wait(generation)
        self.store(read, sent)


class KeysAlone(LogDatabase):
    """A replica identity that holds no links."""

    def recorded(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        return [replace(mark, before=mark.before and {"id": mark.before["id"]}) for mark in marks]


@pytest.mark.parametrize("database", [StoresEarly, ConfirmsFirst, KeysAlone])
def test_a_broken_reader_of_the_log_is_found_out(database: type[LogDatabase]) -> None:
    found_out(parts=Parts(database=database))
