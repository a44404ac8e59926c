"""Schedules of a source that is DynamoDB tables: the same rules, and what is broken on purpose is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.mapping.model.facts import Captured
from migrator.mapping.model.live import KeptMark, StreamRecord
from migrator.runtime.values import replace
from migrator.source.dynamodb.marks import RecordImages, SourceStream, StreamMarks
from tests.simulation.actors import run
from tests.simulation.broken import found_out
from tests.simulation.documents import INDEX_LAG_S, DocumentCast, DocumentDatabase, IndexReader, value_of
from tests.simulation.world import Parts

SCHEDULES = 300
DOCUMENTS = Parts(database=DocumentDatabase)


def test_every_schedule_ends_with_the_items_of_the_documents() -> None:
    differing = [seed for seed in range(SCHEDULES) if run(seed, DocumentCast, DOCUMENTS).differences()]
    assert differing == []


# ── a mark goes last ──


@dataclass
class CopiesLater(StreamMarks):
    """The checkpoint goes on before its records are marks."""

    later: list[Any] = field(default_factory=list)

    def _turn(self) -> int:
        later, self.later = self.later, []
        for stream, records in later:
            super()._keep(stream, records, lambda: None)
        return super()._turn()

    def _keep(self, stream: SourceStream, records: Sequence[StreamRecord], check: Any) -> None:
        self.later.append((stream, records))


class CheckpointFirst(DocumentDatabase):
    def is_behind(self) -> bool:
        """One that lives on will come to it: only what a process leaves undone is lost."""
        living = (made for actor, made in self.processes.items() if not actor.dead)
        return super().is_behind() or any(made.later for made in living if isinstance(made, CopiesLater))

    def process(self, owner: str) -> StreamMarks:
        made = super().process(owner)
        return CopiesLater(made.kept, made.images, made.streams, clock=made.clock)


def test_a_checkpoint_that_goes_before_its_marks_is_found_out() -> None:
    found_out(DocumentCast, Parts(database=CheckpointFirst))


# ── images ──


class NoImageBefore(RecordImages, frozen=True):
    def kept(self, table: str, record: StreamRecord) -> KeptMark | None:
        return super().kept(table, replace(record, old_wired=None) if record.new_wired else record)


class NewImages(DocumentDatabase):
    def made_images(self, captured: Mapping[str, Captured]) -> RecordImages:
        return NoImageBefore(captured, value_of)


def test_a_stream_of_new_images_alone_is_found_out() -> None:
    found_out(DocumentCast, Parts(database=NewImages))


# ── what is read by an index ──


class ByIndex(DocumentCast):
    reader = IndexReader


class LooksAgain(DocumentDatabase):
    again_after_s = 4 * INDEX_LAG_S


def test_late_index_rows_are_detected_if_changes_are_read_once() -> None:
    found_out(ByIndex, DOCUMENTS)


def test_late_index_rows_are_correct_if_changes_are_read_twice() -> None:
    twice = Parts(database=LooksAgain)
    assert [seed for seed in range(SCHEDULES) if run(seed, ByIndex, twice).differences()] == []


# ── tickets ──


class DrawsTwice(DocumentDatabase):
    """A counter that is not linearizable: now and then a number comes again."""

    def draw(self) -> int:
        drawn = super().draw()
        if self.schedule.chance(0.3):
            self.number -= 1
        return drawn


def test_a_counter_that_gives_a_number_twice_is_found_out() -> None:
    found_out(DocumentCast, Parts(database=DrawsTwice))
