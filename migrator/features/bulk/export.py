"""`migrator table export`: items of every row as files that DynamoDB imports from S3.

A file per page, merged into shuffled parts, and a manifest last. Pages are copied as in a fast backfill. An
export with a refused row, or two rows of one key, is not published: an import silently takes the last of two
such items.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from gzip import decompress
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import orjson
from msgspec import Struct

from migrator.cli.command_line import print_json
from migrator.cli.options import print_folded, progress, say, stdout, stop_on_signals, stopped_says
from migrator.cli.runs import RunEnd, print_found
from migrator.cli.runs_text import print_backfill
from migrator.cli.text import usd
from migrator.journal.runs import SqlJournal
from migrator.mapping.items.encoder import compile_encoder
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.wire import decode
from migrator.mapping.model.edges import (
    MANIFEST,
    PAGES,
    PARTS,
    Files,
    Manifest,
    PartFile,
    Receipt,
    manifest_digest,
)
from migrator.mapping.model.journal import Page, Run, SegmentState
from migrator.mapping.model.results import BackfillResult
from migrator.mapping.model.table import EncodedItem, TableDesign
from migrator.runtime.errors import CLEAN, DIFFERENT, Interrupted, SettingsError, amount
from migrator.runtime.logs import get_logger
from migrator.runtime.values import picked, replace
from migrator.settings.definition import definition
from migrator.settings.transforms import price_of
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import Claims, Copied, FastPath, RawRead, encoders_of, key_digest
from migrator.stages.live.writers import both
from migrator.stages.process import begin, identity_of, need_bucket, pages_of, runs_before, tell_unmarked
from migrator.stages.session.job import backoff_of, files_at, region_of
from migrator.stages.session.session import JobSession

BLOCKING = ("refused", "collision", "unwritten")
"""Kinds of findings of rows with missing parts in the files."""
MOST_PARTS = 50_000
"""Objects of one import. Source: Amazon DynamoDB Developer Guide, "Import quotas and validation"."""
_DIGEST = 32
"""Hexadecimal digits before each line of a page's file: the digest of the item's key, by which parts are shuffled."""
_AT_ONCE = 1000
_LEVEL = 6
_GZIP = 31
"""The wbits of zlib that write a head of gzip, without a name and a time."""


# ── A page's items as the lines of a file ──


class ItemLines:
    """A store of one page: puts become lines, each after its key's digest."""

    sends_texts = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        self.lines += [
            b'%s{"Item":%s}\n' % (key_digest(item.key).hex().encode(), item.json) for item in items
        ]
        return Receipt(len(items), sum(item.size_bytes for item in items))


class ExportPath(Struct, frozen=True):
    """`alone`: how items are made, claimed and checked. `folder`: prefix of this run's pages."""

    alone: FastPath
    files: Files
    folder: str

    def copy(self, entity: CompiledEntity, page: Page, read: RawRead) -> Copied:
        lines = ItemLines()
        copied = replace(self.alone, store=lines).copy(entity, page, read)
        self.files.write(page_name(self.folder, entity.name, page.number), packed(lines.lines))
        return copied


def pages_folder(run: Run) -> str:
    return f"{PAGES}run-{run.id}/"


def page_name(folder: str, entity: str, number: int) -> str:
    return f"{folder}{quote(entity, safe='')}/{number:09d}.gz"


def packed(lines: Sequence[bytes]) -> bytes:
    """Deterministic compression of the lines."""
    # Not GzipFile: its buffers live until the next garbage collection, on Python 3.13 those of many parts at once.
    gzip = zlib.compressobj(_LEVEL, wbits=_GZIP)
    pieces = [
        gzip.compress(b"".join(lines[first : first + _AT_ONCE])) for first in range(0, len(lines), _AT_ONCE)
    ]
    return b"".join((*pieces, gzip.flush()))


def unpacked(data: bytes | None) -> list[bytes]:
    """The lines of a file. Raises: ValueError if it is missing or not as it was written."""
    if data is None:
        raise ValueError("missing")
    try:
        if data:  # decompress() takes an empty file for one without lines
            return decompress(data).splitlines(keepends=True)
    except (EOFError, OSError, zlib.error):
        pass
    raise ValueError("not as it was written")


# ── Pages merged into parts, and the manifest ──


class Publication(Struct, frozen=True):
    """Makes an export of a run whose pages are all written. Holds one uncompressed part in memory.

    `told`: called for each part.
    `unproved`: by entity, the types with claimed keys.
    """

    files: Files
    journal: SqlJournal
    run: Run
    table: TableDesign
    unproved: Mapping[str, frozenset[str]]
    part_bytes: int
    check: Callable[[], None]
    told: Callable[[PartFile], None] = lambda part: None

    def publish(self, entities: Sequence[CompiledEntity], about: Mapping[str, Any]) -> Manifest:
        """`about`: the manifest's fields besides run and parts. Repeatable, with the same bytes.

        Raises: SettingsError for more parts than one import takes, or a missing page.
        """
        if is_published(self.journal, self.run, self.files):
            # It was stopped after the manifest, while pages were being deleted.
            return self._tidied(Manifest.read(self.files.read(MANIFEST) or b""))
        parts = list(self._parts(entities))
        stale = self.files.sizes_below(PARTS).keys() - {part.name for part in parts}
        self.files.remove(stale)
        manifest = Manifest(run=self.run.id, revision=self.run.identity.revision, parts=parts, **about)
        # The journal first: an import trusts it, and without the file the export does not exist yet.
        keep_state(self.journal, self.run, manifest=manifest_digest(manifest.data()))
        self.check()
        self.files.write(MANIFEST, manifest.data())
        return self._tidied(manifest)

    def _tidied(self, manifest: Manifest) -> Manifest:
        self.files.remove(self.files.sizes_below(pages_folder(self.run)).keys())
        return manifest

    def _parts(self, entities: Sequence[CompiledEntity]) -> Iterator[PartFile]:
        lines, size, number = list[bytes](), 0, 0
        for page in self._pages(entities):
            lines += page
            size += sum(map(len, page)) - _DIGEST * len(page)
            if size >= self.part_bytes:
                number += 1
                yield self._part(number, lines)
                lines, size = [], 0
        if lines or not number:
            yield self._part(number + 1, lines)

    def _part(self, number: int, lines: list[bytes]) -> PartFile:
        if number > MOST_PARTS:
            what = f"more than {MOST_PARTS:,} files, which one import does not take"
            raise SettingsError(f"{what}; raise tuning.part_mb, and run the same command again")
        # In the order of digests: keys that lie side by side would be written to one partition after the other.
        lines.sort()
        data = packed([line[_DIGEST:] for line in lines])
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        json_bytes = sum(map(len, lines)) - _DIGEST * len(lines)
        part = PartFile(f"{PARTS}part-{number:05d}.json.gz", md5, len(lines), len(data), json_bytes)
        self.check()
        self.files.write(part.name, data)
        self.told(part)
        return part

    def _pages(self, entities: Sequence[CompiledEntity]) -> Iterator[list[bytes]]:
        for entity in entities:
            _, planned = self.journal.page_counts(self.run, entity.name)
            for number in range(1, planned + 1):
                name = page_name(pages_folder(self.run), entity.name, number)
                try:
                    lines = unpacked(self.files.read(name))
                except ValueError as error:
                    what = f"{self.files.name}: {name} is {error}"
                    raise SettingsError(f"{what}; export again with --restart") from None
                yield self._current(entity, lines)

    def _current(self, entity: CompiledEntity, lines: list[bytes]) -> list[bytes]:
        """Drop items of rows that gave up their key to another row during the run: one key would have two items.

        That change left a mark.
        """
        types = self.unproved.get(entity.name)
        if not types:
            return lines
        kept = []
        for first in range(0, len(lines), _AT_ONCE):
            chunk = lines[first : first + _AT_ONCE]
            owners = {line: owner for line in chunk if (owner := self._claimant(line, types))}
            claims = [(_digest_of(line), owner) for line, owner in owners.items()]
            others = self.journal.claim(self.run.identity.table_id, claims)
            kept += [
                line
                for line in chunk
                if line not in owners or others.get(_digest_of(line), owners[line]) == owners[line]
            ]
        return kept

    def _claimant(self, line: bytes, types: frozenset[str]) -> str:
        wired = orjson.loads(line[_DIGEST:])["Item"]
        if decode(wired[self.table.type_attribute]) not in types:
            return ""
        return str(decode(wired[self.table.source_attribute]))


def _digest_of(line: bytes) -> bytes:
    return bytes.fromhex(line[:_DIGEST].decode())


# ── The journal's state of an export, and of an import ──

_STATE = 0


def keep_state(journal: SqlJournal, run: Run, **values: Any) -> None:
    state = SegmentState(tally={**state_of(journal, run), **values})
    journal.save_segment(run, _STATE, state, [])


def state_of(journal: SqlJournal, run: Run) -> Mapping[str, Any]:
    return journal.segment(run, _STATE).tally


def is_published(journal: SqlJournal, run: Run, files: Files) -> bool:
    data = files.read(MANIFEST)
    return data is not None and state_of(journal, run).get("manifest") == manifest_digest(data)


def clear(files: Files, *, restart: bool) -> None:
    """`restart`: remove an earlier export, the manifest before the parts.

    Raises: SettingsError if something prevents a new run.
    """
    names = files.sizes_below()
    ours = {name for name in names if name == MANIFEST or name.startswith((PARTS, PAGES))}
    if foreign := sorted(names.keys() - ours):
        what = f"{files.name} holds {amount(len(foreign), 'file')} that no export wrote, such as {foreign[0]}"
        raise SettingsError(f"{what}; name a folder or a prefix of its own")
    if ours and not restart:
        what = f"{files.name} holds another export, or what is left of one"
        raise SettingsError(f"{what}; name another place, or pass --restart to replace it")
    files.remove(ours & {MANIFEST})
    files.remove(ours)


_MB = 1024 * 1024
_GB = 1024 * _MB
_PLACE_LENGTH = 240
_UNCAPTURED = (
    "capture is not installed: not needed if nothing writes to the source. Later changes are not in the imported"
    " table; if services write, run `migrator capture install` first, then export"
)
_log = get_logger("export")


class Opened(Struct, frozen=True):
    """Edges of an export and an import. `installation`: of capture; '' if changes leave no marks."""

    session: JobSession
    files: Files
    check: Callable[[], None]
    installation: str

    @property
    def entities(self) -> Sequence[CompiledEntity]:
        return self.session.checked.entities

    @property
    def ticket(self) -> int:
        """Highest ticket drawn; 0 without capture."""
        return self.session.live.tickets.highest() if self.installation else 0

    @property
    def place(self) -> str:
        """The table's placeholder in the journal until it exists: the key of runs and claims."""
        return self.files.name[-_PLACE_LENGTH:]


def open_bulk(stack: ExitStack, session: JobSession, command: str, place: str, workers: int | None) -> Opened:
    """Raises: SettingsError if the job may no longer make items from rows, or another run of it is active."""
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
        raise Interrupted("stopped; the checkpoint is kept, and the same command resumes")


# ── `migrator table export` ──


def export_items(
    job: Path, place: str, workers: int | None, restart: bool, whole_keys: bool, as_json: bool
) -> int:
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
    """The run, and whether it is still empty. One that ended unpublished starts over, since rows were refused."""
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
        say(f"run {run.id} of {run.started_at} is resumed")
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
    # The relay's memory (rule 7) is filled from the table at the import, before anyone writes there.
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
    if as_json:
        print_json(_data(opened, result, manifest))
        return DIFFERENT if manifest is None else CLEAN
    print_backfill(stdout(), result)
    print_found(
        opened.session.journal.findings, result, opened.session.checked.mapping, whole_keys=whole_keys
    )
    if manifest is None:
        what = "nothing was published: items of these rows would be missing, or replace each other"
        say(f"{what}; fix the rows (`migrator status --findings`), and run the same command again")
        return DIFFERENT
    files = amount(len(manifest.parts), "file")
    sizes = f"{amount(manifest.items, 'item')} in {files}, {manifest.json_bytes / _MB:,.1f} MB without gzip"
    print_folded(
        f"{opened.files.name}: {sizes}{_cost(opened, manifest)}; next: `migrator table import JOB --from …`"
    )
    return CLEAN


def _cost(opened: Opened, manifest: Manifest) -> str:
    options = opened.session.job.target.options
    price = price_of(region_of(opened.session.job), options.table_class)
    if price is None or price.import_gb is None:
        return ""
    cost = usd(price.import_gb * manifest.json_bytes / _GB)
    return f", {cost} to import in {price.region} (prices of {price.source})"


def _data(opened: Opened, result: BackfillResult, manifest: Manifest | None) -> dict[str, Any]:
    published = {"items": 0, "files": 0, "json_bytes": 0}
    if manifest is not None:
        published = picked(manifest, "items", "json_bytes") | {"files": len(manifest.parts)}
    return {
        "run": result.run.id,
        "place": opened.files.name,
        "published": manifest is not None,
        **published,
        **picked(result.total, "rows", "refused"),
        "findings": result.findings,
    }
