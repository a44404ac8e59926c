"""Differences on record, grouped, with example rows and items side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import TypeAlias

from migrator.mapping.heart.items import CompiledEntity, items_for
from migrator.mapping.patterns.diff import equal
from migrator.mapping.show.causes import pairs_of
from migrator.model.edges import ItemStore, Rows
from migrator.model.errors import Interrupted, MigratorError, RowError
from migrator.model.evidence import DiffKey, Sample
from migrator.model.journal import Finding, FindingGroup, FindingGroups, Run
from migrator.model.keys import item_key_of
from migrator.model.report import Cell, Difference, Found, Group
from migrator.model.table import Item, ItemKey, TableDesign
from migrator.stages.report.shown import Showing, Windows, clipped
from migrator.stages.report.verdict import SINCE_GONE, Cause, Circumstances, cause_of

# ── The row and the item that a finding names, read again, side by side ──


@dataclass
class Pairs:
    """`entities`: by name. `failed`: why reading was given up, '' while it was not; nothing is read after that.

    What is shown is how both sides are now: a difference that has gone since shows no cell that differs.
    """

    source: Rows
    store: ItemStore
    entities: Mapping[str, CompiledEntity]
    table: TableDesign
    showing: Showing
    failed: str = ""

    def cells(self, finding: Finding) -> list[Cell] | None:
        """Attribute by attribute what the row makes and what the item has; nothing where there is neither, None where it
        cannot be told."""
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


# ──
# Differences on record, grouped: what shadow reads and replays found, what runs found, with examples side
# by side.

Place: TypeAlias = tuple[str, ...]
_Kind: TypeAlias = tuple[str, DiffKey]
"""Of differences: the pattern, and what it counts them by."""
SHOWN_AT_MOST = 5_000
"""Differences of one report; the rest is counted."""
_OF_ITEMS = ("missing", "unexpected", "different")
"""Kinds of findings that are of one row and one item, and are gone when these are the same."""
_LOOKED_UP = 5
"""Findings of a group whose row and item are read again, so that both sides can be shown."""


@dataclass(frozen=True)
class Differences:
    """`values`: whether values of rows may be shown at all. `pairs` None: rows and items cannot be read."""

    showing: Showing
    around: Circumstances
    values: bool = True
    pairs: Pairs | None = None

    # ── of shadow reads and replays ──

    def of_windows(self, windows: Windows, samples: Sequence[Sample]) -> list[Group]:
        """A group for each kind of difference of a pattern; what is from before its last move is a group of its own."""
        standing, before = windows.found(), windows.found(since_move=False)
        recent: dict[_Kind, list[Sample]] = defaultdict(list)
        older: dict[_Kind, list[Sample]] = defaultdict(list)
        for one in samples:
            kind = one.pattern, one.key
            is_recent = kind in standing and windows.is_since_move(one.pattern, one.at)
            (recent if is_recent else older)[kind].append(one)
        groups = [self._of_pattern(kind, counts, recent[kind]) for kind, counts in standing.items()]
        for kind, counts in before.items():
            made = self._of_pattern(kind, counts, older[kind], "before" if kind in standing else "")
            groups.append(replace(made, before_move=True))
        return groups

    def _of_pattern(
        self, kind: _Kind, counts: Counter[str], samples: Sequence[Sample], when: str = ""
    ) -> Group:
        """`when`: what tells the group from another one of its kind."""
        pattern, key = kind
        both = [
            (one.attributes, one.row, one.item)
            for one in samples
            if one.row is not None and one.item is not None
        ]
        # As many answers as show one row are evidence of one row.
        rows = len({one.subject for one in samples}) if all(one.subject for one in samples) else 0
        around = replace(self.around.of(max((one.at for one in samples), default=None)), rows=rows)
        cause = cause_of(key.kind, key.attribute, list(pairs_of(key.attribute, both)), around)
        id_ = _id("pattern", pattern, key.kind, key.part, key.attribute, *filter(None, [when]))
        origins: list[Found] = [one for one in ("service", "replay") if counts[one]]
        made = Group(
            id=id_,
            found_by=origins,
            where=pattern,
            part=key.part,
            kind=key.kind,
            attribute=key.attribute,
            count=counts.total(),
            cause=cause.likely,
            advice=cause.advice,
            rows=rows,
        )
        return replace(made, differences=[self._of_sample(id_, one) for one in samples])

    def _of_sample(self, group: str, one: Sample) -> Difference:
        if not self.values:
            return Difference(group, one.at, why=one.why)
        sql, item = (self._shown_side(one, side) for side in (one.row, one.item))
        cells = [
            Cell(name, sql[place], item[place], _differs(one, name, place))
            for place, name in enumerate(one.attributes)
        ]
        shown = cells if one.row is not None or one.item is not None else []
        return Difference(group, one.at, self._params(one), cells=shown, why=one.why)

    def _shown_side(self, one: Sample, texts: Sequence[str] | None) -> Sequence[str | None]:
        if texts is None:
            return [None] * len(one.attributes)
        return self.showing.sample(one.pattern, one.attributes, texts)

    def _params(self, one: Sample) -> dict[str, str]:
        names = list(one.params)
        return dict(
            zip(names, self.showing.sample(one.pattern, names, list(one.params.values())), strict=True)
        )

    # ── of runs ──

    def of_run(
        self, run: Run, groups: FindingGroups, limit: int = SHOWN_AT_MOST, told: Collection[Place] = ()
    ) -> Iterator[Group]:
        """A group for each kind of finding but refused rows. `limit`: of differences in all of them. `told`: what another
        run has found, too, which is one difference and not two."""
        counted = [one for one in groups.groups(run) if one.kind != "refused"]
        for place, group in enumerate(counted):
            share = max(_LOOKED_UP, limit // (len(counted) - place))
            found = groups.some(run, group, min(share, max(0, limit)))
            limit -= len(found)
            new = [one for one in found if place_of(one) not in told]
            if count := group.count - len(found) + len(new):
                yield self._of_group(run, replace(group, count=count), new)

    def _of_group(self, run: Run, group: FindingGroup, found: Sequence[Finding]) -> Group:
        id_ = _id(run.identity.kind, group.entity, group.kind, "", group.attribute)
        looked_up = found[:_LOOKED_UP] if self.values and self.pairs is not None else []
        seen = [self.pairs.cells(one) for one in looked_up] if self.pairs is not None else []
        around = replace(self.around.of(_ended_s(run)), of_pattern=False)
        cause = self._cause_now(group, [cells for cells in seen if cells is not None], around)
        cells = [one or [] for one in seen] + [[]] * (len(found) - len(seen))
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
            differences=[self._of_finding(id_, one, row) for one, row in zip(found, cells, strict=True)],
        )

    def _cause_now(
        self, group: FindingGroup, looked_up: Sequence[Sequence[Cell]], around: Circumstances
    ) -> Cause:
        """By the values of now. What is the same by now tells nothing of why it was not."""
        name = group.attribute
        compared = [
            [one for one in cells if name in ("", one.attribute)]
            for cells in looked_up
            # Some attributes are never shown, and nobody sees whether they still differ.
            if not cells or not name or any(one.attribute == name for one in cells)
        ]
        differing = [one for cells in compared for one in cells if one.differs]
        if compared and not differing and group.kind in _OF_ITEMS:
            return SINCE_GONE
        pairs = [(one.sql or "null", one.item or "null") for one in differing if name]
        return cause_of(group.kind, name, pairs, around)

    def _of_finding(self, group: str, one: Finding, cells: Sequence[Cell]) -> Difference:
        show = self.showing
        why = f"{one.item_type}: {one.reason}" if one.item_type else one.reason
        return Difference(
            group,
            row_key=clipped(show.key(one.source_key)),
            item_key=clipped(show.key(one.item_key, one.source_key or "[]")),
            cells=cells,
            why=clipped(show.key(why, one.source_key or "[]")),
        )


def place_of(one: Finding) -> Place:
    """What two runs that find one difference say alike."""
    return one.kind, one.entity, one.source_key, one.item_key, one.attribute


def _ended_s(run: Run) -> float:
    """By when it had found what it has found; that of one that has not ended may be as old as its beginning."""
    return datetime.fromisoformat(run.ended_at or run.started_at).timestamp()


def _differs(one: Sample, name: str, place: int) -> bool:
    if one.row is None or one.item is None:
        return True
    return one.row[place] != one.item[place] if not one.key.attribute else name == one.key.attribute


def _id(*words: str) -> str:
    """Short, the same for the same kind of difference in every report, so that links to it last."""
    return f"g-{blake2b(repr(words).encode(errors='surrogatepass'), digest_size=5).hexdigest()}"
