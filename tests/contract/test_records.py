"""Small records, on each kind of journal: what two processes do with one at the same time, first of all."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.journal.database import TEST_CLOCK, PassingError, seconds
from migrator.journal.records import KeptRecords
from migrator.journal.runs import SqlJournal
from migrator.journal.schema import record
from migrator.runtime.errors import SettingsError
from tests.forking import Python


@dataclass(frozen=True, slots=True)
class Boat:
    name: str
    crew: tuple[str, ...] = ()
    since: float = 0.0
    alive_at: float = 0.0


BOATS = KeptRecords[Boat]("boat", Boat)
COUNTS = KeptRecords[int]("count", int)
COUNTING = """
import sys
from migrator.journal.records import KeptRecords
from migrator.journal.runs import SqlJournal
counts, journal = KeptRecords("count", int), SqlJournal(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    with journal.database.begin() as connection:
        last = counts.lock(connection, "shop", "drawn") or 0
        counts.put(connection, "shop", last + 1, "drawn")
        if last % 7 == 6:
            counts.delete(connection, "shop", "gone")
        counts.lock(connection, "shop", "gone")
    print(last + 1)
"""


@pytest.fixture(params=["file", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"sqlite:///{tmp_path}/shop.db"
    return str(request.getfixturevalue(f"{request.param}_journal"))


@pytest.fixture
def other(url: str) -> Iterator[SqlJournal]:
    with closing(SqlJournal(url)) as journal:
        with journal.database.begin() as connection:
            connection.execute(record.delete())
        yield journal


def test_record_is_read_as_it_was_written(journal: SqlJournal) -> None:
    boat = Boat("Zoë \0 'x' \\ %s", ("a", "b"), 1.5, 2**33 + 0.125)
    with journal.database.begin() as connection:
        assert BOATS.get(connection, "shop") is None
        BOATS.put(connection, "shop", Boat("before"))
        BOATS.put(connection, "shop", boat)
        BOATS.put(connection, "other", Boat("of another scope"))
        BOATS.put(connection, "shop", Boat("of another id"), "b")
        KeptRecords[Boat]("ship", Boat).put(connection, "shop", Boat("of another kind"))
    with journal.database.begin(reads=True) as connection:
        assert BOATS.get(connection, "shop") == boat
        assert BOATS.all(connection, "shop") == {"": boat, "b": Boat("of another id")}


def test_record_that_is_there_is_not_added_again(journal: SqlJournal) -> None:
    with journal.database.begin() as connection:
        COUNTS.add(connection, "shop", 1)
        COUNTS.add(connection, "shop", 2)
        assert COUNTS.get(connection, "shop") == 1


def test_names_that_differ_in_case_or_accent_are_two_records(journal: SqlJournal) -> None:
    names = ["boat", "Boat", "boät"]
    with journal.database.begin() as connection:
        for number, name in enumerate(names):
            COUNTS.put(connection, "shop", number, name)
        assert [COUNTS.get(connection, "shop", name) for name in names] == [0, 1, 2]


def test_record_that_is_only_locked_has_no_value(journal: SqlJournal) -> None:
    with journal.database.begin() as connection:
        assert BOATS.lock(connection, "shop", "a") is None
        assert (BOATS.get(connection, "shop", "a"), BOATS.all(connection, "shop")) == (None, {})
        BOATS.forget(connection, "shop", 2.0**40)
    with journal.database.begin() as connection:
        assert connection.execute(record.select()).first() is not None
        BOATS.put(connection, "shop", Boat("there"), "a")
        assert BOATS.lock(connection, "shop", "a") == Boat("there")


def test_only_those_named_or_too_old_are_deleted(journal: SqlJournal) -> None:
    with journal.database.begin() as connection:
        for name, alive_at in (("a", 10.0), ("b", 20.0), ("c", 30.0), ("d", 0.0)):
            BOATS.put(connection, "shop", Boat(name, alive_at=alive_at), name)
        BOATS.put(connection, "other", Boat("a", alive_at=10.0), "a")
        assert list(BOATS.all(connection, "shop", since=20.0)) == ["b", "c"]
        BOATS.forget(connection, "shop", 20.0)
        assert list(BOATS.all(connection, "shop")) == ["b", "c", "d"]
        BOATS.delete(connection, "shop")
        BOATS.delete(connection, "shop", "c", "gone", "b")
        assert list(BOATS.all(connection, "shop")) == ["d"]
        assert list(BOATS.all(connection, "other")) == ["a"]


def test_snapshot_reads_one_state(url: str, other: SqlJournal) -> None:
    def put(number: int) -> None:
        with other.database.begin() as connection:
            COUNTS.put(connection, "shop", number)

    with closing(SqlJournal(url)) as journal:
        database, runs = journal.database, iter(range(2))

        def work() -> list[int | None]:
            first = COUNTS.read(database, "shop")
            if next(runs) == 0:
                put(2)
                raise PassingError("as if the server had gone away")
            put(3)
            return [first, COUNTS.read(database, "shop"), *COUNTS.read_all(database, "shop").values()]

        put(1)
        assert database.snapshot(work) == [2, 2, 2]
        assert COUNTS.read(database, "shop") == 3


def test_heartbeat_of_clock_ahead_is_brought_back_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqlJournal(f"sqlite:///{tmp_path}/shop.db")) as journal:
        with journal.database.begin() as connection:
            now = seconds(connection)
            BOATS.put(connection, "shop", Boat("ahead", since=now + 500, alive_at=now + 600))
            BOATS.put(connection, "shop", Boat("on time", since=now - 2, alive_at=now - 1), "b")
        BOATS.bring_back_first(journal.database, "shop")
        monkeypatch.setenv(TEST_CLOCK, "300")
        BOATS.bring_back_first(journal.database, "shop")
        with journal.database.begin(reads=True) as connection:
            boats = BOATS.all(connection, "shop")
    assert boats[""].since == boats[""].alive_at == pytest.approx(now, abs=60)
    assert boats["b"] == Boat("on time", since=now - 2, alive_at=now - 1)


@pytest.mark.parametrize("text", ['{"crew": []}', "not JSON", '{"name": 3}', "[]"])
def test_record_of_another_form_is_refused_without_its_value(journal: SqlJournal, text: str) -> None:
    with journal.database.begin() as connection:
        BOATS.put(connection, "shop", Boat("secret"), "a")
        connection.execute(record.update().values(value=text))
    with pytest.raises(SettingsError) as refused, journal.database.begin() as connection:
        BOATS.get(connection, "shop", "a")
    assert "record boat 'a' of 'shop'" in str(refused.value)
    assert text not in str(refused.value)


@pytest.mark.parametrize(
    ("scope", "boat", "id"),
    [
        ("shop", Boat("\ud800"), ""),
        ("shop", Boat("a", since=float("inf")), ""),
        ("shop", Boat("a", alive_at=float("nan")), ""),
        ("shop", Boat("a"), "\udce9"),
        ("\ud800", Boat("a"), ""),
    ],
)
def test_record_that_could_not_be_read_again_is_refused(
    journal: SqlJournal, scope: str, boat: Boat, id: str
) -> None:
    with journal.database.begin() as connection:
        BOATS.put(connection, "shop", Boat("before"))
    for write in (BOATS.put, BOATS.add):
        with pytest.raises(SettingsError), journal.database.begin() as connection:
            write(connection, scope, boat, id)
    with journal.database.begin() as connection:
        assert BOATS.all(connection, "shop") == {"": Boat("before")}


def test_record_of_a_newer_migrator_is_read_without_new_fields(journal: SqlJournal) -> None:
    with journal.database.begin() as connection:
        BOATS.put(connection, "shop", Boat("a"))
        connection.execute(record.update().values(value='{"name": "a", "sails": 3}'))
        assert BOATS.get(connection, "shop") == Boat("a")


@contextmanager
def _counting(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is about to count."""
    process = Python(["-c", COUNTING, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def _begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _counted(process: subprocess.Popen[str]) -> list[int]:
    return [int(number) for number in process.communicate(timeout=120)[0].split()]


def test_two_processes_that_change_one_record_lose_no_change(url: str, other: SqlJournal) -> None:
    with _counting(url) as one, _counting(url) as two:
        _begin(one)
        _begin(two)
        assert sorted(_counted(one) + _counted(two)) == list(range(1, 201))
    with other.database.begin(reads=True) as connection:
        assert COUNTS.get(connection, "shop", "drawn") == 200


def test_lock_is_granted_once_the_other_transaction_has_ended(url: str, other: SqlJournal) -> None:
    with _counting(url) as process:
        with other.database.begin() as connection:
            COUNTS.lock(connection, "shop", "drawn")
            _begin(process)
            COUNTS.put(connection, "shop", 1000, "drawn")
        assert _counted(process) == list(range(1001, 1101))
