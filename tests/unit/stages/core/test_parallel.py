"""The walk over the whole table, segment by segment."""

from __future__ import annotations

import inspect
from pathlib import Path
from threading import Event

import migrator
from migrator.mapping.model.table import Item
from migrator.runtime.errors import Interrupted
from migrator.stages.core.parallel import TableWalk
from tests import pins
from tests.unit.stages.core.test_removal import SOURCED, filled


def walk(stop: Event | None = None, segments: int = 3) -> TableWalk:
    return TableWalk(filled(), segments, 2, stop or Event(), "stopped here")


def test_all_segments_together_are_the_table() -> None:
    one = walk()

    def items(number: int) -> list[Item]:
        return [item for page in one.pages(number) for item in page.items]

    found = [item for segment in one.each(items) for item in segment]
    assert sorted(map(repr, found)) == sorted(map(repr, SOURCED))


def test_a_segment_goes_on_behind_the_key_that_it_is_given() -> None:
    one = walk(segments=1)
    first, *rest = one.pages(0)
    assert [page.items for page in one.pages(0, first.next_start)] == [page.items for page in rest]


def test_a_stop_gives_no_further_page_and_says_what_is_known() -> None:
    stop = Event()
    pages = walk(stop, segments=1).pages(0)
    next(pages)
    stop.set()
    with pins.refused(Interrupted):
        next(pages)


def test_no_stage_walks_over_the_table_in_a_way_of_its_own() -> None:
    stages = Path(inspect.getfile(migrator)).parent / "stages"
    found = {
        path.name
        for path in stages.rglob("*.py")
        if path.parent.name != "session" and path.name != "process.py" and "store.scan(" in path.read_text()
    }
    assert found == {"parallel.py"}
