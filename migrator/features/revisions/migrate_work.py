"""`migrator migrate-mapping`: a job brought from one revision of its mapping to another, beside live traffic."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from migrator.cli.command_line import print_json
from migrator.cli.cost import Allowed, Bill, bill_of, need_allowed
from migrator.cli.options import belonging, print_folded, say, stop_on_signals, stopped_says
from migrator.cli.runs import kept_mapping, known_revision, older_file
from migrator.features.revisions.diff_work import Side, measured_work, work_lines
from migrator.features.revisions.revising import Flags, Revising, rewritten
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
from migrator.mapping.model.instances import ChangeStep, RevisionChange
from migrator.runtime.errors import CLEAN, DIFFERENT, MappingError, SettingsError
from migrator.settings.job import Job
from migrator.stages.backfill.estimate import estimate
from migrator.stages.live.capture import owned
from migrator.stages.process.write_path import need_both, refuse_changed
from migrator.stages.session.session import JobSession

_ROWS_EXACT = 20_000
_COMMAND = "migrate-mapping"
_BEFORE_ITEMS: tuple[ChangeStep, ...] = ("indexes", "newest", "items")


@belonging()
def migrate_mapping(session: JobSession, dry_run: bool, as_json: bool, **values: Any) -> int:
    """The exit code of `migrator migrate-mapping`."""
    flags, job = Flags(**values), session.job
    if flags.again and flags.go_back:
        raise SettingsError(
            "--again goes on to the file's mapping, --go-back to the one before: say one of them"
        )
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(session.stop))
        lease = session.lease()
        if not dry_run:
            stack.enter_context(lease)
        if flags.max_write_units is not None:
            limited = {"max_write_units": flags.max_write_units}
            job = replace(job, tuning=job.tuning.model_copy(update=limited))
        changes = session.changes
        file = stack.enter_context(session.another(_COMMAND, job=job))
        way = _way(file, flags)
        if isinstance(way, There):
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
        steps = Steps(changes, revising.works, _still(sides), say if as_json else print_folded)
        with stopped_says(lambda: "stopped; what is done stays, and the same command goes on from there"):
            done = steps.run(change)
    return _print(way, done, revising, older_file, as_json=as_json)


def _begun(sides: _Sides, way: Way) -> tuple[RevisionChange, str]:
    """The change, which is under way from now on, and the file of an older mapping that was written for it."""
    changes = sides.new.changes
    older_file = "" if sides.is_of_file else _written(sides.new)
    changes.keep(way.after, sides.new.checked.mapping.text)
    change = way.resumed or changes.begin(way.before, way.after, goes_back=way.goes_back)
    if way.resumed:
        say(f"the change from mapping {change.before} to {change.after} goes on")
    return change, older_file


# ── where the job is, and where it is to go ──


@dataclass(frozen=True)
class _Sides:
    """Both revisions, each laid over the source as it is now. `is_of_file`: the new one is what the job's file says."""

    old: JobSession
    new: JobSession
    is_of_file: bool

    def compared(self) -> Compared:
        old, new = (Revision(side.checked.mapping, side.checked.read_plans) for side in (self.old, self.new))
        return Compared(old, new, self.old.parsed.document, self.new.parsed.document)

    def measured(self) -> list[Side]:
        return [Side(one.parsed, one.checked, one.source) for one in (self.old, self.new)]


def _way(file: JobSession, flags: Flags) -> Way | There:
    """Raises: SettingsError where the job is not to go to what the file says."""
    changes = file.changes
    newest, standing = file.revisions.newest_and_standing()
    named = "" if newest is None else newest.revision.mapping
    # The same in other words is the same.
    own = named if standing == "newest" else file.checked.mapping.revision
    last = changes.last()
    before = last.before if last is not None and last.after == named else changes.before(named)
    known = Known(named, before or "", last)
    asked = Asked(own, standing, changes.is_left(own), go_back=flags.go_back, again=flags.again)
    return way_of(asked, known)


def _sides(stack: ExitStack, session: JobSession, file: JobSession, way: Way) -> _Sides:
    """Raises: SettingsError where the text of a revision is not known; MappingError where it does not fit the source."""
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
    """The file that relays and services are to be started by, written beside the job's own, which stays as it is."""
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


def _gated(sides: _Sides, way: Way, flags: Flags) -> Difference:
    """What changes. Raises: MappingError, SettingsError, RefusedError with all that stands against it."""
    new = sides.new
    difference = need_both(sides.compared(), say)
    refuse_direct(difference, new.job.direct)
    if not way.goes_back:
        owned(new.live.capture.installation(), new.job.name)
    ownership = new.ownership
    (ownership.need_direct if flags.force else ownership.need_rows)()
    if way.resumed is None or way.resumed.step not in ("verify", "unasked"):
        refuse_changed(list(answered(difference, new.phases.all())), say, force=flags.force)
    return difference


def _allowed_bill(sides: _Sides, way: Way, difference: Difference, flags: Flags) -> Bill | None:
    """What all items of the entities that change would cost; None where none is to be written. It is asked before anything
    is changed: after that relays by the older mapping have stopped. Raises: as need_allowed does."""
    if way.resumed is None:
        are_written = not way.goes_back or sides.new.changes.was_newest(way.before)
    else:
        are_written = way.resumed.step in _BEFORE_ITEMS
    entities = rewritten(difference, sides.new.checked.entities)
    if not entities or not are_written:
        return None
    bill = bill_of(sides.new.job, estimate(sides.new.source, entities, time.time()))
    say(f"at most: {bill.line()}")
    need_allowed(sides.new.job, bill, Allowed(None, flags.yes))
    return bill


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
