"""Every type that an old table's attribute may have: backfill, a relay and verify; as an attribute and as a key."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3

from tests.exports.generated import CLIENT
from tests.journeys.command import Project, project
from tests.support_documents import OldTables, Wired, old_tables

DAY, UUID = "2024-03-31", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


@dataclass(frozen=True)
class Case:
    """An attribute as a document has it, and as its item has it if that differs. `empty`: the empty value of its type."""

    declared: str
    given: Wired
    stored: Wired | None = None
    empty: Wired | None = None

    @property
    def is_key(self) -> bool:
        return self.given.keys() <= {"S", "N", "B"} and self.declared not in ("json", "any")

    @property
    def kept(self) -> Wired:
        return self.given if self.stored is None else self.stored


CASES = [
    Case("text", {"S": "ab  'Ä😀"}, empty={"S": ""}),
    Case("uuid", {"S": UUID.upper()}, {"S": UUID}),
    Case("date", {"S": DAY}),
    Case("time", {"S": "04:05:06.7"}, {"S": "04:05:06.700000"}),
    Case("timestamp", {"S": f"{DAY} 02:30"}, {"S": f"{DAY}T02:30:00.000000"}),
    Case("timestamp with zone", {"S": f"{DAY}T02:30:00+02:00"}, {"S": f"{DAY}T00:30:00.000000Z"}),
    Case("integer", {"N": "9007199254740993"}),
    Case("number", {"N": "12345678901234567890123456789012345678"}),
    Case("number", {"N": "-1.5E-100"}),
    Case("number(2)", {"N": "0.25"}),
    Case("boolean", {"BOOL": False}),
    Case("binary", {"B": b"\x00\xff"}, empty={"B": b""}),
    Case("list", {"L": [{"N": "1.5"}, {"S": ""}, {"NULL": True}, {"M": {}}]}, empty={"L": []}),
    Case("map", {"M": {"a": {"L": []}, "b": {"BOOL": True}, "Ä": {"NULL": True}}}, empty={"M": {}}),
    Case("set(text)", {"SS": ["a", "b"]}),
    Case("set(number)", {"NS": ["1.5", "-7"]}),
    Case("set(binary)", {"BS": [b"\x00", b"\xff"]}),
    *(
        Case("json", value, empty={"S": ""})
        for value in (
            *({"S": "5"}, {"S": "true"}, {"S": "null"}, {"S": '{"a": 1}'}, {"N": "5"}, {"BOOL": True}),
            *({"L": [{"S": "5"}, {"NULL": True}]}, {"M": {"5": {"S": "true"}}}),
        )
    ),
    *(
        Case("any", value, empty={"S": ""})
        for value in (
            *({"S": "5"}, {"N": "1E+120"}, {"B": b"\x00"}, {"BOOL": True}, {"L": [{"N": "1"}]}),
            *({"M": {"a": {"S": ""}}}, {"SS": ["a"]}, {"NS": ["1"]}, {"BS": [b"\x00"]}),
        )
    ),
]
KEYS = [number for number, case in enumerate(CASES) if case.is_key]


@dataclass
class Old:
    """Old tables `Things` (all types as attributes) and `Keyed0`, `Keyed1`, … (a type as the key), and what their items are to be."""

    made: Project
    tables: OldTables
    real: dict[str, str]

    def put(self, table: str, document: Wired) -> None:
        self.tables.client.put_item(TableName=self.real[table], Item=document)

    def clear(self) -> None:
        """Deletes each document by the key that the table has."""
        for name, real in self.real.items():
            key = "n" if name == "Things" else "k"
            for document in self.client.scan(TableName=real)["Items"]:
                self.client.delete_item(TableName=real, Key={key: document[key]})
            assert self.client.scan(TableName=real)["Items"] == []

    @property
    def client(self) -> Any:
        return boto3.client("dynamodb", endpoint_url=self.made.endpoint, **CLIENT)

    def stored(self) -> dict[tuple[str, str], Wired]:
        """By type and number, each item's attributes in DynamoDB JSON, without the keys of the item."""
        pages = self.client.get_paginator("scan").paginate(TableName=self.made.table)
        items = [item for page in pages for item in page["Items"] if "n" in item]
        own = {"PK", "SK", "type", "n"}
        return {
            (item["type"]["S"], item["n"]["N"]): _plain(
                {name: value for name, value in item.items() if name not in own and not name.startswith("_")}
            )
            for item in items
        }


def _plain(value: Any) -> Any:
    """Sets in one order, and numbers by their value."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    numbers: dict[str, Callable[[Any], Any]] = {
        "N": Decimal,
        "NS": lambda texts: sorted(map(Decimal, texts)),
        "SS": sorted,
        "BS": sorted,
    }
    return {name: numbers.get(name, _plain)(of) for name, of in value.items()}


def _mapping() -> dict[str, Any]:
    attributes = {f"a{number}": case.declared for number, case in enumerate(CASES)}
    tables: dict[str, Any] = {"Things": {"key": ["n"], "columns": {"n": "integer", **attributes}}}
    entities: dict[str, Any] = {
        "thing": {"table": "Things", "items": {"Things": {"key": ["T#{n}", "P"], "keep": ["n", *attributes]}}}
    }
    for number in KEYS:
        name = f"Keyed{number}"
        tables[name] = {"key": ["k"], "columns": {"k": CASES[number].declared, "n": "integer"}}
        key = [f"{name}#{{k|hash}}", "P"]
        entities[name.lower()] = {"table": name, "items": {name: {"key": key, "keep": ["k", "n"]}}}
    return {
        "mapping": 1,
        "source": {"timezone": "UTC", "tables": tables},
        "table": {"name": "Types", "key": ["PK", "SK"], "type": "type", "ttl": "expiresAt"},
        "entities": entities,
    }


def _old(folder: Path, url: str, tables: OldTables) -> Old:
    mark = secrets.token_hex(3)
    real = {name: f"{mark}-{name.lower()}" for name in ("Things", *(f"Keyed{number}" for number in KEYS))}
    (folder / "mapping.yaml").write_text(json.dumps(_mapping()))
    made = project(folder, "sqlite:///none.db", url, f"T{secrets.token_hex(4)}")
    job = {
        "job": 1,
        "name": "types",
        "mapping": "mapping.yaml",
        "source": {"dynamodb": {"tables": real, "endpoint": url}},
        "target": {"table": made.table, "endpoint": url},
    }
    made.job.write_text(json.dumps(job))
    tables.make(real["Things"], {"n": "N"})
    for number in KEYS:
        tables.make(real[f"Keyed{number}"], {"k": next(iter(CASES[number].given))})
    return Old(made, tables, real)


def _document(n: int, values: dict[int, Wired]) -> Wired:
    return {"n": {"N": str(n)}, **{f"a{number}": value for number, value in values.items()}}


GIVEN = {number: case.given for number, case in enumerate(CASES)}
KEPT = {f"a{number}": _plain(case.kept) for number, case in enumerate(CASES)}
EMPTY = {number: case.empty for number, case in enumerate(CASES) if case.empty is not None}
NULLS: dict[int, Wired] = {number: {"NULL": True} for number in GIVEN}


def test_types_of_documents_keep_their_values_in_every_stage(dynamodb_url: str, tmp_path: Path) -> None:
    with old_tables(dynamodb_url) as tables:
        old = _old(tmp_path, dynamodb_url, tables)
        made, job = old.made, str(old.made.job)
        rows = [GIVEN, EMPTY, NULLS, {}]
        for n, row in enumerate(rows):
            old.put("Things", _document(n, row))
        for number in KEYS:
            old.put(f"Keyed{number}", {"k": CASES[number].given, "n": {"N": "1"}})
        made.prepared("table create", "capture install", "backfill", "verify")
        filled = old.stored()
        for n, row in enumerate(rows):
            old.put("Things", _document(n + 4, row))
            old.put("Things", _document(n, {**row, **({0: {"S": "new"}} if n == 3 else {})}))
        for number in KEYS:
            old.put(f"Keyed{number}", {"k": CASES[number].given, "n": {"N": "2"}})
        made.prepared("relay --once", "verify")
        relayed = old.stored()
        empty = {f"a{number}": value for number, value in EMPTY.items()}
        for n in (0, 4):
            assert relayed["Things", str(n)] == KEPT
        assert filled["Things", "0"] == KEPT
        for n in (1, 5):
            assert relayed["Things", str(n)] == empty
        assert filled["Things", "1"] == empty
        assert filled["Things", "2"] == relayed["Things", "2"] == relayed["Things", "6"]
        assert (filled["Things", "3"], relayed["Things", "3"], relayed["Things", "7"]) == (
            {},
            {"a0": {"S": "new"}},
            {},
        )
        for number in KEYS:
            kept = {"k": _plain(CASES[number].kept)}
            assert (filled[f"Keyed{number}", "1"], relayed[f"Keyed{number}", "2"]) == (kept, kept)
        old.clear()
        made.prepared("relay --once", "verify")
        assert old.stored() == {}
        refused = made.run("reverse", "check", job)
        assert refused.code != 0, "documents are not written by reverse"
