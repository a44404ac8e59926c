"""Whether the column that an entity's `version` names counts an application's changes as its library expects."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import Fault
from migrator.facts import Column, EntityPlan
from migrator.mapping.document import Document


def version_faults(plan: EntityPlan, document: Document) -> Iterator[Fault]:
    """A fault where the version is no whole number of the row's own, a warning where it may be missing."""
    version = plan.entity.version
    if version is None:
        return
    at = ("entities", plan.entity.written, "version")
    column = plan.table.column(version.column)
    if column is None or column.sql is not None or version.column in plan.transformed:
        what = f"'{version.column}' is no column of {plan.table.name}; name the one that the application counts up"
        yield document.fault(at, what)
    elif not _is_whole(column):
        declared = f" ({column.declared})" if column.declared else ""
        what = (
            f"'{version.column}' is {column.kind.name}{declared}; optimistic locking counts in whole numbers"
        )
        yield document.fault(at, f"{what}, so name an integer column")
    elif column.nullable:
        what = f"'{version.column}' may be NULL, and an item without its version is taken for a new one"
        yield document.fault(at, f"{what}; declare the column NOT NULL", warning=True)


def _is_whole(column: Column) -> bool:
    return column.kind.name == "integer" or (column.kind.name == "number" and column.kind.scale == 0)
