"""The walk over the whole table, segment by segment."""

from __future__ import annotations

import inspect
from pathlib import Path
from threading import Event

import migrator
from migrator.mapping.model.table import Item
from migrator.stages.core.parallel import TableWalk
from tests.unit.stages.core.test_removal import SOURCED, filled


def walk(stop: Event | None = None, segments: int = 3) -> TableWalk:
    return TableWalk(filled(), segments, 2, stop or Event(), "stopped here")


def test_all_segments_together_are_the_table() -> None:
    one = walk()

    def items(number: int) -> list[Item]:
        return [item for page in one.pages(number) for item in page.items]

    found = [item for segment in one.each(items) for item in segment]
    assert sorted(map(repr, found)) == sorted(map(repr, SOURCED))


def test_every_stage_walks_the_table_in_the_same_way() -> None:
    stages = Path(inspect.getfile(migrator)).parent / "stages"
    found = {
        path.name
        for path in stages.rglob("*.py")
        if path.parent.name != "session" and path.name != "process.py" and "store.scan(" in path.read_text()
    }
    assert found == {"parallel.py"}
