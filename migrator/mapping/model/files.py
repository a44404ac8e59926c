"""Exported items as files, the manifest that names them, and imports of them into new tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from migrator.runtime.values import asdict

MANIFEST = "manifest.json"
PARTS = "data/"
"""Before the names of the parts: an import reads every object behind this prefix, so nothing else has it."""
PAGES = "pages/"
"""Before the names of pages, which are merged into parts and then taken away."""
FORMAT = 1


class Files(Protocol):
    """A folder, or a prefix of a bucket. Every call raises StoppedError for what passes, else SettingsError, TargetError."""

    @property
    def name(self) -> str:
        """As the command line has it."""

    def write(self, name: str, data: bytes) -> None:
        """The whole file or nothing of it; one that is there is replaced."""

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""

    def sizes_below(self, below: str = "") -> dict[str, int]:
        """The bytes of every file whose name begins so."""

    def remove(self, names: Collection[str]) -> None: ...


class PartFile(Struct, frozen=True):
    """One object of an import. `md5`: of its bytes as they are stored; `json_bytes`: without gzip, by which AWS bills."""

    name: str
    md5: str
    items: int
    bytes: int
    json_bytes: int


class Manifest(Struct, frozen=True):
    """What an export holds. `run`: of the journal; `revision`: what the run was made by: mapping, columns, capture.

    `table`: the parameters of CreateTable, for people; an import takes the mapping's.
    """

    job: str
    journal: str
    run: int
    mapping: str
    revision: str
    table: Mapping[str, Any]
    parts: Sequence[PartFile]

    @property
    def items(self) -> int:
        return sum(part.items for part in self.parts)

    @property
    def json_bytes(self) -> int:
        return sum(part.json_bytes for part in self.parts)

    def data(self) -> bytes:
        """The file: the same for equal manifests."""
        fields = {"format": FORMAT, **asdict(self), "items": self.items, "json_bytes": self.json_bytes}
        return (json.dumps(fields, indent=2, sort_keys=True) + "\n").encode()

    @classmethod
    def read(cls, data: bytes) -> Manifest:
        """Raises: ValueError where this is no manifest of ours."""
        try:
            fields = json.loads(data)
            if fields.pop("format") != FORMAT:
                raise ValueError("unsupported format")
            parts = [PartFile(**part) for part in fields.pop("parts")]
            del fields["items"], fields["json_bytes"]
            return cls(**fields, parts=parts)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(type(error).__name__) from None


def manifest_digest(data: bytes) -> str:
    """What the journal keeps of a published manifest, so that one that was edited is noticed."""
    return hashlib.sha256(data).hexdigest()


ImportStatus = Literal["IN_PROGRESS", "COMPLETED", "CANCELLING", "CANCELLED", "FAILED"]


class ImportState(Struct, frozen=True):
    """An import, as DynamoDB tells of it. `token`: what it was asked for with."""

    arn: str
    table_id: str
    token: str
    status: ImportStatus
    processed: int = 0
    imported: int = 0
    errors: int = 0
    failure: str = ""

    @property
    def is_over(self) -> bool:
        return self.status not in ("IN_PROGRESS", "CANCELLING")


class ImportFault(Struct, frozen=True):
    """An item that an import did not take: the file's name, the number of its line from 0, and why."""

    name: str
    line: int
    why: str


class TableImports(Protocol):
    """ImportTable for one table, from one place."""

    def begin(self, token: str) -> ImportState: ...

    def state(self, arn: str) -> ImportState: ...

    def asked_with(self, token: str) -> ImportState | None:
        """The import of the table that is there, if it was asked for with this token."""

    def faults(self, arn: str, at_most: int) -> tuple[list[ImportFault], str]:
        """What the log of an import says, and why it could not be read ('')."""


class Imported(Struct, frozen=True):
    """How an import ended. `replaced`: how many items the table has less than were imported: keys that changed hands while
    rows were exported; `remembered`: keys that were remembered for the relay."""

    run: int
    table: str
    items: int
    replaced: int = 0
    remembered: int = 0
