"""Table side of verify: traces every stored item to its row, and compares counts and sums with plain SQL."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any

from msgspec import Struct, field

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import Checked
from migrator.mapping.items.items import CompiledEntity, items_for, key_text
from migrator.mapping.items.values import decoder
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.facts import Column, EntityPlan, Kind, attributes_of
from migrator.mapping.model.journal import Finding, FindingKind, Run, SegmentState
from migrator.mapping.model.mapping import Condition, ItemDesign, Ref
from migrator.mapping.model.results import NotCompared
from migrator.mapping.model.table import Item, ItemKey, SourceKey, TableDesign, encode_key
from migrator.runtime.errors import NotCountedError, RowError, TooSlowError
from migrator.stages.core.parallel import TableWalk

# ── Items of direct entities, which the service writes itself past SQL: they have no row ──


class DirectItems(Struct, frozen=True):
    """Items that the service writes itself.

    Those of direct entities: by the entity in `_src`, or without it by type.
    `leave`: prefixes of other items' partition keys, such as counters, which have no `_src`.
    """

    entities: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    leave: tuple[str, ...] = ()

    def has(self, item: Item, table: TableDesign) -> bool:
        owner = item.get(table.source_attribute)
        if isinstance(owner, str):
            return owner.partition(":")[0] in self.entities
        return item.get(table.type_attribute) in self.types or self.is_left(item.get(table.key[0].name))

    def is_left(self, partition_key: object) -> bool:
        return isinstance(partition_key, str) and partition_key.startswith(self.leave)


def direct_items(checked: Checked, leave: Sequence[str]) -> DirectItems:
    plans = checked.direct_plans
    return DirectItems(
        frozenset(plan.entity.name for plan in plans),
        frozenset(item.type for plan in plans for item in plan.entity.items),
        tuple(leave),
    )


# ── The scan: every stored item is traced back to its row, and counted ──

EXACT = Context(prec=200)


def exact_sum(numbers: Sequence[bytes]) -> Decimal:
    try:
        return Decimal(sum(map(int, numbers)))
    except ValueError:
        texts = b",".join(numbers).decode().split(",")
    with localcontext(EXACT):
        return sum(map(Decimal, texts), Decimal(0))


class ScanTotals(Struct, frozen=True):
    items: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    sums: Mapping[tuple[str, str, str], Decimal] = {}

    def __add__(self, other: ScanTotals) -> ScanTotals:
        sums = dict(self.sums)
        for key, value in other.sums.items():
            sums[key] = EXACT.add(sums.get(key, Decimal(0)), value)
        return ScanTotals(self.items + other.items, self.counts + other.counts, sums)

    def as_json(self) -> dict[str, Any]:
        sums = [[*key, str(value)] for key, value in self.sums.items()]
        return {
            "items": self.items,
            "counts": [[*key, count] for key, count in self.counts.items()],
            "sums": sums,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScanTotals:
        sums = {(entity, type_, name): Decimal(value) for entity, type_, name, value in data.get("sums", [])}
        counts = Counter({(entity, type_): count for entity, type_, count in data.get("counts", [])})
        return cls(int(data.get("items", 0)), counts, sums)


@dataclass(frozen=True)
class TableScan:
    source: Rows
    walk: TableWalk
    journal: SqlJournal
    run: Run
    entities: Mapping[str, CompiledEntity]
    direct: DirectItems = DirectItems()

    @property
    def table(self) -> TableDesign:
        return next(iter(self.entities.values())).table

    def segment(self, number: int) -> ScanTotals:
        """Rows of one segment, resumed from an earlier start of this run."""
        state = self.journal.segment(self.run, number)
        totals = ScanTotals.from_json(state.tally)
        if state.done:
            return totals
        for counted, items, next_start in self._pages(number, state.start):
            totals = totals + counted
            state = SegmentState(next_start, next_start is None, totals.as_json())
            untraced = Tracer(self.source, self.entities, self.table).untraced(items)
            self.journal.save_segment(self.run, number, state, untraced)
        return totals

    def _pages(
        self, number: int, start: ItemKey | None
    ) -> Iterator[tuple[ScanTotals, Sequence[Item], ItemKey | None]]:
        for page in self.walk.pages(number, start):
            items = [item for item in page.items if not self._is_left_alone(item)]
            yield self._count(items), items, page.next_start

    def _is_left_alone(self, item: Item) -> bool:
        return self.table.is_hidden(item) or self.direct.has(item, self.table)

    def _count(self, items: Sequence[Item]) -> ScanTotals:
        counts: Counter[tuple[str, str]] = Counter()
        sums: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
        for item in items:
            entity = str(item.get(self.table.source_attribute, "")).partition(":")[0]
            type_ = str(item.get(self.table.type_attribute, ""))
            counts[entity, type_] += 1
            for name, value in item.items():
                if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
                    added = EXACT.add(sums[entity, type_, name], Decimal(value))
                    sums[entity, type_, name] = added
        return ScanTotals(len(items), counts, sums)


class Tracer(Struct, frozen=True):
    source: Rows
    entities: Mapping[str, CompiledEntity]
    table: TableDesign

    def untraced(self, items: Sequence[Item]) -> list[Finding]:
        findings: list[Finding] = []
        by_entity: dict[str, list[tuple[SourceKey, Item]]] = defaultdict(list)
        for item in items:
            root = self.table.root_of(item)
            if root is None:
                what = f"it has no {self.table.source_attribute}: migrator did not write it"
                advice = "delete it, or name its key in the job (docs/incidents.md, Foreign items)"
                findings.append(self._finding("foreign", "", item, f"{what}; {advice}"))
                continue
            by_entity[root[0]].append((root[1], item))
        for name, traced in by_entity.items():
            findings += self._unexpected(name, traced)
        return findings

    def _unexpected(self, name: str, traced: Sequence[tuple[SourceKey, Item]]) -> Iterable[Finding]:
        entity = self.entities.get(name)
        if entity is None:
            for _, item in traced:
                yield self._finding("unexpected", name, item, "the mapping has no such entity")
            return
        wanted = self._wanted_keys(entity, sorted({key for key, _ in traced}))
        for key, item in traced:
            if key not in wanted:
                yield self._finding("unexpected", name, item, "its row is not there", key)
            elif self.table.key_of(item) not in wanted[key]:
                yield self._finding("unexpected", name, item, "its row makes no such item", key)

    def _wanted_keys(
        self, entity: CompiledEntity, keys: Sequence[SourceKey]
    ) -> dict[SourceKey, set[ItemKey]]:
        """By existing row, the keys of its items (expired ones too)."""
        wanted: dict[SourceKey, set[ItemKey]] = {}
        for row in self.source.read_rows(entity.plan, keys):
            try:
                made = items_for(entity, row)
            except RowError:
                made = []
            wanted[entity.source_key(row)] = {self.table.key_of(item) for item in made}
        return wanted

    def _finding(
        self, kind: FindingKind, entity: str, item: Item, reason: str, key: SourceKey = ""
    ) -> Finding:
        table = self.table
        shown = key_text(table, item) if all(part.name in item for part in table.key) else encode_key(["?"])
        return Finding(kind, entity, reason, key, shown, item_type=str(item.get(table.type_attribute, "")))


# ── Counts and sums by plain SQL, compared with those of the scan: a check without `items_for` ──

_TOO_SLOW = "the source did not answer within statement_timeout_s of the job; raise it, and verify again"
_EXACT_KINDS = frozenset({"integer", "number"})


def check_totals(
    source: Rows, journal: SqlJournal, run: Run, entities: Sequence[CompiledEntity], scanned: ScanTotals
) -> list[NotCompared]:
    """Write a finding for each total that differs; return the totals left out."""
    left = _left_out(journal, run)
    left_out: list[NotCompared] = []
    findings: list[Finding] = []
    for entity in entities:
        for design in {item.type: item for item in entity.plan.entity.items}.values():
            check = _TypeTotals(
                source,
                entity,
                design,
                scanned,
                refused=left["refused", entity.name, ""],
                lost=left["collision", entity.name, design.type],
            )
            for what, work in ((design.type, check.count), (f"sums of {design.type}", check.sums)):
                try:
                    findings += work(left_out)
                except TooSlowError:
                    left_out.append(NotCompared(what, _TOO_SLOW))
                except NotCountedError as error:
                    left_out.append(NotCompared(what, str(error)))
    journal.add_findings(run, findings)
    return left_out


def _left_out(journal: SqlJournal, run: Run) -> Counter[tuple[str, str, str]]:
    """Rows that make no item (no type), and items lost to a collision; per kind of finding, entity and type."""
    # A finding without a row counts rows without a key, which SQL leaves out.
    findings = (
        finding
        for finding in journal.findings(run)
        if finding.kind in ("refused", "collision") and finding.source_key
    )
    return Counter((finding.kind, finding.entity, finding.item_type) for finding in findings)


class _TypeTotals(Struct, frozen=True):
    source: Rows
    entity: CompiledEntity
    design: ItemDesign
    scanned: ScanTotals
    refused: int
    lost: int

    def count(self, left_out: list[NotCompared]) -> Iterator[Finding]:
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
        stored, copies = self.scanned.counts[self.entity.name, self.design.type], self._copies
        expected = copies * (rows - self.refused) - self.lost
        # How many of the refused rows would have made an item of this type is not known.
        most = copies * rows - self.lost if self.design.when else expected
        if expected <= stored <= most or (self.design.expiry and stored <= most):
            return
        reason = f"the source counts {expected}, the table holds {stored}"
        yield Finding("count", self.entity.name, reason, item_type=self.design.type)

    def sums(self, left_out: list[NotCompared]) -> Iterator[Finding]:
        columns = summed(self.entity.plan, self.design)
        why = self._why_no_sums()
        if why or not columns:
            if columns:
                left_out.append(NotCompared(f"sums of {self.design.type}", why))
            return
        sql_sums = self.source.sums(self.entity.plan, list(dict.fromkeys(columns.values())))
        for name, column in columns.items():
            stored = self.scanned.sums.get((self.entity.name, self.design.type, name), Decimal(0))
            try:
                expected = _sum_value(sql_sums[column.name], column.kind)
            except RowError as error:
                left_out.append(NotCompared(f"sum of {self.design.type}.{name}", str(error)))
                continue
            if stored != EXACT.multiply(expected, Decimal(self._copies)):
                reason = f"the sum of {name} differs between SQL and the table"
                yield Finding("sum", self.entity.name, reason, attribute=name, item_type=self.design.type)

    @property
    def _copies(self) -> int:
        return self.entity.plan.entity.copies(self.design.type)

    def _conditions(
        self, conditions: Sequence[Condition]
    ) -> list[tuple[Column, tuple[Any, ...] | None]] | None:
        pairs = []
        for condition in conditions:
            column = self.entity.plan.table.column(condition.path)
            if column is None or column.kind.name not in ("text", "integer"):
                return None
            pairs.append((column, condition.allowed))
        return pairs

    def _why_no_sums(self) -> str:
        if self.refused or self.lost:
            return "some of its rows are refused"
        if self.design.expiry:
            return "expired items come and go"
        return "not every row makes one" if self.design.when else ""


def summed(plan: EntityPlan, design: ItemDesign) -> dict[str, Column]:
    """Numeric attributes of an item that are an unchanged column of the row."""
    paths = {
        name: value.paths[0]
        for name, value in attributes_of(plan, design).items()
        if isinstance(value, Ref) and not value.filters and len(value.paths) == 1
    }
    columns = {name: plan.table.column(path) for name, path in paths.items()}
    return {name: column for name, column in columns.items() if column and column.kind.name in _EXACT_KINDS}


_FLOAT_DIGITS = 12
"""Digits to which millions of floats add up alike in any order; one has 15."""


def _sum_value(raw: Any, kind: Kind) -> Decimal:
    """SQL's sum with the column's decimals. SQLite adds floats, which only a declared scale makes exact again.

    Large terms that cancel each other may still leave a difference. Raises: RowError if the sum is not exact.
    """
    if isinstance(raw, float) and (kind.scale is None or abs(raw) >= 10.0 ** (_FLOAT_DIGITS - kind.scale)):
        raise RowError("the source adds these numbers as floats, which is not exact")
    value = decoder(kind)(raw)
    return Decimal(0) if value is None else Decimal(value)


# ── Checks of rows and keys by plain SQL, without the code that copies and compares rows ──


def check_keys(
    source: Rows, journal: SqlJournal, run: Run, entities: Sequence[CompiledEntity]
) -> list[NotCompared]:
    """Write a finding for each entity with several rows of the same key; return the entities left out.

    In one snapshot, the source counts distinct keys as texts (as in items) and as values (as rows are found).
    It does not rely on a declared uniqueness.
    """
    left_out = []
    for entity in entities:
        try:
            counted = source.key_counts(entity.plan)
        except TooSlowError:
            left_out.append(NotCompared(f"keys of {entity.name}", _TOO_SLOW))
            continue
        advice = "name columns in key: that distinguish all rows"
        if counted.texts < counted.rows:
            reason = (
                f"{counted.rows} rows have {counted.texts} different keys, so that some share their items"
            )
            journal.add_findings(run, [Finding("count", entity.name, f"{reason}; {advice}")])
        elif counted.values < counted.rows:
            # Such as texts of a collation that ignores case: they have different items, but one is found with the other.
            why = f"the source finds {counted.values} different ones in {counted.rows} rows"
            left_out.append(NotCompared(f"keys of {entity.name} by value", f"{why}; {advice}"))
    return left_out


def not_proven(source: Rows, entities: Sequence[CompiledEntity]) -> list[NotCompared]:
    """Tables with far fewer rows visible to the user than in the catalogue's statistics."""
    tables = {table.name: table for entity in entities for table in entity.plan.tables}
    left_out = []
    for name, table in tables.items():
        try:
            seen = source.rows_seen(table)
        except TooSlowError:
            continue  # the rows are counted only for this, and other totals have reported the time-out
        if seen.at_least is not None and seen.rows < seen.at_least:
            what = f"SQL counts {seen.rows} rows, and by the catalogue's statistics there are {seen.at_least} at least"
            advice = "run ANALYZE on it and verify again, or verify as another role (--source)"
            left_out.append(NotCompared(f"table {name}", f"{what}; {advice}"))
    return left_out
