"""Items of every row as files that DynamoDB imports: a file a page, merged into shuffled parts, and a manifest last.

A page is copied as a fast backfill copies it, into a file instead of the table. Nothing is published while a row has been
refused, or two rows make one key: an import takes the last of two such items and says nothing.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from gzip import decompress
from typing import Any
from urllib.parse import quote

import orjson
from msgspec import Struct

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.wire import decode
from migrator.mapping.model.edges import Receipt
from migrator.mapping.model.files import MANIFEST, PAGES, PARTS, Files, Manifest, PartFile, manifest_digest
from migrator.mapping.model.journal import Run, SegmentState
from migrator.mapping.model.table import EncodedItem, TableDesign
from migrator.runtime.errors import SettingsError, amount
from migrator.runtime.values import replace
from migrator.stages.backfill.write import Copied, FastPath, Read, key_digest

BLOCKING = ("refused", "collision", "unwritten")
"""Kinds of findings of whose rows something is missing in the files."""
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
    """A store of one page: what is put becomes lines, each behind the digest of its key."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        self.lines += [
            b'%s{"Item":%s}\n' % (key_digest(item.key).hex().encode(), item.json) for item in items
        ]
        return Receipt(len(items), sum(item.size_bytes for item in items))


class ExportPath(Struct, frozen=True):
    """The path of a backfill whose pages become files. `alone`: how items are made, claimed and checked before that;
    `folder`: before the names of this run's pages."""

    alone: FastPath
    files: Files
    folder: str

    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        lines = ItemLines()
        copied = replace(self.alone, store=lines).copy(entity, read)
        self.files.write(page_name(self.folder, entity.name, read.page.number), packed(lines.lines))
        return copied


def pages_folder(run: Run) -> str:
    return f"{PAGES}run-{run.id}/"


def page_name(folder: str, entity: str, number: int) -> str:
    return f"{folder}{quote(entity, safe='')}/{number:09d}.gz"


def packed(lines: Sequence[bytes]) -> bytes:
    """The same bytes for the same lines, whenever and wherever."""
    # Not GzipFile: its buffers live until the next garbage collection, on Python 3.13 those of many parts at once.
    gzip = zlib.compressobj(_LEVEL, wbits=_GZIP)
    pieces = [
        gzip.compress(b"".join(lines[first : first + _AT_ONCE])) for first in range(0, len(lines), _AT_ONCE)
    ]
    return b"".join((*pieces, gzip.flush()))


# ── Pages merged into parts, and the manifest ──


def _nothing(part: PartFile) -> None:
    return


class Publication(Struct, frozen=True):
    """Makes an export of a run whose pages are all written. `check` raises when the run must stop; `told`: of each part.

    `unproved`: by entity the types whose keys are claimed. Memory holds one part without gzip, whatever there is in all.
    """

    files: Files
    journal: SqlJournal
    run: Run
    table: TableDesign
    unproved: Mapping[str, frozenset[str]]
    part_bytes: int
    check: Callable[[], None]
    told: Callable[[PartFile], None] = _nothing

    def publish(self, entities: Sequence[CompiledEntity], about: Mapping[str, Any]) -> Manifest:
        """`about`: fields of the manifest beside run and parts. The same pages make the same bytes; safe to repeat.

        Raises: SettingsError where there would be more parts than one import takes, or a page is gone.
        """
        if is_published(self.journal, self.run, self.files):
            # It was stopped behind the manifest, while pages were taken away.
            return self._tidied(Manifest.read(self.files.read(MANIFEST) or b""))
        parts = list(self._parts(entities))
        stale = self.files.sizes_below(PARTS).keys() - {part.name for part in parts}
        self.files.remove(stale)
        manifest = Manifest(run=self.run.id, revision=self.run.identity.revision, parts=parts, **about)
        # The journal first: it is what an import believes, and without the file there is no export yet.
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
            raise SettingsError(f"{what}; raise tuning.part_mb, and give the same command again")
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
                data = self.files.read(name)
                if data is None:
                    raise SettingsError(
                        f"{self.files.name} lacks {name}, which was written; export again with --restart"
                    )
                yield self._current(entity, decompress(data).splitlines(keepends=True))

    def _current(self, entity: CompiledEntity, lines: list[bytes]) -> list[bytes]:
        """The lines without items of rows that gave their key up to another one while the run went on.

        That change has left its mark; both items under one key would be in the files.
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
        """The row that has claimed the item's key; '' where keys of its type are not claimed."""
        wired = orjson.loads(line[_DIGEST:])["Item"]
        if decode(wired[self.table.type_attribute]) not in types:
            return ""
        return str(decode(wired[self.table.source_attribute]))


def _digest_of(line: bytes) -> bytes:
    return bytes.fromhex(line[:_DIGEST].decode())


# ── What the journal keeps of an export, and of an import ──

_STATE = 0


def keep_state(journal: SqlJournal, run: Run, **values: Any) -> None:
    """Adds values to what the journal keeps of a run."""
    state = SegmentState(tally={**state_of(journal, run), **values})
    journal.save_segment(run, _STATE, state, [])


def state_of(journal: SqlJournal, run: Run) -> Mapping[str, Any]:
    return journal.segment(run, _STATE).tally


def is_published(journal: SqlJournal, run: Run, files: Files) -> bool:
    """Whether the run's manifest is there as it was written."""
    data = files.read(MANIFEST)
    return data is not None and state_of(journal, run).get("manifest") == manifest_digest(data)


def clear(files: Files, *, restart: bool) -> None:
    """Makes sure that nothing is in the way of a new run. Raises: SettingsError where something is.

    `restart`: takes away what an export left, the manifest before the parts.
    """
    names = files.sizes_below()
    ours = {name for name in names if name == MANIFEST or name.startswith((PARTS, PAGES))}
    if foreign := sorted(names.keys() - ours):
        what = f"{files.name} holds {amount(len(foreign), 'file')} that no export wrote, such as {foreign[0]}"
        raise SettingsError(f"{what}; name a folder or a prefix of its own")
    if ours and not restart:
        what = f"{files.name} holds another export, or what is left of one"
        raise SettingsError(f"{what}; name another place, or say --restart to replace it")
    files.remove(ours & {MANIFEST})
    files.remove(ours)
