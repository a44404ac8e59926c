"""The lag of items behind rows, for `status` and for the hooks of `lag_high`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from migrator.cli.relay_text import open_line
from migrator.mapping.model.instances import Newest
from migrator.mapping.model.live import MarksState, SlotLag, Writer
from migrator.runtime.errors import MigratorError
from migrator.settings.job import Job
from migrator.stages.cutover.watch import LagWatch, tell
from migrator.stages.live.capture import of_another
from migrator.stages.session.live import ONCE, open_live
from migrator.stages.session.session import JobSession

# ── The lag of items and the writers of a table: what `migrator status` says beside the runs ──

STATEMENT_LIMIT_S = 5.0
"""How long a statement to the source may take: the journal's part is shown without the source, too."""


@dataclass(frozen=True)
class Lag:
    """`marks` None: capture is not installed, or `reason` says why they are not known. `newest`: the revision
    that writers are to work by; `old`: ids of those that work by another one. `silent`: ids of those that have not been
    heard of for a while: their process was killed or cannot reach the journal, or gave up one place and took another.
    `open_findings`: of live change, by kind.
    """

    marks: MarksState | None
    writers: Sequence[Writer]
    reason: str = ""
    newest: Newest | None = None
    old: frozenset[str] = frozenset()
    unverified: str = ""
    open_findings: Mapping[str, int] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    @property
    def slot(self) -> SlotLag | None:
        """Of a log that is captured."""
        return None if self.marks is None else self.marks.slot

    def data(self) -> dict[str, Any]:
        state = self.marks
        marks = None
        if state is not None:
            marks = {name: getattr(state, name) for name in state.__slots__ if name != "slot"}
        writers = [
            {
                "id": writer.id,
                "kind": writer.kind,
                "since": writer.since,
                "alive_at": writer.alive_at,
                "fenced": writer.fenced,
                "old_mapping": writer.id in self.old,
                "process": writer.process,
                "silent": writer.id in self.silent,
            }
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
            **({} if self.slot is None else {"slot": asdict(self.slot)}),
        }

    def warnings(self, revision: str | None) -> Iterator[str]:
        """For people. `revision`: of the job's mapping file as it is now; None where it cannot be read."""
        if self.reason:
            yield f"marks: {self.reason}"
        if self.slot is not None:
            yield self.slot.line()
        if self.open_findings:
            yield open_line(self.open_findings)
        if self.unverified:
            yield f"warning: {self.unverified}"
        if self.newest is not None and revision not in (None, self.newest.revision.mapping):
            yield "the job's writers work by another mapping than the job's file; see `migrator capture status`"

    @property
    def at_work(self) -> list[Writer]:
        return [writer for writer in self.writers if writer.id not in self.silent]

    @property
    def kinds_at_work(self) -> list[str]:
        """The kind of each process that writes."""
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
        """How many processes of each kind."""
        by_kind: dict[str, set[str]] = {}
        for writer in writers:
            by_kind.setdefault(self._kind(writer), set()).add(writer.process)
        return ", ".join(f"{len(processes)} {kind}" for kind, processes in by_kind.items())

    def _kind(self, writer: Writer) -> str:
        if writer.id in self.old:
            return f"{writer.kind} (of another mapping, told to stop)"
        return f"{writer.kind} (told to stop)" if writer.fenced else writer.kind


def lag_of(session: JobSession) -> Lag:
    """A source that cannot be reached is reported, and is no failure: the journal's part can be shown all the same."""
    job, lifetimes = session.job, session.lifetimes
    of_tables = session.writers_of_tables()
    writers = [writer for table in of_tables for writer in table.living(lifetimes.gone_s)]
    heard_lately = {writer.id for table in of_tables for writer in table.living(lifetimes.doubted_s)}
    silent = frozenset(writer.id for writer in writers if writer.id not in heard_lately)
    newest, digests = session.newest(), session.digests()
    digest = "" if newest is None else newest.revision.digest
    counts = session.open_findings.counts()
    old = frozenset(writer.id for writer in writers if digests.get(writer.id, digest) != digest)
    try:
        with open_live(job, "status", patience=ONCE, answer_within_s=STATEMENT_LIMIT_S) as live:
            installation = live.capture.installation()
            another = of_another(installation, job.name)
            marks = None if installation is None or another else live.marks.state()
    except MigratorError as error:
        why = f"the source cannot be asked: {error}"
        return Lag(None, writers, why, newest, old, open_findings=counts, silent=silent)
    unverified = "" if another else session.unverified(installation)
    return Lag(marks, writers, another, newest, old, unverified, counts, silent)


# ── The hooks of `lag_high`, run by the watch of cutover and by the relay itself ──


def lag_watch(job: Job, later: ThreadPoolExecutor, marks: Callable[[], MarksState]) -> LagWatch:
    """The watch of a job's lag. Its hooks run in `later`, so that a slow one delays nothing else."""
    return LagWatch(
        marks, job.cutover.lag_max_s, lambda state: later.submit(_tell, job, state), time.monotonic
    )


def _tell(job: Job, state: MarksState) -> None:
    tell(
        job.hooks,
        "lag_high",
        job.name,
        waiting=state.waiting,
        oldest_age_s=round(state.oldest_age_s, 1),
        failed=state.failed,
        limit_s=job.cutover.lag_max_s,
    )
