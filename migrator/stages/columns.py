"""A run keeps to the columns that it began with: one that comes, goes or changes meanwhile is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from migrator.errors import MissingNameError, SourceError
from migrator.mapping.columns import Change, changes
from migrator.mapping.items import CompiledEntity
from migrator.ports import Finding, Journal, Rows, Run

_ADVICE = (
    "rows read before and after do not fit together. Correct the mapping where it names them (or put them back),"
    " then give the same command again: over other columns it begins a new run"
)


@contextmanager
def pinned_columns(
    source: Rows, journal: Journal, run: Run, entities: Sequence[CompiledEntity]
) -> Iterator[None]:
    """Looks at the source's columns where a SELECT misses one, and once more when all is done.

    Looking at the end is enough for what stops no SELECT: new columns are never read, since SELECTs name theirs.
    Raises: SourceError that says what changed among the columns that are read; the rest becomes findings.
    """
    try:
        yield
    except MissingNameError:
        _check(source, journal, run, entities)
        raise
    _check(source, journal, run, entities)


def _check(source: Rows, journal: Journal, run: Run, entities: Sequence[CompiledEntity]) -> None:
    facts = source.facts()
    for entity in entities:
        found = changes(entity.plan, facts)
        if any(change.read for change in found):
            what = "; ".join(str(change) for change in found)
            raise SourceError(f"entity {entity.name}: since the run began, {what}; {_ADVICE}")
        journal.add_findings(run, [_finding(entity, change) for change in found])


def _finding(entity: CompiledEntity, change: Change) -> Finding:
    what = f"{change} since the run began; the run does not read it"
    return Finding("schema", entity.name, what, attribute=change.column)
