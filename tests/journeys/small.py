"""A shop of two SQLite tables, small enough to run every command on it: 30 customers, 60 invoices, 150 items."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

from tests.journeys.command import Project, project

MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  customer: {items: {Customer: {key: ["C#{id}", META], keep: [name]}}}
  invoice:
    items:
      Invoice: {key: ["C#{customer_id}", "I#{id}"], keep: [total]}
      InvoiceById: {key: ["I#{id}", META]}
"""


def small_shop(folder: Path, endpoint: str, region: str = "", *, create: bool = True) -> Project:
    """A project whose table is there, and empty."""
    connection = sqlite3.connect(folder / "shop.db")
    connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
    connection.execute(
        "CREATE TABLE invoice (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, total INTEGER)"
    )
    connection.executemany("INSERT INTO customer VALUES (?, ?)", [(n, f"Name {n}") for n in range(1, 31)])
    connection.executemany("INSERT INTO invoice VALUES (?, ?, 5)", [(n, n % 30 + 1) for n in range(1, 61)])
    connection.commit()
    connection.close()
    made = project(folder, f"sqlite:///{folder}/shop.db", endpoint, f"U{secrets.token_hex(4)}", text=MAPPING)
    if region:
        made.job.write_text(made.job.read_text().replace("endpoint:", f"region: {region}, endpoint:"))
    return made.prepared("table create") if create else made
