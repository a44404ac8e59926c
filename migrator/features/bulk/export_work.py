"""`migrator table export`: the items of every row as files for DynamoDB's import from S3."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

from msgspec import Struct

from migrator.cli.command_line import print_json
from migrator.cli.options import (
    print_folded,
    progress,
    say,
    stdout,
    stop_on_signals,
    stopped_says,
)
from migrator.cli.runs import RunEnd, print_found
from migrator.cli.runs_text import print_backfill
from migrator.cli.text import SHOWN, usd
from migrator.features.bulk.export import (
    BLOCKING,
    ExportPath,
    ItemLines,
    Publication,
    clear,
    is_published,
    keep_state,
    pages_folder,
    state_of,
)
from migrator.mapping.items.encoder import compile_encoder
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.files import MANIFEST, Files, Manifest
from migrator.mapping.model.journal import Run
from migrator.mapping.model.results import BackfillResult
from migrator.runtime.errors import CLEAN, DIFFERENT, Interrupted, amount
from migrator.runtime.logs import get_logger
from migrator.settings.definition import definition
from migrator.settings.transforms import price_of
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import Claims, FastPath, encoders_of
from migrator.stages.live.writers import both
from migrator.stages.process.session import begin, identity_of, need_bucket, pages_of, runs_before
from migrator.stages.process.write_path import tell_unmarked
from migrator.stages.session.job import backoff_of, files_at, region_of
from migrator.stages.session.session import JobSession

_MB = 1024 * 1024
_GB = 1024 * _MB
_PLACE_LENGTH = 240
_UNCAPTURED = (
    "capture is not installed: right for a source that stands still. What changes from now on is not in the table that is"
    " imported; where services write, run `migrator capture install` first, and export then"
)
_log = get_logger("export")


class Opened(Struct, frozen=True):
    """What an export and an import work with: the job, its journal under the job's lease, and the files. `installation`:
    of capture; '' where changes leave no marks."""

    session: JobSession
    files: Files
    check: Callable[[], None]
    installation: str

    @property
    def entities(self) -> Sequence[CompiledEntity]:
        return self.session.checked.entities

    @property
    def ticket(self) -> int:
        """The highest that a writer has drawn; where nothing is captured none is."""
        return self.session.live.tickets.highest() if self.installation else 0

    @property
    def place(self) -> str:
        """What stands for the table in the journal until there is one: runs and claims are kept under it."""
        return self.files.name[-_PLACE_LENGTH:]


def open_bulk(stack: ExitStack, session: JobSession, command: str, place: str, workers: int | None) -> Opened:
    """Raises: SettingsError where this job may not make items of rows any more, or another run of it is at work."""
    stop = stack.enter_context(stop_on_signals(session.stop))
    files = files_at(session.job, place, stop.is_set)
    patience = backoff_of(session.job)
    opened = session.another(command, workers=workers, live_patience=patience)
    session = stack.enter_context(opened)
    need_bucket(session.job, session.checked.entities)
    session.ownership.need_rows()
    session.revisions.refuse_old()
    installation = session.installation()
    if installation is not None:
        tell_unmarked(session, installation, say)
    lease = stack.enter_context(session.lease())
    check = both(lease.check, lambda: _need_going(stop))
    return Opened(session, files, check, "" if installation is None else installation.id)


def _need_going(stop: Event) -> None:
    if stop.is_set():
        raise Interrupted("stopped; the checkpoint is kept, and the same command goes on from there")


# ── `migrator table export` ──


def export_items(
    job: Path,
    place: str,
    workers: int | None,
    restart: bool,
    whole_keys: bool,
    as_json: bool,
) -> int:
    """The exit code of `migrator table export`."""
    with JobSession(job) as session, ExitStack() as stack:
        opened = open_bulk(stack, session, "export", place, workers)
        if not opened.installation:
            say(_UNCAPTURED)
        run, is_new = _run(opened, restart=restart)
        stage = _stage(opened, run, workers)
        if run.state == "done":
            what = f"run {run.id} finished {run.ended_at}: nothing left to do (--restart exports everything once more)"
            say(what)
            manifest = Manifest.read(opened.files.read(MANIFEST) or b"")
            return _print(
                opened,
                stage.result(run, opened.entities, 0.0),
                manifest,
                whole_keys=whole_keys,
                as_json=as_json,
            )
        if is_new:
            keep_state(session.journal, run, ticket=opened.ticket)
        with (
            stopped_says(lambda: _stopped(opened, run)),
            RunEnd(session.journal.end_run, run, session.job.hooks),
        ):
            with stage.progress:
                result = stage.run(run, list(opened.entities))
            manifest_or_none = None if result.findings.keys() & set(BLOCKING) else _publish(opened, run)
    return _print(opened, result, manifest_or_none, whole_keys=whole_keys, as_json=as_json)


def _run(opened: Opened, *, restart: bool) -> tuple[Run, bool]:
    """The run to work on, and whether nothing of it is there yet. One that ended and published nothing begins anew: rows
    were refused, and are looked at again."""
    journal, files = opened.session.journal, opened.files
    identity = identity_of(
        "export", opened.session, opened.place, opened.entities, installation=opened.installation
    )
    latest = journal.find_run(identity)
    is_published_now = latest is not None and latest.state == "done" and is_published(journal, latest, files)
    left_by_us = latest is not None and latest.state == "done" and files.read(MANIFEST) is None
    if restart:
        run = journal.start_run(identity)
    else:
        after = runs_before(journal, identity.job)
        run = begin(journal, identity, again=not is_published_now, after=after)
    if run.resumed:
        say(f"run {run.id} of {run.started_at} goes on")
    is_new = run.state != "done" and "ticket" not in state_of(journal, run)
    if is_new:
        clear(files, restart=restart or left_by_us)
    return run, is_new


def _stage(opened: Opened, run: Run, workers: int | None) -> Backfill:
    session, tuning = opened.session, opened.session.job.tuning
    objects = None
    if any(entity.contents for entity in opened.entities):
        objects = session.target.objects
    by_name = {entity.name: entity for entity in opened.entities}
    unproved = session.checked.unproved
    claims = Claims(session.journal, session.source, by_name, unproved, opened.place, memory=None)
    # What is remembered for the relay (rule 7) is learnt from the table when it is imported, before anybody writes there.
    encoders = encoders_of(session.source, opened.entities, compile_encoder)
    alone = FastPath(ItemLines(), claims, encoders, time.time, opened.check, objects, None, frozenset())
    return Backfill(
        source=session.source,
        journal=session.journal,
        path=ExportPath(alone, opened.files, pages_folder(run)),
        progress=progress(),
        options=BackfillOptions(workers or tuning.workers, tuning.page_rows),
        stop=session.stop,
    )


def _publish(opened: Opened, run: Run) -> Manifest:
    session, design = opened.session, opened.session.design
    publication = Publication(
        files=opened.files,
        journal=session.journal,
        run=run,
        table=design,
        unproved=session.checked.unproved,
        part_bytes=session.job.tuning.part_mb * _MB,
        check=opened.check,
        told=lambda part: _log.info("part_written", file=part.name, items=part.items, bytes=part.bytes),
    )
    about = {
        "job": session.job.name,
        "journal": session.identity.journal_id(),
        "mapping": session.checked.mapping.revision,
        "table": definition(design, session.job.target.options),
    }
    return publication.publish(opened.entities, about)


def _stopped(opened: Opened, run: Run) -> str:
    pages, _ = pages_of(opened.session.journal, run)
    return f"stopped; {amount(pages, 'page')} written to {opened.files.name}; the same command resumes from there"


def _print(
    opened: Opened, result: BackfillResult, manifest: Manifest | None, *, whole_keys: bool, as_json: bool
) -> int:
    """The exit code: nothing was published where rows are missing."""
    if as_json:
        print_json(_data(opened, result, manifest))
        return DIFFERENT if manifest is None else CLEAN
    print_backfill(stdout(), result)
    findings, mapping = opened.session.journal.findings(result.run, SHOWN), opened.session.checked.mapping
    print_found(findings, result.findings, mapping, whole_keys=whole_keys)
    if manifest is None:
        what = "nothing was published: items of these rows would be missing, or replace each other"
        say(f"{what}; fix the rows (`migrator status --findings`), and run the same command again")
        return DIFFERENT
    files = amount(len(manifest.parts), "file")
    sizes = f"{manifest.items:,} items in {files}, {manifest.json_bytes / _MB:,.1f} MB without gzip"
    print_folded(
        f"{opened.files.name}: {sizes}{_cost(opened, manifest)}; next: `migrator table import JOB --from …`"
    )
    return CLEAN


def _cost(opened: Opened, manifest: Manifest) -> str:
    """What the import costs; '' where that is not known."""
    options = opened.session.job.target.options
    price = price_of(region_of(opened.session.job), options.table_class)
    if price is None or price.import_gb is None:
        return ""
    cost = usd(price.import_gb * manifest.json_bytes / _GB)
    return f", {cost} to import in {price.region} (prices of {price.source})"


def _data(opened: Opened, result: BackfillResult, manifest: Manifest | None) -> dict[str, Any]:
    published = {"items": 0, "files": 0, "json_bytes": 0}
    if manifest is not None:
        published = {
            "items": manifest.items,
            "files": len(manifest.parts),
            "json_bytes": manifest.json_bytes,
        }
    return {
        "run": result.run.id,
        "place": opened.files.name,
        "published": manifest is not None,
        **published,
        "rows": result.total.rows,
        "refused": result.total.refused,
        "findings": result.findings,
    }
