"""What commands say that are stopped: what was done, what was not, and what the same command does next."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from migrator.cli.options import stopped_says
from migrator.features.removal.work import _counted, _deleted
from migrator.runtime.errors import Interrupted, StoppedError, amount
from migrator.stages.core.removal import Undo
from tests import pins
from tests.support_fence import no_fence
from tests.unit.stages.core.test_removal import TABLE, filled


def undo(stop: Event | None = None, check: Callable[[], None] = no_fence) -> Undo:
    return Undo(filled(), TABLE, frozenset({"order"}), check, segments=4, workers=1, stop=stop or Event())


def test_an_undo_that_only_counts_has_deleted_nothing() -> None:
    stop = Event()
    stop.set()
    with pins.refused(Interrupted):
        _counted(undo(stop))


def test_undo_reports_how_many_items_are_deleted_so_far() -> None:
    stop = Event()
    stage = undo(stop, stop.set)
    with pytest.raises(Interrupted) as caught:
        _deleted(stage)
    gone = 45 - len(stage.store.items)  # type: ignore[attr-defined]
    assert 0 < gone == stage.gone < 40
    said = f"stopped; {amount(gone, 'item', 'are')} deleted; the others are still in the table, and the same command deletes"
    assert str(caught.value).startswith(said)


def test_a_failed_undo_is_reported() -> None:
    def lost() -> None:
        if stage.gone:
            raise StoppedError("the lease is lost")

    stage = undo(check=lost)
    with pins.refused(StoppedError):
        _deleted(stage)


def test_what_is_not_stopped_prints_nothing() -> None:
    with pins.refused(ValueError), stopped_says(lambda: "stopped"):
        raise ValueError("other")
