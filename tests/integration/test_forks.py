"""A service that loads, connects and then forks: parent and children read side by side, each on connections of its own."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import RunIdentity
from migrator.mapping.model.table import KeyAttribute, TableDesign
from tests.support_capture import ENGINES, Capturing, capturing, new_sqlite
from tests.support_fence import no_fence
from tests.support_items import put_items

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
CHILDREN = 3
LIMIT_S = 120


def side_by_side(work: Callable[[int], None]) -> list[int]:
    """How children ended that did the work with their number, while this process did it with 0; 0 is well."""
    children = []
    for number in range(1, CHILDREN + 1):
        pid = os.fork()
        if not pid:
            signal.alarm(LIMIT_S)
            try:
                work(number)
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(pid)
    try:
        work(0)
    finally:
        ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return ended


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return new_sqlite(tmp_path / "a.db")
    servers = {"postgresql": "postgres_database", "mariadb": "mysql_database"}
    return str(request.getfixturevalue(servers[request.param]))


@pytest.fixture
def shop(url: str) -> Iterator[Capturing]:
    engine = {"sqlite": "sqlite", "postgresql": "postgresql"}.get(url.partition(":")[0], "mariadb")
    with capturing(engine, url) as made:
        made.run("CREATE TABLE t (id integer PRIMARY KEY)")
        made.install()
        yield made


def test_tickets_stay_unique_after_a_fork(shop: Capturing, tmp_path: Path) -> None:
    before = shop.tickets.draw()

    def work(number: int) -> None:
        drawn = [shop.tickets.draw() for _ in range(20)]
        (tmp_path / str(number)).write_text(" ".join(map(str, drawn)))

    assert side_by_side(work) == [0] * CHILDREN
    drawn = [int(one) for n in range(CHILDREN + 1) for one in (tmp_path / str(n)).read_text().split()]
    assert sorted(drawn) == list(range(before + 1, before + 1 + 20 * (CHILDREN + 1)))


def test_a_journal_is_written_by_parent_and_children(url: str, tmp_path: Path) -> None:
    journal = SqlJournal(f"sqlite:///{tmp_path}/j.db" if url.startswith("sqlite") else url)
    identity = RunIdentity("backfill", "shop", "table", "revision")
    journal.start_run(identity)

    def work(number: int) -> None:
        for _ in range(10):
            journal.end_run(journal.start_run(identity), "done")

    assert side_by_side(work) == [0] * CHILDREN
    assert len(journal.runs("shop")) == 1 + 10 * (CHILDREN + 1)
    journal.close()


def test_answers_of_dynamodb_are_never_another_process_s(dynamodb_url: str) -> None:
    design = TableDesign(f"F{secrets.token_hex(4)}", (KeyAttribute("PK"),), "type")
    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(client).create(design)
    store = DynamoStore(client, design, no_fence)
    keys = [(f"K{n}",) for n in range(CHILDREN + 1)]
    put_items(store, [{"PK": key[0], "type": "T", "text": "x" * 1000} for key in keys])

    def work(number: int) -> None:
        for _ in range(30):
            assert list(store.get([keys[number]])) == [keys[number]]

    assert side_by_side(work) == [0] * CHILDREN
    client.delete_table(TableName=design.name)
