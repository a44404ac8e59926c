"""Doctor: checks whether a job could run, from packages and rights to table and capture."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.edges import ActionProbe, Questions, Rows, SourceHealth, TableState
from migrator.mapping.model.facts import TableFacts
from migrator.mapping.model.instances import Standing
from migrator.mapping.model.live import SlotLag
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.results import Check, CheckState
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import MigratorError, TargetError, amount
from migrator.runtime.system import how_to_install
from migrator.stages.live.capture import ROWS_CAPTURED, CaptureStatus
from migrator.stages.patterns.question import statement_faults

Answer = TypeVar("Answer")

APART_S = 5.0
"""Clocks further apart than this give a warning: a TTL is compared with ours."""
REFUSED_S = 240.0
"""AWS refuses requests with a time 5 minutes off. Source: IAM User Guide, "Signature Version 4"."""

_POOLED = "nothing that migrator sets there outlives a transaction"

_LATER = {"UpdateItem": "`migrator clean --attributes`"}
"""Actions that one command alone needs."""
UNTIL_CAPTURE = dict.fromkeys(
    ("DescribeStream", "GetShardIterator", "GetRecords"), "`migrator capture install`"
)
"""Actions that a job without capture does not need."""


class Checkup:
    def __init__(self) -> None:
        self.checks: list[Check] = []

    def tell(self, name: str, what: str, mend: str = "", state: CheckState = "ok") -> None:
        self.checks.append(Check(name, state, what, mend))

    def ask(self, name: str, work: Callable[[], Answer], fine: str = "") -> Answer | None:
        """Report the result of `work` as `fine` unless that is empty. An error is a failed check: None."""
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


def check_on_record(checkup: Checkup, look: Callable[[], None]) -> None:
    """`look` raises if the table contradicts the journal."""

    def looked() -> bool:
        try:
            look()
        except TargetError:
            return False
        return True

    if (is_known := checkup.ask("table on record", looked)) is None:
        return
    if is_known:
        checkup.tell("table on record", "the table is as the journal knows it")
    else:
        checkup.tell(
            "table on record", "not tried: the table gives no answer; see its own checks", state="warning"
        )


def check_packages(checkup: Checkup, packages: Mapping[str, str | None]) -> None:
    """`packages`: name to version; None if the job needs it and it is not installed."""
    for name, version in packages.items():
        if version is None:
            what = "the job needs it, and it is not installed"
            checkup.tell(f"extra {name}", what, how_to_install(name), "failed")
        else:
            checkup.tell(name, version)


def check_server(checkup: Checkup, ask: Callable[[], SourceHealth]) -> None:
    server = checkup.ask("source server", ask)
    if server is None:
        return
    facts = [server.version]
    if server.clock_s is not None:
        facts.append("a replica: it may lag behind" if server.replica else "no replica")
    if server.timeout:
        facts.append(f"statement time-out {'none' if server.timeout == '0' else server.timeout}")
    checkup.tell("source server", ", ".join(facts))
    if server.pooling:
        what = f"the server is reached through one, which shares its sessions {server.pooling}"
        checkup.tell("connection pooler", f"{what}; {_POOLED}")
    if server.clock_s is not None:
        check_clock(checkup, "clock of the source", lambda: server.clock_s)


def check_grants(checkup: Checkup, ask: Callable[[], Mapping[str, str]]) -> None:
    """`ask`: the missing GRANT, or '', of each right that a role needs in the source."""
    for name, mend in (checkup.ask("grants", ask) or {}).items():
        checkup.tell(
            name, "the source's user lacks it" if mend else "given", mend, "failed" if mend else "ok"
        )


def check_entities(checkup: Checkup, source: Rows, entities: Sequence[CompiledEntity]) -> None:
    for entity in entities:
        name = f"SELECT for {entity.name}"
        rows = checkup.ask(name, lambda entity=entity: source.read_page(entity.plan, None, None, 1))  # type: ignore[misc]
        if rows is not None:
            checkup.tell(name, "its tables can be read" if rows else "its tables can be read; no row")


def check_hidden_rows(
    checkup: Checkup,
    entities: Sequence[CompiledEntity],
    hidden_faults: Callable[[Sequence[TableFacts]], list[str]],
) -> None:
    """Check that no row policy of PostgreSQL hides rows behind items."""
    name = "row level security"
    tables = {table.name: table for entity in entities for table in entity.plan.tables}
    faults = checkup.ask(name, lambda: dict(zip(tables, hidden_faults(list(tables.values())), strict=True)))
    if faults is None:
        return
    if hidden := sorted(table_name for table_name, fault in faults.items() if fault):
        what = f"policies would hide rows of {', '.join(hidden)} from this user, so nothing is read"
        mend = "ALTER ROLE … BYPASSRLS for the source's user; or name the owner of the tables, where they have no FORCE"
        checkup.tell(name, what, mend, "failed")
    else:
        checkup.tell(name, f"no policy hides rows of {amount(len(tables), 'table')} from this user")


def check_statements(checkup: Checkup, source: Questions, mapping: MappingModel) -> None:
    if not mapping.patterns:
        return
    faults = statement_faults(source, mapping)
    for names, what in faults.items():
        checkup.tell(f"SQL of {' '.join(names)}".strip(), what, "correct it in the mapping", "failed")
    if not faults:
        number = sum(len(pattern.statements) for pattern in mapping.patterns.values())
        checkup.tell("SQL of patterns", f"the source understands {amount(number, 'statement')}")


def check_table(
    checkup: Checkup, state_of: Callable[[TableDesign], TableState | None], design: TableDesign, job: str
) -> bool:
    try:
        state = state_of(design)
    except MigratorError as error:
        checkup.tell("table", str(error), "", "failed")
        return False
    if state is None:
        checkup.tell("table", f"table {design.name} not found", f"migrator table create {job}", "failed")
        return False
    if state.differences:
        weight: CheckState = "warning" if set(state.differences) == set(state.extra) else "failed"
        checkup.tell("table", "; ".join(state.differences), f"migrator table check {job}", weight)
    else:
        checkup.tell("table", f"{design.name} is {state.status} and matches the mapping")
    return True


def check_jobs(checkup: Checkup, ask: Callable[[], Collection[str]], job: str) -> None:
    with suppress(MigratorError):  # a table that cannot be read is reported by the check of permissions
        if others := sorted(set(ask()) - {job}):
            what = f"captured job {', '.join(others)} also writes it, and both would share one highest ticket"
            mend = "give each job that is captured a table of its own (docs/protocol.md)"
            checkup.tell("jobs of the table", what, mend, "warning")


def check_clock(checkup: Checkup, name: str, ask: Callable[[], float | None]) -> None:
    their_s = checkup.ask(name, ask)
    if their_s is None:
        return
    apart_s = abs(time.time() - their_s)
    state: CheckState = "failed" if apart_s > REFUSED_S else "warning" if apart_s > APART_S else "ok"
    mend = "" if state == "ok" else "set this machine's clock, by NTP for instance"
    checkup.tell(name, f"{apart_s:.0f} s from this machine's clock", mend, state)


def check_permissions(
    checkup: Checkup, probes: Sequence[ActionProbe], job: str, *, written: bool, role: str | None = None
) -> None:
    check_actions(checkup, probes, {} if role else _LATER)
    if not written and role is None:
        what = "permissions to write were not tried"
        checkup.tell("permission BatchWriteItem", what, f"migrator doctor --write {job}", "warning")


def check_actions(
    checkup: Checkup, probes: Sequence[ActionProbe], needed_by: Mapping[str, str], old: str = ""
) -> None:
    """`needed_by`: the command before which an action is needed, of those not needed yet.

    `old`: the real name of an old table; '' for the job's own.
    """
    of, table = (f" of {old}", f"table {old}") if old else ("", "the table")
    for probe in probes:
        name = f"permission {probe.action} {probe.index}".rstrip() + of
        where = f"{'index' if old else 'its index'} {probe.index}{of}" if probe.index else table
        if not probe.refused:
            checkup.tell(name, "allowed")
            continue
        if not probe.tried:
            checkup.tell(name, probe.refused, "", "warning")
            continue
        later = f" before {needed_by[probe.action]}" if probe.action in needed_by else ""
        # Other refusals, such as a missing index, contain their own advice.
        denied = "AccessDenied" in probe.refused
        mend = f"allow dynamodb:{probe.action} on {where} to the role{later}" if denied else ""
        checkup.tell(name, probe.refused, mend, "warning" if later else "failed")


def check_capture(
    checkup: Checkup,
    ask: Callable[[], CaptureStatus],
    ask_refusals: Callable[[], Sequence[str]],
    ask_marking: Callable[[], int],
    job: str,
) -> bool:
    """Return whether capture is installed.

    `ask_refusals`: reasons why it cannot be.
    `ask_marking`: number of live service instances that mark changes.
    """
    try:
        status = ask()
        marking = ask_marking() if status.marked_by == "services" else 0
        against = ask_refusals() if status.installation is None else []
    except MigratorError as error:
        # A read-only source can be moved anyway, as long as it does not change.
        checkup.tell("capture", f"cannot be looked at: {error}", "", "warning")
        return False
    here = status.installation
    if here is None:
        mend = f"before `migrator capture install`: {'; '.join(against)}" if against else ""
        checkup.tell("capture", "not installed: not needed if nothing writes to the source", mend)
    elif wrong := [
        f"{table.table} {table.state}" for table in status.tables if table.state not in ROWS_CAPTURED
    ]:
        what = f"changes are not captured: {', '.join(wrong)}"
        checkup.tell("capture", what, f"migrator capture install {job}", "failed")
    elif status.partitions:
        what = f"rows are captured; a TRUNCATE of {', '.join(status.partitions)} (new) alone would not be"
        checkup.tell("capture", what, f"migrator capture install {job}", "warning")
    elif here.marked_by != "services":
        checkup.tell("capture", f"{status.means} capture changes of {amount(len(status.tables), 'table')}")
    elif not marking:
        what = "services must capture changes, and no instance is known to be running"
        checkup.tell("capture", what, "start the services with the adapter", "warning")
    else:
        what = f"{amount(marking, 'service instance', 'capture')} changes of {amount(len(status.tables), 'table')}"
        checkup.tell("capture", what)
    return here is not None


def check_slot(checkup: Checkup, lag: SlotLag | None) -> None:
    if lag is None:
        return
    if lag.lost:
        checkup.tell(lag.name, lag.line(), "", "failed")
    elif lag.remedy:
        checkup.tell(lag.name, lag.line(), lag.remedy, "warning")
    else:
        checkup.tell(lag.name, lag.line())


def check_bucket(checkup: Checkup, probes: Sequence[ActionProbe]) -> None:
    for probe in probes:
        name = f"permission s3:{probe.action}"
        # Only the doctor takes objects away.
        state: CheckState = "warning" if probe.action == "DeleteObject" or not probe.tried else "failed"
        checkup.tell(name, probe.refused or "allowed", "", state if probe.refused else "ok")


def check_untried(checkup: Checkup, rights: Sequence[str], of: str, why: str) -> None:
    """Warn about each right that cannot be tested. `of`: its object, '' if its name contains it."""
    for right in rights:
        checkup.tell(f"permission {right}{f' of {of}' if of else ''}", f"not tried: {why}", "", "warning")


def check_revision(checkup: Checkup, ask: Callable[[], Standing], job: str) -> None:
    name = "mapping at work"
    try:
        standing = ask()
    except MigratorError as error:
        checkup.tell(name, f"the journal cannot be asked: {error}", "", "warning")
        return
    if standing == "old":
        what = "the job now uses another mapping, or other columns: nothing can be written by this one"
        mend = f"take the newer mapping file, or go back: migrator recover {job} older-mapping"
        checkup.tell(name, what, mend, "failed")
    elif standing == "new":
        what = "it (or a column that it reads) is new to the job: writers by another one stop when the job switches to it"
        mend = f"migrator capture install {job}, restart relays and services, then migrator backfill {job}"
        checkup.tell(name, what, mend, "warning")
    else:
        checkup.tell(
            name, "no writer has worked by another one since" if standing == "newest" else "none yet"
        )


def check_verified(checkup: Checkup, ask: Callable[[], str]) -> None:
    """Warn about changes the table may lack because capture was installed after a backfill."""
    try:
        what = ask()
    except MigratorError:
        return  # the checks of capture and journal report failed queries
    if what:
        checkup.tell("changes before capture", what, "", "warning")
