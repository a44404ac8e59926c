"""Counts and sums by plain SQL beside those of the scan: a check that never passes through the heart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from migrator.errors import RowError, TooSlowError
from migrator.facts import Column, Kind
from migrator.mapping.items import CompiledEntity, kept_columns
from migrator.mapping.values import decoder
from migrator.model import Condition, ItemDesign, Ref
from migrator.ports import Finding, Journal, Run, Totals
from migrator.results import NotCompared
from migrator.stages.verify_scan import ScanTotals

_TOO_SLOW = "the source did not answer within statement_timeout_s of the job; raise it, and verify again"
_EXACT_KINDS = frozenset({"integer", "number"})


def check_totals(
    source: Totals, journal: Journal, run: Run, entities: Sequence[CompiledEntity], scanned: ScanTotals
) -> list[NotCompared]:
    """Writes a finding for each total that differs; returns what was left out."""
    left = _left_out(journal, run)
    left_out: list[NotCompared] = []
    findings: list[Finding] = []
    for entity in entities:
        for design in entity.plan.entity.items:
            check = _TypeTotals(
                source,
                entity,
                design,
                scanned,
                refused=left["refused", entity.name, ""],
                lost=left["collision", entity.name, design.type],
                doubtful=left["collision", entity.name, ""],
            )
            for what, work in ((design.type, check.count), (f"sums of {design.type}", check.sums)):
                try:
                    findings += work(left_out)
                except TooSlowError:
                    left_out.append(NotCompared(what, _TOO_SLOW))
    journal.add_findings(run, findings)
    return left_out


def _left_out(journal: Journal, run: Run) -> Counter[tuple[str, str, str]]:
    """Rows that make no item (no type), and items lost to a collision; per kind of finding, entity and type."""
    # What names no row is a count of those without a key, which SQL leaves out by itself.
    found = (one for one in journal.findings(run) if one.kind in ("refused", "collision") and one.source_key)
    return Counter((one.kind, one.entity, one.item_type) for one in found)


@dataclass(frozen=True)
class _TypeTotals:
    """`doubtful`: items lost to a collision of which an older migrator, whose run goes on, kept no type."""

    source: Totals
    entity: CompiledEntity
    design: ItemDesign
    scanned: ScanTotals
    refused: int
    lost: int
    doubtful: int

    def count(self, left_out: list[NotCompared]) -> Iterator[Finding]:
        """A finding when the table holds another number of this type than SQL says."""
        conditions = self._conditions(self.design.when)
        if conditions is None:
            left_out.append(
                NotCompared(self.design.type, "its when: looks at more than columns of the row itself")
            )
            return
        plan = self.entity.plan
        # Rows without a key make no items; they are a finding of their own.
        conditions += [(column, None) for column in plan.key if column.nullable]
        rows = self.source.count_where(plan, conditions) if conditions else self.source.count(plan)
        stored = self.scanned.counts[self.entity.name, self.design.type]
        expected = rows - self.lost - self.refused - self.doubtful
        # Which of the refused rows would have made an item of this type, only those that were not can tell.
        most = rows - self.lost if self.design.when else expected + self.doubtful
        if expected <= stored <= most or (self.design.expiry and stored <= most):
            return
        reason = f"SQL counts {expected}, the table holds {stored}"
        yield Finding("count", self.entity.name, reason, item_type=self.design.type)

    def sums(self, left_out: list[NotCompared]) -> Iterator[Finding]:
        """A finding for each numeric attribute whose sum differs."""
        columns = self._summed()
        why = self._why_no_sums()
        if why or not columns:
            if columns:
                left_out.append(NotCompared(f"sums of {self.design.type}", why))
            return
        found = self.source.sums(self.entity.plan, list(dict.fromkeys(columns.values())))
        for name, column in columns.items():
            stored = self.scanned.sums.get((self.entity.name, self.design.type, name), Decimal(0))
            try:
                expected = _sum_value(found[column.name], column.kind)
            except RowError as error:
                left_out.append(NotCompared(f"sum of {self.design.type}.{name}", str(error)))
                continue
            if stored != expected:
                reason = f"the sum of {name} differs between SQL and the table"
                yield Finding("sum", self.entity.name, reason, attribute=name, item_type=self.design.type)

    def _conditions(
        self, conditions: Sequence[Condition]
    ) -> list[tuple[Column, tuple[Any, ...] | None]] | None:
        found = []
        for condition in conditions:
            column = self.entity.plan.table.column(condition.path)
            if column is None or column.kind.name not in ("text", "integer"):
                return None
            found.append((column, condition.allowed))
        return found

    def _summed(self) -> dict[str, Column]:
        """Numeric attributes that are a column of the row, unchanged."""
        written = {**self.entity.plan.entity.attributes, **self.design.attributes}
        paths = {name: name for name in kept_columns(self.entity.plan, self.design) if name not in written}
        for name, value in written.items():
            if isinstance(value, Ref) and not value.filters and len(value.paths) == 1:
                paths[name] = value.paths[0]
        columns = {name: self.entity.plan.table.column(path) for name, path in paths.items()}
        return {name: one for name, one in columns.items() if one and one.kind.name in _EXACT_KINDS}

    def _why_no_sums(self) -> str:
        if self.refused or self.lost or self.doubtful:
            return "some of its rows are refused"
        if self.design.expiry:
            return "expired items come and go"
        return "not every row makes one" if self.design.when else ""


def _sum_value(raw: Any, kind: Kind) -> Decimal:
    """SQL's sum in the column's own decimals: SQLite adds floats, which the declared scale makes exact again."""
    value = decoder(kind)(raw)
    return Decimal(0) if value is None else Decimal(value)
