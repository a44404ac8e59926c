"""Groups of recorded differences, with example rows and items side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import TypeAlias

from migrator.features.report.verdict import SINCE_GONE, Cause, Circumstances, cause_of
from migrator.mapping.items.items import CompiledEntity, items_for
from migrator.mapping.language.causes import pairs_of
from migrator.mapping.model.edges import ItemStore, Rows
from migrator.mapping.model.evidence import DiffKey, Sample
from migrator.mapping.model.journal import Finding, FindingGroup, FindingGroups, Run
from migrator.mapping.model.report import Cell, Difference, Found, Group
from migrator.mapping.model.table import Item, ItemKey, TableDesign, item_key_of
from migrator.mapping.patterns.diff import equal
from migrator.runtime.errors import Interrupted, MigratorError, RowError
from migrator.stages.design.shown import Age, Counted, Showing, Windows, clipped

# ── The row and the item of a finding, read again and shown side by side ──


@dataclass
class Pairs:
    """`entities`: by name. `failed`: why reading was given up, '' before that; nothing is read afterwards.

    Both sides are shown as they are now: a difference that has gone since shows no differing cell.
    """

    source: Rows
    store: ItemStore
    entities: Mapping[str, CompiledEntity]
    table: TableDesign
    showing: Showing
    failed: str = ""

    def cells(self, finding: Finding) -> list[Cell] | None:
        """Attribute by attribute what the row makes and what the item has; empty where neither exists, None where they
        cannot be read."""
        entity = self.entities.get(finding.entity)
        if entity is None or not finding.item_key or self.failed:
            return None
        try:
            key = item_key_of(finding.item_key, self.table)
            expected, stored = self._expected(entity, finding, key), self.store.get([key]).get(key)
        except Interrupted:
            raise
        except MigratorError as error:
            self.failed = str(error)
            return None
        except (ValueError, KeyError, TypeError):
            return None  # the finding is of another mapping: its key has other parts than this table's
        return self._side_by_side(entity, expected, stored)

    def _expected(self, entity: CompiledEntity, finding: Finding, key: ItemKey) -> Item | None:
        rows = self.source.read_rows(entity.plan, [finding.source_key]) if finding.source_key else []
        try:
            made = [item for row in rows for item in items_for(entity, row)]
        except RowError:
            return None
        return next((item for item in made if self.table.key_of(item) == key), None)

    def _side_by_side(self, entity: CompiledEntity, expected: Item | None, stored: Item | None) -> list[Cell]:
        if stored is not None and self.table.is_hidden(stored):
            stored = None
        sql = {} if expected is None else self.showing.item(entity.name, expected)
        item = {} if stored is None else self.showing.item(entity.name, stored)
        return [
            Cell(name, sql.get(name), item.get(name), _pair_differs(name, expected, stored))
            for name in sql | item
        ]


def _pair_differs(name: str, expected: Item | None, stored: Item | None) -> bool:
    if expected is None or stored is None or (name in expected) != (name in stored):
        return True
    return not equal(expected[name], stored[name])


# ── Groups of differences found by shadow reads, replays and runs, with examples side by side ──

Place: TypeAlias = tuple[str, ...]
_Kind: TypeAlias = tuple[str, DiffKey]
"""The pattern of a difference and the key by which its windows count it."""
SHOWN_AT_MOST = 5_000
"""Differences of one report; the rest is counted."""
_OF_ITEMS = ("missing", "unexpected", "different")
"""Kinds of findings about one row and one item, which are gone when the two agree."""
_AGES: tuple[Age, ...] = ("standing", "verified", "moved")
_WHEN: Mapping[Age, str] = {"standing": "", "verified": "verified", "moved": "before"}
_LOOKED_UP = 5
"""Findings of a group whose row and item are read again at most, so that both sides can be shown."""


@dataclass(frozen=True)
class Differences:
    """`values`: whether values of rows may be shown at all. `pairs` None: rows and items cannot be read."""

    showing: Showing
    around: Circumstances
    values: bool = True
    pairs: Pairs | None = None

    # ── differences of shadow reads and replays ──

    def of_windows(self, windows: Windows, samples: Sequence[Sample]) -> list[Group]:
        """A group for each kind of difference of a pattern; differences that are history are separate groups."""
        by_age = {age: windows.differences(age) for age in _AGES}
        of_age: dict[tuple[_Kind, Age], list[Sample]] = defaultdict(list)
        for sample in samples:
            kind = sample.pattern, sample.key
            own = windows.age_of(*kind, sample.at)
            # Windows are minutes: one that began before a verify may have ended after it, and counts.
            ages = (own,) if own == "moved" else (own, *_AGES)
            of_age[kind, next((age for age in ages if kind in by_age[age]), own)].append(sample)
        groups: dict[tuple[_Kind, Age], Group] = {}
        for age, counted in by_age.items():
            for kind, counts in counted.items():
                is_first = not any((kind, other) in groups for other in _AGES)
                made = self._of_pattern(kind, counts, of_age[kind, age], "" if is_first else _WHEN[age])
                groups[kind, age] = replace(
                    made, before_move=age == "moved", before_verify=age == "verified", until=counts.until
                )
        return list(groups.values())

    def _of_pattern(self, kind: _Kind, counts: Counted, samples: Sequence[Sample], when: str = "") -> Group:
        """`when`: distinguishes the group from another one of its kind."""
        pattern, key = kind
        both = [
            (sample.attributes, sample.row, sample.item)
            for sample in samples
            if sample.row is not None and sample.item is not None
        ]
        # Several answers that show the same row are evidence of one row only.
        rows = len({sample.subject for sample in samples}) if all(sample.subject for sample in samples) else 0
        around = replace(self.around.of(max((sample.at for sample in samples), default=None)), rows=rows)
        cause = cause_of(key.kind, key.attribute, list(pairs_of(key.attribute, both)), around)
        id_ = _id("pattern", pattern, key.kind, key.part, key.attribute, *filter(None, [when]))
        origins: list[Found] = [origin for origin in ("service", "replay") if counts.by_origin[origin]]
        made = Group(
            id=id_,
            found_by=origins,
            where=pattern,
            part=key.part,
            kind=key.kind,
            attribute=key.attribute,
            count=counts.by_origin.total(),
            cause=cause.likely,
            advice=cause.advice,
            rows=rows,
        )
        return replace(made, differences=[self._of_sample(id_, sample) for sample in samples])

    def _of_sample(self, group: str, sample: Sample) -> Difference:
        if not self.values:
            return Difference(group, sample.at, why=sample.why)
        sql, item = (self._shown_side(sample, side) for side in (sample.row, sample.item))
        cells = [
            Cell(name, sql[place], item[place], _differs(sample, name, place))
            for place, name in enumerate(sample.attributes)
        ]
        shown = cells if sample.row is not None or sample.item is not None else []
        return Difference(group, sample.at, self._params(sample), cells=shown, why=sample.why)

    def _shown_side(self, sample: Sample, texts: Sequence[str] | None) -> Sequence[str | None]:
        if texts is None:
            return [None] * len(sample.attributes)
        return self.showing.sample(sample.pattern, sample.attributes, texts)

    def _params(self, sample: Sample) -> dict[str, str]:
        names = list(sample.params)
        return dict(
            zip(names, self.showing.sample(sample.pattern, names, list(sample.params.values())), strict=True)
        )

    # ── differences of runs ──

    def of_run(
        self,
        run: Run,
        groups: FindingGroups,
        limit: int = SHOWN_AT_MOST,
        other_places: Collection[Place] = (),
    ) -> Iterator[Group]:
        """A group for each kind of finding except refused rows. `limit`: of differences in all groups. `other_places`:
        differences that another run has found, too; they are left out."""
        counted = [group for group in groups.groups(run) if group.kind != "refused"]
        for place, group in enumerate(counted):
            share = max(_LOOKED_UP, limit // (len(counted) - place))
            findings = groups.some(run, group, min(share, max(0, limit)))
            limit -= len(findings)
            new = [finding for finding in findings if place_of(finding) not in other_places]
            if count := group.count - len(findings) + len(new):
                yield self._of_group(run, replace(group, count=count), new)

    def _of_group(self, run: Run, group: FindingGroup, findings: Sequence[Finding]) -> Group:
        id_ = _id(run.identity.kind, group.entity, group.kind, "", group.attribute)
        looked_up = findings[:_LOOKED_UP] if self.values and self.pairs is not None else []
        seen = [self.pairs.cells(finding) for finding in looked_up] if self.pairs is not None else []
        around = replace(self.around.of(_ended_s(run)), of_pattern=False)
        cause = self._cause_now(group, [cells for cells in seen if cells is not None], around)
        cells = [pair_cells or [] for pair_cells in seen] + [[]] * (len(findings) - len(seen))
        return Group(
            id=id_,
            found_by=[run.identity.kind],
            where=group.entity,
            part="",
            kind=group.kind,
            attribute=group.attribute,
            count=group.count,
            cause=cause.likely,
            advice=cause.advice,
            differences=[
                self._of_finding(id_, finding, row) for finding, row in zip(findings, cells, strict=True)
            ],
        )

    def _cause_now(
        self, group: FindingGroup, looked_up: Sequence[Sequence[Cell]], around: Circumstances
    ) -> Cause:
        """The cause by the current values; values that agree by now say nothing about why they differed."""
        name = group.attribute
        compared = [
            [cell for cell in cells if name in ("", cell.attribute)]
            for cells in looked_up
            # Some attributes are never shown, so whether they still differ is not known.
            if not cells or not name or any(cell.attribute == name for cell in cells)
        ]
        differing = [cell for cells in compared for cell in cells if cell.differs]
        if compared and not differing and group.kind in _OF_ITEMS:
            return SINCE_GONE
        pairs = [(cell.sql or "null", cell.item or "null") for cell in differing if name]
        return cause_of(group.kind, name, pairs, around)

    def _of_finding(self, group: str, finding: Finding, cells: Sequence[Cell]) -> Difference:
        show = self.showing
        why = f"{finding.item_type}: {finding.reason}" if finding.item_type else finding.reason
        return Difference(
            group,
            row_key=clipped(show.key(finding.source_key)),
            item_key=clipped(show.key(finding.item_key, finding.source_key or "[]")),
            cells=cells,
            why=clipped(show.key(why, finding.source_key or "[]")),
        )


def place_of(finding: Finding) -> Place:
    """The fields that are equal when two runs find the same difference."""
    return finding.kind, finding.entity, finding.source_key, finding.item_key, finding.attribute


def _ended_s(run: Run) -> float:
    """The end of the run in seconds since 1970; of a run that has not ended its start, as findings may be that old."""
    return datetime.fromisoformat(run.ended_at or run.started_at).timestamp()


def _differs(sample: Sample, name: str, place: int) -> bool:
    if sample.row is None or sample.item is None:
        return True
    return (
        sample.row[place] != sample.item[place] if not sample.key.attribute else name == sample.key.attribute
    )


def _id(*words: str) -> str:
    """A short id, the same for the same kind of difference in every report, so that links stay valid."""
    return f"g-{blake2b(repr(words).encode(errors='surrogatepass'), digest_size=5).hexdigest()}"
