"""How a connection behaves towards the server that it reads from."""

from __future__ import annotations

from dataclasses import dataclass

APPLICATION_NAME = "migrator"
LONGEST_NAME = 63
"""Bytes of an application_name. Source: PostgreSQL's documentation, NAMEDATALEN."""


@dataclass(frozen=True, slots=True)
class Manners:
    """What every connection says and keeps to. Times in seconds; `statement_timeout_s` None: the server's own limit.

    `name`: what a connection calls itself. `lock_wait_s`: how long SQLite waits for a writer that holds its lock,
    a server for a change of a table. `pool_wait_s`: how long a connection is waited for that others have in use: there may
    be fewer connections than workers. `idle_s`: after that a server may end a transaction that we left open. `writes`:
    transactions are no snapshots then, and every commit reaches the disk.
    """

    name: str = APPLICATION_NAME
    pool_size: int = 4
    lock_wait_s: float = 30.0
    pool_wait_s: float = 600.0
    statement_timeout_s: float | None = None
    idle_s: float = 120.0
    writes: bool = False


def name_of(*words: str) -> str:
    """`migrator` and the words, as long as a server takes it; letters outside of ASCII become '?'."""
    text = " ".join([APPLICATION_NAME, *(word for word in words if word)])
    return text.encode("ascii", "replace").decode()[:LONGEST_NAME]
