"""Capture: migrator's tables and triggers in the source, installed, checked, removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.live import Capture, Installation, MarkedBy, Marks, Step, TableCapture
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import SettingsError, amount
from migrator.runtime.logs import get_logger

MEANINGS = {
    "captured": "every change is captured",
    "services": "services that use the adapter capture their changes",
    "missing": "a trigger is missing, the table is not published, or its changes are not in the log; they are not captured;"
    " run `migrator capture install`, then `migrator verify --repair` for what changed meanwhile",
    "hidden": "without TRIGGER on it this user sees no triggers; GRANT TRIGGER on it to this user, or run this command"
    " as one that has it, such as the user of the relay",
    "partition": "every row's change is captured; a TRUNCATE of this partition alone, which came since the install,"
    " is not, and its items stay; run `migrator capture install`, then `migrator verify --repair` if it was truncated",
    "stale": "the mapping, the table's columns or what their values are made by changed since: a column that"
    " came and is mapped now is not captured, and one that was renamed may stop the service's writes; run"
    " `migrator capture install`, then `migrator verify --repair`",
    "disabled": "a trigger is disabled, or fires not always, and changes are not captured; run `migrator capture install`,"
    " then `migrator verify --repair`",
    "extra": "the mapping no longer reads it, or a partition was detached, whose items stay; run `migrator capture"
    " install`, which takes its triggers away, then `migrator verify --repair`",
    "refused": "its rows are made of items by `migrator reverse`, and what others write to it is refused",
    "unread": "its stream is off, of another view, another one than was begun with, or was not read for a day, so"
    " changes may have been missed; run `migrator capture install`, then `migrator verify --repair` for what"
    " changed meanwhile",
    "lost": "the replication slot is gone, was invalidated or was created again, or the binary log was purged or is another"
    " server's, so changes may have been missed; run `migrator capture install`, then `migrator verify --repair`",
    "unidentified": "its replica identity changed, and the log lacks columns that keys and links are made of; its"
    " owner can run ALTER TABLE … REPLICA IDENTITY FULL, then run `migrator verify --repair`",
}
"""Meaning of each state of a table, and what to do; docs/triggers.md describes them."""


CAPTURED = frozenset({"captured", "services", "refused"})
"""States in which no change of the mapping's tables goes unmarked."""
ROWS_CAPTURED = CAPTURED | {"partition", "extra"}
"""States in which every change of a row leaves a mark, so that a relay may continue."""
_UNMARKED = frozenset({"missing", "hidden", "disabled", "unread", "lost", "unidentified"})
_log = get_logger("capture")


class Installed(Struct, frozen=True):
    """`changed`: tables with triggers created or removed, or with streams now read.
    `lost_marks`: the table of marks was missing and was created again.
    `switched`: from marks by services to triggers.
    """

    tables: tuple[str, ...]
    changed: tuple[str, ...]
    new: bool
    lost_marks: bool = False
    switched: bool = False


class CaptureStatus(Struct, frozen=True):
    installation: Installation | None
    tables: tuple[TableCapture, ...]
    means: str

    @property
    def marked_by(self) -> MarkedBy | None:
        return None if self.installation is None else self.installation.marked_by

    @property
    def partitions(self) -> list[str]:
        """Partitions added after the install, on which a TRUNCATE leaves no mark."""
        return [table.table for table in self.tables if table.state == "partition"]

    @property
    def unmarked_tables(self) -> list[str]:
        return [table.table for table in self.tables if table.state in _UNMARKED]

    def unmarked(self) -> list[str]:
        """Captured tables whose changes leave no mark, each with the consequence."""
        wrong = [table for table in self.tables if table.state in {*_UNMARKED, "partition"} - {"missing"}]
        return [f"{table.table}: {MEANINGS[table.state]}" for table in wrong]

    @property
    def whole(self) -> bool:
        return self.installation is not None and all(table.state in CAPTURED for table in self.tables)


NAME_TTL = "write table: {ttl: expiresAt}"
"""First step of an install for a mapping without a TTL attribute."""


class CaptureStage(Struct, frozen=True):
    """`design`: has the TTL attribute that tombstones need. `marked_by`: who will leave the marks."""

    capture: Capture
    job: str
    design: TableDesign
    marked_by: MarkedBy = "triggers"

    def refusals(self, plans: Sequence[EntityPlan]) -> list[str]:
        refusals = self.capture.refusals(self.capture.captured(plans), self.marked_by)
        if self.design.ttl is None:
            what = "the mapping's table has no TTL attribute, which the tombstones of deleted items need"
            refusals = [f"{what}; {NAME_TTL}", *refusals]
        another = of_another(self.capture.installation(), self.job)
        return [another, *refusals] if another else refusals

    def refuse(self, plans: Sequence[EntityPlan]) -> None:
        """Raises: SettingsError with every refusal at once."""
        if refusals := self.refusals(plans):
            raise SettingsError("\n".join(["capture cannot be installed:", *refusals]))

    def steps(self, plans: Sequence[EntityPlan]) -> list[Step]:
        return self.capture.install_steps(self.capture.captured(plans), self.job, self.marked_by)

    def limits(self) -> list[str]:
        return self.capture.limits(self.marked_by)

    def install(self, plans: Sequence[EntityPlan]) -> Installed:
        """Raises: SettingsError with every refusal at once, before anything is installed."""
        self.refuse(plans)
        before = self.capture.installation()
        tables = tuple(table.name for table in self.capture.captured(plans))
        steps = self.steps(plans)
        for step in steps:
            self.capture.do(step)
        after = self.capture.installation()
        lost = before is not None and after is not None and before.id != after.id
        changed = tuple(dict.fromkeys(step.table for step in steps if step.table))
        switched = before is not None and before.marked_by == "services" != self.marked_by
        return Installed(tables, changed, before is None, lost, switched)

    def status(self, plans: Sequence[EntityPlan]) -> CaptureStatus:
        return self._status(plans, self.capture.installation())

    def _status(self, plans: Sequence[EntityPlan], installation: Installation | None) -> CaptureStatus:
        states = self.capture.states(self.capture.captured(plans))
        return CaptureStatus(installation, tuple(states), self.capture.means)

    def installation_of_job(self, plans: Sequence[EntityPlan]) -> Installation | None:
        installation = self.capture.installation()
        return None if installation is None else self.need_captured(plans, installation).installation

    def need_installation(self, plans: Sequence[EntityPlan], *, is_old: bool = False) -> Installation:
        """`is_old`: the plans are of another mapping than capture, and the captured tables are not checked.

        Raises: as need_captured; SettingsError if not installed.
        """
        installation = owned(self.capture.installation(), self.job)
        if not is_old:
            self.need_captured(plans, installation)
        return installation

    def need_captured(self, plans: Sequence[EntityPlan], installation: Installation | None) -> CaptureStatus:
        """Check that capture covers all tables the mapping reads. `installation`: just read from the source.

        Raises: SettingsError if nothing is installed, if it is another job's, or if a table is not captured.
        """
        own = owned(installation, self.job)
        status = self._status(plans, own)
        open_ = [table.table for table in status.tables if table.state not in ROWS_CAPTURED]
        if open_:
            what = f"changes of {', '.join(open_)} would not be captured as needed (see `migrator capture status`)"
            raise SettingsError(f"{what}; run `migrator capture install`, then `migrator verify --repair`")
        if status.partitions:
            _log.warning(
                "truncate_leaves_no_mark", new_partitions=status.partitions, mend="migrator capture install"
            )
        return status

    def uninstall(self, marks: Marks, *, discard_marks: bool) -> list[Step]:
        """Completed steps; empty if nothing was installed. Raises: SettingsError if marks would be lost."""
        if (installation := self.capture.installation()) is not None:
            owned(installation, self.job)
            waiting = 0 if discard_marks else _waiting(marks)
            if waiting:
                what = f"{amount(waiting, 'change', 'wait')}, and their changes would never reach the table"
                raise SettingsError(f"{what}; run `migrator relay --once` first, or pass --discard-marks")
        steps = self.capture.uninstall_steps()
        for step in steps:
            self.capture.do(step)
        return steps


def _waiting(marks: Marks) -> int:
    marks.from_the_first()
    state = marks.state()
    return state.waiting + state.unripe


def unverified(installation: Installation | None, begun_before: Callable[[str], int | None]) -> str:
    """Changes that the table may lack because a backfill began before capture, and what to do; '' for none.

    `begun_before`: the number of such a run.
    """
    run = installation and begun_before(installation.id)
    if not run:
        return ""
    what = f"backfill {run} began before capture was installed as it is now"
    lost = "rows that were changed or deleted in between were not captured, and items of deleted ones stay"
    return f"{what}: {lost}; run `migrator verify --repair`, then `migrator relay`"


def owned(installation: Installation | None, job: str) -> Installation:
    if installation is None:
        what = "capture is not installed in this source, so changes are not recorded"
        raise SettingsError(f"{what}; run `migrator capture install` with this job")
    if another := of_another(installation, job):
        raise SettingsError(another)
    return installation


def still_fits(capture: Capture, begun_with: Installation) -> Installation:
    """Return the current installation, if a process that began with `begun_with` may continue.

    New triggers are allowed: if a service also marks, each mark is left twice, which does no harm.
    Raises: SettingsError if capture was removed or installed again, or if services must now leave the marks;
    SourceError if the source is unreachable.
    """
    installation = owned(capture.installation(), begun_with.job)
    if installation.id != begun_with.id:
        what = "capture was removed and installed again since this process started, and changes may have been missed"
        raise SettingsError(f"{what}; start it again, and run `migrator verify --repair`")
    if installation.marked_by == "services" != begun_with.marked_by:
        what = "triggers captured changes when this process started, and services must do it now"
        raise SettingsError(f"{what}; start it again, and run `migrator verify --repair`")
    return installation


def of_another(installation: Installation | None, job: str) -> str:
    """Why the marks are not the job's; '' if they are, or none exist.

    A mark is processed once, so another job's table would miss the change.
    """
    if installation is None or installation.job == job:
        return ""
    what = (
        f"this source is captured for job {installation.job}, whose pending changes job {job} would take away"
    )
    renamed = f"if it is the same job in a file of another name, write `name: {installation.job}` in it"
    return f"{what}; {renamed}; if it is not, run capture uninstall with that job first, or move from a copy of the source"
