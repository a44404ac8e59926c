"""Rule 10, random and taken apart: rows follow items, go back to being the truth, and every broken part is found out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from migrator.mapping.model.live import Check, IntendedRow, RowsVerified, StreamRecord, WaitingRow
from migrator.mapping.model.table import encode_key
from migrator.runtime.errors import StoppedError
from migrator.stages.reverse.daemon import ReverseStatus, WhileDirect
from migrator.stages.reverse.stage import Reverse, _Looks
from tests.simulation.many import MANY
from tests.simulation.mappings import Compiled
from tests.simulation.scheduler import Scheduler
from tests.simulation.way_back import DIRECT, Life, Turns, diverging, lived

SCHEDULES = 30
MOST = 400


WENT = "rows that went while an item held them"
OLDER = "items {"
"""Items that are not what services wrote last."""


def found_out(says: str, life_of: Callable[[Scheduler], Life]) -> None:
    """Some schedule ends by what the broken part does to rows or items, and not by any refusal or fault of its own."""
    others = set()
    for _, why in diverging(0, MOST, life_of):
        if why.startswith(says):
            return
        others.add(why[:60])
    pytest.fail(f"{MOST} schedules did not find it, but {others}")


def test_every_schedule_ends_with_the_writes_of_services() -> None:
    assert list(diverging(0, SCHEDULES)) == []


def test_a_seed_is_one_schedule() -> None:
    first, second = lived(7), lived(7)
    assert (first.schedule.steps, first.table.items) == (second.schedule.steps, second.table.items)


@pytest.mark.slow
def test_many_schedules() -> None:
    assert list(diverging(SCHEDULES, MANY // 3)) == []


class Hasty(Reverse):
    """Takes a row for gone as soon as none of the items that it knows holds it."""

    def _delete(
        self, states: Mapping[Any, Any], before: Any, now: float, check: Check, looks: _Looks
    ) -> tuple[dict[Any, WaitingRow], list[WaitingRow]]:
        return super()._delete(states, before, now, check, _Looks(dict.fromkeys(states, 2), now))


def test_a_row_that_goes_without_the_second_look_is_found_out() -> None:
    """Its item moved, and the record of the old key came first."""
    found_out(WENT, lambda schedule: Life(schedule, Hasty))


class Replaying(Reverse):
    """Applies what a record says, as it comes."""

    def work(self, records: Sequence[StreamRecord], check: Check) -> None:
        for record in records:
            image = record.new or record.old
            if image is not None and image["T"] == "Pet":
                row = {name: image[name] for name in ("id", "owner_id", "age")}
                facts = self.tables["pet"].facts
                change = IntendedRow(facts, {"id": image["id"]}, None if record.new is None else row)
                self.journal.remember({("pet", encode_key([image["id"]])): set()})
                self.rows.write([change], check)


def test_images_that_are_applied_are_found_out() -> None:
    found_out(WENT, lambda schedule: Life(schedule, Replaying))


class Relayed(Life):
    """The table of a direct entity keeps its triggers, and relays make its items of rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.writer.captured.add("pet")

    @property
    def relayed(self) -> Compiled:
        return self.whole

    def direct_service(self, pets: tuple[int, ...], times: int) -> None:
        super().direct_service(pets, 4 * times)

    def relays(self, times: int) -> None:
        super().relays(8 * times)


def test_a_direct_entity_that_is_relayed_is_found_out() -> None:
    """An older row goes over a newer item."""
    found_out(OLDER, Relayed)


class Unowned(Life):
    def own(self) -> int:
        return 0


def test_items_that_stay_the_services_are_found_out() -> None:
    """A relay takes them for another row's, and never writes them again."""
    found_out(OLDER, Unowned)


class Undrained(Life):
    """Goes back with what is left in the stream, and compares nothing."""

    def compared(self) -> RowsVerified:
        return RowsVerified({}, 0, {}, ())

    def drain(self) -> ReverseStatus:
        self.end_others()
        return ReverseStatus(True, {}, 0, [])

    def look(self) -> None:
        """Nor does it look."""


def test_a_rollback_without_a_drain_is_found_out() -> None:
    found_out(OLDER, Undrained)


class Unended(Life):
    """Processes of reverse go on beside the way back, and do not ask whether they still may."""

    def work_of(self, stage: Reverse, direct: frozenset[str]) -> WhileDirect:
        return WhileDirect(stage, direct, lambda: direct)

    def reverse(self, turns: int) -> None:
        with suppress(StoppedError):
            self.daemon(DIRECT, Turns(turns), self.schedule.now_s, once=False)[0].run()

    def end_others(self) -> None:
        """They do not."""


def test_process_making_rows_after_the_rollback_is_detected() -> None:
    found_out(OLDER, Unended)
