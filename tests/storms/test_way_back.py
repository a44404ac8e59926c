"""Forward, complete, back, and forward again, on three engines; each side is written all the while that it is the truth.

Services know by themselves what they wrote: rows and items are compared with that, and with each other. Of the invoices of
FRIENDS the items get a `nickname`, which writes keep, and `visits`, which the rollback drops; a counter is no row's.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.command import Project
from tests.journeys.cutover import OTHER, filled, live, phase
from tests.journeys.test_direct_servers import SHOP
from tests.journeys.test_reverse import invoice, rows_of_items
from tests.journeys.test_way_back import (
    BACK,
    WRITES,
    complete,
    made,
    rows,
    status,
)
from tests.language.conftest import database_on
from tests.language.engines import ENGINES
from tests.storms.storm import Killed
from tests.support_capture import connect
from tests.support_waiting import until

SEED = int(os.environ.get("MIGRATOR_TEST_SEED", random.randrange(10**6)))
OWN = "writes: {keep: [nickname], leave: [COUNTER]}\n"
INVOICES, FRIENDS = range(1, 61), range(101, 111)
TURNS = 3
WRITES_A_TURN = 100
LIVES_S = (1.0, 3.0)


@dataclass
class Services:
    """One that writes SQL, and one that writes the table. `known`: the customer and the total of each invoice."""

    shop: Project
    engine: str
    known: dict[int, tuple[int, int]] = field(default_factory=dict)
    nicknames: dict[tuple[str, str], str] = field(default_factory=dict)
    counted: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def change(self, statement: str) -> None:
        with closing(connect(self.engine, self.shop.environment["MIGRATOR_SOURCE_URL"])) as service:
            with closing(service.cursor()) as cursor:
                cursor.execute(statement)
            service.commit()
        self.counts["in SQL"] += 1

    def put_row(self, one: int, of: int, total: int) -> None:
        known = self.known.get(one)
        if known is None:
            self.change(f"INSERT INTO invoice VALUES ({one}, {of}, {total})")
        else:
            self.change(f"UPDATE invoice SET customer_id = {of}, total = {total} WHERE id = {one}")
        self.known[one] = of, total

    def in_sql(self, number: int) -> None:
        one = INVOICES[number % len(INVOICES)]
        if number % 7 == 0 and one in self.known:
            self.change(f"DELETE FROM invoice WHERE id = {one}")
            del self.known[one]
        else:
            self.put_row(one, number % 30 + 1, number)
        friend = FRIENDS[number % len(FRIENDS)]
        # Under another key it would be another item, without what belongs to this one.
        self.put_row(friend, self.known.get(friend, (friend % 30 + 1, 0))[0], number)

    def direct(self, first: int, number: int) -> None:
        total, one = first + number, INVOICES[number % len(INVOICES)]
        if number % 7 == 0 and one in self.known:
            self._transact(self._delete(one))
            del self.known[one]
        else:
            self._move(one, number % 30 + 1, total)
        friend = FRIENDS[number % len(FRIENDS)]
        of, _ = self.known[friend]
        if number % 5 == 0:
            self._move(friend, number % 30 + 1, total, nickname={"S": f"n{total}"}, visits={"N": "1"})
        else:
            values = {":t": {"N": str(total)}, ":n": {"S": f"n{total}"}, ":v": {"N": "1"}}
            self._update(
                self._key(friend), "SET #t = :t, nickname = :n ADD visits :v", values, {"#t": "total"}
            )
            self.known[friend] = of, total
        key = self._key(friend)
        self.nicknames[key["PK"]["S"], key["SK"]["S"]] = f"n{total}"
        counter = {"PK": {"S": "COUNTER"}, "SK": {"S": "invoice"}}
        self._update(counter, "ADD n :v", {":v": {"N": "1"}}, {})
        self.counted += 1
        self.counts["direct"] += 3

    def _move(self, one: int, of: int, total: int, **more: Any) -> None:
        put = {"Put": {"TableName": self.shop.table, "Item": {**invoice(one, of, total), **more}}}
        before = self.known.get(one)
        moved = [self._delete(one)] if before is not None and before[0] != of else []
        for gone in moved:
            key = gone["Delete"]["Key"]
            self.nicknames.pop((key["PK"]["S"], key["SK"]["S"]), None)
        self._transact(put, *moved)
        self.known[one] = of, total

    def _key(self, one: int) -> dict[str, Any]:
        item = invoice(one, self.known[one][0], 0)
        return {name: item[name] for name in ("PK", "SK")}

    def _delete(self, one: int) -> dict[str, Any]:
        return {"Delete": {"TableName": self.shop.table, "Key": self._key(one)}}

    def _transact(self, *changes: dict[str, Any]) -> None:
        self.shop.store().client.transact_write_items(TransactItems=list(changes))

    def _update(self, key: Any, words: str, values: Any, names: Any) -> None:
        named = {"ExpressionAttributeNames": names} if names else {}
        self.shop.store().client.update_item(
            TableName=self.shop.table,
            Key=key,
            UpdateExpression=words,
            ExpressionAttributeValues=values,
            **named,
        )

    # ── what is to be there ──

    def compare(self) -> None:
        """Rows and items with what the services know, and what they added."""
        known = sorted((one, *values) for one, values in self.known.items())
        assert (rows(self.shop), rows_of_items(self.shop)) == (known, known)
        items = self.shop.items()
        nicknames = {(str(one["PK"]), str(one["SK"])): one["nickname"] for one in items if "nickname" in one}
        assert nicknames == self.nicknames
        assert sum(int(str(one["n"])) for one in items if one["PK"] == "COUNTER") == self.counted
        self.counts["rows compared"] += len(known)


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.nightly) for one in ENGINES])
def services(request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str) -> Services:
    engine, shop = request.param, made(tmp_path, dynamodb_url)
    url = database_on(engine, request, tmp_path)(";".join(SHOP))
    shop.environment["MIGRATOR_SOURCE_URL"] = url
    found = Services(shop, engine)
    found.known = {one: (of, total) for one, of, total in rows(shop)}
    for one in FRIENDS:
        found.put_row(one, one % 30 + 1, 0)
    live(filled(shop))
    return found


@contextmanager
def under(write: Callable[[int], None], first: int) -> Iterator[Counter[str]]:
    """A service that writes until the block ends, as it does after each of which it was told to stop."""
    ends, faults, written = threading.Event(), list[BaseException](), Counter[str]()

    def serve() -> None:
        try:
            while not ends.is_set():
                write(first + written["writes"])
                written["writes"] += 1
        except BaseException as fault:
            faults.append(fault)

    service = threading.Thread(target=serve)
    service.start()
    try:
        yield written
    finally:
        ends.set()
        service.join(120)
    assert not faults, faults


@contextmanager
def killed(shop: Project, rng: random.Random, counts: Counter[str], *words: str) -> Iterator[None]:
    """The command, killed and started again until the block ends."""
    one = Killed(shop, words, LIVES_S, rng, threading.Event())
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield
    finally:
        one.stop.set()
        thread.join(120)
    assert not one.wrong, one.wrong[0]
    counts[f"{words[0]} killed"] += one.counts["kills"]


def forward_again(shop: Project) -> None:
    """Shadow, ramp and live, whose evidence other tests are for."""
    for words in (["advance"], ["ramp", "100"], ["advance"]):
        percent = words[1:]
        shop.done("cutover", words[0], str(shop.job), OTHER, *percent, "--override", "another test's")


def written_in_sql(services: Services, rng: random.Random, turn: int) -> None:
    """While the relay is killed, patterns go forward again."""
    shop, job, counts = services.shop, str(services.shop.job), services.counts
    with (
        killed(shop, rng, counts, "relay", job),
        under(services.in_sql, 10_000 * turn) as written,
    ):
        if phase(shop, OTHER) == "shadow":
            forward_again(shop)
        until(lambda: written["writes"] >= WRITES_A_TURN)
    shop.done_at_last("relay", job, "--once")
    assert "clean" in shop.done("verify", job, "--settle", "0").out
    services.compare()


def written_directly(services: Services, rng: random.Random, turn: int) -> None:
    """To complete; while the way back is killed, services write the table."""
    shop, job, counts = services.shop, str(services.shop.job), services.counts
    words = ("reverse", "start", job, "--settle", "0.5s")
    with shop.beside(*words):
        until(lambda: status(shop)["processes"] > 0)
        complete(shop)
    shop.job.write_text(shop.job.read_text().replace(OWN, "") + WRITES)
    # A relay that was killed counts as alive until its silence is over.
    until(lambda: shop.run("capture", "install", job).code == 0)
    with (
        killed(shop, rng, counts, *words),
        under(partial(services.direct, 10_000 * turn + 5_000), 1) as written,
    ):
        until(lambda: written["writes"] >= WRITES_A_TURN)


def rolled_back(services: Services) -> None:
    """Refused until the job says what becomes of attributes that no row keeps."""
    shop, job = services.shop, str(services.shop.job)
    with shop.beside("reverse", "start", job, "--settle", "0.5s"):
        shop.job.write_text(shop.job.read_text().replace(WRITES, ""))
        refused = shop.run("cutover", "rollback", job, OTHER, *BACK)
        assert (refused.code, "Invoice.nickname, Invoice.visits" in refused.err) == (1, True), refused
        shop.job.write_text(shop.job.read_text() + OWN)
        shop.done("cutover", "rollback", job, OTHER, *BACK, "--drop-attributes")
    services.compare()


def test_nothing_is_lost_by_a_rollback_and_a_new_advance(services: Services) -> None:
    shop, rng = services.shop, random.Random(SEED)
    for turn in range(TURNS):
        written_in_sql(services, rng, turn)
        written_directly(services, rng, turn)
        rolled_back(services)
        for number in FRIENDS:
            services.put_row(number, services.known[number][0], turn)
        shop.done("relay", str(shop.job), "--once")
        services.compare()
        assert not any("visits" in item for item in shop.items())
    written_in_sql(services, rng, TURNS)
    print(f"\n{services.engine}, MIGRATOR_TEST_SEED={SEED}: {dict(services.counts)}")
