"""What each step of `migrator migrate-mapping` does; every one may be done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, partial
from threading import Event

from migrator.cli.cost import Bill, bill_of
from migrator.cli.options import findings_to_print, progress, say
from migrator.cli.runs import RunEnd
from migrator.cli.text import SHOWN, finding_line
from migrator.cli.watched import Watched, signs_of
from migrator.commands.table_change import may_remove, refuse_asked
from migrator.commands.verify_work import begun_run, confirm_of, recheck_of, stage_of
from migrator.mapping.difference.difference import Difference
from migrator.mapping.difference.steps import ROUNDS, Verified, proven
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.wire import Estimate
from migrator.mapping.model.capture import Installation
from migrator.mapping.model.edges import ItemStore
from migrator.mapping.model.instances import ChangeStep, RevisionChange, Share
from migrator.mapping.model.journal import Page, Run, RunIdentity
from migrator.mapping.model.live import OpenFindings, Outcome, Root
from migrator.mapping.model.table import TOMBSTONE, Item, ItemKey, TableDesign
from migrator.runtime.errors import Interrupted, RefusedError, SettingsError, StoppedError
from migrator.settings.job import Job
from migrator.stages.backfill.only import Only, only_changed
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import ConditionalPath
from migrator.stages.core.parallel import TableWalk
from migrator.stages.live.capture import owned
from migrator.stages.live.refresh import Refresh, drawn, highest_above, refuse_above
from migrator.stages.live.writers import both, fence_off, outlive
from migrator.stages.process.session import (
    begin,
    identity_of,
    need_bucket,
    runs_before,
    scope_of_run,
    taken_by,
)
from migrator.stages.session.session import ConcurrentEdges, Held, JobSession
from migrator.stages.verify.stage import VerifyOptions, keep_look

# ── Items of entities that a new mapping has no more, replaced by tombstones ──


@dataclass(frozen=True)
class Gone:
    """Reads every item of the table, a segment at a time; those whose `_src` names one of `entities` become tombstones of
    their rows.

    No writer by an older mapping may be at work any more. Tombstones all the same, and no deletes: a request of such a
    writer that lands later than any should, or that the network repeats, finds a newer ticket there (rule 3) where else it
    would find nothing, and leave an item that no row of this mapping makes.
    """

    refresh: Refresh
    store: ItemStore
    table: TableDesign
    entities: frozenset[str]
    open_findings: OpenFindings
    segments: int
    workers: int
    stop: Event = field(default_factory=Event)

    def run(self, session: JobSession, run: Run) -> int:
        """How many items were replaced, by all calls of this run; it goes on behind the last page of each segment.

        Raises: StoppedError when the table gave up, Interrupted after `stop`; the same run goes on later.
        """
        refresh = self.refresh
        # Before the look: what is found by it was read from rows under a lower ticket.
        ticket = drawn(refresh.tickets, refresh.memory, refresh.control)
        stopped = "stopped; what is done stays, and the same command goes on from there"
        walk = TableWalk(self.store, self.segments, self.workers, self.stop, stopped)
        return walk.resumed(
            session.journal, run, lambda items: Counter(replaced=self._replace(items, ticket))
        )["replaced"]

    def _replace(self, items: Sequence[Item], ticket: int) -> int:
        refresh, table = self.refresh, self.table
        own = [(item, root) for item in items if (root := self._root(item)) is not None]
        live = [(table.key_of(item), root) for item, root in own if table.type_of(item) != TOMBSTONE]
        outcomes: Sequence[Outcome] = ()
        if live:
            refresh.check()
            outcomes = refresh.store.write([refresh.tombstone(root, key, ticket) for key, root in live])
            self._refuse(outcomes, ticket)
        # Also of tombstones: a call that was killed had written them, and offered their keys to no row yet.
        self._offer([table.key_of(item) for item, _ in own], ticket)
        return sum(outcome.verdict == "stored" for outcome in outcomes)

    def _refuse(self, outcomes: Sequence[Outcome], ticket: int) -> None:
        """Raises: StoppedError where the table did not take all of them; RestoredError where the source went back."""
        refuse_above(highest_above(outcomes, ticket), self.refresh.tickets, self.refresh.memory)
        if why := next((outcome.why for outcome in outcomes if outcome.verdict == "unwritten"), None):
            raise StoppedError(f"the table did not take every tombstone ({why}); give the same command again")

    def _offer(self, keys: Sequence[ItemKey], ticket: int) -> None:
        """Rows that requested a key which is free now are read again; of rows of no entity the request is withdrawn."""
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

    def _root(self, item: Item) -> Root | None:
        """The row that an item or a tombstone of these entities is of; None for every other item."""
        root = self.table.root_of(item)
        return root if root is not None and root[0] in self.entities else None


_AT_ONCE = 200


@dataclass(frozen=True)
class Flags:
    """What the command line asked for."""

    go_back: bool
    again: bool
    settle_s: float
    max_write_units: int | None
    yes: bool
    force: bool


def rewritten(difference: Difference, entities: Sequence[CompiledEntity]) -> list[CompiledEntity]:
    """Those whose rows are read and written."""
    changed = {entity.name for entity in difference.entities if entity.effect != "gone"}
    return [entity for entity in entities if entity.name in changed]


@dataclass
class Revising:
    """One change of a job. `session`: by the mapping that it goes to; `old`: by the one before. `bill`: of its
    items, as it was allowed; None where none is to be written. `lease`: the job's;
    `is_first`: whether the job was never by the newer mapping. `left`: indexes that nobody was asked to remove; `findings`:
    of the last verify, those that stay; `rows`: that were read to be written; `units`: that the table took in this call."""

    stack: ExitStack
    old: JobSession
    session: JobSession
    difference: Difference
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
        """What the step says, with what it took by the table's own count; of a step that goes on, since it went on."""
        sent = self.session.target.store.sent
        before = sent.write_units
        said = work()
        units = sent.write_units - before
        self.units += units
        return f"{said}; {units:,.0f} write units in this call" if units else said

    @property
    def usd(self) -> Decimal | None:
        """What the write units cost; None where no price is known."""
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
        """A place among the writers, once no fast run and no writer by another mapping is under way; and what is asked
        before each write."""
        edges = self.edges
        edges.guard()
        heartbeats, lifetimes = edges.heartbeats, edges.lifetimes
        if heartbeats.revisions.old(heartbeats.writers.living(lifetimes.gone_s)):
            say(f"writers by another mapping are waited for, {lifetimes.gone_s:g} s at most")
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
                " filled, give the same command again"
            )
        admin.settle(design, say)
        for index in planned.add:
            say(f"adding index {index.name}")
            admin.add_index(design, index, self.job.target.options, say)
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
            return f"{', '.join(names)} left; nothing asks it"
        for name in names:
            admin.remove_index(design, name, say)
        return f"{', '.join(names)} removed"

    # ── the newest ──

    def _newest(self) -> str:
        edges, plans = self.edges, self.session.plans
        installation = self._installation()
        stage = replace(self.session.capture_by(edges.live), marked_by=installation.marked_by)
        stage.refuse(plans)
        if self.session.revisions.register(go_back=True) in ("new", "old"):
            say("processes that write by another mapping are told to stop")
        changed = () if stage.status(plans).whole else stage.install(plans).changed
        with self._writing():
            means = edges.live.capture.means
            captured = f"{means} changed: {', '.join(changed)}" if changed else "capture fits"
            return f"the job works by mapping {self.session.checked.mapping.revision}; {captured}"

    def _installation(self) -> Installation:
        """Raises: SettingsError where no change leaves a mark."""
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
            stage = Backfill(source, journal, path, progress(), options, self.session.stop)
            if run.state == "done":
                result = stage.result(run, entities, 0.0)
            else:
                stage = self._on_record(stack, stage, run)
                with RunEnd(journal.end_run, run, self.job.hooks), stage.progress:
                    result = stage.run(run, entities)
        total = result.total
        self.rows += total.rows
        refused = f", {total.refused:,} refused" if total.refused else ""
        return f"{total.items:,} item(s) of {total.rows:,} row(s) written{refused}"

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
        own = Share(stage.who, connections=taken_by(self.job, stage.options.workers))
        signs, scope = signs_of(self.job.tuning), scope_of_run(run)
        watched = Watched("backfill", self.session, signs, None, scope, own)
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
                *(edges.refresh(check), edges.target.store, edges.target.design, names, edges.open_findings),
                *(tuning.scan_segments, tuning.workers, self.session.stop),
            )
            replaced = stage.run(self.session, run)
        return f"{replaced:,} item(s) of {', '.join(sorted(names))} replaced by tombstones"

    def _refuse_shared(self, names: frozenset[str]) -> None:
        """Raises: SettingsError where another job wrote items of such an entity into the table, too."""
        for other, entities in sorted(self.session.journal.writers(self.session.table_id).items()):
            if other != self.job.name and entities & names and not self.flags.force:
                what = f"job {other} wrote {', '.join(sorted(entities & names))} into this table, too"
                raise SettingsError(
                    f"{what}, and _src does not say which job an item is of; --force takes the items of both away"
                )

    # ── the proof ──

    def _verify(self) -> str:
        need_bucket(self.job, self.session.checked.entities)
        # Seen before the first row is read: what they stand for is compared with the table as a whole.
        marks = self.edges.live.marks
        unreadable = list(self.edges.relay(self.lease.check).unreadable())
        first = self._verified()
        verified, rows = proven(first, self._refresh, partial(self._rechecked, first.items))
        if verified.confirmed:
            raise RefusedError("\n".join(self._differing(len(verified.confirmed))))
        if unreadable:
            with self._writing() as check:
                check()
                marks.finish(unreadable)
            say(
                f"{len(unreadable):,} mark(s) of the mapping before acknowledged: the verify covers their rows"
            )
        self.rows += rows
        self.findings = sum(verified.left.values())
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(verified.left.items()))
        written = f", {rows:,} row(s) that had changed meanwhile written" if rows else ""
        return f"{verified.items:,} item(s) of the table, {kinds or 'clean'}{written}"

    def _differing(self, rows: int) -> Iterator[str]:
        """The rows that the last verify found different, with masked keys, and what to do."""
        journal, mapping = self.session.journal, self.session.checked.mapping
        found = journal.findings(self._last_verify(), SHOWN)
        yield from map(finding_line, findings_to_print(found, mapping, whole_keys=False))
        yield (
            f"{rows:,} row(s) still differ from their items after {ROUNDS} rounds (above; all: `migrator status"
            f" {self.job.path} --findings`). Start the relay if none is running, and give the same command again"
        )

    def _last_verify(self) -> Run:
        runs = self.session.journal.runs(self.job.name)
        return next(run for run in reversed(runs) if run.identity.kind == "verify")

    def _verified(self) -> Verified:
        session, entities = self.session, self.session.checked.entities
        identity = identity_of("verify", session, session.table_id, entities)
        tuning = self.job.tuning
        options = VerifyOptions(tuning.workers, tuning.page_rows, tuning.scan_segments)
        recheck = recheck_of(session, self.edges.live, self.flags.settle_s)
        stage = stage_of(session, self.lease, recheck, options)
        run = begun_run(session, identity, self._installation(), again=False)
        with RunEnd(session.journal.end_run, run, self.job.hooks), stage.progress:
            keep_look(session.changes_counted, partial(session.journal.keep_look, run))
            result = stage.run(run, entities)
        return Verified(result.scanned, result.confirmed, result.findings)

    def _rechecked(self, items: int) -> Verified:
        run, journal = self._last_verify(), self.session.journal
        confirm = confirm_of(self.session, 0.0)
        return Verified(items, confirm(run), journal.finding_counts(run))

    def _refresh(self, confirmed: Mapping[Root, set[ItemKey]]) -> None:
        roots = list(confirmed)
        with self._writing() as check:
            refresh = self.edges.refresh(check)
            for start in range(0, len(roots), _AT_ONCE):
                written = refresh({root: confirmed[root] for root in roots[start : start + _AT_ONCE]})
                self.edges.open_findings.settle(written.tickets, written.findings)
