"""Old tables whose keys and values are of every type: read in pages, by a relay, by verify and one by one."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.command import Project, project
from tests.support_documents import OldTables, old_tables

BYTES = [b"\x00\xff", b"\xff", "Ünïcode".encode(), b'{"b64": 1}', b"a" * 60]
NUMBERS = [
    Decimal(text)
    for text in ("0", "-7", "0.5", "12345678901234567890123456789012345678", "1E+120", "-1.5E-100", "2E+29")
]
BODIES: list[Any] = [
    *("5", "true", "", "null", '{"a": 1}', "[1]", "1.50"),
    *(5, Decimal("1.50"), True, False),
    *([1, "5", None], {"5": "true", "n": {"z": None}}),
]


@contextmanager
def moved(
    folder: Path, url: str, keys: Mapping[str, str], columns: Mapping[str, str], rows: list[dict[str, Any]]
) -> Iterator[tuple[Project, OldTables, str]]:
    """A captured and filled job on one old table, `Things`."""
    real = f"things-{secrets.token_hex(4)}"
    mapping = {
        "mapping": 1,
        "source": {"timezone": "UTC", "tables": {"Things": {"key": list(keys), "columns": dict(columns)}}},
        "table": {"name": "Shop", "key": ["PK", "SK"], "type": "type", "ttl": "ttl"},
        "entities": {
            "thing": {
                "table": "Things",
                "items": {"Thing": {"key": ["T#{n:03}", "META"], "keep": [*columns]}},
            }
        },
    }
    (folder / "mapping.yaml").write_text(json.dumps(mapping))
    made = project(folder, "sqlite:///none.db", url, f"S{secrets.token_hex(4)}")
    job = {
        "job": 1,
        "name": "shop",
        "mapping": "mapping.yaml",
        "source": {"dynamodb": {"tables": {"Things": real}, "endpoint": url}},
        "target": {"table": made.table, "endpoint": url},
    }
    made.job.write_text(json.dumps(job))
    with old_tables(url) as tables:
        tables.make(real, keys, rows)
        made.prepared("table create", "capture install", "backfill")
        yield made, tables, real


@pytest.mark.parametrize(
    ("type_", "declared", "values"),
    [("B", "binary", BYTES), ("N", "number", NUMBERS)],
    ids=["binary", "number"],
)
def test_documents_are_followed_by_keys_of_a_type(
    type_: str, declared: str, values: list[Any], dynamodb_url: str, tmp_path: Path
) -> None:
    rows = [{"id": value, "n": n, "note": "old"} for n, value in enumerate(values)]
    columns = {"id": declared, "n": "integer", "note": "text"}
    with moved(tmp_path, dynamodb_url, {"id": type_}, columns, rows[1:]) as (made, tables, real):
        tables.put(real, [rows[0], *({**row, "note": "new"} for row in rows[1::2])])
        made.done("relay", str(made.job), "--once")
        made.done("verify", str(made.job))
        stored = {item["n"]: (item["id"], item["note"]) for item in made.items() if item["type"] == "Thing"}
        assert stored == {n: (row["id"], "new" if n % 2 else "old") for n, row in enumerate(rows)}


def test_json_attributes_stay_of_the_type_that_they_have(dynamodb_url: str, tmp_path: Path) -> None:
    rows = [{"id": f"t{n}", "n": n, "body": body} for n, body in enumerate(BODIES)]
    columns = {"id": "text", "n": "integer", "body": "json"}
    with moved(tmp_path, dynamodb_url, {"id": "S"}, columns, rows) as (made, tables, real):
        made.done("verify", str(made.job))
        tables.put(real, rows)
        made.done("relay", str(made.job), "--once")
        made.done("verify", str(made.job))
        stored = {item["n"]: item["body"] for item in made.items() if item["type"] == "Thing"}
        assert stored == dict(enumerate(BODIES))
        assert {n: type(value) for n, value in stored.items() if not isinstance(value, (int, Decimal))} == {
            n: type(value) for n, value in enumerate(BODIES) if not isinstance(value, (int, Decimal))
        }
