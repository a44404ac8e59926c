"""`migrator table import`: DynamoDB imports exported files into a new table."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

import click
import orjson

from migrator.cli.options import print_result, shown_live
from migrator.cli.runs import RunEnd
from migrator.features.bulk.export import Opened, keep_state, open_bulk, state_of, unpacked
from migrator.journal.runs import SqlJournal
from migrator.mapping.items.items import key_text
from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.edges import (
    MANIFEST,
    PARTS,
    UNIMPORTED,
    Files,
    Imported,
    ImportFault,
    ImportState,
    Manifest,
    PartFile,
    TableImports,
    TableState,
    manifest_digest,
)
from migrator.mapping.model.journal import Finding, Run, RunIdentity
from migrator.mapping.model.table import Item, TableDesign, split_source
from migrator.runtime.errors import RefusedError, SettingsError, TargetError, amount
from migrator.runtime.logs import get_logger
from migrator.runtime.values import asdict
from migrator.stages.backfill.write import NO_TICKET
from migrator.stages.core.parallel import in_parallel
from migrator.stages.live.relay import live_entities, remembered
from migrator.stages.process import begin, identity_of
from migrator.stages.session.adoption import remember_keys
from migrator.stages.session.job import Target, import_request, imports_of
from migrator.stages.session.session import JobSession

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 15.0
FAULTS = 1000
"""The most faulty items that are listed; an import continues after the first, and reports only at its end that it failed."""

# ── Before an import: the files are those that the journal knows, all of them and no other ──


def exported(
    files: Files, journal: SqlJournal, job: str, journal_id: str, revision: str
) -> tuple[Manifest, Run]:
    """Manifest and run of these files' export. `revision`: of the job's current mapping, columns and capture.

    Raises: SettingsError if it is missing, edited, or of another journal or revision.
    """
    data = files.read(MANIFEST)
    if data is None:
        what = f"{files.name} has no {MANIFEST}: no export, or it has not ended"
        raise SettingsError(f"{what}; run `migrator table export JOB --to {files.name}`")
    try:
        manifest = Manifest.read(data)
    except ValueError:
        raise SettingsError(f"{files.name}/{MANIFEST} is none of this migrator's; {_AGAIN}") from None
    run = next((run for run in journal.runs(job) if run.id == manifest.run), None)
    if manifest.journal != journal_id or manifest.job != job or run is None:
        what = f"{files.name} was exported by job {manifest.job} with another journal than this one"
        raise SettingsError(f"{what}, which knows nothing of its pages; use that journal, or {_AGAIN}")
    if state_of(journal, run).get("manifest") != manifest_digest(data):
        raise SettingsError(f"{files.name}/{MANIFEST} was edited, or is not of the last export; {_AGAIN}")
    if run.identity.revision != revision:
        what = f"{files.name} was exported with another mapping, with other columns, or before capture was installed again"
        raise SettingsError(f"{what}; {_AGAIN}")
    return manifest, run


_AGAIN = "export again with `migrator table export JOB --to … --restart`"


def need_files(files: Files, manifest: Manifest, workers: int, stop: Event) -> None:
    """Read every file. Raises: SettingsError, naming all that differ from the manifest, are missing or excess."""
    there = files.sizes_below(PARTS)
    faults = [
        f"{name} is not of the export" for name in there.keys() - {part.name for part in manifest.parts}
    ]

    def fault(part: PartFile) -> str:
        data = files.read(part.name)
        if data is None:
            return f"{part.name} is missing"
        same = hashlib.md5(data, usedforsecurity=False).hexdigest() == part.md5
        return "" if same else f"{part.name} is not as it was written"

    faults += filter(None, in_parallel(fault, manifest.parts, workers, stop))
    if faults:
        raise SettingsError(f"{files.name}: {'; '.join(sorted(faults))}; {_AGAIN}")


def need_untouched(exported_by: Run, journal: SqlJournal, ticket: int) -> None:
    """`ticket`: the highest drawn. Raises: SettingsError if a writer was active since the export began: its
    items are not in the files, and the marks are gone."""
    if ticket > state_of(journal, exported_by).get("ticket", 0):
        what = "a relay or a service has made items of changed rows since the export began, so their changes are gone"
        raise SettingsError(f"{what} and the export lacks them; stop it, and {_AGAIN}")


def need_importable(design: TableDesign) -> None:
    if local := [index.name for index in design.indexes if index.local]:
        what = f"table {design.name} has local indexes ({', '.join(local)}), which an import cannot make"
        raise SettingsError(f"{what}; use `migrator table create` and `migrator backfill`")


# ── The import itself ──


@dataclass
class Import:
    """Import of files into a table, with its record in journal and table. Every call may be repeated."""

    opened: Opened
    target: Target
    manifest: Manifest
    exported_by: Run
    line: str = "the import was requested"
    """How far it is."""

    @property
    def session(self) -> JobSession:
        return self.opened.session

    @property
    def design(self) -> TableDesign:
        return self.target.design

    @cached_property
    def imports(self) -> TableImports:
        return imports_of(self.session.job, self.design, self.opened.files, self.session.stop.is_set)

    @property
    def is_captured(self) -> bool:
        return bool(self.opened.installation)

    def run(self, run: Run) -> Imported:
        """Import, or resume the run's import.

        Raises: RefusedError, with findings, if DynamoDB did not import all; TargetError for a table of
        another run; Interrupted, StoppedError: the same run continues later.
        """
        admin, session, expected = self.target.admin, self.session, self.manifest.items
        state = self._begun(run)
        keep_state(session.journal, run, arn=state.arn, table_id=state.table_id)
        if self.is_captured:
            # From now on writers with tickets refuse the table, until it has ended well.
            session.identity.see(state.table_id, self.design.name, UNIMPORTED)
        state = self._ended(state)
        if state.status != "COMPLETED":
            self._refuse(run, state)
        if state.imported != expected:
            imported = amount(state.imported, "item", "were")
            what = f"{imported} imported, and the export has {expected:,}"
            self._refuse_with(run, [Finding("count", "", what)], what)
        admin.wait(self.design)
        counted, remembered = self._counted(state.table_id)
        replaced = state.imported - counted
        if replaced and not self.is_captured:
            imported = amount(state.imported, "item", "were")
            what = f"{imported} imported, and the table has {counted:,}: rows have changed meanwhile"
            self._refuse_with(run, [Finding("count", "", what)], what)
        admin.finish_import(self.design, session.job.target.options)
        self._record(state.table_id)
        return Imported(run.id, self.design.name, counted, replaced, remembered)

    def _begun(self, run: Run) -> ImportState:
        kept, there = state_of(self.session.journal, run), self.target.admin.state(self.design)
        if there is None:
            token = secrets.token_hex(16)
            # Before the request: if its answer is lost, the import is found by the token.
            keep_state(self.session.journal, run, token=token, arn="")
            return self.imports.begin(token)
        state = self.imports.state(kept["arn"]) if kept.get("arn") else None
        if state is None and kept.get("token"):
            # Asked for again with the same token, it is the same import; a table of somebody else's is refused.
            state = self.imports.asked_with(kept["token"]) or self.imports.begin(kept["token"])
        if state is None or state.table_id != there.table_id:
            raise _exists(self.design.name)
        return state

    def _ended(self, state: ImportState) -> ImportState:
        wait_s = FIRST_WAIT_S
        while not state.is_over:
            self._see(state)
            self.target.store.retry.wait(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            state = self.imports.state(state.arn)
        self._see(state)
        return state

    def _see(self, state: ImportState) -> None:
        items, counts = self.manifest.items, {"imported": state.imported, "errors": state.errors}
        self.line = f"import {state.status}: {state.imported:,} of {items:,} items, {state.errors:,} refused"
        _log.info("import_seen", status=state.status, processed=state.processed, items=items, **counts)

    def _counted(self, table_id: str) -> tuple[int, int]:
        """(items in the table, remembered keys), by a full scan."""
        checked = self.session.checked
        names = remembered(live_entities(checked.mapping, checked.entities, self.session.source))
        memory = self.session.memory_of(table_id)
        counted = number = 0
        for page in self.target.pages():
            counted += sum(not self.design.is_hidden(item) for item in page)
            # As a fast backfill remembers them: any ticket drawn later is higher.
            number += remember_keys(memory, self.design, names, NO_TICKET, page)
        return counted, number

    def _record(self, table_id: str) -> None:
        session, opened = self.session, self.opened
        identity = identity_of(
            "backfill", session, table_id, opened.entities, installation=opened.installation
        )
        session.journal.count_as_done(self.exported_by, identity, opened.installation)
        if self.is_captured:
            control = session.control_of(self.target.fenced(opened.check))
            before = control.read_control().jobs.get(session.job.name)
            control.keep(table_id, session.job.name, session.on_record().kept(before))
            session.identity.repaired(table_id, self.design.name, NO_TICKET)

    # ── what DynamoDB did not take ──

    def _refuse(self, run: Run, state: ImportState) -> None:
        faults, unread = self.imports.faults(state.arn, FAULTS)
        findings = [self._finding(fault) for fault in faults]
        if not findings:
            findings = [Finding("unwritten", "", "; ".join(filter(None, (state.failure, unread))))]
        what = f"the import ended as {state.status} ({state.failure or 'no reason given'})"
        self._refuse_with(run, findings, f"{what}, {amount(state.errors, 'item', 'were')} not taken")

    def _refuse_with(self, run: Run, findings: Sequence[Finding], what: str) -> None:
        self.session.journal.add_findings(run, findings)
        advice = (
            f"`migrator status --findings` has them; delete table {self.design.name} if it is there, fix them"
        )
        raise RefusedError(f"{what}; {advice}, export with --restart, and import again")

    def _finding(self, fault: ImportFault) -> Finding:
        where = f"{fault.name}, line {fault.line + 1}: {fault.why}" if fault.name else fault.why
        try:
            item = self._item(fault)
            entity, key = split_source(str(item[self.design.source_attribute]))
            item_key, item_type = key_text(self.design, item), self.design.type_of(item)
        except (KeyError, IndexError, TypeError, ValueError):
            return Finding("unwritten", "", where)  # the line itself cannot be read
        return Finding("unwritten", entity, where, key, item_key, item_type=item_type)

    def _item(self, fault: ImportFault) -> Item:
        lines = unpacked(self.opened.files.read(fault.name))
        wired: dict[str, Any] = orjson.loads(lines[fault.line])["Item"]
        return decode_item(wired)


def need_absent(latest: Run | None, there: TableState | None, table: str) -> None:
    """`latest`: the last import into a table of that name. Raises: TargetError if an existing table is not an
    import of migrator.
    """
    if there is not None and (latest is None or latest.state == "done"):
        raise _exists(table)


def _exists(table: str) -> TargetError:
    what = f"table {table} exists already, and an import makes its table itself"
    advice = "name another table in the job, or delete this one; into a table that is there goes `migrator backfill`"
    return TargetError(f"{what}; {advice}")


_log = get_logger("import")


def import_table(job: Path, place: str, dry_run: bool, as_json: bool) -> int:
    if not place.startswith("s3:"):
        what = "DynamoDB imports from S3 alone"
        raise SettingsError(
            f"{what}; copy the folder there, such as `aws s3 sync {place} s3://bucket/prefix`"
        )
    with JobSession(job) as session, ExitStack() as stack:
        opened = open_bulk(stack, session, "import", place, None)
        read, target, journal = session.job, opened.session.target, session.journal
        need_importable(target.design)
        manifest, exported_by = _export(opened)
        latest, there = journal.find_run(_identity(opened, target.design)), target.admin.state(target.design)
        if there is not None and _is_done(opened, latest, there):
            click.echo(
                f"run {latest.id if latest else 0} has imported table {target.design.name}: nothing left to do",
                err=True,
            )
            return _print(
                Imported(latest.id if latest else 0, target.design.name, manifest.items), as_json=as_json
            )
        need_absent(latest, there, target.design.name)
        if there is None:
            need_untouched(exported_by, journal, opened.ticket)
            need_files(opened.files, manifest, read.tuning.workers, session.stop)
        if dry_run:
            request = import_request(read, target.design, opened.files)
            return _print_request(request, manifest, as_json=as_json)
        run = begin(journal, _identity(opened, target.design), again=True, after=0)
        stage = Import(opened, target, manifest, exported_by)
        with RunEnd(journal.end_run, run, read.hooks), shown_live(lambda: stage.line):
            imported = stage.run(run)
    return _print(imported, as_json=as_json)


def _export(opened: Opened) -> tuple[Manifest, Run]:
    session, name = opened.session, opened.session.job.name
    revision = identity_of(
        "export", session, opened.place, opened.entities, installation=opened.installation
    ).revision
    journal_id = session.identity.journal_id()
    return exported(opened.files, session.journal, name, journal_id, revision)


def _identity(opened: Opened, design: TableDesign) -> RunIdentity:
    return identity_of(
        "import", opened.session, opened.place, opened.entities, design.name, installation=opened.installation
    )


def _is_done(opened: Opened, latest: Run | None, there: TableState) -> bool:
    if latest is None or latest.state != "done":
        return False
    return state_of(opened.session.journal, latest).get("table_id") == there.table_id


def _print_request(request: Mapping[str, Any], manifest: Manifest, *, as_json: bool) -> int:
    parameters = request["TableCreationParameters"]
    source = request["S3BucketSource"]
    place = f"s3://{source['S3Bucket']}/{source['S3KeyPrefix']}"
    what = (
        f"would import {amount(manifest.items, 'item')} of {amount(len(manifest.parts), 'file')} at {place}"
    )
    print_result(
        {"request": request, "items": manifest.items, "files": len(manifest.parts)},
        f"{what} into a new table {parameters['TableName']}; the files are as they were written",
        as_json=as_json,
    )
    return 0


def _print(imported: Imported, *, as_json: bool) -> int:
    if imported.replaced:
        replaced = amount(imported.replaced, "key")
        what = f"{replaced} changed hands while rows were exported, so one item of two is in the table"
        click.echo(
            f"warning: {what}; `migrator relay` makes it the right one, `migrator verify` proves it", err=True
        )
    what = f"table {imported.table} has {imported.items:,} imported items, all pages count as done"
    line = f"{what}; next: `migrator relay` where capture is installed, then `migrator verify`"
    print_result(asdict(imported), line, as_json=as_json)
    return 0
