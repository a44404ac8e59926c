"""What the source itself says of rows and keys by plain SQL, past the way that rows are copied and compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.errors import TooSlowError
from migrator.facts import EntityPlan, TableFacts
from migrator.mapping.items import CompiledEntity
from migrator.ports import Finding, Journal, Run, Totals
from migrator.results import NotCompared

_TOO_SLOW = "the source did not answer within statement_timeout_s of the job; raise it, and verify again"


def check_keys(
    source: Totals, journal: Journal, run: Run, entities: Sequence[CompiledEntity]
) -> list[NotCompared]:
    """Writes a finding for each entity whose keys do not tell its rows apart; returns what was left out.

    The source counts different keys as texts, which items carry, and as values, which rows are found by, in one snapshot
    with the rows: a declaration of uniqueness is not believed.
    """
    left_out = []
    for entity in entities:
        try:
            counted = source.key_counts(entity.plan)
        except TooSlowError:
            left_out.append(NotCompared(f"keys of {entity.name}", _TOO_SLOW))
            continue
        advice = "name columns in key: that tell all rows apart"
        if counted.texts < counted.rows:
            reason = (
                f"{counted.rows} rows have {counted.texts} different keys, so that some share their items"
            )
            journal.add_findings(run, [Finding("count", entity.name, f"{reason}; {advice}")])
        elif counted.values < counted.rows:
            # Such as texts of a collation that ignores case: their items are apart, and one is found with the other.
            why = f"the source finds {counted.values} different ones in {counted.rows} rows"
            left_out.append(NotCompared(f"keys of {entity.name} by value", f"{why}; {advice}"))
    return left_out


def not_proven(source: Totals, entities: Sequence[CompiledEntity]) -> list[NotCompared]:
    """Tables of which the user sees far fewer rows than the catalogue's statistics vouch for."""
    tables = {table.name: table for entity in entities for table in tables_read(entity.plan)}
    found = []
    for name, table in tables.items():
        try:
            seen = source.rows_seen(table)
        except TooSlowError:
            continue  # rows are counted for this alone, and other totals have said so
        if seen.at_least is not None and seen.rows < seen.at_least:
            what = f"SQL counts {seen.rows} rows, and by the catalogue's statistics there are {seen.at_least} at least"
            advice = "run ANALYZE on it and verify again, or verify as another role (--source-url)"
            found.append(NotCompared(f"table {name}", f"{what}; {advice}"))
    return found


def tables_read(plan: EntityPlan) -> Iterator[TableFacts]:
    """The tables and views that an entity's row trees are read from."""
    yield plan.table
    yield from (join.table for join in plan.joins)
    for collection in plan.collections:
        yield collection.table
        yield from (join.table for join in collection.joins)
