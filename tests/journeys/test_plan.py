"""`migrator plan`: its units beside those computed by hand from stored items, on engines and schemas; what does not fit; and
what it refuses."""

from __future__ import annotations

import base64
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migrator.dynamodb.client import dynamodb_client
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.patterns.requests import Requests
from migrator.settings.job import SourceSettings
from migrator.settings.transforms import checked_on, read_mapping
from migrator.stages.design.sizing import SampleBounds
from migrator.stages.patterns.param_sampling import RowSample, draw
from migrator.stages.session.source import open_source
from tests import pins
from tests.fakes.conditions import holds
from tests.journeys.command import ROOT, Project
from tests.journeys.in_process import Ended
from tests.journeys.test_init import ENGINES, source_of
from tests.support_design import OF_TENANTS, QUESTIONS, filled

CLOSE = 0.05
"""How far the plan's units may be from those of the stored items."""
KB = 1024
REGION = "eu-central-1"


@pytest.fixture
def here(tmp_path: Path, dynamodb_url: str) -> Callable[[str], Project]:
    def make(source: str) -> Project:
        environment = {
            "MIGRATOR_SOURCE_URL": source,
            "MIGRATOR_ENDPOINT_URL": dynamodb_url,
            "PYTHONPATH": str(ROOT),
        }
        table = f"Plan{secrets.token_hex(4)}"
        return Project(tmp_path, tmp_path / "shop.job.yaml", table, dynamodb_url, environment)

    return make


# ── units of stored items, by hand: AWS Developer Guide, "DynamoDB item sizes and formats" ──


def stored_bytes(item: Mapping[str, Any]) -> int:
    """Of an item in its wire form."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, held),) = value.items()
    if kind == "S":
        return len(held.encode())
    if kind == "N":
        digits: str = held.lstrip("-").replace(".", "").strip("0")
        return min(21, (len(digits) + 1) // 2 + 1 + str(held).startswith("-"))
    if kind == "B":
        return len(held if isinstance(held, bytes) else base64.b64decode(held))
    if kind in ("BOOL", "NULL"):
        return 1
    if kind == "M":
        return 3 + sum(len(name.encode()) + 1 + value_bytes(inner) for name, inner in held.items())
    return 3 + sum(1 + value_bytes(inner) for inner in held)


def read_units(size_bytes: int) -> float:
    """Of a request that need not be consistent."""
    return max(1, -(-size_bytes // (4 * KB))) / 2


@dataclass
class Entry:
    """An item as it is stored, or its entry in an index: its key attributes, and its bytes."""

    keys: dict[str, Any]
    size_bytes: int


class Stored:
    """The items of a filled table, read by one scan, and what requests would find among them."""

    def __init__(self, project: Project) -> None:
        client = dynamodb_client(region=REGION, profile=None, endpoint=project.endpoint)
        described = client.describe_table(TableName=project.table)["Table"]
        indexes = described.get("GlobalSecondaryIndexes", [])
        assert all(index["Projection"]["ProjectionType"] == "ALL" for index in indexes)
        schemas = {None: described["KeySchema"]} | {
            index["IndexName"]: index["KeySchema"] for index in indexes
        }
        self.keys = {name: [part["AttributeName"] for part in schema] for name, schema in schemas.items()}
        pages = client.get_paginator("scan").paginate(TableName=project.table)
        self.items = [Entry(plain(item), stored_bytes(item)) for page in pages for item in page["Items"]]
        self.entries: dict[tuple[str | None, str], list[Entry]] = {}
        for item in self.items:
            for index, names in self.keys.items():
                if all(name in item.keys for name in names):
                    self.entries.setdefault((index, item.keys[names[0]]), []).append(item)

    def write_units(self) -> int:
        """Of putting each item once, with an entry in each index whose keys it has, all of which hold whole items."""
        return sum(-(-entry.size_bytes // KB) for found in self.entries.values() for entry in found)

    def call_units(self, pattern: Pattern, requests: Sequence[Mapping[str, Any]], limit: int | None) -> float:
        return sum(sum(self._of(pattern, request, limit)) for request in requests)

    def _of(self, pattern: Pattern, request: Mapping[str, Any], limit: int | None) -> Iterator[float]:
        if pattern.operation != "query":
            for key in request.get("Keys", [request.get("Key")]):
                found = self.entries.get((None, next(iter(key.values()))), [])
                yield read_units(
                    sum(entry.size_bytes for entry in found if key.items() <= entry.keys.items())
                )
            return
        assert limit is None or not pattern.filters, "no mapping here has both"
        index = request.get("IndexName")
        found = self.entries.get((index, request["ExpressionAttributeValues"][":p0"]), [])
        meets = [entry for entry in found if holds(entry.keys, request["KeyConditionExpression"], request)]
        ordered = sorted(meets, key=lambda entry: [entry.keys[name] for name in self.keys[index][1:]])
        if not request["ScanIndexForward"]:
            ordered.reverse()
        page_bytes = 0
        for entry in ordered[:limit]:
            if page_bytes + entry.size_bytes > KB * KB:
                yield read_units(page_bytes)
                page_bytes = 0
            page_bytes += entry.size_bytes
        yield read_units(page_bytes)


def plain(item: Mapping[str, Any]) -> dict[str, Any]:
    """Texts and numbers, which keys are made of."""
    kinds = {name: next(iter(value.items())) for name, value in item.items()}
    made = {"S": str, "N": Decimal}
    return {name: made[kind](held) for name, (kind, held) in kinds.items() if kind in made}


def units_of_calls(project: Project, mapping: Path) -> dict[str, float]:
    """By pattern the mean of the calls that the plan tries, too, each asked of the table."""
    stored, parsed, bounds = Stored(project), read_mapping(mapping), SampleBounds()
    settings = SourceSettings.model_construct(url=project.environment["MIGRATOR_SOURCE_URL"])
    means = {}
    with open_source(settings, parsed) as source:
        checked = checked_on(source, parsed)
        pool = RowSample(source, checked.entities, bounds.seed)
        for pattern in checked.mapping.patterns.values():
            drawn = draw(checked.mapping, pattern, pool, round(bounds.calls * 1.25), bounds.seed).draws
            params = [one.values for one in drawn if not one.absent][: bounds.calls]
            asked = [Requests(checked.mapping, pattern).of(values) for values in params]
            units = [stored.call_units(pattern, request.sent, request.limit) for request in asked]
            means[pattern.name] = sum(units) / len(units)
    return means


def check_against_the_table(project: Project, mapping: Path) -> Any:
    planned = project.run("plan", str(project.job), "--json")
    assert planned.code == 0, planned.err
    project.prepared("table create", "backfill")
    data, stored = planned.data, Stored(project)
    assert data["items"] == len(stored.items)
    assert data["write_units"] == pytest.approx(stored.write_units(), rel=CLOSE)
    read = units_of_calls(project, mapping)
    assert read == pytest.approx({one["pattern"]: one["units"] for one in data["patterns"]}, rel=CLOSE)
    assert len({round(units, 2) for units in read.values()}) > 3, "some patterns read more than others"
    return data


@pytest.mark.parametrize("engine", ENGINES)
def test_chinooks_units_are_those_of_its_stored_items(
    engine: str, here: Callable[[str], Project], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    project = here(source_of(engine, request, tmp_path))
    name = "chinook_postgresql" if engine == "postgresql" else "chinook"
    mapping = tmp_path / "shop.yaml"
    text = (ROOT / "mappings" / f"{name}.yaml").read_text(encoding="utf-8")
    mapping.write_text(text.replace("name: Chinook", f"name: {project.table}"), encoding="utf-8")
    write_job(project)
    data = check_against_the_table(project, mapping)
    assert (data["items"], data["write_units"], data["refused"]) == (15_666, 37_200, 0)
    assert {one["exact"] for one in [*data["patterns"], *data["places"], *data["types"]]} == {True}
    hottest = data["places"][0]["hottest"][0]
    assert (hottest["items"], hottest["key"]) == (3_291, "PLAYLIST#8")
    rewrites = {
        (one["table"].rpartition(".")[2].lower(), one["entity"]): one["roots"] for one in data["rewrites"]
    }
    assert rewrites["genre", "track"]["most"] == 1_297


def write_job(project: Project) -> None:
    project.job.write_text(
        'job: 1\nmapping: shop.yaml\nsource: {url: "${MIGRATOR_SOURCE_URL}"}\n'
        'target: {endpoint: "${MIGRATOR_ENDPOINT_URL}", region: eu-central-1}\n',
        encoding="utf-8",
    )


def test_a_proposed_designs_units_are_those_of_its_stored_items(
    here: Callable[[str], Project], tmp_path: Path
) -> None:
    filled(tmp_path / "source.db", seed=5)
    project = here(f"sqlite:///{tmp_path / 'source.db'}")
    project.environment["AWS_REGION"] = REGION  # a proposed job names none
    (tmp_path / "log.sql").write_text(QUESTIONS + OF_TENANTS, encoding="utf-8")
    words = ("--statements", "log.sql", "--max-indexes", "9", "--out", "shop.yaml", "--table", project.table)
    proposed = project.run("init", project.environment["MIGRATOR_SOURCE_URL"], *words)
    assert proposed.code in (0, 1), proposed.err
    check_against_the_table(project, tmp_path / "shop.yaml")


# ── a small shop ──

SHOP = """
CREATE TABLE customers (id INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, city TEXT);
CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id),
  status VARCHAR(10) NOT NULL, note TEXT);
CREATE TABLE logs (id INTEGER NOT NULL PRIMARY KEY, text TEXT);
"""
MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: entity, ttl: expires, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  customer:
    table: customers
    items: {Customer: {key: ["CUSTOMER#{id}", META], keep: [id, name]}}
  order:
    table: orders
    items:
      Order:
        key: ["CUSTOMER#{customer_id}", "ORDER#{id:08}"]
        GSI1: ["STATUS#{status}", "ORDER#{id:08}"]
        keep: [id, customer_id, status]
        attributes: {note: "{note}"}
access_patterns:
  customer_by_id:
    params: {id: integer}
    get: {key: ["CUSTOMER#{id}", META]}
    returns: [id, name]
    frequency: 10/s
    sql: SELECT id, name FROM customers WHERE id = :id
  newest_orders:
    params: {customer_id: integer}
    query: {key: ["CUSTOMER#{customer_id}", {begins_with: "ORDER#"}], descending: true, limit: 3}
    returns: [id]
    frequency: 2/s
    sql: SELECT id FROM orders WHERE customer_id = :customer_id ORDER BY id DESC LIMIT 3
"""
ORDERS = 40


@pytest.fixture
def shop(here: Callable[[str], Project], tmp_path: Path) -> Project:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.executescript(SHOP)
        connection.executemany(
            "INSERT INTO customers VALUES (?, ?, 'X')", [(n, f"Ann {n}") for n in range(1, 11)]
        )
        orders = [(n, 1 if n > 9 else n, "open", "x" * 1_000) for n in range(1, ORDERS + 1)]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)
        connection.commit()
    (tmp_path / "shop.yaml").write_text(MAPPING, encoding="utf-8")
    project = here(f"sqlite:///{tmp_path / 'shop.db'}")
    write_job(project)
    return project


def planned(project: Project, *words: str) -> Ended:
    return project.run("plan", "shop.job.yaml", *words)


def test_the_first_line_names_what_would_be_done(shop: Project) -> None:
    ended = planned(shop)
    assert ended.code == 0, ended.err
    triggers = shop.done("capture", "install", "shop.job.yaml", "--dry-run").out.count("CREATE TRIGGER")
    assert triggers > 6
    assert " ".join(ended.out.partition("\n\n")[0].split()) == pins.text(triggers=triggers)


def test_dollars_of_a_month_are_units_times_frequency(shop: Project) -> None:
    data = planned(shop, "--json").data
    asked = {one["pattern"]: one for one in data["patterns"]}
    # Half a unit, ten times a second, 730 hours; 0.1525 dollars a million in eu-central-1.
    assert asked["customer_by_id"]["units"] == 0.5
    assert asked["customer_by_id"]["usd_a_month"] == pytest.approx(0.5 * 10 * 730 * 3600 * 0.1525 / 1e6)
    newest = asked["newest_orders"]
    assert newest["items"] <= 3
    assert data["bills"]["reads"] == pytest.approx(sum(one["usd_a_month"] for one in data["patterns"]))
    assert data["bills"]["writes"] is None
    assert pins.said(data["writes"]["why"])


def test_plan_names_unmapped_tables_and_unused_entries(shop: Project) -> None:
    data = planned(shop, "--json").data
    assert (data["unmapped_tables"], data["unmapped_columns"]) == (
        ["logs"],
        [{"table": "customers", "columns": ["city"]}],
    )
    told = {(one["kind"], one["where"]) for one in data["advice"]}
    assert ("unasked entries", "GSI1") in told


WRITES = """
-- 900/s
INSERT INTO orders VALUES (?, ?, ?, ?);
-- 200/s
UPDATE orders SET status = ? WHERE id = ?;
"""


def test_a_partition_that_takes_too_many_writes_does_not_fit(shop: Project, tmp_path: Path) -> None:
    (tmp_path / "writes.sql").write_text(WRITES, encoding="utf-8")
    ended = planned(shop, "--json", "--statements", "writes.sql")
    assert ended.code == 1
    data = ended.data
    assert data["writes"]["per_s"] == [{"table": "orders", "per_s": 1100.0}]
    misfits = [one for one in data["advice"] if one["weight"] == "misfit"]
    # All orders are open: their partition of GSI1 takes two units (1.1 KB) of each of 1,100 puts a second.
    assert [(one["kind"], one["where"]) for one in misfits] == [
        ("write units", "the table"),
        ("write units", "GSI1"),
    ]
    assert pins.said(misfits[1]["what"])
    changing = next(one for one in data["advice"] if one["kind"] == "changing key")
    assert (changing["where"], "status" in changing["what"]) == ("orders, GSI1", True)
    # Four units a put: two in the table, two in the index.
    assert data["bills"]["writes"] == pytest.approx(1100 * 4 * 730 * 3600 * 0.7625 / 1e6)
    assert data["bills"]["provisioned"] < data["bills"]["writes"] + data["bills"]["reads"]


def test_rows_that_make_no_items_do_not_fit(shop: Project, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("INSERT INTO orders VALUES (99, 1, 'open', ?)", ["secret" * 80_000])
        connection.commit()
    ended = planned(shop)
    assert ended.code == 1
    assert pins.said(ended.out)
    assert "secret" not in ended.out + ended.err


def test_sampled_rows_are_labelled_as_an_estimate(shop: Project) -> None:
    exact, chosen = planned(shop, "--json").data, planned(shop, "--json", "--rows-exact", "20").data
    assert (exact["exact"], chosen["exact"]) == (True, False)
    assert chosen["items"] == pytest.approx(exact["items"], rel=0.2)
    newest = next(one for one in chosen["patterns"] if one["pattern"] == "newest_orders")
    assert (newest["exact"], newest["calls"]) == (False, 10)
    assert "write about " in planned(shop, "--rows-exact", "20").out


def test_keys_that_name_a_person_are_masked(shop: Project, tmp_path: Path) -> None:
    text = MAPPING.replace('"CUSTOMER#{id}", META', '"CUSTOMER#{name}", META')
    (tmp_path / "shop.yaml").write_text(text.split("access_patterns:")[0], encoding="utf-8")
    assert "Ann" not in planned(shop).out + planned(shop, "--json").out
    assert "CUSTOMER#Ann 1" in planned(shop, "--show-keys", "--json").out


def test_one_partition_key_is_shown_with_masked_items(shop: Project) -> None:
    ended = planned(shop, "--pk", "CUSTOMER#1")
    assert ended.code == 0, ended.err
    assert "ORDER#00000001" in ended.out
    assert "Ann" not in ended.out
    assert planned(shop, "--pk", "CUSTOMER#1", "--json").data["views"][0]["collections"]
    nothing = planned(shop, "--pk", "CUSTOMER#999")
    assert (nothing.code, pins.said(nothing.out, "makes")) == (1, True)
    assert pins.said(nothing.out + nothing.err, "look")
    assert planned(shop, "--pk", "CUSTOMER#1", "--out", "x.html").code == 2


def test_two_designs_stand_side_by_side(shop: Project, tmp_path: Path) -> None:
    other = MAPPING.replace('        GSI1: ["STATUS#{status}", "ORDER#{id:08}"]\n', "").replace(
        "newest_orders", "latest"
    )
    other = other.replace(", indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}", "")
    (tmp_path / "other.yaml").write_text(other, encoding="utf-8")
    data = planned(shop, "--json", "other.yaml").data
    assert data["other"]["write_units"] < data["write_units"]
    out = planned(shop, "other.yaml").out
    assert pins.said(out, "side")
    assert pins.said(out, "orders")
    assert pins.said(out, "such")


def test_a_page_is_written_and_replaced_but_no_other_file(shop: Project, tmp_path: Path) -> None:
    for _ in range(2):
        assert planned(shop, "--out", "plan.html").code == 0
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert pins.said(page)
    assert "ORDER#00000001" in page, "item collections of real rows"
    assert "Ann" not in page
    for file, what in {
        "shop.yaml": "no page of migrator's",
        "no/plan.html": "make it first",
        ".": "a folder",
    }.items():
        ended = planned(shop, "--out", file)
        assert (ended.code, what in ended.err) == (2, True), ended.err
    assert (tmp_path / "shop.yaml").read_text(encoding="utf-8") == MAPPING


def test_an_empty_table_has_nothing_to_measure(shop: Project, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.executescript("DELETE FROM orders; DELETE FROM customers")
    data = planned(shop, "--json").data
    assert (data["items"], data["write_units"]) == (0, 0)
    assert all(one["why"] == pins.text("row") for one in data["patterns"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nothing.yaml"], 2),
        (["shop.yaml"], 2),
        (["shop.job.yaml", "nothing.yaml"], 2),
        (["shop.job.yaml", "other.job.yaml"], 2),
        (["shop.job.yaml", "faulty.yaml"], 2),
        (["faulty.yaml", "--source", "sqlite:///shop.db"], 2),
        (["shop.job.yaml", "--statements", "nothing.sql"], 2),
        (["shop.yaml", "--source", "postgresql://u:secret@127.0.0.1:1/none"], 3),
        (["shop.yaml", "--source", "sqlite:///nothing.db"], 2),
        (["sourceless.yaml"], 2),
    ],
    ids=[
        "such-file",
        "mapping-say",
        "such-mapping-file",
        "reads-source",
        "column",
        "column-source",
        "nothing-read",
        "server-listens",
        "exist",
        "missing",
    ],
)
def test_what_cannot_be_planned_is_reported(
    shop: Project, tmp_path: Path, words: list[str], code: int
) -> None:
    shutil.copyfile(tmp_path / "shop.db", tmp_path / "other.db")
    (tmp_path / "other.job.yaml").write_text("job: 1\nmapping: shop.yaml\nsource: sqlite:///other.db\n")
    (tmp_path / "sourceless.yaml").write_text("job: 1\nmapping: shop.yaml\n")
    (tmp_path / "faulty.yaml").write_text(MAPPING.replace("keep: [id, name]", "keep: [id, nothing]"))
    environment = dict(shop.environment)
    if "--source" in words or words == ["shop.yaml"]:
        del environment["MIGRATOR_SOURCE_URL"]
    project = Project(tmp_path, shop.job, shop.table, shop.endpoint, environment)
    ended = project.run("plan", *words)
    assert (ended.code, pins.said(ended.err)) == (code, True), ended.err
    assert "secret" not in ended.err
