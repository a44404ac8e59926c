"""What a run needs, checked one by one: each check is told, and none ends the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from migrator.errors import MigratorError
from migrator.mapping.items import CompiledEntity
from migrator.model import Mapping as MappingModel
from migrator.model import TableDesign
from migrator.ports import Probe, Source, TableAdmin
from migrator.results import Check, CheckState
from migrator.stages.capture import CAPTURED, CaptureStatus
from migrator.stages.statements import statement_faults

Found = TypeVar("Found")

APART_S = 5.0
"""Clocks further apart than this are worth a warning: a TTL is compared with ours."""
REFUSED_S = 240.0
"""AWS refuses requests whose time is 5 minutes off. Source: IAM User Guide, "Signature Version 4"."""

_LATER = {"UpdateItem": "`migrator decommission strip`"}
"""Actions that one command alone needs."""


class Server(Protocol):
    """What a source's server says of itself."""

    @property
    def version(self) -> str: ...
    @property
    def clock_s(self) -> float | None: ...
    @property
    def replica(self) -> bool: ...
    @property
    def timeout(self) -> str: ...


class Checkup:
    """The checks so far, in order."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def tell(self, name: str, what: str, mend: str = "", state: CheckState = "ok") -> None:
        self.checks.append(Check(name, state, what, mend))

    def ask(self, name: str, work: Callable[[], Found], fine: str = "") -> Found | None:
        """What `work` gives, told as `fine` where that is not empty; None and a failed check for any error."""
        try:
            answer = work()
        except MigratorError as error:
            self.tell(name, str(error), "", "failed")
            return None
        except Exception as error:
            # A check that meets a fault of our own must not end the others; its text may quote values.
            mend = "run another command with MIGRATOR_TRACE=1 and report what it prints"
            self.tell(name, f"internal error ({type(error).__name__})", mend, "failed")
            return None
        if fine:
            self.tell(name, fine)
        return answer


def check_packages(found: Checkup, packages: Mapping[str, str | None]) -> None:
    """`packages`: name to version; None for one that the job needs and that is not installed."""
    for name, version in packages.items():
        if version is None:
            mend = f"pip install 'single-table-migrator[{name}]'"
            found.tell(f"extra {name}", "the job needs it, and it is not installed", mend, "failed")
        else:
            found.tell(name, version)


def check_server(found: Checkup, ask: Callable[[], Server]) -> None:
    server = found.ask("source server", ask)
    if server is None:
        return
    told = [server.version]
    if server.clock_s is not None:
        told.append("a replica: it may lag behind" if server.replica else "no replica")
    if server.timeout:
        told.append(f"statement time-out {'none' if server.timeout == '0' else server.timeout}")
    found.tell("source server", ", ".join(told))
    if server.clock_s is not None:
        check_clock(found, "clock of the source", lambda: server.clock_s)


def check_entities(found: Checkup, source: Source, entities: Sequence[CompiledEntity]) -> None:
    """Whether a row of each entity can be read, with all the tables that it is made of."""
    for entity in entities:
        name = f"SELECT for {entity.name}"
        rows = found.ask(name, lambda entity=entity: source.read_page(entity.plan, None, None, 1))  # type: ignore[misc]
        if rows is not None:
            found.tell(name, "its tables can be read" if rows else "its tables can be read; there is no row")


def check_statements(found: Checkup, source: Source, mapping: MappingModel) -> None:
    """Whether the source understands the SQL of every access pattern."""
    if not mapping.patterns:
        return
    faults = list(statement_faults(source, mapping))
    for fault in faults:
        found.tell(f"SQL of {fault.name}", fault.what, "correct it in the mapping", "failed")
    if not faults:
        number = sum(len(pattern.sql) for pattern in mapping.patterns.values())
        found.tell("SQL of patterns", f"the source understands {number} statement(s)")


def check_table(found: Checkup, admin: TableAdmin, design: TableDesign, job: str) -> bool:
    """Whether the table is there."""
    try:
        state = admin.state(design)
    except MigratorError as error:
        found.tell("table", str(error), "", "failed")
        return False
    if state is None:
        found.tell("table", f"there is no table {design.name}", f"migrator table create {job}", "failed")
        return False
    if state.differences:
        found.tell("table", "; ".join(state.differences), f"migrator table check {job}", "failed")
    else:
        found.tell("table", f"{design.name} is {state.status} and as the mapping says")
    return True


def check_clock(found: Checkup, name: str, ask: Callable[[], float | None]) -> None:
    their_s = found.ask(name, ask)
    if their_s is None:
        return
    apart_s = abs(time.time() - their_s)
    state: CheckState = "failed" if apart_s > REFUSED_S else "warning" if apart_s > APART_S else "ok"
    mend = "" if state == "ok" else "set this machine's clock, by NTP for instance"
    found.tell(name, f"{apart_s:.0f} s from ours", mend, state)


def check_permissions(found: Checkup, probes: Sequence[Probe], job: str, *, written: bool) -> None:
    for probe in probes:
        name = f"permission {probe.action} {probe.index}".rstrip()
        where = f"its index {probe.index}" if probe.index else "the table"
        if not probe.refused:
            found.tell(name, "allowed")
            continue
        later = f" before {_LATER[probe.action]}" if probe.action in _LATER else ""
        # What is refused for another reason, as for an index that is not there, says itself what to do.
        denied = "AccessDenied" in probe.refused
        mend = f"allow dynamodb:{probe.action} on {where} to the role{later}" if denied else ""
        found.tell(name, probe.refused, mend, "warning" if later else "failed")
    if not written:
        what = "permissions to write were not tried"
        found.tell("permission BatchWriteItem", what, f"migrator doctor --write {job}", "warning")


def check_capture(
    found: Checkup, ask: Callable[[], CaptureStatus], ask_marking: Callable[[], int], job: str
) -> None:
    """`ask_marking`: how many instances of services are alive that mark changes."""
    try:
        status = ask()
        marking = ask_marking() if status.marked_by == "services" else 0
    except MigratorError as error:
        # A source that may only be read can be moved all the same, as long as it stands still.
        found.tell("capture", f"cannot be looked at: {error}", "", "warning")
        return
    here = status.installation
    if here is None:
        found.tell("capture", "not installed: right for a source that stands still")
    elif not status.whole:
        wrong = ", ".join(f"{one.table} {one.state}" for one in status.tables if one.state not in CAPTURED)
        found.tell("capture", f"changes leave no mark: {wrong}", f"migrator capture install {job}", "failed")
    elif here.marked_by == "triggers":
        found.tell("capture", f"triggers mark changes of {len(status.tables)} table(s)")
    elif not marking:
        what = "services are to mark changes, and no instance is known to be alive"
        found.tell("capture", what, "start the services with the adapter", "warning")
    else:
        found.tell(
            "capture", f"{marking} instance(s) of services mark changes of {len(status.tables)} table(s)"
        )


def check_journal(found: Checkup, try_it: Callable[[], None]) -> None:
    try:
        try_it()
    except MigratorError as error:
        found.tell("journal", str(error), "", "failed")
    else:
        found.tell("journal", "it can be written")
