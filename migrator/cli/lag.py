"""A relay's results, and the lag of items behind rows: for `relay`, `status` and the hooks of `lag_high`."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, get_ident
from threading import enumerate as threads
from typing import Any

from msgspec import Struct

from migrator.cli.text import OTHER_MAPPING
from migrator.mapping.model.instances import Advance, Newest, Standing
from migrator.mapping.model.journal import Page, Run, Tally
from migrator.mapping.model.live import MARKS_COUNTED, Marks, MarksState, OpenFindings, SlotLag, Writer
from migrator.mapping.model.results import Worked
from migrator.runtime.errors import MigratorError, amount, verb
from migrator.runtime.logs import get_logger
from migrator.runtime.measures import CHANGE_S, Histograms
from migrator.runtime.values import asdict, replace
from migrator.settings.job import Job
from migrator.stages.cutover.moves import LagWatch, tell
from migrator.stages.live.capture import of_another
from migrator.stages.session.job import ONCE, open_live
from migrator.stages.session.session import JobSession


@dataclass
class Signs:
    """`stuck_s`: longest silence, above any wait of a worker."""

    stuck_s: float
    clock: Callable[[], float] = time.monotonic
    _last: dict[int, float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def give(self) -> None:
        """Called by the worker after each piece of work, successful or not."""
        with self._lock:
            self._last[get_ident()] = self.clock()

    def fault(self) -> str:
        """'' if all workers send heartbeats; those with ended threads are done."""
        now, here = self.clock(), {thread.ident for thread in threads()}
        with self._lock:
            silent_s = [now - at for ident, at in self._last.items() if ident in here] or [now - self._began]
        stuck = [seconds for seconds in silent_s if seconds > self.stuck_s]
        return f"{amount(len(stuck), 'worker')} without a heartbeat for {max(stuck):.0f} s" if stuck else ""


# ──
# Progress of a relay: log lines, what it counts, findings in the journal, and a summary at its end.

LOOK_S = 10.0
_log = get_logger("relay")

STANDINGS: Mapping[Standing, str] = {
    "first": "mapping: no relay, backfill or install has worked by any yet",
    "newest": "mapping: it is the one that the job's writers work by",
    "new": "mapping: new to the job, or its columns are; the next install, backfill or relay activates it, and stops writers"
    " of another one",
    "old": "mapping: the job now uses another one, or other columns: writers by this one are refused; take"
    " the newer file, or go back with `migrator recover JOB older-mapping`",
}
"""Standing of the current mapping among those of the job."""


@dataclass
class RelayReport:
    """A daemon.Listener. `keep`: periodic work. `seen`: receives the state of the marks."""

    session: JobSession
    run: Run
    marks: Marks
    open_findings: OpenFindings
    keep: Callable[[], None]
    seen: Callable[[MarksState], None]
    totals: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    """Totals of the relays that this one's command has started, after they ended."""
    state: MarksState = MarksState()
    open_counts: Mapping[str, int] = field(default_factory=dict)
    """Open findings of live change at the last look at the marks, by kind."""
    looked_at: float = float("-inf")
    trouble: str = ""
    """Why it has not got on since; '' if it has."""
    changes: Histograms = field(default_factory=lambda: Histograms(CHANGE_S))
    """Time from a change to its items, by table with its text in `entities`."""
    entities: Mapping[str, str] = field(default_factory=dict)
    """By table of the source, the entities with items from its rows, as one text."""
    signs: Signs = field(default_factory=lambda: Signs(float("inf")))
    """Heartbeats of its workers."""
    _reported_totals: Counter[str] = field(default_factory=Counter)
    _page: Page = field(default_factory=lambda: Page(f"(relay {secrets.token_hex(8)})", 1, None, None))
    _lock: Lock = field(default_factory=Lock)

    def worked(self, worked: Worked, took_ms: int) -> None:
        counts = _counts(worked)
        with self._lock:
            self.totals.update(counts)
            self.trouble = ""
        self.signs.give()
        for name, seconds in worked.changes:
            self.changes.observe((name, self.entities.get(name, name)), seconds)
        _log.debug("marks_worked", took_ms=took_ms, **counts)
        of_rows = (finding for refreshed in worked.refreshed for finding in refreshed.findings)
        if new_findings := [*worked.findings, *of_rows]:
            self.session.journal.add_findings(self.run, new_findings)
            _log.warning("findings_made", **Counter(str(finding.kind) for finding in new_findings))

    def failed(self, error: MigratorError, wait_s: float) -> None:
        with self._lock:
            self.totals["failures"] += 1
            self.trouble = f"waits {wait_s:.0f} s: {error}"
        self.signs.give()
        _log.warning("relay_failed", reason=str(error), wait_s=wait_s)
        # While DynamoDB is away, marks wait, and only the source is needed for their age.
        with suppress(MigratorError):
            self._look()

    def idle(self) -> None:
        self.signs.give()
        if self._look():
            if not self.state.waiting + self.state.unripe:
                # Nothing is left that could meet it again; marks that another worker holds are not ripe.
                self.trouble = ""
            self.keep()

    def advance(self) -> Advance:
        with self._lock:
            done = self.totals["finished"]
            signs = done + self.totals["advanced"] + self.totals["put_back"]
            items, lag_s = self.totals["stored"] + self.totals["buried"], self.state.oldest_age_s
            return Advance(done, self.state.waiting, signs, self.trouble, items, lag_s=lag_s)

    def _look(self) -> bool:
        with self._lock:
            if time.monotonic() - self.looked_at < LOOK_S:
                return False
            self.looked_at = time.monotonic()
        state = self.state = self.marks.state()
        age_s = round(state.oldest_age_s, 1)
        _log.info(
            "relay_lag", waiting=state.waiting, oldest_age_s=age_s, failed=state.failed, **self._since()
        )
        self.seen(state)
        # Last: this reads the journal, and lag must also be reported while the journal is unreachable.
        self._look_at_findings(state)
        self._keep_totals()
        return True

    def _look_at_findings(self, state: MarksState) -> None:
        if not state.failed:
            self.open_findings.close_marks()
        self.open_counts = self.open_findings.counts()

    def _keep_totals(self) -> None:
        with self._lock:
            totals = self.totals.copy()
        # A journal that is away has them at the next look.
        with suppress(MigratorError):
            if totals["rows"]:
                self.session.journal.plan_pages(self.run, self._page.entity, [self._page])
                tally = Tally(rows=totals["rows"], items=totals["stored"])
                self.session.journal.finish_page(self.run, self._page, tally, [], again=True)

    def _since(self) -> dict[str, int]:
        with self._lock:
            before, self._reported_totals = self._reported_totals, self.totals.copy()
        return {
            name: count - before[name]
            for name, count in self._reported_totals.items()
            if count > before[name]
        }

    def line(self) -> str:
        with self._lock:
            finished, stored, trouble = self.totals["finished"], self.totals["stored"], self.trouble
        lag = "pending changes are being counted"
        if self.looked_at > float("-inf"):
            lag = lag_line(self.state, self.open_counts)
        worked = f"{amount(finished, 'change')} applied, {amount(stored, 'item')} written"
        return f"relay: {worked}; {trouble or lag}"

    def summary(self) -> str:
        self._keep_totals()
        state, totals = self.marks.state(), self._worked
        self.state = state
        self._look_at_findings(state)
        remaining = state.waiting + state.unripe
        failed = f" ({state.failed:,} failed before)" if state.failed else ""
        worked = (
            f"{amount(totals['finished'], 'change')} applied: {amount(totals['stored'], 'item')} written,"
            f" {amount(totals['buried'], 'tombstone')}; {amount(remaining, 'change')} left{failed}"
        )
        return "\n".join(filter(None, (worked, open_line(self.open_findings.counts()))))

    @property
    def _worked(self) -> Counter[str]:
        return Counter(
            {name: self.totals[name] + self.others[name] for name in {**self.totals, **self.others}}
        )

    def data(self) -> dict[str, Any]:
        open_counts, marks = self.open_findings.counts(), asdict(self.marks.state())
        worked = dict(self._worked)
        return {"run": self.run.id, "worked": worked, "marks": marks, "open_findings": open_counts}


def open_line(counts: Mapping[str, int]) -> str:
    """Number of relays' open findings, by kind; '' for none."""
    if not counts:
        return ""
    listed = ", ".join(f"{number:,} {kind}" for kind, number in sorted(counts.items()))
    what = amount(sum(counts.values()), "open finding")
    return f"{what} of live change ({listed}); see `migrator status --findings`"


def lag_line(state: MarksState, counts: Mapping[str, int]) -> str:
    """How far items are behind rows. `counts`: open findings by kind."""
    if not state.waiting + state.unripe:
        return f"no change is pending{'' if counts else ': every captured change is in the table'}"
    unripe = f", {state.unripe:,} not ripe yet" if state.unripe else ""
    failed = f", {state.failed:,} failed before (see `migrator status --findings`)" if state.failed else ""
    least = "at least " if state.waiting + state.unripe > MARKS_COUNTED else ""
    rows = f" of {least}{amount(state.rows, 'row')}" if state.rows else ""
    waiting = f"{amount(state.waiting, 'change')}{rows} {verb(state.waiting, 'wait')}"
    return f"{waiting}, the oldest for {state.oldest_age_s:.1f} s{unripe}{failed}"


def _counts(worked: Worked) -> dict[str, int]:
    return {
        "taken": worked.taken,
        "finished": worked.finished,
        "put_back": worked.put_back,
        "advanced": worked.advanced,
        "rows": sum(refreshed.roots for refreshed in worked.refreshed),
        "stored": sum(refreshed.stored for refreshed in worked.refreshed),
        "buried": sum(refreshed.buried for refreshed in worked.refreshed),
        "newer": sum(refreshed.newer for refreshed in worked.refreshed),
        "refused": sum(len(refreshed.refused) for refreshed in worked.refreshed),
        "collisions": sum(len(refreshed.collisions) for refreshed in worked.refreshed),
    }


# ── The lag of items and the writers of a table: shown by `migrator status` after the runs ──

STATEMENT_LIMIT_S = 5.0
"""Timeout of a statement to the source: the journal's part is also shown without the source."""


class Lag(Struct, frozen=True):
    """`marks`: None if capture is not installed, or for `reason`.
    `newest`: the revision that writers should use; `old`: ids of those that use another.
    `silent`: ids of writers whose process was killed, lost the journal, or changed its lease.
    `open_findings`: of live change, by kind.
    """

    marks: MarksState | None
    writers: Sequence[Writer]
    reason: str = ""
    newest: Newest | None = None
    old: frozenset[str] = frozenset()
    unverified: str = ""
    open_findings: Mapping[str, int] = {}
    silent: frozenset[str] = frozenset()

    @property
    def slot(self) -> SlotLag | None:
        return None if self.marks is None else self.marks.slot

    def data(self) -> dict[str, Any]:
        marks = None if self.marks is None else asdict(self.marks)
        slot = None if marks is None else marks.pop("slot")
        writers = [
            {**asdict(writer), "old_mapping": writer.id in self.old, "process": writer.process}
            | {"silent": writer.id in self.silent}
            for writer in self.writers
        ]
        mapping = None if self.newest is None else self.newest.revision.mapping
        return {
            "marks": marks,
            "reason": self.reason,
            "writers": writers,
            "mapping": mapping,
            "unverified": self.unverified,
            "open_findings": dict(self.open_findings),
            **({} if slot is None else {"slot": slot}),
        }

    def warnings(self, revision: str | None) -> Iterator[str]:
        if self.reason:
            yield f"changes: {self.reason}"
        if self.slot is not None:
            yield self.slot.line()
        if self.open_findings:
            yield open_line(self.open_findings)
        if self.unverified:
            yield f"warning: {self.unverified}"
        if self.newest is not None and revision not in (None, self.newest.revision.mapping):
            yield OTHER_MAPPING

    @property
    def at_work(self) -> list[Writer]:
        return [writer for writer in self.writers if writer.id not in self.silent]

    @property
    def kinds_at_work(self) -> list[str]:
        return [kind for kind, _ in dict.fromkeys((writer.kind, writer.process) for writer in self.at_work)]

    def writer_lines(self) -> Iterator[str]:
        at_work = self.at_work
        here = {writer.process for writer in at_work}
        silent = [writer for writer in self.writers if writer.process not in here]
        if at_work:
            yield f"writers with a recent heartbeat: {self._processes(at_work)}"
        if silent:
            why = "killed, waiting for DynamoDB or the source, or cut off from the journal"
            yield f"writers not heard of lately ({why}): {self._processes(silent)}"

    def _processes(self, writers: Sequence[Writer]) -> str:
        by_kind: dict[str, set[str]] = {}
        for writer in writers:
            by_kind.setdefault(self._kind(writer), set()).add(writer.process)
        return ", ".join(f"{len(processes)} {kind}" for kind, processes in by_kind.items())

    def _kind(self, writer: Writer) -> str:
        if writer.id in self.old:
            return f"{writer.kind} (of another mapping, told to stop)"
        return f"{writer.kind} (told to stop)" if writer.fenced else writer.kind


def lag_of(session: JobSession) -> Lag:
    """The lag. An unreachable source is only reported: the journal's part can still be shown."""
    job, lag = session.job, session.journal.database.snapshot(lambda: _recorded(session))
    try:
        with open_live(job, "status", patience=ONCE, answer_within_s=STATEMENT_LIMIT_S) as live:
            installation = live.capture.installation()
            another = of_another(installation, job.name)
            marks = None if installation is None or another else live.marks.state()
    except MigratorError as error:
        return replace(lag, reason=f"the source cannot be asked: {error}")
    unverified = "" if another else session.unverified(installation)
    return replace(lag, marks=marks, reason=another, unverified=unverified)


def _recorded(session: JobSession) -> Lag:
    lifetimes, of_tables = session.lifetimes, session.writers_of_tables()
    writers = [writer for table in of_tables for writer in table.living(lifetimes.gone_s)]
    heard_lately = {writer.id for table in of_tables for writer in table.living(lifetimes.doubted_s)}
    silent = frozenset(writer.id for writer in writers if writer.id not in heard_lately)
    newest, digests = session.newest(), session.digests()
    digest = "" if newest is None else newest.revision.digest
    old = frozenset(writer.id for writer in writers if digests.get(writer.id, digest) != digest)
    counts = session.open_findings.counts()
    return Lag(None, writers, newest=newest, old=old, open_findings=counts, silent=silent)


# ── The hooks of `lag_high`, run by the watch of cutover and by the relay itself ──


def lag_watch(job: Job, later: ThreadPoolExecutor, marks: Callable[[], MarksState]) -> LagWatch:
    """Hooks run in `later`, so that a slow one delays nothing else."""
    return LagWatch(
        marks, job.cutover.lag_max_s, lambda state: later.submit(_tell, job, state), time.monotonic
    )


def _tell(job: Job, state: MarksState) -> None:
    fields = {"waiting": state.waiting, "oldest_age_s": round(state.oldest_age_s, 1), "failed": state.failed}
    tell(job.hooks, "lag_high", job.name, **fields, limit_s=job.cutover.lag_max_s)
