"""Each kind of journal that there is, new and empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.journal.store import SqlJournal


@pytest.fixture(params=["file", "memory", "postgresql"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal]:
    if request.param == "file":
        made = SqlJournal.in_file(tmp_path / "deep" / "shop.db")
    elif request.param == "memory":
        made = SqlJournal.in_memory()
    else:
        made = SqlJournal(request.getfixturevalue("postgres_database"))
    yield made
    made.close()
