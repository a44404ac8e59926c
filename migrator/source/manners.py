"""How a connection behaves towards the server that it reads from."""

from __future__ import annotations

from dataclasses import dataclass

APPLICATION_NAME = "migrator"
LONGEST_STATEMENT_S = 600.0
"""A page takes milliseconds; a statement of ten minutes is a mistake, or more than a busy server should be asked for."""
LONGEST_NAME = 63
"""Bytes of an application_name. Source: PostgreSQL's documentation, NAMEDATALEN."""


@dataclass(frozen=True, slots=True)
class Manners:
    """What every connection says and keeps to. Times in seconds.

    `statement_timeout_s`: None for the server's own limit, or LONGEST_STATEMENT_S where it has none; 0 for the server's own
    or none. `name`: what a connection calls itself. `lock_wait_s`: how long SQLite waits for a writer that holds its lock,
    a server for a change of a table. `pool_wait_s`: how long a connection is waited for that others have in use: there may
    be fewer connections than workers. `idle_s`: after that a server may end a transaction that we left open. `writes`:
    transactions are no snapshots then, and every commit reaches the disk. `silence_s`: a server of MySQL's that says nothing
    so long past a statement's limit is gone.
    """

    name: str = APPLICATION_NAME
    pool_size: int = 4
    lock_wait_s: float = 30.0
    pool_wait_s: float = 600.0
    statement_timeout_s: float | None = None
    idle_s: float = 120.0
    writes: bool = False
    silence_s: float = 60.0

    def limit_s(self, own_s: float) -> float | None:
        """The limit to be set, where the server's own is `own_s` (0: it has none); None for nothing to be set."""
        if self.statement_timeout_s is None:
            return None if own_s else LONGEST_STATEMENT_S
        return self.statement_timeout_s or None


def name_of(*words: str) -> str:
    """`migrator` and the words, as long as a server takes it; letters outside of ASCII become '?'."""
    text = " ".join([APPLICATION_NAME, *(word for word in words if word)])
    return text.encode("ascii", "replace").decode()[:LONGEST_NAME]
