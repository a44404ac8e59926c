"""Checks of the source that a run makes: columns that have changed since it began, and rows that have one key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.values import key_doubt
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.plan import Change, changes
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Finding, Run
from migrator.runtime.errors import MissingNameError, SourceError, TooSlowError, TwinRowsError

# ── A run keeps to the columns that it began with: one that comes, goes or changes meanwhile is told ──

_ADVICE = (
    "rows read before and after do not fit together. Correct the mapping where it names them (or put them back),"
    " then give the same command again: over other columns it begins a new run"
)


@contextmanager
def pinned_columns(
    source: Rows, journal: SqlJournal, run: Run, entities: Sequence[CompiledEntity]
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


def _check(source: Rows, journal: SqlJournal, run: Run, entities: Sequence[CompiledEntity]) -> None:
    facts = source.facts()
    for entity in entities:
        changed = changes(entity.plan, facts)
        if any(change.read for change in changed):
            what = "; ".join(str(change) for change in changed)
            raise SourceError(f"entity {entity.name}: since the run began, {what}; {_ADVICE}")
        journal.add_findings(run, [_finding(entity, change) for change in changed])


def _finding(entity: CompiledEntity, change: Change) -> Finding:
    what = f"{change} since the run began; the run does not read it"
    return Finding("schema", entity.name, what, attribute=change.column)


# ── Rows that have one key: looked for before anything moves, and told by findings wherever they are met ──

AT_MOST = 100
"""Keys that are told; as many more are found when these are mended."""


def need_no_twins(source: Rows, plan: EntityPlan) -> None:
    """Looks for rows with the same key, where no constraint rules them out.

    Where the source has no time for that, each page is looked at when it is read, as it is in any case.
    Raises: TwinRowsError.
    """
    if not key_doubt(plan):
        return
    try:
        twins = source.twins(plan, AT_MOST)
    except TooSlowError:
        return
    if twins:
        where = f"entity {plan.entity.name} (table {plan.table.real})"
        raise TwinRowsError(where, plan.entity.name, twins)


@contextmanager
def recording_twins(journal: SqlJournal, run: Run) -> Iterator[None]:
    """Turns rows that have one key, which end the run, into findings."""
    try:
        yield
    except TwinRowsError as error:
        recorded = {
            (finding.entity, finding.source_key)
            for finding in journal.findings(run)
            if finding.kind == "collision"
        }
        findings = [
            Finding("collision", error.entity, f"{count} rows have this key", key)
            for key, count in error.keys
            if (error.entity, key) not in recorded
        ]
        journal.add_findings(run, findings)
        raise
