"""transform: a user's pure function gives values that SQL cannot, and every way in which one goes wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from migrator.mapping.check.check import check_mapping
from migrator.runtime.errors import MappingError, RowError
from migrator.settings.transforms import load_transforms
from tests import pins
from tests.language.conftest import Database, database_on
from tests.language.context import HEAD, checked, items, open_source
from tests.support_mapping import parse_mapping

SCRIPT = """
CREATE TABLE product (id INTEGER PRIMARY KEY, name VARCHAR(40), price NUMERIC(10, 2));
CREATE TABLE tag (product_id INTEGER REFERENCES product (id), name VARCHAR(20), PRIMARY KEY (product_id, name));
INSERT INTO product VALUES (1, 'Blue Mug', 9.50), (2, 'Cap', 4);
INSERT INTO tag VALUES (1, 'kitchen'), (1, 'blue');
"""
TEXT = (
    HEAD
    + """
entities:
  product:
    transform: shop_rules:derived
    collect: {tags: {of: tag, by: product_id}}
    items:
      Product:
        key: ["PRODUCT#{id}", "SLUG#{transform.slug}"]
        attributes: {score: transform.score, tags: transform.tags, names: {each: tags, attributes: {n: name}}}
"""
)


def derived(row: Any) -> dict[str, Any]:
    return {
        "slug": row["name"].lower().replace(" ", "-"),
        "score": row["price"] * 2,
        "tags": sorted(tag["name"] for tag in row["tags"]),
    }


def test_its_values_stand_in_keys_and_attributes(database: Database) -> None:
    found = items(database(SCRIPT), TEXT, {"shop_rules:derived": derived})
    assert [(item["SK"], item["score"], item["tags"]) for item in found] == [
        ("SLUG#blue-mug", 19, ["blue", "kitchen"]),
        ("SLUG#cap", 8, []),
    ]


def test_a_key_that_a_transform_makes_is_unproved(database: Database) -> None:
    found = checked(
        database(SCRIPT), TEXT.replace('PRODUCT#{id}"', 'PRODUCTS"'), {"shop_rules:derived": derived}
    )
    assert found.unproved == {"product": frozenset({"Product"})}


def raising(row: Any) -> Any:
    raise KeyError(row["name"])


COUNTER = iter(range(1_000))

WRONG: dict[str, Any] = {
    "raises": raising,
    "no dict": lambda row: [1],
    "a name missing": lambda row: {"slug": "x", "score": 1},
    "a set": lambda row: {"slug": "x", "score": {1}, "tags": []},
    "not a number": lambda row: {"slug": "x", "score": float("nan"), "tags": []},
    "no memory of its own": lambda row: {"slug": f"x{next(COUNTER)}", "score": 1, "tags": []},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_transform_must_not_do(database: Database, name: str) -> None:
    with pins.refused(RowError):
        items(database(SCRIPT), TEXT, {"shop_rules:derived": WRONG[name]})


def test_a_transform_may_not_change_the_row(database: Database) -> None:
    def function(row: Any) -> Any:
        return {"slug": row["tags"].append({"name": "x"}) or str(len(row["tags"])), "score": 1, "tags": []}

    found = items(database(SCRIPT), TEXT, {"shop_rules:derived": function})
    assert [item["SK"] for item in found] == ["SLUG#3", "SLUG#1"]


def test_transform_changing_a_document_does_not_change_the_items(database: Database) -> None:
    def spoiling(row: Any) -> dict[str, Any]:
        row["body"]["tags"].sort()
        return {"n": 1}

    script = "CREATE TABLE doc (id INTEGER PRIMARY KEY, body JSON); INSERT INTO doc VALUES (1, '{\"tags\": [3, 1]}');"
    text = (
        HEAD
        + "entities: {doc: {transform: shop_rules:derived, items: {Doc: {key: ['D#{id}', '{transform.n:02}'], keep: [body]}}}}"
    )
    (item,) = items(database(script), text, {"shop_rules:derived": spoiling})
    assert item["body"] == {"tags": [3, 1]}


# ── finding it ──────────────────────────────────────────────────────────────────────────────────

MODULE = """
import time, random, datetime
from uuid import uuid4

def pure(row): return {"slug": helper(row["name"])}
def helper(text): return text.lower()
def clock(row): return {"at": time.time()}
def date(row): return {"at": datetime.datetime.now()}
def chance(row): return {"at": (lambda: random.random())()}
def ids(row): return {"at": uuid4()}
def file(row): return {"at": open("x").read()}
def indirect(row): return tick(row)
def tick(row): return {"at": time.monotonic()}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"rules_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def found_faults(named: str) -> list[str]:
    text = TEXT.replace("shop_rules:derived", named)
    return [fault.what for fault in load_transforms(parse_mapping(text, "m.yaml"))[0].faults]


def test_pure_function_is_loaded_and_is_part_of_the_revision(module: str, tmp_path: Path) -> None:
    parsed = parse_mapping(TEXT.replace("shop_rules:derived", f"{module}:pure"), "m.yaml")
    revised, functions = load_transforms(parsed)
    assert list(functions) == [f"{module}:pure"]
    assert revised.mapping.revision != parsed.mapping.revision
    assert load_transforms(parsed)[0].mapping.revision == revised.mapping.revision


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("clock", "time"),
        ("date", "now"),
        ("chance", "random"),
        ("ids", "uuid4"),
        ("file", "open"),
        ("indirect", "time"),
    ],
)
def test_a_function_that_reads_the_clock_or_a_file_is_refused(module: str, name: str, used: str) -> None:
    what = (
        f"{module}:{name} uses '{used}'; a transform must be pure: no clock, no chance, no file, no network"
    )
    assert found_faults(f"{module}:{name}") == [what]


def test_a_function_that_is_not_there(module: str, tmp_path: Path) -> None:
    assert found_faults(f"{module}:pur") == [pins.text("mean", module=module)]
    assert found_faults("no_such_module_here:x") == [pins.text("module")]
    (tmp_path / f"{module}_broken.py").write_text("1/0")
    assert found_faults(f"{module}_broken:x") == [pins.text("importing", module=module)]


def test_its_fault_is_reported_with_all_others(database: Database, module: str) -> None:
    text = TEXT.replace("shop_rules:derived", f"{module}:clock").replace("by: product_id", "by: produkt_id")
    revised, functions = load_transforms(parse_mapping(text, "m.yaml"))
    source = open_source(database(SCRIPT), text)
    with pytest.raises(MappingError) as caught:
        check_mapping(revised, source.facts(), functions)
    source.close()
    assert len(caught.value.faults) == 2


# ── what it sees ────────────────────────────────────────────────────────────────────────────────

JOINED = (
    HEAD
    + """
entities:
  tag:
    transform: shop_rules:derived
    join: {product: product_id}
    items: {Tag: {key: ["TAG#{name}", "PRODUCT#{product_id:06}"], attributes: {label: transform.label}}}
"""
)


def test_it_sees_joined_columns_that_no_item_names(database: Database) -> None:
    found = items(
        database(SCRIPT), JOINED, {"shop_rules:derived": lambda row: {"label": row.get("product.name")}}
    )
    assert [item["label"] for item in found] == ["Blue Mug", "Blue Mug"]


def test_a_join_that_nothing_reads_is_a_warning(database: Database) -> None:
    text = JOINED.replace("    transform: shop_rules:derived\n", "").replace("transform.label", "name")
    # MariaDB's default collation takes texts of the key for one, which is another warning.
    (warning,) = [one for one in checked(database(SCRIPT), text).warnings if "join" in one.where]
    assert str(warning) == pins.text()


def test_number_without_a_form_is_text_with_a_transform(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    script = f"CREATE TABLE gauge (id INTEGER PRIMARY KEY, level NUMERIC); INSERT INTO gauge VALUES (1, 'NaN'), (2, {'1' * 39});"
    text = (
        HEAD
        + """
entities:
  gauge:
    transform: shop_rules:derived
    items: {Gauge: {key: ["GAUGE#{id:02}", META], attributes: {level: "level|text", seen: transform.seen}}}
"""
    )
    url = database_on("postgresql", request, tmp_path)(script)
    found = items(url, text, {"shop_rules:derived": lambda row: {"seen": row["level"]}})
    assert [(item["level"], item["seen"]) for item in found] == [("NaN", "NaN"), ("1" * 39, "1" * 39)]


def test_its_module_is_next_to_the_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "rules_beside.py").write_text("def derived(row):\n    return {'slug': 'x'}\n")
    named = TEXT.replace("shop_rules:derived", "rules_beside:derived")
    assert load_transforms(parse_mapping(named, "elsewhere/m.yaml"))[0].faults
    _, found = load_transforms(parse_mapping(named, str(tmp_path / "m.yaml")))
    assert list(found) == ["rules_beside:derived"]


def test_transform_error_is_shown_only_for_a_requested_row(database: Database) -> None:
    with pytest.raises(RowError) as caught:
        items(database(SCRIPT), TEXT, {"shop_rules:derived": raising})
    assert "Blue Mug" not in str(caught.value)
    assert caught.value.private == pins.text()
