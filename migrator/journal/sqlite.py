"""A journal in a file of SQLite's, or in memory: its connections, and how its transactions begin and wait for each other."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import StaticPool
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from migrator.runtime.system import make_private

READS = "migrator_reads"
"""The execution option of a connection whose transactions write nothing."""
_BUSY_S = 30
_LONGEST_GAP_S = 0.01
IN_MEMORY = (None, "", ":memory:")
_PRAGMAS = (
    "synchronous=FULL",
    # Digests of claimed keys fall anywhere into their table: a cache holds its upper pages, and a page that is written
    # many times goes from the log into the file once. More would save little: 32 MB of memory, 16 MB of log.
    "cache_size=-32000",
    "wal_autocheckpoint=4000",
)


def sqlite_engine(url: URL) -> Engine:
    """One that only reads, if the file cannot be written. Raises: OSError where the file cannot be made."""
    if url.database in IN_MEMORY:
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    elif _is_read_only(Path(str(url.database))):
        engine = create_engine(url, creator=lambda: _read_only(Path(str(url.database))))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return engine
    else:
        make_private(Path(str(url.database)))
        engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": _BUSY_S})
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _is_read_only(file: Path) -> bool:
    """SQLite adds its log to the folder, unless another process has made it; it needs the right to, and room."""
    if not os.path.isfile(file):
        return False
    may_log = os.access(file.parent, os.W_OK) or _log_of(file).is_file()
    return not (os.access(file, os.W_OK) and may_log) or _is_disk_full(file)


def _is_disk_full(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=rw", uri=True)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    except sqlite3.DatabaseError:
        pass  # the engine reports it
    return False


def _read_only(file: Path) -> sqlite3.Connection:
    # A log that is there may have what the file has not; without one nothing changes the file while it is read here.
    how = "mode=ro" if _log_of(file).is_file() else "mode=ro&immutable=1"
    is_alone = _log_of(file).is_file() and os.access(file, os.W_OK) and _is_disk_full(file)
    address = f"file:{quote(str(file.absolute()))}?{'mode=rw' if is_alone else how}"
    connection = sqlite3.connect(
        address, uri=True, check_same_thread=False, timeout=_BUSY_S, isolation_level=None
    )
    if is_alone:
        # Without room for the index of the log nobody else reads it: the index is kept in memory.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    return connection


def _log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def _on_connect(connection: Any, record: Any) -> None:
    """Transactions are ours to begin; every commit reaches the disk."""
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()
    # Of several that switch a new file at once, SQLite tells all but one that it is locked, whatever busy_timeout says.
    switching = Retrying(
        retry=retry_if_exception(lambda error: "locked" in str(error)),
        wait=wait_random(max=0.05),
        stop=stop_after_delay(_BUSY_S),
        reraise=True,
    )
    switching(connection.execute, "PRAGMA journal_mode=WAL").fetchall()


def _on_begin(connection: Connection) -> None:
    """Begins a transaction of SQLite's; one that writes waits for others here.

    SQLite's own waits grow to 100 ms and take no turns: where others commit one after the other, a heartbeat would find
    none of their gaps for seconds. One that only reads waits for nobody.
    """
    if connection.get_execution_options().get(READS):
        connection.exec_driver_sql("BEGIN")
        return
    driver: Any = connection.connection.driver_connection
    ends_at = time.monotonic() + _BUSY_S
    driver.execute("PRAGMA busy_timeout=0").close()
    try:
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                return
            except OperationalError as error:
                if "locked" not in str(error.orig) or time.monotonic() > ends_at:
                    raise
            time.sleep(random.uniform(0.0, _LONGEST_GAP_S))
    finally:
        driver.execute(f"PRAGMA busy_timeout={_BUSY_S * 1000}").close()
