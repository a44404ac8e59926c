"""`migrator table import`: DynamoDB imports exported files into a table that is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from migrator.cli.command_line import print_json
from migrator.cli.options import print_folded, shown_live
from migrator.cli.runs import RunEnd
from migrator.features.bulk.export import state_of
from migrator.features.bulk.export_work import Opened, open_bulk
from migrator.features.bulk.imports import (
    Export,
    Import,
    Records,
    exported,
    need_absent,
    need_files,
    need_importable,
    need_untouched,
)
from migrator.mapping.model.edges import TableState
from migrator.mapping.model.files import Imported, ImportState, Manifest
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import SettingsError
from migrator.runtime.logs import get_logger
from migrator.stages.core.adoption import KeysOfItems
from migrator.stages.live.relay import live_entities, remembered
from migrator.stages.process.session import begin, identity_of
from migrator.stages.session.files import import_request, imports_of
from migrator.stages.session.job import Target
from migrator.stages.session.session import JobSession

_log = get_logger("import")


def import_table(job: Path, place: str, dry_run: bool, as_json: bool) -> int:
    """The exit code of `migrator table import`."""
    if not place.startswith("s3:"):
        what = "DynamoDB imports from S3 alone"
        raise SettingsError(
            f"{what}; copy the folder there, such as `aws s3 sync {place} s3://bucket/prefix`"
        )
    with JobSession(job) as session, ExitStack() as stack:
        opened = open_bulk(stack, session, "import", place, None)
        read, target, journal = session.job, opened.session.target, session.journal
        need_importable(target.design)
        export = _export(opened)
        latest, there = (
            journal.find_run(_identity(opened, target.design)),
            target.admin.state(target.design),
        )
        if there is not None and _is_done(opened, latest, there):
            click.echo(
                f"run {latest.id if latest else 0} has imported table {target.design.name}: nothing left to do",
                err=True,
            )
            return _print(
                Imported(latest.id if latest else 0, target.design.name, export.manifest.items),
                as_json=as_json,
            )
        need_absent(latest, there, target.design.name)
        if there is None:
            need_untouched(export, journal, opened.ticket)
            need_files(opened.files, export.manifest, read.tuning.workers, session.stop)
        if dry_run:
            request = import_request(read, target.design, opened.files)
            return _print_request(request, export.manifest, as_json=as_json)
        run = begin(journal, _identity(opened, target.design), again=True, after=0)
        shown = _Shown(export.manifest.items)
        with RunEnd(journal.end_run, run, read.hooks), shown_live(lambda: shown.line):
            imported = _stage(opened, target, export, shown.see).run(run, export)
    return _print(imported, as_json=as_json)


def _export(opened: Opened) -> Export:
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
    """Whether the table is what the last import made."""
    if latest is None or latest.state != "done":
        return False
    return state_of(opened.session.journal, latest).get("table_id") == there.table_id


def _stage(
    opened: Opened,
    target: Target,
    export: Export,
    told: Callable[[ImportState], None],
) -> Import:
    session = opened.session
    backfill = partial(
        identity_of, "backfill", session, entities=opened.entities, installation=opened.installation
    )
    names = remembered(live_entities(session.checked.mapping, session.checked.entities, session.source))
    records = Records(
        job=session.job.name,
        table=target.design.name,
        identity=session.identity,
        control=session.control_of(target.fenced(opened.check)),
        on_record=session.on_record,
        count=lambda table_id: session.journal.count_as_done(
            export.run, backfill(table_id=table_id), opened.installation
        ),
        captured=bool(opened.installation),
    )
    return Import(
        imports=imports_of(session.job, target.design, opened.files, session.stop.is_set),
        files=opened.files,
        journal=session.journal,
        design=target.design,
        keys=lambda table_id: KeysOfItems(target.design, names, session.memory_of(table_id)),
        there=lambda: target.admin.state(target.design),
        pages=target.pages,
        ready=lambda: target.admin.wait(target.design),
        finish=lambda: target.admin.finish_import(target.design, session.job.target.options),
        records=records,
        wait=target.store.retry.wait,
        told=told,
    )


@dataclass
class _Shown:
    """How far an import is, of so many items: a line for people, and log lines for others."""

    items: int
    line: str = field(default="the import is asked for")

    def see(self, state: ImportState) -> None:
        self.line = (
            f"import {state.status}: {state.imported:,} of {self.items:,} items, {state.errors:,} refused"
        )
        _log.info(
            "import_seen",
            status=state.status,
            processed=state.processed,
            imported=state.imported,
            items=self.items,
            errors=state.errors,
        )


def _print_request(request: Mapping[str, Any], manifest: Manifest, *, as_json: bool) -> int:
    if as_json:
        print_json({"request": request, "items": manifest.items, "files": len(manifest.parts)})
        return 0
    parameters = request["TableCreationParameters"]
    source = request["S3BucketSource"]
    place = f"s3://{source['S3Bucket']}/{source['S3KeyPrefix']}"
    what = f"would import {manifest.items:,} items of {len(manifest.parts):,} file(s) at {place}"
    print_folded(f"{what} into a new table {parameters['TableName']}; the files are as they were written")
    return 0


def _print(imported: Imported, *, as_json: bool) -> int:
    if imported.replaced:
        what = f"{imported.replaced:,} key(s) changed hands while rows were exported, so one item of two is in the table"
        click.echo(
            f"warning: {what}; `migrator relay` makes it the right one, `migrator verify` proves it", err=True
        )
    if as_json:
        print_json({
            "run": imported.run, "table": imported.table, "items": imported.items, "replaced": imported.replaced,
            "remembered": imported.remembered,
        })  # fmt: skip
    else:
        what = f"table {imported.table} has {imported.items:,} imported items, all pages count as done"
        print_folded(f"{what}; next: `migrator relay` where capture is installed, then `migrator verify`")
    return 0
