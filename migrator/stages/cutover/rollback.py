"""Rollback from `complete`: evidence that it is possible, that it may be lost, and its steps in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from migrator.mapping.items.items import project, stamp
from migrator.mapping.model.evidence import Line
from migrator.mapping.model.live import Root, RowsVerified, StreamRecord, Unkept
from migrator.mapping.model.table import Item, ItemKey, RowTree, TableDesign
from migrator.runtime.errors import RefusedError, amount
from migrator.settings.job import CutoverSettings
from migrator.source.dynamodb.reader import Check, Work
from migrator.stages.cutover.dependence import ours_lines
from migrator.stages.cutover.evidence import Unknown, condition, unknown
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import PAGE_ROWS
from migrator.stages.live.send import LiveEntity
from migrator.stages.reverse.daemon import ReverseStatus
from migrator.stages.reverse.stage import ReadPage, StoredItems

# ── Items that a service wrote itself become ours again: with the row that they are of, and a ticket ──


def named(entities: Mapping[str, LiveEntity], names: Collection[str]) -> list[LiveEntity]:
    """Entities with these written names; an entity in several schemas is one for each."""
    return [entity for entity in entities.values() if entity.compiled.plan.entity.written in names]


class Owning(Struct, frozen=True):
    """Adds migrator's attributes to the stored items of every row, and changes nothing else.

    A service's item has no source, or that of the row it was copied from; a relay would take it for another
    row's and never write it (rule 3). Rows and items are equal when this begins, and no service writes
    either, so the item under a row's key is the row's. Like any writer, it draws a ticket before it reads
    (2), remembers keys that cannot be recomputed (7), and never changes anything with a higher ticket.
    """

    refresh: Refresh
    read_page: ReadPage
    stored: StoredItems
    own: Callable[[Sequence[Item]], int]
    entities: Iterable[LiveEntity]

    def run(self) -> int:
        return sum(self._entity(entity) for entity in self.entities)

    def _entity(self, entity: LiveEntity) -> int:
        owned, after = 0, None
        while True:
            self.refresh.check()
            ticket = self.refresh.draw()
            page = self.read_page(entity.compiled.plan, after, None, PAGE_ROWS)
            if not page:
                return owned
            owned += self._page(entity, page, ticket)
            after = entity.compiled.source_key(page[-1])

    def _page(self, entity: LiveEntity, page: Sequence[RowTree], ticket: int) -> int:
        made, design = self._made(entity, page, ticket), self.refresh.table
        stored, source = self.stored(list(made)), design.source_attribute
        strange = [
            item for key, item in made.items() if key in stored and stored[key].get(source) != item[source]
        ]
        stamp(strange, design, ticket)
        self.refresh.check()
        return self.own(strange)

    def _made(self, entity: LiveEntity, page: Sequence[RowTree], ticket: int) -> Mapping[ItemKey, Item]:
        """Items by key. Keys that cannot be recomputed are remembered before any record claims them."""
        made: dict[ItemKey, Item] = {}
        intended: dict[Root, list[ItemKey]] = {}
        for row in page:
            items = project(entity.compiled, [row], self.refresh.clock()).items
            keys = [self.refresh.table.key_of(item) for item in items]
            made |= zip(keys, items, strict=True)
            intended[(entity.compiled.name, entity.compiled.source_key(row))] = keys
        if entity.remembered:
            self.refresh.memory.remember(ticket, intended)
        return made


# ── Evidence ──


class WayBack(Struct, frozen=True):
    """`hindrances`: why rows cannot be restored from their items.

    `takes_rows`: the source is of a writable kind; `migrator reverse` refuses others.
    """

    hindrances: Sequence[str]
    status: ReverseStatus
    takes_rows: bool = True

    def advice(self, fix: str, waiver: str) -> str:
        return f"{fix}{waiver}" if self.takes_rows else waiver


_NO_FINDING = "no row is stuck"
_COMES_BACK = "their rows come back from their items, and the table's stream is on"
_FIX = "fix it (see `migrator reverse check`)"
_ONE_WAY = "pass --one-way"
_UNWRITTEN = "for an entity that no service wrote to the table itself pass --unwritten ENTITY"


def stays_open(
    look: Callable[[], WayBack | Unknown], limits: CutoverSettings, *, one_way: bool
) -> Iterator[Line]:
    """Line before `complete`: whether SQL can become the truth again later. `one_way`: the operator waives it."""
    if one_way:
        yield Line("way back", _COMES_BACK, "not required: --one-way", "ok")
        return
    way_back = look()
    if isinstance(way_back, Unknown):
        yield unknown("way back", _COMES_BACK, way_back.why, f"{_FIX}, or {_ONE_WAY}")
        return
    yield _comes_back(way_back, way_back.advice(f"{_FIX}, or ", _ONE_WAY))
    status = way_back.status
    alive = "running" if status.processes else "0 running"
    is_ok = status.processes > 0 and status.is_well(limits.lag_max_s)
    start = "start `migrator reverse start`, and see `migrator reverse status`; or "
    advice = way_back.advice(start, _ONE_WAY)
    caught_up = f"at most {limits.lag_max_s:g} s behind, and {_NO_FINDING}"
    requirement = f"a process of `migrator reverse` is alive, {caught_up}"
    yield condition("reverse", requirement, is_ok, f"{alive}; {_seen(status)}", advice)


def may_go_back(
    way_back: WayBack, writing: Sequence[str], unwritten: Collection[str], *, is_drained: bool
) -> list[Line]:
    """Evidence before SQL becomes the truth again.

    `writing`: kinds of our live writers.
    `unwritten`: entities that no service wrote itself, by the operator's word.
    `is_drained`: rows were made from items, so the rest is processed first.
    """
    lines = [_comes_back(way_back, way_back.advice(f"{_FIX}; ", _UNWRITTEN)), *ours_lines(writing)]
    if unwritten:
        found = f"the operator vouches for it: {', '.join(sorted(unwritten))}"
        lines.append(Line("unwritten", "no service wrote their items itself", found, "ok"))
    if is_drained:
        status = way_back.status
        is_ok = status.begun and not status.findings
        advice = "let `migrator reverse start` run; `migrator reverse status` shows what is pending"
        requirement = f"reverse has begun, and {_NO_FINDING}"
        lines.append(condition("reverse", requirement, is_ok, _seen(status), advice))
    return lines


def _comes_back(way_back: WayBack, advice: str) -> Line:
    hindrances = way_back.hindrances
    observed = "; ".join(hindrances) or "so it is"
    return condition("way back", _COMES_BACK, not hindrances, observed, advice)


def _seen(status: ReverseStatus) -> str:
    if not status.begun:
        return "the stream was not begun with"
    waiting = amount(len(status.waiting), "row", "wait")
    return f"{status.lag_s:.0f} s behind; {waiting}, {len(status.findings):,} of them stuck"


# ── Its steps ──


ROWS_OF_ITEMS = (
    "where a service wrote items itself, name their entities in `writes: {direct: […]}`, then `migrator capture install`,"
    " `migrator reverse start` and `migrator reverse verify --repair`; then take them out again, and"
    " `migrator cutover rollback` goes back"
)
"""How rows become the truth again if every pattern is complete and nothing is direct on record."""
WAY_BACK = "way back"
"""The text in the lease of the job's runs meanwhile: no reverse process may start."""
REVERSE_ENDED = "The processes of reverse have ended: give `migrator reverse start JOB` again"
_UNCHANGED = "Nothing was changed"


def quiet(work: Work, design: TableDesign, types: Collection[str], what_next: str) -> Work:
    """A reader's work while no service may write items of these types.

    Records that change only migrator's attributes, or those that services keep, concern no row and are
    acknowledged. A page with any other change is not, so that its rows are made later.
    """
    left_out = {*design.own_attributes, *design.kept}

    def theirs(image: Item | None) -> Item | None:
        return image and {name: value for name, value in image.items() if name not in left_out}

    def worked(records: Sequence[StreamRecord], check: Check) -> None:
        told = [record for record in records if theirs(record.old) != theirs(record.new)]
        images = [[image for image in (record.old, record.new) if image is not None] for record in told]
        written = sum(any(design.type_of(image) in types for image in of) for of in images)
        if written:
            what = f"refused: a service still writes these items ({amount(written, 'change')} just now)"
            raise RefusedError(f"{what}; stop it, and run the command again. {what_next}")
        work(told, check)

    return worked


class GoingBack(Struct, frozen=True):
    """Makes SQL the truth of some entities again. Their services must write neither side until it has ended.

    Each step may run twice: after a crash the same command safely repeats earlier ones. The order keeps data:
    rows are whole (`drain`, `compare`) before anything else is made from them; changes leave marks
    (`capture`) and items are adopted (`own`) before the journal lets services and relays write by rows
    (`keep`); right before it a check shows that no one has written meanwhile (`look`); readers turn to SQL
    last (docs/decisions/0030-a-way-back.md).

    `drops`: attributes that no row keeps may be lost.
    `check`: before each step; raises if another run may be active.
    `drain`, `look`: None if no row was made from items, so that nothing is pending.
    `compare`, `move_counters`: None if an operator vouches for all entities.
    `own`: returns the number of adopted items.
    """

    drops: bool
    check: Check
    drain: Callable[[], ReverseStatus] | None
    compare: Callable[[], RowsVerified] | None
    move_counters: Callable[[], None] | None
    capture: Callable[[], None]
    own: Callable[[], int]
    look: Callable[[], None] | None
    keep: Callable[[], None]

    def run(self) -> int:
        """Return the number of adopted items.

        Raises: RefusedError if a row waits, a service still writes, or rows and items differ.
        """
        self.check()
        if self.drain is not None:
            _refuse_undrained(self.drain())
            self.check()
        if self.compare is not None:
            self._refuse_different(self.compare())
        for step in filter(None, (self.move_counters, self.capture)):
            self.check()
            step()
        self.check()
        owned = self.own()
        if self.look is not None:
            self.look()
        self.check()
        self.keep()
        return owned

    def _refuse_different(self, compared: RowsVerified) -> None:
        next_step = f"{_UNCHANGED}; {ROWS_OF_ITEMS}" if self.drain is None else _drained_without_effect()
        if not compared.is_clean:
            raise RefusedError(f"refused: rows and items differ; see `migrator reverse verify`. {next_step}")
        if compared.unkept and not self.drops:
            names = ", ".join(dropped_attributes(compared.unkept))
            what = f"refused: no row keeps {names}, so the first change of a row would take it away"
            keep = "Name what is to stay in `writes: {keep: […]}` of the job on every host; for the rest pass"
            raise RefusedError(
                f"{what}; `migrator reverse verify` counts them. {keep} --drop-attributes. {next_step}"
            )


def dropped_attributes(unkept: Unkept) -> list[str]:
    return [f"{type_}.{name}" for type_, name in sorted({*unkept.extra, *unkept.forms})]


def _drained_without_effect() -> str:
    return f"{_UNCHANGED}. {REVERSE_ENDED}"


def _refuse_undrained(status: ReverseStatus) -> None:
    if status.waiting:
        what = f"refused: {amount(len(status.waiting), 'row', 'wait')}; see `migrator reverse status`"
        raise RefusedError(f"{what}. {_drained_without_effect()}")
    if status.processes:
        what = "refused: a process of `migrator reverse` was started meanwhile; stop what restarts it"
        raise RefusedError(f"{what}, and run the command again. {_UNCHANGED}")
