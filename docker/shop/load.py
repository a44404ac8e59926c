"""Customers of the shop's web service: they read, order and change orders. Bounded; ends by itself.

python docker/shop/load.py --seconds 20 --rate 40 http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, Lock
from typing import Any
from urllib.parse import urlsplit

import urllib3

CATEGORIES = ("electronics", "books", "toys", "garden")
AT_ONCE = 8
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Customers:
    """Thread-safe.

    `looking`: percentage of requests that look at orders; without products (`tables`), at any page.
    """

    def __init__(self, url: str, seed: int, looking: int, wait_s: float, *, tables: bool) -> None:
        self.url = url.rstrip("/")
        self.tables = tables
        self.looking = looking
        self.random = random.Random(seed)
        self.pool = urllib3.PoolManager(maxsize=16, retries=False, timeout=urllib3.Timeout(wait_s))
        self.counts: Counter[str] = Counter()
        self.took_ms: list[float] = []
        self.orders: list[int] = []
        self.lock = Lock()

    def step(self) -> None:
        rng = self.random
        user, product = rng.randint(1, 2000), rng.randint(1, 500)
        order = rng.choice(self.orders) if self.orders else rng.randint(1, 8000)
        size = rng.choice((5, 10))
        looking = self.looking * 80 // (100 - self.looking)
        catalogue: list[tuple[int, str, str, Any]] = [
            (15, "GET", f"/products/{product}", None),
            (8, "GET", f"/products?category={rng.choice(CATEGORIES)}", None),
            (4, "PATCH", f"/products/{product}", {"price": f"{rng.randint(100, 99_999) / 100:.2f}"}),
        ]
        page = looking // 4 if self.tables else 10
        choices: list[tuple[int, str, str, Any]] = [
            (page if self.tables else looking, "GET", f"/users/{user}/orders?limit={size}", None),
            (page, "GET", f"/users/{user}", None),
            (page, "GET", f"/users/{user}/account", None),
            (page if self.tables else 8, "GET", f"/orders/{order}/lines", None),
            *([] if self.tables else catalogue),
            (12, "POST", "/orders", {"user_id": user, "lines": {str(product): rng.randint(1, 3)}}),
            (8, "PATCH", f"/orders/{order}", {"status": rng.choice(("processing", "shipped", "delivered"))}),
            (3, "POST", "/users", {"email": f"c{rng.getrandbits(48):x}@example.com", "name": "New Customer"}),
            (2, "DELETE", f"/orders/{order}", None),
        ]
        _, method, path, body = rng.choices(choices, [weight for weight, *_ in choices])[0]
        self.ask(method, path, body)

    def ask(self, method: str, path: str, body: Any) -> None:
        began = time.perf_counter()
        try:
            answer = self.pool.request(method, self.url + path, json=body)
            told = str(answer.status)
            if path == "/orders" and answer.status == 201:
                self.orders.append(int(json.loads(answer.data)["order_id"]))
        except urllib3.exceptions.HTTPError:
            told = "no answer"
        with self.lock:
            self.counts[told] += 1
            self.took_ms.append((time.perf_counter() - began) * 1000)

    @property
    def failed(self) -> int:
        return sum(
            count for told, count in self.counts.items() if told == "no answer" or told.startswith("5")
        )


def drive(customers: Customers, seconds: float, rate: float) -> None:
    end, pause_s = time.monotonic() + seconds, 1 / rate
    free = BoundedSemaphore(AT_ONCE)

    def one() -> None:
        try:
            customers.step()
        finally:
            free.release()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        due, under_way = time.monotonic(), deque[Future[None]]()
        while (due := due + pause_s) < end:
            time.sleep(max(0.0, due - time.monotonic()))
            while under_way and under_way[0].done():
                under_way.popleft().result()  # raises what went wrong here, in this script
            if free.acquire(blocking=False):
                under_way.append(pool.submit(one))
            else:
                customers.counts["not asked"] += 1
        for future in under_way:
            future.result()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="URL of the shop's service on this machine")
    parser.add_argument("--seconds", type=float, default=20, help="duration (at most 600)")
    parser.add_argument("--rate", type=float, default=40, help="requests per second (at most 500)")
    parser.add_argument(
        "--looking", type=int, default=20, help="percentage that read recent orders (0 to 90)"
    )
    parser.add_argument("--wait", type=float, default=10, help="timeout of a request in seconds (at most 30)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--tables", action="store_true", help="the service runs on old tables (docker/tables)"
    )
    asked = parser.parse_args()
    if urlsplit(asked.url).hostname not in LOOPBACK:
        parser.error("load is for a service on this machine alone: http://127.0.0.1:8000")
    looking, wait_s = min(max(asked.looking, 0), 90), min(max(asked.wait, 0.1), 30)
    customers = Customers(asked.url, asked.seed, looking, wait_s, tables=asked.tables)
    drive(customers, min(max(asked.seconds, 1), 600), min(max(asked.rate, 0.1), 500))
    took = sorted(customers.took_ms)
    told = ", ".join(f"{count:,} × {what}" for what, count in sorted(customers.counts.items()))
    print(f"{len(took):,} requests: {told}")
    if took:
        print(f"p50 {took[len(took) // 2]:.0f} ms, p99 {took[len(took) * 99 // 100]:.0f} ms")
    return 1 if customers.failed else 0


if __name__ == "__main__":
    sys.exit(main())
