"""Where a job's journal is: in the job file's folder, unless it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.journal.identity import file_of, location_of


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`jobs` is the job file's folder, `here` the working directory."""
    for name in ("jobs", "here/.migrator"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.mark.parametrize(
    ("journal", "home", "file"),
    [
        (None, None, "{}/jobs/.migrator/shop.db"),
        (None, "kept", "{}/here/kept/shop.db"),
        (None, "/var/lib/migrator", "/var/lib/migrator/shop.db"),
        ("sqlite:///own.db", "kept", "{}/jobs/own.db"),
        ("sqlite:////srv/own.db", None, "/srv/own.db"),
        ("postgresql://db/shop", None, ""),
        ("sqlite://", None, ""),
        ("no URL", None, ""),
    ],
)
def test_journal_is_next_to_the_job_file_unless_named(
    folders: Path, journal: str | None, home: str | None, file: str
) -> None:
    assert file_of(location_of(journal, "shop", folders / "jobs", home)) == file.format(folders)


def test_it_is_the_same_from_every_working_directory(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)
    before = location_of(None, "shop", Path("jobs"), None)
    monkeypatch.chdir(folders / "jobs")
    assert location_of(None, "shop", Path(), None) == before
