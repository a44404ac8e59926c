"""Direct entities: what has to be so before the service may write an entity past SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.cutover_results import Line
from migrator.stages.cutover_facts import verdict
from migrator.stages.decommission import Dependence, changes_lines, marks_lines, open_lines, writers_lines


def may_be_direct(
    found: Dependence, reading: Sequence[str], writing: Sequence[str], revision: str
) -> list[Line]:
    """The evidence. `found.tables`: those that direct entities alone read; `reading`: patterns that give their items;
    `writing`: kinds of our own writers that live."""
    return [
        *_patterns(found, reading),
        *marks_lines(found),
        *changes_lines(found),
        *open_lines(found),
        *writers_lines(found),
        *_ours(writing),
        *_instances(found, revision),
    ]


def not_complete(found: Dependence, reading: Sequence[str]) -> list[str]:
    known = [found.phases[name] for name in reading]
    return [one.pattern for one in known if one.fault or one.state.phase != "complete"]


def _patterns(found: Dependence, reading: Sequence[str]) -> Iterator[Line]:
    left = not_complete(found, reading)
    said = f"not yet: {', '.join(left)}" if left else f"{len(reading)} of {len(reading)}"
    mend = "run `migrator cutover advance` for each" if left else ""
    yield Line("complete", "every pattern that reads them is complete", said, verdict(not left), mend=mend)


def _ours(writing: Sequence[str]) -> Iterator[Line]:
    """Who began before the job said so would go on to write the entities by old rows."""
    said = ", ".join(writing) or "none"
    mend = "stop them, and start them again afterwards" if writing else ""
    yield Line("ours", "no relay or backfill is alive", said, verdict(not writing), mend=mend)


def _instances(found: Dependence, revision: str) -> Iterator[Line]:
    others = [one for one in found.roster.living if one.revision != revision]
    silent = found.roster.silent
    said = f"{len(others)} of another mapping, {len(silent)} silent"
    mend = "see `migrator cutover status`" if others or silent else ""
    asked = "no instance has another mapping, or fell silent without a goodbye"
    yield Line("instances", asked, said, verdict(not others and not silent), mend=mend)
