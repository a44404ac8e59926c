"""A journal in a file of SQLite's, for tests that look at it from outside."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL

from migrator.journal.runs import SqlJournal


def journal_in_file(path: Path) -> SqlJournal:
    return SqlJournal(URL.create("sqlite", database=str(path)))
