"""How much longer a service's commit takes: with triggers, with the adapter in both modes, and with both."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from tests.races.shop import TABLES
from tests.service.shop import Order, User, open_shop
from tests.support_adapter import DRIVERS, service_url
from tests.support_capture import new_sqlite

Sessions = sessionmaker[Session]
NewUrl = Callable[[], str]
ROUNDS = int(os.environ.get("MIGRATOR_TEST_ROUNDS", 60))
_IDS = count(1000)


def update_by_key(sessions: Sessions) -> None:
    with sessions.begin() as session:
        values = {"name": f"name {next(_IDS)}"}
        session.execute(sa.update(User).where(User.id == 1).values(**values))


def insert_with_children(sessions: Sessions) -> None:
    first = 10 * next(_IDS)
    with sessions.begin() as session:
        orders = [Order(id=first + number, total=number) for number in range(3)]
        session.add(User(id=first, name="new", email=f"{first}@example.com", orders=orders))


def insert_a_hundred(sessions: Sessions) -> None:
    with sessions.begin() as session:
        session.add_all([User(id=10 * next(_IDS), name="one of many") for _ in range(100)])


TRANSACTIONS = {update_by_key: ROUNDS, insert_with_children: ROUNDS, insert_a_hundred: max(ROUNDS // 6, 3)}


@dataclass(frozen=True)
class Variant:
    name: str
    marked_by: str = ""
    """'' for a database that is not captured."""
    dual_write: dict[str, Any] | None = None


VARIANTS = (
    Variant("none"),
    Variant("triggers", "triggers"),
    Variant("outbox", "services", {}),
    Variant("strict", "services", {"mode": "strict"}),
    Variant("adapter with triggers", "triggers", {}),
)


@contextmanager
def sessions_of(
    variant: Variant, engine_name: str, url: str, endpoint: str, folder: Path
) -> Iterator[Sessions]:
    """Sessions of a service on a separate database with one user."""
    folder.mkdir()
    with ExitStack() as stack:
        if variant.marked_by:
            shop = stack.enter_context(
                open_shop(engine_name, url, endpoint, folder, marked_by=variant.marked_by)
            )
            sessions = shop.sessions
        else:
            sessions = sessionmaker(plain_engine(engine_name, url))
        if variant.dual_write is not None:
            stack.enter_context(shop.migration()).dual_write(sessions, **variant.dual_write)
        with sessions.begin() as session:
            session.add(User(id=1, name="first"))
        yield sessions


def plain_engine(engine_name: str, url: str) -> sa.Engine:
    isolated = {} if engine_name == "sqlite" else {"isolation_level": "READ COMMITTED"}
    engine = sa.create_engine(service_url(engine_name, url, DRIVERS), **isolated)
    with engine.begin() as connection:
        for statement in TABLES:
            connection.execute(sa.text(statement))
    return engine


def took_ms(transaction: Callable[[Sessions], None], sessions: Sessions) -> float:
    began = time.perf_counter()
    transaction(sessions)
    return (time.perf_counter() - began) * 1000


def medians_ms(
    transaction: Callable[[Sessions], None], all_sessions: dict[str, Sessions], rounds: int
) -> dict[str, float]:
    """Alternate the variants, so that other load affects all of them."""
    for sessions in all_sessions.values():
        transaction(sessions)
    times: dict[str, list[float]] = {name: [] for name in all_sessions}
    for _ in range(rounds):
        for name, sessions in all_sessions.items():
            times[name].append(took_ms(transaction, sessions))
    return {name: statistics.median(found) for name, found in times.items()}


def line_of(name: str, found: dict[str, float]) -> str:
    base = found["none"]
    cells = [
        "–" if one.name not in found else f"{found[one.name]:.1f} ({found[one.name] / base:.1f})"
        for one in VARIANTS[1:]
    ]
    return f"| {name} | {base:.1f} | {' | '.join(cells)} |"


@pytest.fixture
def new_url(request: pytest.FixtureRequest, engine_name: str, tmp_path: Path) -> NewUrl:
    """A function that makes another database of the engine."""
    if engine_name == "sqlite":
        files = count()
        return lambda: new_sqlite(tmp_path / f"shop{next(files)}.db")
    fixture = {"postgresql": "new_postgres_database", "mariadb": "new_mysql_database"}[engine_name]
    made: NewUrl = request.getfixturevalue(fixture)
    return made


@pytest.mark.parametrize("engine_name", ["postgresql", "mariadb", "sqlite"])
def test_overhead_of_a_commit(engine_name: str, new_url: NewUrl, dynamodb_url: str, tmp_path: Path) -> None:
    variants = [one for one in VARIANTS if (engine_name, one.name) != ("sqlite", "strict")]
    with ExitStack() as stack:
        all_sessions = {
            one.name: stack.enter_context(
                sessions_of(one, engine_name, new_url(), dynamodb_url, tmp_path / one.name.replace(" ", "_"))
            )
            for one in variants
        }
        found = {one.__name__: medians_ms(one, all_sessions, rounds) for one, rounds in TRANSACTIONS.items()}
    print(
        f"\n{engine_name}: median ms of a transaction, and how many times that of no adapter and no triggers"
    )
    print("| transaction | " + " | ".join(one.name for one in VARIANTS) + " |")
    for name, medians in found.items():
        print(line_of(name.replace("_", " "), medians))
    assert all(medians["outbox"] for medians in found.values())
