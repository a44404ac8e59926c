"""`migrator export --as json-schema`: every item of the shipped mappings is as the schema says, and no wrong one is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from migrator.features.exports.json_schema import json_schema
from migrator.mapping.items.items import items_for, stamp
from migrator.mapping.model.table import Item
from tests import pins
from tests import support_services as services
from tests.exports.shipped import shipped
from tests.exports.typescript import HEAD, Opened, opened, opened_design, plain
from tools.pages.golden import NAMES, ROOT, read_golden


def _items(described: Opened) -> Iterator[Item]:
    for entity in described.checked.entities:
        for row in described.source.read_page(entity.plan, None, None, 40):
            made = items_for(entity, row)
            stamp(made, entity.table, 7)
            yield from made


def _validator(described: Opened) -> Draft202012Validator:
    schema = json.loads(json_schema(described.model, HEAD))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("name", NAMES)
def test_schema_accepts_every_golden_item_and_no_wrong_one(name: str, tmp_path: Path) -> None:
    with opened_design(name, tmp_path) as described:
        validator, items = _validator(described), list(_items(described))
        for item in [*items, *read_golden(name).items]:
            assert list(validator.iter_errors(plain(item))) == [], item
        for item in items:
            for wrong in _wrong(described, plain(item)):
                assert not validator.is_valid(wrong), wrong


def _wrong(described: Opened, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    table = described.model.table
    required = [*(attribute.name for attribute in table.key), table.type_attribute]
    yield from ({name: value for name, value in item.items() if name != missing} for missing in required)
    yield {**item, table.type_attribute: "Nothing of this name"}
    yield {**item, "an attribute that nothing makes": 1}
    yield from ({**item, name: {"no": "scalar"}} for name in required)
    yield {**item, "_tk": "7"}


_NESTED = """\
CREATE EXTENSION hstore;
CREATE TYPE pair AS (code text, tries integer[]);
CREATE TABLE nested (id integer PRIMARY KEY, "a/b" integer[][], pairs pair, marks hstore, opens timetz);
INSERT INTO nested VALUES
  (1, '{{1,NULL},{3,4}}', '(x,"{{1},{2}}")', 'a=>1, b=>NULL', '10:00:00.5-08'),
  (2, '{{{5}}}', '(,"{NULL}")', '', '23:59:59+05:30'), (3, '{}', NULL, NULL, NULL);
"""


@pytest.mark.postgres
def test_arrays_in_arrays_and_null_in_maps_match_the_schema(postgres_url: str, tmp_path: Path) -> None:
    mapping = """\
mapping: 1
table: {name: Nested, key: [PK, SK], type: type}
entities: {nested: {items: {Nested: {key: ["N#{id}", META], keep: all}}}}
"""
    (tmp_path / "nested.yaml").write_text(mapping)
    with services.postgres_database(postgres_url) as url:
        services.run_script(url, _NESTED)
        with opened(tmp_path / "nested.yaml", url) as described:
            validator, items = _validator(described), [plain(item) for item in _items(described)]
    assert [list(validator.iter_errors(item)) for item in items] == [[], [], []]
    for name, wrong in (
        ("a/b", [["x"]]),
        ("marks", {"a": 1}),
        ("pairs", {"tries": [[""]]}),
        ("opens", "10:00"),
    ):
        assert not validator.is_valid({**items[0], name: wrong})


@pytest.mark.slow
def test_items_of_chinook_match_the_schema(chinook_dir: Path) -> None:
    url = f"sqlite:///{chinook_dir / 'Chinook_Sqlite.sqlite'}"
    with opened(ROOT / "mappings" / "chinook.yaml", url) as described:
        validator = _validator(described)
        for item in _items(described):
            assert list(validator.iter_errors(plain(item))) == [], item
            half = {name: value for name, value in plain(item).items() if name != "GSI1SK"}
            assert validator.is_valid(half) == ("GSI1SK" not in item)
            assert not validator.is_valid({**plain(item), "PK": f"X{item['PK']!s}"})


@pytest.mark.slow
def test_the_command_writes_the_schema(tmp_path: Path, chinook_dir: Path) -> None:
    job = shipped(tmp_path, ROOT / "mappings" / "chinook.yaml", "http://127.0.0.1:1")
    path = job.folder / "job.yaml"
    path.write_text(path.read_text().replace("never.db", str(chinook_dir / "Chinook_Sqlite.sqlite")))
    schema = json.loads(job.exported("json-schema"))
    assert schema["$comment"] == pins.text()
    for kind, file in (
        ("json-schema", "items.schema.json"),
        ("electrodb", "electrodb.ts"),
    ):
        assert job.run("export", "job.yaml", "--as", kind, "--out", "src").code == 0
        assert (job.folder / "src" / file).read_text(encoding="utf-8") == job.exported(kind)
        assert job.run("export", "job.yaml", "--as", kind, "--out", "src", "--dry-run").code == 0
    (job.folder / "src" / "electrodb.ts").write_text("// mine")
    assert job.run("export", "--as", "electrodb", "job.yaml", "--out", "src", "--dry-run").code == 1
    assert job.run("export", "--as", "electrodb", "job.yaml", "--out", "src").code == 2
