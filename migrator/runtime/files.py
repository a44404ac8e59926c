"""Files: small input files read whole, and files with keys or values, which are the owner's alone."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from migrator.model.errors import SettingsError

FOLDER = ".migrator"
HOME = "MIGRATOR_HOME"
"""The variable that names another folder for what is ours."""
MOST_BYTES = 1024 * 1024
"""Of a mapping, a job, or a file that holds a URL."""
FILE_MODE = 0o600
FOLDER_MODE = 0o700


def small_text(path: Path) -> str:
    """The text of a file of MOST_BYTES at most.

    Raises: SettingsError where it is larger, or no regular file (who reads a pipe waits for whoever writes to it, and a
    device may never end); OSError, UnicodeDecodeError.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SettingsError(
                f"{path}: this is no regular file (a pipe, a socket or a device); write it to a file"
            )
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise SettingsError(f"{path}: the file is larger than 1 MB ({MOST_BYTES:,} bytes); name another one")
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def make_folder(path: Path) -> None:
    """Nothing; the folder is there, and each one on the way to it that had to be made is its owner's alone.

    Raises: OSError.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        with suppress(FileExistsError):
            one.mkdir(FOLDER_MODE)
    if not path.is_dir():
        raise NotADirectoryError(20, "a file stands where a folder should", str(path))


def make_private(path: Path) -> None:
    """Nothing; the file is there, and its owner's alone. One that was made before we did so becomes it, if it is ours.

    SQLite gives its -wal and -shm the mode of the database. Raises: OSError.
    """
    make_folder(path.parent)
    # A file that is there is never opened: closing it would end the locks that SQLite holds on it in this very process.
    # Source: sqlite.org/howtocorrupt.html, "POSIX advisory locks canceled by a separate thread doing close()".
    with suppress(FileExistsError, PermissionError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    beside = [path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")]
    for one in (path, *beside):
        with suppress(OSError):
            if one.is_file() and one.stat().st_mode & 0o077:
                one.chmod(FILE_MODE)


def _without_waiting(path: str, flags: int) -> int:
    """Else the very opening of a pipe would wait for its writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
