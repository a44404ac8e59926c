"""Answers of a replay counted: every difference by its class, part and attribute, a few of each kept."""

from __future__ import annotations

from migrator.ports.evidence import SAMPLES_KEPT
from migrator.replay_results import PatternReplay
from migrator.stages.looks import Look, Suspect


def count_same(replay: PatternReplay, look: Look) -> None:
    """Counts a sample whose answers were the same at first sight."""
    replay.same += 1
    replay.empty += look.empty


def count_different(suspect: Suspect) -> None:
    """Counts a sample that differed to the end, with each of its differences that lasted."""
    replay = suspect.replay
    replay.different += 1
    replay.failed[suspect.draw.kind] += bool(suspect.look.errors)
    replay.found.update(suspect.counts)
    for kind, examples in suspect.examples.items():
        kept = replay.examples.setdefault(kind, [])
        kept += examples[: SAMPLES_KEPT - len(kept)]
