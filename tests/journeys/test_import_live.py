"""Chinook imported while a service writes to it: keys that move or change hands, rows that go."""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import boto3
import pytest

from tests.journeys.chinook import ITEMS, assert_whole
from tests.journeys.command import ROOT, Project, project


@pytest.fixture
def made(tmp_path: Path, dynamodb_url: str, chinook_sqlite: Path) -> Project:
    table, tuning = f"Chinook{secrets.token_hex(4)}", "page_rows: 100, workers: 2"
    made = project(tmp_path, f"sqlite:///{chinook_sqlite}", dynamodb_url, table, tuning=tuning)
    shipped = ROOT / "mappings" / "chinook.yaml"
    text = shipped.read_text().replace("  key: [PK, SK]\n", "  key: [PK, SK]\n  ttl: expiresAt\n", 1)
    (tmp_path / "chinook.yaml").write_text(text)
    made.job.write_text(made.job.read_text().replace(str(shipped), "chinook.yaml"))
    return made


@pytest.fixture
def place(dynamodb_url: str) -> str:
    words = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
    bucket = f"chinook-{secrets.token_hex(4)}"
    boto3.client("s3", endpoint_url=dynamodb_url, **words).create_bucket(Bucket=bucket)
    return f"s3://{bucket}/chinook"


def renamed(source: sqlite3.Connection, chance: Random, number: int) -> None:
    source.execute(
        "UPDATE Track SET Name = ? WHERE TrackId = ?", (f"Track {number}", chance.randint(1, 3503))
    )


def moved(source: sqlite3.Connection, chance: Random, number: int) -> None:
    """An invoice, with its lines, to another customer."""
    words = (chance.randint(1, 59), chance.randint(1, 412))
    source.execute("UPDATE Invoice SET CustomerId = ? WHERE InvoiceId = ?", words)


def swapped(source: sqlite3.Connection, chance: Random, number: int) -> None:
    """Two customers change their e-mail addresses, each of which is a key."""
    one, other = chance.sample(range(1, 60), 2)
    select = "SELECT Email FROM Customer WHERE CustomerId = ?"
    emails = [source.execute(select, (customer,)).fetchone()[0] for customer in (one, other)]
    source.execute("UPDATE Customer SET Email = 'nobody@example.com' WHERE CustomerId = ?", (one,))
    source.execute("UPDATE Customer SET Email = ? WHERE CustomerId = ?", (emails[0], other))
    source.execute("UPDATE Customer SET Email = ? WHERE CustomerId = ?", (emails[1], one))


def gone(source: sqlite3.Connection, chance: Random, number: int) -> None:
    source.execute("DELETE FROM InvoiceLine WHERE InvoiceLineId = ?", (chance.randint(1, 2240),))


CHANGES: tuple[Callable[[sqlite3.Connection, Random, int], None], ...] = (renamed, moved, swapped, gone)


@contextmanager
def writing(made: Project) -> Iterator[list[int]]:
    """A service that writes until the block ends; it tells how many transactions there were."""
    stop, committed = threading.Event(), [0]

    def write() -> None:
        chance = Random(7)
        with closing(sqlite3.connect(made.folder / "chinook.sqlite", timeout=60)) as source:
            while not stop.wait(0.05):
                with source:
                    chance.choice(CHANGES)(source, chance, committed[0])
                committed[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield committed
    finally:
        stop.set()
        thread.join()


def test_chinook_is_clean_after_an_import_with_writes_going_on(made: Project, place: str) -> None:
    job = str(made.job)
    made.done("capture", "install", job)
    with writing(made) as committed:
        made.done("table", "export", job, "--to", place)
        during_export = committed[0]
        imported = made.done("table", "import", job, "--from", place, "--json").data
    assert 0 < during_export < committed[0]
    assert imported["items"] + imported["replaced"] > ITEMS - 2240
    made.done_at_last("relay", job, "--once")
    made.done("verify", job)


def test_chinook_is_whole_by_an_import_of_a_source_that_stands_still(made: Project, place: str) -> None:
    job = str(made.job)
    assert made.done("table", "export", job, "--to", place, "--json").data["items"] == ITEMS
    made.done("table", "import", job, "--from", place)
    assert_whole(made.items(), "sqlite")
    assert made.done("table", "check", job).code == 0
