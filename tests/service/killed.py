"""A service of the shop's that is killed: for every line it reads, a child of its own that dies at its n-th step.

Everything is imported before the forks, so that a kill takes a fraction of a second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import sqlalchemy as sa
from botocore.loaders import JSONFileLoader
from sqlalchemy.orm import sessionmaker

from migrator.api import Migration
from migrator.runtime.values import asdict
from tests.forking import Python
from tests.service.shop import Order, Shop, Tag, User
from tests.service.steps import Steps

Sessions = sessionmaker[Any]
LONGEST_S = 2.0
ROWS = 10
"""Ids that one child has to itself, in each table."""
_MODES: dict[str, dict[str, Any]] = {
    "strict": {"mode": "strict", "longest_transaction_s": LONGEST_S, "longest_write_s": LONGEST_S},
    "flush": {"flush": True},
}


@dataclass(frozen=True)
class Life:
    """What one child does, with the rows from `first` on. `last`: the step at which it is killed."""

    mode: str
    transaction: str
    first: int
    last: int


@dataclass(frozen=True)
class End:
    """`at`: the step at which the child was killed; '' where it ended by itself, after these `steps`."""

    at: str
    steps: tuple[str, ...] = ()
    fault: str = ""


# ── transactions, on rows that `before` made ──


def before(engine: sa.Engine, firsts: list[int]) -> None:
    """The rows that the transactions find: two users, one with two orders, one of which has two tags."""
    users = [
        {"id": n + m, "name": f"u{n + m}", "email": f"{n + m}@a", "handle": None}
        for n in firsts
        for m in (0, 1)
    ]
    orders = [{"id": n + m, "user_id": n, "total": m} for n in firsts for m in (0, 1)]
    tags = [{"id": n + m, "order_id": n, "label": f"l{m}"} for n in firsts for m in (0, 1)]
    with engine.begin() as connection:
        for model, rows in ((User, users), (Order, orders), (Tag, tags)):
            connection.execute(sa.insert(model), rows)


def insert_with_children(sessions: Sessions, first: int) -> None:
    new = first + 2
    with sessions.begin() as session:
        orders = [Order(id=new, total=1), Order(id=new + 1, total=2)]
        session.add(User(id=new, name="new", email=f"{new}@a", handle=f"h{new}", orders=orders))
        session.flush()
        session.add(Tag(id=new, order_id=new, label="new"))


def move_a_unique_value(sessions: Sessions, first: int) -> None:
    with sessions.begin() as session:
        giver, taker = session.get_one(User, first), session.get_one(User, first + 1)
        value, giver.email = giver.email, None
        session.flush()
        taker.email = value


def change_the_parent(sessions: Sessions, first: int) -> None:
    with sessions.begin() as session:
        session.get_one(Order, first).user_id = first + 1


def delete_with_cascade(sessions: Sessions, first: int) -> None:
    with sessions.begin() as session:
        session.delete(session.get_one(User, first))


TRANSACTIONS: dict[str, Callable[[Sessions, int], None]] = {
    one.__name__: one
    for one in (insert_with_children, move_a_unique_value, change_the_parent, delete_with_cascade)
}


# ── the process ──


@contextmanager
def killing(shop: Shop) -> Iterator[Callable[[Life], End]]:
    """A function that lets a child do what it is told, and says how it ended."""
    with killing_of(
        "tests.service.killed", str(shop.job), shop.engine.url.render_as_string(hide_password=False)
    ) as kill:
        yield kill


@contextmanager
def killing_of(module: str, *places: str) -> Iterator[Callable[[Life], End]]:
    """`places`: what the module is given, the job's file first."""
    with Python(["-m", module, *places], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def kill(life: Life) -> End:
            print(json.dumps(asdict(life)), file=process.stdin, flush=True)
            return End(**json.loads(process.stdout.readline()))  # type: ignore[union-attr]

        yield kill
        process.stdin.close()


Ready = Callable[[Migration, Life], Callable[[], object]]
"""Makes a service ready for a life, and gives what it then does step by step."""


def serve(job: str, ready: Ready, rehearsal: Life) -> None:
    """`rehearsal`: one that is made ready in this process, so that children import and read nothing."""
    steps = Steps()
    steps.listen()
    JSONFileLoader.load_file = cache(JSONFileLoader.load_file)
    with Migration.load(job, service="rehearsal") as migration:
        ready(migration, rehearsal)
    for line in sys.stdin:
        life = Life(**json.loads(line))
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _live(steps, job, ready, life, writing)
        os.close(writing)
        with open(reading) as told:
            said = told.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        ended = {"at": said} if killed else json.loads(said or '{"at": "", "fault": "it said nothing"}')
        print(json.dumps(ended), flush=True)


def _live(steps: Steps, job: str, ready: Ready, life: Life, told: int) -> None:
    """The child's whole life."""
    fault = ""
    try:
        migration = Migration.load(job, service="killed")
        work = ready(migration, life)
        steps.arm(life.last, lambda name: os.write(told, name.encode()))
        work()
        steps.disarm()
        migration.close()
    except Exception:
        fault = traceback.format_exc()
    os.write(told, json.dumps(asdict(End("", tuple(steps.names), fault))).encode())
    os._exit(0)


def _in_sql(url: str, migration: Migration, life: Life) -> Callable[[], object]:
    sessions = sessionmaker(sa.create_engine(url, isolation_level="READ COMMITTED"))
    migration.dual_write(sessions, **_MODES[life.mode])
    return partial(TRANSACTIONS[life.transaction], sessions, life.first)


if __name__ == "__main__":
    serve(sys.argv[1], partial(_in_sql, sys.argv[2]), Life("strict", insert_with_children.__name__, 0, 0))
