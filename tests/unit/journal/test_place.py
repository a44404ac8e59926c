"""Where a job's journal stands, and how one is moved there that stands under the working directory."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from migrator.journal.identity import MayMove, SqlIdentity, location_of, settle
from migrator.journal.runs import SqlJournal
from migrator.model.edges import NameKind
from migrator.model.errors import SettingsError
from migrator.model.journal import RunIdentity
from tests import pins
from tests.forking import Python
from tests.support_journal_file import journal_in_file

IDENTITY = RunIdentity("backfill", "shop", "table", "revision")
WRITE_AND = """
import os, sys
from pathlib import Path
from migrator.journal.runs import SqlJournal
from migrator.model.journal import RunIdentity
journal = SqlJournal("sqlite:///" + sys.argv[1])
journal.start_run(RunIdentity("backfill", "shop", "table", "revision"))
print("written", flush=True)
"""
SETTLE = """
import sys
from pathlib import Path
from migrator.journal.identity import location_of, settle
from migrator.journal.runs import SqlJournal
place = location_of(None, "shop", Path(sys.argv[1]), None)
moved = settle(place, "shop", lambda known: None)
print(moved, len(SqlJournal(place.url).runs("shop")))
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`jobs` is the job file's folder, `here` the working directory."""
    for name in ("jobs", "here/.migrator"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def settled(folders: Path, may_move: MayMove = lambda known: None) -> bool:
    return settle(location_of(None, "shop", folders / "jobs", None), "shop", may_move)


def written(path: Path, then: str) -> subprocess.Popen[str]:
    """A process that has written to the journal, and then does so."""
    process = Python(["-c", WRITE_AND + then, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


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
def test_a_journal_is_beside_the_job_file_unless_it_is_named(
    folders: Path, journal: str | None, home: str | None, file: str
) -> None:
    assert location_of(journal, "shop", folders / "jobs", home).file == file.format(folders)


def test_it_is_the_same_from_every_working_directory(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)
    before = location_of(None, "shop", Path("jobs"), None)
    monkeypatch.chdir(folders / "jobs")
    assert location_of(None, "shop", Path(), None).url == before.url


def test_one_under_the_working_directory_is_moved_with_all_that_was_written(folders: Path) -> None:
    """Also what a process that was killed left in the log beside the file."""
    former = folders / "here" / ".migrator" / "shop.db"
    process = written(former, "sys.stdin.read()")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert former.with_name("shop.db-wal").stat().st_size > 0
    place = location_of(None, "shop", folders / "jobs", None)
    assert settled(folders)
    assert sorted(os.listdir(former.parent)) == []
    with closing(SqlJournal(place.url)) as journal:
        assert journal.find_run(IDENTITY) is not None
    assert not settled(folders), "and there is nothing left to do"


def test_one_that_another_process_has_open_stays(folders: Path) -> None:
    former = folders / "here" / ".migrator" / "shop.db"
    process = written(former, "sys.stdin.read()")
    with pins.refused(SettingsError):
        settled(folders)
    assert former.exists()
    assert not (folders / "jobs" / ".migrator" / "shop.db").exists()
    process.communicate()
    assert settled(folders)


def test_of_two_none_is_chosen(folders: Path) -> None:
    former, wanted = (folders / name / ".migrator" / "shop.db" for name in ("here", "jobs"))
    for path in (former, wanted):
        journal_in_file(path).close()
    with pytest.raises(SettingsError) as refused:
        settled(folders)
    assert all(str(path) in str(refused.value) for path in (former, wanted))
    assert former.exists()


def test_one_that_is_made_there_meanwhile_is_not_replaced(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, wanted = (folders / name / ".migrator" / "shop.db" for name in ("here", "jobs"))
    journal_in_file(former).close()
    link: Callable[..., None] = os.link

    def late(*words: Path) -> None:
        journal_in_file(wanted).close()
        link(*words)

    monkeypatch.setattr(os, "link", late)
    with pins.refused(SettingsError):
        settled(folders)
    assert former.exists()


def test_what_it_knows_of_the_job_is_looked_at_before(folders: Path) -> None:
    former = folders / "here" / ".migrator" / "shop.db"
    with closing(journal_in_file(former)) as journal:
        identity = SqlIdentity(journal.database, "shop")
        identity.see("t1", "Shop", 5)
        identity.first_name("source", "a database")
        SqlIdentity(journal.database, "other").see("t2", "Other", 5)

    def refuse(known: Mapping[NameKind, frozenset[str]]) -> None:
        assert known == {"table": {"Shop"}, "source": {"a database"}}
        raise SettingsError("another job's")

    with pins.refused(SettingsError):
        settled(folders, refuse)
    assert former.exists()


def test_one_of_an_older_version_is_moved_though_it_lacks_tables(folders: Path) -> None:
    former = folders / "here" / ".migrator" / "shop.db"
    with closing(sqlite3.connect(former)) as connection:
        connection.execute("CREATE TABLE migrator_meta (version INTEGER)")
    assert settled(folders, lambda known: None)


@pytest.mark.slow
def test_of_several_that_start_at_once_one_moves_it_and_none_makes_another(folders: Path) -> None:
    former = folders / "here" / ".migrator" / "shop.db"
    written(former, "").communicate()
    started = [Python(["-c", SETTLE, folders / "jobs"], stdout=subprocess.PIPE) for _ in range(4)]
    told = [process.communicate()[0] for process in started]
    assert sorted(told) == ["False 1\n"] * 3 + ["True 1\n"]


def test_a_move_that_was_cut_short_is_ended(folders: Path) -> None:
    former, wanted = (folders / name / ".migrator" / "shop.db" for name in ("here", "jobs"))
    journal_in_file(former).close()
    wanted.parent.mkdir()
    os.link(former, wanted)
    assert not settled(folders)
    assert (former.exists(), wanted.exists()) == (False, True)


def test_a_folder_that_may_not_be_written_is_told_with_what_to_do(folders: Path) -> None:
    former = folders / "here" / ".migrator" / "shop.db"
    journal_in_file(former).close()
    (folders / "jobs" / ".migrator").write_text("a file where the folder should be")
    with pins.refused(SettingsError):
        settled(folders)


def test_one_folder_by_two_paths_has_one_journal(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = folders / "jobs" / ".migrator" / "shop.db"
    journal_in_file(wanted).close()
    (folders / "other").symlink_to(folders / "jobs")
    monkeypatch.setattr(os, "getcwd", lambda: str(folders / "other"))
    assert not settled(folders)
    assert wanted.exists()


def test_a_link_is_moved_by_hand(folders: Path) -> None:
    real, former = folders / "real.db", folders / "here" / ".migrator" / "shop.db"
    journal_in_file(real).close()
    former.symlink_to(real)
    with pins.refused(SettingsError):
        settled(folders)
    assert (former.exists(), real.exists()) == (True, True)
