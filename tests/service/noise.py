"""Reads beside writes in flight and an index that lags: nothing of it is a difference."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from migrator.mapping.model.evidence import Sample, Window
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.forking import Python
from tests.service.reading import ReadShop, open_read_shop
from tests.support_waiting import until

READERS = 4
ASKED = (
    ("recent_orders", "user_id", (1, 2)),
    ("user_and_orders", "user_id", (1, 2)),
    ("by_status", "status", ("open", "sent")),
)


@contextmanager
def noisy_shop(
    engine: str, url: str, endpoint: str, folder: Path, lag_s: float, settle_s: float
) -> Iterator[ReadShop]:
    """Its rows are written all the time, a relay follows, and its index may show what was `lag_s` ago."""
    faults = Faults(stale_s=lag_s)
    with (
        FaultProxy(endpoint, faults) as proxy,
        open_read_shop(
            engine, url, proxy.url, folder, settle_s=settle_s, items_from=endpoint, marked=True
        ) as shop,
        _relay(shop),
        _writer(shop),
    ):
        yield shop
        assert faults.counts["stale_s"] > 0


@contextmanager
def _relay(shop: ReadShop) -> Iterator[None]:
    words = ["-m", "migrator", "relay", shop.job]
    with (shop.folder / "relay.log").open("w") as log:
        started = Python(words, cwd=shop.folder, stdout=log, stderr=log)
        try:
            yield
            assert started.poll() is None, (shop.folder / "relay.log").read_text()
        finally:
            started.terminate()
            started.wait(120)


@contextmanager
def _writer(shop: ReadShop) -> Iterator[None]:
    """A service that inserts, changes and deletes orders."""
    stop, rng = Event(), random.Random(7)

    def write() -> None:
        number = 100
        while not stop.wait(0.1):
            number += 1
            shop.sql(
                f"INSERT INTO orders VALUES ({number}, {1 + number % 2}, 5, 'open', '2026-02-01 00:00:00', NULL)",
                f"UPDATE orders SET total = {rng.randrange(100_000)} WHERE id = {rng.randint(1, 20)}",
                f"DELETE FROM orders WHERE id = {number - 20} AND id > 100",
            )
            if number % 10 == 0:
                # One that comes and goes all the time would be in flight at each look.
                shop.sql(
                    f"UPDATE orders SET status = '{rng.choice(['open', 'sent'])}' WHERE id = {rng.randint(1, 20)}"
                )

    thread = Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(120)


def read_all(
    shop: ReadShop, reads: int, pause_s: float = 0.0, *, compared: int = 0
) -> tuple[dict[str, Window], list[Sample]]:
    """What so many reads came to, and more until `compared` of each pattern were, when all that was doubted has settled.

    A busy machine compares few of them: shadows give way to the service.
    """
    shop.move("shadow")
    with shop.migration() as migration:
        migration.begin_reading()

        def read(number: int) -> None:
            pattern, param, values = ASKED[number % len(ASKED)]
            migration.read(pattern, **{param: values[number // len(ASKED) % 2]})
            time.sleep(pause_s)

        with ThreadPoolExecutor(READERS) as readers:
            list(readers.map(read, range(reads)))
        ledger = migration._reads().reads.ledger

        def are_compared() -> bool:
            ledger.flush()
            found = shop.windows()
            fewer = [number for number, (name, _, _) in enumerate(ASKED) if found[name].compared < compared]
            for number in fewer:
                read(number)
            return not fewer

        until(are_compared, f"{compared} reads of each pattern compared")
        time.sleep(0.5)
        ends_at = time.monotonic() + 120
        while migration._reads().reads.shadow.waiting and time.monotonic() < ends_at:
            time.sleep(0.1)
        ledger.flush()
    return shop.windows(), [sample for name, _, _ in ASKED for sample in shop.samples(name)]
