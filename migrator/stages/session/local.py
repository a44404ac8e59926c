"""Embedded DynamoDB servers that jobs share on this machine."""

from __future__ import annotations

from pathlib import Path

from migrator.dynamodb import embedded
from migrator.dynamodb.embedded import EmbeddedServer


def running() -> tuple[EmbeddedServer | None, str]:
    """The first running server, and a line for a person."""
    server = next(filter(None, map(embedded.running, _folders())), None)
    return server, embedded.status(server)


def stop() -> bool:
    """Stop all, saving their tables; return whether there was one. Raises: StoppedError."""
    return True in [embedded.stop(home) for home in _folders()]


def _folders() -> list[Path]:
    return [embedded.folder(name) for name in embedded.NAMES]
