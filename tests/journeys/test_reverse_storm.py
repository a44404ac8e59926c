"""Direct writers through the generated module against three engines, the way back killed over and over: no row goes that an
item holds all the time, none is taken along by a foreign key, and in the end rows are what the items say."""

from __future__ import annotations

import random
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.exports.generated import CLIENT, loaded, table_of
from tests.journeys.command import ROOT, Project, project
from tests.language.conftest import database_on
from tests.language.engines import ENGINES
from tests.support_capture import connect

LEFT = """\
mapping: 1
table: {name: Storm, key: [PK, SK], type: type, ttl: expires}
entities:
  note: {items: {Note: {key: ["N#{id}", META], keep: all}}}
  customer: {items: {Customer: {key: ["C#{id}", META], keep: all}}}
  orders: {items: {Order: {key: ["C#{customer_id}", "O#{id}"], keep: all}}}
  line: {items: {Line: {key: ["O#{order_id}", "L#{no}"], keep: all}}}
"""
TABLES = {"customer": ("id",), "orders": ("id",), "line": ("order_id", "no")}
SCRIPT = """
CREATE TABLE note (id integer PRIMARY KEY, body varchar(20));
CREATE TABLE customer (id integer PRIMARY KEY, name varchar(20) NOT NULL);
CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer NOT NULL, total integer,
  FOREIGN KEY (customer_id) REFERENCES customer (id) ON DELETE CASCADE);
CREATE TABLE line (order_id integer NOT NULL, no integer NOT NULL, sku varchar(20),
  PRIMARY KEY (order_id, no), FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE);
INSERT INTO note VALUES (1, 'kept');
INSERT INTO customer VALUES (1, 'one'), (2, 'two'), (3, 'three');
INSERT INTO orders VALUES (1, 1, 5), (2, 2, 5);
INSERT INTO line VALUES (1, 1, 'a'), (1, 2, 'b'), (2, 1, 'c');
"""
KILLS = 6
WRITES = 18
"""Between two kills."""
LOOKS = 100
"""At the rows, at most, between the first row that it writes and the kill."""


def is_kept(row: tuple[Any, ...]) -> bool:
    """Of rows whose items move and change and are never deleted. One whose item goes and comes back may be absent for a
    moment: it is deleted by what was read before."""
    return row[-1] % 3 == 0  # type: ignore[no-any-return]


@pytest.fixture(
    params=[one if one == "sqlite" else pytest.param(one, marks=pytest.mark.nightly) for one in ENGINES]
)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return database_on(engine, request, tmp_path)(SCRIPT)


@pytest.fixture
def shop(url: str, tmp_path: Path, dynamodb_url: str) -> Project:
    """Filled; all but notes are the service's to write, and the stream is begun with."""
    # The lease of one that was killed is waited for.
    made = project(tmp_path, url, dynamodb_url, f"U{secrets.token_hex(4)}", tuning="lease_s: 5", text=LEFT)
    options = "target: {options: {stream: new_and_old_images}, "
    made.job.write_text(made.job.read_text().replace("target: {", options, 1))
    made.environment["MIGRATOR_HOME"] = str(tmp_path / ".migrator")
    made.prepared("table create", "capture install", "backfill", "verify")
    made.job.write_text(made.job.read_text() + "writes: {direct: [customer, orders, line]}\n")
    made.done("capture", "install", str(made.job))
    made.done("reverse", "start", str(made.job), "--once", "--settle", "0s")
    return made


def generated(shop: Project) -> tuple[Any, Any]:
    """The module that a service writes by after decommission, and its table."""
    words = (
        "export",
        "--as",
        "boto3",
        str(shop.job),
        "--out",
        str(shop.folder / "service"),
        "--allow-missing",
    )
    (file,) = shop.done(*words, "--json").data["files"]
    module = loaded(shop.folder / "service" / file["name"])
    client = boto3.client("dynamodb", endpoint_url=shop.endpoint, **CLIENT)
    return module, table_of(module)(client, shop.table, cursor_key="a key of the tests alone")


class Writer:
    """One service that writes by chance: children before parents, parents gone before children, keys that move."""

    def __init__(self, shop: Project, seed: int) -> None:
        self.module, self.table = generated(shop)
        self.client, self.name = self.table._client, shop.table
        self.rng = random.Random(seed)
        self.rows: dict[tuple[str, tuple[int, ...]], Any] = {}

    def write(self) -> None:
        rng = self.rng
        kind = rng.choice(["customer", "orders", "orders", "line", "line"])
        row = getattr(self, f"_{kind}")()
        key = (kind, tuple(getattr(row, name) for name in TABLES[kind]))
        before = self.rows.get(key)
        if before is None:
            getattr(self.table, f"put_{kind}")(row)
        elif rng.random() < 0.4 and not is_kept(key[1]):
            getattr(self.table, f"delete_{kind}")(before)
            del self.rows[key]
            return
        else:
            getattr(self.table, f"change_{kind}")(before, row)
        self.rows[key] = row

    def _customer(self) -> Any:
        return self.module.CustomerRow(id=self.rng.randint(10, 14), name=f"n{self.rng.randint(0, 99)}")

    def _orders(self) -> Any:
        of, total = self.rng.randint(10, 14), self.rng.randint(0, 99)
        return self.module.OrdersRow(id=self.rng.randint(10, 16), customer_id=of, total=total)

    def _line(self) -> Any:
        of, number = self.rng.randint(10, 16), self.rng.randint(1, 6)
        return self.module.LineRow(order_id=of, no=number, sku=f"s{self.rng.randint(0, 99)}")

    def orphan(self) -> None:
        """Deletes parents; what ON DELETE CASCADE would take along stays."""
        for kind, key in [one for one in self.rows if one[0] != "line" and not is_kept(one[1])]:
            getattr(self.table, f"delete_{kind}")(self.rows.pop((kind, key)))

    def mend(self) -> None:
        """Every child gets its parent."""
        for number in range(10, 17):
            row = self.module.OrdersRow(id=number, customer_id=10 + number % 5, total=1)
            self._become("orders", (number,), row)
        for number in range(10, 15):
            self._become("customer", (number,), self.module.CustomerRow(id=number, name="last"))

    def _become(self, kind: str, key: tuple[int, ...], row: Any) -> None:
        before = self.rows.get((kind, key))
        if before is None:
            getattr(self.table, f"put_{kind}")(row)
        else:
            getattr(self.table, f"change_{kind}")(before, row)
        self.rows[kind, key] = row


class Watcher:
    """Looks at the rows all the while. One that is gone and whose item is never deleted is a loss."""

    def __init__(self, engine: str, url: str) -> None:
        self.engine, self.url = engine, url
        self.there: set[tuple[Any, ...]] = set()
        self.losses: list[tuple[Any, ...]] = []
        self.looks = self.changes = 0
        """How often the rows were looked at, and how often they were others than before."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        end, failures = threading.Event(), list[BaseException]()

        def look() -> None:
            try:
                self._look(end)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(120)
        assert (failures, self.losses) == ([], [])
        assert self.looks

    def _look(self, end: threading.Event) -> None:
        with closing(connect(self.engine, self.url)) as connection:
            while not end.wait(0.005):
                before, self.there = self.there, rows_of(connection)
                self.losses += filter(is_kept, before - self.there)
                self.looks += 1
                self.changes += before != self.there

    def wait(self, is_so: Callable[[], bool], working: Any) -> None:
        """Until it is so, as long as the way back is at work."""
        until = time.monotonic() + 120
        while not is_so():
            assert working.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)


def rows_of(connection: Any) -> set[tuple[Any, ...]]:
    found: set[tuple[Any, ...]] = set()
    for table, key in TABLES.items():
        cursor = connection.cursor()
        cursor.execute(f"SELECT {', '.join(key)} FROM {table}")
        found |= {(table, *row) for row in cursor.fetchall()}
        with suppress(AttributeError):
            connection.commit()
    return found


STEPS = (
    "SqlStreamJournal.list_shards",
    "SqlStreamJournal.claim",
    "SqlReverseJournal.rows_of",
    "SqlReverseJournal.remember",
    "SqlReverseJournal.keys_of",
    "DynamoStore.get",
    "_RowSql.put",
    "SqlRowWriter.write",
    "SqlReverseJournal.wait",
    "_RowSql.delete",
    "SqlReverseJournal.forget",
    "SqlReverseJournal.done",
    "SqlStreamJournal.save",
)
"""After each of which the process is killed on both servers; those of `_RowSql` are within the transaction of a row."""


def killed_at(shop: Project, step: str, writer: Writer) -> None:
    """The way back at work beside a writer until it comes to the step."""
    here = {
        "PYTHONPATH": f"{ROOT / 'tests' / 'faults' / 'killing'}:{ROOT}",
        "MIGRATOR_TEST_KILL": f"{step}:2",
    }
    before = dict(shop.environment)
    shop.environment.update(here)
    with shop_killed(shop, str(shop.job)) as working:
        shop.environment.clear()
        shop.environment.update(before)
        until = time.monotonic() + 240
        while working.poll() is None:
            assert time.monotonic() < until, step
            writer.write()
    assert working.returncode == -signal.SIGKILL, step


def killed_at_random(shop: Project, rng: random.Random, writer: Writer, watcher: Watcher) -> None:
    """Once it has written a row, wherever it is."""
    seen = watcher.changes
    with shop_killed(shop, str(shop.job)) as working:
        for _ in range(WRITES):
            writer.write()
        watcher.wait(lambda: watcher.changes > seen, working)
        until = watcher.looks + rng.randint(0, LOOKS)
        watcher.wait(lambda: watcher.looks >= until, working)


def orphaned(shop: Project, writer: Writer, watcher: Watcher) -> None:
    """Parents go and lines stay, so no parent's row may go. The last one that is deleted has none, and its row goes."""
    last = writer.module.CustomerRow(id=98, name="no orders")
    with shop_killed(shop, str(shop.job)) as working:
        writer.table.put_customer(last)
        watcher.wait(lambda: ("customer", 98) in watcher.there, working)
        writer.orphan()
        writer.table.delete_customer(last)
        watcher.wait(lambda: ("customer", 98) not in watcher.there, working)


@contextmanager
def shop_killed(shop: Project, job: str) -> Iterator[Any]:
    """The way back at work, killed as the block ends."""
    working = shop.start("reverse", "start", job, "--settle", "0s")
    try:
        yield working
    finally:
        working.kill()
        working.communicate()


@pytest.mark.parametrize("seed", [1])
def test_rows_follow_a_storm_of_direct_writers(shop: Project, engine: str, url: str, seed: int) -> None:
    job, rng = str(shop.job), random.Random(seed)
    writer = Writer(shop, seed)
    watcher = Watcher(engine, url)
    with watcher.watching():
        if engine == "sqlite":
            for _ in range(KILLS):
                killed_at_random(shop, rng, writer, watcher)
        else:
            for step in STEPS:
                killed_at(shop, step, writer)
        orphaned(shop, writer, watcher)
        writer.mend()
        shop.done("reverse", "start", job, "--once", "--settle", "0s")
    assert shop.done("reverse", "verify", job, "--settle", "0s", "--json").data["clean"]
    assert shop.done("reverse", "status", job, "--json").data["parked"] == []
