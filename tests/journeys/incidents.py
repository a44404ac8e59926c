"""Incidents of docs/incidents.md: each is brought about on a real database, and the page's commands are run as it goes on."""

from __future__ import annotations

import re
import socket
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import psycopg

from migrator.runtime.values import replace
from tests.faults.proxy import FaultProxy, Faults
from tests.integration.going_back import Shop
from tests.journeys.command import ROOT, Project
from tests.journeys.console import LOG_LINE, Command, Shell, blocks_of
from tests.journeys.cutover import PATTERN, compared, cutover_shop, desk_of, live, obey, reader
from tests.journeys.runbook import environment_of
from tests.journeys.test_direct_servers import SHOP
from tests.support_items import put_items
from tests.support_prometheus import until

PAGE = ROOT / "docs" / "incidents.md"
_SECTION = re.compile(r"^## (?P<symptom>.+)\n(?P<text>(?:(?!## ).*\n)*)", re.MULTILINE)


@dataclass
class Night:
    """A small shop whose changes are captured and whose table is filled, behind a proxy that lets requests fail.

    `server`: of PostgreSQL, where the shop is on it; '' for SQLite.
    """

    made: Project
    proxy: FaultProxy
    server: str = ""

    @property
    def faults(self) -> Faults:
        return self.proxy.faults

    @property
    def home(self) -> Path:
        return Path(self.made.environment["MIGRATOR_HOME"])

    @property
    def url(self) -> str:
        return self.made.environment["MIGRATOR_SOURCE_URL"]

    def sql(self, *statements: str) -> None:
        """What the service does."""
        opened: Any = (
            psycopg.connect(self.url)
            if self.server
            else sqlite3.connect(self.made.folder / "shop.db", timeout=120)
        )
        with closing(opened) as service:
            for statement in statements:
                service.execute(statement)
            service.commit()

    def done(self, *words: str) -> Any:
        """A command with the job behind its name's words."""
        place = 2 if words[0] in ("table", "capture", "cutover") else 1
        return self.made.done(*words[:place], self.made.job.name, *words[place:])

    def until(self, standing: str, why: str = "") -> None:
        """Returns when the relay stands so, and says this of why."""

        def stands() -> bool:
            (one,) = self.done("status", "--json").data["operations"]["processes"] or [{"standing": ""}]
            return one["standing"] == standing and why in one["why"]

        until(stands, f"the relay: {standing} {why}")

    @contextmanager
    def relay(self) -> Iterator[None]:
        """A relay that goes on beside the block, and has begun."""
        with self.made.beside("relay", self.made.job.name):
            self.until("idle")
            yield

    def is_clean(self) -> bool:
        return bool(self.done("verify", "--json").data["clean"])

    def told(self, said: str) -> str:
        """What a command says, with names as they are elsewhere, without what chance decides."""
        names = {
            str(self.made.folder): "/srv/shop",
            self.proxy.url: "http://127.0.0.1:8000",
            self.made.table: "Shop",
            urlsplit(self.url).path.lstrip("/") if self.server else "\0": "shop",
        }
        for name, written in names.items():
            said = said.replace(name, written)
        for pattern, written in (
            (rf"\b{socket.gethostname()}:\d+", "ops-1:4711"),
            (rf"@{socket.gethostname()}\b", "@ops-1"),
            (r"installation [0-9a-f]{32}", "installation 5f0c…"),
            (r"\d+ tries", "9 tries"),
            (r"[\d.]+ changes/s", "0.5 changes/s"),
        ):
            said = re.sub(pattern, written, said)
        return said


Incident = Callable[[Night], Generator[None]]
"""Brings an incident about and yields before each block of its section; what is behind the last one looks whether it is over."""


@contextmanager
def night_on(folder: Path, dynamodb_url: str, postgres: tuple[str, str] | None = None) -> Iterator[Night]:
    """`postgres`: the URL of an empty database and that of its server; None: on SQLite."""
    with FaultProxy(dynamodb_url, Faults()) as proxy:
        made = cutover_shop(folder, proxy.url)
        made.job.write_text(made.job.read_text().replace("tuning: {", "tuning: {give_up_after_s: 2, "))
        night = Night(made, proxy, postgres[1] if postgres else "")
        if postgres:
            made.environment["MIGRATOR_SOURCE_URL"] = postgres[0]
            night.sql(*SHOP)
        for words in (["table", "create"], ["capture", "install"], ["backfill"], ["relay", "--once"]):
            night.done(*words)
        yield night


def rename(first: int, last: int, name: str) -> str:
    return f"UPDATE customer SET name = '{name}' WHERE id BETWEEN {first} AND {last}"


# ── Each incident ──


def lag_grows(night: Night) -> Generator[None]:
    relay = night.made.start("relay", night.made.job.name)
    night.until("idle")
    relay.kill()
    relay.communicate()
    night.sql(rename(1, 8, "late"))
    yield
    yield
    assert night.is_clean()


def answers_differ(night: Night) -> Generator[None]:
    live(night.made)
    with desk_of(night.made) as session:
        compared(session, night.made, PATTERN, different=12, kinds={"": 400})
    store = night.made.store()
    (item,) = [one for one in night.made.items() if (one["PK"], one["SK"]) == ("C#7", "META")]
    put_items(store, [item | {"name": "by hand"}])
    yield
    yield
    yield
    assert night.is_clean()


def service_does_not_start(night: Night) -> Generator[None]:
    (night.made.folder / "service.py").write_text(_SERVICE)
    mapping = night.made.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("{id: id}", "{id: id, sum: total}"))
    yield
    yield
    assert night.is_clean()


_SERVICE = """\
import os
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker
from migrator.api import Migration
from tests.support_items import put_items

with Migration.load("shop.yaml", service="shop-api") as migration:
    migration.dual_write(sessionmaker(create_engine(os.environ["MIGRATOR_SOURCE_URL"])))
    print("the service has begun")
"""


def relay_exits_3(night: Night) -> Generator[None]:
    night.sql(rename(1, 8, "new"))
    night.faults.expires_after = 0
    yield
    night.faults.renew()
    yield
    assert night.is_clean()


def restored_from_a_snapshot(night: Night) -> Generator[None]:
    shop = Shop(night.made, night.url, night.server)
    saved = shop.saved()
    try:
        night.sql(rename(1, 8, "lost"))
        night.done("relay", "--once")
        shop.restore(saved)
        yield
        yield
        assert night.is_clean()
    finally:
        shop.drop_copies()


def failed_over(night: Night) -> Generator[None]:
    with night.relay():
        _let_in(night, "false")
        night.until("tries again", "waits")
        yield
        _let_in(night, "true")
        night.sql(rename(1, 8, "after"))
        night.until("idle")
        yield
    assert night.is_clean()


def _let_in(night: Night, allow: str) -> None:
    """Whether the database lets anyone in; nobody stays whom it would not."""
    name = urlsplit(night.url).path.lstrip("/")
    with psycopg.connect(night.server, autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS {allow}'.encode())
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


def table_altered(night: Night) -> Generator[None]:
    """As tools do that rebuild a table: its triggers go with the old one, which a relay notices."""
    relay = night.made.start("relay", night.made.job.name)
    night.until("idle")
    night.sql(
        "CREATE TABLE anew (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
        "INSERT INTO anew SELECT id, name, 'Rome' FROM customer",
        "DROP TABLE customer",
        "ALTER TABLE anew RENAME TO customer",
        rename(3, 4, "unseen"),
    )
    _, said = relay.communicate(timeout=180)
    assert relay.returncode == 2, said
    yield
    yield
    assert night.is_clean()


def journal_lost(night: Night) -> Generator[None]:
    live(night.made)
    night.sql(rename(1, 8, "known"))
    night.done("relay", "--once")
    for file in night.home.glob("shop.db*"):
        file.unlink()
    night.sql(rename(1, 4, "later"))
    yield
    yield
    assert night.is_clean()


def throttled(night: Night) -> Generator[None]:
    night.made.job.write_text(night.made.job.read_text().replace("give_up_after_s: 2,", ""))
    with night.relay():
        night.faults.never = lambda wire: True
        night.sql(rename(1, 8, "slowly"))
        night.until("tries again", "ProvisionedThroughput")
        yield
        night.faults.never = lambda wire: False
        night.until("idle")
        yield
    assert night.is_clean()


def move_refused(night: Night) -> Generator[None]:
    # So that no machine is too slow for its p99.
    night.made.job.write_text(night.made.job.read_text().replace("cutover: {", "cutover: {p99_factor: 100, "))
    night.done("cutover", "advance", PATTERN)
    yield
    with night.relay(), _reader(night):
        yield
    assert night.is_clean()


@contextmanager
def _reader(night: Night) -> Iterator[None]:
    """One that lives and acts by the phases as they are, until the block ends."""
    over = Event()
    with desk_of(night.made) as session:
        obey(session, one := reader(session, night.made))

        def live_on() -> None:
            while not over.wait(1):
                obey(session, one)

        living = Thread(target=live_on)
        living.start()
        try:
            yield
        finally:
            over.set()
            living.join()
        session.instances.leave(one)


def dynamodb_away(night: Night) -> Generator[None]:
    with night.relay():
        night.faults.cut_before = 1.0
        night.sql(rename(1, 8, "kept"))
        night.until("tries again", "waits")
        yield
        night.faults.cut_before = 0.0
        night.until("idle")
        yield
    assert night.is_clean()


INCIDENTS: dict[str, Incident] = {
    "Lag grows": lag_grows,
    "Answers differ": answers_differ,
    "A service does not start": service_does_not_start,
    "The relay exits with 3": relay_exits_3,
    "The source was restored from a snapshot": restored_from_a_snapshot,
    "The source failed over": failed_over,
    "A table was altered": table_altered,
    "The journal is lost": journal_lost,
    "DynamoDB throttles": throttled,
    "A move is refused": move_refused,
    "DynamoDB is away": dynamodb_away,
}
"""By the heading of its section."""
ON_POSTGRESQL = frozenset({"The source was restored from a snapshot", "The source failed over"})


# ── The page ──


def sections(page: str) -> dict[str, list[list[Command]]]:
    """The blocks of each section that has commands, by its heading."""
    found = {one["symptom"]: list(blocks_of(one["text"])) for one in _SECTION.finditer(page)}
    return {symptom: blocks for symptom, blocks in found.items() if blocks}


def played(symptom: str, blocks: list[list[Command]], night: Night) -> list[list[Command]]:
    """The section's commands with what they say now. The incident's own end is looked at, too."""
    going_on = INCIDENTS[symptom](night)
    said = []
    with closing(going_on), Shell(night.made.folder, environment_of(night.made.environment)) as shell:
        for block in blocks:
            next(going_on)
            said.append([_played(shell, command, night) for command in block])
        with suppress(StopIteration):
            next(going_on)
            raise AssertionError(f"{symptom}: a block of commands is missing")
    return said


def _played(shell: Shell, command: Command, night: Night) -> Command:
    """Log lines are left out, as in the runbook."""
    lines = [line.rstrip() for line in shell.run(command.text).splitlines() if not LOG_LINE.match(line)]
    return replace(command, said=night.told("".join(f"{line}\n" for line in lines)))
