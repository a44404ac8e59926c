"""A table of members whose keys name persons, captured and filled, and what is kept of one of them."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.journeys.command import Project, project
from tests.journeys.in_process import Ended

ANN, BOB = (f"{name}-{secrets.token_hex(6)}@example.com" for name in ("ann", "bob"))
CITY = f"city{secrets.token_hex(6)}"
TABLES = """
CREATE TABLE place (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE member (mail TEXT PRIMARY KEY, nick TEXT, place_id INTEGER REFERENCES place (id));
CREATE TABLE seat (hall INTEGER, number INTEGER, mail TEXT, PRIMARY KEY (hall, number));
"""
MAPPING = """\
mapping: 1
table: {name: People, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  member:
    items:
      Member: {key: ["MEMBER#{mail}", META]}
      Nick: {key: ["NICK#{nick}", NICK], when: nick}
  resident:                                    # the same rows; keys of two tables, so they are remembered
    table: member
    join: {place: place_id}
    items:
      Resident: {key: ["PLACE#{place.name}", "{mail}"], when: place.name}
  seat: {items: {Seat: {key: ["HALL#{hall}", "{number:04}"], keep: [mail]}}}
"""
RIPE_S = 301.1
"""Ten times as long as a request may last, and the second that a tombstone's time is rounded to."""
TUNING = "request_life_s: 30, silent_s: 5, lease_s: 1, page_rows: 1000"


def people(folder: Path, endpoint: str) -> Project:
    """Two members of one nick, so that one of them makes a finding, a claim, and a wish; captured and filled."""
    url = f"sqlite:///{folder}/shop.db"
    made = project(folder, url, endpoint, f"F{secrets.token_hex(4)}", tuning=TUNING, text=MAPPING)
    made.environment["MIGRATOR_HOME"] = str(folder / "home")
    with closing(sqlite3.connect(folder / "shop.db")) as source:
        source.executescript(TABLES)
        source.execute("INSERT INTO place VALUES (1, ?)", (CITY,))
        source.executemany("INSERT INTO member VALUES (?, 'nick', 1)", [(ANN,), (BOB,)])
        source.execute("INSERT INTO seat VALUES (1, 2, ?)", (ANN,))
        source.commit()
    made.prepared("table create", "capture install")
    filled = made.run("backfill", str(made.job))
    assert filled.code == 1, filled.err  # the nick that both have
    return made


def change(shop: Project, statement: str, values: Sequence[object] = ()) -> None:
    with closing(sqlite3.connect(shop.folder / "shop.db", timeout=120)) as service:
        service.execute(statement, values)
        service.commit()


def deleted(shop: Project, mail: str) -> None:
    change(shop, "DELETE FROM member WHERE mail = ?", (mail,))
    shop.done("relay", str(shop.job), "--once")


def forget(shop: Project, mail: str, *words: str, entity: str = "member") -> Ended:
    return shop.run("clean", "--row", str(shop.job), "--entity", entity, "--key", mail, *words)


def journal(shop: Project, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(shop.folder / "home" / "shop.db")) as database:
        return list(database.execute(statement))


def kept_of(shop: Project, mail: str) -> list[str]:
    """Where the mail address still stands: files of the journal and of the source, items."""
    files = [*(shop.folder / "home").iterdir(), shop.folder / "shop.db"]
    found = [file.name for file in files if mail.encode() in file.read_bytes()]
    return found + [str(item["PK"]) for item in shop.items() if mail in repr(item)]
