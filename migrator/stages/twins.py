"""Rows that have one key: looked for before anything moves, and told by findings wherever they are met."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from migrator.errors import TooSlowError, TwinRowsError
from migrator.facts import EntityPlan
from migrator.mapping.uniqueness import key_doubt
from migrator.ports import Finding, Journal, Rows, Run

AT_MOST = 100
"""Keys that are told; as many more are found when these are mended."""


def need_no_twins(source: Rows, plan: EntityPlan) -> None:
    """Looks through all rows where no constraint says that none have one key.

    Where the source has no time for that, each page is looked at when it is read, as it is in any case.
    Raises: TwinRowsError.
    """
    if not key_doubt(plan):
        return
    try:
        found = source.twins(plan, AT_MOST)
    except TooSlowError:
        return
    if found:
        where = f"entity {plan.entity.name} (table {plan.table.real})"
        raise TwinRowsError(where, plan.entity.name, found)


@contextmanager
def told_twins(journal: Journal, run: Run) -> Iterator[None]:
    """Makes findings of rows that have one key, which end the run."""
    try:
        yield
    except TwinRowsError as error:
        known = {(one.entity, one.source_key) for one in journal.findings(run) if one.kind == "collision"}
        findings = [
            Finding("collision", error.entity, f"{count} rows have this key", key)
            for key, count in error.keys
            if (error.entity, key) not in known
        ]
        journal.add_findings(run, findings)
        raise
