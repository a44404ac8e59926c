"""`migrator migrate-mapping`: switches a running job from one revision of its mapping to another."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

from msgspec import Struct

from migrator.cli import options as cli
from migrator.cli.cost import Bill, bill_of, need_allowed
from migrator.cli.runs import RunEnd, kept_mapping, known_revision, older_file
from migrator.cli.text import SHOWN, finding_line
from migrator.cli.watched import Watched, signs_of
from migrator.commands.processes import stage_of
from migrator.commands.table_work import may_remove, refuse_asked
from migrator.commands.verify_work import begun_run, confirm_of, recheck_of
from migrator.features.revisions.diff_work import measured_work, work_lines
from migrator.mapping.difference.difference import MappingDifference, PlannedRevision
from migrator.mapping.difference.steps import (
    ORDER,
    ROUNDS,
    Asked,
    ChangeDirection,
    Confirmed,
    answered,
    proven,
    refuse_direct,
    run_steps,
    way_of,
)
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.wire import Estimate
from migrator.mapping.model.instances import ChangeStep, RevisionChange, Share
from migrator.mapping.model.journal import Page, Run, RunIdentity
from migrator.mapping.model.live import Installation, OpenFindings, Outcome, Root
from migrator.mapping.model.results import VerifyResult
from migrator.mapping.model.table import TOMBSTONE, Item, ItemKey
from migrator.runtime.errors import (
    CLEAN,
    DIFFERENT,
    Interrupted,
    MappingError,
    RefusedError,
    SettingsError,
    StoppedError,
    amount,
)
from migrator.runtime.values import replace
from migrator.settings.job import Job
from migrator.stages.backfill.stage import Backfill, BackfillOptions, estimate
from migrator.stages.backfill.write import ConditionalPath, Only, only_changed
from migrator.stages.core.removal import OwnItems
from migrator.stages.live.capture import owned
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.writers import both, fence_off, outlive
from migrator.stages.process import (
    begin,
    identity_of,
    need_both,
    need_bucket,
    refuse_changed,
    runs_before,
    scope_of_run,
    taken_by,
)
from migrator.stages.session.session import ConcurrentEdges, Held, JobSession
from migrator.stages.verify.stage import VerifyOptions, keep_look

# ── Items of entities that a new mapping no longer has, replaced by tombstones ──


@dataclass
class Gone(OwnItems):
    """Replaces items and tombstones by tombstones of their rows. No writer by an older mapping may still run.

    Late or repeated requests of such a writer then find a newer ticket (rule 3). After a delete, they would
    leave an item that no row of this mapping makes.
    """

    refresh: Refresh = field(kw_only=True)
    open_findings: OpenFindings = field(kw_only=True)

    def run(self, session: JobSession, run: Run) -> int:
        """Return the items replaced by all calls of this run; it continues after each segment's last page.

        Raises: StoppedError, Interrupted; the same run continues later.
        """
        refresh = self.refresh
        # Before the scan: its items were read from rows under a lower ticket.
        ticket = refresh.draw()
        walk = self.walk("stopped; what is done stays, and the same command resumes")
        return walk.resumed(
            session.journal, run, lambda items: Counter(replaced=self._replace(items, ticket))
        )["replaced"]

    def _replace(self, items: Sequence[Item], ticket: int) -> int:
        refresh, table = self.refresh, self.table
        own = [(item, root) for item in items if (root := self.root(item)) is not None]
        live = [(table.key_of(item), root) for item, root in own if table.type_of(item) != TOMBSTONE]
        outcomes: Sequence[Outcome] = ()
        if live:
            self.check()
            outcomes = refresh.store.write([refresh.tombstone(root, key, ticket) for key, root in live])
            self._refuse(outcomes, ticket)
        # Also of tombstones: a call that was killed had written them, and offered their keys to no row yet.
        self._offer([table.key_of(item) for item, _ in own], ticket)
        return sum(outcome.verdict == "stored" for outcome in outcomes)

    def _refuse(self, outcomes: Sequence[Outcome], ticket: int) -> None:
        """Raises: StoppedError if the table did not take all of them; RestoredError if the source went back."""
        self.refresh.refuse_newer(outcomes, ticket)
        if why := next((outcome.why for outcome in outcomes if outcome.verdict == "unwritten"), None):
            raise StoppedError(f"the table did not take every tombstone ({why}); run the same command again")

    def _offer(self, keys: Sequence[ItemKey], ticket: int) -> None:
        """Read rows again that requested a key now free; withdraw requests of unknown rows."""
        memory, entities = self.refresh.memory, self.refresh.entities
        requests = memory.requests_of(keys) if keys else []
        memory.withdraw([request for request in requests if request.root[0] not in entities], ticket)
        wanted: dict[Root, set[ItemKey]] = {}
        for request in requests:
            if request.root[0] in entities:
                wanted.setdefault(request.root, set()).add(request.key)
        if wanted:
            refreshed = self.refresh(wanted)
            self.open_findings.settle(refreshed.tickets, refreshed.findings)


_AT_ONCE = 200


class Flags(Struct, frozen=True):
    go_back: bool
    again: bool
    settle_s: float
    max_write_units: int | None
    yes: bool
    force: bool


def rewritten(difference: MappingDifference, entities: Sequence[CompiledEntity]) -> list[CompiledEntity]:
    changed = {entity.name for entity in difference.entities if entity.effect != "gone"}
    return [entity for entity in entities if entity.name in changed]


@dataclass
class Revising:
    """One change of a job.

    `session`, `old`: by the new and by the former mapping.
    `bill`: the allowed one; None if no items will be written.
    `is_first`: the job never used the newer mapping.
    `left`: indexes that stay for lack of a request to remove them.
    `findings`: of the last verify, those that stay.
    `rows`: read for writing.
    `units`: taken by the table in this call.
    """

    stack: ExitStack
    old: JobSession
    session: JobSession
    difference: MappingDifference
    change: RevisionChange
    is_first: bool
    bill: Bill | None
    lease: Held
    flags: Flags
    left: list[str] = field(default_factory=list)
    findings: int = 0
    rows: int = 0
    units: float = 0.0

    @property
    def works(self) -> Mapping[ChangeStep, Callable[[], str]]:
        return {
            "indexes": self._indexes,
            "newest": self._newest,
            "items": partial(self._counted, self._items),
            "gone": partial(self._counted, self._gone),
            "verify": partial(self._counted, self._verify),
            "unasked": self._unasked,
        }

    def _counted(self, work: Callable[[], str]) -> str:
        """The step's result, with the table's count of units since its start or resumption."""
        sent = self.session.target.store.sent
        before = sent.write_units
        said = work()
        units = sent.write_units - before
        self.units += units
        return f"{said}; {units:,.0f} write units in this call" if units else said

    @property
    def usd(self) -> Decimal | None:
        price = bill_of(self.job, Estimate()).price
        return None if price is None else price.write * Decimal(self.units) / 1_000_000

    # ── edges ──

    @property
    def job(self) -> Job:
        return self.session.job

    @cached_property
    def edges(self) -> ConcurrentEdges:
        return self.stack.enter_context(self.session.open_concurrent())

    @contextmanager
    def _writing(self) -> Iterator[Callable[[], None]]:
        """Register as a writer once no fast run and no other mapping's writer is active; yield the write check."""
        edges = self.edges
        edges.guard()
        heartbeats, lifetimes = edges.heartbeats, edges.heartbeats.lifetimes
        if heartbeats.revisions.old(heartbeats.writers.living(lifetimes.gone_s)):
            cli.say(f"waiting for writers by another mapping, {lifetimes.gone_s:g} s at most")
        fence_off(heartbeats.writers, lifetimes, self._wait)
        outlive(heartbeats.writers, heartbeats.revisions, lifetimes, self._wait)
        writer_lease, is_clean = heartbeats.enter("conditional"), False
        try:
            yield both(self.lease.check, writer_lease.check)
            is_clean = True
        finally:
            heartbeats.leave(writer_lease, clean=is_clean)

    def _wait(self, wait_s: float) -> None:
        if self.session.stop.wait(wait_s):
            raise Interrupted("stopped")

    # ── indexes ──

    def _indexes(self) -> str:
        admin, design = self.session.target.admin, self.session.target.design
        planned = admin.index_changes(design)
        if planned.cannot:
            raise SettingsError("\n".join(f"index {name}: {why}" for name, why in planned.cannot.items()))
        names = [index.name for index in planned.add]
        if not names:
            return "none is missing"
        if self.job.target.managed_elsewhere:
            what = f"index {', '.join(names)} is missing, and target.managed_elsewhere leaves the table to another tool"
            raise SettingsError(
                f"{what}: `migrator table change {self.job.path} --as terraform` prints the lines to edit; when the index is"
                " filled, run the same command again"
            )
        admin.settle(design, cli.say)
        for index in planned.add:
            cli.say(f"adding index {index.name}")
            admin.add_index(design, index, self.job.target.options, cli.say)
        return f"{', '.join(names)} added"

    def _unasked(self) -> str:
        gone = {part.index for part in self.difference.table if part.way == "remove"}
        admin, design = self.session.target.admin, self.session.target.design
        names = [name for name in admin.index_changes(design).remove if name in gone]
        if not names:
            return "there is none"
        mapping = self.session.checked.mapping
        refuse_asked(self.session, mapping, mapping.revision, names)
        if self.job.target.managed_elsewhere or not may_remove(tuple(names), yes=self.flags.yes):
            self.left = names
            return f"{', '.join(names)} left; nothing uses it"
        for name in names:
            admin.remove_index(design, name, cli.say)
        return f"{', '.join(names)} removed"

    # ── the newest ──

    def _newest(self) -> str:
        edges, plans = self.edges, self.session.plans
        installation = self._installation()
        stage = replace(self.session.capture_by(edges.live), marked_by=installation.marked_by)
        stage.refuse(plans)
        if self.session.revisions.register(go_back=True) in ("new", "old"):
            cli.say("processes that write by another mapping stop")
        changed = () if stage.status(plans).whole else stage.install(plans).changed
        with self._writing():
            means = edges.live.capture.means
            captured = f"{means} changed: {', '.join(changed)}" if changed else "capture fits"
            return f"the job works by mapping {self.session.checked.mapping.revision}; {captured}"

    def _installation(self) -> Installation:
        return owned(self.edges.live.capture.installation(), self.job.name)

    # ── items ──

    def _items(self) -> str:
        entities = rewritten(self.difference, self.session.checked.entities)
        if not entities:
            return "those of all rows stay as they are"
        need_bucket(self.job, entities)
        edges, journal, installation = self.edges, self.session.journal, self._installation()
        identity = identity_of(
            *("backfill", self.session, self.session.table_id, entities, f"change {self.change.number}"),
            installation=installation.id,
        )
        run = begin(journal, identity, again=False, after=runs_before(journal, self.job.name))
        journal.keep_installation(run, installation.id)
        with self._writing() as check, ExitStack() as stack:
            path = ConditionalPath(edges.refresh(check), edges.open_findings, self._only())
            tuning = self.job.tuning
            options = BackfillOptions(tuning.workers, tuning.page_rows)
            source = self.session.source.at_primary()
            stage = Backfill(source, journal, path, cli.progress(), options, self.session.stop)
            if run.state == "done":
                result = stage.result(run, entities, 0.0)
            else:
                stage = self._on_record(stack, stage, run)
                with RunEnd(journal.end_run, run, self.job.hooks), stage.progress:
                    result = stage.run(run, entities)
        total = result.total
        self.rows += total.rows
        refused = f", {total.refused:,} refused" if total.refused else ""
        return f"{amount(total.items, 'item')} of {amount(total.rows, 'row')} written{refused}"

    def _only(self) -> dict[str, Callable[[Page], Only]]:
        former = {entity.name: entity for entity in self.old.checked.entities}
        source, live = self.old.source.at_primary(), self.edges.entities
        renamed = self.difference.renamed
        return {
            changed.name: only_changed(
                changed,
                live[changed.name].together,
                former.get(renamed.get(changed.name, changed.name)),
                source,
                is_first=self.is_first,
            )
            for changed in self.difference.entities
            if changed.effect != "gone"
        }

    def _on_record(self, stack: ExitStack, stage: Backfill, run: Run) -> Backfill:
        connections = taken_by(self.job, stage.options.workers)
        own = Share(stage.who, scope_of_run(run), connections=connections)
        watched = Watched("backfill", self.session, signs_of(self.job.tuning), None, own)
        return watched.open_backfill(stack, stage, 0 if self.bill is None else self.bill.estimate.rows)

    # ── entities that are gone ──

    def _gone(self) -> str:
        names = frozenset(entity.name for entity in self.difference.entities if entity.effect == "gone")
        if not names:
            return "there are none"
        self._refuse_shared(names)
        edges, tuning = self.edges, self.job.tuning
        scope = f"change {self.change.number}, segments={tuning.scan_segments}"
        revision = self.session.checked.mapping.revision
        identity = RunIdentity("gone", self.job.name, self.session.table_id, revision, scope)
        journal = self.session.journal
        run = begin(journal, identity, again=False, after=0)
        with self._writing() as check, RunEnd(journal.end_run, run, self.job.hooks):
            stage = Gone(
                *(edges.target.store, edges.target.design, names, check),
                *(tuning.scan_segments, tuning.workers, self.session.stop),
                refresh=edges.refresh(check),
                open_findings=edges.open_findings,
            )
            replaced = stage.run(self.session, run)
        return f"{amount(replaced, 'item')} of {', '.join(sorted(names))} replaced by tombstones"

    def _refuse_shared(self, names: frozenset[str]) -> None:
        for other, entities in sorted(self.session.journal.writers(self.session.table_id).items()):
            if other != self.job.name and entities & names and not self.flags.force:
                what = f"job {other} wrote {', '.join(sorted(entities & names))} into this table also"
                raise SettingsError(
                    f"{what}, and _src does not name an item's job; --force removes the items of both"
                )

    # ── the proof ──

    def _verify(self) -> str:
        need_bucket(self.job, self.session.checked.entities)
        # Read before the first row: their changes are compared with the table as a whole.
        marks = self.edges.live.marks
        unreadable = list(self.edges.relay(self.lease.check).unreadable())
        verified = self._verified()
        confirmed, rows = proven(verified.confirmed, self._refresh, self._rechecked)
        if confirmed:
            raise RefusedError("\n".join(self._differing(len(confirmed))))
        if unreadable:
            with self._writing() as check:
                check()
                marks.finish(unreadable)
            cli.say(
                f"{amount(len(unreadable), 'change')} of the mapping before acknowledged: the verify covers their rows"
            )
        self.rows += rows
        left = self.session.journal.finding_counts(self._last_verify())
        self.findings = sum(left.values())
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(left.items()))
        written = f", {amount(rows, 'row')} that had changed meanwhile written" if rows else ""
        return f"{amount(verified.scanned, 'item')} of the table, {kinds or 'clean'}{written}"

    def _differing(self, rows: int) -> Iterator[str]:
        journal, mapping = self.session.journal, self.session.checked.mapping
        found = journal.findings(self._last_verify(), SHOWN)
        yield from map(finding_line, cli.findings_to_print(found, mapping, whole_keys=False))
        yield (
            f"{amount(rows, 'row', 'differ')} from the items after {ROUNDS} rounds (above; all: `migrator status"
            f" {self.job.path} --findings`). Start the relay if none is running, and run the same command again"
        )

    def _last_verify(self) -> Run:
        runs = self.session.journal.runs(self.job.name)
        return next(run for run in reversed(runs) if run.identity.kind == "verify")

    def _verified(self) -> VerifyResult:
        session, entities = self.session, self.session.checked.entities
        identity = identity_of("verify", session, session.table_id, entities)
        tuning = self.job.tuning
        options = VerifyOptions(tuning.workers, tuning.page_rows, tuning.scan_segments)
        recheck = recheck_of(session, self.edges.live, self.flags.settle_s)
        stage = stage_of(session, self.lease, options, cli.progress(), *recheck)
        run = begun_run(session, identity, self._installation(), again=False)
        with RunEnd(session.journal.end_run, run, self.job.hooks), stage.progress:
            keep_look(session.changes_counted, partial(session.journal.keep_look, run))
            return stage.run(run, entities)

    def _rechecked(self) -> Confirmed:
        return confirm_of(self.session, 0.0)(self._last_verify())

    def _refresh(self, confirmed: Confirmed) -> None:
        roots = list(confirmed)
        with self._writing() as check:
            refresh = self.edges.refresh(check)
            for start in range(0, len(roots), _AT_ONCE):
                written = refresh({root: confirmed[root] for root in roots[start : start + _AT_ONCE]})
                self.edges.open_findings.settle(written.tickets, written.findings)


_ROWS_EXACT = 20_000
_COMMAND = "migrate-mapping"
_BEFORE_ITEMS: tuple[ChangeStep, ...] = ("indexes", "newest", "items")


@cli.belonging()
def migrate_mapping(session: JobSession, dry_run: bool, as_json: bool, **values: Any) -> int:
    flags, job = Flags(**values), session.job
    if flags.again and flags.go_back:
        raise SettingsError(
            "--restart switches to the file's mapping, --go-back to the previous one: pass one of them"
        )
    with ExitStack() as stack:
        stack.enter_context(cli.stop_on_signals(session.stop))
        lease = session.lease()
        if not dry_run:
            stack.enter_context(lease)
        job = job.limited(flags.max_write_units)
        changes = session.changes
        file = stack.enter_context(session.another(_COMMAND, job=job))
        way = _way(file, flags)
        if way.before == way.after:
            return _nothing(job, way, as_json=as_json)
        sides = _sides(stack, session, file, way)
        difference = _gated(sides, way, flags)
        if dry_run:
            return _print_planned(sides, way, difference, as_json=as_json)
        bill = _allowed_bill(sides, way, difference, flags)
        change, older_file = _begun(sides, way)
        # Of keys that the job has left nothing is known but that tombstones lie there.
        is_first = not (change.goes_back or changes.is_left(change.after))
        revising = Revising(stack, sides.old, sides.new, difference, change, is_first, bill, lease, flags)
        tell = cli.say if as_json else cli.print_folded
        with cli.stopped_says(lambda: "stopped; what is done stays, and the same command resumes"):
            done = run_steps(change, revising.works, changes.advance, _still(sides), tell)
    return _print(way, done, revising, older_file, as_json=as_json)


def _begun(sides: _Sides, way: ChangeDirection) -> tuple[RevisionChange, str]:
    """The change, now begun, and the file written for an older mapping."""
    changes = sides.new.changes
    older_file = "" if sides.is_of_file else _written(sides.new)
    changes.keep(way.after, sides.new.checked.mapping.text)
    change = way.resumed or changes.begin(way.before, way.after, goes_back=way.goes_back)
    if way.resumed:
        cli.say(f"the change from mapping {change.before} to {change.after} is resumed")
    return change, older_file


# ── the job's revision, and its target ──


class _Sides(Struct, frozen=True):
    """Both revisions, planned on the source as it is now. `is_of_file`: the new one is in the job's file."""

    old: JobSession
    new: JobSession
    is_of_file: bool


def _way(file: JobSession, flags: Flags) -> ChangeDirection:
    changes = file.changes
    newest, standing = file.revisions.newest_and_standing()
    named = "" if newest is None else newest.revision.mapping
    # The same mapping in other words is the same.
    own = named if standing == "newest" else file.checked.mapping.revision
    last = changes.last()
    before = last.before if last is not None and last.after == named else changes.before(named)
    is_left = changes.is_left(own)
    return way_of(Asked(own, standing, is_left, flags.go_back, flags.again, named, before or "", last))


def _sides(stack: ExitStack, session: JobSession, file: JobSession, way: ChangeDirection) -> _Sides:
    is_of_file = way.after == file.checked.mapping.revision or not way.goes_back
    sides = []
    for revision in (way.before,) if is_of_file else (way.before, way.after):
        parsed = kept_mapping(file, revision)
        if parsed.faults:
            raise MappingError(parsed.faults)
        opened = session.another(_COMMAND, job=file.job, parsed=parsed)
        sides.append(stack.enter_context(opened))
    return _Sides(sides[0], file if is_of_file else sides[1], is_of_file)


def _written(session: JobSession) -> str:
    """The job file for starting relays and services, written next to the job's own, which stays unchanged."""
    mapping = session.checked.mapping
    place, text = older_file(session.job, mapping.revision), mapping.text.encode()
    unfinished = f"{place}.unfinished"
    try:
        if os.path.lexists(place):
            with open(place, "rb") as there:
                if there.read() == text:
                    return place
            what = f"{place}: this file is in the way: the mapping that the job goes back to is to be written there"
            raise SettingsError(
                f"{what}, and it holds another text; move it away and run the same command again"
            )
        with open(unfinished, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, place)
    except OSError as error:
        what = f"{place}: the mapping that the job goes back to cannot be written there ({error.strerror})"
        raise SettingsError(f"{what}; fix that, and run the same command again") from None
    return place


# ── before anything is changed ──


def _gated(sides: _Sides, way: ChangeDirection, flags: Flags) -> MappingDifference:
    new = sides.new
    old, planned = (PlannedRevision(one.checked.mapping, one.checked.read_plans) for one in (sides.old, new))
    difference = need_both(old, planned, new.parsed.document, cli.say)
    refuse_direct(difference, new.job.direct)
    if not way.goes_back:
        owned(new.live.capture.installation(), new.job.name)
    ownership = new.ownership
    (ownership.need_direct if flags.force else ownership.need_rows)()
    if way.resumed is None or way.resumed.step not in ("verify", "unasked"):
        refuse_changed(list(answered(difference, new.phases.all())), cli.say, force=flags.force)
    return difference


def _allowed_bill(
    sides: _Sides, way: ChangeDirection, difference: MappingDifference, flags: Flags
) -> Bill | None:
    """Cost of all items of the changed entities; None if none will be written.

    Confirmed before the first change, which stops relays by the older mapping. Raises: as need_allowed.
    """
    if way.resumed is None:
        are_written = not way.goes_back or sides.new.changes.was_newest(way.before)
    else:
        are_written = way.resumed.step in _BEFORE_ITEMS
    entities = rewritten(difference, sides.new.checked.entities)
    if not entities or not are_written:
        return None
    bill = bill_of(sides.new.job, estimate(sides.new.source, entities, time.time()))
    cli.say(f"at most: {bill.line()}")
    need_allowed(sides.new.job, bill, None, yes=flags.yes)
    return bill


def _still(sides: _Sides) -> Callable[[], None]:
    job, before = sides.new.job, sides.new.checked.mapping.revision

    def still() -> None:
        if sides.is_of_file and known_revision(job) != before:
            what = f"{job.mapping} was edited while the job changes to mapping {before}"
            raise SettingsError(
                f"{what}: put it back and run the same command again, or leave the change by --go-back; then change to"
                " what you have written"
            )

    return still


# ── printing ──


_WHAT: dict[ChangeStep, str] = {
    "indexes": "add the indexes that the table lacks",
    "newest": "make the new mapping the newest, capture what it reads, wait for writers by the old one",
    "items": "write the items that change, by condition; tombstones where items were",
    "gone": "put tombstones in place of items of entities that are gone",
    "verify": "verify the whole table",
    "unasked": "remove the indexes that nothing uses any longer",
}


def _print_result(
    lines: Iterable[str],
    way: ChangeDirection,
    steps: Sequence[tuple[str, str]] = (),
    rows: int = 0,
    units: float = 0.0,
    usd: Decimal | None = None,
    left: Sequence[str] = (),
    findings: int = 0,
    file: str = "",
    *,
    as_json: bool,
) -> int:
    """`rows`: read for writing, done or planned.

    `units`: write units this call took or will take; `usd`: their cost, None if unknown.
    """
    data = {
        **{"before": way.before, "after": way.after},
        "steps": [{"step": step, "said": said} for step, said in steps],
        **{"rows": rows, "units": round(units), "usd": None if usd is None else float(usd)},
        **{"left": left, "findings": findings, "file": file},
    }
    cli.print_result(data, lines, as_json=as_json)
    return DIFFERENT if left or findings else CLEAN


def _nothing(job: Job, way: ChangeDirection, *, as_json: bool) -> int:
    revision = way.after
    place = older_file(job, revision)
    file = place if way.advice and os.path.isfile(place) else ""
    lines = [f"nothing to do: the job works by mapping {revision} already", way.advice]
    lines += [f"its file is {file}"] if file else []
    return _print_result(filter(None, lines), way, file=file, as_json=as_json)


def _print_planned(
    sides: _Sides, way: ChangeDirection, difference: MappingDifference, *, as_json: bool
) -> int:
    work = None
    if difference.entities:
        job = sides.new.job
        both = [(one.checked, one.source) for one in (sides.old, sides.new)]
        work = measured_work(job, both, difference, _ROWS_EXACT, None, tries_inserts=False)
    steps = list(_planned(difference))
    read = {entity.name for entity in difference.entities if entity.effect != "gone"}
    rows = 0 if work is None else sum(number for name, number in work.rows.items() if name in read)
    planned = (0, 0.0, None) if work is None else (rows, work.units, work.usd)
    lines = [f"{number}. {said}" for number, (_, said) in enumerate(steps, 1)]
    lines += [] if work is None else work_lines(work)
    _print_result(lines, way, steps, *planned, as_json=as_json)
    return DIFFERENT


def _planned(difference: MappingDifference) -> Iterator[tuple[ChangeStep, str]]:
    named: dict[ChangeStep, Sequence[str]] = {
        "indexes": [part.index for part in difference.table if part.way == "add"],
        "items": [entity.name for entity in difference.entities if entity.effect != "gone"],
        "gone": [entity.name for entity in difference.entities if entity.effect == "gone"],
        "unasked": [part.index for part in difference.table if part.way == "remove"],
    }
    for step in ORDER:
        if step not in named:
            yield step, _WHAT[step]
        elif named[step]:
            yield step, f"{_WHAT[step]}: {', '.join(named[step])}"


def _print(
    way: ChangeDirection,
    done: Sequence[tuple[str, str]],
    revising: Revising,
    older_file: str,
    *,
    as_json: bool,
) -> int:
    left, findings = revising.left, revising.findings
    taken = (done, revising.rows, revising.units, revising.usd, left, findings, older_file)
    if as_json:
        return _print_result((), way, *taken, as_json=True)
    cli.print_folded(f"the job works by mapping {way.after}; restart relays and services with it")
    lines = [f"it is in {older_file}: put that in place of the job's mapping file"] if older_file else []
    lines += [f"index {name} stays in the table; `migrator table change JOB` removes it" for name in left]
    unfixed = f"{amount(findings, 'finding')} that no write fixes: see `migrator status JOB --findings`"
    lines += [unfixed] if findings else []
    return _print_result(lines, way, *taken, as_json=False)
