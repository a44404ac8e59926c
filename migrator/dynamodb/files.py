"""Places that exported items are written to and read from: a folder, or a prefix of an S3 bucket."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path

from migrator.dynamodb.objects import S3Objects
from migrator.runtime.errors import SettingsError, StoppedError
from migrator.runtime.system import FILE_MODE, make_folder

_UNFINISHED = ".unfinished"
"""The end of a file's name until all of it is written."""
_AT_ONCE = 1000
"""Objects of one DeleteObjects. Source: Amazon S3 API reference, DeleteObjects."""


class FolderFiles:
    """model.bulk.files.Files in a folder, made when something is written. Files are their owner's alone: they hold rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return str(self.folder)

    def write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        unfinished = path.with_name(path.name + _UNFINISHED)
        with self._in_words("written"):
            make_folder(path.parent)
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "wb") as file:
                file.write(data)
                file.flush()
                # Its page counts as done from now on: after a power cut it must be there, and whole.
                os.fsync(file.fileno())
            os.replace(unfinished, path)

    def read(self, name: str) -> bytes | None:
        with self._in_words("read"), suppress(FileNotFoundError, NotADirectoryError):
            return (self.folder / name).read_bytes()
        return None

    def sizes_below(self, below: str = "") -> dict[str, int]:
        with self._in_words("read"):
            return {
                name: path.stat().st_size
                for path in self.folder.rglob("*")
                if path.is_file()
                and (name := path.relative_to(self.folder).as_posix()).startswith(below)
                and not name.endswith(_UNFINISHED)
            }

    def remove(self, names: Collection[str]) -> None:
        with self._in_words("written"):
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
            for folder in sorted({(self.folder / name).parent for name in names}, reverse=True):
                self._remove_empty(folder)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.folder:
            try:
                folder.rmdir()
            except OSError:  # something else is in it
                return
            folder = folder.parent

    @contextmanager
    def _in_words(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"{self.folder} cannot be {done} ({error.strerror})"
            if error.errno in (ENOSPC, EDQUOT):
                raise StoppedError(f"{what}; make room, and give the same command again") from None
            raise SettingsError(f"{what}; name another folder") from None


class S3Files(S3Objects):
    """model.bulk.files.Files below a prefix of a bucket."""

    named_by = "the address s3://… in the command"
    needed = "s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject"

    @property
    def name(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def write(self, name: str, data: bytes) -> None:
        self._ask("put_object", name, Body=data)

    def read(self, name: str) -> bytes | None:
        data: bytes | None = self._ask("get_object", name, take=lambda answer: answer["Body"].read())
        return data

    def sizes_below(self, below: str = "") -> dict[str, int]:
        prefix, sizes = f"{self.prefix}{below}", dict[str, int]()
        more: dict[str, str] = {}
        while True:
            answer = self._send("list_objects_v2", Prefix=prefix, **more)
            for entry in answer.get("Contents", []):
                sizes[str(entry["Key"]).removeprefix(self.prefix)] = int(entry["Size"])
            if not answer.get("IsTruncated"):
                return sizes
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def remove(self, names: Collection[str]) -> None:
        keys = [{"Key": f"{self.prefix}{name}"} for name in sorted(names)]
        for first in range(0, len(keys), _AT_ONCE):
            chosen = keys[first : first + _AT_ONCE]
            answer = self._send("delete_objects", Delete={"Objects": chosen, "Quiet": True})
            if errors := answer.get("Errors"):
                what = f"S3 did not delete {len(errors)} object(s) of {self.name} ({errors[0].get('Code')})"
                raise StoppedError(f"{what}; allow s3:DeleteObject, and give the same command again")
