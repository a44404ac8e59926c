"""The table side of verify: every stored item traced to its row, with counts and sums by plain SQL beside."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from migrator.mapping.heart.items import CompiledEntity, items_for, kept_columns
from migrator.mapping.heart.values import decoder
from migrator.mapping.live.direct import DirectItems
from migrator.model.edges import Rows, Totals
from migrator.model.entities import ItemDesign
from migrator.model.errors import RowError, TooSlowError
from migrator.model.expressions import Condition, Ref
from migrator.model.facts import Column, EntityPlan, Kind, TableFacts
from migrator.model.journal import Finding, FindingKind, Journal, Run, SegmentState
from migrator.model.keys import encode_key, split_source
from migrator.model.results import NotCompared
from migrator.model.table import Item, ItemKey, SourceKey, TableDesign
from migrator.stages.parallel import TableWalk
from migrator.stages.projection import key_text

# ── The table's side of verify: every stored item traced back to its row, and counted on the way ──

_EXACT = Context(prec=200)


@dataclass(frozen=True)
class ScanTotals:
    """What a scan counted, without `items_for`: items in all, items per entity and type, sums of numeric attributes too."""

    items: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    sums: Mapping[tuple[str, str, str], Decimal] = field(default_factory=dict)

    def __add__(self, other: ScanTotals) -> ScanTotals:
        sums = dict(self.sums)
        for key, value in other.sums.items():
            sums[key] = _EXACT.add(sums.get(key, Decimal(0)), value)
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
    """Scans segments and looks for the row of each item."""

    source: Rows
    walk: TableWalk
    journal: Journal
    run: Run
    entities: Mapping[str, CompiledEntity]
    direct: DirectItems = DirectItems()

    def segment(self, number: int) -> ScanTotals:
        """Everything of one segment, beginning where a run before this one stopped."""
        state = self.journal.segment(self.run, number)
        totals = ScanTotals.from_json(state.tally)
        if state.done:
            return totals
        for page in self.walk.pages(number, state.start):
            items = [item for item in page.items if not self._is_left_alone(item)]
            totals = totals + self._count(items)
            state = SegmentState(page.next_start, page.next_start is None, totals.as_json())
            self.journal.save_segment(self.run, number, state, self._untraced(items))
        return totals

    def _is_left_alone(self, item: Item) -> bool:
        return self._table.is_hidden(item) or self.direct.has(item, self._table)

    def _count(self, items: Sequence[Item]) -> ScanTotals:
        counts: Counter[tuple[str, str]] = Counter()
        sums: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
        for item in items:
            entity = str(item.get(self._table.source_attribute, "")).partition(":")[0]
            type_ = str(item.get(self._table.type_attribute, ""))
            counts[entity, type_] += 1
            for name, value in item.items():
                if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
                    added = _EXACT.add(sums[entity, type_, name], Decimal(value))
                    sums[entity, type_, name] = added
        return ScanTotals(len(items), counts, sums)

    def _untraced(self, items: Sequence[Item]) -> list[Finding]:
        """A finding for each item that no row says there should be."""
        findings: list[Finding] = []
        by_entity: dict[str, list[tuple[SourceKey, Item]]] = defaultdict(list)
        for item in items:
            try:
                name, key = split_source(str(item.get(self._table.source_attribute, "")))
            except ValueError:
                findings.append(
                    self._finding("foreign", "", item, "it has no _src: migrator did not write it")
                )
                continue
            by_entity[name].append((key, item))
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
            elif self._table.key_of(item) not in wanted[key]:
                yield self._finding("unexpected", name, item, "its row makes no such item", key)

    def _wanted_keys(
        self, entity: CompiledEntity, keys: Sequence[SourceKey]
    ) -> dict[SourceKey, set[ItemKey]]:
        """Per row that is there, the keys of the items that it makes (expired ones too)."""
        wanted: dict[SourceKey, set[ItemKey]] = {}
        for row in self.source.read_rows(entity.plan, keys):
            try:
                made = items_for(entity, row)
            except RowError:
                made = []
            wanted[entity.source_key(row)] = {self._table.key_of(item) for item in made}
        return wanted

    def _finding(
        self, kind: FindingKind, entity: str, item: Item, reason: str, key: SourceKey = ""
    ) -> Finding:
        table = self._table
        shown = key_text(table, item) if all(part.name in item for part in table.key) else encode_key(["?"])
        return Finding(kind, entity, reason, key, shown, item_type=str(item.get(table.type_attribute, "")))

    @property
    def _table(self) -> TableDesign:
        return next(iter(self.entities.values())).table


# ── Counts and sums by plain SQL beside those of the scan: a check without `items_for` ──

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


# ──
# What the source itself says of rows and keys by plain SQL, without the code that copies and compares rows.


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
