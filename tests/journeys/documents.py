"""Three old tables of DynamoDB's with access patterns on them, backfilled into one."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.journeys.command import Project, project
from tests.support_documents import OldTables, old_tables

MAPPING = """\
mapping: 1
source:
  timezone: UTC
  tables:
    Users: {key: [id], columns: {id: text, name: text, address.city: text, score: number(2)}}
    Orders: {key: [order_id], columns: {order_id: text, user_id: text, placed: timestamp, status: text}}
    Lines: {key: [order_id, line], columns: {order_id: text, line: integer, sku: text, tags: set(text)}}
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  user:
    table: Users
    items:
      User: {key: ["USER#{id}", PROFILE], keep: [id, name, score], attributes: {city: address.city}}
  order:
    table: Orders
    join: {user: {table: Users, on: {user_id: id}}}
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{placed|iso:s}#{order_id}"]
        keep: [order_id, status]
        attributes: {userName: user.name}
  line:
    table: Lines
    items:
      Line: {key: ["ORDER#{order_id}", "LINE#{line:03}"], keep: [line, sku, tags]}
access_patterns:
  profile:
    params: {user_id: text}
    get: {key: ["USER#{user_id}", PROFILE]}
    returns: [name, city, score]
    old: {get: {table: Users, key: {id: "{user_id}"}}, returns: [name, address.city, score]}
  orders_of_user:
    params: {user_id: text, since: optional timestamp, status: optional text}
    query:
      key: ["USER#{user_id}", {ge: "ORDER#{since|iso:s}"}]
      descending: true
      limit: 3
      filter: {type: {const: Order}, status: status}
    returns: [order_id, status, userName]
    old:
      query:
        table: Orders
        index: by_user
        key: {user_id: "{user_id}", placed: {ge: "{since|iso:s}"}}
        descending: true
        limit: 3
        filter: {status: status}
      join: {user: {table: Users, on: {user_id: id}}}
      returns: [order_id, status, user.name]
  lines_of_order:
    params: {order_id: text}
    query: {key: ["ORDER#{order_id}", {begins_with: "LINE#"}]}
    returns: [line, sku, tags]
    old: {query: {table: Lines, key: {order_id: "{order_id}"}, consistent: true}}
  one_line:
    params: {order_id: text, line: integer}
    get: {key: ["ORDER#{order_id}", "LINE#{line:03}"]}
    returns: [sku]
    old: {get: {table: Lines, key: {line: "{line}", order_id: "{order_id}"}, consistent: true}}
  users:
    params: {ids: list of text}
    batch_get: {key: ["USER#{ids}", PROFILE]}
    returns: [id, name]
    old: {batch_get: {table: Users, key: {id: "{ids}"}}}
  user_and_orders:
    params: {user_id: text}
    query: {key: ["USER#{user_id}"]}
    returns:
      user: {type: User, one: true, attributes: [name]}
      orders: {type: Order, attributes: [order_id]}
    order: any
    old:
      user: {get: {table: Users, key: {id: "{user_id}"}}}
      orders: {query: {table: Orders, index: by_user, key: {user_id: "{user_id}"}}}
"""
USERS, ORDERS = 12, 60
KEYS = {"Users": {"id": "S"}, "Orders": {"order_id": "S"}, "Lines": {"order_id": "S", "line": "N"}}
INDEXES = {"Orders": {"by_user": {"user_id": "S", "placed": "S"}}}
PATTERNS = 6
"""How many there are."""


def _rows() -> dict[str, list[dict[str, Any]]]:
    return {
        "Users": [
            {
                "id": f"u{n}",
                "name": f"Name {n}",
                "score": n if n % 3 else None,
                "address": {"city": f"City {n % 5}"},
            }
            for n in range(USERS)
        ],
        "Orders": [
            {
                "order_id": f"o{n}",
                "user_id": f"u{n % USERS}",
                "status": ("paid", "open")[n % 2],
                "placed": f"2024-03-01T10:00:{n:02}Z",
            }
            for n in range(ORDERS)
        ],
        "Lines": [
            {
                "order_id": f"o{n // 2}",
                "line": n % 2 + 1,
                "sku": f"s{n}",
                "tags": {"b", "a"} if n % 3 else None,
            }
            for n in range(2 * ORDERS)
        ],
    }


@dataclass
class Shop:
    """`real`: what the tables are called."""

    project: Project
    tables: OldTables
    real: dict[str, str]

    @property
    def job(self) -> str:
        return str(self.project.job)


@contextmanager
def old_shop(tmp_path: Path, dynamodb_url: str, more: Mapping[str, str] | None = None) -> Iterator[Shop]:
    """Backfilled, and not changed any more. `more`: tables that the job names, and the mapping says nothing of."""
    mark = secrets.token_hex(3)
    real = {name: f"{mark}-{name.lower()}" for name in KEYS}
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    made = project(tmp_path, "sqlite:///none.db", dynamodb_url, f"S{secrets.token_hex(4)}")
    job = {
        "job": 1,
        "name": "shop",
        "mapping": "mapping.yaml",
        "source": {"dynamodb": {"tables": real | dict(more or {}), "endpoint": dynamodb_url}},
        "target": {"table": made.table, "endpoint": dynamodb_url},
    }
    made.job.write_text(json.dumps(job))
    with old_tables(dynamodb_url) as tables:
        for name, rows in _rows().items():
            tables.make(real[name], KEYS[name], rows, indexes=INDEXES.get(name), projection="ALL")
        made.prepared("table create", "capture install", "backfill")
        yield Shop(made, tables, real)
