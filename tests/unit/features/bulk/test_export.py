"""Pages as files, merged into parts: stopped at every step, while keys change hands, in bounded memory."""

from __future__ import annotations

import gzip
import json
import sqlite3
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migrator.dynamodb.objects import FolderFiles
from migrator.features.bulk.export import (
    ExportPath,
    ItemLines,
    Publication,
    clear,
    is_published,
    pages_folder,
)
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.items.encoder import Encoder, compile_encoder
from migrator.mapping.model.edges import MANIFEST, Manifest
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.table import source_text
from migrator.runtime.errors import SettingsError, StoppedError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import Claims, FastPath
from tests import pins
from tests.fakes.progress import Silent
from tests.support_fence import no_fence
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  users:
    items:
      User: {key: ["USER#{id}", META]}
      Email: {key: ["EMAIL#{email|lower}", EMAIL], when: email}
"""
USERS = 30


class Stopping(FolderFiles):
    """A folder that takes so many changes and no more; `seen` is called before each."""

    def __init__(self, folder: Path, changes: int, seen: Callable[[str], None] = lambda name: None) -> None:
        super().__init__(folder)
        self.left = changes
        self.seen = seen

    def write(self, name: str, data: bytes) -> None:
        self._count(name)
        super().write(name, data)

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            self._count(name)
            super().remove([name])

    def _count(self, name: str) -> None:
        self.seen(name)
        if not self.left:
            raise StoppedError("stopped by the test")
        self.left -= 1


class Shop:
    """Users in SQLite, whose e-mail addresses nothing proves to be of one user each."""

    def __init__(self, path: Path, users: int = USERS, mapping: str = MAPPING) -> None:
        self.path = path
        rows = [(number, f"u{number}@example.com") for number in range(1, users + 1)]
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT)")
            database.executemany("INSERT INTO users VALUES (?, ?)", rows)
        self.source = SqlSource(source_url(f"sqlite:///{path}"))
        self.checked = check_mapping(parse_mapping(mapping, "m.yaml"), self.source.facts())
        self.journal = SqlJournal.in_memory()

    def run(self) -> Run:
        identity = RunIdentity("export", "shop", "place", "revision")
        found = self.journal.find_run(identity)
        return self.journal.start_run(identity) if found is None else found

    def pages(self, files: FolderFiles, page_rows: int = 5, *, encodes: bool = True) -> ExportPath:
        entities, journal = self.checked.entities, self.journal
        by_name = {entity.name: entity for entity in entities}
        claims = Claims(journal, self.source, by_name, self.checked.unproved, "place", memory=None)
        encoders = {
            entity.name: compile_encoder(entity) if encodes else Encoder(entity, "", None)
            for entity in entities
        }
        alone = FastPath(ItemLines(), claims, encoders, time.time, no_fence, None, None, frozenset())
        path = ExportPath(alone, files, pages_folder(self.run()))
        Backfill(self.source, journal, path, Silent(), BackfillOptions(1, page_rows)).run(
            self.run(), entities
        )
        return path

    def publish(self, files: FolderFiles, part_bytes: int = 2_000) -> Manifest:
        table, unproved = self.checked.mapping.table, self.checked.unproved
        publication = Publication(files, self.journal, self.run(), table, unproved, part_bytes, no_fence)
        about: dict[str, Any] = {"job": "shop", "journal": "j", "mapping": "m", "table": {}}
        return publication.publish(self.checked.entities, about)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def items_of(files: FolderFiles, manifest: Manifest) -> list[Any]:
    parts = [gzip.decompress(files.read(part.name) or b"") for part in manifest.parts]
    return [json.loads(line)["Item"] for part in parts for line in part.splitlines()]


PROVED = MAPPING.replace("      Email:", "      # Email:").replace("META]}", "META], keep: all}")


def test_files_are_the_same_with_generated_functions_and_without(tmp_path: Path) -> None:
    made = []
    for encodes in (True, False):
        shop, files = Shop(tmp_path / f"{encodes}.db", mapping=PROVED), FolderFiles(tmp_path / str(encodes))
        shop.pages(files, encodes=encodes)
        pages = bytes_of(files.folder)
        assert shop.publish(files).items == USERS
        made.append((pages, bytes_of(files.folder)))
    assert made[0] == made[1]


@pytest.mark.slow
def test_stopped_at_any_step_it_ends_as_one_that_was_not(tmp_path: Path) -> None:
    whole = Shop(tmp_path / "whole.db")
    files = FolderFiles(tmp_path / "whole")
    whole.pages(files)
    manifest = whole.publish(files)
    assert (manifest.items, len(manifest.parts) > 2) == (2 * USERS, True)
    wanted = bytes_of(files.folder)
    assert set(wanted) == {MANIFEST, *(part.name for part in manifest.parts)}
    steps, is_stopped = 0, True
    while is_stopped:
        shop, stopping = Shop(tmp_path / f"{steps}.db"), Stopping(tmp_path / str(steps), steps)
        is_stopped = False
        try:
            shop.pages(stopping)
            shop.publish(stopping)
        except StoppedError:
            is_stopped = True
        has_manifest = MANIFEST in bytes_of(stopping.folder)
        assert has_manifest == is_published(shop.journal, shop.run(), stopping)
        again = FolderFiles(stopping.folder)
        shop.pages(again)
        shop.publish(again)
        assert bytes_of(again.folder) == wanted
        steps += 1
    assert steps > USERS / 5 + len(manifest.parts)


def test_a_key_that_changes_hands_meanwhile_is_in_the_files_once(tmp_path: Path) -> None:
    shop, statements = Shop(tmp_path / "shop.db"), iter([("old@example.com", 1), ("u1@example.com", USERS)])

    def change(name: str) -> None:
        """The first user's address goes to the last one, behind the first page and before the last."""
        if name.endswith("000000003.gz"):
            with closing(sqlite3.connect(shop.path)) as database, database:
                for words in statements:
                    database.execute("UPDATE users SET email = ? WHERE id = ?", words)

    files = Stopping(tmp_path / "items", 1_000, change)
    shop.pages(files)
    items = items_of(files, shop.publish(files))
    assert shop.journal.finding_counts(shop.run()) == {}
    owners = [item["_src"]["S"] for item in items if item["PK"]["S"] == "EMAIL#u1@example.com"]
    assert owners == [source_text("users", f"[{USERS}]")]
    assert max(Counter((item["PK"]["S"], item["SK"]["S"]) for item in items).values()) == 1


def test_a_smaller_number_of_parts_leaves_none_of_the_others(tmp_path: Path) -> None:
    shop, files = Shop(tmp_path / "shop.db"), FolderFiles(tmp_path / "items")
    shop.pages(files)
    (files.folder / "data").mkdir()
    (files.folder / "data" / "part-00099.json.gz").write_bytes(b"of a run that was stopped")
    manifest = shop.publish(files, part_bytes=1_000_000)
    assert [part.name for part in manifest.parts] == list(files.sizes_below("data/"))


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut off": lambda data: data[:-9],
    "of another form": lambda data: b"{}",
    "overwritten": lambda data: data[:12] + b"\0" * (len(data) - 12),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_missing_or_damaged_page_is_reported_and_not_published(tmp_path: Path, damage: str) -> None:
    shop, files = Shop(tmp_path / "shop.db"), FolderFiles(tmp_path / "items")
    shop.pages(files)
    (name,) = [name for name in files.sizes_below() if name.endswith("000000002.gz")]
    damaged = DAMAGES[damage](files.read(name) or b"")
    files.remove([name])
    if damaged is not None:
        files.write(name, damaged)
    with pins.refused(SettingsError, "missing" if damaged is None else "damaged"):
        shop.publish(files)
    assert files.read(MANIFEST) is None


def test_memory_holds_one_part_however_many_there_are(tmp_path: Path) -> None:
    peaks = []
    for users in (250, 2_000):
        shop, files = Shop(tmp_path / f"{users}.db", users), FolderFiles(tmp_path / str(users))
        shop.pages(files, page_rows=25)
        tracemalloc.start()
        manifest = shop.publish(files, part_bytes=10_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert manifest.items == 2 * users
    assert peaks[1] < 2 * peaks[0]  # of eight times the items


def test_nothing_of_others_is_taken_away(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    for name in ("manifest.json", "data/part-00001.json.gz", "pages/run-1/users/1.gz"):
        files.write(name, b"")
    with pins.refused(SettingsError, "holds"):
        clear(files, restart=False)
    files.write("notes.txt", b"mine")
    with pins.refused(SettingsError, "notes"):
        clear(files, restart=True)
    files.remove(["notes.txt"])
    clear(files, restart=True)
    assert files.sizes_below() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_deeply_nested_manifest_is_no_manifest() -> None:
    with pytest.raises(ValueError, match="RecursionError"):
        Manifest.read(b"[" * 100_000)
