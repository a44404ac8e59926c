"""`migrator migrate-mapping`: a job brought from one revision of its mapping to another, beside live traffic."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from threading import Event
from typing import Any

from migrator.cli.command_line import print_json
from migrator.cli.cost import Allowed, Bill, bill_of, need_allowed
from migrator.cli.options import belonging, print_folded, say, stop_on_signals, stopped_says
from migrator.cli.runs import kept_mapping, known_revision, older_file
from migrator.features.revisions.diff_work import Side, measured_work
from migrator.features.revisions.revising import Flags, Revising, rewritten
from migrator.features.revisions.text import work_lines
from migrator.journal.changes import SqlChanges, under_way
from migrator.journal.lease import RunLease
from migrator.journal.phases import SqlPhases
from migrator.mapping.difference.difference import Difference, Revision
from migrator.mapping.difference.faults import Compared
from migrator.mapping.difference.steps import (
    ORDER,
    Asked,
    Known,
    Steps,
    There,
    Way,
    answered,
    refuse_direct,
    way_of,
)
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.model.instances import ChangeStep, RevisionChange
from migrator.runtime.errors import CLEAN, DIFFERENT, MappingError, SettingsError
from migrator.settings.job import Job
from migrator.settings.transforms import read_mapping
from migrator.stages.backfill.estimate import estimate
from migrator.stages.live.capture import owned
from migrator.stages.process.write_path import need_both, refuse_changed
from migrator.stages.session import job as job_wiring
from migrator.stages.session import live as live_wiring
from migrator.stages.session.job import CommandJob, JobContext, write_ownership

_ROWS_EXACT = 20_000
_COMMAND = "migrate-mapping"
_BEFORE_ITEMS: tuple[ChangeStep, ...] = ("indexes", "newest", "items")


@belonging()
def migrate_mapping(command_job: CommandJob, dry_run: bool, as_json: bool, **values: Any) -> int:
    """The exit code of `migrator migrate-mapping`."""
    flags, job = Flags(**values), command_job.job
    if flags.again and flags.go_back:
        raise SettingsError(
            "--again goes on to the file's mapping, --go-back to the one before: say one of them"
        )
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        journal = command_job.journal(stop.is_set)
        lease = RunLease(journal, job.name)
        if not dry_run:
            stack.enter_context(lease)
        changes = SqlChanges(journal.database, job.name)
        file = stack.enter_context(job_wiring.open_job(job, _COMMAND, stop=stop.is_set))
        way = _way(command_job, changes, file, flags)
        if isinstance(way, There):
            return _nothing(job, way, as_json=as_json)
        sides = _sides(stack, changes, file, way, stop)
        difference = _gated(command_job, sides, way, flags, stop)
        if dry_run:
            return _print_planned(sides, way, difference, as_json=as_json)
        bill = _allowed_bill(changes, sides, way, difference, flags)
        change, older_file = _begun(changes, sides, way)
        # Of keys that the job has left nothing is known but that tombstones lie there.
        is_first = not (change.goes_back or changes.is_left(change.after))
        revising = Revising(
            stack, command_job, sides.old, sides.new, difference, change, is_first, bill, lease, flags, stop
        )
        steps = Steps(changes, revising.works, _still(sides), say if as_json else print_folded)
        with stopped_says(lambda: "stopped; what is done stays, and the same command goes on from there"):
            done = steps.run(change)
    return _print(way, done, revising, older_file, as_json=as_json)


def _begun(changes: SqlChanges, sides: _Sides, way: Way) -> tuple[RevisionChange, str]:
    """The change, which is under way from now on, and the file of an older mapping that was written for it."""
    older_file = "" if sides.is_of_file else _written(sides.new.job, sides.new)
    changes.keep(way.after, sides.new.checked.mapping.text)
    change = way.resumed or changes.begin(way.before, way.after, goes_back=way.goes_back)
    if way.resumed:
        say(f"the change from mapping {change.before} to {change.after} goes on")
    return change, older_file


# ── where the job is, and where it is to go ──


@dataclass(frozen=True)
class _Sides:
    """Both revisions, each laid over the source as it is now. `is_of_file`: the new one is what the job's file says."""

    old: JobContext
    new: JobContext
    old_parsed: ParsedMapping
    new_parsed: ParsedMapping
    is_of_file: bool

    def compared(self) -> Compared:
        old, new = (Revision(side.checked.mapping, side.checked.read_plans) for side in (self.old, self.new))
        return Compared(old, new, self.old_parsed.document, self.new_parsed.document)

    def measured(self) -> list[Side]:
        return [
            Side(self.old_parsed, self.old.checked, self.old.source),
            Side(self.new_parsed, self.new.checked, self.new.source),
        ]


def _way(command_job: CommandJob, changes: SqlChanges, file: JobContext, flags: Flags) -> Way | There:
    """Raises: SettingsError where the job is not to go to what the file says."""
    newest, standing = live_wiring.revisions_of(file, command_job.journal()).newest_and_standing()
    named = "" if newest is None else newest.revision.mapping
    # The same in other words is the same.
    own = named if standing == "newest" else file.checked.mapping.revision
    last = changes.last()
    before = last.before if last is not None and last.after == named else changes.before(named)
    known = Known(named, before or "", last)
    asked = Asked(own, standing, changes.is_left(own), go_back=flags.go_back, again=flags.again)
    return way_of(asked, known, under_way)


def _sides(stack: ExitStack, changes: SqlChanges, file: JobContext, way: Way, stop: Event) -> _Sides:
    """Raises: SettingsError where the text of a revision is not known; MappingError where it does not fit the source."""
    job = file.job
    old = kept_mapping(changes, job, way.before)
    is_of_file = way.after == file.checked.mapping.revision or not way.goes_back
    new = read_mapping(job.mapping) if is_of_file else kept_mapping(changes, job, way.after)
    contexts = []
    for parsed in (old,) if is_of_file else (old, new):
        if parsed.faults:
            raise MappingError(parsed.faults)
        opened = job_wiring.open_job(job, _COMMAND, stop=stop.is_set, parsed=parsed)
        contexts.append(stack.enter_context(opened))
    return _Sides(contexts[0], file if is_of_file else contexts[1], old, new, is_of_file)


def _written(job: Job, context: JobContext) -> str:
    """The file that relays and services are to be started by, written beside the job's own, which stays as it is."""
    place, text = older_file(job, context.checked.mapping.revision), context.checked.mapping.text.encode()
    unfinished = f"{place}.unfinished"
    try:
        if os.path.lexists(place):
            with open(place, "rb") as there:
                if there.read() == text:
                    return place
            what = f"{place}: this file is in the way: the mapping that the job goes back to is to be written there"
            raise SettingsError(
                f"{what}, and it holds another text; move it away and give the same command again"
            )
        with open(unfinished, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, place)
    except OSError as error:
        what = f"{place}: the mapping that the job goes back to cannot be written there ({error.strerror})"
        raise SettingsError(f"{what}; mend that, and give the same command again") from None
    return place


# ── before anything is changed ──


def _gated(command_job: CommandJob, sides: _Sides, way: Way, flags: Flags, stop: Event) -> Difference:
    """What changes. Raises: MappingError, SettingsError, RefusedError with all that stands against it."""
    job, journal = command_job.job, command_job.journal()
    difference = need_both(sides.compared(), say)
    refuse_direct(difference, job.direct)
    if not way.goes_back:
        _need_capture(sides.new, stop)
    ownership = write_ownership(job, sides.new.checked.mapping, journal)
    (ownership.need_direct if flags.force else ownership.need_rows)()
    if way.resumed is None or way.resumed.step not in ("verify", "unasked"):
        phases = SqlPhases(journal.database, job.name).all()
        refuse_changed(list(answered(difference, phases)), say, force=flags.force)
    return difference


def _allowed_bill(
    changes: SqlChanges, sides: _Sides, way: Way, difference: Difference, flags: Flags
) -> Bill | None:
    """What all items of the entities that change would cost; None where none is to be written. It is asked before anything
    is changed: after that relays by the older mapping have stopped. Raises: as need_allowed does."""
    if way.resumed is None:
        are_written = not way.goes_back or changes.was_newest(way.before)
    else:
        are_written = way.resumed.step in _BEFORE_ITEMS
    entities = rewritten(difference, sides.new.checked.entities)
    if not entities or not are_written:
        return None
    bill = bill_of(sides.new.job, estimate(sides.new.source, entities, time.time()))
    say(f"at most: {bill.line()}")
    need_allowed(sides.new.job, bill, Allowed(None, flags.yes))
    return bill


def _need_capture(context: JobContext, stop: Event) -> None:
    """Raises: SettingsError where no change of the source leaves a mark that is the job's."""
    with live_wiring.open_live(context.job, _COMMAND, stop=stop.is_set, source=context.source) as live:
        owned(live.capture.installation(), context.job.name)


def _still(sides: _Sides) -> Callable[[], None]:
    """What is asked before each step."""
    job, before = sides.new.job, sides.new.checked.mapping.revision

    def still() -> None:
        if sides.is_of_file and known_revision(job) != before:
            what = f"{job.mapping} was edited while the job changes to mapping {before}"
            raise SettingsError(
                f"{what}: put it back and give the same command again, or leave the change by --go-back; then change to"
                " what you have written"
            )

    return still


# ── what is printed ──


_WHAT: dict[ChangeStep, str] = {
    "indexes": "add the indexes that the table lacks",
    "newest": "make the new mapping the newest, capture what it reads, wait for writers by the old one",
    "items": "write the items that change, by condition; tombstones where items were",
    "gone": "put tombstones in place of items of entities that are gone",
    "verify": "verify the whole table",
    "unasked": "remove the indexes that nothing asks any more",
}


@dataclass(frozen=True)
class _Result:
    """What became of the command, in one form whatever it was. `rows`: that were read to be written, or are to be; `units`:
    write units that the table took in this call, or that it will take; `usd`: what they cost, None where it is not known."""

    before: str
    after: str
    steps: Sequence[tuple[str, str]] = ()
    rows: int = 0
    units: float = 0.0
    usd: Decimal | None = None
    left: Sequence[str] = ()
    findings: int = 0
    file: str = ""

    def print_json(self) -> None:
        print_json(
            {
                "before": self.before,
                "after": self.after,
                "steps": [{"step": step, "said": said} for step, said in self.steps],
                "rows": self.rows,
                "units": round(self.units),
                "usd": None if self.usd is None else float(self.usd),
                "left": list(self.left),
                "findings": self.findings,
                "file": self.file,
            }
        )


def _nothing(job: Job, there: There, *, as_json: bool) -> int:
    revision = there.revision
    place = older_file(job, revision)
    file = place if there.advice and os.path.isfile(place) else ""
    if as_json:
        _Result(revision, revision, file=file).print_json()
        return CLEAN
    print_folded(f"nothing to do: the job works by mapping {revision} already")
    if there.advice:
        print_folded(there.advice)
    if file:
        print_folded(f"its file is {file}")
    return CLEAN


def _print_planned(sides: _Sides, way: Way, difference: Difference, *, as_json: bool) -> int:
    work = None
    if difference.entities:
        job = sides.new.job
        work = measured_work(job, sides.measured(), difference, _ROWS_EXACT, None, tries_inserts=False)
    steps = list(_planned(difference))
    if as_json:
        read = {entity.name for entity in difference.entities if entity.effect != "gone"}
        rows = 0 if work is None else sum(number for name, number in work.rows.items() if name in read)
        planned = (0, 0.0, None) if work is None else (rows, work.units, work.usd)
        _Result(way.before, way.after, steps, *planned).print_json()
        return DIFFERENT
    for number, (_, said) in enumerate(steps, 1):
        print_folded(f"{number}. {said}")
    for line in () if work is None else work_lines(work):
        print_folded(line)
    return DIFFERENT


def _planned(difference: Difference) -> Iterator[tuple[ChangeStep, str]]:
    """The steps that have something to do, each with what that is."""
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
    way: Way, done: Sequence[tuple[str, str]], revising: Revising, older_file: str, *, as_json: bool
) -> int:
    left, findings = revising.left, revising.findings
    if as_json:
        taken = (revising.rows, revising.units, revising.usd)
        _Result(way.before, way.after, done, *taken, left, findings, older_file).print_json()
        return DIFFERENT if left or findings else CLEAN
    print_folded(f"the job works by mapping {way.after}; start relays and services anew by it")
    if older_file:
        print_folded(f"it is in {older_file}: put that in place of the job's mapping file")
    for name in left:
        print_folded(f"index {name} stays in the table; `migrator table change JOB` removes it")
    if findings:
        print_folded(f"{findings:,} finding(s) that no write fixes: see `migrator status JOB --findings`")
    return DIFFERENT if left or findings else CLEAN
