"""Builds the shop's database: the schema, and made-up customers, products and orders.

    python docker/shop/build.py --scale 1 sqlite:///shop.db
    python docker/shop/build.py --scale 10 postgresql://user@host/shop

The same scale gives the same rows everywhere. Rows are made and stored in batches, in bounded memory.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

SCHEMA = Path(__file__).with_name("schema.sql")
USERS, PRODUCTS, ORDERS, SESSIONS = 2_000, 500, 8_000, 3_000
OPENED, TODAY = datetime(2024, 7, 1), datetime(2026, 6, 30)
BATCH_ROWS = 2_000

Row = tuple[Any, ...]

COLUMNS = {
    "users": ("id", "email", "name", "phone", "created_at"),
    "categories": ("id", "name"),
    "products": ("id", "category_id", "name", "price", "stock", "image_url"),
    "orders": ("id", "user_id", "status", "total", "created_at"),
    "order_items": ("order_id", "product_id", "quantity", "unit_price"),
    "sessions": ("id", "user_id", "created_at", "expires_at"),
}

FIRST_NAMES = (
    "Alice", "Zoë", "Søren", "Łukasz", "María José", "Nguyễn", "Олена", "美咲", "Sinéad", "D'Arcy",
    "José", "Anaïs", "Björk", "יעל", "Çağla", "Ravi", "Ἀθηνᾶ", "Kwame", "Emily", "Noor",
)  # fmt: skip
LAST_NAMES = (
    "Johnson", "O'Brien", "Müller", "García-Pérez", "Ångström", "van der Berg", "Шевченко", "田中", "N'Diaye",
    "Wójcik", "Smith", "Okafor", "d'Agostino", "Ó Súilleabháin", "Þórsdóttir", "Patel", "Lee", "Şahin",
)  # fmt: skip
CATALOGUE = {
    "electronics": ("Electronics", "Mechanical Keyboard"),
    "books": ("Books", "Field Guide"),
    "kitchen": ("Kitchen & Table", "Chef's Knife"),
    "garden": ("Garden", "Watering Can"),
    "toys": ("Toys", "Wooden Train"),
    "sports": ("Sports", "Climbing Rope #9.8"),
    "music": ("Music", "C# Minor Songbook"),
    "office": ("Office", "Fountain Pen"),
    "beauty": ("Beauty", "Crème de Nuit"),
    "grocery": ("Grocery", "Jalapeño Honey"),
    "shoes": ("Shoes", "Trail Shoe"),
    "bags": ("Bags", "Rucksack"),
    "pets": ("Pets", "Cat's Tower 🐈"),
    "baby": ("Baby", "Sleeping Bag"),
    "tools": ("Tools", '3/8" Ratchet'),
    "lighting": ("Lighting", "Desk Lamp"),
    "outdoor": ("Outdoor", "Tent ⛺"),
    "games": ("Games", "Go Board 囲碁"),
    "art": ("Art", "Brush #12"),
    "health": ("Health", "Heating Pad"),
}
STYLES = ("Classic", "Compact", "Grande", "Öko", "Pro", "Travel", "No. 5", "Limited", "Été", "Everyday")


class Store(Protocol):
    def add(self, table: str, rows: list[Row]) -> None: ...

    def finish(self) -> None: ...


# ── rows ────────────────────────────────────────────────────────────────────────────────────────


def users(scale: int) -> Iterator[Row]:
    chance = random.Random("users")
    for number in range(1, USERS * scale + 1):
        first, last = chance.choice(FIRST_NAMES), chance.choice(LAST_NAMES)
        name = f"{first} {last}" + (" #2" if number % 97 == 0 else "") + (" 🌻" if number % 61 == 0 else "")
        at = "#" if number % 89 == 0 else "."
        email = f"{_plain(first)}.{_plain(last)}{at}{number}@example.com"
        phone = f"+49 30 {chance.randrange(10**6):06}" if chance.random() < 0.7 else None
        yield number, email, name, phone, _moment(chance, OPENED - timedelta(days=365), OPENED)


def _plain(name: str) -> str:
    """The name in lower-case ASCII letters and apostrophes; 'user' if nothing is left."""
    letters = unicodedata.normalize("NFKD", name.lower()).encode("ascii", "ignore").decode()
    return "".join(letter for letter in letters if letter.isalpha() or letter in "'-") or "user"


def _moment(chance: random.Random, start: datetime, end: datetime) -> str:
    return str(start + timedelta(seconds=chance.randrange(int((end - start).total_seconds()))))


def categories() -> Iterator[Row]:
    for slug, (name, _) in CATALOGUE.items():
        yield slug, name


def products(scale: int) -> Iterator[Row]:
    slugs = list(CATALOGUE)
    chance = random.Random("products")
    for number in range(1, PRODUCTS * scale + 1):
        slug = slugs[number % len(slugs)]
        name = f"{chance.choice(STYLES)} {CATALOGUE[slug][1]}"
        image = f"https://img.example.com/p/{number}.jpg" if chance.random() < 0.9 else None
        yield number, slug, name, _money(price_cents(number)), chance.randrange(500), image


def price_cents(product: int) -> int:
    """A price derived from the product's number, so that no table of prices is needed."""
    return 99 + product * 7_919 % 59_900


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def orders(scale: int) -> Iterator[tuple[Row, list[Row]]]:
    """Each order with its lines, oldest first. A few customers order much, many little or nothing."""
    chance = random.Random("orders")
    step = (TODAY - OPENED) / (ORDERS * scale)
    for number in range(1, ORDERS * scale + 1):
        created = (OPENED + step * (number - 1)).replace(microsecond=0)
        user = 1 + int(USERS * scale * chance.random() ** 2)
        wanted = chance.sample(range(1, PRODUCTS * scale + 1), chance.randint(1, 5))
        lines = [(number, product, chance.randint(1, 3), price_cents(product)) for product in wanted]
        total = sum(quantity * cents for _, _, quantity, cents in lines)
        order = number, user, _status(chance, created), _money(total), str(created)
        yield order, [(*line[:3], _money(line[3])) for line in lines]


def _status(chance: random.Random, created: datetime) -> str:
    """Orders of the last week are in progress; older ones are finished."""
    age_days = (TODAY - created).days
    if age_days < 7:
        return chance.choice(("pending", "processing"))
    if age_days < 21:
        return chance.choice(("processing", "shipped", "shipped", "delivered"))
    return "cancelled" if chance.random() < 0.05 else "delivered"


def sessions(scale: int) -> Iterator[Row]:
    """A third expires after two weeks, the others after ten years."""
    chance = random.Random("sessions")
    for number in range(SESSIONS * scale):
        created = datetime.fromisoformat(
            _moment(chance, TODAY - timedelta(days=365), TODAY - timedelta(days=30))
        )
        life = timedelta(days=14 if number % 3 == 0 else 3_650)
        user = chance.randint(1, USERS * scale)
        yield f"{chance.getrandbits(128):032x}", user, str(created), str(created + life)


# ── stores ──────────────────────────────────────────────────────────────────────────────────────


class ThereError(Exception): ...


class SqliteStore:
    """A file that gets its name only when it is complete."""

    def __init__(self, path: Path, *, force: bool) -> None:
        if path.exists() and not force:
            raise ThereError(f"{path} is there already; name another file, or overwrite it with --force")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.unfinished = path, path.with_name(f"{path.name}.unfinished")
        self.unfinished.unlink(missing_ok=True)
        self.connection = sqlite3.connect(self.unfinished)
        self.connection.executescript(
            f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {SCHEMA.read_text()}"
        )

    def add(self, table: str, rows: list[Row]) -> None:
        places = ", ".join("?" * len(COLUMNS[table]))
        self.connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def finish(self) -> None:
        self.connection.commit()
        self.connection.close()
        os.replace(self.unfinished, self.path)


class PostgresStore:
    """Loads the shop in one transaction."""

    def __init__(self, url: str, *, force: bool) -> None:
        import psycopg

        self.connection = psycopg.connect(url)
        if self.connection.execute("SELECT to_regclass('users')").fetchone() != (None,):
            if not force:
                raise ThereError("this database has a table users already; name another, or use --force")
            self.connection.execute(f"DROP TABLE {', '.join(reversed(COLUMNS))} CASCADE".encode())
        self.connection.execute(SCHEMA.read_bytes())

    def add(self, table: str, rows: list[Row]) -> None:
        statement = f"COPY {table} ({', '.join(COLUMNS[table])}) FROM STDIN"
        with self.connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def finish(self) -> None:
        self.connection.commit()
        self.connection.close()


def open_store(url: str, *, force: bool) -> Store:
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and len(rest) > 1 and rest.startswith("/"):
        return SqliteStore(Path(rest[1:]), force=force)
    if scheme in ("postgresql", "postgres"):
        return PostgresStore(url, force=force)
    raise SystemExit("write sqlite:///shop.db or postgresql://user@host/shop")


# ── both together ───────────────────────────────────────────────────────────────────────────────


def build(store: Store, scale: int, fewer: int = 1) -> None:
    """`fewer`: keep one of N orders and sessions."""
    tables = {
        "users": users(scale),
        "categories": categories(),
        "products": products(scale),
        "sessions": islice(sessions(scale), None, None, fewer),
    }
    for table, rows in tables.items():
        for batch in _batches(rows):
            store.add(table, batch)
    for part in _batches(islice(orders(scale), fewer - 1, None, fewer)):
        store.add("orders", [order for order, _ in part])
        store.add("order_items", [line for _, lines in part for line in lines])
    store.finish()


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(rows)
    while batch := list(islice(left, BATCH_ROWS)):
        yield batch


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the shop's database.")
    parser.add_argument("url", help="sqlite:///shop.db or postgresql://user@host/shop")
    parser.add_argument("--scale", type=int, default=1, help="multiplies 2,000 users and 8,000 orders")
    parser.add_argument("--fewer", type=int, default=1, help="keep one of N orders and sessions")
    parser.add_argument("--force", action="store_true", help="replace an existing shop")
    parser.add_argument("--if-absent", action="store_true", help="keep an existing shop and exit with 0")
    asked = parser.parse_args(arguments)
    if asked.scale < 1:
        parser.error("--scale starts at 1")
    if asked.fewer < 1:
        parser.error("--fewer starts at 1")
    try:
        store = open_store(asked.url, force=asked.force)
    except ThereError as error:
        if not asked.if_absent:
            raise SystemExit(str(error)) from None
        sys.stdout.write("the shop is there already\n")
        return
    build(store, asked.scale, asked.fewer)
    orders = ORDERS * asked.scale // asked.fewer
    sys.stdout.write(f"the shop is built: {USERS * asked.scale:,} users, {orders:,} orders\n")


if __name__ == "__main__":
    main()
