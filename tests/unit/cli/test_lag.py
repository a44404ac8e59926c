"""Which writers `migrator status` counts."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from migrator.cli import lag
from migrator.cli.lag import Lag
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.mapping.model.live import Writer, WriterKind
from tests import pins
from tests.support_session import session_by


def writer(process: int, number: int, kind: WriterKind = "relay", *, fenced: bool = False) -> Writer:
    return Writer(f"{process:08x}{number:08x}", kind, 0.0, 0.0, fenced)


def told(writers: list[Writer], silent: list[Writer]) -> list[str]:
    found = Lag(None, writers, silent=frozenset(one.id for one in silent))
    return list(found.writer_lines())


def test_threads_of_one_process_are_one_writer() -> None:
    two = [writer(1, 1), writer(1, 2)]
    assert told(two, []) == [pins.text("writers")]
    assert Lag(None, [*two, writer(2, 1)]).kinds_at_work == ["relay", "relay"]
    assert told([*two, writer(2, 1), writer(3, 1, "conditional")], []) == [pins.text("conditional")]


def test_places_that_a_living_process_gave_up_are_not_counted() -> None:
    left = [writer(1, number) for number in range(6)]
    assert told([*left, writer(1, 7), writer(1, 8)], left) == [pins.text()]


def test_silent_process_is_not_a_running_writer() -> None:
    dead = [writer(1, 1), writer(1, 2)]
    (line,) = told(dead, dead)
    assert line == pins.text()
    assert line.endswith(": 1 relay")
    assert len(told([*dead, writer(2, 1, "fast", fenced=True)], dead)) == 2


@pytest.mark.parametrize("dialect", ["mysql", "postgresql"])
def test_lag_does_not_wait_for_a_silent_source(
    dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "STATEMENT_LIMIT_S", 0.5)
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as silent,
        closing(SqlJournal.in_memory()) as journal,
    ):
        url = f"{dialect}://me@127.0.0.1:{silent.getsockname()[1]}/shop"
        (tmp_path / "job.yaml").write_text(
            f"job: 1\nmapping: m.yaml\nsource: {url}\ntarget: {{table: Shop, endpoint: embedded}}\n"
        )
        (tmp_path / "m.yaml").write_text("mapping: 1\n")
        assert lag.lag_of(session_by(journal, tmp_path / "job.yaml")).reason


@pytest.mark.parametrize("kind", ["relay", "strict"])
def test_writers_of_one_process_are_known_by_their_ids(kind: WriterKind) -> None:
    journal = SqlJournal.in_memory()
    one, other = (SqlWriters(journal.database, "T").enter(kind) for _ in range(2))
    assert one.process == other.process
    assert one.id != other.id
    journal.close()
